//! Tests that the use of a device whose Cargo feature is off is an error. If all features are on,
//! the first test checks only that the names of the devices are parsed. `make test-features` runs
//! the tests with one device at a time.

use tilewright::{Buffer, Code, Device, Error, Module, Options, Stream, args};

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
    let fill = Module::from_source("fill.py", SOURCE).unwrap().kernel("fill").unwrap();
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
        check(fill.on(device).compile("*i32, i32", &Options::default()), device);
        if device.memory() == Device::Cpu {
            check(fill.on(device).launch(1, args![&mut [0_i32; 4], 1]), device);
        }
        assert!(!Device::available().contains(&device));
    }
}

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
