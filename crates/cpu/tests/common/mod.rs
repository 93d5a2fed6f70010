//! Launches IR text on typed vectors, for the integration tests.
#![allow(dead_code, reason = "each test file uses a part of it")]

use tilewright_base::Diagnostic;
use tilewright_cpu::memory::Region;
use tilewright_cpu::{Argument, Interrupt, Launch, Program};
use tilewright_ir::parse;

/// An argument of a test.
pub enum Arg {
    /// The memory of a tensor.
    Bytes(Vec<u8>),
    Scalar(u64),
}

macro_rules! tensors {
    ($($name:ident $read:ident $ty:ty;)*) => {$(
        /// Returns a tensor argument.
        pub fn $name(values: &[$ty]) -> Arg {
            Arg::Bytes(values.iter().flat_map(|value| value.to_le_bytes()).collect())
        }
        impl Arg {
            /// Returns the elements of a tensor.
            pub fn $read(&self) -> Vec<$ty> {
                const SIZE: usize = size_of::<$ty>();
                let Arg::Bytes(bytes) = self else { panic!("it is a scalar") };
                bytes.chunks_exact(SIZE).map(|chunk| <$ty>::from_le_bytes(chunk.try_into().expect("exact"))).collect()
            }
        }
    )*};
}
tensors! {
    f32s as_f32 f32; f64s as_f64 f64; i8s as_i8 i8; u8s as_u8 u8; i16s as_i16 i16; u16s as_u16 u16;
    i32s as_i32 i32; u32s as_u32 u32; i64s as_i64 i64; u64s as_u64 u64;
}

pub fn int(value: i64) -> Arg {
    Arg::Scalar(value as u64)
}

pub fn program(text: &str) -> Program {
    let module = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Program::new(&module).expect("it can be lowered")
}

/// Compiles IR text to a program without machine code, with fused loops.
pub fn fused_program(text: &str) -> Program {
    let module = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Program::with_target(&module, None).expect("it can be lowered")
}

/// Compiles IR text to a program that materializes every tile.
pub fn dense_program(text: &str) -> Program {
    let module = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Program::without_symbolic_forms(&module, None).expect("it can be lowered")
}

pub fn launch_with(
    program: &Program,
    grid: [u32; 3],
    args: &mut [Arg],
    threads: usize,
    interrupt: Interrupt<'_>,
) -> Result<(), Box<Diagnostic>> {
    let arguments: Vec<Argument<'_>> = args
        .iter_mut()
        .map(|arg| match arg {
            Arg::Bytes(bytes) => {
                let region = Region::of(bytes);
                Argument::Pointer { address: region.address(), region }
            }
            Arg::Scalar(bits) => Argument::Scalar(*bits),
        })
        .collect();
    program.launch(&Launch {
        grid,
        arguments: &arguments,
        foreign: &[],
        threads,
        interrupt,
        padded: None,
        machine_code: true,
    })
}

pub fn launch(program: &Program, grid: [u32; 3], args: &mut [Arg]) -> Result<(), Box<Diagnostic>> {
    launch_with(program, grid, args, 1, Interrupt::Never)
}

/// Launches IR text with symbolic and with dense tiles, and compares the results. Leaves the
/// results in the tensors of `args`.
pub fn run(text: &str, grid: [u32; 3], args: &mut [Arg]) {
    let before: Vec<Option<Vec<u8>>> = args
        .iter()
        .map(|arg| match arg {
            Arg::Bytes(bytes) => Some(bytes.clone()),
            Arg::Scalar(_) => None,
        })
        .collect();
    let outcome = launch(&dense_program(text), grid, args);
    outcome.unwrap_or_else(|error| panic!("{error:#?}"));
    let mut dense = Vec::new();
    for (arg, before) in args.iter_mut().zip(before) {
        if let (Arg::Bytes(bytes), Some(before)) = (arg, before) {
            dense.push(std::mem::replace(bytes, before));
        }
    }
    launch(&program(text), grid, args).unwrap_or_else(|error| panic!("{error:#?}"));
    let tensors = args.iter().filter_map(|arg| match arg {
        Arg::Bytes(bytes) => Some(bytes),
        Arg::Scalar(_) => None,
    });
    for (index, (symbolic, dense)) in tensors.zip(&dense).enumerate() {
        let place = symbolic.iter().zip(dense).position(|(x, y)| x != y);
        assert!(place.is_none(), "tensor {index} differs with and without symbolic forms at byte {place:?}");
    }
}
