//! Bounds the time of a launch on a GPU by a roofline model. For each unit of a multiprocessor, the
//! model computes the time of its work. The longest time bounds the kernel. The model has no
//! latencies. It assumes that each tensor moves at most once from or to memory, and that the
//! multiprocessors do equal work. Its times are lower bounds that show the limiting resource, not
//! predictions.

use crate::counters::StepCounters;
use crate::decode::Class;
use crate::report::{Instruction, Report};

/// A GPU with the numbers of its data sheet. The clock is the boost clock; the tensor rate is that
/// of dense fp16 matrix instructions with fp32 accumulators.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GpuModel {
    /// The name that users write.
    pub name: &'static str,
    /// The architecture as PTX spells it.
    pub architecture: &'static str,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Clock, in GHz.
    pub clock: f64,
    /// Memory bandwidth, in GB/s.
    pub bandwidth: f64,
    /// Tensor core operations of a multiprocessor per clock; a multiply-add counts as two.
    pub tensor_rate: f64,
    /// fp32 operations of a multiprocessor per clock; a fused multiply-add counts as two.
    pub single_rate: f64,
}

const fn gpu(
    (name, architecture): (&'static str, &'static str),
    multiprocessors: u32,
    (clock, bandwidth): (f64, f64),
    (tensor_rate, single_rate): (f64, f64),
) -> GpuModel {
    GpuModel { name, architecture, multiprocessors, clock, bandwidth, tensor_rate, single_rate }
}

/// The known GPUs. The first one of an architecture is its default.
pub const GPUS: &[GpuModel] = &[
    gpu(("T4", "sm_75"), 40, (1.59, 320.0), (1024.0, 128.0)),
    gpu(("A100", "sm_80"), 108, (1.41, 2039.0), (2048.0, 128.0)),
    gpu(("A100-40GB", "sm_80"), 108, (1.41, 1555.0), (2048.0, 128.0)),
    gpu(("RTX3090", "sm_86"), 82, (1.695, 936.0), (512.0, 256.0)),
    gpu(("A10", "sm_86"), 72, (1.695, 600.0), (1024.0, 256.0)),
    gpu(("Orin", "sm_87"), 16, (1.3, 204.8), (1024.0, 256.0)),
    gpu(("L40S", "sm_89"), 142, (2.52, 864.0), (1024.0, 256.0)),
    gpu(("L4", "sm_89"), 58, (2.04, 300.0), (1024.0, 256.0)),
    gpu(("RTX4090", "sm_89"), 128, (2.52, 1008.0), (512.0, 256.0)),
    gpu(("H100", "sm_90a"), 132, (1.83, 3350.0), (4096.0, 256.0)),
    gpu(("H200", "sm_90a"), 132, (1.83, 4800.0), (4096.0, 256.0)),
    gpu(("B200", "sm_100"), 148, (1.85, 8000.0), (8192.0, 256.0)),
    gpu(("RTX5090", "sm_120"), 170, (2.41, 1792.0), (512.0, 256.0)),
];

impl GpuModel {
    /// Returns the GPU with a name, ignoring case, or `None`.
    pub fn named(name: &str) -> Option<Self> {
        GPUS.iter().find(|gpu| gpu.name.eq_ignore_ascii_case(name)).copied()
    }

    /// Returns the default GPU of an architecture.
    pub fn of(architecture: &str) -> Option<Self> {
        GPUS.iter().find(|gpu| gpu.architecture == architecture).copied()
    }
}

/// The resource that limits a kernel, or a line of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bound {
    /// Moving sectors between the multiprocessor and the caches.
    Sectors,
    /// Moving the tensors' bytes between the caches and memory.
    Memory,
    /// Shared-memory wavefronts, without the additional wavefronts of bank conflicts.
    Shared,
    /// Bank conflicts: the wavefronts in excess of those without conflicts.
    Conflicts,
    /// The tensor cores.
    Tensor,
    /// Issuing instructions.
    Issue,
    /// Arithmetic in fp32, fp16 and integers, comparisons, and moves.
    Arithmetic,
    /// Special functions, conversions, and arithmetic in fp64.
    Function,
}

impl Bound {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sectors => "sectors",
            Self::Memory => "memory",
            Self::Shared => "shared memory",
            Self::Conflicts => "bank conflicts",
            Self::Tensor => "tensor cores",
            Self::Issue => "issue",
            Self::Arithmetic => "arithmetic",
            Self::Function => "special functions",
        }
    }
}

/// The bytes that a multiprocessor receives from L2 per clock.
const SECTOR_BYTES_A_CLOCK: f64 = 64.0;
const SECTOR_BYTES: f64 = 32.0;
/// The warp instructions that the four schedulers of a multiprocessor issue per clock.
const ISSUED_A_CLOCK: f64 = 4.0;
/// The lanes per clock of the special function units, and of conversions and fp64.
const FUNCTION_LANES: f64 = 16.0;

/// The number of clocks for which each unit of one multiprocessor is busy.
#[derive(Clone, PartialEq, Debug)]
pub struct Busy(pub Vec<(Bound, f64)>);

impl Busy {
    /// Returns the unit that is busy longest, with its clocks.
    pub fn longest(&self) -> (Bound, f64) {
        let first = (Bound::Issue, 0.0);
        self.0.iter().copied().fold(first, |most, next| if next.1 > most.1 { next } else { most })
    }
}

/// The estimated time and traffic of a launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Estimate {
    /// The GPU.
    pub gpu: GpuModel,
    /// The busy clocks of a multiprocessor.
    pub busy: Busy,
    /// Multiprocessors that have blocks.
    pub active: u32,
    /// The estimated time.
    pub nanoseconds: f64,
    /// The number of operations of the tensor cores, of floating-point instructions (a fused
    /// multiply-add counts as two) and of special functions.
    pub operations: f64,
    /// Bytes moved between the caches and memory.
    pub memory_bytes: f64,
}

impl Estimate {
    /// Estimates `launches` launches whose counters are in one report. `tensor_bytes` is the size
    /// of the tensors of one launch. At most these bytes move from or to memory; caches serve the
    /// other accesses.
    pub fn new(report: &Report, launches: u64, tensor_bytes: u64, gpu: GpuModel) -> Self {
        let total = report.total();
        let launches = launches.max(1);
        let active = (report.blocks / launches).clamp(1, gpu.multiprocessors.into()) as u32;
        let mut busy = busy(report.instructions.iter(), gpu, f64::from(active));
        let sector_bytes = SECTOR_BYTES * total.sectors as f64;
        let memory_bytes = sector_bytes.min(tensor_bytes as f64 * launches as f64);
        // A single multiprocessor does not reach the bandwidth of the GPU.
        let reachable = gpu.bandwidth.min(f64::from(active) * SECTOR_BYTES_A_CLOCK * gpu.clock);
        busy.0.push((Bound::Memory, memory_bytes / reachable * gpu.clock));
        let nanoseconds = busy.longest().1 / gpu.clock;
        Self { gpu, busy, active, nanoseconds, operations: operations(report), memory_bytes }
    }

    /// Returns the operations per byte of traffic between the caches and memory, or 0 without
    /// traffic.
    pub fn intensity(&self) -> f64 {
        if self.memory_bytes > 0.0 { self.operations / self.memory_bytes } else { 0.0 }
    }

    /// Returns the roofline at the launch's [`Self::intensity`], in Gflop/s, with or without tensor
    /// cores.
    pub fn roof(&self, has_dots: bool) -> f64 {
        let rate = if has_dots { self.gpu.tensor_rate } else { self.gpu.single_rate };
        let peak = rate * f64::from(self.gpu.multiprocessors) * self.gpu.clock;
        peak.min(self.gpu.bandwidth * self.intensity())
    }
}

/// Returns the clocks for which instructions keep each unit of a multiprocessor busy. `active`
/// multiprocessors execute equal shares of the instructions.
pub fn busy<'a>(instructions: impl Iterator<Item = &'a Instruction>, gpu: GpuModel, active: f64) -> Busy {
    let mut sums = StepCounters::default();
    let (mut arithmetic, mut function, mut tensor) = (0.0, 0.0, 0.0);
    for instruction in instructions {
        let counters = &instruction.counters;
        sums.add(counters);
        let warps = counters.executions as f64;
        match instruction.class {
            Class::Single | Class::Half | Class::Integer | Class::Compare | Class::Move => {
                // An fma counts as two operations, so an instruction of 32 lanes is 64 operations.
                arithmetic += warps * 64.0 / gpu.single_rate;
            }
            Class::Function | Class::Double | Class::Convert => function += warps * 32.0 / FUNCTION_LANES,
            // tidy: wildcard because other instructions count only in `sums`, as issued and by
            // their traffic
            _ => {}
        }
        tensor += counters.tensor_operations as f64 * width_of(&instruction.opcode) / gpu.tensor_rate;
    }
    let conflicts = (sums.wavefronts - sums.ideal_wavefronts) as f64;
    let parts = [
        (Bound::Sectors, sums.sectors as f64 * SECTOR_BYTES / SECTOR_BYTES_A_CLOCK),
        (Bound::Shared, sums.ideal_wavefronts as f64),
        (Bound::Conflicts, conflicts),
        (Bound::Tensor, tensor),
        (Bound::Issue, sums.executions as f64 / ISSUED_A_CLOCK),
        (Bound::Arithmetic, arithmetic),
        (Bound::Function, function),
    ];
    Busy(parts.into_iter().map(|(bound, clocks)| (bound, clocks / active)).collect())
}

/// Returns the tensor core time of an operation relative to fp16, by the types in the opcode.
fn width_of(opcode: &str) -> f64 {
    let has = |names: &[&str]| names.iter().any(|name| opcode.contains(name));
    if has(&[".f64"]) {
        16.0
    } else if has(&[".tf32"]) {
        2.0
    } else if has(&[".e4m3", ".e5m2", ".s8", ".u8"]) {
        0.5
    } else {
        1.0
    }
}

/// Returns the operations of all instructions, as [`Estimate::operations`] counts them.
fn operations(report: &Report) -> f64 {
    let of = |instruction: &Instruction| {
        let counters = &instruction.counters;
        let is_fused = instruction.opcode.starts_with("fma");
        let scalar = match instruction.class {
            Class::Single | Class::Half | Class::Double | Class::Function => counters.lanes,
            // tidy: wildcard because lanes of other classes do no floating-point arithmetic
            _ => 0,
        };
        (counters.tensor_operations + scalar * if is_fused { 2 } else { 1 }) as f64
    };
    report.instructions.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Location;

    fn instruction(opcode: &str, class: Class, counters: StepCounters) -> Instruction {
        let location = Location { ptx_line: 1, kernel: None };
        Instruction { location, opcode: opcode.into(), text: String::new(), class, counters }
    }

    fn report(instructions: Vec<Instruction>) -> Report {
        Report {
            kernel: "k".into(),
            blocks: 1000,
            threads_per_block: 128,
            shared_bytes: 0,
            instructions,
            printed: Vec::new(),
        }
    }

    #[test]
    fn names_and_architectures_find_gpus() {
        assert_eq!(GpuModel::named("h200").map(|gpu| gpu.bandwidth), Some(4800.0));
        assert_eq!(GpuModel::named("Voodoo2"), None);
        assert_eq!(GpuModel::of("sm_80").map(|gpu| gpu.name), Some("A100"));
    }

    #[test]
    fn a_copy_is_bound_by_memory_and_a_dot_by_tensor_cores() {
        let gpu = GpuModel::named("A100").unwrap();
        let moved = StepCounters { executions: 1000, sectors: 1 << 20, ..StepCounters::default() };
        let copy = report(vec![instruction("ld.global.v4.b32", Class::GlobalLoad, moved)]);
        let estimate = Estimate::new(&copy, 1, 32 << 20, gpu);
        assert_eq!(estimate.busy.longest().0, Bound::Memory);
        // 32 MiB at 2039 GB/s.
        assert!((estimate.nanoseconds - f64::from(32 << 20) / 2039.0).abs() < 1.0);
        let computed =
            StepCounters { executions: 1000, tensor_operations: 1 << 40, ..StepCounters::default() };
        let product = report(vec![instruction("mma.sync.f16", Class::Tensor, computed)]);
        let estimate = Estimate::new(&product, 1, 1 << 20, gpu);
        assert_eq!(estimate.busy.longest().0, Bound::Tensor);
        // 312 Tflop/s.
        let rate = (1_u64 << 40) as f64 / estimate.nanoseconds / 1000.0;
        assert!((311.0..313.0).contains(&rate), "{rate}");
    }
}
