//! The registers of a warp: each is 32 lanes of 64 bits.
//!
//! Everything that an instruction reads is a register: constants, addresses of variables and special registers get one
//! that is filled before the warp starts. A value narrower than 64 bits stands in the low bits, zero above, whether it is
//! signed or not; a predicate is 0 or 1; a value of 128 bits takes two registers, the low half first.

/// How many lanes a warp has.
pub const LANES: usize = 32;

/// One value a lane.
pub type Lanes = [u64; LANES];

/// A register, by its place in the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slot(pub u32);

impl Slot {
    /// The register behind this one: the upper half of a value of 128 bits.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The register file of a warp.
#[derive(Clone)]
pub struct Registers {
    file: Vec<Lanes>,
    /// Of each, the lanes that have written it, where somebody asks.
    written: Vec<u32>,
}

impl Registers {
    /// A file of so many registers, all zero.
    pub fn new(count: usize) -> Self {
        Self { file: vec![[0; LANES]; count], written: Vec::new() }
    }

    /// The values of all.
    pub fn all(&self) -> &[Lanes] {
        &self.file
    }

    /// Begins to keep which lanes have written a register.
    pub fn keep_written(&mut self) {
        self.written = vec![0; self.file.len()];
    }

    /// Whether it is kept which lanes have written a register.
    pub fn keeps_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// Lanes have written a register.
    pub fn mark_written(&mut self, slot: Slot, lanes: u32) {
        self.written[slot.0 as usize] |= lanes;
    }

    /// The lanes that have written a register.
    pub fn written(&self, slot: Slot) -> u32 {
        self.written[slot.0 as usize]
    }

    /// The value of every lane.
    #[inline]
    pub fn get(&self, slot: Slot) -> &Lanes {
        &self.file[slot.0 as usize]
    }

    /// The value of every lane, to be changed; only lanes that execute may be.
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> &mut Lanes {
        &mut self.file[slot.0 as usize]
    }

    /// Writes the lanes of a mask.
    #[inline]
    pub fn set(&mut self, slot: Slot, mask: u32, values: &Lanes) {
        let register = &mut self.file[slot.0 as usize];
        if mask == u32::MAX {
            *register = *values;
            return;
        }
        for (lane, (register, value)) in register.iter_mut().zip(values).enumerate() {
            if mask >> lane & 1 == 1 {
                *register = *value;
            }
        }
    }

    /// The lanes in which a predicate holds.
    #[inline]
    pub fn mask(&self, slot: Slot) -> u32 {
        self.get(slot).iter().enumerate().fold(0, |mask, (lane, value)| mask | ((*value & 1) as u32) << lane)
    }
}

/// The lanes of a mask, in order.
#[inline]
pub fn lanes_of(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            lane
        })
    })
}
