//! Implements the shared memory of a block, with the shadow that checks each access.

use rustc_hash::FxHashMap;

use super::Space;
use super::clock::{Agent, Clock};
use super::shadow::{Proxy, Record, Shadow};
use crate::fault::{FaultKind, Outcome};

/// The agent and the properties of an access.
#[derive(Clone, Copy, Debug)]
pub struct Accessor<'a> {
    pub agent: &'a Agent,
    pub instruction: u32,
    pub proxy: Proxy,
    /// True if the access is atomic or volatile.
    pub is_atomic: bool,
}

impl<'a> Accessor<'a> {
    pub fn generic(agent: &'a Agent, instruction: u32, is_atomic: bool) -> Self {
        Self { agent, instruction, proxy: Proxy::Generic, is_atomic }
    }

    pub fn record(&self, is_write: bool) -> Record {
        Record {
            agent: self.agent.index as u32,
            step: self.agent.step(),
            instruction: self.instruction,
            proxy: self.proxy,
            is_atomic: self.is_atomic,
            is_write,
        }
    }
}

pub struct Shared {
    bytes: Vec<u8>,
    shadow: Shadow,
    /// The clock that an acquiring access at an offset joins.
    published: FxHashMap<u64, Clock>,
}

impl Shared {
    /// Creates uninitialized memory of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], shadow: Shadow::new(bytes), published: FxHashMap::default() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the first read of an uninitialized byte, as [`Shadow::unwritten`].
    pub fn unwritten(&self) -> Option<(u32, Record)> {
        self.shadow.unwritten()
    }

    fn bounds(&self, address: u64, bytes: usize, is_store: bool) -> Outcome<usize> {
        if address.checked_add(bytes as u64).is_none_or(|end| end > self.bytes.len() as u64) {
            let past = (address as i64).saturating_add(bytes as i64).saturating_sub(self.bytes.len() as i64);
            let nearest = Some((0, past));
            let (space, bytes) = (Space::Shared, bytes as u32);
            return Err(FaultKind::OutOfBounds { space, is_store, address, bytes, nearest }.into());
        }
        Ok(address as usize)
    }

    /// Reads bytes within bounds. Their writes must be ordered before the read. The first
    /// uninitialized read is recorded for [`Shared::unwritten`].
    #[inline]
    pub fn read(&mut self, accessor: &Accessor<'_>, address: u64, to: &mut [u8]) -> Outcome {
        let offset = self.bounds(address, to.len(), false)?;
        self.shadow.read(accessor.agent, accessor.record(false), offset, to.len())?;
        to.copy_from_slice(&self.bytes[offset..offset + to.len()]);
        Ok(())
    }

    /// Writes bytes within bounds, ordered after all earlier accesses to them.
    #[inline]
    pub fn write(&mut self, accessor: &Accessor<'_>, address: u64, from: &[u8]) -> Outcome {
        let offset = self.bounds(address, from.len(), true)?;
        let bytes = &mut self.bytes[offset..offset + from.len()];
        let record = accessor.record(true);
        self.shadow.write(accessor.agent, record, offset, from.len(), |byte| bytes[byte] == from[byte])?;
        bytes.copy_from_slice(from);
        Ok(())
    }

    /// Applies a function to an element of up to 16 bytes. Returns the old element.
    pub fn update(
        &mut self,
        accessor: &Accessor<'_>,
        address: u64,
        size: usize,
        change: impl FnOnce(u128) -> u128,
    ) -> Outcome<u128> {
        let offset = self.bounds(address, size, true)?;
        let mut element = [0; 16];
        element[..size].copy_from_slice(&self.bytes[offset..offset + size]);
        let old = u128::from_le_bytes(element);
        self.shadow.read(accessor.agent, accessor.record(false), offset, size)?;
        let new = change(old).to_le_bytes();
        self.shadow.write(accessor.agent, accessor.record(true), offset, size, |_| false)?;
        self.bytes[offset..offset + size].copy_from_slice(&new[..size]);
        Ok(old)
    }

    /// Releases a clock at an offset, in addition to earlier ones.
    pub fn publish(&mut self, offset: u64, clock: &Clock) {
        self.published.entry(offset).and_modify(|known| known.join(clock)).or_insert_with(|| clock.clone());
    }

    /// Returns the join of the clocks released at an offset.
    pub fn published(&self, offset: u64) -> Option<&Clock> {
        self.published.get(&offset)
    }

    /// Reads bytes and checks only their bounds, for `mbarrier` objects, which synchronize their
    /// own accesses.
    pub fn peek(&self, address: u64, to: &mut [u8]) -> Outcome {
        let offset = self.bounds(address, to.len(), false)?;
        to.copy_from_slice(&self.bytes[offset..offset + to.len()]);
        Ok(())
    }

    /// Writes bytes and checks only their bounds: see [`Shared::peek`].
    pub fn poke(&mut self, address: u64, from: &[u8]) -> Outcome {
        let offset = self.bounds(address, from.len(), true)?;
        self.bytes[offset..offset + from.len()].copy_from_slice(from);
        Ok(())
    }
}
