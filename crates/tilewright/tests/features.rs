//! Tests the errors for devices and checks whose Cargo feature is off.
//!
//! `make test-features` runs the tests with one device at a time, and without `python-syntax`. With
//! all features on, the first test only checks the names of devices.

use tilewright::{Buffer, Code, Device, Error, Stream};
#[cfg(feature = "python-syntax")]
use tilewright::{Module, Options, args};

#[cfg(feature = "python-syntax")]
const SOURCE: &str = "
import triton
import triton.language as tl


@triton.jit
def fill(x_ptr, value):
    tl.store(x_ptr + tl.arange(0, 4), value)
";

fn check<T>(result: Result<T, Error>, device: Device) {
    let error = result.err().expect("the device is left out");
    assert_eq!(error.code(), Some(Code::NoDevice), "{device}: {error}");
    assert!(error.to_string().contains("built without the feature"), "{device}: {error}");
}

#[test]
fn a_device_without_its_feature_is_an_error() {
    let devices = [
        (Device::Cpu, cfg!(feature = "cpu")),
        (Device::Cuda(0), cfg!(feature = "cuda")),
        (Device::Sim(90), cfg!(feature = "sim")),
    ];
    for (device, is_included) in devices {
        let parsed = Device::parse(&device.to_string());
        if is_included {
            assert_eq!(parsed.unwrap(), device);
            continue;
        }
        check(parsed, device);
        check(device.target(), device);
        check(device.select(), device);
        check(Buffer::<f32>::zeros(device, 4), device);
        check(Stream::new(device), device);
        #[cfg(feature = "python-syntax")]
        {
            let fill = Module::from_source("fill.py", SOURCE).unwrap().kernel("fill").unwrap();
            check(fill.on(device).compile("*i32, i32", &Options::default()), device);
            if device.memory() == Device::Cpu {
                check(fill.on(device).launch(1, args![&mut [0_i32; 4], 1]), device);
            }
        }
        assert!(!Device::available().contains(&device));
    }
}

#[cfg(feature = "python-syntax")]
#[test]
fn included_devices_run_kernels() {
    let fill = Module::from_source("fill.py", SOURCE).unwrap().kernel("fill").unwrap();
    for (device, is_included) in
        [(Device::Cpu, cfg!(feature = "cpu")), (Device::Sim(90), cfg!(feature = "sim"))]
    {
        let mut x = [0_i32; 4];
        if is_included {
            fill.on(device).launch(1, args![&mut x, 7]).unwrap();
            assert_eq!(x, [7; 4], "{device}");
        }
    }
}

#[cfg(feature = "python-syntax")]
#[test]
fn checks_without_the_sanitizer_are_an_error() {
    let fill = Module::from_source("fill.py", SOURCE).unwrap().kernel("fill").unwrap();
    for (device, is_included) in
        [(Device::Cpu, cfg!(feature = "cpu")), (Device::Sim(90), cfg!(feature = "sim"))]
    {
        let mut x = [0_i32; 4];
        let launched = fill.on(device).launch(1, args![&mut x, 7, sanitize = true]);
        if !is_included {
            check(launched, device);
        } else if cfg!(feature = "sanitize") {
            launched.unwrap();
            assert_eq!(x, [7; 4], "{device}");
        } else {
            let error = launched.expect_err("the sanitizer is left out");
            assert_eq!(error.code(), Some(Code::NotOnThisDevice), "{device}: {error}");
            assert!(error.to_string().contains("without the feature `sanitize`"), "{error}");
            assert_eq!(x, [0; 4], "{device}");
        }
    }
}

/// Tests that kernels in the binary need no parser.
#[cfg(feature = "include-kernels")]
mod in_the_binary {
    tilewright::include_kernels! {
        mod kernels;
        targets = ["cpu", "sm_90"];
        from "include/scale.py" { scale("*kfp32, *fp32, fp32, i32, BLOCK=256"); }
    }

    #[test]
    fn kernels_of_the_binary_run() {
        use tilewright::Device;
        for (device, is_included) in
            [(Device::Cpu, cfg!(feature = "cpu")), (Device::Sim(90), cfg!(feature = "sim"))]
        {
            let (x, mut out) = ([1.0_f32; 100], [0.0_f32; 100]);
            let launched = kernels::scale(&x, &mut out, 2.5, 100).on(device).run(1);
            if is_included {
                launched.unwrap();
                assert_eq!(out, [2.5; 100], "{device}");
            } else {
                super::check(launched, device);
            }
        }
    }
}
