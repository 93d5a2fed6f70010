//! Warp specialization: producer warps copy the tiles of consumer warps. A loop requests it, by
//! `tl.range(warp_specialize=True)` or by the pass that splits K.
//!
//! ```text
//! for %tile {                     %r = alloc : ring<3, …>
//!   for %k {                      warp_specialize {warps = [8, 4], registers = [232, 40]} () {
//!     %x = load %p(%tile, %k)       for %tile {
//!     wgmma %x                        for %k { %f = take %r ; wgmma %f ; release %f }
//!   }                                 store …
//!   store …                =>       }
//! }                               } () {
//!                                   for %tile {
//!                                     for %k { %e = acquire %r ; tensor_fill %e ; publish %e }
//!                                   }
//!                                 }
//!                                 dealloc %r
//! ```
//! First, each loop fills a slot in the iteration that takes it
//! ([`pipelining::lower_for_producer`]). Each partition gets a copy of the code. The producer keeps
//! the ops that fill slots ([`pipelining::is_fill`]), and the ops that only these need. The
//! consumer keeps the others. The producer runs ahead by the slots of the rings, even across inner
//! loops. In a persistent kernel, it copies for the next tile while the consumer stores the
//! previous one.
//!
//! **The warps of the producer.** One thread starts tensor copies, so one warp is enough. If a load
//! is not a tensor copy, or depends on other loads, the producer gets the consumer's number of
//! warps. The layouts distribute the addresses over its warps. The `cp.async` copies arrive at the
//! `mbarrier` of the slot when they complete. Addresses may then depend on loads, which both
//! partitions execute. At stores to memory that the producer may load, the partitions synchronize
//! ([`order`]).
//!
//! **Registers** ([`Partitions`]). If the register file cannot give each thread the largest number,
//! the producer has whole warpgroups. These warpgroups release registers to the consumer.
//!
//! **Obstacles.** Copies may not depend on atomic ops, or on loads of memory that other programs
//! write. The kernel may not store to memory that tensor copies load, and has no atomic ops that
//! acquire or release. Otherwise, a remark states the reason, and the kernel compiles without
//! partitions.

mod order;

use rustc_hash::FxHashSet;
use smallvec::smallvec;
use tilewright_ir as ir;
use tilewright_ir::{
    Block, BlockData, CacheModifier, Effect, Inst, MemorySemantics, OpFamily, Operation, Value,
};

use super::allocation::least_bytes;
use super::global_memory::GlobalAccesses;
use super::memory_effects::ordering;
use super::pipelining::{self, LoadDependences, ProducerPlan, is_fill};
use super::prune;
use super::tensor_copies::use_tensor_copies;
use super::tensor_maps::launch_map_index;
use super::tensor_stores::use_tensor_stores;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::{Feature, MAX_WARPS, REGISTER_FILE, THREAD_REGISTERS, WARPGROUP_WARPS};
use tilewright_gpu_ir::{Function, GpuOp, Header, InstData, Module, Op, Type};

/// The hardware allocates and moves a thread's registers in multiples of this number.
const REGISTER_STEP: u32 = 8;

#[derive(Clone, Copy)]
struct Partitions {
    consumer: u32,
    producer: u32,
    /// The registers of a consumer thread and of a producer thread; 0 keeps the number.
    registers: [u32; 2],
}

impl Partitions {
    /// Divides the registers between the consumer and the producer.
    fn of(header: &Header, by_threads: bool, accumulator: u32) -> Result<Self, &'static str> {
        let (consumer, tuning) = (header.num_warps, header.target.tuning);
        let at_launch = |warps: u32| REGISTER_FILE / (warps * LANES) / REGISTER_STEP * REGISTER_STEP;
        let producer = if by_threads { consumer } else { 1 };
        if at_launch(consumer + producer) >= THREAD_REGISTERS {
            return Ok(Self { consumer, producer, registers: [0, 0] });
        }
        // Whole warpgroups exchange registers.
        let producer = producer.next_multiple_of(WARPGROUP_WARPS);
        let warps = consumer + producer;
        if !consumer.is_multiple_of(WARPGROUP_WARPS) || warps > MAX_WARPS {
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
        let left = (launched * warps - kept * producer) / consumer;
        Ok(Self { consumer, producer, registers: [left / REGISTER_STEP * REGISTER_STEP, kept] })
    }
}

/// Divides the warps of a kernel into partitions, if a loop requests it.
pub fn partition_warps(module: &mut Module) {
    let function = module.kernel();
    let (mut requested, mut has_partitions) = (None, false);
    function.walk(function.entry, &mut |inst| match &function.insts[inst].op {
        Op::Tile(ir::Op::For { options }) if options.warp_specialize => requested = requested.or(Some(inst)),
        Op::Gpu(GpuOp::WarpSpecialize { .. }) => has_partitions = true,
        // tidy: wildcard because no other op decides whether the pass divides the warps
        _ => {}
    });
    let Some(inst) = requested.filter(|_| !has_partitions) else { return };
    let say = |module: &Module, because: &dyn Fn() -> RemarkReason| {
        remarks::about("partition_warps", module.kernel(), inst, || "loop".into(), because);
    };
    match specialized(module) {
        Ok(Specialized { module: specialized, slots, producer }) => {
            say(module, &|| {
                let consumer = module.header.num_warps;
                let reason = format!("the producer runs up to {slots} slots ahead");
                let copies =
                    if producer == 1 { "1 warp copies".into() } else { format!("{producer} warps copy") };
                RemarkReason::done(format!("{copies} for {consumer}"), reason)
            });
            *module = specialized;
        }
        Err(reason) => {
            say(module, &|| RemarkReason::missed("no warps of their own for copies", reason));
        }
    }
}

struct Specialized {
    module: Module,
    /// The number of slots of each ring.
    slots: u32,
    /// The number of warps of the producer.
    producer: u32,
}

fn specialized(module: &Module) -> Result<Specialized, &'static str> {
    let target = module.header.target;
    if !target.features.has(Feature::Tma) || !target.features.has(Feature::Wgmma) {
        return Err("the target has no tensor memory accelerator");
    }
    check(module)?;
    let plan = pipelining::plan_producer(module)?;
    let partitions = Partitions::of(&module.header, plan.by_threads, largest_accumulator(module))?;
    if plan.by_threads {
        order::check(module, &pointers_of_producer(module, &plan))?;
    }
    // The rings get as many slots as fit, up to the requested number of stages.
    for slots in (2..=plan.stages).rev() {
        let mut divided = module.clone();
        divided.header.stages = 0;
        pipelining::lower_for_producer(&mut divided, &plan.plans, slots);
        use_tensor_stores(&mut divided);
        use_tensor_copies(&mut divided);
        divide(&mut divided, partitions, plan.by_threads)?;
        if least_bytes(&divided.header.layouts, divided.kernel()) <= u64::from(target.max_shared_bytes) {
            return Ok(Specialized { module: divided, slots, producer: partitions.producer });
        }
    }
    Err("not even two slots fit into shared memory")
}

/// Returns the pointers that a producer's threads load or copy from.
fn pointers_of_producer(module: &Module, plan: &ProducerPlan) -> Vec<Value> {
    let function = module.kernel();
    let loads: Vec<_> = plan.plans.iter().flat_map(|plan| &plan.loads).collect();
    let insts: Vec<Inst> = loads.iter().map(|load| load.inst).collect();
    let mut operands: Vec<Value> = Vec::new();
    for load in &loads {
        match &load.boxed {
            Some(boxed) => operands.extend(boxed.coordinates(function, boxed.mark)),
            None => operands.extend(&function.insts[load.inst].operands),
        }
    }
    let depended = LoadDependences::new(function).with_control(&operands, &insts);
    let copied = loads.iter().filter(|load| load.boxed.is_none()).map(|load| load.inst);
    depended.into_iter().chain(copied).map(|load| function.insts[load].operands[0]).collect()
}

/// Returns the registers of a thread for the largest accumulator of an asynchronous dot.
fn largest_accumulator(module: &Module) -> u32 {
    let (function, threads) = (module.kernel(), module.header.num_warps * LANES);
    let mut largest = 0;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if let Op::Gpu(GpuOp::Wgmma { .. }) = data.op
            && let Some(tile) = function.ty(data.results[0]).tile()
        {
            largest = largest.max(tile.shape.iter().product::<u32>().div_ceil(threads));
        }
    });
    largest
}

/// Checks that copies may overtake all other ops of the kernel.
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
            && let Some(number) = launch_map_index(&module.header, function, mark.operands[1])
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
    let is_stored = |base: &Value| stored.iter().any(|pointers| global.may_derive_from(*pointers, *base));
    if loaded.iter().any(is_stored) {
        Err("the kernel stores to memory that tensor copies load")
    } else {
        Ok(())
    }
}

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
            // tidy: wildcard because threads fill slots by no other op
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
    let Partitions { consumer: warps, producer: copying, registers } = partitions;
    let stores = if by_threads { order::mark(function, consumer, warps + copying) } else { Vec::new() };
    let producer = function.clone_region(consumer);
    keep(function, consumer, &|_, data| !is_fill(&data.op));
    keep(function, producer, &|function, data| {
        let info = data.op.info();
        is_fill(&data.op)
            || order::is_mark(&data.op)
            || by_threads && (is_own_load(&data.op) || is_in_own_buffer(function, data))
            || matches!(info.effect, Effect::Pure | Effect::Terminator)
            || matches!(info.family, OpFamily::Loop | OpFamily::Branch)
    });
    let op = GpuOp::WarpSpecialize {
        warps: [warps, copying].iter().map(|count| i64::from(*count)).collect(),
        registers: registers.iter().map(|count| i64::from(*count)).collect(),
    };
    let split = function.create_inst(op.into(), smallvec![], smallvec![consumer, producer], [], location);
    function.blocks[entry].insts = rings.into_iter().chain([split]).chain(ends).chain([last]).collect();
    prune::prune(function);
    name_barriers(function, consumer, warps);
    header.num_warps = warps + copying;
    if by_threads {
        order::remove_needless(module, &stores, [consumer, producer]);
        let function = &mut module.functions[module.entry];
        drop_idle(function, producer);
        prune::prune(function);
    }
    check_producer(module.kernel(), producer, by_threads)
}

/// Returns whether each partition may execute a load. The memory of a volatile load may change
/// between the two executions.
fn is_own_load(op: &Op) -> bool {
    matches!(op, Op::Gpu(GpuOp::Load { volatile: false, cache, .. }) if *cache != CacheModifier::Volatile)
}

/// Returns whether an op accesses a buffer other than a ring, as conversions do. Each partition has
/// its own copy of the buffer.
fn is_in_own_buffer(function: &Function, data: &InstData) -> bool {
    let memory = match data.op {
        Op::Gpu(GpuOp::Alloc { .. }) => data.results[0],
        Op::Gpu(GpuOp::LocalStore {} | GpuOp::LocalLoad { .. } | GpuOp::Dealloc {}) => data.operands[0],
        // tidy: wildcard because conversions consist of no other op
        _ => return false,
    };
    matches!(function.ty(memory), Type::Buffer(buffer) if buffer.slots == 1)
}

/// Removes loops and branches without effects and results. Returns whether the block has an effect.
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

/// Removes the instructions of a block and its regions that `is_kept` rejects.
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

/// Replaces barriers of the block with barriers of the consumer.
fn name_barriers(function: &mut Function, block: Block, warps: u32) {
    let mut barriers = Vec::new();
    function.walk(block, &mut |inst| {
        if matches!(function.insts[inst].op, Op::Tile(ir::Op::Barrier {})) {
            barriers.push(inst);
        }
    });
    for inst in barriers {
        function.insts[inst].op =
            GpuOp::NamedBarrier { barrier: super::barriers::partition_barrier(0), threads: warps * LANES }
                .into();
    }
}

/// Checks that the producer copies and uses no value of the consumer. A producer of one thread may
/// use no tile.
fn check_producer(function: &Function, producer: Block, by_threads: bool) -> Result<(), &'static str> {
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
    let is_independent = |inst: &Inst| {
        let data = &function.insts[*inst];
        let is_tile = |value: &Value| {
            matches!(function.ty(*value), Type::Registers { layout: Some(_), .. } | Type::Pending { .. })
        };
        data.operands.iter().all(|value| known.contains(value))
            && (by_threads || !data.operands.iter().chain(&data.results).any(is_tile))
    };
    let has_fills = inside.iter().any(|inst| is_fill(&function.insts[*inst].op));
    if !has_fills {
        Err("the producer would have no copies")
    } else if inside.iter().all(is_independent) {
        Ok(())
    } else if by_threads {
        Err("copies depend on the results of atomic operations")
    } else {
        Err("copies depend on loaded values, or on values that are computed from tiles")
    }
}
