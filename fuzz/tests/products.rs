//! Programs that multiply matrices leave the same in memory on the CPU, before the passes and after, and in the simulator, as
//! tensor copies, products of warpgroups, pipelines and warps of their own make them.

use tilewright::frontend::{Constant, DescriptorForm, DescriptorKind, Padding, Tuple};
use tilewright::runtime::{Interrupt, MachineCode, Pointer, Region, Value};
use tilewright::{Device, Error, Grid, Kernel, Module, Options};
use tilewright_fuzz::product::{Argument, Program, program};

/// The memory of a launch.
struct Memory(Vec<Vec<u128>>);

fn as_bytes(words: &mut [u128]) -> &mut [u8] {
    bytemuck::cast_slice_mut(words)
}

impl Memory {
    fn new(program: &Program) -> Self {
        let allocate = |argument: &Argument| match argument {
            Argument::Number(_) => Vec::new(),
            Argument::Memory { bytes, skew, .. } => {
                let mut words = vec![0; (skew + bytes.len()).div_ceil(16)];
                as_bytes(&mut words)[*skew..][..bytes.len()].copy_from_slice(bytes);
                words
            }
        };
        Self(program.arguments.iter().map(|(_, argument)| allocate(argument)).collect())
    }

    /// One for each parameter.
    fn values<'m>(&'m mut self, program: &Program) -> Vec<Value<'m>> {
        let bound = self.0.iter_mut().zip(&program.arguments);
        bound
            .map(|(words, (_, argument))| match argument {
                Argument::Number(number) => Value::Int(*number),
                Argument::Memory { dtype, bytes, skew, descriptor } => {
                    let region = Region::of(&mut as_bytes(words)[*skew..][..bytes.len()]);
                    let address = region.address();
                    let base =
                        Value::Pointer(Pointer { pointee: *dtype, address, region, device: Device::Cpu });
                    let Some((extents, stride, block)) = descriptor else { return base };
                    let form = DescriptorForm {
                        kind: DescriptorKind::Tensor,
                        block_shape: (*block).into(),
                        padding: Padding::Zero,
                    };
                    let integers = extents.iter().chain([stride]).map(|&number| Value::Int(number));
                    let parts = std::iter::once(base).chain(integers).collect();
                    Value::Tuple(Tuple::of_descriptor(form.into(), parts))
                }
            })
            .collect()
    }
}

fn options(program: &Program) -> Options {
    let mut options = Options::default();
    for (name, number) in [("num_warps", program.num_warps), ("num_stages", program.num_stages)] {
        options.set_named(name, &Constant::Int(number.into())).expect("it is an option");
    }
    options
}

fn kernel(program: &Program) -> Kernel {
    let module = Module::from_source("k.py", program.source.clone()).expect("it is Python");
    module.kernel("k").expect("it is there")
}

/// What a launch leaves; what is said where the device refuses the kernel.
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

/// The launch and the program, to be read by who looks for what went wrong.
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

/// The devices on which a program is tried.
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

/// `TILEWRIGHT_SEEDS=7..9` tries these instead of the first few.
#[test]
fn products_leave_the_same_on_the_cpu_and_in_the_simulator() {
    match std::env::var("TILEWRIGHT_SEEDS") {
        Ok(seeds) => {
            let (start, end) = seeds.split_once("..").expect("two numbers");
            let [start, end] = [start, end].map(|number| number.parse::<u64>().expect("a number"));
            (start..end).for_each(check);
        }
        Err(_) if tilewright_fuzz::tries_new_inputs() => {
            bolero::check!().with_type::<u64>().for_each(|&seed| check(seed));
        }
        Err(_) => (0..10).for_each(check),
    }
}

/// The generator is of use if what it makes comes to these.
#[test]
fn products_meet_what_the_gpu_path_has() {
    let mut refused = Vec::new();
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
            Err(error) => refused.push(error.to_string()),
        }
    }
    assert!(refused.len() <= 4, "{} of 40 are refused: {refused:#?}", refused.len());
    assert!(counts.iter().all(|(_, count)| *count >= 4), "{counts:?}");
}
