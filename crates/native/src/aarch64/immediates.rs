//! Encodes constants as immediate fields of instructions.

/// Returns the immediate field of an addition: a constant from 0 to 4095, or such a constant
/// shifted to the left by 12 bits.
pub fn addition(value: i64) -> Option<u32> {
    match value {
        0..0x1000 => Some((value as u32) << 10),
        0x1000..0x100_0000 if value.trailing_zeros() >= 12 => Some((1 << 22) | ((value as u32 >> 12) << 10)),
        _ => None,
    }
}

/// Returns the immediate fields of a bitwise operation, or `None` if the constant has no encoding.
/// An encodable constant repeats an element of 2 to 64 bits, which is a rotated run of ones: for
/// example, `0x00ff_00ff_00ff_00ff`.
pub fn bitwise(value: u64) -> Option<u32> {
    if value == 0 || value == u64::MAX {
        return None;
    }
    let mut size = 64;
    while size > 2 {
        let half = size / 2;
        if (value ^ value >> half) & (u64::MAX >> (64 - half)) != 0 {
            break;
        }
        size = half;
    }
    let mask = u64::MAX >> (64 - size);
    let ones = (value & mask).count_ones();
    let run = (1 << ones) - 1;
    let rotated = |count: u32| (run >> count | run << (size - count)) & mask;
    let rotation = (0..size).find(|&count| if count == 0 { run } else { rotated(count) } == value & mask)?;
    let is_whole = u32::from(size == 64);
    let length = !(size - 1) << 1 & 0x3f | (ones - 1);
    Some(is_whole << 22 | rotation << 16 | length << 10)
}

/// Returns the fields of the 8-bit immediate of a vector constant.
pub fn vector_byte(bits: u32) -> u32 {
    (bits >> 5) << 16 | (bits & 31) << 5
}

/// Returns the 8 bits that `fmov` expands to this binary32, if there are any.
pub fn single(bits: u32) -> Option<u32> {
    let exponent = bits >> 25 & 0x3f;
    let is_short = bits.trailing_zeros() >= 19 && matches!(exponent, 0x20 | 0x1f);
    is_short.then_some(bits >> 24 & 0x80 | (exponent & 1) << 6 | bits >> 19 & 0x3f)
}

/// Returns the 8 bits that `fmov` expands to this binary64, if there are any.
pub fn double(bits: u64) -> Option<u32> {
    let exponent = (bits >> 54) as u32 & 0x1ff;
    let is_short = bits.trailing_zeros() >= 48 && matches!(exponent, 0x100 | 0xff);
    is_short.then_some((bits >> 56) as u32 & 0x80 | (exponent & 1) << 6 | (bits >> 48) as u32 & 0x3f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the constant of a bitwise operation by the pseudocode of the architecture.
    fn decoded(fields: u32) -> u64 {
        let (n, rotation, length) = (fields >> 22 & 1, fields >> 16 & 0x3f, fields >> 10 & 0x3f);
        let size = 1 << (n << 6 | !length & 0x3f).ilog2();
        let (ones, rotation) = (length & (size - 1), rotation & (size - 1));
        let run = u64::MAX >> (63 - ones);
        let mask = u64::MAX >> (64 - size);
        let element = if rotation == 0 { run } else { (run >> rotation | run << (size - rotation)) & mask };
        (0..64).step_by(size as usize).fold(0, |bits, at| bits | element << at)
    }

    #[test]
    fn bitwise_constants_decode_to_themselves() {
        let mut count = 0;
        for size in [2, 4, 8, 16, 32, 64] {
            for ones in 1..size {
                for rotation in 0..size {
                    let run = u64::MAX >> (64 - ones);
                    let mask = u64::MAX >> (64 - size);
                    let element =
                        if rotation == 0 { run } else { (run << rotation | run >> (size - rotation)) & mask };
                    let value = (0..64).step_by(size as usize).fold(0, |bits, at| bits | element << at);
                    assert_eq!(decoded(bitwise(value).expect("the constant fits")), value, "{value:#x}");
                    count += 1;
                }
            }
        }
        assert_eq!(count, 5334);
        for value in [0, u64::MAX, 5, 0x1234, 0xff00_00ff_0000_0000] {
            assert_eq!(bitwise(value), None, "{value:#x}");
        }
    }

    #[test]
    fn short_floats_decode_to_themselves() {
        for bits in 0..256_u32 {
            let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
            let exponent = (bits >> 4 & 7) as i32;
            let exponent = if exponent >= 4 { exponent - 7 } else { exponent + 1 };
            let value = sign * f64::from(16 + (bits & 15)) / 16.0 * 2_f64.powi(exponent);
            assert_eq!(double(value.to_bits()), Some(bits), "{value}");
            assert_eq!(single((value as f32).to_bits()), Some(bits), "{value}");
        }
        for value in [0.0, 0.1, 1.03, 1e9, 33.5] {
            assert_eq!((double(f64::to_bits(value)), single(f32::to_bits(value as f32))), (None, None));
        }
    }
}
