//! What a sanitized launch checks at each step of a program, and which accesses of one program order each other.
//!
//! A tile is loaded, computed and stored by many threads, which only a barrier orders. But an op that combines elements of
//! different lanes (a reduction, a scan, a product) ends after all loads that it depends on: what comes of it is ordered
//! after these. That is what [`Plan::orders`] has.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::{ArithmeticFn, BitwiseFn, ElementwiseFamily as Family, Op, OpFamily};

use crate::program::{Action, BlockId, Program, Slot, Step};

/// What is checked at each step.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Of each block, those of its steps.
    pub points: Vec<Vec<Point>>,
    /// Of each point, its entry in [`Program::sites`].
    pub sites: Vec<u32>,
    /// Of each point that writes memory, the loads that come before it whatever the threads do.
    orders: FxHashMap<u32, FxHashSet<u32>>,
    /// Where the values come from of slots that blocks and control flow hand on.
    pub sources: Vec<Vec<Slot>>,
    /// The least bytes of an element that anything accesses.
    pub unit: usize,
}

/// What is checked at a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Point {
    /// Its number.
    pub number: u32,
    pub what: What,
    /// Whether it is a load that leaves lanes without a value.
    pub leaves_lanes: bool,
}

/// The ways to check a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum What {
    /// Nothing can go wrong.
    #[default]
    Nothing,
    Access,
    Atomic,
    Barrier,
    Promise,
    /// An integer on its way into an address.
    Offset,
    /// Floating-point numbers at places, which those at the same places of the operands give.
    Numbers,
    /// Floating-point numbers, any of which any of the operands gives.
    Combined,
}

impl Plan {
    /// The plan of a program whose slots are each set by one step.
    pub fn new(program: &Program) -> Self {
        let mut analysis = Analysis {
            program,
            plan: Plan { points: vec![Vec::new(); program.blocks.len()], unit: 8, ..Plan::default() },
            sources: vec![Vec::new(); program.slots.len()],
            makers: vec![None; program.slots.len()],
            loads: vec![Loads::default(); program.slots.len()],
        };
        analysis.number(program.body);
        analysis.mark_offsets();
        // Each pass through a loop may carry loads one place on.
        while analysis.follow(program.body, &FxHashSet::default()) {}
        Plan { sources: analysis.sources, ..analysis.plan }
    }

    /// Whether a load comes before a write of the same program whatever the threads do.
    pub fn orders(&self, first: u32, second: u32) -> bool {
        self.orders.get(&second).is_some_and(|loads| loads.contains(&first))
    }
}

/// The loads that a value depends on.
#[derive(Clone, Default)]
struct Loads {
    /// Those whose element at the same place it depends on.
    same: FxHashSet<u32>,
    /// Those that are complete before it is.
    all: FxHashSet<u32>,
}

impl Loads {
    fn add(&mut self, other: &Loads) -> bool {
        let before = self.same.len() + self.all.len();
        self.same.extend(&other.same);
        self.all.extend(&other.all);
        self.same.len() + self.all.len() != before
    }
}

struct Analysis<'a> {
    program: &'a Program,
    plan: Plan,
    /// Where the values come from of slots that blocks and control flow hand on.
    sources: Vec<Vec<Slot>>,
    /// The step that sets a slot: block and place.
    makers: Vec<Option<(BlockId, usize)>>,
    loads: Vec<Loads>,
}

impl Analysis<'_> {
    /// Numbers the steps of a block and says what is checked at them.
    fn number(&mut self, block: BlockId) {
        let steps = &self.program.blocks[block as usize].steps;
        let mut points = Vec::with_capacity(steps.len());
        for (place, step) in steps.iter().enumerate() {
            let number = self.plan.sites.len() as u32;
            self.plan.sites.push(step.site);
            for &result in &step.results {
                self.makers[result as usize] = Some((block, place));
            }
            let what = self.what(step);
            if matches!(what, What::Access | What::Atomic) {
                let pointer = &self.program.types[step.operands[0].ty as usize];
                self.plan.unit = self.plan.unit.min(pointer.pointee);
            }
            points.push(Point { number, what, leaves_lanes: self.leaves_lanes(step) });
            self.hand_on(step);
            // What combines elements runs inside of its op.
            if !matches!(step.action, Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. }) {
                for &inner in &step.blocks {
                    self.number(inner);
                }
            }
        }
        self.plan.points[block as usize] = points;
    }

    fn what(&self, step: &Step) -> What {
        let is_float = step.results.iter().any(|&slot| self.program.ty(slot).dtype().is_float());
        let combined = if is_float { What::Combined } else { What::Nothing };
        let op = match &step.action {
            Action::Op(op) => op,
            Action::Dot { .. }
            | Action::Reduce { .. }
            | Action::Scan { .. }
            | Action::Map { .. }
            | Action::Assembly(_) => return combined,
            Action::Fused(_) => return What::Nothing,
        };
        match op {
            Op::Load { .. } | Op::Store { .. } => What::Access,
            Op::Barrier {} => What::Barrier,
            Op::Hint { .. } => What::Promise,
            // tidy: wildcard because the family of any other op says what it does
            op => match op.family() {
                OpFamily::Atomic => What::Atomic,
                OpFamily::Pointwise if is_float && !matches!(op, Op::Bitcast { .. }) => What::Numbers,
                OpFamily::Reduction | OpFamily::Scan => combined,
                // tidy: wildcard because no other op makes numbers or accesses memory
                _ => What::Nothing,
            },
        }
    }

    /// Whether a load gives no value to the lanes that its mask leaves out. A mask that the load has made itself, of the bounds
    /// of a descriptor or a block pointer, goes with a padding.
    fn leaves_lanes(&self, step: &Step) -> bool {
        let (Some(Op::Load { .. }), [_, mask]) = (step.op(), &step.operands[..]) else { return false };
        let mut slot = mask.slot;
        while let Some((block, place)) = self.makers[slot as usize] {
            let maker = &self.program.blocks[block as usize].steps[place];
            let moves =
                maker.op().is_some_and(|op| matches!(op.family(), OpFamily::Shape | OpFamily::Source));
            match maker.operands.first() {
                Some(operand) if moves => slot = operand.slot,
                _ => return maker.site != step.site,
            }
        }
        true
    }

    /// Notes what control flow hands from slot to slot.
    fn hand_on(&mut self, step: &Step) {
        let mut hand = |to: &[Slot], from: &mut dyn Iterator<Item = Slot>| {
            for (&to, from) in to.iter().zip(from) {
                self.sources[to as usize].push(from);
            }
        };
        let block = |id: &BlockId| &self.program.blocks[*id as usize];
        let carried = |skipped: usize| step.operands.iter().skip(skipped).map(|operand| operand.slot);
        match (step.op(), &step.blocks[..]) {
            (Some(Op::For { .. }), [body]) => {
                let yields = || block(body).yields.iter().map(|operand| operand.slot);
                let parameters = &block(body).parameters[1..];
                hand(parameters, &mut carried(3));
                hand(parameters, &mut yields());
                hand(&step.results, &mut carried(3));
                hand(&step.results, &mut yields());
                hand(&block(body).parameters[..1], &mut carried(0).take(1));
            }
            (Some(Op::While {}), [condition, body]) => {
                let yields = || block(body).yields.iter().map(|operand| operand.slot);
                for to in [&block(condition).parameters, &block(body).parameters] {
                    hand(to, &mut carried(0));
                    hand(to, &mut yields());
                }
                hand(&step.results, &mut carried(0));
                hand(&step.results, &mut yields());
            }
            (Some(Op::If {}), blocks) => {
                for id in blocks {
                    hand(&step.results, &mut block(id).yields.iter().map(|operand| operand.slot));
                }
            }
            // tidy: wildcard because no other op hands values to blocks
            _ => {}
        }
    }

    /// Marks the integers that go into addresses by sums, products and shifts. What goes through a remainder or a bitwise
    /// function may wrap on purpose, as hashes do.
    fn mark_offsets(&mut self) {
        let is_offset = |step: &&Step| matches!(step.op(), Some(Op::PtrAdd {}));
        let steps = self.program.blocks.iter().flat_map(|block| &block.steps);
        let mut open: Vec<Slot> = steps.filter(is_offset).map(|step| step.operands[1].slot).collect();
        let mut seen = FxHashSet::default();
        while let Some(slot) = open.pop() {
            if !seen.insert(slot) {
                continue;
            }
            open.extend(&self.sources[slot as usize]);
            let Some((block, place)) = self.makers[slot as usize] else { continue };
            let step = &self.program.blocks[block as usize].steps[place];
            let Some(op) = step.op() else { continue };
            let (is_linear, is_checked) = match op {
                Op::Elementwise { function } => match function.family() {
                    Family::Arithmetic(
                        ArithmeticFn::Add | ArithmeticFn::Sub | ArithmeticFn::Mul | ArithmeticFn::Neg,
                    )
                    | Family::Bitwise(BitwiseFn::Shl) => (true, true),
                    // tidy: wildcard because the other functions are not linear
                    _ => (false, false),
                },
                Op::Cast { .. } | Op::Hint { .. } | Op::Splat { .. } => (true, false),
                // tidy: wildcard because of other ops those count that move elements alone
                op => (op.family() == OpFamily::Shape, false),
            };
            if is_linear && !self.program.ty(slot).is_pointer() {
                open.extend(step.operands.iter().map(|operand| operand.slot));
            }
            let number = self.program.ty(slot).number;
            if is_checked
                && number.dtype.is_int()
                && number.bits() >= 16
                && !self.program.ty(slot).is_pointer()
                && let Some(point) = self.plan.points[block as usize].get_mut(place)
            {
                point.what = What::Offset;
            }
        }
    }

    /// Follows loads through a block that runs after what `control` names is complete. True if anything was new.
    fn follow(&mut self, block: BlockId, control: &FxHashSet<u32>) -> bool {
        let mut is_new = false;
        for (place, step) in self.program.blocks[block as usize].steps.iter().enumerate() {
            let Point { number, what, .. } = self.plan.points[block as usize][place];
            let mut loads = Loads::default();
            for operand in &step.operands {
                loads.add(&self.loads[operand.slot as usize]);
            }
            loads.all.extend(control);
            if combines_lanes(step) {
                let Loads { same, all } = &mut loads;
                all.extend(same.iter());
            }
            let mut inner = control.clone();
            inner.extend(&loads.all);
            // A scalar is what all threads have.
            if matches!(what, What::Access | What::Atomic) {
                let known = self.plan.orders.entry(number).or_default();
                let before = known.len();
                known.extend(&loads.all);
                is_new |= known.len() != before;
                loads = Loads { same: std::iter::once(number).collect(), all: loads.all };
            }
            for &result in &step.results {
                is_new |= self.loads[result as usize].add(&loads);
                for source in self.sources[result as usize].clone() {
                    let handed = self.loads[source as usize].clone();
                    is_new |= self.loads[result as usize].add(&handed);
                }
            }
            if !matches!(step.action, Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. }) {
                for &id in &step.blocks {
                    for &parameter in &self.program.blocks[id as usize].parameters {
                        for source in self.sources[parameter as usize].clone() {
                            let handed = self.loads[source as usize].clone();
                            is_new |= self.loads[parameter as usize].add(&handed);
                        }
                    }
                    is_new |= self.follow(id, &inner);
                }
            }
        }
        is_new
    }
}

/// Whether each element of the results may depend on elements of the operands at other places.
fn combines_lanes(step: &Step) -> bool {
    match &step.action {
        Action::Dot { .. } | Action::Reduce { .. } | Action::Scan { .. } => true,
        Action::Map { pack, .. } => *pack > 1,
        Action::Op(op) => {
            matches!(op.family(), OpFamily::Reduction | OpFamily::Scan | OpFamily::Movement)
        }
        Action::Assembly(_) | Action::Fused(_) => false,
    }
}
