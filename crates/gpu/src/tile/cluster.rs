//! Divides a program between the blocks of a cluster (`num_ctas`).
//!
//! Each block computes a part of each dot, along one axis:
//!
//! ```text
//! %pid = program_id 0                          %block = program_id 0 ; %pid = %block / 2 ; %rank = %block % 2
//! %rows = arange 0..256                 ──>    %rows = arange 0..128 + splat (%rank * 128)
//! %a = load [256, 64] ; %b = load [64, 256]    %a = load [128, 64] ; %b = load [64, 256]
//! %c = dot %a, %b : [256, 256]                 %c = dot %a, %b : [128, 256]
//! ```
//! The analysis goes backward from the stores. A block stores a part of a value. So it needs a part
//! or all of each value in the computation. The form of a value states the block's elements: all,
//! or a part along an axis. Example: a range may index rows and columns, so a block computes it in
//! two forms. A block computes only one part of each dot. Scalars are the same in all blocks. Only
//! the first block executes an undivided store.
//!
//! No block may depend on another block. So the pass refuses programs that wait or print, and those
//! whose order of accesses is visible. If a program accesses memory that it writes, each block must
//! access only its part. Pointers of different arguments are assumed to point to different memory.
//! A [`Refusal`] states the reason.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{
    CacheModifier, Carried, Definition, Function, Inst, MemoryScope, MemorySemantics, Module, Op, OpFamily,
    Parents, Value,
};
use tilewright_opt::analysis::{Access, accesses};

use super::division::Writer;

/// The minimum rows or columns of a block's dot: those of the smallest instruction.
const MIN_EXTENT: u32 = 16;
pub(super) const WARPGROUP_ROWS: u32 = 64;

/// The elements of a value that a block has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Form {
    /// All elements: every block has them.
    Whole,
    /// An equal part along this axis, in the order of the blocks.
    Part(usize),
}

/// The reason why a program cannot be divided.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The instruction that cannot be divided.
    pub inst: Option<Inst>,
    /// The obstacle, for a remark.
    pub reason: &'static str,
}

type Found<T> = Result<T, Refusal>;

fn refuse<T>(inst: Inst, reason: &'static str) -> Found<T> {
    Err(Refusal { inst: Some(inst), reason })
}

/// Returns the program of a block in a cluster of `blocks`, a power of two.
///
/// The grid of the result has `blocks` blocks along the first axis for each program.
///
/// # Errors
/// If the program cannot be divided; the error is the reason.
pub fn divide(module: &Module, blocks: u32) -> Result<Module, Refusal> {
    let kernel = module.kernel();
    let roots = roots(kernel)?;
    let written = Written::of(module);
    let Some(product) = main_product(kernel) else {
        return Err(Refusal { inst: None, reason: "it has no dot" });
    };
    let mut refusal = Refusal { inst: Some(product), reason: "its dot is too small" };
    for axis in axes(kernel, product, blocks) {
        let mut demand = Demand::new(kernel, blocks);
        match demand.divide(product, axis, &roots).and_then(|()| written.check(&demand)) {
            Ok(()) => {
                let mut module = module.clone();
                let Demand { forms, roots, .. } = demand;
                let entry = module.entry;
                Writer::new(&mut module.functions[entry], blocks, forms, roots).write();
                return Ok(module);
            }
            Err(found) => refusal = found,
        }
    }
    Err(refusal)
}

/// The stores of a program, and the scalars that decide its control flow.
#[derive(Default)]
struct Roots {
    stores: Vec<Inst>,
    scalars: Vec<Value>,
}

fn roots(kernel: &Function) -> Found<Roots> {
    let mut roots = Roots::default();
    let mut used = FxHashSet::default();
    kernel.walk(kernel.entry, &mut |inst| used.extend(kernel.insts[inst].operands.iter().copied()));
    let mut blocks = vec![kernel.entry];
    while let Some(block) = blocks.pop() {
        for &inst in &kernel.blocks[block].insts {
            let data = &kernel.insts[inst];
            match data.op.family() {
                OpFamily::Atomic if !matches!(data.op, Op::AtomicRmw { .. }) => {
                    return refuse(inst, "other programs may wait for it");
                }
                OpFamily::Atomic if matches!(data.op, Op::AtomicRmw { scope: MemoryScope::Cta, .. }) => {
                    return refuse(inst, "other blocks do not see its effect");
                }
                OpFamily::Atomic if data.results.iter().any(|result| used.contains(result)) => {
                    return refuse(inst, "its result depends on the order of the blocks");
                }
                OpFamily::Store | OpFamily::Atomic => roots.stores.push(inst),
                OpFamily::Load if is_volatile(&data.op) => {
                    return refuse(inst, "the blocks may load different values");
                }
                OpFamily::Scalar if matches!(data.op, Op::Machine { .. }) => {
                    return refuse(inst, "its result differs between blocks");
                }
                OpFamily::Pointwise if matches!(data.op, Op::InlineAsm { .. } | Op::VolatileAsm { .. }) => {
                    return refuse(inst, "assembly may depend on the block that runs it");
                }
                OpFamily::Barrier | OpFamily::Check => {
                    return refuse(inst, "it concerns the whole program");
                }
                OpFamily::Call | OpFamily::Partitions | OpFamily::Memory => {
                    return refuse(inst, "its effects are unknown");
                }
                OpFamily::Loop | OpFamily::Branch => {
                    roots.scalars.extend(&data.operands[..data.op.info().operands.len()]);
                    let conditions = kernel.conditions(inst).iter();
                    roots.scalars.extend(conditions.flat_map(|region| kernel.yielded(*region)));
                    blocks.extend(&data.regions);
                }
                OpFamily::Promise => {
                    roots.scalars.extend(data.operands.iter().filter(|value| kernel.ty(**value).is_scalar()));
                }
                OpFamily::Load
                | OpFamily::Scalar
                | OpFamily::Source
                | OpFamily::Pointwise
                | OpFamily::Identity
                | OpFamily::Shape
                | OpFamily::Movement
                | OpFamily::Dot
                | OpFamily::Reduction
                | OpFamily::Scan
                | OpFamily::Terminator => {}
            }
        }
    }
    // Sort the stores of all regions into the order of the program.
    roots.stores.sort_unstable();
    Ok(roots)
}

fn is_volatile(op: &Op) -> bool {
    matches!(op, Op::Load { volatile, cache, .. } if *volatile || *cache == CacheModifier::Volatile)
}

/// Returns the dot with the most work, if each loop runs 16 iterations.
fn main_product(kernel: &Function) -> Option<Inst> {
    let mut best: Option<(Inst, u64)> = None;
    let mut look = |inst: Inst, weight: u64| {
        let data = &kernel.insts[inst];
        if data.op.family() == OpFamily::Dot {
            let elements = kernel.ty(data.results[0]).shape.elements() as u64;
            let depth = kernel.ty(data.operands[0]).shape.last().copied().unwrap_or(1);
            let work = elements * u64::from(depth) * weight;
            if best.is_none_or(|(_, most)| work > most) {
                best = Some((inst, work));
            }
        }
    };
    let mut blocks = vec![(kernel.entry, 1)];
    while let Some((block, weight)) = blocks.pop() {
        for &inst in &kernel.blocks[block].insts {
            look(inst, weight);
            let data = &kernel.insts[inst];
            let weight = if data.op.family() == OpFamily::Loop { weight * 16 } else { weight };
            blocks.extend(data.regions.iter().map(|region| (*region, weight)));
        }
    }
    best.map(|(inst, _)| inst)
}

/// Returns the axes along which a dot may be divided, the best first.
///
/// The best axis leaves enough rows for a warpgroup, and few rows and columns to copy.
fn axes(kernel: &Function, product: Inst, blocks: u32) -> Vec<usize> {
    let shape = &kernel.ty(kernel.insts[product].results[0]).shape;
    let rank = shape.len();
    let extent = |of: usize, axis: usize| if of == axis { shape[of] / blocks } else { shape[of] };
    let mut axes: Vec<usize> = [rank - 2, rank - 1].into();
    axes.retain(|axis| extent(*axis, *axis) >= MIN_EXTENT);
    axes.sort_by_key(|&axis| {
        let (rows, columns) = (extent(rank - 2, axis), extent(rank - 1, axis));
        (rows < WARPGROUP_ROWS, rows + columns)
    });
    axes.extend((0..rank - 2).filter(|axis| shape[*axis].is_multiple_of(blocks)));
    axes
}

/// The forms in which blocks need each value.
#[derive(Clone)]
struct Demand<'f> {
    kernel: &'f Function,
    blocks: u32,
    forms: Forms,
    /// The form of each store and atomic operation in a block.
    roots: FxHashMap<Inst, Form>,
    parents: Parents,
}

/// The forms in which values are needed.
pub type Forms = FxHashMap<Value, SmallVec<[Form; 1]>>;

impl<'f> Demand<'f> {
    fn new(kernel: &'f Function, blocks: u32) -> Self {
        let parents = Parents::new(kernel);
        Self { kernel, blocks, forms: Forms::default(), roots: FxHashMap::default(), parents }
    }

    /// Divides all stores, given the axis of the main dot.
    fn divide(&mut self, product: Inst, axis: usize, roots: &Roots) -> Found<()> {
        self.need(self.kernel.insts[product].results[0], Form::Part(axis))?;
        for scalar in &roots.scalars {
            self.need(*scalar, Form::Whole)?;
        }
        for &store in &roots.stores {
            let operands = &self.kernel.insts[store].operands;
            let rank = self.kernel.ty(operands[0]).rank();
            let forms = (0..rank).map(Form::Part).chain([Form::Whole]);
            let mut refusal = None;
            let found = forms.into_iter().find_map(|form| {
                let mut attempt = self.clone();
                match operands.iter().try_for_each(|operand| attempt.need(*operand, form)) {
                    Ok(()) => Some((attempt, form)),
                    Err(found) => {
                        refusal.get_or_insert(found);
                        None
                    }
                }
            });
            match (found, refusal) {
                (Some((attempt, form)), _) => {
                    *self = attempt;
                    self.roots.insert(store, form);
                }
                (None, refusal) => {
                    return Err(
                        refusal.unwrap_or(Refusal { inst: Some(store), reason: "it cannot be divided" })
                    );
                }
            }
        }
        Ok(())
    }

    /// Demands a value and its computation in a form.
    fn need(&mut self, value: Value, form: Form) -> Found<()> {
        let mut missing = vec![(value, form)];
        while let Some((value, form)) = missing.pop() {
            let ty = self.kernel.ty(value);
            let form = if ty.is_scalar() { Form::Whole } else { form };
            let inst = match self.kernel.values[value].definition {
                Definition::Result(inst, _) => Some(inst),
                Definition::Parameter(block, _) => self.parents.owner(block),
            };
            if let (Form::Part(axis), Some(inst)) = (form, inst)
                && !ty.shape[axis].is_multiple_of(self.blocks)
            {
                return refuse(inst, "an axis of it is too short to be divided");
            }
            let known = self.forms.entry(value).or_default();
            if known.contains(&form) {
                continue;
            }
            known.push(form);
            let is_first = known.len() == 1;
            let Some(inst) = inst else { continue };
            let data = &self.kernel.insts[inst];
            match data.op.family() {
                OpFamily::Dot if form == Form::Whole => {
                    return refuse(inst, "each block would have to compute all of it");
                }
                OpFamily::Dot if !is_first => {
                    return refuse(inst, "a block would have to compute two parts of it");
                }
                OpFamily::Loop | OpFamily::Branch => {
                    // A loop does not carry its counter.
                    if let Some(carried) = self.kernel.carried_by(inst, value) {
                        let Carried { initial, parameters, yielded, result } = carried;
                        let all = initial.into_iter().chain(parameters).chain(yielded).chain([result]);
                        missing.extend(all.map(|value| (value, form)));
                    }
                }
                // tidy: wildcard because all others compute results from operands
                _ => {
                    let forms = operand_forms(self.kernel, inst, form)?;
                    missing.extend(data.operands.iter().copied().zip(forms));
                }
            }
        }
        Ok(())
    }
}

/// Returns the forms of the operands that results in `form` need.
pub fn operand_forms(kernel: &Function, inst: Inst, form: Form) -> Found<SmallVec<[Form; 4]>> {
    let data = &kernel.insts[inst];
    let count = data.operands.len();
    let Form::Part(axis) = form else { return Ok(smallvec![Form::Whole; count]) };
    let shape = |place: usize| &kernel.ty(data.operands[place]).shape;
    let across = |own: u32| if own as usize == axis { None } else { Some(axis) };
    let part: Option<usize> = match &data.op {
        Op::Arange { .. } | Op::Splat { .. } => return Ok(smallvec![Form::Whole; count]),
        Op::ExpandDims { axis: own } => across(*own).map(|axis| axis - usize::from(axis > *own as usize)),
        Op::Broadcast { .. } if shape(0)[axis] == 1 => return Ok(smallvec![Form::Whole]),
        Op::Slice { starts, steps, shape: taken } => {
            (starts[axis] == 0 && steps[axis] == 1 && taken[axis] == shape(0)[axis]).then_some(axis)
        }
        Op::Reshape { shape: to } => same_axis(shape(0), to, axis),
        Op::Transpose { permutation } => Some(permutation[axis] as usize),

        Op::DotScaled { .. } => return refuse(inst, "its scales are not divided"),
        Op::Dot { .. } => {
            let own = Form::Part(axis);
            let rank = shape(2).len();
            return Ok(match rank - axis {
                2 => smallvec![own, Form::Whole, own],
                1 => smallvec![Form::Whole, own, own],
                _ => smallvec![own; 3],
            });
        }
        Op::Reduce { axis: own } => Some(axis + usize::from(axis >= *own as usize)),
        Op::Scan { axis: own, .. } | Op::Butterfly { axis: own, .. } | Op::Bitonic { axis: own, .. } => {
            across(*own)
        }
        Op::Gather { axis: own } if across(*own).is_none() => {
            return Ok(smallvec![Form::Whole, Form::Part(axis)]);
        }
        Op::Broadcast { .. } | Op::Hint { .. } | Op::Load { .. } | Op::Gather { .. } => Some(axis),
        op if op.family() == OpFamily::Pointwise => Some(axis),
        // tidy: wildcard because no rule says which elements others read
        _ => None,
    };
    let Some(part) = part else { return refuse(inst, "its elements come from more than one block") };
    Ok(data.operands.iter().map(|operand| part_of(kernel, *operand, part)).collect())
}

/// Returns the form of a part of a tile; a scalar is whole.
fn part_of(kernel: &Function, value: Value, axis: usize) -> Form {
    if kernel.ty(value).is_scalar() { Form::Whole } else { Form::Part(axis) }
}

/// Returns the axis of `from` that corresponds to `axis` of `to`. Equal parts along both have the
/// same elements.
fn same_axis(from: &[u32], to: &[u32], axis: usize) -> Option<usize> {
    let before = |shape: &[u32], axis: usize| shape[..axis].iter().product::<u32>();
    (0..from.len()).rev().find(|other| before(from, *other) == before(to, axis))
}

struct Written {
    accesses: Vec<Access>,
}

impl Written {
    fn of(module: &Module) -> Self {
        let accesses = accesses(module);
        let is_written = |parameter: &usize| {
            accesses.iter().any(|access| access.writes && access.parameters.contains(parameter))
        };
        let about = accesses.iter().filter(|access| access.parameters.iter().any(is_written));
        Self { accesses: about.cloned().collect() }
    }

    /// Refuses a program whose block may access elements that another block writes. Also refuses
    /// ordering atomic operations on written memory.
    fn check(&self, demand: &Demand<'_>) -> Found<()> {
        let kernel = demand.kernel;
        for (number, one) in self.accesses.iter().enumerate() {
            let op = &kernel.insts[one.inst].op;
            let orders = |sem: &MemorySemantics| sem.acquires() || sem.releases();
            if matches!(op, Op::AtomicRmw { sem, .. } if orders(sem)) && self.accesses.len() > 1 {
                return refuse(one.inst, "it is ordered with accesses of other blocks");
            }
            for other in &self.accesses[..number] {
                let meet = one.parameters.iter().any(|parameter| other.parameters.contains(parameter));
                if meet && (one.writes || other.writes) && !is_own(demand, one.inst, other.inst) {
                    return refuse(one.inst, "it may access memory that another block writes");
                }
            }
        }
        Ok(())
    }
}

/// Returns whether no other block accesses the elements of two accesses.
///
/// Both accesses use the same part, and the same pointers from outside of loops.
fn is_own(demand: &Demand<'_>, one: Inst, other: Inst) -> bool {
    let kernel = demand.kernel;
    let [pointer, same] = [one, other].map(|inst| kernel.insts[inst].operands[0]);
    let is_fixed =
        kernel.defining_inst(pointer).is_some_and(|inst| kernel.blocks[kernel.entry].insts.contains(&inst));
    let is_part = |inst: Inst| {
        let data = &kernel.insts[inst];
        let forms = match demand.roots.get(&inst) {
            Some(form) => std::slice::from_ref(form),
            None => data.results.first().and_then(|result| demand.forms.get(result)).map_or(&[][..], |f| f),
        };
        match forms {
            [Form::Part(axis)] => Some(*axis),
            _ => None,
        }
    };
    let parts = [one, other].map(is_part);
    pointer == same && is_fixed && parts[0].is_some() && parts[0] == parts[1]
}
