//! The plan of a pipelined loop: its loads, its dots that run across iterations, and the loop that it
//! is fused with.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tilewright_ir::{Block, Element, Inst, Shape, Value};
use tilewright_layout::Layout;

use super::super::boxed::Boxed;
use crate::remarks::Because;

/// Loads that copies depend on, one on another.
pub const MAX_LEVELS: usize = 4;

/// A loop that is pipelined.
pub struct LoopPlan {
    pub inst: Inst,
    /// The block that it stands in.
    pub block: Block,
    pub stages: u32,
    /// The step, where it is a constant.
    pub step: Option<i128>,
    /// The number of iterations, where the bounds are constants too.
    pub iterations: Option<u32>,
    pub loads: Vec<RingLoad>,
    pub groups: Vec<Group>,
    /// The dots that start one stage later than those that they depend on.
    pub late: Option<LateDots>,
    /// The dots that run into the next iteration.
    pub in_flight: Option<DotsInFlight>,
    /// The loop that takes the slots that this one fills last.
    pub fusion: Option<Fusion>,
    /// Its rings are those of the loop before, which has filled slots for it.
    pub follows: bool,
}

/// Loads whose copies begin together.
pub struct Group {
    /// Their numbers.
    pub loads: Vec<usize>,
    /// How many stages before the last one the ops run that read them.
    pub lead: u32,
    /// What is computed ahead: copies first, then the loads that they depend on, and so on.
    pub levels: Vec<Level>,
}

/// A load that goes through a ring.
pub struct RingLoad {
    pub inst: Inst,
    pub way: Way,
    /// What a slot holds, and where.
    pub element: Element,
    pub shape: Shape,
    pub memory: Layout,
    /// Each copy of a thread moves so many elements along the axis.
    pub axis: u32,
    pub width: u32,
    /// What a tensor copy moves, where it is one that fills a slot.
    pub boxed: Option<Boxed>,
}

impl RingLoad {
    /// How many copies each of so many threads starts.
    pub fn copies(&self, threads: u32) -> u32 {
        self.shape.iter().product::<u32>().div_ceil(self.width * threads)
    }

    pub fn because(&self) -> Because {
        let goes = match self.way {
            Way::Buffer { .. } => "the product reads the slots",
            Way::Registers => "it is loaded from the slots to registers",
        };
        let bytes = self.width as usize * self.element.bytes();
        let decision = match self.boxed {
            Some(_) => "slots of a ring, filled by tensor copies".to_owned(),
            None => format!("slots of a ring, filled by cp.async of {bytes} bytes"),
        };
        Because::done(decision, goes)
    }
}

/// Where the loaded tile goes.
pub enum Way {
    /// To a buffer, whose place a slot takes.
    Buffer {
        /// What renames its places between the load and the store.
        shapes: SmallVec<[Inst; 2]>,
        alloc: Inst,
        store: Inst,
    },
    /// To registers.
    Registers,
}

/// What is computed for one iteration ahead of it, at one time.
pub struct Level {
    /// What it is for.
    pub loads: Vec<Inst>,
    /// The instructions of the body that it takes, in the order of the text.
    pub insts: Vec<Inst>,
    /// The carried values that it takes, by the number of the parameter of the body.
    pub parameters: Vec<u32>,
}

impl LoopPlan {
    /// What was done, where the kernel has so many stages.
    pub fn because(&self, most: u32, bytes: u64, limit: u64) -> Because {
        let stages = self.stages.min(most);
        let runs_on = match (&self.in_flight, &self.late) {
            (Some(_), _) => "; a product runs into the next iteration",
            (None, Some(_)) => "; dots of what other dots make start one stage later than those",
            (None, None) => "",
        };
        let whose = if self.follows { " of the loop before" } else { "" };
        let goes_on = if self.outer().is_some() {
            "; flattened: its last iterations copy for the next tile"
        } else {
            ""
        };
        let count = self.loads.len();
        let reason =
            format!("{count} loads through rings{whose}, {bytes} bytes of shared memory{runs_on}{goes_on}");
        let decision = format!("loop in {stages} stages");
        if stages < self.stages {
            let reason = format!("{reason}; {} stages do not fit into {limit} bytes", self.stages);
            return Because::missed(decision, reason);
        }
        Because::done(decision, reason)
    }

    /// Whether tensor copies fill slots.
    pub fn has_boxes(&self) -> bool {
        self.loads.iter().any(|load| load.boxed.is_some())
    }

    /// The loop around, if this loop fills slots for its own next run.
    pub fn outer(&self) -> Option<&Outer> {
        match &self.fusion.as_ref()?.successor {
            Successor::Nested(outer) => Some(outer),
            Successor::Sibling { .. } => None,
        }
    }

    /// Whether the next loop of the block takes slots that this one fills.
    pub fn has_sibling(&self) -> bool {
        self.fusion.is_some() && self.outer().is_none()
    }

    /// The next loop, if its first step runs beside the last stage of this one.
    pub fn joined(&self) -> Option<Inst> {
        match self.fusion.as_ref()?.successor {
            Successor::Sibling { joined } => joined,
            Successor::Nested(_) => None,
        }
    }

    /// The loop, and its block, before which the rings are made.
    pub fn scope_of_rings(&self) -> (Inst, Block) {
        self.outer().map_or((self.inst, self.block), |outer| (outer.inst, outer.block))
    }
}

/// The dots of a loop that does nothing else with what it loads.
pub struct DotsInFlight {
    /// In the order of the text.
    pub dots: Vec<Inst>,
    /// The waits for the last dot of each accumulator.
    pub finishes: Vec<Inst>,
}

/// How the body of a loop is divided between two stages.
pub struct LateDots {
    /// The loads that only they read, by their indices.
    pub loads: Vec<usize>,
    /// The ops of the late stage: the dots, what depends on them, and what only their accumulators
    /// need.
    pub late: FxHashSet<Inst>,
    /// The ops of the early stage that make A of the dots: the registers that they write, the dots
    /// of the step before read.
    pub last: FxHashSet<Inst>,
    /// The values with which the late stage changes no accumulator, if they are known.
    pub neutral: Option<Neutral>,
}

/// The values with which a late stage that only scales accumulators and adds dots to them changes
/// nothing, if its slots are zeros.
#[derive(Default)]
pub struct Neutral {
    /// A of each dot, or the tile that A is converted from, if these are zeros.
    pub zeros: SmallVec<[Value; 1]>,
    /// The factors of the accumulators, if these are ones.
    pub ones: SmallVec<[Value; 1]>,
}

impl Neutral {
    /// Returns the number that a value is in an iteration out of range.
    pub fn number(&self, value: Value) -> Option<f64> {
        let is_zero = self.zeros.contains(&value);
        let is_one = self.ones.contains(&value);
        if is_zero { Some(0.0) } else { is_one.then_some(1.0) }
    }
}

/// The loop that takes the slots that another loop fills last.
pub struct Fusion {
    pub successor: Successor,
    /// Where the counter of the successor begins and ends.
    pub bounds: [Value; 2],
    /// The scalars that the successor needs, of the block of the first loop or of the loop around.
    pub scalars: Vec<Inst>,
    pub own: Boxes,
    pub next: Boxes,
    /// Of each coordinate of each load.
    pub growths: Vec<SmallVec<[Growth; 5]>>,
    /// How many iterations the successor has at least.
    pub min_iterations: i128,
}

/// Which loop takes the slots.
pub enum Successor {
    /// The next loop of the block.
    Sibling {
        /// It, if its first step runs beside the last stage of this loop.
        joined: Option<Inst>,
    },
    /// The loop itself, in the next iteration of the loop around it.
    Nested(Outer),
}

/// The loop around a fused one.
pub struct Outer {
    pub inst: Inst,
    /// The block that it is in.
    pub block: Block,
    /// Its step, if that is a constant.
    pub step: Option<i128>,
}

/// Where the boxes of an iteration begin.
#[derive(Clone)]
pub struct Boxes {
    pub counter: Value,
    /// The scalars of the body that compute it.
    pub insts: Vec<Inst>,
    /// Of each load.
    pub coordinates: Vec<SmallVec<[Value; 5]>>,
}

/// How a coordinate depends on the counter.
#[derive(Clone, Copy)]
pub enum Growth {
    /// It is the same scalar in both loops.
    Same,
    /// In neither loop.
    None,
    /// By the same distance in each iteration of both loops.
    Alike,
    Unknown,
}
