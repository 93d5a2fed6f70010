//! Executes `load` and `store`.
//!
//! An access through affine pointers under a box mask is one strided copy with one bounds check.
//! Other accesses gather or scatter. A pointer may access the memory of the argument from which it
//! is derived. If the argument is unknown, it may access the memory of any argument and
//! [`Launch::foreign`](crate::Launch::foreign).
#![allow(clippy::inline_always, reason = "a value that is constructed in place is not moved through memory")]

use smallvec::SmallVec;
use tilewright_ir::Dtype;

use crate::program::{Step, Use};
use crate::run::argument::Argument;
use crate::run::fault::{Fault, FaultKind, Outcome};
use crate::run::kernels::elementwise::fill;
use crate::run::kernels::fused::FusedOutput;
use crate::run::machine::Machine;
use crate::run::memory::{
    AccessError, Axis, Region, RunReader, RunWriter, gather, in_padding, is_inside, load_block, load_run,
    scatter, store_block, store_run,
};
use crate::run::tile::Tile;
use crate::run::value::{Affine, BoxMask, Form, Provenance, Value};
use crate::types::{SYMBOLIC_RANK, TileType};

use super::materialize::{materialize, materialize_unique, only_element};

/// The mask of an access, classified by its form.
#[derive(Clone, Copy)]
pub(super) enum Predicate {
    Always,
    Never,
    Box(BoxMask),
    /// The mask is dense, and it is true for at least one lane.
    PerLane,
}

impl Predicate {
    #[inline(always)]
    pub(super) fn new(mask: Option<&Form>) -> Self {
        match mask {
            Some(Form::Uniform(0)) => Predicate::Never,
            None | Some(Form::Uniform(_)) => Predicate::Always,
            Some(Form::Box(mask)) => Predicate::Box(*mask),
            // Dense masks are often false everywhere, for example in a kernel that collects a few
            // elements.
            Some(Form::Dense(mask)) if !mask.bytes().contains(&1) => Predicate::Never,
            Some(Form::Dense(_)) => Predicate::PerLane,
            Some(Form::Affine(_) | Form::InPlace(_)) => {
                unreachable!("booleans are neither affine nor operands of dots")
            }
        }
    }

    /// Returns the mask as a byte per lane, or `None` if the predicate is uniform.
    pub(super) fn lanes(self, machine: &mut Machine<'_>, ty: &TileType, mask: Option<Use>) -> Option<Tile> {
        match (self, mask) {
            (Predicate::Always | Predicate::Never, _) | (_, None) => None,
            (Predicate::Box(_) | Predicate::PerLane, Some(mask)) => {
                let ty = ty.of(Dtype::I1);
                Some(materialize(&ty, machine.take(mask)))
            }
        }
    }
}

/// The elements that an op accesses as a strided block.
struct Block {
    /// The address of the block's first element.
    address: u64,
    axes: SmallVec<[Axis; SYMBOLIC_RANK]>,
    /// The index of the block's first element in the tile.
    first: usize,
    /// The coordinates of the block's first element in the tile.
    low: [u32; SYMBOLIC_RANK],
}

impl Block {
    fn new(ty: &TileType, affine: &Affine, predicate: Predicate) -> Self {
        let mut block =
            Block { address: affine.base as u64, axes: SmallVec::new(), first: 0, low: [0; SYMBOLIC_RANK] };
        let mut tile = ty.elements();
        for (axis, &extent) in ty.shape().iter().enumerate() {
            tile /= (extent as usize).max(1);
            let (low, high) = match predicate {
                Predicate::Box(mask) => (mask.low[axis], mask.high[axis]),
                _ => (0, extent),
            };
            let stride = affine.strides[axis];
            block.address = block.address.wrapping_add(stride.wrapping_mul(i64::from(low)) as u64);
            block.first += tile * low as usize;
            block.low[axis] = low;
            block.axes.push(Axis { count: (high - low) as usize, stride, tile });
        }
        block
    }

    /// Converts an index in the block to coordinates in the tile.
    fn lane(&self, mut element: usize) -> SmallVec<[u32; 4]> {
        let mut lane: SmallVec<[u32; 4]> = SmallVec::from_elem(0, self.axes.len());
        for (axis, index) in lane.iter_mut().enumerate().rev() {
            let count = self.axes[axis].count.max(1);
            *index = (element % count) as u32 + self.low[axis];
            element /= count;
        }
        lane
    }
}

/// The elements that an op accesses as a contiguous run.
struct Run {
    address: u64,
    /// The index of the first element, and the index after the last element.
    low: usize,
    high: usize,
}

impl Run {
    #[inline(always)]
    fn new(ty: &TileType, pointer: &Form, predicate: Predicate, size: usize) -> Option<Self> {
        let (Form::Affine(affine), 1) = (pointer, ty.extents.rank) else { return None };
        if affine.strides[0] != size as i64 {
            return None;
        }
        let (low, high) = match predicate {
            Predicate::Always => (0, ty.elements()),
            Predicate::Box(mask) => (mask.low[0] as usize, mask.high[0] as usize),
            Predicate::Never | Predicate::PerLane => return None,
        };
        Some(Self { address: (affine.base as u64).wrapping_add((low * size) as u64), low, high })
    }

    /// Converts an index in the run to coordinates in the tile.
    fn lane(&self, element: usize) -> SmallVec<[u32; 4]> {
        SmallVec::from_slice(&[(self.low + element) as u32])
    }
}

/// Returns the strided block of an access, if its pointers and predicate form one.
#[inline]
fn as_block(ty: &TileType, pointer: &Form, predicate: Predicate) -> Option<Block> {
    if matches!(predicate, Predicate::PerLane) {
        return None;
    }
    let affine = match pointer {
        Form::Affine(affine) => *affine,
        Form::Uniform(address) if ty.shape().len() <= SYMBOLIC_RANK => {
            Affine { base: *address as i64, strides: [0; SYMBOLIC_RANK] }
        }
        _ => return None,
    };
    Some(Block::new(ty, &affine, predicate))
}

/// Returns the region that a block may access: that of its provenance, or the one that contains its
/// first element. Returns an empty region if there is none.
#[inline(always)]
pub(super) fn region_of<'a>(machine: &Machine<'a>, provenance: Provenance, address: u64) -> Region<'a> {
    if let Some(Argument::Pointer { region, .. }) = provenance.index().map(|index| machine.arguments[index]) {
        return region;
    }
    let found = machine.regions.iter().find(|region| region.contains(address, 1));
    found.copied().unwrap_or_else(|| Region::of(&mut []))
}

pub(super) fn regions_of<'a, 'b>(machine: &'b Machine<'a>, provenance: Provenance) -> &'b [Region<'a>] {
    match provenance.index().map(|index| &machine.arguments[index]) {
        Some(Argument::Pointer { region, .. }) => std::slice::from_ref(region),
        _ => machine.regions,
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "it becomes the error of a step")]
pub(super) fn out_of_bounds(
    error: &AccessError,
    is_store: bool,
    size: usize,
    provenance: Provenance,
) -> Box<Fault> {
    Fault::new(FaultKind::OutOfBounds { is_store, address: error.address, size, provenance })
}

/// Executes `load`. An element whose mask is false is that of `other`, or 0 without `other`. A
/// boolean is true if its byte is not 0.
pub(crate) fn load(machine: &mut Machine<'_>, step: &Step) -> Outcome {
    let [pointer, rest @ ..] = &step.operands[..] else { unreachable!("a load has a pointer") };
    let (mask, other) = (rest.first().copied(), rest.get(1).copied());
    let (ty, pointer_ty) = (machine.ty(step.result()), machine.type_of(*pointer));
    let predicate = Predicate::new(mask.map(|mask| machine.form(mask)));
    let value = match (predicate, machine.form(*pointer)) {
        (Predicate::Never, _) => {
            let other = other.map_or(Value::EMPTY, |other| machine.take(other));
            machine.release(&step.operands);
            other
        }
        (Predicate::Always, &Form::Uniform(address)) => {
            Value::uniform(load_one(machine, step, ty, address, machine.provenance(*pointer))?)
        }
        _ if machine.program.is_in_place(step.result())
            && let Some(value) = in_place(machine, ty, *pointer, predicate) =>
        {
            machine.release(rest);
            value
        }
        _ => {
            let other = other.map_or(Value::EMPTY, |other| machine.take(other));
            let mut tile = background(ty, predicate, other);
            load_tile(machine, step, ty, pointer_ty, (*pointer, predicate, mask), &mut tile)?;
            if ty.dtype() == Dtype::I1 {
                for byte in tile.bytes_mut() {
                    *byte = u8::from(*byte != 0);
                }
            }
            if !ty.is_scalar() {
                machine.set_dense(step.result(), tile);
                return Ok(());
            }
            scalar_or_tile(ty, tile)
        }
    };
    machine.set(step.result(), value);
    Ok(())
}

/// Returns the value of a load that leaves its elements in memory. Returns `None` for pointers that
/// are not affine, and for masked-off or out-of-bounds elements. Also returns `None` if observers
/// read the value.
fn in_place(machine: &Machine<'_>, ty: &TileType, pointer: Use, predicate: Predicate) -> Option<Value> {
    let (Predicate::Always, Form::Affine(affine)) = (predicate, machine.form(pointer)) else { return None };
    if machine.is_observed() {
        return None;
    }
    let provenance = machine.provenance(pointer);
    let block = Block::new(ty, affine, predicate);
    let region = region_of(machine, provenance, block.address);
    is_inside(&region, ty.size, block.address, &block.axes)
        .then(|| Value::from(Form::InPlace(*affine)).with_provenance(provenance))
}

fn load_one(
    machine: &Machine<'_>,
    step: &Step,
    ty: &TileType,
    address: u64,
    provenance: Provenance,
) -> Outcome<u64> {
    let mut bits = [0_u64];
    let region = region_of(machine, provenance, address);
    let out = &mut bytemuck::cast_slice_mut(&mut bits)[..ty.size];
    if let Err(error) = load_block(&region, ty.size, address, &[], out) {
        let fault = out_of_bounds(&error, false, ty.size, provenance).at(ty.lane(0));
        let is_padding = regions_of(machine, provenance).iter().any(|region| region.pads(address, ty.size));
        if machine.control.padded.is_none() || !is_padding {
            return Err(fault);
        }
        machine.note_padded_read(fault, step);
        bits = [0];
    }
    let bits = u64::from_le(bits[0]);
    Ok(if ty.dtype() == Dtype::I1 { u64::from(bits != 0) } else { bits })
}

/// Loads the elements under the mask into a tile that already has the others.
fn load_tile(
    machine: &mut Machine<'_>,
    step: &Step,
    ty: &TileType,
    pointer_ty: &TileType,
    (pointer, predicate, mask): (Use, Predicate, Option<Use>),
    tile: &mut Tile,
) -> Outcome {
    let provenance = machine.provenance(pointer);
    let contiguous = load_contiguous(machine, ty, pointer_ty, pointer, predicate, tile);
    match contiguous {
        Some(Err(_)) if may_read_padding(machine, provenance) => {}
        Some(outcome) => return outcome,
        None => {}
    }
    let mask = predicate.lanes(machine, ty, mask);
    let addresses = materialize(pointer_ty, machine.take(pointer));
    let addresses: &[i64] = bytemuck::cast_slice(addresses.bytes());
    let mask = mask.as_ref().map(Tile::bytes);
    let regions = regions_of(machine, provenance);
    let fault =
        |error: AccessError| out_of_bounds(&error, false, ty.size, provenance).at(ty.lane(error.element));
    let Err(error) = gather(regions, ty.size, addresses, mask, tile.bytes_mut()) else { return Ok(()) };
    if !may_read_padding(machine, provenance) {
        return Err(fault(error));
    }
    let padded = load_around_padding(regions, ty.size, addresses, mask, tile.bytes_mut()).map_err(fault)?;
    if let Some(element) = padded {
        let address = addresses[element] as u64;
        machine.note_padded_read(fault(AccessError { element, address, ..error }), step);
    }
    Ok(())
}

/// Loads a run or a strided block. Returns `None` for other accesses.
#[inline(always)]
fn load_contiguous(
    machine: &Machine<'_>,
    ty: &TileType,
    pointer_ty: &TileType,
    pointer: Use,
    predicate: Predicate,
    tile: &mut Tile,
) -> Option<Outcome> {
    let provenance = machine.provenance(pointer);
    if let Some(run) = Run::new(pointer_ty, machine.form(pointer), predicate, ty.size) {
        let region = region_of(machine, provenance, run.address);
        let out = &mut tile.bytes_mut()[run.low * ty.size..run.high * ty.size];
        return Some(
            load_run(&region, ty.size, run.address, out).map_err(|error| {
                out_of_bounds(&error, false, ty.size, provenance).at(run.lane(error.element))
            }),
        );
    }
    let block = as_block(pointer_ty, machine.form(pointer), predicate)?;
    let region = region_of(machine, provenance, block.address);
    let out = &mut tile.bytes_mut()[block.first * ty.size..];
    Some(
        load_block(&region, ty.size, block.address, &block.axes, out)
            .map_err(|error| out_of_bounds(&error, false, ty.size, provenance).at(block.lane(error.element))),
    )
}

/// Returns whether the launch records loads from padding, and a region of the pointer has padding.
pub(super) fn may_read_padding(machine: &Machine<'_>, provenance: Provenance) -> bool {
    machine.control.padded.is_some()
        && regions_of(machine, provenance).iter().any(|region| region.padding() > 0)
}

/// Loads the elements under a mask, and 0 for those in padding. Returns the index of the first
/// element in padding. Fails if an element is out of bounds and not in padding.
#[cold]
fn load_around_padding(
    regions: &[Region<'_>],
    size: usize,
    addresses: &[i64],
    mask: Option<&[u8]>,
    out: &mut [u8],
) -> Result<Option<usize>, AccessError> {
    let padded = in_padding(regions, size, addresses, mask);
    gather(regions, size, addresses, Some(&others(&padded, mask)), out)?;
    for (element, _) in padded.iter().enumerate().filter(|(_, lane)| **lane != 0) {
        out[element * size..][..size].fill(0);
    }
    Ok(padded.iter().position(|&lane| lane != 0))
}

/// Returns the lanes under a mask that are not in padding.
pub(super) fn others(padded: &[u8], mask: Option<&[u8]>) -> Vec<u8> {
    let is_on = |element: usize| mask.is_none_or(|mask| mask[element] != 0);
    padded.iter().enumerate().map(|(element, &lane)| u8::from(lane == 0 && is_on(element))).collect()
}

/// Returns the destination of a load, filled with `other` where the mask is false.
fn background(ty: &TileType, predicate: Predicate, other: Value) -> Tile {
    match (predicate, &other.form) {
        (Predicate::Always, _) => Tile::new(ty.bytes()),
        // The box covers the inner axes, so only the rows outside of it need `other`.
        (Predicate::Box(mask), &Form::Uniform(bits)) if covers_inner(ty, &mask) => {
            let mut tile = Tile::new(ty.bytes());
            let row = ty.bytes() / (ty.shape()[0] as usize).max(1);
            let out = tile.bytes_mut();
            fill(ty.size, &mut out[..mask.low[0] as usize * row], bits);
            fill(ty.size, &mut out[mask.high[0] as usize * row..], bits);
            tile
        }
        _ => materialize_unique(ty, other),
    }
}

fn covers_inner(ty: &TileType, mask: &BoxMask) -> bool {
    (1..ty.shape().len()).all(|axis| mask.low[axis] == 0 && mask.high[axis] == ty.shape()[axis])
}

/// Executes `store`. Writes nothing if an element is out of bounds. If elements share an address,
/// memory has one of them afterwards.
pub(crate) fn store(machine: &mut Machine<'_>, step: &Step) -> Outcome {
    let [pointer, value, rest @ ..] = &step.operands[..] else { unreachable!("a store has two operands") };
    let mask = rest.first().copied();
    let (ty, pointer_ty) = (machine.type_of(*value), machine.type_of(*pointer));
    let provenance = machine.provenance(*pointer);
    let predicate = Predicate::new(mask.map(|mask| machine.form(mask)));
    match (predicate, machine.form(*pointer), machine.form(*value)) {
        (Predicate::Never, ..) => {
            machine.release(&step.operands);
            return Ok(());
        }
        (Predicate::Always, &Form::Uniform(address), &Form::Uniform(bits)) => {
            let region = region_of(machine, provenance, address);
            return store_block(&region, ty.size, address, &[], &bits.to_le_bytes()[..ty.size], false)
                .map_err(|error| out_of_bounds(&error, true, ty.size, provenance).at(ty.lane(0)));
        }
        _ => {}
    }
    let tile = materialize(ty, machine.take(*value));
    if let Some(run) = Run::new(pointer_ty, machine.form(*pointer), predicate, ty.size) {
        let region = region_of(machine, provenance, run.address);
        let data = &tile.bytes()[run.low * ty.size..run.high * ty.size];
        let non_temporal = machine.non_temporal(&region, data.len());
        return store_run(&region, ty.size, run.address, data, non_temporal)
            .map_err(|error| out_of_bounds(&error, true, ty.size, provenance).at(run.lane(error.element)));
    }
    if let Some(block) = as_block(pointer_ty, machine.form(*pointer), predicate) {
        let region = region_of(machine, provenance, block.address);
        let data = &tile.bytes()[block.first * ty.size..];
        let non_temporal = machine.non_temporal(&region, ty.bytes());
        return store_block(&region, ty.size, block.address, &block.axes, data, non_temporal)
            .map_err(|error| out_of_bounds(&error, true, ty.size, provenance).at(block.lane(error.element)));
    }
    let mask = predicate.lanes(machine, ty, mask);
    let addresses = materialize(pointer_ty, machine.take(*pointer));
    let addresses = bytemuck::cast_slice(addresses.bytes());
    let mask = mask.as_ref().map(Tile::bytes);
    scatter(regions_of(machine, provenance), ty.size, addresses, mask, tile.bytes())
        .map_err(|error| out_of_bounds(&error, true, ty.size, provenance).at(ty.lane(error.element)))
}

/// Returns the operands with which a fused loop replaces a load: the memory of the first elements,
/// and the value of the others.
///
/// Returns `None` if the elements are not contiguous, if `other` is not uniform, or if an element
/// may be in padding. Fails with the fault of the load.
#[inline(always)]
pub(crate) fn direct_load<'a>(machine: &Machine<'a>, step: &Step) -> Outcome<Option<(RunReader<'a>, f32)>> {
    let [pointer, rest @ ..] = &step.operands[..] else { return Ok(None) };
    let other = match rest.get(1).map(|&other| machine.form(other)) {
        None => 0.0,
        Some(&Form::Uniform(bits)) => f32::from_bits(bits as u32),
        Some(_) => return Ok(None),
    };
    let Some((region, run)) = direct(machine, *pointer, rest.first().copied()) else { return Ok(None) };
    let bytes = run.high * size_of::<f32>();
    match RunReader::new(&region, size_of::<f32>(), run.address, bytes) {
        Ok(reader) => Ok(Some((reader, other))),
        Err(_) if may_read_padding(machine, machine.provenance(*pointer)) => Ok(None),
        Err(error) => {
            let provenance = machine.provenance(*pointer);
            Err(out_of_bounds(&error, false, size_of::<f32>(), provenance).at(run.lane(error.element)))
        }
    }
}

/// Returns the target with which a fused loop replaces a store of the first elements of a tile to
/// contiguous memory. Returns `None` for other stores. Fails with the fault of the store.
#[inline(always)]
pub(crate) fn direct_store<'a>(machine: &Machine<'a>, step: &Step) -> Outcome<Option<FusedOutput<'a>>> {
    let [pointer, _, rest @ ..] = &step.operands[..] else { return Ok(None) };
    let Some((region, run)) = direct(machine, *pointer, rest.first().copied()) else { return Ok(None) };
    let bytes = run.high * size_of::<f32>();
    let non_temporal = machine.non_temporal(&region, bytes);
    match RunWriter::new(&region, size_of::<f32>(), run.address, bytes, non_temporal) {
        Ok(writer) => Ok(Some(FusedOutput { run: writer, elements: run.high })),
        Err(error) => {
            let provenance = machine.provenance(*pointer);
            Err(out_of_bounds(&error, true, size_of::<f32>(), provenance).at(run.lane(error.element)))
        }
    }
}

/// Returns the region and the run of an access to the first elements of a tile, if they are
/// contiguous.
#[inline(always)]
fn direct<'a>(machine: &Machine<'a>, pointer: Use, mask: Option<Use>) -> Option<(Region<'a>, Run)> {
    let predicate = Predicate::new(mask.map(|mask| machine.form(mask)));
    let run = Run::new(machine.type_of(pointer), machine.form(pointer), predicate, size_of::<f32>())?;
    (run.low == 0).then(|| (region_of(machine, machine.provenance(pointer), run.address), run))
}

/// Returns a tile as a value, or its only element if the type is scalar.
pub(crate) fn scalar_or_tile(ty: &TileType, tile: Tile) -> Value {
    if ty.is_scalar() { Value::uniform(only_element(ty.size, tile.bytes())) } else { Value::dense(tile) }
}
