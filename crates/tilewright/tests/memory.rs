//! Tests buffers, streams and events.

use std::time::Duration;

use tilewright::{Buffer, Code, Device, Error, Module, Stream, args};

const SOURCE: &str = "
import triton
import triton.language as tl


@triton.jit
def add_one(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)
";

fn code<T>(result: Result<T, Error>) -> Option<Code> {
    result.err().and_then(|error| error.code())
}

/// Returns the CPU, a simulated GPU and, if this machine has one, a GPU.
fn devices() -> Vec<Device> {
    let gpus = Device::available().into_iter().filter(|device| matches!(device, Device::Cuda(_)));
    [Device::Cpu, Device::Sim(90)].into_iter().chain(gpus.take(1)).collect()
}

#[test]
fn kernels_change_buffers() {
    let add_one = Module::from_source("k.py", SOURCE).unwrap().kernel("add_one").unwrap();
    for device in devices() {
        let kernel = add_one.on(device);
        let mut x = Buffer::<f32>::zeros(device, 100).unwrap();
        assert_eq!((x.len(), x.is_empty(), x.device()), (100, false, device));
        kernel.launch(2, args![&mut x, 100, BLOCK = 64]).unwrap();
        kernel.launch(1, args![x.slice_mut(10..20).unwrap(), 10, BLOCK = 64]).unwrap();
        let stream = Stream::new(device).unwrap();
        let event = stream.record().unwrap();
        kernel.launch_on(&stream, 1, args![x.slice_mut(15..).unwrap(), 85, BLOCK = 128]).unwrap();
        let end = stream.record().unwrap();
        assert!(event.duration_until(&end).unwrap() < Duration::from_mins(1));
        let expected = |i: usize| 1 + usize::from((10..20).contains(&i)) + usize::from(i >= 15);
        let expected: Vec<f32> = (0..100).map(|i| expected(i) as f32).collect();
        assert_eq!(x.to_vec().unwrap(), expected, "{device}");
    }
}

#[test]
fn buffers_are_copied() {
    for device in devices() {
        let mut x = Buffer::from_slice(device, &[1_u16, 2, 3, 4]).unwrap();
        x.slice_mut(1..=2).unwrap().copy_from_slice(&[20, 30]).unwrap();
        let mut two = [0_u16; 2];
        x.slice(2..).unwrap().copy_to_slice(&mut two).unwrap();
        assert_eq!((two, x.to_vec().unwrap()), ([30, 4], vec![1, 20, 30, 4]), "{device}");
        x.copy_from_slice(&[9; 4]).unwrap();
        assert_eq!(x.to_vec().unwrap(), [9; 4]);
        assert_eq!(code(x.copy_from_slice(&[9; 3])), Some(Code::InvalidArgument));
        assert_eq!(code(x.slice(3..5)), Some(Code::InvalidArgument));
        let reversed = std::ops::Range { start: 3, end: 2 };
        assert_eq!(code(x.slice_mut(reversed)), Some(Code::InvalidArgument));
        let none = Buffer::<f64>::from_slice(device, &[]).unwrap();
        assert!(none.to_vec().unwrap().is_empty());
    }
    let x = Buffer::from_slice(Device::Cpu, &[1.0_f32; 3]).unwrap();
    assert_eq!(x.as_slice().unwrap().as_ptr().addr() % 64, 0);
    assert_eq!(code(Buffer::<f64>::zeros(Device::Cpu, usize::MAX)), Some(Code::InvalidArgument));
    assert_eq!(code(Buffer::<f64>::zeros(Device::Cuda(999), 1)), Some(Code::NoDevice));
}

#[test]
fn accesses_outside_of_a_slice_are_errors() {
    let add_one = Module::from_source("k.py", SOURCE).unwrap().kernel("add_one").unwrap();
    for device in [Device::Cpu, Device::Sim(80)] {
        let mut x = Buffer::<f32>::zeros(device, 100).unwrap();
        let part = x.slice_mut(..50).unwrap();
        let launched = add_one.on(device).launch(1, args![part, 51, BLOCK = 64]);
        assert_eq!(code(launched), Some(Code::OutOfBounds), "{device}");
        let launched = add_one.on(device).launch(1, args![&x, 50, BLOCK = 64]);
        assert!(launched.is_err(), "{device}: the buffer is only read");
    }
}

#[test]
fn a_launch_is_on_the_device_of_its_stream() {
    let add_one = Module::from_source("k.py", SOURCE).unwrap().kernel("add_one").unwrap();
    let stream = Stream::new(Device::Sim(90)).unwrap();
    let launched = add_one.launch_on(&stream, 1, args![&mut [0.0_f32; 8], 8, BLOCK = 8]);
    assert_eq!(code(launched), Some(Code::InvalidArgument));
}
