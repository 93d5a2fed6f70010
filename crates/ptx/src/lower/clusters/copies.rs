//! Lowers a program's copies and arrivals to other blocks (Gluon), and pixel copies. PTX ISA:
//! "Tensor copy, `cp.async.bulk.tensor`", "Im2col mode", `mbarrier.arrive`.

use tilewright_gpu_ir::Feature;
use tilewright_ir::{Inst, Value, constant_int};
use tilewright_layout::Input;

use crate::isa::{
    self, Address, Coordinates, CtaGroup, Destination, RegisterId, ScalarType, Source, SpecialRegister,
    StateSpace, TensorMode,
};
use crate::lower::asynchronous::MBARRIER_BYTES;
use crate::lower::builder::{Scalar, Width};
use crate::lower::integer::Bitwise;
use crate::lower::shared_memory::vector_in;
use crate::lower::tensor_copy::load_of_box;
use crate::lower::{Lowered, Lowering};

impl Lowering<'_> {
    /// Emits a tile's copies to the blocks in a mask, by one thread.
    pub(in crate::lower) fn lower_tensor_load_to(
        &mut self,
        inst: Inst,
        [buffer, descriptor]: [Value; 2],
        [barriers, slot, blocks]: [Value; 3],
        (coordinates, offsets): (&[Value], u32),
        at_lead: bool,
    ) -> Lowered {
        let (coordinates, offsets) = coordinates.split_at(coordinates.len() - offsets as usize);
        let boxes = self.tensor_boxes(inst, buffer, coordinates.len())?;
        let elected = self.elected();
        let mbarrier = if at_lead {
            self.require(inst, Feature::Tcgen05)?;
            self.mbarrier_of_lead(barriers, slot)
        } else {
            self.mbarrier(barriers, slot)
        };
        let mask = (constant_int(self.kernel, blocks) != Some(0)).then(|| {
            let mask = self.scalar(blocks);
            let mask = self.low_half(mask);
            self.builder.source(Width::B16, mask)
        });
        // PTX lists the offsets from the fastest axis to the slowest.
        let registers: Vec<RegisterId> = offsets
            .iter()
            .rev()
            .map(|offset| {
                let offset = self.scalar(*offset);
                let offset = self.low_half(offset);
                self.builder.register(Width::B16, offset)
            })
            .collect();
        for number in 0..boxes.count {
            let place = self.tensor_box(buffer, &boxes, number, (descriptor, coordinates));
            let mut copy = load_of_box(place, mbarrier, mask);
            copy.cta_group = at_lead.then_some(CtaGroup::Two);
            if !registers.is_empty() {
                copy.mode = Some(TensorMode::Im2col);
                copy.offsets = Some(registers.iter().copied().collect::<Coordinates>());
            }
            self.builder.emit_if(Some(elected), copy);
        }
        Ok(())
    }

    /// Returns the address of a slot's barrier in the first block of the pair.
    fn mbarrier_of_lead(&mut self, barriers: Value, slot: Value) -> Address {
        let address = self.indexed(barriers, slot, MBARRIER_BYTES);
        let rank = self.special(SpecialRegister::ClusterCtaRank);
        let lead = self.mask(rank, (self.program.header.cluster - 1) & !1);
        let address = self.in_block(address, lead);
        self.builder.address(Width::B32, address)
    }

    /// Emits an arrival at the barrier of another block, by one thread.
    pub(in crate::lower) fn lower_mbarrier_arrive_at(
        &mut self,
        inst: Inst,
        [barriers, slot, block]: [Value; 3],
        (arrivals, bytes): (u32, u32),
    ) -> Lowered {
        self.require(inst, Feature::Tma)?;
        let elected = self.elected();
        let (address, rank) = (self.indexed(barriers, slot, MBARRIER_BYTES), self.scalar(block));
        let address = self.in_block(address, rank);
        let address = self.builder.address(Width::B32, address);
        let count = if bytes > 0 { bytes } else { arrivals };
        // The default order is `.release.cta`: see `arrive_in_cluster`.
        let arrival = isa::MbarrierArrive {
            expect_tx: bytes > 0,
            no_complete: false,
            semantics: None,
            scope: None,
            space: Some(StateSpace::SharedCluster),
            ty: ScalarType::B64,
            d: Destination::Sink,
            address,
            count: (count != 1 || bytes > 0).then(|| Source::from(i64::from(count))),
        };
        self.builder.emit_if(Some(elected), arrival);
        Ok(())
    }

    /// Returns the address in the block of the cluster with this rank.
    fn in_block(&mut self, address: Scalar, rank: Scalar) -> Scalar {
        let a = self.builder.source(Width::B32, address);
        let b = self.builder.source(Width::B32, rank);
        let (space, ty) = (Some(StateSpace::SharedCluster), ScalarType::U32);
        self.builder.pure(Width::B32, |d| isa::Mapa { space, ty, d, a, b })
    }

    /// Loads a tile from several blocks of the cluster.
    pub(in crate::lower) fn lower_gather_blocks(
        &mut self,
        inst: Inst,
        buffer: Value,
        blocks: u32,
    ) -> Lowered {
        self.require(inst, Feature::Tma)?;
        let result = self.kernel.insts[inst].results[0];
        let ty = self.kernel.ty(buffer).as_memory().expect("the verifier checks the buffer").clone();
        let (whole, memory) = (self.layout(result).clone(), self.layout(buffer).clone());
        let bits = blocks.count_ones();
        let part = whole.with_bases(Input::Register, &whole.bases(Input::Register)[bits as usize..]);
        let part = part.remove_axis(0);
        let (vector, offsets) = (vector_in(&part, &memory, &ty), part.offsets_in(&memory));
        let bytes = ty.element.bytes() as u32;
        let images = Self::thread_images(&offsets).iter().map(|image| image * bytes).collect();
        let start = self.scalar(buffer);
        let thread = self.padded_position(images, start, &ty);
        let own = self.special(SpecialRegister::ClusterCtaRank);
        let others = (self.program.header.cluster - 1) & !blocks;
        let own = self.mask(own, others);
        let ranks: Vec<Scalar> = (0..1_u32 << bits)
            .map(|index| {
                let rank = Scalar::constant(deposited(index, blocks).into());
                self.builder.bitwise(Bitwise::Or, Width::B32, own, rank)
            })
            .collect();
        let mut scalars = vec![Scalar::constant(0); (part.registers() << bits) as usize];
        for number in 0..vector.accesses() {
            let registers = vector.registers(number);
            let first = offsets.at(&[(Input::Register, registers[0])]) * bytes;
            let address = self.shared_position(&thread, first);
            for (index, rank) in ranks.iter().enumerate() {
                let address = self.in_block(address, *rank);
                let loaded =
                    self.load_shared_of(StateSpace::SharedCluster, ty.element, address, registers.len());
                for (register, element) in registers.iter().zip(loaded) {
                    scalars[(*register as usize) << bits | index] = element;
                }
            }
        }
        self.set(result, scalars);
        Ok(())
    }
}

/// Returns a number with the bits of `index` at the bits of a mask.
fn deposited(index: u32, mask: u32) -> u32 {
    let bits = (0..u32::BITS).filter(|bit| mask >> bit & 1 == 1);
    bits.enumerate().fold(0, |found, (from, to)| found | (index >> from & 1) << to)
}
