//! Warp specialization: warps of their own copy what the others compute with, for loops that ask for it
//! (`tl.range(warp_specialize=True)`), and where [`own_warps_pay`].
//!
//! ```text
//! for %tile … {                            %r = alloc : ring<3, …>
//!   for %k … {                             warp_specialize {warps = [8, 4], registers = [232, 40]} () {
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
//! **Who copies.** If every load that goes through a ring is a tensor copy, one thread starts it, and a warpgroup does. Else all threads
//! of as many warps as compute do, since addresses have layouts over so many: each starts its `cp.async` copies and arrives at the
//! barrier of the slot when they are done, with none of them waited for. Addresses may then be loaded, and the loads that the
//! copies depend on are made by both roles. Where the kernel stores to what the copying role may load, the roles meet
//! before and behind those stores ([`order`]).
//!
//! **Resources** ([`Partitions`]). If the registers of a multiprocessor do not give each thread as many as an instruction can name,
//! whole warpgroups copy, and leave registers to those that compute. What copies depend on is computed from
//! the arguments, the number of the program, counters, and what is loaded and no other program writes; not of atomic operations. What tensor copies load the kernel does not store, and nothing orders accesses to memory. Dots
//! of one iteration do not run beside another iteration of such a loop: with two warpgroups, one multiplies while the other computes.
//!
//! Where a kernel has another form it is compiled as without the option, and a remark says why.

mod order;

use rustc_hash::FxHashSet;
use smallvec::smallvec;
use tilewright_base::{collect_remarks, remark};
use tilewright_ir as ir;
use tilewright_ir::{
    Block, BlockData, CacheModifier, Effect, Inst, MemorySemantics, OpFamily, Operation, Value,
};

use super::allocation::least_bytes;
use super::dependent_dots::{depends_on_other_dot, dots_of};
use super::global_memory::GlobalAccesses;
use super::memory_effects::ordering;
use super::tensor_copies::use_tensor_copies;
use super::tensor_maps::map_number;
use super::tensor_stores::use_tensor_stores;
use super::{pipelining, prune};
use crate::cost_model::own_warps_pay;
use crate::remarks::{self, Because};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::{Feature, MAX_WARPS, REGISTER_FILE, THREAD_REGISTERS, WARPGROUP_WARPS};
use tilewright_gpu_ir::{Function, GpuOp, Header, InstData, Module, Op, Type};

/// Registers of a thread are allocated, and exchanged, in steps of this many.
const REGISTER_STEP: u32 = 8;

/// The warps of the two partitions, and the registers of their threads.
#[derive(Clone, Copy)]
struct Partitions {
    computing: u32,
    copying: u32,
    /// Of the partition that computes, and of the one that copies; 0: as many as at the launch.
    registers: [u32; 2],
}

impl Partitions {
    /// Divides the registers of a multiprocessor between the warps that compute and a partition that
    /// copies. If a thread cannot have as many as an instruction can name, the partition that copies
    /// leaves some of its own to the other one.
    fn of(header: &Header, by_threads: bool, accumulator: u32) -> Result<Self, &'static str> {
        let (computing, tuning) = (header.num_warps, header.target.tuning);
        let at_launch = |warps: u32| REGISTER_FILE / (warps * LANES) / REGISTER_STEP * REGISTER_STEP;
        let copying = if by_threads { computing } else { 1 };
        if at_launch(computing + copying) >= THREAD_REGISTERS {
            return Ok(Self { computing, copying, registers: [0, 0] });
        }
        // Whole warpgroups exchange registers.
        let copying = copying.next_multiple_of(WARPGROUP_WARPS);
        let warps = computing + copying;
        if !computing.is_multiple_of(WARPGROUP_WARPS) || warps > MAX_WARPS {
            return Err("the warps of a block cannot be divided into partitions of whole warpgroups");
        }
        let launched = at_launch(warps);
        if accumulator + tuning.beside_accumulator_registers > launched {
            return Err("a thread would have too few registers at the launch for the accumulator of a dot");
        }
        let kept = if by_threads { tuning.copying_registers } else { tuning.tensor_copying_registers };
        if kept > launched {
            return Err("a thread that copies would have too few registers");
        }
        let left = (launched * warps - kept * copying) / computing;
        Ok(Self { computing, copying, registers: [left / REGISTER_STEP * REGISTER_STEP, kept] })
    }
}

/// Gives copies to warps of their own, where a loop asks for it, or where it pays.
pub fn partition_warps(module: &mut Module) {
    let function = module.kernel();
    let (mut asked, mut has_product, mut has_roles) = (None, None, false);
    function.walk(function.entry, &mut |inst| match &function.insts[inst].op {
        Op::Tile(ir::Op::For { options }) if options.warp_specialize => asked = asked.or(Some(inst)),
        Op::Gpu(GpuOp::WarpSpecialize { .. }) => has_roles = true,
        op if op.info().family == OpFamily::Dot => has_product = has_product.or(Some(inst)),
        // tidy: wildcard because no other op is asked about
        _ => {}
    });
    let (is_asked, Some(inst)) = (asked.is_some(), asked.or(has_product)) else { return };
    let features = &module.header.target.features;
    let is_possible = features.has(Feature::Tma) && features.has(Feature::Wgmma) && module.header.stages > 1;
    if has_roles || !(is_asked || is_possible) {
        return;
    }
    let say = |module: &Module, because: &dyn Fn() -> Because| {
        let subject = || if is_asked { "loop".into() } else { "product".into() };
        remarks::about("partition_warps", module.kernel(), inst, subject, because);
    };
    let made = if is_asked {
        specialized(module, true)
    } else {
        // Where nothing comes of it, the loops are planned once more, and say what they do then.
        let (made, remarks) = collect_remarks(|| specialized(module, false));
        let is_made = made.is_ok();
        remarks.into_iter().filter(|_| is_made).for_each(|made| remark(|| made));
        made
    };
    match made {
        Ok(Specialized { module: specialized, slots, warps: copying }) => {
            say(module, &|| {
                let warps = module.header.num_warps;
                let reason = format!("they are up to {slots} slots ahead");
                let copies =
                    if copying == 1 { "1 warp copies".into() } else { format!("{copying} warps copy") };
                Because::done(format!("{copies} for {warps}"), reason)
            });
            *module = specialized;
        }
        Err(reason) if is_asked => {
            say(module, &|| Because::missed("no warps of their own for copies", reason));
        }
        Err(reason) => say(module, &|| Because::note("no warps of their own for copies", reason)),
    }
}

/// A module with roles.
struct Specialized {
    module: Module,
    /// How many its rings have.
    slots: u32,
    /// How many copy.
    warps: u32,
}

fn specialized(module: &Module, is_asked: bool) -> Result<Specialized, &'static str> {
    let target = module.header.target;
    if !target.features.has(Feature::Tma) || !target.features.has(Feature::Wgmma) {
        return Err("the target has no tensor memory accelerator");
    }
    check(module)?;
    let plan = pipelining::plans_in_step(module)?;
    if !is_asked && !own_warps_pay(plan.gathered, plan.stages, module.header.target.tuning) {
        return Err("no loop asks for them, and threads gather little, or far enough ahead");
    }
    let partitions = Partitions::of(&module.header, plan.by_threads, largest_accumulator(module))?;
    for slots in (2..=plan.stages).rev() {
        let mut trial = module.clone();
        trial.header.stages = 0;
        pipelining::fill_in_step(&mut trial, &plan.plans, slots);
        use_tensor_stores(&mut trial);
        use_tensor_copies(&mut trial);
        divide(&mut trial, partitions, plan.by_threads)?;
        if !is_asked {
            check_that_it_pays(&trial)?;
        }
        if least_bytes(&trial.header.layouts, trial.kernel()) <= u64::from(target.max_shared_bytes) {
            return Ok(Specialized { module: trial, slots, warps: partitions.copying });
        }
    }
    Err("not even two slots fit into shared memory")
}

/// Checks that warps of their own pay for copies in a kernel that does not ask for them: the roles are slower than no roles where
/// they wait for each other at stores, or where a dot waits for what threads compute from another dot.
fn check_that_it_pays(module: &Module) -> Result<(), &'static str> {
    let function = module.kernel();
    let (mut depends, mut meets) = (false, false);
    let mut check_block = |block: Block| {
        for dot in dots_of(function, block) {
            let operands = &function.insts[dot].operands[..2];
            depends |= operands.iter().any(|operand| depends_on_other_dot(function, block, dot, *operand));
        }
    };
    check_block(function.entry);
    function.walk(function.entry, &mut |inst| {
        function.insts[inst].regions.iter().for_each(|region| check_block(*region));
        meets |= order::is_mark(&function.insts[inst].op);
    });
    if depends {
        return Err("no loop asks for them, and a dot waits for what becomes of another one");
    }
    if meets {
        Err("no loop asks for them, and they would wait for each other at its stores")
    } else {
        Ok(())
    }
}

/// The most registers of a thread that the accumulator of an asynchronous dot takes.
fn largest_accumulator(module: &Module) -> u32 {
    let (function, threads) = (module.kernel(), module.header.num_warps * LANES);
    let mut most = 0;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if let Op::Gpu(GpuOp::Wgmma { .. }) = data.op
            && let Some(tile) = function.ty(data.results[0]).tile()
        {
            most = most.max(tile.shape.iter().product::<u32>().div_ceil(threads));
        }
    });
    most
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
            if op.info().effect == Effect::Write && !is_known {
                checked = Err("the kernel has assembly or calls with effects");
            }
        }
    });
    checked?;
    let global = GlobalAccesses::new(module);
    let is_behind = |base: &Value| stored.iter().any(|pointers| global.may_be_behind(*pointers, *base));
    if loaded.iter().any(is_behind) { Err("the kernel stores to what tensor copies load") } else { Ok(()) }
}

/// Divides the ops of a kernel between two partitions.
fn divide(module: &mut Module, partitions: Partitions, by_threads: bool) -> Result<(), &'static str> {
    let Module { header, functions, entry, .. } = &mut *module;
    let function = &mut functions[*entry];
    let entry = function.entry;
    let is_ring = |function: &Function, value: Value| matches!(function.ty(value), Type::Ring(_));
    let mut is_filled = true;
    function.walk(entry, &mut |inst| {
        let data = &function.insts[inst];
        let is_own = match data.op {
            Op::Gpu(GpuOp::LocalStore {}) => true,
            Op::Gpu(GpuOp::CopyAsync { .. }) => !by_threads,
            // tidy: wildcard because no other op of all threads fills a slot
            _ => false,
        };
        is_filled &= !(is_own && matches!(function.ty(data.operands[0]), Type::Empty(_)));
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
    let Partitions { computing: warps, copying, registers } = partitions;
    let stores = if by_threads { order::mark(function, consumer, warps + copying) } else { Vec::new() };
    let producer = function.clone_region(consumer);
    keep(function, consumer, &|_, data| !is_filling(&data.op));
    keep(function, producer, &|function, data| {
        let info = data.op.info();
        is_filling(&data.op)
            || order::is_mark(&data.op)
            || by_threads && (is_own_load(&data.op) || is_in_own_buffer(function, data))
            || matches!(info.effect, Effect::Pure | Effect::Terminator)
            || matches!(info.family, OpFamily::Loop | OpFamily::Branch)
    });
    let op = GpuOp::WarpSpecialize {
        warps: [warps, copying].iter().map(|count| i64::from(*count)).collect(),
        registers: registers.iter().map(|count| i64::from(*count)).collect(),
    };
    let roles = function.create_inst(op.into(), smallvec![], smallvec![consumer, producer], [], location);
    function.blocks[entry].insts = rings.into_iter().chain([roles]).chain(ends).chain([last]).collect();
    prune::prune(function);
    name_barriers(function, consumer, warps);
    header.num_warps = warps + copying;
    if by_threads {
        order::settle(module, &stores, [consumer, producer])?;
        let function = &mut module.functions[module.entry];
        drop_idle(function, producer);
        prune::prune(function);
    }
    copies_alone(module.kernel(), producer, by_threads)
}

fn is_filling(op: &Op) -> bool {
    matches!(
        op,
        Op::Gpu(GpuOp::Acquire {} | GpuOp::TensorFill {} | GpuOp::CopyAsync { .. } | GpuOp::Publish {})
    )
}

/// Whether an op loads what each role may load for itself: no other program writes it meanwhile.
fn is_own_load(op: &Op) -> bool {
    matches!(op, Op::Gpu(GpuOp::Load { volatile: false, cache, .. }) if *cache != CacheModifier::Volatile)
}

/// Whether it goes through memory that is no ring, as conversions do: each role has that for itself.
fn is_in_own_buffer(function: &Function, data: &InstData) -> bool {
    let memory = match data.op {
        Op::Gpu(GpuOp::Alloc { .. }) => data.results[0],
        Op::Gpu(GpuOp::LocalStore {} | GpuOp::LocalLoad { .. } | GpuOp::Dealloc {}) => data.operands[0],
        // tidy: wildcard because conversions take no other op
        _ => return false,
    };
    matches!(function.ty(memory), Type::Buffer(buffer) if buffer.slots == 1)
}

/// Removes loops and branches that do nothing for those who copy; whether something is left that does.
fn drop_idle(function: &mut Function, block: Block) -> bool {
    let mut acts = false;
    let mut insts = std::mem::take(&mut function.blocks[block].insts);
    insts.retain(|inst| {
        let data = &function.insts[*inst];
        let (info, results) = (data.op.info(), data.results.len());
        if matches!(info.family, OpFamily::Loop | OpFamily::Branch) {
            let mut is_busy = false;
            for region in data.regions.clone() {
                is_busy |= drop_idle(function, region);
            }
            acts |= is_busy;
            return is_busy || results > 0;
        }
        acts |= info.effect == Effect::Write;
        true
    });
    function.blocks[block].insts = insts;
    acts
}

/// Keeps these instructions of a block and of the regions inside it.
fn keep(function: &mut Function, block: Block, is_kept: &dyn Fn(&Function, &InstData) -> bool) {
    let mut insts = std::mem::take(&mut function.blocks[block].insts);
    insts.retain(|inst| is_kept(function, &function.insts[*inst]));
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
            GpuOp::NamedBarrier { barrier: super::barriers::of_role(0), threads: warps * LANES }.into();
    }
}

/// Whether the warps that copy need nothing that the others have, and no tiles if one thread copies.
fn copies_alone(function: &Function, producer: Block, by_threads: bool) -> Result<(), &'static str> {
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
            && (by_threads || !data.operands.iter().chain(&data.results).any(is_tile))
    };
    let has_fills = inside.iter().any(|inst| is_filling(&function.insts[*inst].op));
    if !has_fills {
        Err("nothing is left to copy")
    } else if inside.iter().all(is_alone) {
        Ok(())
    } else if by_threads {
        Err("what copies depend on is made by atomic operations")
    } else {
        Err("what copies depend on is loaded, or made of tiles")
    }
}
