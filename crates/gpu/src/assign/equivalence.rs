//! Equivalence classes of values under layout propagation: pointwise ops, branches and loops propagate the layout of an
//! operand to the result unchanged, so that their values are in one class.
//!
//! Shape ops, reductions and operands of products are the edges between classes. A `convert_layout` stands on an edge whose
//! two layouts do not fit; [`super::selection`] weighs its cost. Values that are rematerialized are in no class.

use cranelift_entity::{EntityRef, SecondaryMap};
use tilewright_ir::{Block, Carried, Function, Inst, Op, OpFamily, Shape, Value};

use crate::assign::coalescing::{AccessShape, Infos};
use crate::assign::cost::combine_cost;
use crate::assign::mma_selection::{Product, Products};
use crate::assign::rematerialization::Rematerializable;
use tilewright_gpu_ir::LayoutId;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::target::GpuTarget;

/// A class: its tiles have one shape.
#[derive(Default)]
pub struct Class {
    /// The shape.
    pub shape: Shape,
    /// Loads and stores.
    pub accesses: Vec<Accesses>,
    /// The accumulators of products: layout and width of an element, and how often it is computed, relatively.
    pub accumulators: Vec<((LayoutId, u32), u64)>,
    /// The reductions: axis, and how often.
    pub reductions: Vec<(u32, u64)>,
    /// The scans: axis, the instructions that combine two elements, and how often.
    pub scans: Vec<([u32; 2], u64)>,
    /// The bitonic merges: axis, highest and lowest bit, and how often.
    pub merges: Vec<([u32; 3], u64)>,
    /// The exchanges of partners along an axis: axis, the bits of the coordinate in which they differ, and how often.
    pub butterflies: Vec<([u32; 2], u64)>,
    /// The functions of elements that are computed here, and how often.
    pub arithmetic: u64,
    /// The edges that begin or end here, by number.
    pub edges: Vec<usize>,
    /// Whether this is an operand of a product that each warp computes a part of.
    pub is_of_parts: bool,
}

/// Loads and stores in a class that are alike.
pub struct Accesses {
    /// The instructions.
    pub insts: Vec<Inst>,
    /// What they allow.
    pub shape: AccessShape,
    /// Whether all of their other operands can be had in any layout, so that they can have another layout than their class.
    pub are_free: bool,
    /// Whether they are stores.
    pub is_store: bool,
    /// How often they are executed, relatively.
    pub weight: u64,
}

/// Where a value goes from a class.
pub struct Edge {
    /// The class that the value is in.
    pub from: usize,
    /// Where it goes.
    pub to: EdgeEnd,
    /// The width of an element.
    pub element_bits: u32,
    /// How often the conversion would be executed, relatively.
    pub weight: u32,
}

/// Where an edge goes.
#[derive(Clone, Copy)]
pub enum EdgeEnd {
    /// Through a shape op to a class.
    Shape(Inst, usize),
    /// Through a reduction along an axis to a class.
    Reduced(u32, usize),
    /// To a product that wants this layout.
    Operand(LayoutId),
}

/// All classes of a function.
pub struct Classes {
    /// The classes.
    pub list: Vec<Class>,
    /// The edges.
    pub edges: Vec<Edge>,
    of_value: SecondaryMap<Value, Option<u32>>,
    of_inst: SecondaryMap<Inst, Option<u32>>,
}

impl Classes {
    /// The classes of a function.
    pub fn new(
        function: &Function,
        cheap: &Rematerializable,
        products: &Products,
        (infos, target): (&Infos, GpuTarget),
    ) -> Self {
        let mut union = Union::new(function, cheap);
        union.block(function.entry);
        let mut classes = Self {
            list: Vec::new(),
            edges: Vec::new(),
            of_value: SecondaryMap::new(),
            of_inst: SecondaryMap::new(),
        };
        classes.number(function, &mut union);
        let weights = SecondaryMap::new();
        let mut collect =
            Collect { function, cheap, products, infos, target, classes: &mut classes, weights };
        collect.block(function.entry, 1);
        classes
    }

    /// The class of a value that is not rematerialized.
    pub fn of_value(&self, value: Value) -> Option<usize> {
        self.of_value[value].map(|class| class as usize)
    }

    /// The class that an instruction is executed in.
    pub fn of_inst(&self, inst: Inst) -> Option<usize> {
        self.of_inst[inst].map(|class| class as usize)
    }

    fn number(&mut self, function: &Function, union: &mut Union<'_>) {
        let mut numbers: SecondaryMap<Value, Option<u32>> = SecondaryMap::new();
        let mut by_root = vec![None; union.parents.len()];
        for node in 0..union.parents.len() {
            let Some(shape) = union.shapes[node].clone() else { continue };
            let root = union.find(node);
            let class = *by_root[root].get_or_insert_with(|| {
                self.list.push(Class { shape, ..Class::default() });
                self.list.len() as u32 - 1
            });
            match node.checked_sub(function.values.len()) {
                None => numbers[Value::new(node)] = Some(class),
                Some(inst) => self.of_inst[Inst::new(inst)] = Some(class),
            }
        }
        self.of_value = numbers;
    }
}

/// Union-find over values and over the instructions that have a layout of their own.
struct Union<'a> {
    function: &'a Function,
    cheap: &'a Rematerializable,
    parents: Vec<usize>,
    /// Of the nodes that are there, the shape.
    shapes: Vec<Option<Shape>>,
}

impl<'a> Union<'a> {
    fn new(function: &'a Function, cheap: &'a Rematerializable) -> Self {
        let count = function.values.len() + function.insts.len();
        Self { function, cheap, parents: (0..count).collect(), shapes: vec![None; count] }
    }

    fn find(&mut self, mut node: usize) -> usize {
        while self.parents[node] != node {
            self.parents[node] = self.parents[self.parents[node]];
            node = self.parents[node];
        }
        node
    }

    /// Joins values with each other, but for those that are rematerialized.
    fn join(&mut self, values: impl IntoIterator<Item = Value>, mut first: Option<usize>) {
        for value in values {
            if self.cheap.has(value) {
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

    /// The node of an instruction on tiles of this shape.
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
                    if data.results.iter().any(|result| !self.cheap.has(*result)) {
                        self.join(values(), None);
                    }
                }
                OpFamily::Load | OpFamily::Store | OpFamily::Atomic | OpFamily::Check => {
                    // A text alone has no operand.
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
                OpFamily::Dot => self.join(data.operands[2..].iter().chain(&data.results).copied(), None),
                // What is moved may be anywhere: it goes through shared memory.
                OpFamily::Movement => {
                    self.join(data.operands[1..].iter().chain(&data.results).copied(), None);
                }
                OpFamily::Shape => self.join(data.results.iter().copied(), None),
                OpFamily::Loop | OpFamily::Branch => {
                    for Carried { initial, parameters, yielded, result } in function.carried(*inst) {
                        if !self.cheap.has(result) {
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

/// Collects what the classes are made of.
struct Collect<'a> {
    function: &'a Function,
    cheap: &'a Rematerializable,
    products: &'a Products,
    infos: &'a Infos,
    target: GpuTarget,
    classes: &'a mut Classes,
    /// Of the values so far, how often they are made.
    weights: SecondaryMap<Value, Option<u32>>,
}

impl Collect<'_> {
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
                    // tidy: wildcard because where the elements are matters little to the others
                    _ => {}
                }
            }
            OpFamily::Dot => {
                let Some(product) = self.products.of(inst) else { return };
                // A scalar product takes its operands from shared memory, wherever they come from.
                if product.product != Product::Fma {
                    let layouts = product.operands.into_iter().zip(product.fits);
                    for (operand, (layout, fits)) in data.operands.iter().zip(layouts) {
                        if let Some(layout) = layout.filter(|_| fits) {
                            self.edge(*operand, EdgeEnd::Operand(layout), weight);
                        }
                        if let Some(class) = self.classes.of_value(*operand) {
                            self.classes.list[class].is_of_parts |= product.product.is_of_parts();
                        }
                    }
                }
                let result = data.results[0];
                if let Some(class) = self.classes.of_value(result) {
                    let bits = element_bits(function.ty(result));
                    count(&mut self.classes.list[class].accumulators, (product.accumulator, bits), weight);
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
        // The value of a store may be converted; everything else would have to be as well.
        let is_value = |place: usize| data.results.is_empty() && place == 1;
        let are_free = data
            .operands
            .iter()
            .enumerate()
            .all(|(place, operand)| is_value(place) || self.cheap.has(*operand));
        let accesses = &mut self.classes.list[class].accesses;
        let weight = u64::from(weight);
        let is_store = data.op.family() == OpFamily::Store;
        let is_alike = |known: &&mut Accesses| {
            known.shape == shape && known.are_free == are_free && known.is_store == is_store
        };
        match accesses.iter_mut().find(is_alike) {
            Some(known) => {
                known.insts.push(inst);
                known.weight += weight;
            }
            None => accesses.push(Accesses { insts: vec![inst], shape, are_free, is_store, weight }),
        }
    }

    fn edge(&mut self, value: Value, to: EdgeEnd, weight: u32) {
        if let Some(from) = self.classes.of_value(value) {
            let element_bits = element_bits(self.function.ty(value));
            // What is made outside of the loop is converted there.
            let weight = self.weights[value].map_or(weight, |made| weight.min(made));
            self.push(Edge { from, to, element_bits, weight });
        }
    }

    fn push(&mut self, edge: Edge) {
        let number = self.classes.edges.len();
        self.classes.list[edge.from].edges.push(number);
        if let EdgeEnd::Shape(_, to) | EdgeEnd::Reduced(_, to) = edge.to
            && to != edge.from
        {
            self.classes.list[to].edges.push(number);
        }
        self.classes.edges.push(edge);
    }
}

/// Counts something so many times more.
fn count<T: PartialEq>(list: &mut Vec<(T, u64)>, item: T, weight: u32) {
    match list.iter_mut().find(|(known, _)| *known == item) {
        Some((_, total)) => *total += u64::from(weight),
        None => list.push((item, u64::from(weight))),
    }
}
