//! A simple model of what a launch would take on a GPU, by what the simulator has counted: how long each part of a
//! multiprocessor would work if it had to do its share alone. The longest is what bounds the kernel, and the roofline.
//!
//! It knows no latency, no cache but the size of the tensors, and takes work to be spread evenly over multiprocessors that have
//! blocks. So it is a bound from below, and good for saying *what* limits a kernel, not for comparing microseconds.

use crate::counters::StepCounters;
use crate::decode::Class;
use crate::report::{Instruction, Report};

/// A GPU by name: what its data sheet says. Clocks are the boost clocks, rates those of dense products of fp16 with sums in fp32.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GpuModel {
    /// The name, as programs are told it.
    pub name: &'static str,
    /// The architecture, as PTX has it.
    pub architecture: &'static str,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Clock, in GHz.
    pub clock: f64,
    /// Bandwidth of its memory, in GB/s.
    pub bandwidth: f64,
    /// Operations of the tensor cores of a multiprocessor a clock: a multiplication and an addition are two.
    pub tensor_rate: f64,
    /// Operations on fp32 of a multiprocessor a clock, a fused product and sum being two.
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

/// The GPUs that are known. The first one of an architecture stands for it.
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
    /// The one with a name, whatever its case; none if there is no such.
    pub fn named(name: &str) -> Option<Self> {
        GPUS.iter().find(|gpu| gpu.name.eq_ignore_ascii_case(name)).copied()
    }

    /// The one that stands for an architecture.
    pub fn of(architecture: &str) -> Option<Self> {
        GPUS.iter().find(|gpu| gpu.architecture == architecture).copied()
    }
}

/// What may keep a kernel, or a line of it, busy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bound {
    /// Moving sectors between the multiprocessor and the caches.
    Sectors,
    /// Moving the bytes of the tensors between the caches and memory.
    Memory,
    /// Passes through shared memory.
    Shared,
    /// Bank conflicts: the passes beyond those that the same accesses need.
    Conflicts,
    /// The tensor cores.
    Tensor,
    /// Issuing instructions.
    Issue,
    /// Arithmetic in fp32 and integers.
    Arithmetic,
    /// The special function units, and arithmetic in fp64.
    Function,
}

impl Bound {
    /// Its name.
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

/// Bytes that a multiprocessor takes from the caches behind it in a clock.
const SECTOR_BYTES_A_CLOCK: f64 = 64.0;
const SECTOR_BYTES: f64 = 32.0;
/// Warp instructions that its four schedulers issue in a clock.
const ISSUED_A_CLOCK: f64 = 4.0;
/// Lanes of the special function units, and of fp64 on a GPU that has few.
const FUNCTION_LANES: f64 = 16.0;

/// The clocks that the parts of one multiprocessor work.
#[derive(Clone, PartialEq, Debug)]
pub struct Busy(pub Vec<(Bound, f64)>);

impl Busy {
    /// What works longest.
    pub fn longest(&self) -> (Bound, f64) {
        let first = (Bound::Issue, 0.0);
        self.0.iter().copied().fold(first, |most, next| if next.1 > most.1 { next } else { most })
    }
}

/// What a launch would take.
#[derive(Clone, PartialEq, Debug)]
pub struct Estimate {
    /// The GPU.
    pub gpu: GpuModel,
    /// The parts of a multiprocessor.
    pub busy: Busy,
    /// Multiprocessors that have blocks.
    pub active: u32,
    /// Nanoseconds.
    pub nanoseconds: f64,
    /// Operations on floats: of the tensor cores, and of fp32 and fp64 arithmetic.
    pub operations: f64,
    /// Bytes between the caches and memory.
    pub memory_bytes: f64,
}

impl Estimate {
    /// Of so many launches counted together; `tensor_bytes` is what the tensors of one launch hold: memory moves no more than that
    /// once each way, the rest comes from caches.
    pub fn new(report: &Report, launches: u64, tensor_bytes: u64, gpu: GpuModel) -> Self {
        let total = report.total();
        let launches = launches.max(1);
        let active = (report.blocks / launches).clamp(1, gpu.multiprocessors.into()) as u32;
        let mut busy = busy(report.instructions.iter(), gpu, f64::from(active));
        let sector_bytes = SECTOR_BYTES * total.sectors as f64;
        let memory_bytes = sector_bytes.min(tensor_bytes as f64 * launches as f64);
        // One multiprocessor alone does not reach the bandwidth of the whole GPU.
        let reachable = gpu.bandwidth.min(f64::from(active) * SECTOR_BYTES_A_CLOCK * gpu.clock);
        busy.0.push((Bound::Memory, memory_bytes / reachable * gpu.clock));
        let nanoseconds = busy.longest().1 / gpu.clock;
        Self { gpu, busy, active, nanoseconds, operations: operations(report), memory_bytes }
    }

    /// Operations for each byte of memory.
    pub fn intensity(&self) -> f64 {
        if self.memory_bytes > 0.0 { self.operations / self.memory_bytes } else { 0.0 }
    }

    /// What the roofline allows at this intensity, in Gflop/s; with the tensor cores or without.
    pub fn roof(&self, has_products: bool) -> f64 {
        let rate = if has_products { self.gpu.tensor_rate } else { self.gpu.single_rate };
        let peak = rate * f64::from(self.gpu.multiprocessors) * self.gpu.clock;
        peak.min(self.gpu.bandwidth * self.intensity())
    }
}

/// The clocks that each part of one of `active` multiprocessors works for some instructions.
pub fn busy<'a>(instructions: impl Iterator<Item = &'a Instruction>, gpu: GpuModel, active: f64) -> Busy {
    let mut sums = StepCounters::default();
    let (mut arithmetic, mut function, mut tensor) = (0.0, 0.0, 0.0);
    for instruction in instructions {
        let counters = &instruction.counters;
        sums.add(counters);
        let warps = counters.executions as f64;
        match instruction.class {
            Class::Single | Class::Half | Class::Integer | Class::Compare | Class::Move => {
                // A fused product and sum counts as one instruction of two operations.
                arithmetic += warps * 64.0 / gpu.single_rate;
            }
            Class::Function | Class::Double | Class::Convert => function += warps * 32.0 / FUNCTION_LANES,
            // tidy: wildcard because the others are counted by what they move
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

/// How much longer than for fp16 the tensor cores take for an operation, by the types in the opcode.
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

/// Operations on floats of all instructions.
fn operations(report: &Report) -> f64 {
    let of = |instruction: &Instruction| {
        let counters = &instruction.counters;
        let is_fused = instruction.opcode.starts_with("fma");
        let scalar = match instruction.class {
            Class::Single | Class::Half | Class::Double | Class::Function => counters.lanes,
            // tidy: wildcard because nothing else computes floats
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
    fn a_copy_is_bound_by_memory_and_a_product_by_tensor_cores() {
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
