//! Compares descriptors with the canonical layouts of the PTX ISA in `CuTe` notation.
//!
//! A coordinate has pairs (extent, stride), with strides in elements. The swizzle applies to the
//! byte address.

use super::*;

const BITS: [u32; 3] = [8, 16, 32];

fn element(bits: u32) -> Element {
    match bits {
        8 => Element::U8,
        16 => Element::Bf16,
        _ => Element::S32,
    }
}

/// Evaluates one mode of a `CuTe` layout: splits a coordinate into digits of these extents.
fn cute(mut coordinate: u32, digits: &[(u32, u32)]) -> u32 {
    let mut offset = 0;
    for &(extent, stride) in digits {
        offset += coordinate % extent * stride;
        coordinate /= extent;
    }
    offset
}

/// `Swizzle<bits, base, 7 - base>` of `CuTe` on byte addresses.
fn cute_swizzle((bits, base): (u32, u32), address: u32) -> u32 {
    let source = address >> 7 & ((1 << bits) - 1);
    address ^ source << base
}

/// Returns the byte offset of element (row, k) by the table "canonical layouts" of the ISA, whose
/// strides are in elements. Its `t` is the number of elements in 16 bytes.
fn canonical(
    major: Major,
    swizzle: Swizzle,
    bytes: u32,
    (leading, stride): (u32, u32),
    (row, k): (u32, u32),
) -> u32 {
    const MANY: u32 = 1 << 20;
    let t = 16 / bytes;
    let (lbo, sbo) = (leading / bytes, stride / bytes);
    let wide = swizzle.line_bytes() / 16;
    let elements = match (major, swizzle) {
        (Major::K, Swizzle::None) => cute(row, &[(8, t), (MANY, sbo)]) + cute(k, &[(t, 1), (MANY, lbo)]),
        (Major::K, _) => cute(row, &[(8, wide * t), (MANY, sbo)]) + cute(k, &[(t, 1), (MANY, t)]),
        (Major::Mn, Swizzle::None) => cute(row, &[(t, 1), (MANY, sbo)]) + cute(k, &[(8, t), (MANY, lbo)]),
        (Major::Mn, Swizzle::Bytes128Pairs) => {
            cute(row, &[(t, 1), (wide, t), (MANY, lbo)]) + cute(k, &[(4, wide * t), (MANY, sbo)])
        }
        (Major::Mn, _) => {
            cute(row, &[(t, 1), (wide, t), (MANY, lbo)]) + cute(k, &[(8, wide * t), (MANY, sbo)])
        }
    };
    elements * bytes
}

/// The swizzles, each with its bits and its base in `CuTe`.
const SWIZZLES: [(Swizzle, (u32, u32)); 5] = [
    (Swizzle::None, (0, 4)),
    (Swizzle::Bytes32, (1, 4)),
    (Swizzle::Bytes64, (2, 4)),
    (Swizzle::Bytes128, (3, 4)),
    (Swizzle::Bytes128Pairs, (2, 5)),
];

#[test]
fn every_layout_is_the_canonical_one() {
    let (leading, stride, start) = (1024, 8192, 8192);
    for bits in BITS {
        for (swizzle, log) in SWIZZLES {
            for major in [Major::K, Major::Mn] {
                if (major, swizzle) == (Major::K, Swizzle::Bytes128Pairs) {
                    continue;
                }
                let descriptor = Descriptor { start, leading, stride, base_offset: 0, swizzle };
                let (rows, depth) = (32_usize, 256 / bits as usize);
                let mut memory = vec![0u8; 1 << 17];
                let mut expected = Matrix::new(rows, depth);
                for row in 0..rows {
                    for k in 0..depth {
                        let at = (row as u32, k as u32);
                        let offset = canonical(major, swizzle, bits / 8, (leading, stride), at);
                        let at = cute_swizzle(log, start + offset) as usize;
                        let value = (row * depth + k) as u64 & (u64::MAX >> (64 - bits));
                        let bytes = bits as usize / 8;
                        memory[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
                        expected[(row, k)] = value;
                    }
                }
                let mask = u64::MAX >> (64 - bits);
                let read = |address: u32| {
                    let at = address as usize;
                    Ok::<_, ()>(u128::from_le_bytes(memory[at..at + 16].try_into().unwrap()))
                };
                let got = descriptor
                    .read(
                        0..rows,
                        depth,
                        (element(bits), 128 / bits as usize),
                        major,
                        |_, bits| bits & mask,
                        read,
                    )
                    .unwrap();
                assert!(got == expected, "{major:?} {swizzle:?} {bits} bits");
            }
        }
    }
}

#[test]
fn a_tile_that_a_tensor_copy_places_is_found() {
    // Chunk c of row r of a box of 64 by 128 bytes is at chunk c xor (r % 8). Each step along k
    // advances by 32 bytes, inside the pattern.
    let start = 3 * 1024;
    let mut memory = vec![0u8; 16384];
    for row in 0..64 {
        for byte in 0..128 {
            let chunk = (byte / 16) ^ (row % 8);
            memory[start + row * 128 + chunk * 16 + byte % 16] = (row * 7 + byte) as u8;
        }
    }
    for step in 0..4 {
        let bits = ((start + step * 32) as u64 >> 4) | (1 << 16) | (1024 >> 4) << 32 | 1 << 62;
        let descriptor = Descriptor::from(bits);
        assert_eq!(descriptor.swizzle, Swizzle::Bytes128);
        let read = |address: u32| {
            let at = address as usize;
            Ok::<_, ()>(u128::from_le_bytes(memory[at..at + 16].try_into().unwrap()))
        };
        let tile =
            descriptor.read(0..64, 32, (Element::U8, 16), Major::K, |_, bits| bits as u8, read).unwrap();
        for row in 0..64 {
            for k in 0..32 {
                assert_eq!(tile[(row, k)], (row * 7 + step * 32 + k) as u8, "row {row}, k {k}, step {step}");
            }
        }
    }
}

#[test]
fn the_base_offset_shifts_the_pattern() {
    // The start address is 3 * 128, and the base offset is (start >> 7) & 7.
    let descriptor =
        Descriptor { start: 384, leading: 16, stride: 1024, base_offset: 3, swizzle: Swizzle::Bytes128 };
    for row in 0..8 {
        assert_eq!(descriptor.address(Major::K, row, 0), 384 + row * 128 + row * 16);
    }
}
