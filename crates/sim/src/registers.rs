//! Implements the registers of a warp: 32 lanes of 64 bits each.
//!
//! Every operand is a register. Constants, addresses and unchanging special registers are filled
//! before the warp starts. Narrower values are zero-extended, and a predicate is 0 or 1. A value of
//! 128 bits has two registers, low half first.

pub const LANES: usize = 32;

/// One value a lane.
pub type Lanes = [u64; LANES];

/// A register, by its index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slot(pub u32);

impl Slot {
    /// Returns the next register: the upper half of a value of 128 bits.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

#[derive(Clone)]
pub struct Registers {
    file: Vec<Lanes>,
    /// The lanes that have written each register, if tracked.
    written: Vec<u32>,
}

impl Registers {
    /// Creates a file of `count` registers, all zero.
    pub fn new(count: usize) -> Self {
        Self { file: vec![[0; LANES]; count], written: Vec::new() }
    }

    pub fn all(&self) -> &[Lanes] {
        &self.file
    }

    /// Begins to track which lanes have written each register.
    pub fn keep_written(&mut self) {
        self.written = vec![0; self.file.len()];
    }

    /// Returns whether written lanes are tracked.
    pub fn keeps_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// Marks lanes that have written a register.
    pub fn mark_written(&mut self, slot: Slot, lanes: u32) {
        self.written[slot.0 as usize] |= lanes;
    }

    /// Returns the lanes that have written a register.
    pub fn written(&self, slot: Slot) -> u32 {
        self.written[slot.0 as usize]
    }

    /// Returns the value of every lane.
    #[inline]
    pub fn get(&self, slot: Slot) -> &Lanes {
        &self.file[slot.0 as usize]
    }

    /// Returns the lanes for modification. The caller may change only the executing lanes.
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

    /// Returns the lanes in which a predicate holds.
    #[inline]
    pub fn mask(&self, slot: Slot) -> u32 {
        self.get(slot).iter().enumerate().fold(0, |mask, (lane, value)| mask | ((*value & 1) as u32) << lane)
    }
}

/// Iterates over the lanes of a mask, in order.
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
