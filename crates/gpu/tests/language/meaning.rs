//! Checks that GPU programs compute the same as their kernels.

use tilewright_cpu::memory::Region;
use tilewright_cpu::{Argument, Interrupt, Launch, Program};
use tilewright_ir::{Dtype, Module, Type, Value};

use crate::check::{check, check_lowered};
use crate::common::evaluate::{Evaluator, Memory, Tile};
use crate::common::generate::{self, EVERYTHING, INDICES, program};
use crate::common::{Random, number, seeds};
use crate::erase::{erase, erase_if_simple};
use crate::{module, stages, text};

/// Returns an address with divisibility 16.
fn address(pointer: usize) -> u64 {
    (pointer as u64 + 1) * 65536 + 16
}

/// Runs a program, and returns its memory and whether an operation overflowed.
///
/// Returns `None` if it runs too long.
pub fn evaluate(
    module: &Module,
    seed: u64,
    observe: &mut dyn FnMut(Value, &Type, &Tile),
) -> Option<(Memory, bool)> {
    let mut random = Random(seed ^ 0x5555);
    let function = module.kernel();
    let parameters = function.blocks[function.entry].parameters.iter().zip(&function.parameters);
    let arguments: Vec<u64> = parameters
        .enumerate()
        .map(|(index, (value, parameter))| {
            let Some(dtype) = function.ty(*value).dtype() else { return address(index) };
            let small = random.pick(&[0, 1, 2, 3, 5, 7, 16, 33, 100, -1, -6, 1 << 20]);
            number::wrap(dtype, i128::from(small) * i128::from(parameter.divisibility))
        })
        .collect();
    let programs = random.pick(&[1, 2, 7, 1000]);
    let program = random.bits() % programs;
    let area = |(index, dtype): (usize, &Dtype)| {
        let byte = |_| if random.chance(2) { 0 } else { random.bits() as u8 };
        (address(index), (0..generate::ELEMENTS * dtype.bytes() as u64).map(byte).collect())
    };
    let memory = Memory(generate::POINTERS.iter().enumerate().map(area).collect());
    let mut evaluator = Evaluator::new(function, memory, [program, programs], observe);
    // Rematerialized values also take steps.
    evaluator.steps_left *= 20;
    evaluator.run(&arguments).ok()?;
    Some((evaluator.memory, evaluator.overflowed))
}

#[test]
fn random_programs_compute_the_same() {
    let (mut compared, mut lowered, mut conversions) = (0, 0, 0);
    for seed in seeds(2000) {
        for style in [EVERYTHING, INDICES] {
            let module = program(seed, style);
            let stages = stages(&module, "sm_80", [1, 2, 4, 8][(seed % 4) as usize]);
            let (first, last) = (&stages[0], &stages[stages.len() - 1]);
            check(first);
            check_lowered(last);
            conversions += text(first).matches("= convert_layout").count();
            // The optimizer inlines the calls of the original.
            let mut before = module.clone();
            tilewright_opt::optimize(&mut before, &tilewright_opt::Options::default(), &mut |_, _| {});
            let Some((original, _)) = evaluate(&before, seed, &mut |_, _, _| {}) else { continue };
            let erased = [Some(erase(first)), erase_if_simple(last)];
            for (stage, erased) in erased.into_iter().enumerate() {
                let Some(erased) = erased else { continue };
                let Some((after, _)) = evaluate(&erased.module, seed, &mut |_, _, _| {}) else { continue };
                assert!(original.0 == after.0, "seed {seed}:\n{}", text([first, last][stage]));
                compared += 1;
                lowered += stage;
            }
        }
    }
    assert!(
        compared - lowered > 200 && lowered > 200 && conversions > 30,
        "{compared} programs, {lowered} of them after all passes, {conversions} conversions"
    );
}

/// Returns random floats between -1 and 1, or integers of any size.
fn random_elements(dtype: Dtype, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let value = random.below(2001) as f64 / 1000.0 - 1.0;
        let bits = if dtype.is_int() { random.bits() } else { number::round(dtype, value) }.to_le_bytes();
        bytes.extend_from_slice(&bits[..dtype.bytes()]);
    }
    bytes
}

/// Runs a kernel on the CPU executor, and returns its memory.
///
/// Each pointer gets `count` random elements. `scalars` has the other arguments.
pub fn execute(module: &Module, grid: [u32; 3], count: usize, scalars: &[u64]) -> Vec<Vec<u8>> {
    let function = module.kernel();
    let mut random = Random(7);
    let mut buffers = Vec::new();
    for value in &function.blocks[function.entry].parameters {
        if let Some(pointee) = function.ty(*value).element.pointee() {
            buffers.push(random_elements(pointee, count, &mut random));
        }
    }
    let regions: Vec<Region<'_>> = buffers.iter_mut().map(|bytes| Region::of(bytes)).collect();
    let pointers =
        regions.iter().map(|region| Argument::Pointer { address: region.address(), region: *region });
    let arguments: Vec<Argument<'_>> =
        pointers.chain(scalars.iter().map(|bits| Argument::Scalar(*bits))).collect();
    let launch = Launch {
        grid,
        arguments: &arguments,
        foreign: &[],
        threads: 1,
        interrupt: Interrupt::Never,
        padded: None,
        machine_code: true,
    };
    let program = Program::new(module).expect("the executor accepts the kernel");
    program.launch(&launch).unwrap_or_else(|error| panic!("{error:#?}"));
    buffers
}

#[test]
fn known_kernels_compute_the_same_on_the_executor() {
    let eps = u64::from(1e-5_f32.to_bits());
    let scale = u64::from(0.125_f32.to_bits());
    let launches: [(&str, [u32; 3], usize, &[u64]); 6] = [
        (include_str!("kernels/add.ir"), [2, 1, 1], 1500, &[1488]),
        (include_str!("kernels/softmax.ir"), [3, 1, 1], 3 * 781, &[781, 781]),
        (include_str!("kernels/layer_norm.ir"), [2, 1, 1], 2 * 1008, &[1008, 1008, eps]),
        (include_str!("kernels/matmul.ir"), [2, 2, 1], 160 * 160, &[144, 160, 80, 80, 160, 160]),
        (include_str!("kernels/attention.ir"), [2, 1, 1], 128 * 64, &[0, 64, 128, scale]),
        (include_str!("kernels/attention_fp16.ir"), [2, 1, 1], 128 * 64, &[0, 64, 128, scale]),
    ];
    for (source, grid, count, scalars) in launches {
        let before = module(source);
        let stages = stages(&before, "sm_80", 4);
        let before = execute(&before, grid, count, scalars);
        for program in [&stages[0], &stages[stages.len() - 1]] {
            let Some(erased) = erase_if_simple(program) else { continue };
            let after = execute(&erased.module, grid, count, scalars);
            assert!(before == after, "{}", text(program));
        }
    }
}
