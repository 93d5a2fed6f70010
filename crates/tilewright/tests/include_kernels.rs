//! Tests the functions that `include_kernels!` defines, on the CPU and in the simulator.

use tilewright::{Code, Device, Stream, args, bf16};

tilewright::include_kernels! {
    /// The kernels of two files.
    mod kernels;
    targets = ["cpu", "sm_80", "sm_90"];

    from "include/scale.py" {
        /// Multiplies `n` elements by a factor, and limits the results to 100.
        scale("*kfp32, *fp32, fp32, i32, BLOCK=256", num_warps = 2);
        scale as scale_bf16("*kbf16, *bf16, fp32, i32, BLOCK=64");
        fill("*i32, i64, i32, mode='index', dtype=tl.int32");
        keywords("*i32, i32, i32, i32, i32, i32, i32");
    }
}

#[test]
fn functions_launch_kernels_of_the_binary() {
    let x: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let expected: Vec<f32> = x.iter().map(|x| (x * 0.5).min(100.0)).collect();
    for device in [Device::Cpu, Device::Sim(80), Device::Sim(90)] {
        let mut out = vec![0.0_f32; x.len()];
        kernels::scale(&x, &mut out, 0.5, x.len() as i32).on(device).run(x.len().div_ceil(256)).unwrap();
        assert_eq!(out, expected, "{device}");
        out.fill(0.0);
        let stream = Stream::new(device).unwrap();
        kernels::scale(&x, &mut out, 0.5, x.len() as i32).run_on(&stream, 4).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(out, expected, "{device}");
    }
}

#[test]
fn a_kernel_has_a_function_for_each_signature() {
    let x = [bf16::from_f32(1.5); 64];
    let mut out = [bf16::ZERO; 64];
    kernels::scale_bf16(&x, &mut out, 2.0, 64).run(1).unwrap();
    assert_eq!(out, [bf16::from_f32(3.0); 64]);
    let mut indices = [0_i32; 8];
    kernels::fill(&mut indices, 5, 0).run(1).unwrap();
    assert_eq!(indices, [5, 6, 7, 8, 9, 10, 11, 12]);
}

#[test]
fn parameters_may_have_names_that_rust_reserves() {
    let mut out = [0_i32; 1];
    kernels::keywords(&mut out, 1, 2, 3, 4, 5, 6).run(1).unwrap();
    assert_eq!(out, [654_321]);
}

#[test]
fn faults_and_other_targets_are_errors() {
    let x = [1.0_f32; 10];
    let mut out = [0.0_f32; 10];
    let error = kernels::scale(&x, &mut out, 1.0, 11).run(1).expect_err("11 elements of 10");
    assert_eq!(error.code(), Some(Code::OutOfBounds));
    assert!(error.to_string().contains("scale.py"), "{error}");
    let error = kernels::scale(&x, &mut out, 1.0, 10).on(Device::Sim(100)).run(1);
    assert_eq!(error.expect_err("it was not compiled for sm_100").code(), Some(Code::NotLocked));
}

#[test]
fn the_bundle_lists_its_kernels() {
    let bundle = kernels::bundle().unwrap();
    let error = bundle.launch("scales", 1, args![]).expect_err("a typo");
    assert!(error.to_string().contains("scale("), "{error}");
}

#[test]
fn a_bundle_refuses_options_and_repeated_arguments() {
    let bundle = kernels::bundle().unwrap().on(Device::Cpu);
    let (x, mut out) = ([1.0_f32; 8], [0.0_f32; 8]);
    for option in ["sanitize", "warmup", "stream", "num_warps", "launch_cooperative_grid"] {
        let arguments = args![x_ptr = &x, out_ptr = &mut out, factor = 2.0, n = 8].keyword(option, 1);
        let error = bundle.launch("scale", 1, arguments).expect_err("a lock has no options");
        assert_eq!(error.code(), Some(Code::NotLocked));
        let expected = format!("{option} is a launch option");
        assert!(error.to_string().contains(&expected), "{error}");
    }
    let twice = args![x_ptr = &x, out_ptr = &mut out, factor = 2.0, n = 8, n = 4];
    let error = bundle.launch("scale", 1, twice).expect_err("two values of n");
    assert_eq!(error.code(), Some(Code::TooManyArguments));
    assert_eq!(out, [0.0; 8]);
}
