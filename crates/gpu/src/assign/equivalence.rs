//! Groups values that have the same layout into equivalence classes. Pointwise ops, branches and
//! loops keep layouts, so their operands and results are in one class.
//!
//! Shape ops and reductions are edges between classes. An operand of a dot is an edge to a fixed
//! layout. An edge whose ends have different layouts needs a `convert_layout`; [`super::selection`]
//! counts its cost. Values that each use recomputes ([`super::rematerialization`]) are in no class.

use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use tilewright_ir::{Block, Carried, Function, Inst, Op, OpFamily, Shape, Value};

use crate::assign::coalescing::{AccessShape, Infos};
use crate::assign::cost::combine_cost;
use crate::assign::mma_selection::{DotInstruction, DotPlans};
use crate::assign::rematerialization::Rematerializable;
use tilewright_gpu_ir::LayoutId;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::target::GpuTarget;

/// A class of values with the same layout and the same shape.
#[derive(Default)]
pub struct Class {
    pub shape: Shape,
    /// The loads, stores and atomic operations on tiles.
    pub accesses: Vec<Accesses>,
    /// The accumulators of dots: layout, element width in bits, and relative execution count.
    pub accumulators: Vec<((LayoutId, u32), u64)>,
    /// The reductions: axis, and relative execution count.
    pub reductions: Vec<(u32, u64)>,
    /// The scans: axis, the number of instructions that combine two elements, and execution count.
    pub scans: Vec<([u32; 2], u64)>,
    /// The bitonic merges: axis, highest and lowest bit, and execution count.
    pub merges: Vec<([u32; 3], u64)>,
    /// The butterfly exchanges: axis, the coordinate bits in which partners differ, and execution
    /// count.
    pub butterflies: Vec<([u32; 2], u64)>,
    /// The sum of the execution counts of pointwise ops.
    pub arithmetic: u64,
    /// The indices of the edges that start or end at this class.
    pub edges: Vec<usize>,
    /// True if a dot whose batch is divided among warps reads the class.
    pub feeds_batched_dot: bool,
}

pub struct Accesses {
    pub insts: Vec<Inst>,
    pub shape: AccessShape,
    /// True if all operands except the stored value are rematerializable. Then the accesses can
    /// have another layout than the class.
    pub are_free: bool,
    pub is_store: bool,
    /// True if asynchronous copies probably replace the loads ([`super::copied_loads`]).
    pub are_copied: bool,
    /// The relative execution count.
    pub weight: u64,
}

/// A use of a value by an op that needs a certain layout.
pub struct Edge {
    pub from: usize,
    /// The op, and the class or layout that it needs.
    pub to: EdgeEnd,
    /// The width of an element in bits.
    pub element_bits: u32,
    /// The relative execution count of a conversion on this edge.
    pub weight: u32,
}

#[derive(Clone, Copy)]
pub enum EdgeEnd {
    /// A shape op, and the class of its result.
    Shape(Inst, usize),
    /// A reduction along an axis, and the class of its result.
    Reduced(u32, usize),
    /// A dot that needs its operand in this layout.
    Operand(LayoutId),
}

pub struct Classes {
    pub list: Vec<Class>,
    pub edges: Vec<Edge>,
    of_value: SecondaryMap<Value, Option<u32>>,
    of_inst: SecondaryMap<Inst, Option<u32>>,
}

impl Classes {
    pub fn new(
        function: &Function,
        rematerializable: &Rematerializable,
        dots: &DotPlans,
        copied: &EntitySet<Inst>,
        (infos, target): (&Infos, GpuTarget),
    ) -> Self {
        let mut union = ClassUnion::new(function, rematerializable);
        union.block(function.entry);
        let mut classes = Self {
            list: Vec::new(),
            edges: Vec::new(),
            of_value: SecondaryMap::new(),
            of_inst: SecondaryMap::new(),
        };
        classes.assign_ids(function, &mut union);
        let weights = SecondaryMap::new();
        let mut collect = ClassCollector {
            function,
            rematerializable,
            dots,
            copied,
            infos,
            target,
            classes: &mut classes,
            weights,
        };
        collect.block(function.entry, 1);
        classes
    }

    /// Makes the classes of a program that states its layouts.
    pub fn stated(of_value: SecondaryMap<Value, Option<u32>>) -> Self {
        Self { list: Vec::new(), edges: Vec::new(), of_value, of_inst: SecondaryMap::new() }
    }

    /// Returns the class of a value that is not rematerialized.
    pub fn of_value(&self, value: Value) -> Option<usize> {
        self.of_value[value].map(|class| class as usize)
    }

    /// Returns the class in whose layout an instruction is executed.
    pub fn of_inst(&self, inst: Inst) -> Option<usize> {
        self.of_inst[inst].map(|class| class as usize)
    }

    fn assign_ids(&mut self, function: &Function, union: &mut ClassUnion<'_>) {
        let mut of_value: SecondaryMap<Value, Option<u32>> = SecondaryMap::new();
        let mut by_root = vec![None; union.parents.len()];
        for node in 0..union.parents.len() {
            let Some(shape) = union.shapes[node].clone() else { continue };
            let root = union.find(node);
            let class = *by_root[root].get_or_insert_with(|| {
                self.list.push(Class { shape, ..Class::default() });
                self.list.len() as u32 - 1
            });
            match node.checked_sub(function.values.len()) {
                None => of_value[Value::new(node)] = Some(class),
                Some(inst) => self.of_inst[Inst::new(inst)] = Some(class),
            }
        }
        self.of_value = of_value;
    }
}

/// Union-find over values, and over the instructions that have a layout of their own.
struct ClassUnion<'a> {
    function: &'a Function,
    rematerializable: &'a Rematerializable,
    parents: Vec<usize>,
    /// The shape of each node that is in a class.
    shapes: Vec<Option<Shape>>,
}

impl<'a> ClassUnion<'a> {
    fn new(function: &'a Function, rematerializable: &'a Rematerializable) -> Self {
        let count = function.values.len() + function.insts.len();
        Self { function, rematerializable, parents: (0..count).collect(), shapes: vec![None; count] }
    }

    fn find(&mut self, mut node: usize) -> usize {
        while self.parents[node] != node {
            self.parents[node] = self.parents[self.parents[node]];
            node = self.parents[node];
        }
        node
    }

    /// Joins values with each other and with the node `first`. Skips rematerialized values.
    fn join(&mut self, values: impl IntoIterator<Item = Value>, mut first: Option<usize>) {
        for value in values {
            if self.rematerializable.contains(value) {
                continue;
            }
            let node = value.index();
            self.shapes[node] = Some(self.function.ty(value).shape.clone());
            match first {
                None => first = Some(node),
                Some(other) => {
                    let (a, b) = (self.find(node), self.find(other));
                    self.parents[a] = b;
                }
            }
        }
    }

    /// Adds the node of an instruction on tiles of this shape.
    fn node(&mut self, inst: Inst, shape: &Shape) -> usize {
        let node = self.function.values.len() + inst.index();
        self.shapes[node] = Some(shape.clone());
        node
    }

    fn block(&mut self, block: Block) {
        let function = self.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            let values = || data.operands.iter().chain(&data.results).copied();
            match data.op.family() {
                OpFamily::Pointwise | OpFamily::Identity => {
                    if data.results.iter().any(|result| !self.rematerializable.contains(*result)) {
                        self.join(values(), None);
                    }
                }
                OpFamily::Load | OpFamily::Store | OpFamily::Atomic | OpFamily::Check => {
                    // A check or a print of a text has no operand.
                    let shape = data.operands.first().map(|&operand| &function.ty(operand).shape);
                    if let Some(shape) = shape.filter(|shape| !shape.is_empty()) {
                        let node = self.node(*inst, shape);
                        self.join(values(), Some(node));
                    }
                }
                OpFamily::Reduction => {
                    let node = self.node(*inst, &function.ty(data.operands[0]).shape);
                    self.join(data.operands.iter().copied(), Some(node));
                    self.join(data.results.iter().copied(), None);
                }
                OpFamily::Scan => self.join(values(), None),
                OpFamily::Dot => self.join(data.operands[2..3].iter().chain(&data.results).copied(), None),
                // The source may have any layout: it goes through shared memory.
                OpFamily::Movement => {
                    self.join(data.operands[1..].iter().chain(&data.results).copied(), None);
                }
                OpFamily::Shape => self.join(data.results.iter().copied(), None),
                OpFamily::Loop | OpFamily::Branch => {
                    for Carried { initial, parameters, yielded, result } in function.carried(*inst) {
                        if !self.rematerializable.contains(result) {
                            let inside = parameters.into_iter().chain(yielded);
                            self.join(inside.chain(initial).chain([result]), None);
                        }
                    }
                }
                OpFamily::Source
                | OpFamily::Scalar
                | OpFamily::Promise
                | OpFamily::Barrier
                | OpFamily::Memory
                | OpFamily::Partitions
                | OpFamily::Call
                | OpFamily::Terminator => {}
            }
            for region in &data.regions {
                self.block(*region);
            }
        }
    }
}

struct ClassCollector<'a> {
    function: &'a Function,
    rematerializable: &'a Rematerializable,
    dots: &'a DotPlans,
    copied: &'a EntitySet<Inst>,
    infos: &'a Infos,
    target: GpuTarget,
    classes: &'a mut Classes,
    /// The relative execution count of each visited value's definition.
    weights: SecondaryMap<Value, Option<u32>>,
}

impl ClassCollector<'_> {
    fn block(&mut self, block: Block, weight: u32) {
        for inst in &self.function.blocks[block].insts {
            self.inst(*inst, weight);
            let data = &self.function.insts[*inst];
            for result in &data.results {
                self.weights[*result] = Some(weight);
            }
            let is_loop = data.op.family() == OpFamily::Loop;
            for region in &data.regions {
                self.block(
                    *region,
                    if is_loop { weight.saturating_mul(self.target.tuning.loop_weight) } else { weight },
                );
            }
        }
    }

    fn inst(&mut self, inst: Inst, weight: u32) {
        let function = self.function;
        let data = &function.insts[inst];
        match data.op.family() {
            OpFamily::Shape => {
                if let Some(to) = data.results.first().and_then(|result| self.classes.of_value(*result)) {
                    self.edge(data.operands[0], EdgeEnd::Shape(inst, to), weight);
                }
            }
            OpFamily::Reduction => {
                let Op::Reduce { axis } = data.op else { return };
                let Some(from) = self.classes.of_inst(inst) else { return };
                count(&mut self.classes.list[from].reductions, axis, weight);
                if let Some(to) = self.classes.of_value(data.results[0]) {
                    let element_bits =
                        data.results.iter().map(|result| element_bits(function.ty(*result))).sum();
                    self.push(Edge { from, to: EdgeEnd::Reduced(axis, to), element_bits, weight });
                }
            }
            OpFamily::Scan => {
                let Some(class) = self.classes.of_value(data.results[0]) else { return };
                let class = &mut self.classes.list[class];
                match data.op {
                    Op::Scan { axis, .. } => {
                        let combine = combine_cost(function, data.regions[0], self.target.tuning);
                        count(&mut class.scans, [axis, combine], weight);
                    }
                    Op::Bitonic { axis, high, low, .. } => {
                        count(&mut class.merges, [axis, high, low], weight);
                    }
                    Op::Butterfly { axis, mask } => count(&mut class.butterflies, [axis, mask], weight),
                    // tidy: wildcard because the layout matters little to other scans
                    _ => {}
                }
            }
            OpFamily::Dot => {
                let Some(plan) = self.dots.of(inst) else { return };
                // FMAs read their operands from shared memory, so these may have any layout.
                if plan.instruction != DotInstruction::Fma {
                    let layouts = plan.operands.into_iter().zip(plan.fits);
                    for (operand, (layout, fits)) in data.operands.iter().zip(layouts) {
                        if let Some(layout) = layout.filter(|_| fits) {
                            self.edge(*operand, EdgeEnd::Operand(layout), weight);
                        }
                        if let Some(class) = self.classes.of_value(*operand) {
                            self.classes.list[class].feeds_batched_dot |=
                                plan.instruction.is_batched_over_warps();
                        }
                    }
                }
                for (operand, layout) in data.operands.iter().skip(3).zip(plan.scales.into_iter().flatten()) {
                    self.edge(*operand, EdgeEnd::Operand(layout), weight);
                }
                let result = data.results[0];
                if let Some(class) = self.classes.of_value(result) {
                    let bits = element_bits(function.ty(result));
                    count(&mut self.classes.list[class].accumulators, (plan.accumulator, bits), weight);
                }
            }
            OpFamily::Load | OpFamily::Store | OpFamily::Atomic | OpFamily::Check => {
                self.access(inst, weight);
            }
            OpFamily::Pointwise => {
                if let Some(class) = data.results.first().and_then(|result| self.classes.of_value(*result)) {
                    self.classes.list[class].arithmetic += u64::from(weight);
                }
            }
            OpFamily::Identity
            | OpFamily::Movement
            | OpFamily::Source
            | OpFamily::Loop
            | OpFamily::Branch
            | OpFamily::Scalar
            | OpFamily::Promise
            | OpFamily::Barrier
            | OpFamily::Memory
            | OpFamily::Partitions
            | OpFamily::Call
            | OpFamily::Terminator => {}
        }
    }

    fn access(&mut self, inst: Inst, weight: u32) {
        let data = &self.function.insts[inst];
        let ends =
            (AccessShape::of(self.function, inst, self.infos, self.target), self.classes.of_inst(inst));
        let (Some(shape), Some(class)) = ends else { return };
        // The selection counts the cost of converting the stored value. If all other operands are
        // rematerializable, the access may have another layout than the class.
        let is_stored = |index: usize| data.results.is_empty() && index == 1;
        let are_free = data
            .operands
            .iter()
            .enumerate()
            .all(|(index, operand)| is_stored(index) || self.rematerializable.contains(*operand));
        let accesses = &mut self.classes.list[class].accesses;
        let weight = u64::from(weight);
        let is_store = data.op.family() == OpFamily::Store;
        let are_copied = self.copied.contains(inst);
        let is_equal = |known: &&mut Accesses| {
            known.shape == shape
                && known.are_free == are_free
                && known.is_store == is_store
                && known.are_copied == are_copied
        };
        if let Some(known) = accesses.iter_mut().find(is_equal) {
            known.insts.push(inst);
            known.weight += weight;
        } else {
            let insts = vec![inst];
            accesses.push(Accesses { insts, shape, are_free, is_store, are_copied, weight });
        }
    }

    fn edge(&mut self, value: Value, to: EdgeEnd, weight: u32) {
        if let Some(from) = self.classes.of_value(value) {
            let element_bits = element_bits(self.function.ty(value));
            // A value that is defined outside of the loop is converted there.
            let weight = self.weights[value].map_or(weight, |defined| weight.min(defined));
            self.push(Edge { from, to, element_bits, weight });
        }
    }

    fn push(&mut self, edge: Edge) {
        let index = self.classes.edges.len();
        self.classes.list[edge.from].edges.push(index);
        if let EdgeEnd::Shape(_, to) | EdgeEnd::Reduced(_, to) = edge.to
            && to != edge.from
        {
            self.classes.list[to].edges.push(index);
        }
        self.classes.edges.push(edge);
    }
}

fn count<T: PartialEq>(list: &mut Vec<(T, u64)>, item: T, weight: u32) {
    match list.iter_mut().find(|(known, _)| *known == item) {
        Some((_, total)) => *total += u64::from(weight),
        None => list.push((item, u64::from(weight))),
    }
}
