//! Tests the passes and the GPU path with random kernels. A kernel must leave the same memory on
//! the CPU with and without the passes, and as PTX in the simulator. The simulator must not detect
//! a fault.

use tilewright_base::output::take_printed;
use tilewright_cpu::memory::Region;
use tilewright_fuzz::kernel::{Argument, Kernel, kernel};
use tilewright_fuzz::random::{chosen_seeds, in_parallel};
use tilewright_fuzz::tries_new_inputs;
use tilewright_gpu_ir::GpuTarget;
use tilewright_ir::{Dtype, ElementwiseFn, Module, OPS, Op, print, verify};

/// The memory of a launch: an allocation for each argument, and the byte range of the argument in
/// its allocation.
struct Memory {
    allocations: Vec<Vec<u128>>,
    places: Vec<std::ops::Range<usize>>,
}

impl Memory {
    fn new(arguments: &[Argument]) -> Self {
        let mut memory = Self { allocations: Vec::new(), places: Vec::new() };
        for argument in arguments {
            let (bytes, skew) = match argument {
                Argument::Memory { bytes, skew, .. } => (bytes.clone(), *skew),
                Argument::Addresses => (memory.address(0).to_le_bytes().repeat(4), 0),
                Argument::Number(..) => (Vec::new(), 0),
            };
            let mut allocation = vec![0; (skew + bytes.len()).div_ceil(16)];
            let place = skew..skew + bytes.len();
            as_bytes(&mut allocation)[place.clone()].copy_from_slice(&bytes);
            memory.allocations.push(allocation);
            memory.places.push(place);
        }
        memory
    }

    fn address(&self, argument: usize) -> u64 {
        (self.allocations[argument].as_ptr().addr() + self.places[argument].start) as u64
    }

    fn regions(&mut self) -> Vec<Region<'_>> {
        let parts = self.allocations.iter_mut().zip(&self.places);
        parts.map(|(allocation, place)| Region::of(&mut as_bytes(allocation)[place.clone()])).collect()
    }

    /// Returns the content of the arguments. Omits addresses, because they differ between launches.
    fn contents(mut self, arguments: &[Argument]) -> Vec<Vec<u8>> {
        let parts = self.allocations.iter_mut().zip(&self.places).zip(arguments);
        let parts = parts.filter(|(_, argument)| !matches!(argument, Argument::Addresses));
        parts.map(|((allocation, place), _)| as_bytes(allocation)[place.clone()].to_vec()).collect()
    }
}

fn as_bytes(words: &mut [u128]) -> &mut [u8] {
    bytemuck::cast_slice_mut(words)
}

/// Returns the sorted lines of a text, because devices print in different orders.
fn sorted_lines(text: &str) -> Vec<u8> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n").into_bytes()
}

/// Returns the memory and the output after a run of the kernel on the CPU.
fn on_cpu(kernel: &Kernel, module: &Module) -> Vec<Vec<u8>> {
    let mut memory = Memory::new(&kernel.arguments);
    let regions = memory.regions();
    let program = tilewright_compiler::cpu_program(module).expect("it can be lowered");
    let bound = kernel.arguments.iter().zip(regions);
    let arguments: Vec<tilewright_cpu::Argument<'_>> = bound
        .map(|(argument, region)| match argument {
            Argument::Number(bits, _) => tilewright_cpu::Argument::Scalar(*bits),
            Argument::Memory { .. } | Argument::Addresses => {
                tilewright_cpu::Argument::Pointer { address: region.address(), region }
            }
        })
        .collect();
    let launch = tilewright_cpu::Launch {
        grid: [kernel.programs, 1, 1],
        arguments: &arguments,
        foreign: &[],
        threads: 1,
        interrupt: tilewright_cpu::Interrupt::Never,
        padded: None,
        machine_code: true,
    };
    let (result, printed) = take_printed(|| program.launch(&launch));
    result.unwrap_or_else(|error| panic!("{error:#?}\n{}", print(module, false)));
    let mut found = memory.contents(&kernel.arguments);
    found.push(sorted_lines(&printed));
    found
}

fn optimized(kernel: &Kernel) -> Module {
    let mut module = kernel.module.clone();
    tilewright_opt::optimize(&mut module, &tilewright_opt::Options::default(), &mut |_, _| {});
    verify(&module).unwrap_or_else(|error| panic!("{error}\n{}", print(&module, false)));
    module
}

/// Returns the memory and the output after a run of the kernel in the simulator. If the GPU path
/// rejects the kernel, returns its error.
fn in_simulator(
    kernel: &Kernel,
    module: &Module,
    target: &str,
    warps: u32,
    stages: u32,
) -> Result<Vec<Vec<u8>>, String> {
    let program =
        tilewright_gpu::compile(module, GpuTarget::named(target).expect("it is one"), warps, stages)
            .map_err(|diagnostic| format!("{diagnostic:?}"))?;
    let ptx = tilewright_ptx::lower(&program).map_err(|diagnostic| format!("{diagnostic:?}"))?;
    let ptx = tilewright_ptx::isa::print(&ptx);
    let device = tilewright_sim::SimTarget::new(target).expect("the simulator has it");
    let loaded =
        tilewright_sim::Simulator::new(device).load(&ptx).unwrap_or_else(|error| panic!("{error}\n{ptx}"));
    let mut memory = Memory::new(&kernel.arguments);
    let regions = memory.regions();
    let mut parameters: Vec<u8> = Vec::new();
    for (argument, region) in kernel.arguments.iter().zip(&regions) {
        let (bits, size) = match argument {
            Argument::Number(bits, dtype) => (*bits, dtype.bytes()),
            Argument::Memory { .. } | Argument::Addresses => (region.address(), 8),
        };
        parameters.resize(parameters.len().next_multiple_of(size), 0);
        parameters.extend(&bits.to_le_bytes()[..size]);
    }
    let grid = [kernel.programs, 1, 1];
    let mut launch = tilewright_sim::Launch::new("k", grid, [warps * 32, 1, 1], &parameters, &regions);
    launch.dynamic_shared_bytes = program.header.shared_bytes;
    let text = || format!("{}\n{ptx}", print(module, false));
    let report =
        loaded.launch(&launch).unwrap_or_else(|fault| panic!("{target}, {warps} warps: {fault}\n{}", text()));
    let mut found = memory.contents(&kernel.arguments);
    found.push(sorted_lines(&report.printed.concat()));
    Ok(found)
}

/// Returns the position of the first different byte: the index of its content and its offset.
/// Contents are in the order of the arguments, without addresses. The printed text is the last
/// content.
fn difference(expected: &[Vec<u8>], found: &[Vec<u8>]) -> Option<(usize, usize)> {
    let mut arguments = expected.iter().zip(found).enumerate();
    arguments.find_map(|(argument, (a, b))| {
        let shorter = (a.len() != b.len()).then_some(a.len().min(b.len()));
        Some((argument, a.iter().zip(b).position(|(a, b)| a != b).or(shorter)?))
    })
}

fn check(seed: u64) {
    let kernel = kernel(seed);
    let text = || format!("seed {seed}\n{}", print(&kernel.module, false));
    verify(&kernel.module).unwrap_or_else(|error| panic!("{error}\n{}", text()));
    let expected = on_cpu(&kernel, &kernel.module);
    let module = optimized(&kernel);
    let found = on_cpu(&kernel, &module);
    assert_eq!(difference(&expected, &found), None, "after the passes, {}", text());
    for (target, warps, stages) in [
        ("sm_75", 1 << (seed / 4 % 4), 2),
        ("sm_80", 1 << (seed % 4), 1 + (seed / 16 % 4) as u32),
        ("sm_90a", 4, 3),
    ] {
        let Ok(found) = in_simulator(&kernel, &module, target, warps, stages) else { continue };
        // Results of approximate functions may differ between devices within their accuracy.
        assert_eq!(
            difference(&expected, &found).filter(|_| kernel.is_exact),
            None,
            "{target}, {warps} warps, {stages} stages, {}",
            text()
        );
    }
}

/// `TILEWRIGHT_SEEDS=7..9` replaces the default seeds.
#[test]
fn kernels_agree_on_the_cpu_and_in_the_simulator() {
    match chosen_seeds() {
        Some(seeds) => seeds.for_each(check),
        None if tries_new_inputs() => bolero::check!().with_type::<u64>().for_each(|&seed| check(seed)),
        None => in_parallel(0..100, check),
    }
}

#[test]
fn few_kernels_are_rejected() {
    let rejected: Vec<String> = (0..100)
        .map(kernel)
        .filter_map(|kernel| in_simulator(&kernel, &optimized(&kernel), "sm_80", 4, 3).err())
        .collect();
    assert!(rejected.len() <= 5, "{} of 100 kernels are rejected: {rejected:#?}", rejected.len());
}

#[test]
fn kernels_cover_every_op_function_and_element_type() {
    let (mut ops, mut functions, mut dtypes) = (Vec::new(), Vec::new(), Vec::new());
    for kernel in (0..400).map(kernel) {
        for function in kernel.module.functions.values() {
            ops.extend(function.insts.values().map(|inst| inst.op.info().name));
            functions.extend(function.insts.values().filter_map(|inst| match inst.op {
                Op::Elementwise { function } => Some(function),
                // tidy: wildcard because only these have an elementwise function.
                _ => None,
            }));
            dtypes.extend(function.values.values().filter_map(|value| value.ty.dtype()));
        }
    }
    // Random kernels do not contain these ops.
    ops.extend(["set_layout", "device", "start_workers", "join_workers", "dot_scaled"]);
    let missing: Vec<_> = OPS.iter().map(|op| op.name).filter(|name| !ops.contains(name)).collect();
    assert!(missing.is_empty(), "no kernel has {missing:?}");
    let missing: Vec<_> = ElementwiseFn::ALL.iter().filter(|f| !functions.contains(f)).collect();
    assert!(missing.is_empty(), "no kernel computes {missing:?}");
    let missing: Vec<_> = Dtype::ALL.iter().filter(|dtype| !dtypes.contains(dtype)).collect();
    assert!(missing.is_empty(), "no kernel has elements of {missing:?}");
}
