//! Describes the shared memory of a GPU program: buffers, `mbarrier`s, and the ops that use them.
//!
//! A page shows who fills and reads each buffer, who signals each barrier, and who waits for it.

use serde_json::{Value as Json, json};
use tilewright_gpu_ir::{self as gpu_ir, GpuOp, Op, Type};
use tilewright_ir::{self as ir, Block, Inst, MemoryAccess, Value};

/// The size of an `mbarrier` in bytes.
const MBARRIER_BYTES: u32 = 8;

/// An op that uses a buffer or a barrier.
struct Use {
    root: Value,
    action: &'static str,
    op: &'static str,
    partition: usize,
    line: u32,
    /// The slot of a barrier: its index, or the name of the value.
    slot: Option<String>,
    /// The arrivals or the bytes, in words.
    amount: String,
}

struct SharedMemory<'a> {
    program: &'a gpu_ir::Module,
    function: &'a gpu_ir::Function,
    uses: Vec<Use>,
    /// The warps of each partition, and whether it has code. Empty without partitions.
    partitions: Vec<(u32, bool)>,
}

/// Returns the buffers and barriers in shared or tensor memory, each with its uses, and the
/// partitions of the warps, as JSON for a page.
pub(crate) fn describe(program: &gpu_ir::Module) -> (Json, Json) {
    let function = program.kernel();
    let mut found = SharedMemory { program, function, uses: Vec::new(), partitions: Vec::new() };
    found.block(function.entry, 0);
    let mut memory = Vec::new();
    function.walk(function.entry, &mut |inst| memory.extend(found.allocation(inst)));
    let mut first = 0;
    let partition = |(index, &(warps, _)): (usize, &(u32, bool))| {
        let part = json!({ "name": found.partition_name(index), "first": first, "warps": warps });
        first += warps;
        part
    };
    let partitions: Vec<Json> = found.partitions.iter().enumerate().map(partition).collect();
    (memory.into(), partitions.into())
}

/// An `mbarrier` of a program: its name, and the ops that arrive there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BarrierUsers {
    /// The name in the kernel, such as `full[1]`.
    pub name: String,
    /// The arrivals and copies, such as `mbarrier_expect in line 44 (worker 1)`.
    pub signals: Vec<String>,
}

/// Returns the users of the `mbarrier` at an offset in shared memory.
pub(crate) fn barrier_users(program: &gpu_ir::Module, offset: u32) -> Option<BarrierUsers> {
    let function = program.kernel();
    let mut found = SharedMemory { program, function, uses: Vec::new(), partitions: Vec::new() };
    found.block(function.entry, 0);
    let mut barrier = None;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if let Op::Gpu(GpuOp::Alloc { offset: gpu_ir::Deferred(Some(first)) }) = &data.op
            && let Type::Mbarrier { slots } = function.ty(data.results[0])
            && (*first..first + slots * MBARRIER_BYTES).contains(&offset)
        {
            barrier = Some((data.results[0], (offset - first) / MBARRIER_BYTES, *slots));
        }
    });
    let (root, slot, slots) = barrier?;
    let name = function.values[root].name.as_deref().unwrap_or("mbarrier");
    let name = if slots == 1 { name.to_owned() } else { format!("{name}[{slot}]") };
    let is_meant = |found: &&Use| {
        let other = found.slot.as_ref().and_then(|slot| slot.parse::<u32>().ok());
        found.root == root && other.is_none_or(|other| other == slot)
    };
    let is_signal = |found: &&Use| matches!(found.action, "arrive" | "bytes");
    let signals = found.uses.iter().filter(is_meant).filter(is_signal).map(|signal| {
        let place = found.partition_name(signal.partition).map_or(String::new(), |name| format!(" ({name})"));
        format!("{} in line {}{place}", signal.op, signal.line)
    });
    let mut signals: Vec<String> = signals.collect();
    signals.dedup();
    Some(BarrierUsers { name, signals })
}

/// Returns the name of the partition that has a warp. Returns `None` without partitions.
pub(crate) fn partition_of(program: &gpu_ir::Module, warp: u32) -> Option<String> {
    let function = program.kernel();
    let mut found = SharedMemory { program, function, uses: Vec::new(), partitions: Vec::new() };
    found.block(function.entry, 0);
    let mut end = 0;
    let index = found.partitions.iter().position(|&(warps, _)| {
        end += warps;
        warp < end
    })?;
    found.partition_name(index)
}

impl SharedMemory<'_> {
    /// Returns the name of a partition. Returns `None` without partitions.
    fn partition_name(&self, index: usize) -> Option<String> {
        Some(match self.partitions.get(index)? {
            _ if index == 0 => "default".to_owned(),
            (_, true) => format!("worker {index}"),
            (_, false) => "idle".to_owned(),
        })
    }

    fn block(&mut self, block: Block, partition: usize) {
        for &inst in &self.function.blocks[block].insts {
            self.inst(inst, partition);
            let data = &self.function.insts[inst];
            let warps = match &data.op {
                Op::Gpu(GpuOp::WarpSpecialize { warps, .. }) => Some(warps),
                // tidy: wildcard because no other op has partitions
                _ => None,
            };
            if let Some(warps) = warps {
                // The compiler adds partitions without code, so that each has whole warpgroups.
                let has_code = |region: &Block| self.function.blocks[*region].insts.len() > 1;
                let counts = warps.iter().map(|&count| count as u32);
                self.partitions = counts.zip(data.regions.iter().map(has_code)).collect();
            }
            for (index, &region) in data.regions.iter().enumerate() {
                self.block(region, if warps.is_some() { index } else { partition });
            }
        }
    }

    fn inst(&mut self, inst: Inst, partition: usize) {
        let data = &self.function.insts[inst];
        let Op::Gpu(op) = &data.op else { return };
        let writes = matches!(op.info().memory, MemoryAccess::WritesShared | MemoryAccess::FillsShared);
        for (index, &operand) in data.operands.iter().enumerate() {
            let is_barrier = match self.function.ty(operand) {
                Type::Mbarrier { .. } => true,
                Type::Buffer(_) | Type::TensorMemory(_) => false,
                Type::Ring(_)
                | Type::Empty(_)
                | Type::Full(_)
                | Type::Registers { .. }
                | Type::Pending { .. } => continue,
            };
            let Some(action) =
                (if is_barrier { barrier_action(op) } else { buffer_action(op, writes && index == 0) })
            else {
                continue;
            };
            let slot =
                is_barrier.then(|| data.operands.get(index + 1).map(|&slot| self.text(slot))).flatten();
            let root = self.root(operand);
            let (op, line, amount) = (op.info().name, self.line(inst), amount(op));
            self.uses.push(Use { root, action, op, partition, line, slot, amount });
        }
    }

    /// Returns the allocation that contains a slot or a view.
    fn root(&self, value: Value) -> Value {
        let Some(inst) = self.function.defining_inst(value) else { return value };
        let data = &self.function.insts[inst];
        match &data.op {
            Op::Gpu(GpuOp::Slot {} | GpuOp::View {}) => self.root(data.operands[0]),
            // tidy: wildcard because other ops return no part of a buffer
            _ => value,
        }
    }

    /// Returns a scalar as text: its value if it is constant, or its name.
    fn text(&self, value: Value) -> String {
        let constant = self.function.defining_inst(value).and_then(|inst| {
            match &self.function.insts[inst].op {
                Op::Tile(ir::Op::Constant { value }) => Some((value.bits as u32).cast_signed().to_string()),
                // tidy: wildcard because other ops have no known value
                _ => None,
            }
        });
        let name = || self.function.values[value].name.as_deref().unwrap_or("…").to_owned();
        constant.unwrap_or_else(name)
    }

    /// Returns the line of an op, or 0 if it is unknown.
    fn line(&self, inst: Inst) -> u32 {
        let location = self.function.insts[inst].location.expand();
        location.map_or(0, |location| {
            let span = self.function.locations[location].span;
            self.program.sources.file(span.file).line_column(span.start).0
        })
    }

    /// Describes an allocation, or returns `None` for another op.
    fn allocation(&self, inst: Inst) -> Option<Json> {
        let data = &self.function.insts[inst];
        let Op::Gpu(GpuOp::Alloc { offset }) = &data.op else { return None };
        let value = data.results[0];
        let ty = self.function.ty(value);
        let (kind, slots, bytes) = match ty {
            Type::Mbarrier { slots } => ("mbarrier", *slots, MBARRIER_BYTES),
            Type::Buffer(buffer) | Type::Ring(buffer) | Type::Empty(buffer) | Type::Full(buffer) => {
                ("buffer", buffer.slots, buffer.slot_bytes())
            }
            Type::TensorMemory(_) => ("tensor memory", 1, 0),
            Type::Registers { .. } | Type::Pending { .. } => return None,
        };
        let uses: Vec<Json> = self.uses.iter().filter(|found| found.root == value).map(Use::json).collect();
        Some(json!({
            "name": self.function.values[value].name.as_deref().unwrap_or(""),
            "kind": kind,
            "offset": offset.0,
            "slots": slots,
            "slotBytes": bytes,
            "tile": ty.as_memory().map(|buffer| buffer.tile().to_string()),
            "layout": ty.layout().map(|layout| layout.to_string()),
            "line": self.line(inst),
            "uses": uses,
        }))
    }
}

impl Use {
    fn json(&self) -> Json {
        let Self { action, op, partition, line, slot, amount, .. } = self;
        json!({
            "action": action, "op": op, "partition": partition, "line": line, "slot": slot,
            "amount": amount,
        })
    }
}

/// Returns how an op uses an `mbarrier`.
fn barrier_action(op: &GpuOp) -> Option<&'static str> {
    Some(match op {
        GpuOp::MbarrierInit { .. } => "init",
        GpuOp::MbarrierWait {} => "wait",
        GpuOp::MbarrierInvalidate {} | GpuOp::Dealloc {} => return None,
        GpuOp::TensorLoad {} | GpuOp::TensorLoadTo { .. } | GpuOp::ClcTryCancel { .. } => "bytes",
        // tidy: wildcard because the other ops with a barrier arrive there
        _ => "arrive",
    })
}

/// Returns how an op uses a buffer.
fn buffer_action(op: &GpuOp, writes: bool) -> Option<&'static str> {
    Some(match op {
        GpuOp::Slot {} | GpuOp::View {} | GpuOp::Dealloc {} | GpuOp::Alloc { .. } => return None,
        GpuOp::TmemStore {} | GpuOp::LocalStore {} => "write",
        // tidy: wildcard because the table of ops says which other ops write shared memory
        _ if writes => "write",
        // tidy: wildcard because the other ops only read
        _ => "read",
    })
}

/// Returns the arrivals or the bytes that an op states.
fn amount(op: &GpuOp) -> String {
    let arrivals = |count: u32| if count == 1 { "1 arrival".to_owned() } else { format!("{count} arrivals") };
    match op {
        GpuOp::MbarrierInit { arrivals: count } | GpuOp::MbarrierArriveTimes { arrivals: count } => {
            arrivals(*count)
        }
        GpuOp::MbarrierExpect { bytes } => format!("1 arrival, expects {bytes} bytes"),
        GpuOp::MbarrierArriveAt { arrivals: count, bytes: 0 } => arrivals(*count),
        GpuOp::MbarrierArriveAt { arrivals: count, bytes } => {
            format!("{}, expects {bytes} bytes", arrivals(*count))
        }
        GpuOp::MbarrierArrive {} => "1 arrival of each warp".into(),
        GpuOp::MbarrierArriveCopies {} => "1 arrival of each thread, after its copies".into(),
        // tidy: wildcard because other ops state no arrivals and no bytes
        _ => String::new(),
    }
}
