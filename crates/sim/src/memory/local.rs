//! Implements the local memory of a warp, with its uninitialized bytes.

use std::ops::Range;

use super::Space;
use crate::fault::{FaultKind, Outcome};
use crate::registers::LANES;

pub struct Local {
    /// The bytes of all lanes, lane by lane.
    bytes: Vec<u8>,
    is_written: Vec<bool>,
}

impl Local {
    /// Creates uninitialized memory of `bytes` bytes per lane.
    pub fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes * LANES], is_written: vec![false; bytes * LANES] }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of bytes of a lane.
    fn len(&self) -> usize {
        self.bytes.len() / LANES
    }

    /// Grows the memory to at least `bytes` bytes per lane.
    pub fn grow(&mut self, bytes: usize) {
        let (before, after) = (self.len(), bytes.next_power_of_two());
        let mut grown = Self::new(after);
        for lane in 0..LANES {
            let (from, to) = (lane * before..(lane + 1) * before, lane * after..lane * after + before);
            grown.bytes[to.clone()].copy_from_slice(&self.bytes[from.clone()]);
            grown.is_written[to].copy_from_slice(&self.is_written[from]);
        }
        *self = grown;
    }

    /// Returns whether each lane has at least `bytes` bytes.
    pub fn holds(&self, bytes: usize) -> bool {
        bytes <= self.len()
    }

    /// Copies bytes of a lane, initialized or not.
    pub fn copy(&mut self, lane: usize, from: Range<usize>, to: usize) {
        let start = lane * self.len();
        let from = start + from.start..start + from.end;
        self.bytes.copy_within(from.clone(), start + to);
        self.is_written.copy_within(from, start + to);
    }

    fn place(&self, lane: usize, offset: u64, bytes: usize, is_store: bool) -> Outcome<Range<usize>> {
        let len = self.len();
        if offset.checked_add(bytes as u64).is_none_or(|end| end > len as u64) {
            let past = (offset as i64).saturating_add(bytes as i64).saturating_sub(len as i64);
            let (space, nearest) = (Space::Local, Some((0, past)));
            let kind =
                FaultKind::OutOfBounds { space, is_store, address: offset, bytes: bytes as u32, nearest };
            return Err(kind.into());
        }
        let start = lane * len + offset as usize;
        Ok(start..start + bytes)
    }

    /// Reads bytes of a lane, which must be within bounds and initialized.
    pub fn read(&self, lane: usize, offset: u64, to: &mut [u8]) -> Outcome {
        let place = self.place(lane, offset, to.len(), false)?;
        if let Some(byte) = self.is_written[place.clone()].iter().position(|is_written| !is_written) {
            let at = offset + byte as u64;
            let text = format!("reads uninitialized local memory at {at:#x}");
            return Err(FaultKind::Illegal(text).into());
        }
        to.copy_from_slice(&self.bytes[place]);
        Ok(())
    }

    /// Writes bytes of a lane.
    pub fn write(&mut self, lane: usize, offset: u64, from: &[u8]) -> Outcome {
        let place = self.place(lane, offset, from.len(), true)?;
        self.bytes[place.clone()].copy_from_slice(from);
        self.is_written[place].fill(true);
        Ok(())
    }
}
