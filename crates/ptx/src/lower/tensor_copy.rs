//! Copies of boxes of tensors by the tensor memory accelerator: PTX ISA, "Data Movement and Conversion Instructions: Tensor
//! copy, `cp.async.bulk.tensor`", and "Tensors: Swizzling Modes" for how a box lies in shared memory.
//!
//! A buffer whose rows are longer than a line of its swizzle is several boxes, one after the other; each is a copy of its own.

use smallvec::SmallVec;
use tilewright_gpu::Feature;
use tilewright_ir::{Inst, Value};
use tilewright_layout::{Layout, SwizzleMode, swizzled};

use super::builder::{Scalar, Width};
use super::{Lowered, Lowering, memory_bits};
use crate::isa::{
    self, Address, Completion, Coordinates, RegisterId, StateSpace, TensorAddress, TensorDimension,
    TensorMode,
};

/// The most elements of a box along an axis.
const LONGEST_BOX: u32 = 256;

/// The alignment of a box that is not swizzled.
const BOX_ALIGNMENT: u32 = 128;

/// How a slot is cut into boxes.
struct Boxes {
    /// Elements of a box along the last axis.
    row: u32,
    count: u32,
    /// Bytes from one box to the next.
    bytes: u32,
    alignment: u32,
}

/// The boxes of a tile with this layout in memory, if tensor copies can write it.
fn boxes(memory: &Layout, bits: u32) -> Option<Boxes> {
    let shape = memory.output().shape();
    let (&last, outer) = shape.split_last()?;
    let order: SmallVec<[usize; 6]> = (0..shape.len()).rev().collect();
    let modes = [SwizzleMode::None, SwizzleMode::Bytes128, SwizzleMode::Bytes64, SwizzleMode::Bytes32];
    let found = modes.into_iter().find_map(|mode| {
        let line = mode.row_bytes().map_or(last, |bytes| bytes * 8 / bits);
        // Behind the second last axis come the other boxes, and only then the other axes.
        let is_one_tensor = line == last || outer.iter().rev().skip(1).all(|size| *size == 1);
        let fits = line <= last && is_one_tensor && *memory == swizzled(&shape, &order, bits, mode);
        fits.then(|| (line, mode.row_bytes().map_or(BOX_ALIGNMENT, |bytes| 8 * bytes)))
    });
    let (row, alignment) = found?;
    let bytes = outer.iter().product::<u32>() * row * bits / 8;
    let is_possible = row * bits / 8 >= 16 && outer.iter().chain([&row]).all(|size| *size <= LONGEST_BOX);
    is_possible.then_some(Boxes { row, count: last / row, bytes, alignment })
}

impl Lowering<'_> {
    /// The boxes of a slot that a tensor copy moves.
    fn tensor_boxes(
        &self,
        inst: Inst,
        buffer: Value,
        rank: usize,
    ) -> Result<Boxes, Box<tilewright_base::Diagnostic>> {
        self.require(inst, Feature::Tma)?;
        let memory = self.layout(buffer);
        let ty = self.kernel.ty(buffer);
        let boxes = boxes(memory, memory_bits(self.element(buffer)));
        let boxes = boxes.ok_or_else(|| self.unsupported(inst, &format!("a tensor copy of {ty}")))?;
        if !(memory.output().rank()..=5).contains(&rank) {
            return Err(self.unsupported(inst, &format!("a tensor copy of {ty} at {rank} coordinates")));
        }
        self.aligned(inst, buffer, boxes.alignment)?;
        Ok(boxes)
    }

    /// A box, by its number: its place in shared memory, and in the tensor.
    fn tensor_box(
        &mut self,
        buffer: Value,
        boxes: &Boxes,
        number: u32,
        (map, coordinates): (Value, &[Value]),
    ) -> (Address, TensorAddress) {
        let place = self.scalar(buffer).plus(Width::B32, u64::from(number * boxes.bytes));
        let place = self.builder.address(Width::B32, place);
        let map = self.scalar(map);
        let map = self.builder.address(Width::B64, map);
        let skipped = Scalar::constant(u64::from(number * boxes.row));
        let registers: SmallVec<[RegisterId; 5]> = coordinates
            .iter()
            .rev()
            .enumerate()
            .map(|(axis, &coordinate)| {
                let own = self.scalar(coordinate);
                // The first in PTX is the contiguous one, along which the boxes lie.
                let own = if axis == 0 { self.builder.add(Width::B32, own, skipped) } else { own };
                self.builder.register(Width::B32, own)
            })
            .collect();
        (place, TensorAddress { map, coordinates: registers.into_iter().collect::<Coordinates>() })
    }

    pub(super) fn lower_tensor_load(
        &mut self,
        inst: Inst,
        [buffer, descriptor]: [Value; 2],
        [barriers, slot]: [Value; 2],
        coordinates: &[Value],
    ) -> Lowered {
        let boxes = self.tensor_boxes(inst, buffer, coordinates.len())?;
        let elected = self.elected();
        let mbarrier = self.mbarrier(barriers, slot);
        for number in 0..boxes.count {
            let (destination, source) = self.tensor_box(buffer, &boxes, number, (descriptor, coordinates));
            let copy = isa::CpAsyncBulkTensorLoad {
                dimension: dimension(coordinates),
                destination_space: StateSpace::SharedCluster,
                source_space: StateSpace::Global,
                mode: Some(TensorMode::Tile),
                completion: Completion::Mbarrier,
                multicast: false,
                cta_group: None,
                cache_hint: false,
                destination,
                source,
                mbarrier,
                offsets: None,
                cta_mask: None,
                policy: None,
            };
            self.builder.emit_if(Some(elected), copy);
        }
        Ok(())
    }

    pub(super) fn lower_tensor_store(
        &mut self,
        inst: Inst,
        [buffer, descriptor]: [Value; 2],
        coordinates: &[Value],
    ) -> Lowered {
        let boxes = self.tensor_boxes(inst, buffer, coordinates.len())?;
        let elected = self.elected();
        for number in 0..boxes.count {
            let (source, destination) = self.tensor_box(buffer, &boxes, number, (descriptor, coordinates));
            let copy = isa::CpAsyncBulkTensorStore {
                dimension: dimension(coordinates),
                destination_space: StateSpace::Global,
                source_space: StateSpace::SharedCta,
                mode: Some(TensorMode::Tile),
                completion: Completion::BulkGroup,
                cache_hint: false,
                destination,
                source,
                policy: None,
            };
            self.builder.emit_if(Some(elected), copy);
        }
        self.builder.emit_if(Some(elected), isa::CpAsyncBulkCommitGroup {});
        Ok(())
    }

    pub(super) fn lower_tensor_store_wait(&mut self, inst: Inst, pending: u32) -> Lowered {
        self.require(inst, Feature::Tma)?;
        // Threads that have no groups do not wait.
        self.builder.emit(isa::CpAsyncBulkWaitGroup { read: true, n: i64::from(pending).into() });
        Ok(())
    }
}

fn dimension(coordinates: &[Value]) -> TensorDimension {
    TensorDimension::ALL[coordinates.len() - 1]
}
