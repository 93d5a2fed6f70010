//! Emits linear maps of the thread id, such as coordinates and offsets.

use tilewright_layout::{Input, Transfer};

use super::builder::{Scalar, Width};
use super::integer::Bitwise;
use super::{LANES, Lowering};
use crate::isa::{self, Comparison, SpecialRegister};

impl Lowering<'_> {
    /// Returns the value of a special register.
    pub(super) fn special(&mut self, register: SpecialRegister) -> Scalar {
        self.builder.pure(Width::B32, |d| isa::Mov {
            ty: isa::ScalarType::B32,
            d: d.into(),
            a: register.into(),
        })
    }

    /// Returns the thread id in the block or the partition. The low five bits are the lane, the
    /// others the warp.
    pub(super) fn thread(&mut self) -> Scalar {
        let first = u64::from(self.warps.first * LANES);
        self.special(SpecialRegister::TidX).plus(Width::B32, first.wrapping_neg())
    }

    /// Returns the xor of the images of the thread id's bits. `images[i]` is the image of bit `i`.
    pub(super) fn linear(&mut self, images: &[u32]) -> Scalar {
        // Bits that move by the same distance share a shift.
        let mut distances: Vec<(i32, u32)> = Vec::new();
        let (mut written, mut overlaps) = (0_u32, false);
        for (bit, image) in images.iter().enumerate() {
            overlaps |= written & image != 0;
            written |= image;
            for to in (0..32).filter(|to| image >> to & 1 == 1) {
                let distance = to - bit as i32;
                match distances.iter_mut().find(|(known, _)| *known == distance) {
                    Some((_, mask)) => *mask |= 1 << bit,
                    None => distances.push((distance, 1 << bit)),
                }
            }
        }
        let all = self.thread_mask();
        let mut sum = Scalar::constant(0);
        for (distance, mask) in distances {
            let thread = self.thread();
            let moved = if distance < 0 {
                // The shift also drops the bits below `distance`.
                let distance = distance.unsigned_abs();
                let shifted = self.builder.shr(Width::B32, false, thread, distance);
                if mask >> distance == all >> distance {
                    shifted
                } else {
                    self.mask(shifted, mask >> distance)
                }
            } else {
                let kept = if mask == all { thread } else { self.mask(thread, mask) };
                self.builder.shl(Width::B32, kept, distance as u32)
            };
            let operation = if overlaps { Bitwise::Xor } else { Bitwise::Or };
            sum = self.builder.bitwise(operation, Width::B32, sum, moved);
        }
        self.builder.note_bound(Width::B32, sum, Some(written.into()));
        sum
    }

    pub(super) fn mask(&mut self, value: Scalar, mask: u32) -> Scalar {
        self.builder.bitwise(Bitwise::And, Width::B32, value, Scalar::constant(mask.into()))
    }

    fn thread_mask(&self) -> u32 {
        self.warps.count.next_power_of_two() * LANES - 1
    }

    /// XORs a constant to `thread_part`, the [`Self::linear`] of `images`.
    pub(super) fn displaced(&mut self, thread_part: Scalar, images: &[u32], constant: u32) -> Scalar {
        let reached = images.iter().fold(0, |any, image| any | image);
        if reached & constant == 0 {
            return thread_part.plus(Width::B32, constant.into());
        }
        // Bits that no thread sets are added, because an address can include an added constant.
        let xor = Scalar::constant((constant & reached).into());
        let part = self.builder.bitwise(Bitwise::Xor, Width::B32, thread_part, xor);
        part.plus(Width::B32, (constant & !reached).into())
    }

    /// Returns the image of each bit of the thread id under `map`.
    pub(super) fn thread_images(map: &Transfer) -> Vec<u32> {
        [map.bases(Input::Lane), map.bases(Input::Warp)].concat()
    }

    /// Returns whether these lane and warp bits are all 0.
    pub(super) fn is_first(&mut self, lanes: u32, warps: u32) -> Scalar {
        let mask = lanes | (warps * LANES);
        if mask == 0 {
            return Scalar::TRUE;
        }
        let thread = self.thread();
        let bits = if mask == self.thread_mask() { thread } else { self.mask(thread, mask) };
        self.builder.compare(Width::B32, true, Comparison::Eq, bits, Scalar::constant(0))
    }

    /// Returns whether these lane and warp bits have odd parity.
    pub(super) fn parity(&mut self, lanes: u32, warps: u32) -> Scalar {
        let mask = lanes | (warps * LANES);
        let thread = self.thread();
        let bits = self.mask(thread, mask);
        if mask.is_power_of_two() {
            return self.builder.compare(Width::B32, true, Comparison::Ne, bits, Scalar::constant(0));
        }
        let a = self.builder.source(Width::B32, bits);
        let count = self.builder.pure(Width::B32, |d| isa::Popc { ty: isa::ScalarType::B32, d, a });
        let odd = self.mask(count, 1);
        self.builder.compare(Width::B32, true, Comparison::Ne, odd, Scalar::constant(0))
    }
}
