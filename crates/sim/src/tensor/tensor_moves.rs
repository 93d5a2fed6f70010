//! Executes the instructions on tensor memory other than dots.
//!
//! Loads and stores are asynchronous. Until `tcgen05.wait`, nothing may access the results of a
//! load, and later accesses to the cells are races. Warp w accesses only its quarter of the lanes:
//! the 32 lanes from 32 (w mod 4) on.

use tilewright_ptx::isa::{LaneMulticast, MatrixFormat, TensorMemoryCopyShape, TensorMemoryShape};

use super::descriptor::{Descriptor, Major};
use super::execute::whole_warp;
use super::tensor_dot::{blocks_of_group, shared_descriptor, tensor_accessor};
use crate::asynchronous::{Channel, Pointer, barriers};
use crate::context::{Context, Execute, Flow, ResolvedAddress, aligned};
use crate::fault::{FaultKind, OfLane, Outcome};
use crate::memory::shared::Accessor;
use crate::memory::tensor::split;
use crate::memory::{Agent, Clock, Proxy};
use crate::registers::{LANES, Slot, lanes_of};

/// The number of lanes that a warp accesses.
const QUARTER: usize = 32;

/// An address of tensor memory: a register plus a number of columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorAddress {
    pub base: Slot,
    pub offset: i64,
}

impl TensorAddress {
    fn value(self, context: &Context<'_>, lane: usize) -> u32 {
        (context.get(self.base, lane) as u32).wrapping_add(self.offset as u32)
    }

    pub fn position(self, context: &Context<'_>, lane: usize) -> (usize, usize) {
        split(self.value(context, lane))
    }

    /// Returns the address, which must be the same in all threads of the warp.
    fn uniform(self, context: &Context<'_>, instruction: &str) -> Outcome<u32> {
        let first = self.value(context, 0);
        match (1..LANES).find(|&lane| self.value(context, lane) != first) {
            None => Ok(first),
            Some(lane) => {
                let text = format!("the address of {instruction} differs between the threads of the warp");
                Err(FaultKind::Illegal(text).into()).of_lane(lane)
            }
        }
    }
}

/// `tcgen05.alloc`.
pub(crate) struct TensorAllocate {
    pub destination: Pointer,
    pub columns: Slot,
    pub is_pair: bool,
}

impl Execute for TensorAllocate {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warp(context, "tcgen05.alloc")?;
        blocks_of_group(context, self.is_pair)?;
        let columns = context.get(self.columns, 0) as u32 as usize;
        let (rank, offset) = self.destination.shared(context, 0)?;
        if rank != context.rank {
            let text = "tcgen05.alloc writes the address to the shared memory of another block";
            return Err(FaultKind::Illegal(text.into()).into());
        }
        let place = ResolvedAddress::Shared { rank, offset };
        aligned(place, 4, true)?;
        let Some(first) = context.block().tensor.allocate(columns)? else { return Ok(Flow::Wait) };
        context.write(place, 0, 4, false, &(first as u32).to_le_bytes())?;
        Ok(Flow::Next)
    }
}

/// `tcgen05.dealloc`.
pub(crate) struct TensorFree {
    pub address: Slot,
    pub columns: Slot,
}

impl Execute for TensorFree {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warp(context, "tcgen05.dealloc")?;
        let first = context.get(self.address, 0) as u32;
        let columns = context.get(self.columns, 0) as u32 as usize;
        let accessor = tensor_accessor(context.agent, context.instruction);
        context.blocks[context.rank].tensor.free(&accessor, first, columns)?;
        Ok(Flow::Next)
    }
}

/// `tcgen05.relinquish_alloc_permit`.
pub(crate) struct TensorRelinquish;

impl Execute for TensorRelinquish {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warp(context, "tcgen05.relinquish_alloc_permit")?;
        context.block().tensor.relinquish();
        Ok(Flow::Next)
    }
}

/// The cells that a load or store moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorFragment {
    pub shape: TensorMemoryShape,
    /// The distance in columns of the second address of `.16x32bx2`.
    pub split: i64,
    /// True if a register has the low halves of two adjacent cells.
    pub is_packed: bool,
}

impl TensorFragment {
    /// Returns the lane and the column of a register of a thread, relative to the address. With
    /// packing, the column counts pairs.
    fn position(&self, thread: usize, register: usize) -> (usize, i64) {
        let (group, member) = (thread / 4, thread % 4);
        let column = register as i64;
        match self.shape {
            TensorMemoryShape::L32x32b => (thread, column),
            TensorMemoryShape::L16x32bx2 => (thread % 16, column),
            TensorMemoryShape::L16x64b => (group + 8 * (member % 2), 2 * column + (member / 2) as i64),
            TensorMemoryShape::L16x128b => (group + 8 * (register % 2), 4 * (column / 2) + member as i64),
            TensorMemoryShape::L16x256b => {
                let pair = register / 2 % 2;
                (group + 8 * pair, 8 * (column / 4) + 2 * member as i64 + column % 2)
            }
        }
    }

    /// Returns the lane and the first column of a register. `base` is the position of the address.
    fn cells(&self, base: (usize, usize), thread: usize, register: usize) -> (usize, usize) {
        let (lane, column) = self.position(thread, register);
        let second = self.shape == TensorMemoryShape::L16x32bx2 && thread >= 16;
        let split = if second { self.split } else { 0 };
        let column = column * if self.is_packed { 2 } else { 1 } + split;
        (base.0 + lane, base.1.wrapping_add_signed(column as isize))
    }

    /// Returns the position of the address, if the warp may access its lanes.
    fn base(
        &self,
        context: &Context<'_>,
        address: TensorAddress,
        instruction: &str,
    ) -> Outcome<(usize, usize)> {
        whole_warp(context, instruction)?;
        let (lane, column) = split(address.uniform(context, instruction)?);
        let first = context.warp % 4 * QUARTER;
        let is_half = self.shape != TensorMemoryShape::L32x32b;
        if lane == first || is_half && lane == first + QUARTER / 2 {
            return Ok((lane, column));
        }
        let text = format!(
            "{instruction} at lane {lane} of tensor memory by warp {}: the warp accesses the lanes {first} to {}",
            context.warp,
            first + QUARTER - 1
        );
        Err(FaultKind::Illegal(text).into())
    }
}

/// `tcgen05.ld`.
pub(crate) struct TensorLoadStep {
    pub fragment: TensorFragment,
    pub address: TensorAddress,
    pub d: Vec<Slot>,
}

impl Execute for TensorLoadStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let base = self.fragment.base(context, self.address, "tcgen05.ld")?;
        let warp = context.warp;
        let agent = context.fork(Channel::TensorLoads(warp));
        for (register, &slot) in self.d.iter().enumerate() {
            for thread in 0..LANES {
                let place = self.fragment.cells(base, thread, register);
                let mut cells = [0; 2];
                let cells = &mut cells[..=usize::from(self.fragment.is_packed)];
                let accessor = tensor_accessor(&agent, context.instruction);
                context.blocks[context.rank].tensor.read(&accessor, place, cells)?;
                let value = match *cells {
                    [low, high] => low & 0xffff | high << 16,
                    _ => cells[0],
                };
                context.set(slot, thread, value.into());
            }
        }
        context.block().asynchronous.tensor_memory(warp).begin_load(agent.completed(), &self.d);
        Ok(Flow::Next)
    }
}

/// `tcgen05.st`.
pub(crate) struct TensorStoreStep {
    pub fragment: TensorFragment,
    pub address: TensorAddress,
    pub a: Vec<Slot>,
}

impl Execute for TensorStoreStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let base = self.fragment.base(context, self.address, "tcgen05.st")?;
        let warp = context.warp;
        let agent = context.fork(Channel::TensorStores(warp));
        for (register, &slot) in self.a.iter().enumerate() {
            for thread in 0..LANES {
                let place = self.fragment.cells(base, thread, register);
                let value = context.get(slot, thread) as u32;
                let halves = [value & 0xffff, value >> 16];
                let cells = if self.fragment.is_packed { &halves[..] } else { &[value] };
                let accessor = tensor_accessor(&agent, context.instruction);
                context.blocks[context.rank].tensor.write(&accessor, place, cells)?;
            }
        }
        context.block().asynchronous.tensor_memory(warp).begin_store(agent.completed());
        Ok(Flow::Next)
    }
}

/// `tcgen05.wait::ld` and `tcgen05.wait::st`.
pub(crate) struct TensorWaitStep {
    pub is_load: bool,
}

impl Execute for TensorWaitStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warp(context, "tcgen05.wait")?;
        let warp = context.warp;
        let pending = context.block().asynchronous.tensor_memory(warp);
        if let Some(clock) = pending.wait(self.is_load) {
            context.agent.acquire(&clock);
        }
        Ok(Flow::Next)
    }
}

/// `tcgen05.commit`.
pub(crate) struct TensorCommitStep {
    pub barrier: Pointer,
    /// The ranks of the blocks whose barriers get an arrival.
    pub mask: Option<Slot>,
    pub is_pair: bool,
}

impl Execute for TensorCommitStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        blocks_of_group(context, self.is_pair)?;
        let warp = context.warp;
        let clock = context.block().asynchronous.tensor_memory(warp).last_dot();
        let clock = clock.unwrap_or_else(|| Clock::new(context.agents));
        for lane in lanes_of(context.lanes) {
            let (rank, offset) = self.barrier.shared(context, lane).of_lane(lane)?;
            let ranks = match self.mask {
                None => vec![rank],
                Some(slot) => {
                    let mask = context.get(slot, lane) as u16;
                    if mask == 0 || u32::from(mask) >> context.blocks.len() != 0 {
                        let text = format!(
                            "the mask {mask:#x} of tcgen05.commit has to select at least one of the cluster's {} \
                             blocks, and no other",
                            context.blocks.len()
                        );
                        return Err(FaultKind::Illegal(text).into()).of_lane(lane);
                    }
                    (0..context.blocks.len()).filter(|rank| mask >> rank & 1 == 1).collect()
                }
            };
            for rank in ranks {
                barriers::arrive_once(context, (rank, offset), &clock).of_lane(lane)?;
            }
        }
        Ok(Flow::Next)
    }
}

/// `tcgen05.cp`.
pub(crate) struct TensorCopyStep {
    pub destination: TensorAddress,
    /// The descriptor of the matrix in shared memory.
    pub source: Slot,
    pub is_pair: bool,
    pub shape: TensorMemoryCopyShape,
    pub multicast: Option<LaneMulticast>,
    /// The format of elements narrower than a byte, which the copy unpacks.
    pub format: Option<MatrixFormat>,
}

impl TensorCopyStep {
    /// Returns the number of rows, and of 16-byte chunks of a row.
    fn extent(&self) -> (usize, usize) {
        match self.shape {
            TensorMemoryCopyShape::L128x256b => (128, 2),
            TensorMemoryCopyShape::L4x256b => (4, 2),
            TensorMemoryCopyShape::L128x128b => (128, 1),
            TensorMemoryCopyShape::L64x128b => (64, 1),
            TensorMemoryCopyShape::L32x128b => (32, 1),
        }
    }

    fn lanes(&self, row: usize) -> Vec<usize> {
        let (half, at) = (row / QUARTER, row % QUARTER);
        match (self.shape, self.multicast) {
            (TensorMemoryCopyShape::L4x256b, _) => vec![row * QUARTER],
            (_, None) => vec![row],
            (_, Some(LaneMulticast::Halves02And13)) => vec![half * QUARTER + at, (half + 2) * QUARTER + at],
            (_, Some(LaneMulticast::Halves01And23)) => {
                vec![half * 2 * QUARTER + at, (half * 2 + 1) * QUARTER + at]
            }
            (_, Some(LaneMulticast::Quarters)) => (0..4).map(|quarter| quarter * QUARTER + at).collect(),
        }
    }

    fn copy(
        &self,
        context: &mut Context<'_>,
        rank: usize,
        agent: &Agent,
        (descriptor, base): (Descriptor, (usize, usize)),
    ) -> Outcome {
        let (rows, chunks) = self.extent();
        let place = ResolvedAddress::Shared { rank, offset: u64::from(descriptor.start) };
        context.visit(place, agent.index, agent.step())?;
        for row in 0..rows {
            for chunk in 0..chunks {
                let mut bytes = [0; 16];
                let used = match self.format {
                    None | Some(MatrixFormat::B8) => 16,
                    Some(MatrixFormat::B8x16B6x16P32) => 12,
                    Some(MatrixFormat::B8x16B4x16P64) => 8,
                };
                let address = descriptor.address(Major::K, row as u32, chunk as u32);
                let accessor = Accessor {
                    agent,
                    instruction: context.instruction,
                    proxy: Proxy::Async,
                    is_atomic: false,
                };
                context.blocks[rank].shared.read(&accessor, u64::from(address), &mut bytes[..used])?;
                let bits = unpacked(u128::from_le_bytes(bytes), self.format);
                let cells: [u32; 4] = std::array::from_fn(|cell| (bits >> (32 * cell)) as u32);
                for lane in self.lanes(row) {
                    let accessor = tensor_accessor(agent, context.instruction);
                    let place = (base.0 + lane, base.1 + 4 * chunk);
                    context.blocks[rank].tensor.write(&accessor, place, &cells)?;
                }
            }
        }
        context.counters.bytes_read += (rows * chunks * 16) as u64;
        Ok(())
    }
}

impl Execute for TensorCopyStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let warp = context.warp;
        for lane in lanes_of(context.lanes) {
            let descriptor = shared_descriptor(context.get(self.source, lane)).of_lane(lane)?;
            let ranks = blocks_of_group(context, self.is_pair).of_lane(lane)?;
            let base = self.destination.position(context, lane);
            if base.0 != 0 {
                let text = format!("tcgen05.cp to lane {}: the destination begins at lane 0", base.0);
                return Err(FaultKind::Illegal(text).into()).of_lane(lane);
            }
            let agent = context.fork(Channel::TensorDots(warp));
            for rank in ranks {
                self.copy(context, rank, &agent, (descriptor, base)).of_lane(lane)?;
            }
            context.block().asynchronous.tensor_memory(warp).begin_dot(agent.completed());
        }
        Ok(Flow::Next)
    }
}

/// Unpacks 16 bytes: each element narrower than a byte becomes a byte.
fn unpacked(bits: u128, format: Option<MatrixFormat>) -> u128 {
    let width = match format {
        None | Some(MatrixFormat::B8) => return bits,
        Some(MatrixFormat::B8x16B6x16P32) => 6,
        Some(MatrixFormat::B8x16B4x16P64) => 4,
    };
    (0..16).fold(0, |all, element| {
        let value = bits >> (element * width) & ((1 << width) - 1);
        all | value << (8 * element)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(
        shape: TensorMemoryShape,
        count: usize,
    ) -> std::collections::BTreeMap<(usize, i64), (usize, usize)> {
        let fragment = TensorFragment { shape, split: 0, is_packed: false };
        let mut all = std::collections::BTreeMap::new();
        for thread in 0..LANES {
            for register in 0..shape.registers() * count {
                let place = fragment.position(thread, register);
                let place = if shape == TensorMemoryShape::L16x32bx2 {
                    (place.0 + thread / 16 * 16, place.1)
                } else {
                    place
                };
                assert!(all.insert(place, (thread, register)).is_none(), "{shape:?} {place:?}");
            }
        }
        all
    }

    #[test]
    fn fragments_are_those_of_the_isa() {
        // Some cells of the figures of section 9.7.16.2.3.1, with the thread and the register.
        let cases = [
            (TensorMemoryShape::L32x32b, (17, 3), (17, 3)),
            (TensorMemoryShape::L16x64b, (0, 1), (2, 0)),
            (TensorMemoryShape::L16x64b, (8, 0), (1, 0)),
            (TensorMemoryShape::L16x64b, (15, 7), (31, 3)),
            (TensorMemoryShape::L16x128b, (0, 3), (3, 0)),
            (TensorMemoryShape::L16x128b, (9, 6), (6, 3)),
            (TensorMemoryShape::L16x256b, (0, 1), (0, 1)),
            (TensorMemoryShape::L16x256b, (8, 7), (3, 3)),
            (TensorMemoryShape::L16x256b, (5, 10), (21, 4)),
            (TensorMemoryShape::L16x32bx2, (21, 2), (21, 2)),
        ];
        for (shape, place, holder) in cases {
            let all = holders(shape, 4);
            assert_eq!(all.len(), 32 * shape.registers() * 4);
            assert_eq!(all[&place], holder, "{shape:?} {place:?}");
        }
    }

    #[test]
    fn narrow_elements_are_unpacked() {
        let four = u128::from_str_radix("fedcba9876543210", 16).unwrap();
        let bytes = unpacked(four, Some(MatrixFormat::B8x16B4x16P64)).to_le_bytes();
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        let six = (0..16_u128).fold(0, |all, element| all | (element * 4 + 1) << (6 * element));
        let bytes = unpacked(six, Some(MatrixFormat::B8x16B6x16P32)).to_le_bytes();
        assert_eq!(bytes.map(u32::from), std::array::from_fn(|element| element as u32 * 4 + 1));
    }
}
