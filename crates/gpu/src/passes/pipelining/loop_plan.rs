//! Defines the plan of a pipelined loop: loads, dots and successor.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tilewright_ir::{Block, Element, Inst, Shape, Value};
use tilewright_layout::Layout;

use super::super::boxed::Boxed;
use crate::remarks::RemarkReason;

/// The maximum length of a chain of dependent loads, including the copy.
pub const MAX_LEVELS: usize = 4;

pub struct LoopPlan {
    pub inst: Inst,
    pub block: Block,
    pub stages: u32,
    /// The step, if it is a constant.
    pub step: Option<i128>,
    /// The number of iterations, if the bounds are also constants.
    pub iterations: Option<u32>,
    pub loads: Vec<RingLoad>,
    pub groups: Vec<Group>,
    /// The dots that start one stage after the dots that they depend on.
    pub late: Option<LateDots>,
    pub in_flight: Option<DotsInFlight>,
    /// The loop that takes the last slots of this loop.
    pub fusion: Option<Fusion>,
    /// True if the previous loop has filled slots for this loop.
    pub follows: bool,
}

/// Loads whose copies start in the same stage.
pub struct Group {
    /// The indices of the loads in the plan.
    pub loads: Vec<usize>,
    /// The number of stages from the readers of the loads to the last stage.
    pub lead: u32,
    /// The ops that run ahead. Level 0 has the copies, level 1 the loads that they depend on, and
    /// so on.
    pub levels: Vec<Level>,
}

/// A load that goes through a ring.
pub struct RingLoad {
    pub inst: Inst,
    pub destination: Destination,
    /// The element type, shape and layout of a slot.
    pub element: Element,
    pub shape: Shape,
    pub memory: Layout,
    /// The axis of the vector that a copy of a thread moves.
    pub axis: u32,
    pub width: u32,
    /// The box of the tensor copy; `None` for `cp.async`.
    pub boxed: Option<Boxed>,
}

impl RingLoad {
    pub fn because(&self) -> RemarkReason {
        let reason = match self.destination {
            Destination::Buffer { .. } => "the dot reads the slots",
            Destination::Registers => "the threads load it from the slots to registers",
        };
        let bytes = self.width as usize * self.element.bytes();
        let decision = match self.boxed {
            Some(_) => "slots of a ring, filled by tensor copies".to_owned(),
            None => format!("slots of a ring, filled by cp.async of {bytes} bytes"),
        };
        RemarkReason::done(decision, reason)
    }
}

pub enum Destination {
    /// A buffer, which a slot replaces.
    Buffer {
        /// The shape ops between the load and the store.
        shapes: SmallVec<[Inst; 2]>,
        alloc: Inst,
        store: Inst,
    },
    Registers,
}

/// The ops of one stage before the takes.
pub struct Level {
    /// The loads whose operands the ops compute.
    pub loads: Vec<Inst>,
    /// The ops of the body, in text order.
    pub insts: Vec<Inst>,
    /// The indices of the body's parameters that the ops use.
    pub parameters: Vec<u32>,
}

impl LoopPlan {
    /// Returns the remark on the loop.
    ///
    /// The kernel's loops have at most `max_stages` stages, and its rings take `bytes` bytes.
    /// `obstacle` is the reason why no loop has more stages.
    pub fn because(&self, max_stages: u32, bytes: u64, obstacle: &str) -> RemarkReason {
        let stages = self.stages.min(max_stages);
        let runs_on = match (&self.in_flight, &self.late) {
            (Some(_), _) => "; dots run into the next iteration",
            (None, Some(_)) => "; dots that depend on other dots start one stage later",
            (None, None) => "",
        };
        let whose = if self.follows { " of the previous loop" } else { "" };
        let fused = if self.outer().is_some() {
            "; flattened: its last iterations copy for the next tile"
        } else {
            ""
        };
        let count = self.loads.len();
        let reason =
            format!("{count} loads through rings{whose}, {bytes} bytes of shared memory{runs_on}{fused}");
        let decision = format!("loop in {stages} stages");
        if stages < self.stages {
            let reason = format!("{reason}; {} stages {obstacle}", self.stages);
            return RemarkReason::missed(decision, reason);
        }
        RemarkReason::done(decision, reason)
    }

    /// Returns whether tensor copies fill the slots of any load.
    pub fn has_boxes(&self) -> bool {
        self.loads.iter().any(|load| load.boxed.is_some())
    }

    /// Returns the outer loop, if this loop fills slots for its next outer iteration.
    pub fn outer(&self) -> Option<&Outer> {
        match &self.fusion.as_ref()?.successor {
            Successor::Nested(outer) => Some(outer),
            Successor::Sibling { .. } => None,
        }
    }

    /// Returns whether the next loop of the block takes slots that this loop fills.
    pub fn has_sibling(&self) -> bool {
        self.fusion.is_some() && self.outer().is_none()
    }

    /// Returns the next loop, if its first iteration runs this loop's last stage.
    pub fn joined(&self) -> Option<Inst> {
        match self.fusion.as_ref()?.successor {
            Successor::Sibling { joined } => joined,
            Successor::Nested(_) => None,
        }
    }

    /// Returns the loop before which the rings are allocated, and its block.
    pub fn scope_of_rings(&self) -> (Inst, Block) {
        self.outer().map_or((self.inst, self.block), |outer| (outer.inst, outer.block))
    }
}

/// The dots that run into the next iteration. They are the only users of the loop's loads.
pub struct DotsInFlight {
    /// The dots, in text order.
    pub dots: Vec<Inst>,
    /// The waits for the last dot of each accumulator.
    pub waits: Vec<Inst>,
}

/// The early and the late stage of a loop body.
pub struct LateDots {
    /// The indices of the loads that only the late dots read.
    pub loads: Vec<usize>,
    /// The late dots, their dependent ops, and ops that only the accumulators need.
    pub late: FxHashSet<Inst>,
    /// The early ops that compute A of the late dots. They write registers that the previous
    /// iteration's late dots read.
    pub operand_ops: FxHashSet<Inst>,
    /// The values with which the late stage changes no accumulator, if known.
    pub neutral: Option<Neutral>,
}

/// The values with which a late stage out of range changes no accumulator. The stage scales
/// accumulators and adds dots of slots of zeros.
#[derive(Default)]
pub struct Neutral {
    /// A of each dot, or the tile that A is converted from; replaced by zeros.
    pub zeros: SmallVec<[Value; 1]>,
    /// The factors of the accumulators; replaced by ones.
    pub ones: SmallVec<[Value; 1]>,
}

impl Neutral {
    /// Returns the replacement of a value's elements out of range.
    pub fn number(&self, value: Value) -> Option<f64> {
        let is_zero = self.zeros.contains(&value);
        let is_one = self.ones.contains(&value);
        if is_zero { Some(0.0) } else { is_one.then_some(1.0) }
    }
}

/// The fusion of a loop with its [`Successor`].
pub struct Fusion {
    pub successor: Successor,
    pub bounds: [Value; 2],
    /// The ops of the successor's scalars, in the first loop's block or the outer body.
    pub scalars: Vec<Inst>,
    pub own: Boxes,
    pub next: Boxes,
    /// The growth of each coordinate of each load.
    pub growths: Vec<SmallVec<[Growth; 5]>>,
    /// A lower bound of the iterations of the successor.
    pub min_iterations: i128,
}

/// The loop that takes the last slots of a fused loop.
pub enum Successor {
    /// The next loop of the block.
    Sibling {
        /// The next loop, if its first iteration runs this loop's last stage.
        joined: Option<Inst>,
    },
    /// The loop itself in the next outer iteration.
    Nested(Outer),
}

pub struct Outer {
    pub inst: Inst,
    pub block: Block,
    /// The step, if it is a constant.
    pub step: Option<i128>,
}

/// The coordinates of the boxes of an iteration.
#[derive(Clone)]
pub struct Boxes {
    pub counter: Value,
    /// The scalar ops of the body that compute the coordinates.
    pub insts: Vec<Inst>,
    /// The coordinates of each load.
    pub coordinates: Vec<SmallVec<[Value; 5]>>,
}

/// The dependence of a coordinate on the counters of two loops.
#[derive(Clone, Copy)]
pub enum Growth {
    /// The coordinate is the same scalar in both loops.
    Same,
    /// The coordinate is constant in each loop, but may differ between them.
    None,
    /// The coordinate grows by the same distance per iteration in both loops.
    Alike,
    Unknown,
}
