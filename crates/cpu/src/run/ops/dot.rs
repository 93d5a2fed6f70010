//! Executes `dot`: `acc + a @ b` over the last two axes, with an optional batch axis.
//!
//! See [`crate::run::kernels::dot`] for the order of additions. `fp32` operands keep their
//! precision: a lower input precision is allowed, but not required. An operand is a tile, or
//! elements that a load has left in memory.
//! The machine may execute iterations of a loop over k as one dot, if their tiles are adjacent in
//! memory. For example, 8 dots of [64, 32] by [32, 64] become one dot of [64, 256] by [256, 64].
//! Each element of the accumulator adds the same products in the same order. The machine computes
//! the masks of the first two iterations and of the last one. A mask that is true in two iterations
//! is also true between them ([`products`](crate::compile::products)). If an element of the last
//! iteration is masked off, the loop executes this iteration. The machine then checks the iteration
//! before it.

use smallvec::SmallVec;
use tilewright_ir::Dtype;

use crate::program::{Action, Block, ProductLoop, Step, Use};
use crate::run::fault::Outcome;
use crate::run::kernels::dot::{Extents, Matrix, dot as product, may_be_divided};
use crate::run::machine::Machine;
use crate::run::memory::{MatrixReader, Region};
use crate::run::symbolic::range;
use crate::run::tile::Tile;
use crate::run::value::{Affine, Form, Provenance, Value};
use crate::tuning::MAX_PRODUCT_DEPTH;
use crate::types::{Number, SYMBOLIC_RANK, TileType};

use super::materialize::{materialize, materialize_unique};
use super::memory::region_of;

/// An operand of a dot.
enum Operand<'a> {
    Tile(Tile),
    /// Elements in user memory. The boolean is true if no program of the launch can change them.
    InPlace(Affine, Region<'a>, bool),
}

impl<'a> Operand<'a> {
    fn take(machine: &mut Machine<'a>, operand: Use) -> Self {
        let ty = machine.type_of(operand);
        let value = machine.take(operand);
        match value.form {
            Form::InPlace(affine) => Self::in_place(machine, affine, value.provenance),
            _ => Self::Tile(materialize(ty, value)),
        }
    }

    /// Returns an operand in user memory.
    fn in_place(machine: &Machine<'a>, affine: Affine, provenance: Provenance) -> Self {
        let region = region_of(machine, provenance, affine.base as u64);
        Self::InPlace(affine, region, machine.is_constant(&region))
    }

    /// Returns the matrix at an index of the batch axis, if there is one. The last parameter has
    /// the extents of the last two axes in memory. Panics if an element is outside of its region.
    fn matrix(
        &self,
        ty: &TileType,
        batch: usize,
        [rows, columns]: [usize; 2],
        transposed: bool,
    ) -> Matrix<'_> {
        let (dtype, rank) = (ty.dtype(), ty.shape().len());
        let matrix = match self {
            Self::Tile(tile) => {
                let bytes = rows * columns * ty.size;
                Matrix::new(dtype, &tile.bytes()[batch * bytes..][..bytes], columns)
            }
            Self::InPlace(affine, region, is_shared) => {
                let offset = if rank > 2 { affine.strides[0].wrapping_mul(batch as i64) } else { 0 };
                let address = affine.base.wrapping_add(offset) as u64;
                let strides = [affine.strides[rank - 2], affine.strides[rank - 1]];
                let elements = MatrixReader::new(region, ty.size, address, [rows, columns], strides);
                let elements = elements.expect("the addresses have been checked");
                Matrix { dtype, elements, cast: None, is_shared: *is_shared }
            }
        };
        if transposed { matrix.transposed() } else { matrix }
    }
}

pub(crate) fn dot(machine: &mut Machine<'_>, step: &Step, transposed: [bool; 2], casts: [Option<Dtype>; 2]) {
    let [a_ty, b_ty, acc_ty] = [0, 1, 2].map(|index| machine.type_of(step.operands[index]));
    let [a, b] = [0, 1].map(|index| Operand::take(machine, step.operands[index]));
    let acc = machine.take(step.operands[2]);
    let mut acc = materialize_unique(acc_ty, acc);
    let rank = acc_ty.shape().len();
    let extent = |ty: &TileType, axis: usize| ty.shape()[rank - 2 + axis] as usize;
    let extents =
        Extents { m: extent(acc_ty, 0), n: extent(acc_ty, 1), k: extent(a_ty, usize::from(!transposed[0])) };
    let bytes = extents.m * extents.n * acc_ty.size;
    let scratch = machine.scratch();
    for (batch, acc) in acc.bytes_mut().chunks_exact_mut(bytes.max(1)).enumerate() {
        let a = a.matrix(a_ty, batch, [0, 1].map(|axis| extent(a_ty, axis)), transposed[0]);
        let b = b.matrix(b_ty, batch, [0, 1].map(|axis| extent(b_ty, axis)), transposed[1]);
        let (a, b) = (Matrix { cast: casts[0], ..a }, Matrix { cast: casts[1], ..b });
        product(acc_ty.dtype(), acc, a, b, extents, scratch);
    }
    machine.set_dense(step.result(), acc);
}

/// The values of a loop's counter. The stride is positive.
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    pub number: Number,
    pub lower: i128,
    pub stride: i128,
    pub iterations: usize,
}

/// An operand in the first iteration.
#[derive(Clone, Copy)]
struct FirstTile {
    affine: Affine,
    provenance: Provenance,
    /// The bytes by which each iteration moves the operand.
    distance: i64,
}

impl FirstTile {
    /// Returns the addresses of the elements in another iteration.
    fn at(&self, iteration: usize) -> Affine {
        let moved = self.distance.wrapping_mul(iteration as i64);
        Affine { base: self.affine.base.wrapping_add(moved), ..self.affine }
    }
}

/// The values of the linear functions of the counter in one iteration.
type Values = SmallVec<[Affine; 4]>;

impl<'a> Machine<'a> {
    /// Executes the first iterations of a loop as one dot, and moves the pointers. The carried
    /// values are on the stack. Returns the number of executed iterations, or 0 if one dot is not
    /// possible.
    pub(crate) fn multiply_first_iterations(
        &mut self,
        block: &'a Block,
        product_loop: &'a ProductLoop,
        counter: Counter,
    ) -> Outcome<usize> {
        if self.is_observed() {
            return Ok(0);
        }
        let iterations = self.unmasked_iterations(block, product_loop, counter)?;
        let step = &block.steps[product_loop.dot];
        let Action::Dot { transposed, casts } = step.action else { unreachable!("it has a dot") };
        let [a_ty, b_ty, acc_ty] = [0, 1, 2].map(|index| self.type_of(step.operands[index]));
        let ([m, n], k_axes) = match acc_ty.shape() {
            &[m, n] => ([m as usize, n as usize], [usize::from(!transposed[0]), usize::from(transposed[1])]),
            _ => return Ok(0),
        };
        let depth = a_ty.shape()[k_axes[0]] as usize;
        let numbers = [a_ty, b_ty].map(TileType::dtype);
        let numbers = [0, 1].map(|index| casts[index].unwrap_or(numbers[index]));
        if iterations == 0 || !may_be_divided(acc_ty.dtype(), numbers, depth) {
            return Ok(0);
        }
        let extents = |operand: usize, k: usize| match (operand, transposed[operand]) {
            (0, false) => [m, k],
            (0, true) => [k, m],
            (_, false) => [k, n],
            (_, true) => [n, k],
        };
        let tiles = [0, 1].map(|index| {
            let tile = self.first_tile(block, product_loop, index, [a_ty.size, b_ty.size][index])?;
            let is_adjacent = tile.affine.strides[k_axes[index]].checked_mul(depth as i64)? == tile.distance;
            let region = region_of(self, tile.provenance, tile.affine.base as u64);
            let strides = [tile.affine.strides[0], tile.affine.strides[1]];
            let extents = extents(index, depth.checked_mul(iterations)?);
            let size = [a_ty.size, b_ty.size][index];
            MatrixReader::new(&region, size, tile.affine.base as u64, extents, strides)?;
            is_adjacent.then_some(tile)
        });
        let [Some(a), Some(b)] = tiles else { return Ok(0) };
        let carried = block.yields.len();
        let acc = std::mem::replace(&mut self.carried(carried)[product_loop.accumulator], Value::EMPTY);
        let mut acc = materialize_unique(acc_ty, acc);
        let together = (MAX_PRODUCT_DEPTH / depth).max(1);
        for first in (0..iterations).step_by(together) {
            let span = depth * together.min(iterations - first);
            let [a, b] = [a, b].map(|tile| Operand::in_place(self, tile.at(first), tile.provenance));
            let a = Matrix { cast: casts[0], ..a.matrix(a_ty, 0, extents(0, span), transposed[0]) };
            let b = Matrix { cast: casts[1], ..b.matrix(b_ty, 0, extents(1, span), transposed[1]) };
            let extents = Extents { m, n, k: span };
            product(acc_ty.dtype(), acc.bytes_mut(), a, b, extents, self.scratch());
            self.control.check()?;
        }
        let values = self.carried(carried);
        values[product_loop.accumulator] = Value::dense(acc);
        for (tile, place) in [a, b].into_iter().zip(&product_loop.tiles) {
            values[place.pointers].form = Form::Affine(tile.at(iterations));
        }
        Ok(iterations)
    }

    /// Returns an operand in the first iteration. Returns `None` if its pointers are not affine, or
    /// if the distance is not constant.
    fn first_tile(
        &mut self,
        block: &'a Block,
        product_loop: &ProductLoop,
        operand: usize,
        size: usize,
    ) -> Option<FirstTile> {
        let place = product_loop.tiles[operand];
        let value = &self.carried(block.yields.len())[place.pointers];
        let provenance = value.provenance;
        let Form::Affine(affine) = value.form else { return None };
        let Form::Uniform(offset) = *self.form(place.offset) else { return None };
        let offset = self.type_of(place.offset).number.extend(offset);
        Some(FirstTile { affine, provenance, distance: offset.checked_mul(size as i64)? })
    }

    /// Returns the number of iterations without masked-off elements: all of them, or all but the
    /// last. Returns 0 if another iteration has a masked-off element, or if a linear function may
    /// wrap. Also returns 0 for fewer than three iterations.
    fn unmasked_iterations(
        &mut self,
        block: &'a Block,
        product_loop: &ProductLoop,
        counter: Counter,
    ) -> Outcome<usize> {
        let mut count = counter.iterations;
        if count < 3 {
            return Ok(0);
        }
        let Some(first) = self.unmasked(block, product_loop, counter, 0)? else { return Ok(0) };
        let Some(second) = self.unmasked(block, product_loop, counter, 1)? else { return Ok(0) };
        let mut last = self.unmasked(block, product_loop, counter, count - 1)?;
        if last.is_none() {
            count -= 1;
            last = self.unmasked(block, product_loop, counter, count - 1)?;
        }
        let Some(last) = last else { return Ok(0) };
        let steps = count as i128 - 1;
        let is_linear = first.iter().zip(&second).zip(&last).all(|((first, second), last)| {
            let [first_base, second_base, last_base] =
                [first, second, last].map(|value| i128::from(value.base));
            let is_moved = first.strides == second.strides && first.strides == last.strides;
            is_moved && last_base - first_base == steps * (second_base - first_base)
        });
        Ok(if is_linear { count } else { 0 })
    }

    /// Computes the masks of an iteration, and returns the values of its linear functions. Returns
    /// `None` if an element is masked off, or if a function wraps or is not affine.
    fn unmasked(
        &mut self,
        block: &'a Block,
        product_loop: &ProductLoop,
        counter: Counter,
        iteration: usize,
    ) -> Outcome<Option<Values>> {
        let value = counter.lower + counter.stride * iteration as i128;
        self.assign(block.parameters[0], Value::uniform(counter.number.truncate(value as u64)));
        let mut values = Values::new();
        for mask in &product_loop.masks {
            let step = &block.steps[mask.step];
            self.single(step)?;
            if mask.is_linear {
                let ty = self.ty(step.result());
                let affine = match *self.form_of(step.result()) {
                    Form::Uniform(bits) => {
                        Affine { base: ty.number.extend(bits), strides: [0; SYMBOLIC_RANK] }
                    }
                    Form::Affine(affine) => affine,
                    Form::Box(_) | Form::Dense(_) | Form::InPlace(_) => return Ok(None),
                };
                if range(ty.view(), &affine).is_none() {
                    return Ok(None);
                }
                values.push(affine);
            }
        }
        let is_unmasked = product_loop.tiles.iter().all(|tile| {
            let mask = block.steps[tile.load].operands.get(1);
            mask.is_none_or(|&mask| matches!(*self.form(mask), Form::Uniform(bits) if bits != 0))
        });
        Ok(is_unmasked.then_some(values))
    }
}
