//! Compares whole tiles with single numbers, for each elementwise function and type.
#![allow(clippy::format_push_string, reason = "kernels are assembled from lines of text")]

mod common;

use common::{Arg, launch, program};
use tilewright_fuzz::random::Random;
use tilewright_ir::{Dtype, Element, ElementwiseFn, Signature};

const COUNT: usize = 64;
const LOAD: &str = "{cache = \"\", eviction = \"\", volatile = false}";
const STORE: &str = "{cache = \"\", eviction = \"\"}";

/// Returns a kernel that applies the function to tiles of 64 elements, or to scalars.
fn kernel(function: ElementwiseFn, dtype: Dtype, is_tile: bool) -> String {
    let info = function.info();
    let shape = if is_tile { "[64]" } else { "" };
    let result = if info.signature == Signature::Compare { Dtype::I1 } else { dtype };
    let types: Vec<Dtype> = (0..info.operands.len())
        .map(|index| if info.signature == Signature::Select && index == 0 { Dtype::I1 } else { dtype })
        .collect();
    let parameters: Vec<String> = types.iter().enumerate().map(|(i, ty)| format!("%p{i}: *{ty}")).collect();
    let mut text = format!("kernel func0 @k({}, %out: *{result}) {{\n", parameters.join(", "));
    if is_tile {
        text += "  %offs = arange {start = 0, end = 64} : int32[64]\n";
    } else {
        text += "  %offs = program_id {axis = 0} : int32\n";
    }
    let pointer = |name: &str, base: &str, ty: Dtype| {
        if is_tile {
            format!(
                "  %{name}s = splat {base} {{shape = [64]}} : *{ty}[64]\n  %{name} = ptr_add %{name}s, %offs : *{ty}[64]\n"
            )
        } else {
            format!("  %{name} = ptr_add {base}, %offs : *{ty}\n")
        }
    };
    for (i, &ty) in types.iter().enumerate() {
        text += &pointer(&format!("q{i}"), &format!("%p{i}"), ty);
        text += &format!("  %v{i} = load %q{i} {LOAD} : {ty}{shape}\n");
    }
    let operands: Vec<String> = (0..types.len()).map(|i| format!("%v{i}")).collect();
    text += &format!("  %r = {} {} : {result}{shape}\n", function.name(), operands.join(", "));
    text += &pointer("o", "%out", result);
    text + &format!("  store %o, %r {STORE}\n  return_values\n}}\n")
}

/// Returns numbers, many of them special.
fn numbers(dtype: Dtype, seed: u64) -> Vec<u64> {
    let mut random = Random(seed);
    let width = dtype.bits();
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    let special = [0, 1, 2, mask, mask >> 1, (mask >> 1) + 1, u64::from(width), u64::from(width) - 1];
    (0..COUNT)
        .map(|i| {
            let small = random.below(20) as u64;
            let bits = match i % 4 {
                0 => random.pick(&special),
                1 if dtype.is_float() => match dtype {
                    Dtype::F64 => (small as f64 / 3.0 - 2.0).to_bits(),
                    Dtype::F32 => (small as f32 / 3.0 - 2.0).to_bits().into(),
                    _ => random.bits(),
                },
                1 => small.wrapping_sub(9),
                _ => random.bits(),
            };
            bits & mask
        })
        .collect()
}

fn tensor(dtype: Dtype, numbers: &[u64]) -> Arg {
    let bytes = dtype.bytes();
    Arg::Bytes(numbers.iter().flat_map(|bits| bits.to_le_bytes()[..bytes].to_vec()).collect())
}

fn bytes(arg: &Arg) -> &[u8] {
    match arg {
        Arg::Bytes(bytes) => bytes,
        Arg::Scalar(_) => &[],
    }
}

fn is_nan(dtype: Dtype, bits: &[u8]) -> bool {
    match dtype {
        Dtype::F16 => half::f16::from_le_bytes([bits[0], bits[1]]).is_nan(),
        Dtype::BF16 => half::bf16::from_le_bytes([bits[0], bits[1]]).is_nan(),
        Dtype::F32 => f32::from_le_bytes([bits[0], bits[1], bits[2], bits[3]]).is_nan(),
        Dtype::F64 => f64::from_le_bytes(bits.try_into().expect("8 bytes")).is_nan(),
        Dtype::F8E5 => bits[0] & 0x7f > 0x7c,
        Dtype::F8E4NV => bits[0] & 0x7f == 0x7f,
        Dtype::F8E4B8 | Dtype::F8E5B16 => bits[0] == 0x80,
        // tidy: wildcard because the other types have no NaN
        _ => false,
    }
}

fn check(function: ElementwiseFn, dtype: Dtype, seed: u64) {
    let info = function.info();
    let result = if info.signature == Signature::Compare { Dtype::I1 } else { dtype };
    let inputs: Vec<(Dtype, Vec<u64>)> = (0..info.operands.len())
        .map(|index| {
            let ty = if info.signature == Signature::Select && index == 0 { Dtype::I1 } else { dtype };
            (ty, numbers(ty, seed + index as u64))
        })
        .collect();
    let run = |is_tile: bool| {
        let mut args: Vec<Arg> = inputs.iter().map(|(ty, numbers)| tensor(*ty, numbers)).collect();
        args.push(tensor(result, &vec![0; COUNT]));
        let grid = if is_tile { 1 } else { COUNT as u32 };
        let outcome = launch(&program(&kernel(function, dtype, is_tile)), [grid, 1, 1], &mut args);
        outcome.unwrap_or_else(|error| panic!("{}: {error:?}", function.name()));
        bytes(&args[inputs.len()]).to_vec()
    };
    let (tile, scalars) = (run(true), run(false));
    let size = result.bytes();
    for (index, (tile, scalar)) in tile.chunks(size).zip(scalars.chunks(size)).enumerate() {
        let operands: Vec<u64> = inputs.iter().map(|(_, numbers)| numbers[index]).collect();
        assert!(
            tile == scalar || is_nan(result, tile) && is_nan(result, scalar),
            "{} of {dtype} {operands:x?}: {tile:x?} as a tile, {scalar:x?} as a scalar",
            function.name()
        );
    }
}

#[test]
fn tiles_and_numbers_agree() {
    for &function in ElementwiseFn::ALL {
        for &dtype in Dtype::ALL {
            if function.info().domain.contains(Element::Value(dtype)) {
                check(function, dtype, 1 + dtype as u64);
            }
        }
    }
}
