//! Generates random accesses to memory, which stay in the arena.

use tilewright_native::Place;
use tilewright_native::ir::{Binary, IntBinary, Lane, Value};

use super::{ARENA, DATA, Generator, Kind, REGION, REGIONS};

impl Generator {
    /// Returns the offset of a random region of a kind.
    pub(super) fn region(&mut self, kind: Kind) -> usize {
        let regions: Vec<usize> = (0..REGIONS).filter(|&index| self.layout[index] == kind).collect();
        REGION * self.random.pick(&regions)
    }

    /// Returns the offset of a region for this type, and the alignment of its elements.
    pub(super) fn region_of(&mut self, lane: Lane) -> (usize, usize) {
        match lane {
            Lane::F32 => (self.region(Kind::Single), 4),
            Lane::F64 => (self.region(Kind::Double), 8),
            Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => (self.region(Kind::Integers), 1),
        }
    }

    /// Returns an address for `bytes` bytes in the first half of the region at `start`.
    pub(super) fn place(&mut self, start: usize, bytes: usize, align: usize) -> Place {
        let argument = self.builder.argument();
        let last = DATA - bytes;
        match self.random.below(5) {
            0 if align <= 8 => {
                // The address has an index, which may be negative.
                let scale = self.random.pick(&[1, 2, 4, 8]);
                let mask = self.random.pick(&[7, 31, 63]) & !(align as i64 - 1);
                let x = self.int();
                let mut index = self.int_mod(x, mask);
                let mut offset = self.within(start, last - mask as usize * usize::from(scale), align);
                if self.random.chance(30) {
                    index = self.add(index, -16);
                    offset += 16 * i32::from(scale);
                }
                Place { base: argument, index: Some((index, scale)), offset }
            }
            1 if align <= 8 => {
                let x = self.int();
                let more = self.int_mod(x, 0x78);
                let base = self.builder.int_binary(IntBinary::Add, argument, more);
                Place { base, index: None, offset: self.within(start, last - 0x78, align) }
            }
            2 => {
                let distance = self.random.pick(&[
                    0x40,
                    0x1234_5600,
                    i64::from(i32::MAX) - ARENA as i64,
                    i64::from(i32::MIN),
                ]);
                let base = self.add(argument, -distance);
                let offset = self.within(start, last, align);
                let zero = self.builder.int(0);
                let index = self.random.chance(30).then_some((zero, 8));
                Place { base, index, offset: offset + distance as i32 }
            }
            _ => Place { base: argument, index: None, offset: self.within(start, last, align) },
        }
    }

    /// Returns a multiple of `align` in `start..=start + last`. Half of the calls return an earlier
    /// offset, so that loads follow stores to the same bytes.
    pub(super) fn within(&mut self, start: usize, last: usize, align: usize) -> i32 {
        let range = start as i32..=(start + last) as i32;
        let fits = |offset: &i32| range.contains(offset) && offset % align as i32 == 0;
        if self.random.chance(50)
            && let Some(&offset) = self.recent_places.iter().rev().find(|&offset| fits(offset))
        {
            return offset;
        }
        let offset = (start + self.random.below(last / align + 1) * align) as i32;
        self.recent_places.push(offset);
        offset
    }

    pub(super) fn vector_bytes(&self, lane: Lane) -> usize {
        self.builder.lanes() * lane.bytes()
    }

    pub(super) fn load_int(&mut self) -> Value {
        let bytes: u8 = self.random.pick(&[1, 2, 4, 8, 8]);
        let start = self.region(Kind::Integers);
        let offset = self.within(start, DATA - 8, 1);
        let argument = self.builder.argument();
        self.builder.int_load(bytes, argument, offset)
    }

    pub(super) fn load_vector(&mut self, lane: Lane) -> Value {
        let (start, align) = self.region_of(lane);
        let place = self.place(start, self.vector_bytes(lane), align);
        self.builder.load(lane, place, None)
    }

    pub(super) fn load(&mut self) -> Value {
        let lane = self.lane();
        let (start, align) = self.region_of(lane);
        match self.random.below(6) {
            0 => {
                let place = self.place(start, lane.bytes(), align);
                self.builder.load_splat(lane, place)
            }
            1 => {
                let (place, mask) = self.edge(lane);
                self.builder.load(lane, place, Some(mask))
            }
            2 | 3 => {
                let place = self.place(start, self.vector_bytes(lane), align);
                let mask = self.mask();
                self.builder.load(lane, place, Some(mask))
            }
            _ => self.load_vector(lane),
        }
    }

    pub(super) fn store(&mut self) {
        let lane = self.lane();
        let value = self.vector(lane);
        let (start, align) = self.region_of(lane);
        let bytes = self.vector_bytes(lane);
        match self.random.below(7) {
            0 => {
                let place = self.place(start, bytes, bytes);
                self.builder.store(place, value, None, true);
            }
            1 => {
                let (place, mask) = self.edge(lane);
                self.builder.store(place, value, Some(mask), false);
            }
            2 | 3 => {
                let place = self.place(start, bytes, align);
                let mask = self.mask();
                self.builder.store(place, value, Some(mask), false);
            }
            _ => {
                let place = self.place(start, bytes, align);
                self.builder.store(place, value, None, false);
            }
        }
    }

    /// Returns an address, and a mask that is false in the first or last lanes, which may be
    /// outside of the arena.
    pub(super) fn edge(&mut self, lane: Lane) -> (Place, Value) {
        let lanes = self.builder.lanes();
        let base = self.builder.argument();
        let off = 1 + self.random.below(lanes - 1);
        let (start, _) = self.region_of(lane);
        let all = (1 << lanes) - 1;
        let (bits, offset) = if start == 0 {
            (all << off & all, -((off * lane.bytes()) as i64))
        } else {
            // The last lanes are past the end of the region.
            let end = start + REGION;
            (all >> off, (end - (lanes - off) * lane.bytes()) as i64)
        };
        let place = Place { base, index: None, offset: offset as i32 };
        let mask = if self.random.chance(50) && start != 0 {
            let x = self.int();
            let x = self.int_mod(x, 31);
            let count = self.builder.int((lanes - off) as i64);
            let count = self.builder.int_binary(IntBinary::Min, x, count);
            self.builder.first_lanes(count)
        } else {
            // The mask is not constant.
            let x = self.int();
            let x = if self.random.chance(50) {
                self.int_mod(x, bits)
            } else {
                let bits = self.builder.int(bits);
                let x = self.builder.int_binary(IntBinary::Or, x, bits);
                self.builder.int_binary(IntBinary::And, x, bits)
            };
            self.builder.mask_of_bits(x)
        };
        (place, mask)
    }

    pub(super) fn gather_or_scatter(&mut self) {
        let lane = match self.lane() {
            Lane::I8 => Lane::I32,
            Lane::I16 => Lane::I64,
            lane @ (Lane::I32 | Lane::I64 | Lane::F32 | Lane::F64) => lane,
        };
        let (start, align) = self.region_of(lane);
        let mask = self.mask();
        let x = self.vector(Lane::I64);
        let kept = self.builder.constant(Lane::I64, 0x1ff & !(align as u64 - 1));
        let mut offsets = self.builder.binary(Binary::And, x, kept);
        let argument = self.builder.argument();
        let mut displacement = start as i64;
        if self.random.chance(50) {
            let distance = self.builder.constant(Lane::I64, 256);
            offsets = self.builder.binary(Binary::Sub, offsets, distance);
            displacement += 256;
        }
        let base = self.add(argument, displacement);
        if self.random.chance(50) {
            // Masked-off lanes have any offset.
            offsets = self.builder.select(mask, offsets, x);
        }
        if self.random.chance(50) {
            let value = self.builder.gather(lane, base, offsets, mask);
            self.values.push(value);
        } else {
            let value = self.vector(lane);
            self.builder.scatter(base, offsets, value, mask);
        }
    }

    pub(super) fn int_memory(&mut self) -> Value {
        let start = self.region(Kind::Integers);
        if self.random.chance(50) {
            let bytes = self.random.pick(&[1, 2, 4, 8]);
            let value = self.int();
            let place = self.place(start, 8, 1);
            let base = match place.index {
                None => place.base,
                Some((index, _)) => self.builder.int_binary(IntBinary::Add, place.base, index),
            };
            self.builder.int_store(bytes, base, place.offset, value);
        }
        self.load_int()
    }
}
