//! Identifies the slot of a buffer that an instruction accesses.
//!
//! A slot index is a value plus a constant, modulo the number of slots. A slot keeps its identity
//! when a loop carries the value. Example: slot `(%i + 2) rem 3` is `%i + 1` in the next iteration,
//! and `%i` after that. A counter that returns to zero at the number of slots equals the counter
//! without the reset. Counters of a loop differ by a constant if their steps are equal and their
//! initial values differ by it. Indices without a known distance count as different slots.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;

use cranelift_entity::EntitySet;
use rustc_hash::FxHashMap;
use tilewright_ir as ir;
use tilewright_ir::{Block, Definition, Inst, Operation, Parents, Value};

use crate::{Buffer, Function, GpuOp, Op, TensorMemory, Type};

/// A slot of some memory. Slots of a view are not those of the viewed memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Slot {
    /// The result of the `alloc` or the `view` of its buffer.
    pub root: Value,
    /// The position of the slot in the buffer.
    pub index: SlotIndex,
}

/// The position of a slot in its buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SlotIndex {
    /// The value that named the slot is out of scope.
    Lost,
    /// A value plus a constant, modulo the number of slots.
    At(BaseOffset),
}

/// The source, before an edge, of a value after the edge.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// The value itself.
    Value(Value),
    /// The value plus a constant, for a loop index at the next iteration.
    Plus(Value, i64),
}

/// An edge of control flow, with the values that it renames.
pub struct Edge {
    pairs: Vec<(Origin, Value)>,
    /// The block whose values go out of scope.
    left: Option<Block>,
    /// True if the values of enclosing blocks keep their names at this edge.
    keeps: bool,
}

impl Edge {
    /// Returns the block whose values go out of scope.
    pub fn leaves(&self) -> Option<Block> {
        self.left
    }

    /// Returns an edge into a region.
    pub fn enter(pairs: Vec<(Origin, Value)>) -> Self {
        Self { pairs, left: None, keeps: false }
    }

    /// Returns an edge out of a block, whose values go out of scope.
    pub fn leave(pairs: Vec<(Origin, Value)>, left: Block) -> Self {
        Self { left: Some(left), ..Self::enter(pairs) }
    }

    /// Returns an edge out of a branch: values from before the branch keep their names.
    pub fn branch(pairs: Vec<(Origin, Value)>, left: Block) -> Self {
        Self { keeps: true, ..Self::leave(pairs, left) }
    }

    /// Returns the name of a token after the edge, if the edge carries it. A token is a slot of a
    /// ring, or a dot in flight.
    pub fn token(&self, value: Value) -> Option<Value> {
        let is_it = |(from, _): &&(Origin, Value)| matches!(from, Origin::Value(from) if *from == value);
        self.pairs.iter().find(is_it).map(|(_, to)| *to)
    }
}

/// A value plus a constant, modulo the number of slots.
///
/// Unlike a `Form` of `tilewright_ir`, it can express a counter that returns to zero at the number
/// of slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BaseOffset {
    /// The value, or `None` if the sum is only the constant.
    pub base: Option<Value>,
    /// The constant.
    pub offset: i64,
}

/// Returns a number modulo `slots`, or the number if `slots` is 0.
pub fn modulo(number: i64, slots: i64) -> i64 {
    if slots > 0 { number.rem_euclid(slots) } else { number }
}

/// Identifies the slots of buffers by the values of a function.
pub struct SlotAnalysis<'f> {
    /// The function.
    pub function: &'f Function,
    /// True if a pass has inserted all barriers.
    pub synchronized: bool,
    /// True if the program states its waits. A rule then refuses only what is wrong on both paths
    /// of each branch, because conditions may depend on each other. Example: a copy and its wait
    /// are in two branches with one predicate.
    pub explicit: bool,
    parents: Parents,
    /// The bases of slot indices, with the values that carry them through loops.
    counted: OnceCell<EntitySet<Value>>,
    /// The cached results of `base_offset`, by value and number of slots.
    pub(super) base_offsets: RefCell<FxHashMap<(Value, i64), BaseOffset>>,
    /// The cached results of `local_base_offset`, by value and number of slots.
    pub(super) local_base_offsets: RefCell<FxHashMap<(Value, i64), BaseOffset>>,
    /// The instruction at which a walk has found a violation.
    pub(crate) violation: Cell<Option<Inst>>,
}

impl<'f> SlotAnalysis<'f> {
    /// Analyzes a function.
    pub fn new(function: &'f Function, synchronized: bool) -> Self {
        Self {
            function,
            synchronized,
            explicit: false,
            parents: Parents::new(function),
            counted: OnceCell::new(),
            base_offsets: RefCell::default(),
            local_base_offsets: RefCell::default(),
            violation: Cell::default(),
        }
    }

    /// Names the violating instruction, unless one is named.
    pub fn blame(&self, inst: Inst) {
        self.violation.set(self.violation.get().or(Some(inst)));
    }

    /// Returns whether a value is defined in a block or its regions.
    pub fn is_in(&self, value: Value, block: Block) -> bool {
        let mut at = Some(self.block_of(value));
        while let Some(inner) = at {
            if inner == block {
                return true;
            }
            at = self.owner(inner).map(|inst| self.block_of_inst(inst));
        }
        false
    }

    /// Returns the block that defines a value.
    pub fn block_of(&self, value: Value) -> Block {
        let block = self.parents.block_of_value(self.function, value);
        block.expect("the instruction that defines it is in a block")
    }

    /// Returns the block that contains an instruction.
    pub fn block_of_inst(&self, inst: Inst) -> Block {
        self.parents.block(inst).expect("the instruction is in a block")
    }

    /// Returns the instruction that has a block as a region.
    pub fn owner(&self, block: Block) -> Option<Inst> {
        self.parents.owner(block)
    }

    /// Returns the instruction of `block` that is `inst` or contains it.
    pub fn ancestor_in(&self, block: Block, inst: Inst) -> Option<Inst> {
        self.parents.ancestor_in(block, inst)
    }

    /// Returns the `warp_specialize` around an instruction, with the index of the partition.
    pub fn partition(&self, inst: Inst) -> Option<(Inst, usize)> {
        self.partition_of_block(self.block_of_inst(inst))
    }

    /// Returns the `warp_specialize` around a block, with the index of the partition.
    pub fn partition_of_block(&self, mut block: Block) -> Option<(Inst, usize)> {
        while let Some(owner) = self.owner(block) {
            let data = &self.function.insts[owner];
            if matches!(data.op, Op::Gpu(GpuOp::WarpSpecialize { .. })) {
                let partition = data.regions.iter().position(|region| *region == block);
                return partition.map(|partition| (owner, partition));
            }
            block = self.block_of_inst(owner);
        }
        None
    }

    /// Returns whether an instruction runs only on one path of a branch.
    pub fn is_conditional(&self, inst: Inst) -> bool {
        let mut owner = self.owner(self.block_of_inst(inst));
        while let Some(inst) = owner {
            if matches!(self.function.insts[inst].op, Op::Tile(ir::Op::If {})) {
                return true;
            }
            owner = self.owner(self.block_of_inst(inst));
        }
        false
    }

    /// Returns the bases of all slot indices, with the values that carry them through loops.
    fn count(&self) -> EntitySet<Value> {
        let function = self.function;
        let mut found: Vec<(Value, i64)> = Vec::new();
        function.walk(function.entry, &mut |inst| {
            let operands = function.insts[inst].operands.iter();
            for slot in operands.filter_map(|value| self.slot(*value)).chain(self.barrier(inst)) {
                if let SlotIndex::At(BaseOffset { base: Some(base), .. }) = slot.index {
                    found.push((base, self.slots(slot.root)));
                }
            }
        });
        let mut counted = EntitySet::new();
        while let Some((value, slots)) = found.pop() {
            if counted.insert(value) {
                let bases =
                    self.sources(value).into_iter().filter_map(|source| self.base_offset(source, slots).base);
                found.extend(bases.map(|base| (base, slots)));
            }
        }
        counted
    }

    /// Returns the values that become `value` at an edge of control flow. Only loop parameters, and
    /// results of loops and branches, have such values.
    pub fn sources(&self, value: Value) -> Vec<Value> {
        let function = self.function;
        match function.values[value].definition {
            Definition::Parameter(block, index) => {
                let Some(owner) = self.owner(block) else { return Vec::new() };
                let data = &function.insts[owner];
                let index = index as usize;
                match data.op.as_tile() {
                    Some(ir::Op::For { .. }) if index == 0 => vec![data.operands[0]],
                    Some(ir::Op::For { .. }) => {
                        vec![data.operands[index + 2], function.yielded(block)[index - 1]]
                    }
                    Some(ir::Op::While {}) if block == data.regions[0] => {
                        vec![data.operands[index], function.yielded(data.regions[1])[index]]
                    }
                    Some(ir::Op::While {}) => vec![function.blocks[data.regions[0]].parameters[index]],
                    // tidy: wildcard because regions of other ops carry nothing
                    _ => Vec::new(),
                }
            }
            Definition::Result(inst, index) => {
                let data = &function.insts[inst];
                let index = index as usize;
                match data.op.as_tile() {
                    Some(ir::Op::For { .. }) => {
                        vec![function.blocks[data.regions[0]].parameters[index + 1]]
                    }
                    Some(ir::Op::While {}) => vec![function.blocks[data.regions[0]].parameters[index]],
                    Some(ir::Op::If {}) => {
                        data.regions.iter().map(|region| function.yielded(*region)[index]).collect()
                    }
                    // tidy: wildcard because other ops compute their results
                    _ => Vec::new(),
                }
            }
        }
    }

    /// Returns the `alloc` result of memory or a slot, also through views.
    pub fn alloc(&self, value: Value) -> Option<Value> {
        let root = self.root(value)?;
        match self.function.defining_inst(root).map(|inst| &self.function.insts[inst]) {
            Some(data) if matches!(data.op, Op::Gpu(GpuOp::View {})) => self.alloc(data.operands[0]),
            _ => Some(root),
        }
    }

    /// Returns the `alloc` or `view` result of memory or a slot.
    pub fn root(&self, value: Value) -> Option<Value> {
        match self.function.defining_op(value) {
            Some(Op::Gpu(GpuOp::Alloc { .. } | GpuOp::View {})) => return Some(value),
            Some(Op::Gpu(GpuOp::Slot {} | GpuOp::Acquire {} | GpuOp::Take {})) => {
                let inst = self.function.defining_inst(value)?;
                return self.root(self.function.insts[inst].operands[0]);
            }
            // tidy: wildcard because no other op returns a part of memory
            _ => {}
        }
        if !matches!(self.function.ty(value), Type::Empty(_) | Type::Full(_)) {
            return None;
        }
        self.root(*self.sources(value).first()?)
    }

    /// Returns the number of slots of memory or barriers; 1 for other values.
    pub fn slots(&self, root: Value) -> i64 {
        match self.function.ty(root) {
            Type::Buffer(buffer) | Type::Ring(buffer) => i64::from(buffer.slots),
            Type::Mbarrier { slots } => i64::from(*slots),
            Type::TensorMemory(memory) => i64::from(memory.slots),
            Type::Registers { .. } | Type::Empty(_) | Type::Full(_) | Type::Pending { .. } => 1,
        }
    }

    /// Returns the slot that an operand names. Returns `None` unless it is a slot or a one-slot
    /// buffer.
    pub fn slot(&self, value: Value) -> Option<Slot> {
        match self.function.ty(value) {
            Type::Empty(_) | Type::Full(_) => {
                let index = SlotIndex::At(BaseOffset { base: Some(value), offset: 0 });
                Some(Slot { root: self.root(value)?, index })
            }
            Type::Buffer(Buffer { slots: 1, .. }) | Type::TensorMemory(TensorMemory { slots: 1, .. }) => {
                let root = self.root(value)?;
                if root == value {
                    return Some(Slot { root, index: SlotIndex::At(BaseOffset { base: None, offset: 0 }) });
                }
                let inst = self.function.defining_inst(value)?;
                Some(self.slot_at(root, self.function.insts[inst].operands[1]))
            }
            Type::Buffer(_)
            | Type::Ring(_)
            | Type::Registers { .. }
            | Type::Pending { .. }
            | Type::Mbarrier { .. }
            | Type::TensorMemory(_) => None,
        }
    }

    /// Returns the `mbarrier` that an instruction arrives at, waits for, or passes to a copy.
    pub fn barrier(&self, inst: Inst) -> Option<Slot> {
        let data = &self.function.insts[inst];
        let operand = match &data.op {
            Op::Gpu(
                GpuOp::MbarrierExpect { .. }
                | GpuOp::MbarrierArriveTimes { .. }
                | GpuOp::MbarrierArrive {}
                | GpuOp::MbarrierArriveCopies {}
                | GpuOp::MbarrierTrackCopies {}
                | GpuOp::MbarrierArriveAt { .. }
                | GpuOp::MbarrierWait {}
                | GpuOp::Tcgen05Commit { .. },
            ) => 0,
            Op::Gpu(GpuOp::ClcTryCancel { .. }) => 1,
            Op::Gpu(GpuOp::TensorLoad {} | GpuOp::TensorLoadTo { .. }) => 2,
            // tidy: wildcard because no other op signals a barrier of the program
            _ => return None,
        };
        Some(self.slot_at(data.operands[operand], data.operands[operand + 1]))
    }

    /// Returns the `mbarrier` that an instruction initializes or invalidates. Returns `None` if it
    /// initializes all slots.
    pub fn managed_barrier(&self, inst: Inst) -> Option<Slot> {
        let data = &self.function.insts[inst];
        match (&data.op, &data.operands[..]) {
            (Op::Gpu(GpuOp::MbarrierInit { .. } | GpuOp::MbarrierInvalidate {}), [root, slot]) => {
                Some(self.slot_at(*root, *slot))
            }
            // tidy: wildcard because other ops use an initialized barrier, or none
            _ => None,
        }
    }

    fn slot_at(&self, root: Value, index: Value) -> Slot {
        let slots = self.slots(root);
        let sum =
            if slots == 1 { BaseOffset { base: None, offset: 0 } } else { self.base_offset(index, slots) };
        Slot { root, index: SlotIndex::At(sum) }
    }

    /// Returns a slot whose index is expressed by values in scope after an edge. If there are none,
    /// the index is `Lost`.
    pub fn rename(&self, slot: Slot, edge: &Edge) -> Slot {
        let SlotIndex::At(BaseOffset { base, offset }) = slot.index else { return slot };
        let is_lost = base.is_some_and(|base| Some(self.block_of(base)) == edge.left);
        if edge.keeps && !is_lost {
            return slot;
        }
        let slots = self.slots(slot.root);
        if slots == 1 && base.is_none() {
            // A buffer's only slot has one name everywhere.
            return slot;
        }
        let is_token = base.is_some_and(|base| self.function.ty(base).is_linear());
        let mut other = None;
        for (from, to) in &edge.pairs {
            if self.function.ty(*to).as_registers().is_some_and(|tile| !tile.is_scalar()) {
                continue;
            }
            let origin = match from {
                Origin::Value(value) if is_token => BaseOffset { base: Some(*value), offset: 0 },
                Origin::Value(value) => self.base_offset(*value, slots),
                Origin::Plus(value, step) => {
                    let sum = self.base_offset(*value, slots);
                    BaseOffset { offset: sum.offset + step, ..sum }
                }
            };
            let is_leader =
                is_token || self.base_offset(*to, slots) == BaseOffset { base: Some(*to), offset: 0 };
            if origin.base != base || !is_leader {
                continue;
            }
            let offset = if is_token { 0 } else { modulo(offset - origin.offset, slots) };
            let named = Slot { index: SlotIndex::At(BaseOffset { base: Some(*to), offset }), ..slot };
            // Prefers the base of other slot indices, so that equal slots get equal names.
            if self.counted.get_or_init(|| self.count()).contains(*to) {
                return named;
            }
            other = other.or(Some(named));
        }
        if is_lost { other.unwrap_or(Slot { index: SlotIndex::Lost, ..slot }) } else { slot }
    }
}

/// The state of a dataflow analysis: the facts about slots.
pub type Facts<F> = BTreeMap<Slot, F>;

/// Renames the slots of facts, and joins facts of slots that become equal.
pub fn rename_facts<F: Copy>(
    analysis: &SlotAnalysis<'_>,
    facts: &mut Facts<F>,
    edge: &Edge,
    join: impl Fn(&mut F, F),
) {
    for (slot, fact) in std::mem::take(facts) {
        let slot = analysis.rename(slot, edge);
        match facts.get_mut(&slot) {
            Some(known) => join(known, fact),
            None => {
                facts.insert(slot, fact);
            }
        }
    }
}
