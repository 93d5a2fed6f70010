//! Writes each block's accesses to tensor memory and its dots by `tcgen05`.
//!
//! A layout with `two_ctas` is for dots of a pair: the blocks whose ranks differ only in the lowest
//! bit. Each block of a pair has its rows of A and of the accumulator, and half of the columns of B.
//! Without `two_ctas`, each block computes its part of the accumulator itself.

use std::sync::Arc;

use tilewright_base::Code;
use tilewright_ir::{DeviceFn, Function, Inst, Op, SharedTiles};
use tilewright_layout::Division;

use super::{Writer, Written};

/// The bit of the rank in which the blocks of a pair differ.
pub(super) const PAIR: u32 = 1;

/// The parts of the operands of a dot, each as a matrix after its transpose.
struct DotParts {
    a: Division,
    b: Division,
    acc: Division,
}

impl DotParts {
    /// Returns which operand does not fit, and the part that it needs. `pair` is true for a dot of
    /// two blocks.
    fn misfit(&self, pair: bool) -> Option<(&'static str, String)> {
        let bits = 0..self.acc.bases.len();
        let is_pair_bit = |bit: usize| pair && bit == 0;
        let [m, n] = [self.acc.part[0], self.acc.part[1]];
        if bits.clone().any(|bit| is_pair_bit(bit) && self.acc.bases[bit][..] != [m, 0]) {
            return Some(("acc", "the two blocks of a pair have the upper and the lower rows".to_owned()));
        }
        let a_fits = |bit: usize| self.a.bases[bit][..] == [self.acc.bases[bit][0], 0];
        if !bits.clone().all(a_fits) {
            let text = "each block has its rows of the accumulator, and all of K: `cga_layout` is that of the \
                        accumulator, with 0 in place of columns";
            return Some(("a", text.to_owned()));
        }
        let b_fits = |bit: usize| {
            let columns = if is_pair_bit(bit) { n / 2 } else { self.acc.bases[bit][1] };
            self.b.bases[bit][..] == [0, columns]
        };
        if bits.clone().all(b_fits) {
            return None;
        }
        let text = if pair {
            format!(
                "each block of a pair has half of the {n} columns, and all of K: the first basis of `cga_layout` \
                 divides N"
            )
        } else {
            "each block has its columns of the accumulator, and all of K".to_owned()
        };
        Some(("b", text))
    }
}

/// Returns the division of the transpose of a matrix.
fn transposed(mut division: Division) -> Division {
    division.part.reverse();
    division.bases.iter_mut().for_each(|basis| basis.reverse());
    division
}

/// Returns whether a kernel has tensor memory of pairs of blocks.
pub(super) fn has_pairs(function: &Function) -> bool {
    let mut found = false;
    function.walk(function.entry, &mut |inst| {
        if let Op::Device { function: DeviceFn::Allocate { tiles } } = &function.insts[inst].op {
            found |= tiles.layout.is_of_pair();
        }
    });
    found
}

impl Writer<'_> {
    /// Checks that all tensor memory of a kernel is for pairs of blocks, or none.
    pub(super) fn check_group(&self, inst: Inst, tiles: &SharedTiles) -> Written {
        if !self.has_pairs || !tiles.layout.is_tensor_memory() || tiles.layout.is_of_pair() {
            return Ok(());
        }
        let message = format!(
            "{} is for single blocks, but other tensor memory of the kernel is for pairs (two_ctas=True)",
            tiles.layout
        );
        let hint = "all dots of a kernel are of single blocks, or all are of pairs";
        Err(Box::new(self.error(inst, Code::LayoutMismatch, message).hint(hint)))
    }

    /// Writes an access to tensor memory, a dot, or a commit.
    pub(super) fn tensor_memory_function(&mut self, inst: Inst, new: &mut DeviceFn) -> Written {
        match new {
            DeviceFn::TensorMemoryLoad { tiles, layout } => {
                let memory = self.part_of_tiles(inst, tiles)?;
                if self.division(self.data(inst).results[0]) != memory {
                    return Err(self.unsupported(inst, "a load of tensor memory with another cga_layout"));
                }
                *layout = Arc::new(layout.of_block());
            }
            DeviceFn::TensorMemoryStore { tiles } => {
                let memory = self.part_of_tiles(inst, tiles)?;
                self.take(inst, &memory)?;
            }
            DeviceFn::TensorDot { a, b, acc, transposed_a, transposed_b } => {
                let pair = acc.layout.is_of_pair();
                let of =
                    |division: Division, swaps: bool| if swaps { transposed(division) } else { division };
                let parts = DotParts {
                    a: of(self.part_of_tiles(inst, a)?, *transposed_a),
                    b: of(self.part_of_tiles(inst, b)?, *transposed_b),
                    acc: self.part_of_tiles(inst, acc)?,
                };
                self.check_tensor_dot(inst, &parts, pair)?;
            }
            DeviceFn::TensorCommit { tiles, pair } => {
                if self.part_of_tiles(inst, tiles)?.copies() != 0 {
                    let message =
                        "dots arrive at an mbarrier that each block has itself, not at one of a pair";
                    let hint = "allocate it by `mbarrier.allocate_mbarrier()`: the dots of a pair arrive at those of \
                                both blocks";
                    return Err(Box::new(self.error(inst, Code::LayoutMismatch, message).hint(hint)));
                }
                *pair = self.has_pairs;
            }
            DeviceFn::TensorCopy { source, destination } => {
                if self.part_of_tiles(inst, source)? != self.part_of_tiles(inst, destination)? {
                    return Err(self.unsupported(inst, "`tcgen05_copy` to memory with another cga_layout"));
                }
            }
            DeviceFn::TensorDotScaled { .. } => {
                let message = "`tcgen05_mma_scaled` in a kernel for a cluster is not available in this version of \
                               tilewright";
                return Err(self.error(inst, Code::NotOnThisDevice, message));
            }
            // tidy: wildcard because the caller passes only functions of tensor memory
            other => unreachable!("{} is no function of tensor memory", other.name()),
        }
        Ok(())
    }

    fn check_tensor_dot(&self, inst: Inst, parts: &DotParts, pair: bool) -> Written {
        let Some((name, needed)) = parts.misfit(pair) else { return Ok(()) };
        let message = format!("the cga_layout of `{name}` of `tcgen05_mma` does not fit the accumulator's");
        Err(Box::new(self.error(inst, Code::LayoutMismatch, message).note(needed)))
    }
}
