//! Converts elements to exact numbers, and rounds numbers to elements.
//!
//! To round to a narrow float, it searches all values of the format.

use half::{bf16, f16};
use tilewright_cpu::kernels::buffer::Buffer;
pub use tilewright_fuzz::random::Random;
use tilewright_ir::Dtype;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i128),
    Float(f64),
}

/// Generates random elements.
pub trait RandomElements {
    /// Returns the bits of an element, which is often special or small.
    fn element(&mut self, dtype: Dtype) -> u64;

    /// Returns a tile of such elements.
    fn tile(&mut self, dtype: Dtype, elements: usize) -> Vec<u64>;
}

impl RandomElements for Random {
    fn element(&mut self, dtype: Dtype) -> u64 {
        let mask = if dtype.bits() == 64 { u64::MAX } else { (1 << dtype.bits()) - 1 };
        let special = specials(dtype);
        match self.below(4) {
            0 => special[self.below(special.len())],
            1 if dtype.is_int() => (self.bits() % 17).wrapping_sub(8) & mask,
            1 => encode(dtype, Number::Float((self.below(4001) as f64 - 2000.0) / 64.0)),
            _ => self.bits() & mask,
        }
    }

    fn tile(&mut self, dtype: Dtype, elements: usize) -> Vec<u64> {
        (0..elements).map(|_| self.element(dtype)).collect()
    }
}

pub fn specials(dtype: Dtype) -> Vec<u64> {
    let bits = dtype.bits();
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let mut list = vec![0, 1, mask, mask >> 1, (mask >> 1) + 1, 2 & mask, 3 & mask, mask - 1];
    match dtype {
        Dtype::F16 => list.extend([0x7c00, 0xfc00, 0x7e00, 0x3c00, 0x0400, 0x03ff, 0x7bff, 0xfbff, 0x8001]),
        Dtype::BF16 => list.extend([0x7f80, 0xff80, 0x7fc0, 0x3f80, 0x0080, 0x007f, 0x7f7f, 0xff7f, 0x8001]),
        Dtype::F32 => list.extend(
            [
                f32::INFINITY,
                -f32::INFINITY,
                f32::NAN,
                1.0,
                -1.0,
                f32::MIN_POSITIVE,
                1e-40,
                f32::MAX,
                f32::MIN,
                0.5,
                65504.0,
                65520.0,
                2147483648.0,
                -2147483648.0,
                2147483520.0,
                255.5,
                -0.9,
                9.223372e18,
                1.8446744e19,
            ]
            .map(|x| u64::from(x.to_bits())),
        ),
        Dtype::F64 => list.extend(
            [
                f64::INFINITY,
                -f64::INFINITY,
                f64::NAN,
                1.0,
                -1.0,
                f64::MIN_POSITIVE,
                1e-310,
                f64::MAX,
                f64::MIN,
                1.0 + f64::EPSILON,
                1.0 + 2f64.powi(-24),
                1.0 + 2f64.powi(-24) + 2f64.powi(-50),
                2147483647.5,
                -2147483648.9,
                4294967295.9,
                9.223372036854775e18,
                1.8446744073709552e19,
                1e-40,
                1.1e-45,
                0.7e-45,
                3.5e38,
                2f64.powi(-25),
                65519.999999,
            ]
            .map(f64::to_bits),
        ),
        _ => {}
    }
    list
}

pub fn decode(dtype: Dtype, bits: u64) -> Number {
    Number::Float(match dtype {
        Dtype::F8E5 => small_float(bits, 2, 15, true, false),
        Dtype::F8E4NV => small_float(bits, 3, 7, false, false),
        Dtype::F8E4B15 => small_float(bits, 3, 15, false, false),
        Dtype::F8E4B8 => small_float(bits, 3, 8, false, true),
        Dtype::F8E5B16 => small_float(bits, 2, 16, false, true),
        Dtype::F16 => f16::from_bits(bits as u16).to_f64(),
        Dtype::BF16 => bf16::from_bits(bits as u16).to_f64(),
        Dtype::F32 => f32::from_bits(bits as u32).into(),
        Dtype::F64 => f64::from_bits(bits),
        Dtype::I8 => return Number::Int((bits as i8).into()),
        Dtype::I16 => return Number::Int((bits as i16).into()),
        Dtype::I32 => return Number::Int((bits as i32).into()),
        Dtype::I64 => return Number::Int((bits as i64).into()),
        Dtype::I1 | Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => return Number::Int(bits.into()),
    })
}

fn small_float(bits: u64, mantissa: u32, bias: i32, infinities: bool, unsigned_zero: bool) -> f64 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = ((bits & 0x7f) >> mantissa) as i32;
    let fraction = (bits & ((1 << mantissa) - 1)) as f64 / f64::from(1 << mantissa);
    let largest = 0x7f >> mantissa;
    if unsigned_zero && bits == 0x80 {
        return f64::NAN;
    }
    if infinities && exponent == largest {
        return if fraction == 0.0 { sign * f64::INFINITY } else { f64::NAN.copysign(sign) };
    }
    // fp8e4nv, whose bias is 7, has one NaN of each sign; fp8e4b15 has no NaN.
    if !infinities && !unsigned_zero && bias == 7 && bits & 0x7f == 0x7f {
        return f64::NAN.copysign(sign);
    }
    if exponent == 0 {
        sign * fraction * 2f64.powi(1 - bias)
    } else {
        sign * (1.0 + fraction) * 2f64.powi(exponent - bias)
    }
}

fn values(dtype: Dtype) -> &'static [(f64, u64)] {
    use std::sync::OnceLock;
    static TABLES: [OnceLock<Vec<(f64, u64)>>; 18] = [const { OnceLock::new() }; 18];
    let index = Dtype::ALL.iter().position(|&other| other == dtype).expect("it is in the list");
    TABLES[index].get_or_init(|| {
        let mut all: Vec<(f64, u64)> = (0..1_u64 << (dtype.bits() - 1))
            .map(|bits| match decode(dtype, bits) {
                Number::Float(value) => (value, bits),
                Number::Int(_) => panic!("a float type"),
            })
            .filter(|(value, _)| value.is_finite())
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    })
}

fn compare(x: Number, y: f64) -> std::cmp::Ordering {
    match x {
        Number::Float(x) => x.partial_cmp(&y).expect("no NaN"),
        // Below 2^53, the integer is exact in binary64. Larger floats have no fraction.
        Number::Int(x) if x.unsigned_abs() < 1 << 53 => (x as f64).partial_cmp(&y).expect("no NaN"),
        Number::Int(x) => x.cmp(&(y as i128)),
    }
}

/// Rounds a number to nearest even, and returns its bits.
pub fn encode(dtype: Dtype, number: Number) -> u64 {
    round(dtype, number, false)
}

/// Rounds a number like a cast, and returns its bits.
pub fn round(dtype: Dtype, number: Number, towards_zero: bool) -> u64 {
    let mask = if dtype.bits() == 64 { u64::MAX } else { (1 << dtype.bits()) - 1 };
    match (dtype, number) {
        (Dtype::I1, Number::Int(x)) => u64::from(x != 0),
        (Dtype::I1, Number::Float(x)) => u64::from(x != 0.0),
        (_, Number::Int(x)) if dtype.is_int() => x as u64 & mask,
        (_, Number::Float(x)) if dtype.is_int() => {
            let (low, high) = dtype.int_range().expect("an integer type");
            (x as i128).clamp(low, high) as u64 & mask
        }
        (Dtype::F64, Number::Float(x)) => x.to_bits(),
        (Dtype::F64, Number::Int(x)) if !towards_zero => (x as f64).to_bits(),
        (Dtype::F64, Number::Int(x)) => {
            let nearest = x as f64;
            let above = (nearest as i128).unsigned_abs() > x.unsigned_abs();
            nearest.to_bits() - u64::from(above)
        }
        (Dtype::F32, Number::Float(x)) if !towards_zero => (x as f32).to_bits().into(),
        (Dtype::F32, Number::Int(x)) if !towards_zero => (x as f32).to_bits().into(),
        (Dtype::F32, _) => {
            let nearest = match number {
                Number::Float(x) => x as f32,
                Number::Int(x) => x as f32,
            };
            if nearest.is_nan() {
                return nearest.to_bits().into();
            }
            let order = compare(number, nearest.into());
            let above = (nearest > 0.0 && order.is_lt()) || (nearest < 0.0 && order.is_gt());
            (nearest.to_bits() - u32::from(above)).into()
        }
        _ => round_narrow(dtype, number, towards_zero),
    }
}

fn round_narrow(dtype: Dtype, number: Number, towards_zero: bool) -> u64 {
    let table = values(dtype);
    let sign_bit = 1_u64 << (dtype.bits() - 1);
    let (negative, magnitude) = match number {
        Number::Float(x) => (x.is_sign_negative(), Number::Float(x.abs())),
        Number::Int(x) => (x < 0, Number::Int(x.abs())),
    };
    let no_negative_zero = matches!(dtype, Dtype::F8E4B8 | Dtype::F8E5B16);
    let has_infinity = matches!(dtype, Dtype::F16 | Dtype::BF16);
    let infinity = table.last().expect("there are values").1 + 1;
    let &(largest, largest_bits) = table.last().expect("there are values");
    if let Number::Float(x) = magnitude
        && x.is_nan()
    {
        return match dtype {
            Dtype::F8E4B15 => largest_bits | if negative { sign_bit } else { 0 },
            Dtype::F8E4B8 | Dtype::F8E5B16 => 0x80,
            _ => sign_bit - 1, // any NaN
        };
    }
    let index = table.partition_point(|&(value, _)| compare(magnitude, value).is_ge());
    let (below, below_bits) = table[index - 1];
    let bits = if index == table.len() {
        let is_infinite = magnitude == Number::Float(f64::INFINITY);
        // The value after the largest one, without a limit of the exponent.
        let next = largest + (largest - table[table.len() - 2].0);
        if has_infinity
            && (is_infinite || (!towards_zero && compare(magnitude, (largest + next) / 2.0).is_ge()))
        {
            infinity
        } else {
            largest_bits
        }
    } else {
        let (above, above_bits) = table[index];
        match compare(magnitude, (below + above) / 2.0) {
            _ if towards_zero => below_bits,
            std::cmp::Ordering::Less => below_bits,
            std::cmp::Ordering::Equal if below_bits % 2 == 0 => below_bits,
            std::cmp::Ordering::Greater | std::cmp::Ordering::Equal => above_bits,
        }
    };
    if negative && !(no_negative_zero && bits == 0) { bits | sign_bit } else { bits }
}

pub fn same(dtype: Dtype, a: u64, b: u64) -> bool {
    let nan = |bits| matches!(decode(dtype, bits), Number::Float(x) if x.is_nan());
    a == b || (nan(a) && nan(b))
}

pub fn pack(dtype: Dtype, elements: &[u64]) -> Buffer {
    let size = dtype.bytes();
    let mut buffer = Buffer::new(elements.len() * size);
    for (bytes, element) in buffer.bytes_mut().chunks_exact_mut(size).zip(elements) {
        bytes.copy_from_slice(&element.to_le_bytes()[..size]);
    }
    buffer
}

pub fn unpack(dtype: Dtype, bytes: &[u8]) -> Vec<u64> {
    let element = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    bytes.chunks_exact(dtype.bytes()).map(element).collect()
}
