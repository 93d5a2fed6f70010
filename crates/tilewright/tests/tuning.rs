//! Tests the choices of tuners, and the memory that tuners restore.

use tilewright::{Code, Device, Error, Kernel, Module, args, config};

const SOURCE: &str = "
import triton
import triton.language as tl


@triton.jit
def accumulate(x_ptr, total_ptr, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    for _ in range(ROUNDS):
        x = tl.sort(x)
    tl.store(total_ptr, tl.load(total_ptr) + tl.sum(x))
";

fn kernel() -> Kernel {
    let module = Module::from_source("accumulate.py", SOURCE).expect("the source is valid");
    module.kernel("accumulate").expect("the module has the kernel")
}

fn code<T>(result: Result<T, Error>) -> Option<Code> {
    result.err().and_then(|error| error.code())
}

#[test]
fn the_fastest_configuration_is_launched_and_memory_restored() {
    for device in [Device::Cpu, Device::Sim(80)] {
        let configs =
            [config! { ROUNDS = 40 }, config! { ROUNDS = 0, num_warps = 1 }, config! { ROUNDS = 20 }];
        let tuner = kernel().on(device).tuned(configs, &["n"]);
        let x = vec![1.0_f32; 256];
        let mut total = [5.0_f32];
        tuner.launch(|_| 1, args![&x, &mut total, 200, BLOCK = 256]).unwrap();
        assert_eq!(total, [205.0], "{device}: measured launches leave nothing");
        tuner.launch(|_| 1, args![&x, &mut total, 200, BLOCK = 256]).unwrap();
        assert_eq!(total, [405.0]);
        let choices = tuner.choices();
        assert_eq!(choices.len(), 1);
        assert_eq!(choices[0].1["ROUNDS"], 0, "{device}");
        assert_eq!(choices[0].0, [&*device.to_string(), "200", "fp32", "fp32"]);
        tuner.launch(|_| 1, args![&x, &mut total, 100, BLOCK = 256]).unwrap();
        assert_eq!(tuner.choices().len(), 2, "another value of the key is measured");
    }
}

/// Tests that the values in a key have the notation of Python's `repr`.
#[test]
fn keys_have_values_as_python_writes_them() {
    const SOURCE: &str = "
import triton
import triton.language as tl


@triton.jit
def fill(x_ptr, scale, flag, nothing, pair, MODE: tl.constexpr, BLOCK: tl.constexpr):
    tl.static_assert(MODE == \"it's\")
    tl.store(x_ptr + tl.arange(0, BLOCK), scale * pair[0])
";
    let module = Module::from_source("fill.py", SOURCE).unwrap();
    let names = ["scale", "flag", "nothing", "pair", "MODE"];
    let tuner = module.kernel("fill").unwrap().tuned([config! { BLOCK = 64 }], &names);
    let mut x = [0.0_f64; 64];
    let nothing = None::<i32>;
    tuner.launch(|_| 1, args![&mut x, 0.5_f64, true, nothing, (2, 1e30_f64), MODE = "it's"]).unwrap();
    assert_eq!(x, [1.0; 64]);
    assert_eq!(tuner.choices()[0].0, ["cpu", "0.5", "True", "None", "(2, 1e+30)", "\"it's\"", "fp64"]);
}

#[test]
fn configurations_that_do_not_run_are_skipped() {
    let x = vec![1.0_f32; 64];
    let mut total = [0.0_f32];
    let tuner = kernel().tuned([config! { BLOCK = -1 }, config! { BLOCK = 64 }], &[]);
    tuner.launch(|_| 1, args![&x, &mut total, 64, ROUNDS = 0]).unwrap();
    assert_eq!(total, [64.0]);
    let tuner = kernel().tuned([config! { BLOCK = 128 }], &[]);
    let launched = tuner.launch(|_| 1, args![&x, &mut total, 65, ROUNDS = 0]);
    assert_eq!(code(launched), Some(Code::OutOfBounds));
    assert_eq!(total, [64.0]);
    let tuner = kernel().tuned([config! { BLOCK = 64, num_wraps = 4 }], &[]);
    assert_eq!(code(tuner.launch(|_| 1, args![&x, &mut total, 64, ROUNDS = 0])), Some(Code::UnknownOption));
    let tuner = kernel().tuned([config! { BLOCK = 64 }], &["m"]);
    assert_eq!(code(tuner.launch(|_| 1, args![&x, &mut total, 64, ROUNDS = 0])), Some(Code::InvalidArgument));
    assert_eq!(code(kernel().tuned([], &[]).launch(|_| 1, args![])), Some(Code::InvalidArgument));
}

#[test]
fn options_of_the_launcher_are_obeyed_or_refused() {
    let x = [1.0_f32; 64];
    let mut total = [0.0_f32];
    let configs = [config! { ROUNDS = 0 }, config! { ROUNDS = 0, num_warps = 1 }];
    let tuner = kernel().tuned(configs, &["n"]);
    tuner.launch(|_| 1, args![&x, &mut total, 64, BLOCK = 64, warmup = true]).unwrap();
    assert_eq!(total, [0.0], "`warmup` only compiles");
    assert!(tuner.choices().is_empty(), "`warmup` measures nothing");
    tuner.launch(|_| 1, args![&x, &mut total, 64, BLOCK = 64, sanitize = true]).unwrap();
    assert_eq!(total, [64.0], "one program has no race");
    tuner.launch(|_| 1, args![&x, &mut total, 64, BLOCK = 64, warmup = true]).unwrap();
    assert_eq!(total, [64.0], "`warmup` does not launch the choice");
    // Two programs load and store the total.
    let racing = tuner.launch(|_| 2, args![&x, &mut total, 64, BLOCK = 64, sanitize = "race"]);
    assert_eq!(code(racing), Some(Code::Race));
    let only_wrong = kernel().tuned([config! { ROUNDS = 0 }], &[]);
    let warmed = only_wrong.launch(|_| 1, args![&x, &mut total, 64, BLOCK = 0, warmup = true]);
    assert_eq!(code(warmed), Some(Code::InvalidArange), "no configuration compiles");
}

/// Tests that a mistake in a configuration is an error, also if another configuration runs.
#[test]
fn mistakes_in_configurations_are_not_skipped() {
    let x = [1.0_f32; 64];
    let mut total = [0.0_f32];
    for (wrong, expected) in [
        (config! { ROUNDS = 0, sanitize = true }, Code::InvalidOption),
        (config! { ROUNDS = 0, warmup = true }, Code::InvalidOption),
        (config! { ROUNDS = 0, num_wraps = 4 }, Code::UnknownOption),
        (config! { ROUNDS = 0, num_warps = 3 }, Code::InvalidOption),
        (config! { ROUNDS = 0, num_stages = 2 }, Code::TooManyArguments),
        (config! { ROUNDS = 0, BLOCK = 64 }, Code::TooManyArguments),
    ] {
        let tuner = kernel().tuned([config! { ROUNDS = 0 }, wrong], &[]);
        let launched = tuner.launch(|_| 1, args![&x, &mut total, 64, BLOCK = 64, num_stages = 3]);
        assert_eq!(code(launched), Some(expected));
    }
    assert_eq!(total, [0.0]);
}
