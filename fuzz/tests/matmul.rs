//! Tests programs that multiply matrices. A program must leave the same memory on the CPU, with and
//! without the passes, and in the simulator. In the simulator, the programs use tensor copies,
//! warpgroup multiplications, pipelines and warp specialization.

mod support;

use support::{Memory, kernel, options};
use tilewright::runtime::{Interrupt, MachineCode};
use tilewright::{Device, Error, Grid};
use tilewright_fuzz::matmul::{Argument, Program, program};
use tilewright_fuzz::random::{chosen_seeds, in_parallel};

/// Returns the memory after a launch. If the device rejects the kernel, returns the error.
fn run(program: &Program, device: Device, is_plain: bool) -> Result<Memory, Error> {
    let kernel = kernel(program).on(device);
    let mut memory = Memory::new(program);
    let values = memory.values(program);
    let handle = kernel.handle(&values, &options(program))?;
    let grid = Grid::new(&program.grid.map(|extent| extent as i128)).expect("it is one");
    let launched = if is_plain {
        let code = tilewright_compiler::cpu_program(&handle.compiled.lowered).expect("it can be lowered");
        handle.launch_program(&code, grid, &values, Interrupt::Never)
    } else {
        handle.launch(grid, &values, Interrupt::Never)
    };
    match launched {
        Err(error @ Error::OutOfResources(_)) => return Err(error),
        launched => launched.unwrap_or_else(|error| panic!("{error}\n{}", text(program))),
    }
    drop(values);
    Ok(memory)
}

/// Returns the launch and the program as text for failure messages.
fn text(program: &Program) -> String {
    let Program { source, arguments, grid, num_warps, num_stages } = program;
    let line = |(name, argument): &(String, Argument)| match argument {
        Argument::Number(number) => format!("{name} = {number}\n"),
        Argument::Memory { dtype, skew, descriptor, bytes } => {
            format!("{name}: {dtype}, {} bytes, skew {skew}, {descriptor:?}\n", bytes.len())
        }
    };
    let lines: String = arguments.iter().map(line).collect();
    format!("grid {grid:?}, {num_warps} warps, {num_stages} stages\n{lines}{source}")
}

/// The simulated GPUs that run each program.
const DEVICES: [Device; 2] = [Device::Sim(90), Device::Sim(80)];

fn check(seed: u64) {
    let program = program(seed);
    let on_cpu = |is_plain: bool| {
        run(&program, Device::Cpu, is_plain)
            .unwrap_or_else(|error| panic!("seed {seed}\n{error}\n{}", text(&program)))
    };
    let expected = on_cpu(true);
    let same = |found: &Memory, device: &str| {
        let differs = expected.0.iter().zip(&found.0).position(|(expected, found)| expected != found);
        let name = differs.map(|argument| &program.arguments[argument].0);
        assert_eq!(name, None, "seed {seed}, {device}\n{}", text(&program));
    };
    same(&on_cpu(false), "cpu");
    for device in DEVICES {
        if let Ok(found) = run(&program, device, false) {
            same(&found, &device.to_string());
        }
    }
}

/// `TILEWRIGHT_SEEDS=7..9` replaces the default seeds.
#[test]
fn programs_agree_on_the_cpu_and_in_the_simulator() {
    match chosen_seeds() {
        Some(seeds) => seeds.for_each(check),
        None if tilewright_fuzz::tries_new_inputs() => {
            bolero::check!().with_type::<u64>().for_each(|&seed| check(seed));
        }
        None => in_parallel(0..10, check),
    }
}

/// Tests that the programs reach these features. Otherwise, the generator would not test the
/// features.
#[test]
fn programs_reach_the_features_of_the_gpu_path() {
    let mut rejected = Vec::new();
    let words = ["wgmma.mma_async", "cp.async.bulk.tensor", "cp.async.cg", "mbarrier.try_wait", "more warps"];
    let mut counts = words.map(|word| (word, 0));
    for program in (0..40).map(program) {
        let mut memory = Memory::new(&program);
        let values = memory.values(&program);
        match kernel(&program).on(Device::Sim(90)).handle(&values, &options(&program)) {
            Ok(handle) => {
                let MachineCode::Gpu(code) = &*handle.compiled.code else { unreachable!("it is for a GPU") };
                let has_roles = code.threads == 32 * (program.num_warps + 4);
                for (word, count) in &mut counts {
                    let is_there = if *word == "more warps" { has_roles } else { code.ptx.contains(*word) };
                    *count += usize::from(is_there);
                }
            }
            Err(error) => rejected.push(error.to_string()),
        }
    }
    assert!(rejected.len() <= 4, "{} of 40 are rejected: {rejected:#?}", rejected.len());
    assert!(counts.iter().all(|(_, count)| *count >= 4), "{counts:?}");
}
