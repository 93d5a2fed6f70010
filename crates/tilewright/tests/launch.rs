//! Tests launches of kernels from Rust: arguments, specialization, the cache, threads, and errors.

use std::sync::Arc;

use tilewright::runtime::ParameterType;
use tilewright::{Code, Dtype, Error, Module, Stage, Target, args};

const SOURCE: &str = r#"
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr = 64):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


@triton.jit
def fill(out_ptr, value, dtype: tl.constexpr, mode: tl.constexpr = "set"):
    offsets = tl.arange(0, 4)
    if mode == "set":
        tl.store(out_ptr + offsets, tl.full((4,), value, dtype))
    else:
        tl.store(out_ptr + offsets, tl.load(out_ptr + offsets) + value)


@triton.jit
def where_am_i(out_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = x + tl.num_programs(0) * (y + tl.num_programs(1) * z)
    tl.store(out_ptr + at, x + 10 * y + 100 * z)


@triton.jit
def typed(out_ptr, small: "u8", wide: tl.int64, real: "fp64"):
    tl.store(out_ptr, small + wide + real)


@triton.jit
def optional(out_ptr, bias_ptr):
    value = 1.0
    if bias_ptr is not None:
        value = tl.load(bias_ptr)
    tl.store(out_ptr, value)


@triton.jit
def spread(out_ptrs, values):
    for i in tl.static_range(len(out_ptrs)):
        tl.store(out_ptrs[i], values[i])


def not_a_kernel(x):
    return x
"#;

fn module() -> Module {
    Module::from_source("kernels.py", SOURCE).expect("the source is valid")
}

fn code<T>(result: Result<T, Error>) -> Option<Code> {
    result.err().and_then(|error| error.code())
}

#[test]
fn kernels_are_listed_and_launched() {
    let module = module();
    assert_eq!(module.kernel_names(), ["scale", "fill", "where_am_i", "typed", "optional", "spread"]);
    let x: Vec<f32> = (0..200).map(|i| i as f32).collect();
    let mut out = vec![0.0_f32; 200];
    module.kernel("scale").unwrap().launch(4, args![&x, &mut out, 0.5, x.len()]).unwrap();
    assert!(out.iter().enumerate().all(|(i, &value)| value == i as f32 * 0.5));
}

#[test]
fn element_types_and_constexprs() {
    let fill = module().kernel("fill").unwrap();
    let mut halves = [half::f16::ZERO; 4];
    fill.launch(1, args![&mut halves, 1.5, Dtype::F16]).unwrap();
    assert_eq!(halves, [half::f16::from_f64(1.5); 4]);
    let mut bytes = [7_u8; 4];
    fill.launch(1, args![&mut bytes, 250, dtype = Dtype::U8, mode = "add"]).unwrap();
    assert_eq!(bytes, [1; 4]);
}

#[test]
fn grids_of_three_axes() {
    let kernel = module().kernel("where_am_i").unwrap();
    let mut out = [0_i32; 24];
    kernel.launch([4, 3, 2], args![&mut out]).unwrap();
    assert_eq!(out[4 * (3 + 2) + 3], 123);
    kernel.launch((0, 3), args![&mut out]).unwrap();
    assert_eq!(code(kernel.launch(-1, args![&mut out])), Some(Code::InvalidGrid));
    assert_eq!(code(kernel.launch([1_u32; 4], args![&mut out])), Some(Code::InvalidGrid));
}

#[test]
fn annotations_decide_types() {
    let kernel = module().kernel("typed").unwrap();
    let mut out = [0.0_f64];
    kernel.launch(1, args![&mut out, 255, 1, 0.1]).unwrap();
    assert_eq!(out, [256.1]);
    let handle = kernel.warmup(args![&mut out, 255, 1, 0.1]).unwrap();
    let types: Vec<ParameterType> = handle.compiled.signature.iter().map(|(_, ty)| ty.clone()).collect();
    let scalar = ParameterType::Scalar;
    assert_eq!(
        types,
        [ParameterType::Pointer(Dtype::F64), scalar(Dtype::U8), scalar(Dtype::I64), scalar(Dtype::F64)]
    );
    assert_eq!(code(kernel.launch(1, args![&mut out, 256, 1, 0.1])), Some(Code::InvalidArgument));
    assert_eq!(code(kernel.launch(1, args![&mut out, 0.5, 1, 0.1])), Some(Code::InvalidArgument));
}

#[test]
fn none_is_a_compile_time_value() {
    let kernel = module().kernel("optional").unwrap();
    let mut out = [0.0_f32];
    kernel.launch(1, args![&mut out, None::<f32>]).unwrap();
    assert_eq!(out, [1.0]);
    kernel.launch(1, args![&mut out, &[5.0_f32]]).unwrap();
    assert_eq!(out, [5.0]);
}

#[test]
fn forms_of_arguments_share_code_where_they_may() {
    let kernel = module().kernel("scale").unwrap();
    let (x, mut out) = (vec![1.0_f32; 64], vec![0.0_f32; 64]);
    let mut handle = |n: usize| kernel.warmup(args![&x, &mut out, 2.0, n]).unwrap();
    let first = handle(10);
    assert!(Arc::ptr_eq(&first, &handle(11)));
    assert!(!Arc::ptr_eq(&first, &handle(16)), "16 is specialized as a multiple of 16");
    assert!(!Arc::ptr_eq(&first, &handle(1)), "1 is a constant");
    assert!(!Arc::ptr_eq(&first, &handle(1 << 40)), "this one has 64 bits");
    assert!(Arc::ptr_eq(&handle(32), &handle(48)));
    let other = kernel.warmup(args![&x, &mut out, 2.0, 10, num_warps = 8]).unwrap();
    assert!(!Arc::ptr_eq(&first, &other));
    assert_ne!(first.compiled.hash(), other.compiled.hash());
    for &stage in Stage::of(Target::Cpu) {
        assert!(!first.compiled.asm(stage).unwrap().is_empty());
    }
}

#[test]
fn a_handle_knows_what_it_was_made_for() {
    let kernel = module().kernel("scale").unwrap();
    let (x, mut out) = (vec![3.0_f32; 64], vec![0.0_f32; 64]);
    let handle = kernel.warmup(args![&x, &mut out, 2.0, 1, BLOCK = 32]).unwrap();
    let launch = |values: Vec<tilewright::runtime::Value<'_>>| {
        let complete = handle.complete(&values)?;
        handle.launch(tilewright::Grid::from([1, 1, 1]), &complete, tilewright::runtime::Interrupt::Never)
    };
    launch(args![&x, &mut out, 2.0, 1, 32].positional).unwrap();
    launch(args![&x, &mut out, 2.0, 1].positional).unwrap();
    assert_eq!(out[..2], [6.0, 0.0]);
    assert_eq!(code(launch(args![&x, &mut out, 2.0, 2].positional)), Some(Code::InvalidArgument));
    assert_eq!(code(launch(args![&x, &mut out, 2.0, 1, 64].positional)), Some(Code::InvalidArgument));
    assert_eq!(code(launch(args![1, &mut out, 2.0, 1].positional)), Some(Code::InvalidArgument));
    assert_eq!(code(launch(args![&x].positional)), Some(Code::MissingArgument));
}

#[test]
fn threads_that_want_the_same_kernel_compile_it_once() {
    let kernel = module().kernel("scale").unwrap();
    let handles: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let (x, mut out) = (vec![1.0_f32; 64], vec![0.0_f32; 64]);
                    let handle = kernel.warmup(args![&x, &mut out, 2.0, 64]).expect("it compiles");
                    kernel.launch(1, args![&x, &mut out, 2.0, 64]).expect("it runs");
                    assert_eq!(out[63], 2.0);
                    handle
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(handles.iter().all(|handle| Arc::ptr_eq(handle, &handles[0])));
}

#[test]
fn mistakes_have_codes() {
    let module = module();
    assert_eq!(code(module.kernel("not_a_kernel")), Some(Code::KernelNotFound));
    assert_eq!(code(module.kernel("scael")), Some(Code::KernelNotFound));
    assert_eq!(code(Module::from_source("bad.py", "def f(:\n")), Some(Code::SyntaxError));
    assert_eq!(code(Module::from_file("no/such/file.py")), Some(Code::KernelNotFound));
    let kernel = module.kernel("scale").unwrap();
    let (x, mut out) = (vec![1.0_f32; 64], vec![0.0_f32; 64]);
    let launch = |arguments: fn(&'static mut [f32]) -> tilewright::Arguments<'static>| {
        code(kernel.launch(1, arguments(vec![0.0; 64].leak())))
    };
    assert_eq!(launch(|out| args![out, 1.0]), Some(Code::MissingArgument));
    assert_eq!(launch(|out| args![out, 1, 2, 3, 4, 5]), Some(Code::TooManyArguments));
    assert_eq!(launch(|out| args![out, 1, 2, 3, num_warp = 4]), Some(Code::UnknownOption));
    assert_eq!(launch(|out| args![out, 1, 2, 3, num_warps = 0]), Some(Code::InvalidOption));
    assert_eq!(launch(|out| args![out, 1, 2, "three"]), Some(Code::InvalidArgument));
    let overrun = kernel.launch(2, args![&x, &mut out, 2.0, 100]);
    assert_eq!(code(overrun), Some(Code::OutOfBounds));
}

#[test]
fn a_slice_that_is_not_mut_is_not_written() {
    let kernel = module().kernel("scale").unwrap();
    let (x, out) = (vec![1.0_f32; 64], vec![0.0_f32; 64]);
    assert_eq!(code(kernel.launch(1, args![&x, &out, 2.0, 64])), Some(Code::OutOfBounds));
    assert_eq!(out, vec![0.0; 64]);
}

#[test]
fn described_arguments_compile() {
    let kernel = module().kernel("scale").unwrap();
    let options = tilewright::Options::default();
    let handle = kernel.compile("*fp32:16,*fp32:16,fp32,i32", &options).unwrap();
    assert!(handle.compiled.asm(Stage::Ir).unwrap().contains("divisibility = 16"));
    assert_eq!(code(kernel.compile("*fp32,*fp32,fp32,i32,0", &options)), Some(Code::InvalidArange));
}

#[test]
fn tuples_are_as_many_arguments_as_they_have_items() {
    let module = module();
    let kernel = module.kernel("spread").expect("it is there");
    let (mut x, mut y) = ([0.0_f32; 1], [0_i64; 1]);
    kernel.launch(1, args![(&mut x, &mut y), (1.5, 7)]).expect("it runs");
    assert_eq!((x[0], y[0]), (1.5, 7));
    kernel.launch(1, args![(&mut x, &mut y), (2.5, 9)]).expect("it runs");
    assert_eq!((x[0], y[0]), (2.5, 9));
    let mut all = [[0_i32; 1], [0; 1], [0; 1]];
    let pointers: Vec<_> = all.iter_mut().collect();
    kernel.launch(1, args![pointers, vec![1, 2, 3]]).expect("it runs");
    assert_eq!(all, [[1], [2], [3]]);
    kernel.launch(1, args![(), ()]).expect("it runs");
    assert_eq!(code(kernel.launch(1, args![(1, ("text",)), ()])), Some(Code::InvalidArgument));
    let handle = kernel.compile("(*fp32, *i64), (fp32, i32)", &tilewright::Options::default());
    let compiled = &handle.expect("it compiles").compiled;
    assert_eq!(compiled.signature[0].1.name(), "(*fp32, *i64)");
    let ir = compiled.asm(Stage::Ir).unwrap();
    assert!(ir.starts_with(
        "kernel func0 @spread(%out_ptrs.0: *fp32, %out_ptrs.1: *int64, %values.0: fp32, %values.1: int32)"
    ));
}

#[test]
fn options_of_the_launcher_are_obeyed_or_refused() {
    let kernel = module().kernel("scale").unwrap();
    let x = [1.0_f32; 64];
    let mut out = [0.0_f32; 64];
    kernel.launch(1, args![&x, &mut out, 2.0, 64, warmup = true]).unwrap();
    assert_eq!(out, [0.0; 64], "`warmup` only compiles");
    kernel.launch(1, args![&x, &mut out, 2.0, 64, sanitize = true]).unwrap();
    assert_eq!(out, [2.0; 64]);
    // Two programs store to the same elements.
    let racing = module().kernel("fill").unwrap();
    let mut words = [0_i32; 4];
    let launched = racing.launch(2, args![&mut words, 1, Dtype::I32, mode = "add", sanitize = "race"]);
    assert_eq!(code(launched), Some(Code::Race));
    let refused = [
        kernel.launch(1, args![&x, &mut out, 2.0, 64, stream = 0]),
        kernel.launch(1, args![&x, &mut out, 2.0, 64, grid = 1]),
        kernel.launch(1, args![&x, &mut out, 2.0, 64, sanitize = "speed"]),
        kernel.launch(1, args![&x, &mut out, 2.0, 64, sanitize = 3]),
        kernel.launch(1, args![&x, &mut out, 2.0, 64, warmup = &x]),
    ];
    for launched in refused {
        assert_eq!(code(launched), Some(Code::InvalidOption));
    }
    let twice = kernel.launch(1, args![&x, &mut out, 2.0, 64, num_warps = 2, num_warps = 4]);
    assert_eq!(code(twice), Some(Code::TooManyArguments));
    let mut options = tilewright::Options::default();
    let none = tilewright::frontend::Constant::None;
    for name in ["grid", "sanitize", "stream", "warmup"] {
        assert_eq!(code(options.set_named(name, &none)), Some(Code::InvalidOption), "{name}");
    }
}

/// Tests the warning in a process of its own, because only another process can read its stderr.
#[test]
fn options_without_effect_are_warned_of() {
    const CHILD: &str = "TILEWRIGHT_TEST_WARNING";
    if std::env::var_os(CHILD).is_some() {
        let kernel = module().kernel("scale").unwrap();
        let (x, mut out) = ([1.0_f32; 64], [0.0_f32; 64]);
        kernel.launch(1, args![&x, &mut out, 2.0, 64, clc = true]).unwrap();
        eprintln!("after the CPU");
        let gpu = kernel.on(tilewright::Device::Sim(90));
        for _ in 0..2 {
            gpu.launch(1, args![&x, &mut out, 2.0, 64, clc = true]).unwrap();
        }
        return;
    }
    let name = "options_without_effect_are_warned_of";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", "--nocapture", name]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let (before, after) = text.split_once("after the CPU").unwrap();
    assert!(!before.contains("TW0115"), "{text}");
    assert_eq!(
        after.matches("warning[TW0115]: the launch option clc=True of kernel 'scale'").count(),
        1,
        "{text}"
    );
}
