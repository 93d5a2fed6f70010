//! Plans the checks of a sanitized launch.
//!
//! On a GPU, many threads load and store a tile, and in general only a barrier orders them. A
//! reduction, scan or dot also orders them: it ends only after all threads have completed the loads
//! on which it depends.
//!
//! ```text
//! x = load p; s = sum x; store p, s     the load precedes the store
//! x = load p; y = neg x; store p, y     only within each lane
//! ```
//!
//! [`Plan::orders`] returns whether a load precedes a write for this reason.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::{ArithmeticFn, BitwiseFn, ElementwiseFamily as Family, Op, OpFamily};

use crate::program::{Action, BlockId, Program, Slot, Step};

/// The checks of a sanitized launch.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The check of each step of each block.
    pub points: Vec<Vec<CheckPoint>>,
    /// For each check point, the index in [`Program::sites`] of its source position.
    pub sites: Vec<u32>,
    /// For each write, the loads that always precede it.
    orders: FxHashMap<u32, FxHashSet<u32>>,
    /// For each slot, the slots that control flow copies to it: initial values of loops, and
    /// yields.
    pub sources: Vec<Vec<Slot>>,
    /// The size of the smallest accessed element in bytes, at most 8.
    pub unit: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckPoint {
    /// The index of the check point in the plan.
    pub number: u32,
    pub what: CheckKind,
    /// True for a load whose masked-off lanes are undefined.
    pub leaves_lanes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum CheckKind {
    /// No check.
    #[default]
    Nothing,
    Access,
    Atomic,
    Barrier,
    Hint,
    /// An integer that becomes part of an address.
    Offset,
    /// Floating-point numbers, computed element by element.
    Numbers,
    /// Floating-point numbers, computed from elements at other indices.
    Combined,
}

impl Plan {
    /// Plans the checks of a program in which only one step sets each slot.
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
        // Each pass carries loads around a loop once, so the passes repeat until no set grows.
        while analysis.follow(program.body, &FxHashSet::default()) {}
        Plan { sources: analysis.sources, ..analysis.plan }
    }

    /// Returns whether a load always precedes a write of the same program, in any order of the
    /// threads.
    pub fn orders(&self, first: u32, second: u32) -> bool {
        self.orders.get(&second).is_some_and(|loads| loads.contains(&first))
    }
}

/// The loads on which a value depends.
#[derive(Clone, Default)]
struct Loads {
    /// Each element of the value depends only on the loaded element at the same index.
    same: FxHashSet<u32>,
    /// All threads have completed these loads before any thread computes the value.
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
    /// For each slot, the slots that control flow copies to it.
    sources: Vec<Vec<Slot>>,
    /// The step that sets each slot: its block and its index.
    makers: Vec<Option<(BlockId, usize)>>,
    loads: Vec<Loads>,
}

impl Analysis<'_> {
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
            if matches!(what, CheckKind::Access | CheckKind::Atomic) {
                let pointer = &self.program.types[step.operands[0].ty as usize];
                self.plan.unit = self.plan.unit.min(pointer.pointee);
            }
            points.push(CheckPoint { number, what, leaves_lanes: self.leaves_lanes(step) });
            self.propagate(step);
            // These ops have one check as a whole, so their blocks have none.
            if !matches!(step.action, Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. }) {
                for &inner in &step.blocks {
                    self.number(inner);
                }
            }
        }
        self.plan.points[block as usize] = points;
    }

    fn what(&self, step: &Step) -> CheckKind {
        let is_float = step.results.iter().any(|&slot| self.program.ty(slot).dtype().is_float());
        let combined = if is_float { CheckKind::Combined } else { CheckKind::Nothing };
        let op = match &step.action {
            Action::Op(op) => op,
            Action::Dot { .. }
            | Action::Reduce { .. }
            | Action::Scan { .. }
            | Action::Map { .. }
            | Action::Assembly(_) => return combined,
            Action::Sort(_) | Action::Fused(_) | Action::Nest(_) => return CheckKind::Nothing,
        };
        match op {
            Op::Load { .. } | Op::Store { .. } => CheckKind::Access,
            Op::Barrier {} => CheckKind::Barrier,
            Op::Hint { .. } => CheckKind::Hint,
            // tidy: wildcard because the family of any other op decides about its check
            op => match op.family() {
                OpFamily::Atomic => CheckKind::Atomic,
                OpFamily::Pointwise if is_float && !matches!(op, Op::Bitcast { .. }) => CheckKind::Numbers,
                OpFamily::Reduction | OpFamily::Scan => combined,
                // tidy: wildcard because no other op computes numbers or accesses memory
                _ => CheckKind::Nothing,
            },
        }
    }

    /// Returns whether a load leaves masked-off lanes undefined: it has a mask but no `other`.
    ///
    /// A mask with the source position of the load comes from the bounds of a descriptor or block
    /// pointer. The masked-off lanes then have its padding value.
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

    /// Records the slots that a step copies to its results and to the parameters of its blocks.
    fn propagate(&mut self, step: &Step) {
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
            // tidy: wildcard because no other op passes values to blocks
            _ => {}
        }
    }

    /// Selects the check of offsets for the integers that become part of addresses. Follows sums,
    /// differences, products, negations and left shifts. Remainders and bitwise functions end the
    /// search, because hashes wrap on purpose.
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
                // tidy: wildcard because the family of any other op says whether its result has the
                // integers of its operand
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
                point.what = CheckKind::Offset;
            }
        }
    }

    /// Propagates loads through a block. `control` has the loads that are complete before the
    /// block. Returns whether a set has grown.
    fn follow(&mut self, block: BlockId, control: &FxHashSet<u32>) -> bool {
        let mut is_new = false;
        for (place, step) in self.program.blocks[block as usize].steps.iter().enumerate() {
            let CheckPoint { number, what, .. } = self.plan.points[block as usize][place];
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
            // The result depends lane by lane on this access, and no longer on the loads of the
            // operands.
            if matches!(what, CheckKind::Access | CheckKind::Atomic) {
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

/// Returns whether elements of the results depend on operands at other indices. Ops of the family
/// `Shape` do not count, because they only move elements.
fn combines_lanes(step: &Step) -> bool {
    match &step.action {
        Action::Dot { .. } | Action::Reduce { .. } | Action::Scan { .. } | Action::Sort(_) => true,
        Action::Map { pack, .. } => *pack > 1,
        Action::Op(op) => {
            matches!(op.family(), OpFamily::Reduction | OpFamily::Scan | OpFamily::Movement)
        }
        Action::Assembly(_) | Action::Fused(_) | Action::Nest(_) => false,
    }
}
