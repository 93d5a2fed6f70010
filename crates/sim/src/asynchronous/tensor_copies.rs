//! Executes tensor copies, which move boxes of a tensor between global and shared memory.

use super::barriers::{self, BarrierAddress};
use super::bulk::{self, Completion, Reduction};
use super::illegal;
use super::pointer::Pointer;
use super::tensor_map::{BoxRow, Field, TENSOR_MAP_BYTES, TensorDataType, TensorMap};
use crate::context::{Context, Execute, Flow, ResolvedAddress, aligned};
use crate::events::{EventKind, Piece};
use crate::fault::{FaultKind, OfLane, Outcome};
use crate::memory::Agent;
use crate::registers::{Slot, lanes_of};

/// `tensormap.replace`: sets a field of a map.
pub(crate) struct Replace {
    pub map: Pointer,
    pub field: Field,
    pub value: Slot,
}

impl Execute for Replace {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            let place = self.map.place(context, lane);
            aligned(place, MAP_ALIGNMENT, true).of_lane(lane)?;
            for (at, patch) in self.field.patches(context.get(self.value, lane)) {
                let place = place.offset(at as u64);
                context.write(place, lane, 1, false, &patch).of_lane(lane)?;
            }
            if let ResolvedAddress::Global(address) = place {
                context.maps.make(address, context.own_step(), false);
            }
        }
        Ok(Flow::Next)
    }
}

/// `tensormap.cp_fenceproxy`: copies a map to global memory and releases it, once for the warp.
pub(crate) struct Publish {
    pub destination: Pointer,
    pub source: Pointer,
}

impl Execute for Publish {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let lane = context.lanes.trailing_zeros() as usize;
        let mut bytes = [0; TENSOR_MAP_BYTES];
        let (source, destination) = (self.source.place(context, lane), self.destination.place(context, lane));
        context.read(source, lane, MAP_ALIGNMENT, false, &mut bytes).of_lane(lane)?;
        context.write(destination, lane, MAP_ALIGNMENT, false, &bytes).of_lane(lane)?;
        if let ResolvedAddress::Global(address) = destination {
            context.maps.make(address, context.own_step(), true);
        }
        Ok(Flow::Next)
    }
}

/// The alignment in bytes of boxes in shared memory.
const BOX_ALIGNMENT: u32 = 128;
/// The alignment in bytes of tensor maps.
const MAP_ALIGNMENT: u32 = 64;
/// The bytes that a swizzle moves as a unit.
const CHUNK: usize = 16;

pub(crate) struct TensorBox {
    pub map: Pointer,
    /// One coordinate per dimension, the contiguous one first. For gathered rows: the column, then
    /// the row indices.
    pub coordinates: Vec<Slot>,
    /// True for four gathered rows: `.tile::gather4`, `.tile::scatter4`.
    pub is_rows: bool,
    /// The offsets of pixels with `.im2col`, one per dimension of the bounding box.
    pub offsets: Option<Vec<Slot>>,
}

impl TensorBox {
    fn load(&self, context: &mut Context<'_>, lane: usize) -> Outcome<(TensorMap, Vec<i32>)> {
        let place = self.map.place(context, lane);
        let mut bytes = [0; TENSOR_MAP_BYTES];
        context.read(place, lane, MAP_ALIGNMENT, false, &mut bytes)?;
        if let ResolvedAddress::Global(address) = place {
            context.maps.check(address, |maker| context.is_known(maker))?;
        }
        let map = TensorMap::decode(&bytes).or_else(|error| illegal(error.to_string()))?;
        if self.is_rows {
            if map.rank() != 2 || map.box_extents[1] != 1 {
                return illegal(format!(
                    "a tensor copy of gathered rows by a map of {} dimensions with a box of {:?}: the map has to have 2 dimensions and a box of one row",
                    map.rank(),
                    map.box_extents
                ));
            }
        } else if map.pixels.is_some() != self.offsets.is_some() {
            let (copy, of) =
                if map.pixels.is_some() { ("boxes", "im2col copies") } else { ("pixels", "boxes") };
            return illegal(format!("a tensor copy of {copy} by a map for {of}"));
        } else if map.rank() != self.coordinates.len() {
            return illegal(format!(
                "a tensor copy with {} coordinates by a map of {} dimensions: the numbers have to be equal",
                self.coordinates.len(),
                map.rank()
            ));
        }
        // Hopper reports an illegal access if the base is not mapped, even if no element lies
        // before the tensor. The ISA does not state this.
        context.global.read(context.hint, map.address, &mut [0])?;
        let coordinates: Vec<i32> =
            self.coordinates.iter().map(|&slot| context.get(slot, lane) as i32).collect();
        // Hopper reports an illegal instruction unless each row begins at a multiple of 16 bytes.
        // The ISA does not state this.
        let start = i64::from(coordinates[0]) * i64::from(map.data_type.bytes());
        if start % CHUNK as i64 != 0 {
            return illegal(format!(
                "a tensor copy begins at byte {start} of a row of the tensor: it has to begin at a multiple of {CHUNK}"
            ));
        }
        Ok((map, coordinates))
    }
}

impl TensorBox {
    /// Returns the rows of a copy of a lane, in the order of shared memory.
    fn rows_of_lane(
        &self,
        context: &Context<'_>,
        lane: usize,
        (map, coordinates): (&TensorMap, &[i32]),
    ) -> Outcome<Vec<BoxRow>> {
        let (Some(pixels), Some(offsets)) = (&map.pixels, &self.offsets) else {
            return Ok(self.rows(map, coordinates));
        };
        // Hopper reports an illegal instruction if the first pixel is outside of the bounding box.
        // The ISA does not state this.
        if let Some(reason) = pixels.misplaced(map, coordinates) {
            return illegal(reason);
        }
        let offsets: Vec<i16> = offsets.iter().map(|&slot| context.get(slot, lane) as i16).collect();
        Ok(pixels.rows(map, coordinates, &offsets))
    }

    /// Returns the rows of the box, or the gathered rows, in the order of shared memory.
    fn rows(&self, map: &TensorMap, coordinates: &[i32]) -> Vec<BoxRow> {
        if !self.is_rows {
            return map.rows(coordinates).collect();
        }
        let row = |(number, row): (u32, &i32)| {
            let place = [coordinates[0], *row];
            let found = map.rows(&place).next().expect("a box of one row has it");
            BoxRow { offset: number * map.row_bytes(), ..found }
        };
        (0..).zip(&coordinates[1..]).map(row).collect()
    }

    /// Returns the size of the box in shared memory.
    fn bytes(&self, map: &TensorMap) -> u32 {
        let rows = if self.is_rows { self.coordinates.len() as u32 - 1 } else { 1 };
        map.box_bytes() * rows
    }
}

/// Returns the offset in shared memory of each chunk of a row, and the bytes of the row in it.
fn chunks(
    map: &TensorMap,
    start: u64,
    row: u32,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> + use<> {
    let swizzle = map.swizzle;
    (0..map.row_bytes() as usize).step_by(CHUNK).map(move |byte| {
        let linear = start as u32 + row + byte as u32;
        (u64::from(swizzle.apply(linear, 0)), byte..byte + CHUNK)
    })
}

/// `cp.async.bulk.tensor` from global to shared memory.
pub(crate) struct TensorLoad {
    pub destination: Pointer,
    pub source: TensorBox,
    pub barrier: Pointer,
    /// A mask of the ranks of the blocks that receive the box, or only the block of the
    /// destination.
    pub mask: Option<Slot>,
    /// True for `.cta_group::2`: the barrier may be in the other block of the destination's pair.
    pub is_pair: bool,
}

impl Execute for TensorLoad {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            self.execute_lane(context, lane).of_lane(lane)?;
        }
        Ok(Flow::Next)
    }
}

impl TensorLoad {
    fn execute_lane(&self, context: &mut Context<'_>, lane: usize) -> Outcome {
        let (map, coordinates) = self.source.load(context, lane)?;
        let destination = self.destination.place(context, lane);
        aligned(destination, BOX_ALIGNMENT, true)?;
        let operation = bulk::begin(context, &Completion::Barrier(self.barrier), lane)?;
        let agent = operation.reads;
        let targets = bulk::targets(context, self.mask, lane, destination, operation.barrier)?;
        self.check_barriers(&targets)?;
        let fill = map.fill_row();
        let rows = self.source.rows_of_lane(context, lane, (&map, &coordinates))?;
        record_box(context, EventKind::CopyToShared, destination, self.source.bytes(&map), &rows);
        for row in rows {
            let mut bytes = fill.clone();
            let inside = row.inside.start as usize..row.inside.end as usize;
            if !inside.is_empty() {
                let place = ResolvedAddress::Global(row.address + u64::from(row.inside.start));
                bulk::read(context, &agent, (place, lane), &mut bytes[inside])?;
            }
            for &(place, _) in &targets {
                write_row(context, &agent, &map, place, row.offset, &bytes)?;
            }
        }
        for (_, barrier) in targets {
            let barrier = barrier.expect("a load completes at a barrier");
            barriers::complete(context, barrier, self.source.bytes(&map), &agent)?;
        }
        Ok(())
    }
}

impl TensorLoad {
    /// Checks that each barrier is in the block of the destination or, for a pair, in its pair.
    fn check_barriers(&self, targets: &[(ResolvedAddress, Option<BarrierAddress>)]) -> Outcome {
        let bits = u32::from(self.is_pair);
        for (place, barrier) in targets {
            let (ResolvedAddress::Shared { rank, .. }, Some((other, _))) = (place, barrier) else { continue };
            if rank >> bits != other >> bits {
                return illegal(format!(
                    "a tensor load to block {rank} of the cluster signals an mbarrier of block {other}: it has to be in \
                     the same block, or with `.cta_group::2` in the same pair of blocks"
                ));
            }
        }
        Ok(())
    }
}

/// Records a copy of the rows of a box between global memory and a buffer in shared memory.
fn record_box(
    context: &mut Context<'_>,
    kind: EventKind,
    buffer: ResolvedAddress,
    bytes: u32,
    rows: &[BoxRow],
) {
    let (Some(events), ResolvedAddress::Shared { rank, offset }) = (&mut context.events, buffer) else {
        return;
    };
    events.copy(kind, (rank, offset), bytes);
    for (index, row) in (0..).zip(rows) {
        let offset = row.inside.start;
        let (address, bytes) = (row.address + u64::from(offset), row.inside.end - offset);
        if bytes > 0 {
            events.piece(kind, Piece { row: index, offset, address, bytes });
        }
    }
}

fn write_row(
    context: &mut Context<'_>,
    agent: &Agent,
    map: &TensorMap,
    place: ResolvedAddress,
    row: u32,
    bytes: &[u8],
) -> Outcome {
    let ResolvedAddress::Shared { rank, offset } = place else {
        return illegal("a tensor load has to go to shared memory".into());
    };
    for (offset, chunk) in chunks(map, offset, row) {
        bulk::write(context, agent, ResolvedAddress::Shared { rank, offset }, &bytes[chunk], None)?;
    }
    Ok(())
}

pub(crate) type ReductionOf = Box<dyn Fn(TensorDataType) -> Result<Reduction, FaultKind> + Send + Sync>;

/// `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor` from shared to global memory.
pub(crate) struct TensorStore {
    pub destination: TensorBox,
    pub source: Pointer,
    /// The reduction of `cp.reduce.async.bulk.tensor`. `None` stores the box.
    pub reduction: Option<ReductionOf>,
}

impl Execute for TensorStore {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            self.execute_lane(context, lane).of_lane(lane)?;
        }
        Ok(Flow::Next)
    }
}

impl TensorStore {
    fn execute_lane(&self, context: &mut Context<'_>, lane: usize) -> Outcome {
        let (map, coordinates) = self.destination.load(context, lane)?;
        // The CUDA programming guide forbids negative coordinates, and Hopper reports an error.
        if let Some(coordinate) = coordinates.iter().find(|&&coordinate| coordinate < 0) {
            return illegal(format!(
                "a tensor store to the coordinate {coordinate}: a box may reach over the end of the tensor, not over its start"
            ));
        }
        let source = self.source.place(context, lane);
        aligned(source, BOX_ALIGNMENT, false)?;
        let ResolvedAddress::Shared { rank, offset } = source else {
            return illegal("a tensor store has to come from shared memory".into());
        };
        let reduction = self.reduction.as_ref().map(|reduction| reduction(map.data_type)).transpose()?;
        let operation = bulk::begin(context, &Completion::Group, lane)?;
        let rows = self.destination.rows(&map, &coordinates);
        record_box(context, EventKind::CopyToGlobal, source, self.destination.bytes(&map), &rows);
        for row in rows {
            let mut bytes = vec![0; map.row_bytes() as usize];
            for (offset, chunk) in chunks(&map, offset, row.offset) {
                let place = ResolvedAddress::Shared { rank, offset };
                bulk::read(context, &operation.reads, (place, lane), &mut bytes[chunk])?;
            }
            // If the tensor ends within a chunk, Hopper writes the whole chunk. The ISA does not
            // state this.
            let inside = row.inside.start as usize..row.inside.end.next_multiple_of(CHUNK as u32) as usize;
            if !row.inside.is_empty() {
                let place = ResolvedAddress::Global(row.address + u64::from(row.inside.start));
                bulk::write(context, operation.writes(), place, &bytes[inside], reduction.as_ref())?;
            }
        }
        operation.end(context, lane);
        Ok(())
    }
}
