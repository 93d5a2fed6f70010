//! Warp specialization: a warpgroup of its own copies what the others compute with, for loops that ask for it
//! (`tl.range(warp_specialize=True)`).
//!
//! ```text
//! for %tile … {                            %r = alloc : ring<3, …>
//!   for %k … {                             warp_roles {warps = [8, 4], registers = [232, 40]} () {
//!     %x = load %box(%tile, %k)              for %tile … { for %k … { %f = take %r ; product %f ; release %f } ; store … }
//!     product %x                      =>   } () {
//!   }                                        for %tile … { for %k … { %e = acquire %r ; tensor_fill %e … ; publish %e } }
//!   store …                                }
//! }                                        dealloc %r
//! ```
//! Loops fill a slot in the iteration that takes it ([`pipelining::fill_in_step`]); then all that the kernel does stands twice,
//! once without the copies, and once with nothing but the copies and what says when and of what they are. The role that copies is ahead
//! of the other by as many slots as there are, across the ends of inner loops too: the first copies for a tile of a persistent
//! kernel begin while the tile before it is still computed and stored.
//!
//! **What it takes.** Four or eight warps, and so one or two warpgroups that multiply. Every load that goes through a ring is a tensor
//! copy, since one thread has to start it. What these depend on is computed from scalars: the arguments, the number of the
//! program, counters. Nothing that is loaded so is stored by the kernel, and nothing orders accesses to memory. Two products in
//! a row are not overlapped in such a loop: with two warpgroups, one multiplies while the other computes.
//!
//! Where a kernel has another form it is compiled as without the option, and a remark says why.

use rustc_hash::FxHashSet;
use smallvec::smallvec;
use tilewright_ir as ir;
use tilewright_ir::{Block, BlockData, Effect, Inst, MemorySemantics, OpFamily, Operation, Value};

use super::allocation::least_bytes;
use super::global_memory::GlobalAccesses;
use super::memory_effects::ordering;
use super::tensor_copies::{map_number, use_tensor_copies};
use super::tensor_stores::use_tensor_stores;
use super::{pipelining, prune};
use crate::language::{Function, GpuOp, Module, Op, Type};
use crate::remarks::{self, Because};
use crate::target::Feature;

/// The warps that copy: registers are given away by whole warpgroups.
const PRODUCING_WARPS: u32 = 4;
/// The registers of a thread that multiplies, with two such warpgroups, and of one that copies. With one, a thread can have as many as
/// an instruction can name.
const REGISTERS: [i64; 2] = [232, 40];

/// Gives copies to warps of their own, where a loop asks for it.
pub fn specialize_warps(module: &mut Module) {
    let function = module.kernel();
    let (mut asked, mut has_roles) = (None, false);
    function.walk(function.entry, &mut |inst| match &function.insts[inst].op {
        Op::Tile(ir::Op::For { options }) if options.warp_specialize => asked = asked.or(Some(inst)),
        Op::Gpu(GpuOp::WarpRoles { .. }) => has_roles = true,
        // tidy: wildcard because no other op is asked about
        _ => {}
    });
    let Some(asked) = asked.filter(|_| !has_roles) else { return };
    let say = |module: &Module, because: &dyn Fn() -> Because| {
        remarks::about("specialization", module.kernel(), asked, || "loop".into(), because);
    };
    match specialized(module) {
        Ok((specialized, slots)) => {
            say(module, &|| {
                let warps = module.header.num_warps;
                let reason = format!("they are up to {slots} slots ahead");
                Because::done(format!("{PRODUCING_WARPS} warps copy for {warps}"), reason)
            });
            *module = specialized;
        }
        Err(reason) => say(module, &|| Because::missed("no warps of their own for copies", reason)),
    }
}

/// The module with roles, and how many slots its rings have.
fn specialized(module: &Module) -> Result<(Module, u32), &'static str> {
    let target = module.header.target;
    if !target.features.has(Feature::Tma) || !target.features.has(Feature::Wgmma) {
        return Err("the target has no tensor memory accelerator");
    }
    if !matches!(module.header.num_warps, 4 | 8) {
        return Err("it takes 4 or 8 warps");
    }
    check(module)?;
    let plans = pipelining::plans_in_step(module)?;
    let most = plans.iter().map(|plan| plan.stages).max().unwrap_or(0);
    for slots in (2..=most).rev() {
        let mut trial = module.clone();
        trial.header.stages = 0;
        pipelining::fill_in_step(&mut trial, &plans, slots);
        use_tensor_stores(&mut trial);
        use_tensor_copies(&mut trial);
        divide(&mut trial)?;
        if least_bytes(trial.kernel()) <= u64::from(target.max_shared_bytes) {
            return Ok((trial, slots));
        }
    }
    Err("not even two slots fit into shared memory")
}

/// Whether copies may overtake all else that the kernel does.
fn check(module: &Module) -> Result<(), &'static str> {
    if !module.header.made_maps.is_empty() {
        return Err("the kernel makes tensor maps");
    }
    let function = module.kernel();
    let parameters = &function.blocks[function.entry].parameters;
    let (mut loaded, mut stored): (FxHashSet<Value>, Vec<Value>) = (FxHashSet::default(), Vec::new());
    let mut checked = Ok(());
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if ordering(&data.op).is_some_and(|semantics| semantics != MemorySemantics::Relaxed) {
            checked = Err("an atomic operation acquires or releases");
        }
        let family = data.op.info().family;
        if matches!(data.op, Op::Gpu(GpuOp::Load { .. }))
            && let Some(mark) = function.defining_inst(data.operands[0]).map(|mark| &function.insts[mark])
            && matches!(mark.op, Op::Gpu(GpuOp::TensorBox {}))
            && let Some(number) = map_number(&module.header, function, mark.operands[1])
        {
            loaded.extend(parameters.get(module.header.tensor_maps[number].base as usize));
        }
        if matches!(family, OpFamily::Store | OpFamily::Atomic) {
            stored.push(data.operands[0]);
        }
        if let Op::Tile(op) = &data.op {
            let is_known = matches!(op, ir::Op::Barrier {}) || family == OpFamily::Check;
            if matches!(op, ir::Op::While {}) {
                checked = Err("the kernel has a loop without a count");
            } else if op.info().effect == Effect::Write && !is_known {
                checked = Err("the kernel has assembly or calls with effects");
            }
        }
    });
    checked?;
    let global = GlobalAccesses::new(module);
    let is_behind = |base: &Value| stored.iter().any(|pointers| global.may_be_behind(*pointers, *base));
    if loaded.iter().any(is_behind) { Err("the kernel stores to what it loads") } else { Ok(()) }
}

/// Divides what a kernel does among those who copy and the others.
fn divide(module: &mut Module) -> Result<(), &'static str> {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    let entry = function.entry;
    let is_ring = |function: &Function, value: Value| matches!(function.ty(value), Type::Ring(_));
    let mut is_filled = true;
    function.walk(entry, &mut |inst| {
        let data = &function.insts[inst];
        if let Op::Gpu(GpuOp::LocalStore {} | GpuOp::CopyAsync { .. }) = data.op {
            is_filled &= !matches!(function.ty(data.operands[0]), Type::Empty(_));
        }
    });
    if !is_filled {
        return Err("threads fill slots themselves");
    }
    let (mut rings, mut body, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let mut insts = std::mem::take(&mut function.blocks[entry].insts);
    let last = insts.pop().expect("a function returns");
    for inst in insts {
        let data = &function.insts[inst];
        if data.results.first().is_some_and(|result| is_ring(function, *result)) {
            rings.push(inst);
        } else if matches!(data.op, Op::Gpu(GpuOp::Dealloc {})) && is_ring(function, data.operands[0]) {
            ends.push(inst);
        } else {
            body.push(inst);
        }
    }
    let location = function.insts[last].location;
    let yielded = function.create_inst(ir::Op::Yield {}.into(), smallvec![], smallvec![], [], location);
    body.push(yielded);
    let consumer = function.blocks.push(BlockData { insts: body, ..BlockData::default() });
    let producer = function.clone_region(consumer);
    keep(function, consumer, &|op| !is_filling(op));
    keep(function, producer, &|op| {
        is_filling(op)
            || matches!(op.info().effect, Effect::Pure | Effect::Terminator)
            || matches!(op.info().family, OpFamily::Loop | OpFamily::Branch)
    });
    let warps = header.num_warps;
    let changes = if warps > 4 { REGISTERS } else { [0, 0] };
    let op = GpuOp::WarpRoles {
        warps: [warps, PRODUCING_WARPS].iter().map(|count| i64::from(*count)).collect(),
        registers: changes.into_iter().collect(),
    };
    let roles = function.create_inst(op.into(), smallvec![], smallvec![consumer, producer], [], location);
    function.blocks[entry].insts = rings.into_iter().chain([roles]).chain(ends).chain([last]).collect();
    prune::prune(function);
    name_barriers(function, consumer, warps);
    header.num_warps = warps + PRODUCING_WARPS;
    copies_alone(function, producer)
}

fn is_filling(op: &Op) -> bool {
    matches!(op, Op::Gpu(GpuOp::Acquire {} | GpuOp::TensorFill {} | GpuOp::Publish {}))
}

/// Keeps these instructions of a block and of the regions inside it.
fn keep(function: &mut Function, block: Block, is_kept: &dyn Fn(&Op) -> bool) {
    let mut insts = std::mem::take(&mut function.blocks[block].insts);
    insts.retain(|inst| is_kept(&function.insts[*inst].op));
    for inst in &insts {
        for region in function.insts[*inst].regions.clone() {
            keep(function, region, is_kept);
        }
    }
    function.blocks[block].insts = insts;
}

/// Barriers of the program become those of the warps that compute.
fn name_barriers(function: &mut Function, block: Block, warps: u32) {
    let mut barriers = Vec::new();
    function.walk(block, &mut |inst| {
        if matches!(function.insts[inst].op, Op::Tile(ir::Op::Barrier {})) {
            barriers.push(inst);
        }
    });
    for inst in barriers {
        function.insts[inst].op =
            GpuOp::NamedBarrier { barrier: super::barriers::of_role(0), threads: warps * 32 }.into();
    }
}

/// Whether the warps that copy need nothing that the others have.
fn copies_alone(function: &Function, producer: Block) -> Result<(), &'static str> {
    let mut known: FxHashSet<Value> = function.blocks[function.entry].parameters.iter().copied().collect();
    for inst in &function.blocks[function.entry].insts {
        known.extend(&function.insts[*inst].results);
    }
    let mut inside = Vec::new();
    function.walk(producer, &mut |inst| inside.push(inst));
    for inst in &inside {
        known.extend(&function.insts[*inst].results);
        for region in &function.insts[*inst].regions {
            known.extend(&function.blocks[*region].parameters);
        }
    }
    let is_alone = |inst: &Inst| {
        let data = &function.insts[*inst];
        let is_tile = |value: &Value| {
            matches!(function.ty(*value), Type::Registers { layout: Some(_), .. } | Type::Pending { .. })
        };
        data.operands.iter().all(|value| known.contains(value))
            && !data.operands.iter().chain(&data.results).any(is_tile)
    };
    let has_fills = inside.iter().any(|inst| is_filling(&function.insts[*inst].op));
    if !has_fills {
        Err("nothing is left to copy")
    } else if inside.iter().all(is_alone) {
        Ok(())
    } else {
        Err("what copies depend on is loaded, or made of tiles")
    }
}
