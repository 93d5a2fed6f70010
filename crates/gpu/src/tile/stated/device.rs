//! Writes each block's shared memory accesses, copies, `mbarrier`s and dots.

use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_base::Code;
use tilewright_ir::{Block, DeviceFn, Dtype, ElementwiseFn, Inst, Op, SharedTiles, Value, constant_bool};
use tilewright_layout::Division;

use super::tensor_memory::PAIR;
use super::{OfRank, Writer, Written};

struct Arrival {
    tiles: SharedTiles,
    arrivals: u32,
    bytes: u32,
}

impl Writer<'_> {
    fn division_of_tiles(&self, inst: Inst, tiles: &SharedTiles) -> Written<Division> {
        let misfit = |message: String| self.error(inst, Code::LayoutMismatch, message);
        let found = tiles.layout.blocks();
        if found != self.blocks {
            return Err(misfit(format!(
                "{} is for {found} blocks, but the cluster of the kernel has {}",
                tiles.layout, self.blocks
            )));
        }
        tiles.layout.division(&tiles.shape).map_err(misfit)
    }

    /// Returns the division of tiles in shared memory, and replaces them by their parts.
    pub(super) fn part_of_tiles(&self, inst: Inst, tiles: &mut SharedTiles) -> Written<Division> {
        let division = self.division_of_tiles(inst, tiles)?;
        tiles.shape = division.part.iter().copied().collect();
        tiles.layout = Arc::new(tiles.layout.of_block());
        Ok(division)
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each function")]
    pub(super) fn device(&mut self, block: Block, inst: Inst) -> Written {
        let Op::Device { function } = self.data(inst).op.clone() else { return Ok(()) };
        let mut new = function.clone();
        match &mut new {
            DeviceFn::Allocate { tiles } | DeviceFn::View { tiles } => {
                self.check_group(inst, tiles)?;
                let division = self.part_of_tiles(inst, tiles)?;
                let memory = self.data(inst).results[0];
                self.memories.insert(memory, division);
            }
            DeviceFn::MbarrierInvalidate { tiles } => {
                self.part_of_tiles(inst, tiles)?;
            }
            DeviceFn::Load { tiles, layout } => {
                let memory = self.part_of_tiles(inst, tiles)?;
                if self.division(self.data(inst).results[0]) != memory {
                    return Err(self.unsupported(inst, "a load of shared memory with another cga_layout"));
                }
                *layout = Arc::new(layout.of_block());
            }
            DeviceFn::Store { tiles } | DeviceFn::CopyAsync { tiles, .. } => {
                let memory = self.part_of_tiles(inst, tiles)?;
                self.take(inst, &memory)?;
            }
            DeviceFn::MbarrierInit { tiles, arrivals } => {
                let barriers = self.part_of_tiles(inst, tiles)?;
                *arrivals <<= barriers.copies().count_ones();
            }
            DeviceFn::MbarrierExpect { tiles, bytes } => {
                let arrival = Arrival { tiles: tiles.clone(), arrivals: 1, bytes: *bytes };
                if self.division_of_tiles(inst, tiles)?.copies() != 0 {
                    return self.arrive_at_lead(inst, arrival);
                }
                self.part_of_tiles(inst, tiles)?;
            }
            DeviceFn::MbarrierArrive { tiles, arrivals } => {
                let arrival = Arrival { tiles: tiles.clone(), arrivals: *arrivals, bytes: 0 };
                if self.division_of_tiles(inst, tiles)?.copies() != 0 {
                    return self.arrive_at_lead(inst, arrival);
                }
                self.part_of_tiles(inst, tiles)?;
            }
            DeviceFn::ArriveFrom { tiles, arrivals, bytes, kept } => {
                let arrival = Arrival { tiles: tiles.clone(), arrivals: *arrivals, bytes: *bytes };
                return self.arrive_from(inst, arrival, *kept);
            }
            DeviceFn::MbarrierWait { tiles } => {
                let barriers = self.part_of_tiles(inst, tiles)?;
                if barriers.copies() != 0 {
                    // Nothing arrives at the other blocks' `mbarrier`s. These blocks wait for
                    // parity 1, the phase before the first, which counts as complete.
                    let other = self.of_rank(OfRank::IsOther(barriers.copies()));
                    let phase = self.data(inst).operands[2];
                    self.go_before(inst);
                    let phase = self.cursor.scalar(ElementwiseFn::Or, &[phase, other], Dtype::I32);
                    self.data_mut(inst).operands[2] = phase;
                }
            }
            DeviceFn::ArriveCopies { tiles } | DeviceFn::TrackCopies { tiles } => {
                let barriers = self.part_of_tiles(inst, tiles)?;
                self.refuse_pairs(inst, &barriers, "asynchronous copies")?;
            }
            DeviceFn::TensorLoad { tiles, barriers, fills_nan } => {
                let division = self.part_of_tiles(inst, tiles)?;
                let own = self.part_of_tiles(inst, barriers)?;
                self.shift_coordinates(inst, &function, &division)?;
                if own.copies() != 0 {
                    self.check_lead(inst, &own)?;
                    let (tiles, barriers, fills_nan) = (tiles.clone(), barriers.clone(), *fills_nan);
                    new = DeviceFn::MulticastLoad { tiles, barriers, fills_nan, at_lead: true };
                    self.go_before(inst);
                    let no_others = self.cursor.int(Dtype::I32, 0);
                    self.data_mut(inst).operands.insert(MASK, no_others);
                }
            }
            DeviceFn::MulticastLoad { tiles, barriers, fills_nan, at_lead } => {
                let division = self.part_of_tiles(inst, tiles)?;
                let own = self.part_of_tiles(inst, barriers)?;
                let copies = division.copies();
                *at_lead = own.copies() != 0;
                if *at_lead && copies == 0 {
                    self.check_lead(inst, &own)?;
                } else {
                    self.refuse_pairs(inst, &own, "tensor copies to several blocks")?;
                }
                self.shift_coordinates(inst, &function, &division)?;
                if copies == 0 && !*at_lead {
                    // Each block loads a different part.
                    let (tiles, barriers, fills_nan) = (tiles.clone(), barriers.clone(), *fills_nan);
                    new = DeviceFn::TensorLoad { tiles, barriers, fills_nan };
                    self.data_mut(inst).operands.remove(MASK);
                } else if copies != 0 {
                    self.only_if_lead(inst, MASK - 1, copies);
                    let mask = self.multicast_mask(inst, copies);
                    self.data_mut(inst).operands[MASK] = mask;
                }
            }
            DeviceFn::WindowLoad { tiles, barriers, window, multicast } => {
                let division = self.part_of_tiles(inst, tiles)?;
                let own = self.part_of_tiles(inst, barriers)?;
                self.refuse_pairs(inst, &own, "im2col copies")?;
                if division.splits(0) {
                    return Err(self.unsupported(inst, "an im2col copy to memory whose pixels are split"));
                }
                if let Some(offset) = self.offset(&division, 1) {
                    // The channels are the last coordinate, before the offsets.
                    let index = self.data(inst).operands.len() - window.lower.len() - 1;
                    self.add_to_operand(inst, index, offset);
                }
                let copies = division.copies();
                if *multicast && copies != 0 {
                    self.only_if_lead(inst, MASK - 1, copies);
                    let mask = self.multicast_mask(inst, copies);
                    self.data_mut(inst).operands[MASK] = mask;
                }
            }
            DeviceFn::TensorStore { tiles } => {
                let division = self.part_of_tiles(inst, tiles)?;
                self.shift_coordinates(inst, &function, &division)?;
                if division.copies() != 0 {
                    self.data_mut(inst).op = Op::Device { function: new };
                    self.only_in(block, inst, division.copies());
                    return Ok(());
                }
            }
            DeviceFn::Wgmma { b, transposed_b, transposed_a, .. } => {
                let transposed = [*transposed_a, *transposed_b];
                let division = self.part_of_tiles(inst, b)?;
                self.check_dot(inst, &division, transposed)?;
            }
            DeviceFn::ClusterArrive {} | DeviceFn::ClusterWait {} => {
                self.refuse_workers(inst, "a barrier of the cluster")?;
            }
            DeviceFn::ClcTryCancel { tiles, barriers, multicast } => {
                self.response(inst, tiles)?;
                let own = self.part_of_tiles(inst, barriers)?;
                self.refuse_pairs(inst, &own, "`try_cancel`")?;
                self.refuse_workers(inst, "`try_cancel`")?;
                *multicast = true;
                self.only_if_lead(inst, MASK - 1, self.blocks - 1);
                // Each block has read the last response, which the asynchronous proxy overwrites.
                self.go_before(inst);
                let before = [DeviceFn::FenceProxy {}, DeviceFn::ClusterArrive {}, DeviceFn::ClusterWait {}];
                for function in before {
                    self.cursor.emit(Op::Device { function }, &[], []);
                }
            }
            DeviceFn::ClcLoadResult { tiles, blocks } => {
                self.response(inst, tiles)?;
                *blocks = self.blocks;
            }
            DeviceFn::TensorMemoryLoad { .. }
            | DeviceFn::TensorMemoryStore { .. }
            | DeviceFn::TensorDot { .. }
            | DeviceFn::TensorDotScaled { .. }
            | DeviceFn::TensorCopy { .. }
            | DeviceFn::TensorCommit { .. } => self.tensor_memory_function(inst, &mut new)?,
            DeviceFn::Mma {}
            | DeviceFn::DotFma {}
            | DeviceFn::WgmmaInit {}
            | DeviceFn::WgmmaWait { .. }
            | DeviceFn::KeepAlive {}
            | DeviceFn::CommitGroup {}
            | DeviceFn::WaitGroup { .. }
            | DeviceFn::RemoteArrive { .. }
            | DeviceFn::GatherBlocks { .. }
            | DeviceFn::TensorStoreWait { .. }
            | DeviceFn::FenceProxy {}
            | DeviceFn::JoinWorkers {} => {}
        }
        self.data_mut(inst).op = Op::Device { function: new };
        Ok(())
    }

    /// Refuses an op for which all threads of the cluster wait, if the kernel starts workers.
    fn refuse_workers(&self, inst: Inst, what: &str) -> Written {
        if !self.is_in_worker && !self.has_workers() {
            return Ok(());
        }
        let message = format!("{what} in a kernel with `warp_specialize`");
        let hint = "all threads of the cluster have to reach it; use an `mbarrier` with `from_cta`";
        Err(Box::new(self.error(inst, Code::PartitionMisuse, message).hint(hint)))
    }

    /// Checks the memory of the response to a request for a program: each block has a copy.
    fn response(&self, inst: Inst, tiles: &mut SharedTiles) -> Written {
        if self.part_of_tiles(inst, tiles)?.copies() == self.blocks - 1 {
            return Ok(());
        }
        let message = format!("{} splits the response of `try_cancel`, which each block gets", tiles.layout);
        let hint = "give it a layout whose cga_layout has only zeros";
        Err(Box::new(self.error(inst, Code::LayoutMismatch, message).hint(hint)))
    }

    pub(super) fn has_workers(&self) -> bool {
        let function = &*self.cursor.function;
        function.blocks[function.entry]
            .insts
            .iter()
            .any(|inst| matches!(function.insts[*inst].op, Op::StartWorkers { .. }))
    }

    /// Refuses shared `mbarrier`s, because hardware signals only the own block's.
    fn refuse_pairs(&self, inst: Inst, barriers: &Division, what: &str) -> Written {
        if barriers.copies() == 0 {
            return Ok(());
        }
        let message = format!("{what} signal the mbarrier of their own block, not one of a pair");
        let hint = "allocate it without `two_ctas=True`: each block waits for its own copies";
        Err(Box::new(self.error(inst, Code::NotOnThisDevice, message).hint(hint)))
    }

    /// Checks that an `mbarrier` at which copies of both blocks of a pair arrive is that of the first
    /// one.
    fn check_lead(&self, inst: Inst, barriers: &Division) -> Written {
        if self.has_pairs {
            if barriers.copies() == PAIR {
                return Ok(());
            }
            let message = "tensor copies signal the mbarrier of one of two blocks, not one of more blocks";
            let hint = "allocate it by `mbarrier.allocate_mbarrier(two_ctas=True)`";
            return Err(Box::new(self.error(inst, Code::NotOnThisDevice, message).hint(hint)));
        }
        self.refuse_pairs(inst, barriers, "tensor copies of a kernel without dots of pairs of blocks")
    }

    /// Restricts an instruction's predicate to blocks without a rank bit in a mask.
    fn only_if_lead(&mut self, inst: Inst, index: usize, mask: u32) {
        if mask != 0 {
            let lead = self.of_rank(OfRank::Lacks(mask));
            self.and_predicate(inst, index, lead);
        }
    }

    fn and_predicate(&mut self, inst: Inst, index: usize, condition: Value) {
        let own = self.data(inst).operands[index];
        let both = if constant_bool(self.cursor.function, own) == Some(true) {
            condition
        } else {
            self.go_before(inst);
            self.cursor.scalar(ElementwiseFn::And, &[own, condition], Dtype::I1)
        };
        self.data_mut(inst).operands[index] = both;
    }

    /// Writes an arrival at a group's `mbarrier`, in the block with the lowest rank.
    fn arrive_at_lead(&mut self, inst: Inst, mut arrival: Arrival) -> Written {
        let copies = self.part_of_tiles(inst, &mut arrival.tiles)?.copies();
        let lead = self.of_rank(OfRank::Masked((self.blocks - 1) & !copies));
        let Arrival { tiles, arrivals, bytes } = arrival;
        let data = self.data_mut(inst);
        data.op = Op::Device { function: DeviceFn::RemoteArrive { tiles, arrivals, bytes } };
        data.operands.push(lead);
        Ok(())
    }

    /// Writes arrivals at the `mbarrier`s of blocks with the same rank bits in `kept`.
    fn arrive_from(&mut self, inst: Inst, mut arrival: Arrival, kept: u32) -> Written {
        let all = self.blocks - 1;
        if self.part_of_tiles(inst, &mut arrival.tiles)?.copies() != 0 {
            let message = "`from_cta` is for mbarriers that each block has itself";
            let hint = "allocate the mbarrier without `two_ctas=True`";
            return Err(Box::new(self.error(inst, Code::NotOnThisDevice, message).hint(hint)));
        }
        let others = all & !kept;
        if others == 0 {
            let Arrival { tiles, arrivals, bytes } = arrival;
            let function = if bytes > 0 {
                DeviceFn::MbarrierExpect { tiles, bytes }
            } else {
                DeviceFn::MbarrierArrive { tiles, arrivals }
            };
            self.data_mut(inst).op = Op::Device { function };
            return Ok(());
        }
        self.only_if_lead(inst, 2, others);
        let Arrival { tiles, arrivals, bytes } = arrival;
        let function = DeviceFn::RemoteArrive { tiles, arrivals, bytes };
        let rank = self.scalars[&OfRank::Rank];
        let operands = self.data(inst).operands.clone();
        // The arriving block lacks the bits of `others`, so `|` selects each block of the group.
        let mut targets: SmallVec<[u32; 8]> = (0..self.blocks).filter(|bits| bits & !others == 0).collect();
        let last = targets.pop().expect("0 has no bits");
        self.go_before(inst);
        let target = |writer: &mut Self, bits: u32| {
            let bits = writer.cursor.int(Dtype::I32, bits);
            let block = writer.cursor.scalar(ElementwiseFn::Or, &[rank, bits], Dtype::I32);
            operands.iter().copied().chain([block]).collect::<SmallVec<[Value; 4]>>()
        };
        for bits in targets {
            let all = target(self, bits);
            self.cursor.emit(Op::Device { function: function.clone() }, &all, []);
        }
        let operands = target(self, last);
        let data = self.data_mut(inst);
        (data.op, data.operands) = (Op::Device { function }, operands);
        Ok(())
    }

    /// Returns the mask of blocks whose ranks differ only in the bits of `copies`.
    fn multicast_mask(&mut self, inst: Inst, copies: u32) -> Value {
        let group =
            (0..self.blocks).filter(|bits| bits & !copies == 0).fold(0_u32, |mask, bits| mask | 1 << bits);
        let lead = (self.blocks - 1) & !copies;
        if lead == 0 {
            self.go_before(inst);
            return self.cursor.int(Dtype::I32, group);
        }
        let lead = self.of_rank(OfRank::Masked(lead));
        self.go_before(inst);
        let group = self.cursor.int(Dtype::I32, group);
        self.cursor.scalar(ElementwiseFn::Shl, &[group, lead], Dtype::I32)
    }

    /// Adds the offset of a block's part to the coordinates of a tensor copy.
    fn shift_coordinates(&mut self, inst: Inst, function: &DeviceFn, division: &Division) -> Written {
        let count = self.data(inst).operands.len();
        let rank = crate::assign::boxes::rank_of_tensor(function, count);
        let axes = division.part.len();
        for axis in (0..axes).filter(|axis| division.splits(*axis)) {
            // The tensor may have more leading axes than the memory.
            let Some(at) = (axis + rank).checked_sub(axes) else {
                return Err(self.unsupported(inst, "a copy to memory with more axes than the tensor"));
            };
            let index = count - rank + at;
            let Some(offset) = self.offset(division, axis) else { continue };
            self.add_to_operand(inst, index, offset);
        }
        Ok(())
    }

    fn add_to_operand(&mut self, inst: Inst, index: usize, offset: Value) {
        let own = self.data(inst).operands[index];
        self.go_before(inst);
        let sum = self.cursor.scalar(ElementwiseFn::Add, &[own, offset], Dtype::I32);
        self.data_mut(inst).operands[index] = sum;
    }

    /// Checks that a block has all elements for its part of a dot. `transposed` tells whether A and
    /// B are transposed in memory.
    fn check_dot(&mut self, inst: Inst, b: &Division, transposed: [bool; 2]) -> Written {
        let operands = self.data(inst).operands.clone();
        let acc = self.division(operands[0]);
        let along = |division: &Division, axis: usize, is_transposed: bool| -> Vec<u32> {
            let axis = if is_transposed { 1 - axis } else { axis };
            division.bases.iter().map(|basis| basis[axis]).collect()
        };
        let zeros = vec![0; acc.bases.len()];
        let b_fits =
            along(b, 0, transposed[1]) == zeros && along(b, 1, transposed[1]) == along(&acc, 1, false);
        let in_memory = operands.len() == 5;
        let of_memory = self.memories.get(&operands[3]).cloned();
        let a = if in_memory { of_memory } else { Some(self.division(operands[3])) };
        let swaps_a = transposed[0] && in_memory;
        let a_fits = a
            .is_none_or(|a| along(&a, 1, swaps_a) == zeros && along(&a, 0, swaps_a) == along(&acc, 0, false));
        for (fits, name, expected) in [
            (a_fits, "a", "that of the accumulator, with 0 in place of columns: A is not split along K"),
            (b_fits, "b", "that of the accumulator, with 0 in place of rows: B is not split along K"),
        ] {
            if !fits {
                let message =
                    format!("the cga_layout of `{name}` of `warpgroup_mma` does not fit the accumulator's");
                let found = self.error(inst, Code::LayoutMismatch, message);
                return Err(Box::new(found.note(format!("expected {expected}"))));
            }
        }
        Ok(())
    }
}

/// The index of the mask among the operands of a multicast load.
const MASK: usize = 5;
