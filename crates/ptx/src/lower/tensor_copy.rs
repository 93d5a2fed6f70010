//! Copies of boxes of tensors by the tensor memory accelerator.
//!
//! PTX ISA, "Data Movement and Conversion Instructions: Tensor copy, `cp.async.bulk.tensor`".
//!
//! A buffer with rows longer than its swizzle's consists of consecutive boxes. One copy moves each
//! box.

use smallvec::SmallVec;
use tilewright_gpu_ir::{BoxLayout, Feature, GATHERED_ROWS_PER_COPY};
use tilewright_ir::{AtomicKind, Inst, Value};

use super::builder::{Scalar, Width, move_to};
use super::{LANES, Lowered, Lowering, memory_bits};
use crate::isa::{
    self, Address, AtomicOperation, Comparison, Completion, Coordinates, Predicate, PrefetchLevel,
    RegisterId, ScalarType, Source, StateSpace, Symbol, TensorAddress, TensorDimension, TensorMode, Variable,
};

/// The size and the alignment of a tensor map, in bytes.
const MAP_BYTES: u64 = 128;
const MAP_ALIGNMENT: u32 = 64;

impl Lowering<'_> {
    /// Declares a tensor map parameter, and sets `value` to the map's address.
    pub(super) fn tensor_map_parameter(&mut self, index: usize, value: Value) {
        let name = format!("{}_param_{index}", self.builder.function.name);
        let variable = Variable::array(name, StateSpace::Param, ScalarType::B8, MAP_BYTES, MAP_ALIGNMENT);
        let id = self.builder.function.variables.push(variable);
        self.builder.function.parameters.push(id);
        let symbol = Source::Symbol(Symbol::Variable(id), 0);
        let place = self.builder.pure(Width::B64, |d| move_to(Width::B64, d, symbol));
        let place = self.builder.register(Width::B64, place);
        let address = self.builder.pure(Width::B64, |d| isa::Cvta {
            to: false,
            space: StateSpace::Param,
            ty: ScalarType::U64,
            d,
            a: Source::Register(place),
        });
        self.set(value, [address]);
    }

    /// Prefetches the launch's tensor maps at the start of the kernel. Otherwise, the first copy
    /// would wait for its map.
    pub(super) fn prefetch_tensor_maps(&mut self) {
        let parameters = &self.kernel.blocks[self.kernel.entry].parameters;
        let maps = parameters[self.tensor_map_parameters()].to_vec();
        if maps.is_empty() {
            return;
        }
        let elected = self.elected();
        for map in maps {
            let map = self.scalar(map);
            let address = self.builder.address(Width::B64, map);
            let level = PrefetchLevel::Tensormap;
            self.builder.emit_if(Some(elected), isa::Prefetch { space: None, level, address });
        }
    }

    /// Returns the boxes of a buffer. Fails without tensor copies, for other layouts, and for
    /// tensors of fewer axes than the buffer or more than five.
    pub(super) fn tensor_boxes(
        &self,
        inst: Inst,
        buffer: Value,
        rank: usize,
    ) -> Result<BoxLayout, Box<tilewright_base::Diagnostic>> {
        self.require(inst, Feature::Tma)?;
        let memory = self.layout(buffer);
        let ty = self.kernel.ty(buffer);
        let boxes = BoxLayout::of(memory, memory_bits(self.element(buffer)));
        let boxes = boxes.ok_or_else(|| self.unsupported(inst, &format!("a tensor copy of {ty}")))?;
        if !(memory.output().rank()..=5).contains(&rank) {
            return Err(self.unsupported(inst, &format!("a tensor copy of {ty} at {rank} coordinates")));
        }
        Ok(boxes)
    }

    /// Returns the shared address of box `number`, and its tensor coordinates.
    pub(super) fn tensor_box(
        &mut self,
        buffer: Value,
        boxes: &BoxLayout,
        number: u32,
        tensor: (Value, &[Value]),
    ) -> (Address, TensorAddress) {
        let place = Scalar::constant((number * boxes.bytes).into());
        let skipped = Scalar::constant((number * boxes.row).into());
        self.tensor_part(buffer, boxes, place, (0, skipped), tensor)
    }

    /// Returns the position of a part of a tile in both memories. In shared memory, it is `bytes`
    /// after the buffer's start. In the tensor, it is `skipped` elements along the axis `along`.
    /// Axis 0 is the contiguous one, as in PTX.
    pub(super) fn tensor_part(
        &mut self,
        buffer: Value,
        boxes: &BoxLayout,
        bytes: Scalar,
        (along, skipped): (usize, Scalar),
        (map, coordinates): (Value, &[Value]),
    ) -> (Address, TensorAddress) {
        let place = self.scalar(buffer);
        let place = self.builder.add(Width::B32, place, bytes);
        let place = self.builder.address(Width::B32, place);
        let map = self.scalar(map);
        let map = self.builder.address(Width::B64, map);
        // The tile has the tensor's last axes. PTX names the contiguous axis first, along which the
        // boxes follow each other.
        let own = coordinates.len() - boxes.order.len();
        let order = boxes.order.iter().map(|axis| own + axis).chain((0..own).rev());
        let registers: SmallVec<[RegisterId; 5]> = order
            .enumerate()
            .map(|(place, axis)| {
                let start = self.scalar(coordinates[axis]);
                let start = if place == along { self.builder.add(Width::B32, start, skipped) } else { start };
                self.builder.register(Width::B32, start)
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
        if let Some(condition) = self.shared_condition(buffer) {
            self.multicast_load(condition, [buffer, descriptor], [barriers, slot], &boxes, coordinates);
            return Ok(());
        }
        if let Some(place) = self.gathered_row_indices(coordinates) {
            let mbarrier = self.mbarrier(barriers, slot);
            for (guard, (destination, source)) in
                self.gather_copies(buffer, &boxes, (descriptor, coordinates), (place, false))
            {
                let copy = isa::CpAsyncBulkTensorLoad {
                    dimension: TensorDimension::D2,
                    mode: Some(TensorMode::TileGather4),
                    ..load_of_box((destination, source), mbarrier, None)
                };
                self.builder.emit_if(guard, copy);
            }
            return Ok(());
        }
        let elected = self.elected();
        let mbarrier = self.mbarrier(barriers, slot);
        for number in 0..boxes.count {
            let place = self.tensor_box(buffer, &boxes, number, (descriptor, coordinates));
            self.builder.emit_if(Some(elected), load_of_box(place, mbarrier, None));
        }
        Ok(())
    }

    pub(super) fn lower_tensor_store(
        &mut self,
        inst: Inst,
        [buffer, descriptor]: [Value; 2],
        coordinates: &[Value],
        reduction: Option<AtomicKind>,
    ) -> Lowered {
        let boxes = self.tensor_boxes(inst, buffer, coordinates.len())?;
        let operation = match reduction {
            None => None,
            Some(AtomicKind::Add) => Some(AtomicOperation::Add),
            Some(AtomicKind::And) => Some(AtomicOperation::And),
            Some(AtomicKind::Or) => Some(AtomicOperation::Or),
            Some(AtomicKind::Xor) => Some(AtomicOperation::Xor),
            Some(AtomicKind::Max) => Some(AtomicOperation::Max),
            Some(AtomicKind::Min) => Some(AtomicOperation::Min),
            Some(AtomicKind::Exchange) => return Err(self.unsupported(inst, "an exchange by a tensor copy")),
        };
        if let Some(place) = self.gathered_row_indices(coordinates) {
            let copies = self.gather_copies(buffer, &boxes, (descriptor, coordinates), (place, true));
            let guard = copies.first().and_then(|(guard, _)| *guard);
            for (guard, (source, destination)) in copies {
                let mode = TensorMode::TileScatter4;
                self.builder.emit_if(guard, store_of_box(TensorDimension::D2, mode, (source, destination)));
            }
            self.builder.emit_if(guard, isa::CpAsyncBulkCommitGroup {});
            return Ok(());
        }
        let elected = self.elected();
        for number in 0..boxes.count {
            let (source, destination) = self.tensor_box(buffer, &boxes, number, (descriptor, coordinates));
            if let Some(operation) = operation {
                let copy = isa::CpReduceAsyncBulkTensor {
                    dimension: dimension(coordinates),
                    destination_space: StateSpace::Global,
                    source_space: StateSpace::SharedCta,
                    operation,
                    mode: Some(TensorMode::Tile),
                    completion: Completion::BulkGroup,
                    cache_hint: false,
                    destination,
                    source,
                    policy: None,
                };
                self.builder.emit_if(Some(elected), copy);
                continue;
            }
            let copy = store_of_box(dimension(coordinates), TensorMode::Tile, (source, destination));
            self.builder.emit_if(Some(elected), copy);
        }
        self.builder.emit_if(Some(elected), isa::CpAsyncBulkCommitGroup {});
        Ok(())
    }

    /// Returns the index of the coordinate that is a tile of row indices.
    fn gathered_row_indices(&self, coordinates: &[Value]) -> Option<usize> {
        coordinates.iter().position(|value| self.layout_of(*value).is_some())
    }

    /// Returns copies that gather or scatter four rows each. A guard selects the lanes that copy;
    /// `None` selects all. A copy also has the rows' positions in shared memory and in the tensor.
    ///
    /// The first lanes of the first warp copy four consecutive rows each. Beyond 4 * 32 rows, each
    /// lane continues with further groups.
    fn gather_copies(
        &mut self,
        buffer: Value,
        boxes: &BoxLayout,
        (map, coordinates): (Value, &[Value]),
        (place, is_written): (usize, bool),
    ) -> Vec<(Option<Predicate>, (Address, TensorAddress))> {
        let numbers = self.get(coordinates[place]);
        let count = self.layout(coordinates[place]).output().shape()[0];
        let row_bytes = boxes.bytes / count;
        let lanes = (count / GATHERED_ROWS_PER_COPY).min(LANES);
        let thread = self.thread();
        let is_all = lanes == LANES && self.warps.count == 1;
        let guard = (!is_all).then(|| {
            let lanes = Scalar::constant(lanes.into());
            let guard = self.builder.compare(Width::B32, false, Comparison::Lt, thread, lanes);
            self.builder.predicate(guard)
        });
        let column = self.scalar(coordinates[1 - place]);
        let map = self.scalar(map);
        let map = self.builder.address(Width::B64, map);
        let step = Scalar::constant((GATHERED_ROWS_PER_COPY * row_bytes).into());
        let own = self.builder.mul(Width::B32, thread, step);
        let start = self.scalar(buffer);
        let start = self.builder.add(Width::B32, start, own);
        let mut copies = Vec::new();
        for (number, rows) in (0..).zip(numbers.chunks(GATHERED_ROWS_PER_COPY as usize)) {
            let rows: Vec<Scalar> =
                rows.iter().map(|row| if is_written { self.row_to_write(*row) } else { *row }).collect();
            for part in 0..boxes.count {
                let distance = part * boxes.bytes + number * LANES * GATHERED_ROWS_PER_COPY * row_bytes;
                let place = self.builder.add(Width::B32, start, Scalar::constant(distance.into()));
                let place = self.builder.address(Width::B32, place);
                let skipped = Scalar::constant((part * boxes.row).into());
                let column = self.builder.add(Width::B32, column, skipped);
                let registers: SmallVec<[RegisterId; 5]> = [column]
                    .iter()
                    .chain(&rows)
                    .map(|value| self.builder.register(Width::B32, *value))
                    .collect();
                let coordinates = registers.into_iter().collect::<Coordinates>();
                copies.push((guard, (place, TensorAddress { map, coordinates })));
            }
        }
        copies
    }

    /// Replaces a negative row index by `i32::MAX`, which is past the end of every tensor. Hardware
    /// skips rows past the end, but a store must not start before the tensor.
    fn row_to_write(&mut self, row: Scalar) -> Scalar {
        let most = Scalar::constant(i32::MAX as u64);
        self.builder.extremum(Width::B32, false, false, row, most)
    }

    pub(super) fn lower_tensor_store_wait(&mut self, inst: Inst, pending: u32, complete: bool) -> Lowered {
        self.require(inst, Feature::Tma)?;
        // A thread without bulk groups continues at once.
        self.builder.emit(isa::CpAsyncBulkWaitGroup { read: !complete, n: i64::from(pending).into() });
        Ok(())
    }
}

/// Returns the load of a box to this block, or those in `cta_mask`.
pub(super) fn load_of_box(
    (destination, source): (Address, TensorAddress),
    mbarrier: Address,
    cta_mask: Option<Source>,
) -> isa::CpAsyncBulkTensorLoad {
    isa::CpAsyncBulkTensorLoad {
        dimension: TensorDimension::ALL[source.coordinates.0.len() - 1],
        destination_space: StateSpace::SharedCluster,
        source_space: StateSpace::Global,
        mode: Some(TensorMode::Tile),
        completion: Completion::Mbarrier,
        multicast: cta_mask.is_some(),
        cta_group: None,
        cache_hint: false,
        destination,
        source,
        mbarrier,
        offsets: None,
        cta_mask,
        policy: None,
    }
}

/// Returns the store of a box, or of four of its rows.
fn store_of_box(
    dimension: TensorDimension,
    mode: TensorMode,
    (source, destination): (Address, TensorAddress),
) -> isa::CpAsyncBulkTensorStore {
    isa::CpAsyncBulkTensorStore {
        dimension,
        destination_space: StateSpace::Global,
        source_space: StateSpace::SharedCta,
        mode: Some(mode),
        completion: Completion::BulkGroup,
        cache_hint: false,
        destination,
        source,
        policy: None,
    }
}

fn dimension(coordinates: &[Value]) -> TensorDimension {
    TensorDimension::ALL[coordinates.len() - 1]
}
