//! Finds loads and stores of gathered rows, such as `desc.gather` and `desc.scatter`. The indices
//! of the rows are a tile.
//!
//! ```text
//! load x + rows * stride + (y + columns), 0 <= rows < N, y + columns < M
//!     rows of a tensor with extents [N, M] and strides [stride, 1], from column y on
//! ```
//! The box of the tensor map is a part of one row. A load of a row outside of the tensor returns
//! zeros, and a store to it writes nothing.

use smallvec::SmallVec;
use tilewright_ir::analysis::scalar_evolution::{Form, ScalarEvolution, Term};
use tilewright_ir::{Inst, Module, Op};

use super::demand::Structure;
use super::masks::bounded_indices;
use super::{Axis, Search, TensorBox, TensorBoxes, UNSPECIALIZED, fit, is_written, say};
use crate::assign::coalescing::Infos;
use crate::launcher::Launcher;
use crate::remarks::RemarkReason;
use tilewright_gpu_ir::TensorMapPlan;
use tilewright_gpu_ir::layout_rules::MIN_GATHERED_ROWS;
use tilewright_gpu_ir::tuning::Tuning;

/// The minimum number of bytes of a gathered row. Four rows of this size have 128 bytes.
const MIN_GATHERED_ROW_BYTES: u64 = 32;

/// A tensor map, and the coordinates of the first element of its box.
type PlannedBox = (TensorMapPlan, SmallVec<[Form; 5]>);

impl TensorBoxes {
    /// Finds the accesses to gathered rows, and removes them from `accesses`.
    pub(super) fn find_rows(
        &mut self,
        module: &Module,
        infos: &Infos,
        accesses: &mut Vec<Inst>,
        (launcher, tuning): (Launcher<'_>, &'static Tuning),
    ) {
        let function = module.kernel();
        let written: Vec<usize> = tilewright_opt::analysis::accesses(module)
            .into_iter()
            .filter(|access| access.writes)
            .flat_map(|access| access.parameters)
            .collect();
        let evolution = ScalarEvolution::exact(function).with_elements();
        let structure = Structure::new(function);
        let unspecialized = UNSPECIALIZED;
        let mut search = Search { evolution, structure, infos, unspecialized, making: None, tuning };
        accesses.retain(|inst| {
            let Some(found) = search.rows_of_tensor(*inst) else { return true };
            let is_written = is_written(function, *inst);
            // No barrier orders stores of threads before reads of the asynchronous proxy. For
            // stores to the tensor, `tensor_stores` checks for conflicting accesses.
            let may_meet = |(map, _): &PlannedBox| !is_written && written.contains(&(map.base as usize));
            let found = found.and_then(|found| {
                if may_meet(&found) { Err("the kernel writes to the same argument") } else { Ok(found) }
            });
            match found.and_then(|found| fit(found, is_written, launcher)) {
                Ok((map, coordinates)) => {
                    let map = self.of_launch(map);
                    say(function, *inst, || {
                        let reason = "addresses and mask are gathered rows of a tensor whose strides are \
                                      known at launch";
                        RemarkReason::done(format!("rows of tensor map {map}"), reason)
                    });
                    self.of_access[*inst] = Some(TensorBox { map, coordinates });
                }
                Err(reason) => {
                    say(function, *inst, || RemarkReason::missed("no tensor copies of rows", reason));
                }
            }
            false
        });
    }
}

impl Search<'_> {
    /// Returns the box of gathered rows, or why tensor copies cannot move them. Returns `None` for
    /// other accesses.
    fn rows_of_tensor(&mut self, inst: Inst) -> Option<Result<PlannedBox, &'static str>> {
        let data = &self.evolution.function.insts[inst];
        let mask = match data.op {
            Op::Load { .. } => data.operands.get(1),
            Op::Store { .. } => data.operands.get(2),
            // tidy: wildcard because no other op loads or stores
            _ => None,
        };
        let (pointers, mask) = (data.operands[0], *mask?);
        let offset = self.evolution.address(pointers)?.offset.form;
        let bounded = bounded_indices(&mut self.evolution, mask)?;
        if !offset.any(is_element) || !bounded.iter().any(is_element) {
            return None;
        }
        // The mask must bound the index that the address has along this axis.
        let is_index = |term: &Term| match *term {
            Term::Axis(axis) | Term::Element(axis, _) => index_along(axis, &offset) == Some(*term),
            Term::Iteration(_) | Term::Value(_) => false,
        };
        Some(if bounded.iter().all(is_index) {
            self.access(inst)
        } else {
            Err("the mask bounds other indices than those of the address")
        })
    }

    /// Returns the axis of gathered rows, and the offset's term with their indices. Returns `None`
    /// if there are no gathered rows.
    ///
    /// The error is the reason why tensor copies cannot gather them.
    pub(super) fn rows(
        &self,
        offset: &Form,
        axes: &[Axis],
        bytes: u64,
    ) -> Result<Option<(usize, Term)>, &'static str> {
        let mut found = None;
        for (axis, along) in axes.iter().enumerate() {
            let Some(Term::Element(own, tile)) = index_along(axis, offset) else { continue };
            if found.replace((axis, Term::Element(own, tile))).is_some() {
                return Err("both indices are tiles of arbitrary integers");
            }
            if along.bound.is_none() || !along.coordinate.is_zero() {
                return Err("the mask does not bound the row indices by an extent of the tensor");
            }
            if !along.is_checked_below && !self.infos[tile].range.is_nonnegative() {
                return Err("a row index may be negative without a mask");
            }
            if along.extent < MIN_GATHERED_ROWS {
                return Err("the tile has fewer than 8 rows");
            }
        }
        let columns = found.and_then(|(axis, _)| axes.get(1 - axis.min(1)));
        if columns.is_some_and(|columns| u64::from(columns.extent) * bytes < MIN_GATHERED_ROW_BYTES) {
            return Err("a copy would move less than 32 bytes of a row");
        }
        Ok(found)
    }
}

fn is_element(term: &Term) -> bool {
    matches!(term, Term::Element(..))
}

/// Returns the term of an offset that is the index along an axis. It is the index of the tile, or
/// the elements of a tile of indices. Returns `None` for several different terms.
pub(super) fn index_along(axis: usize, offset: &Form) -> Option<Term> {
    let mut index = None;
    for term in offset.terms().flat_map(|(product, _)| product) {
        let (Term::Axis(along) | Term::Element(along, _)) = term else { continue };
        if *along == axis && index.replace(*term).is_some_and(|other| other != *term) {
            return None;
        }
    }
    Some(index.unwrap_or(Term::Axis(axis)))
}
