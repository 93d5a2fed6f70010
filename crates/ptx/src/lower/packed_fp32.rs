//! Arithmetic on pairs of fp32 numbers: `add`, `sub`, `mul` and `fma` of `.f32x2`.
//!
//! A pair is two consecutive registers of a tile, adjacent elements of a thread. The result is
//! unpacked at once, and the next function reads the builder's word. Then `passes` removes the
//! unpacking moves. The assembler keeps a word in consecutive registers. It uses one register for
//! equal halves.

use std::rc::Rc;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tilewright_gpu_ir::Feature;
use tilewright_ir::{
    ArithmeticFn, Dtype, Element, ElementwiseFamily as Family, ElementwiseFn, FloatFn, Value,
};

use super::Lowering;
use super::builder::{Builder, Scalar, Width, destinations, sources};
use super::float::{Binary, Float};
use crate::isa::{self, Rounding, ScalarType, Source};

/// A function with instructions on pairs.
#[derive(Clone, Copy)]
enum Packed {
    Sum(Binary, Option<Rounding>),
    Fma,
}

impl Lowering<'_> {
    /// Computes a function on pairs of fp32 numbers. Returns `None` for other types, without such
    /// an instruction, or if single elements take less code. Products that a reduction reads are
    /// not paired either (see `reduced_tiles`).
    pub(super) fn in_pairs(
        &mut self,
        result: Value,
        (function, element): (ElementwiseFn, Element),
        columns: &[Rc<[Scalar]>],
    ) -> Option<Vec<Scalar>> {
        if element != Element::Value(Dtype::F32) {
            return None;
        }
        let rounding = (!self.program.header.contraction).then_some(Rounding::Rn);
        let packed = match function.family() {
            Family::Arithmetic(ArithmeticFn::Add) => Packed::Sum(Binary::Add, rounding),
            Family::Arithmetic(ArithmeticFn::Sub) => Packed::Sum(Binary::Sub, rounding),
            Family::Arithmetic(ArithmeticFn::Mul) if self.reduced_tiles.contains(result) => return None,
            Family::Arithmetic(ArithmeticFn::Mul) => Packed::Sum(Binary::Mul, rounding),
            Family::Float(FloatFn::Fma) => Packed::Fma,
            // tidy: wildcard because no other function has an instruction on pairs
            _ => return None,
        };
        self.apply_to_pairs(packed, columns)
    }

    /// Computes `a * b + c` on pairs as [`Self::in_pairs`] does, each rounded once.
    pub(super) fn fma_in_pairs(&mut self, columns: &[Rc<[Scalar]>; 3]) -> Option<Vec<Scalar>> {
        self.apply_to_pairs(Packed::Fma, columns)
    }

    /// Returns the products of two tiles of fp32, rounded once and never contracted.
    pub(super) fn products(&mut self, a: &Rc<[Scalar]>, b: &Rc<[Scalar]>) -> Vec<Scalar> {
        let packed = Packed::Sum(Binary::Mul, Some(Rounding::Rn));
        let products = self.apply_to_pairs(packed, &[Rc::clone(a), Rc::clone(b)]);
        products.unwrap_or_else(|| {
            a.iter().zip(b.iter()).map(|(a, b)| self.builder.mul_rn(Float::F32, *a, *b)).collect()
        })
    }

    fn apply_to_pairs(&mut self, packed: Packed, columns: &[Rc<[Scalar]>]) -> Option<Vec<Scalar>> {
        let count = columns[0].len();
        let is_shorter =
            self.has(Feature::PackedFp32) && count.is_multiple_of(2) && moves(columns) < count / 2;
        is_shorter.then(|| self.builder.apply_to_pairs(packed, columns))
    }
}

/// Estimates the moves that form the operands' pairs. A register can be in one pair without a copy.
/// Equal halves need no pair.
fn moves(columns: &[Rc<[Scalar]>]) -> usize {
    let mut pairs: FxHashSet<[Scalar; 2]> = FxHashSet::default();
    let mut registers: FxHashSet<Scalar> = FxHashSet::default();
    for pair in columns.iter().flat_map(|column| column.chunks_exact(2)) {
        if pair[0] != pair[1] {
            pairs.insert([pair[0], pair[1]]);
            registers.extend(pair.iter().filter(|half| half.base.is_some()));
        }
    }
    2 * pairs.len() - registers.len()
}

impl Builder {
    /// Applies a function to each pair of registers.
    fn apply_to_pairs(&mut self, packed: Packed, columns: &[Rc<[Scalar]>]) -> Vec<Scalar> {
        let mut results = Vec::with_capacity(columns[0].len());
        for first in (0..columns[0].len()).step_by(2) {
            let words: SmallVec<[Source; 3]> =
                columns.iter().map(|column| self.word_of_pair([column[first], column[first + 1]])).collect();
            let word = self.packed_fp32(packed, &words);
            let word = self.register(Width::B64, word);
            let halves = self.pure_many([Width::B32; 2], |d| isa::Mov {
                ty: ScalarType::B64,
                d: destinations(&d),
                a: word.into(),
            });
            let halves = halves.map(Scalar::from);
            self.packed.insert(halves[..].into(), word.into());
            results.extend(halves);
        }
        results
    }

    /// Returns the word of two numbers. It is the word that they were unpacked from, or a new one.
    fn word_of_pair(&mut self, pair: [Scalar; 2]) -> Source {
        let word = match (self.packed.get(&pair[..]), pair.map(Scalar::as_constant)) {
            (Some(word), _) => *word,
            (None, [Some(low), Some(high)]) => Scalar::constant(high << 32 | low),
            (None, _) => {
                let halves = pair.map(|half| self.register(Width::B32, half));
                self.pure(Width::B64, |d| isa::Mov { ty: ScalarType::B64, d: d.into(), a: sources(&halves) })
            }
        };
        self.register(Width::B64, word).into()
    }

    fn packed_fp32(&mut self, packed: Packed, words: &[Source]) -> Scalar {
        let (ty, ftz, saturate, carry_out) = (ScalarType::F32x2, false, false, false);
        let [a, b] = [words[0], words[1]];
        match packed {
            Packed::Sum(Binary::Add, rounding) => {
                self.pure(Width::B64, |d| isa::Add { carry_out, rounding, ftz, saturate, ty, d, a, b })
            }
            Packed::Sum(Binary::Sub, rounding) => {
                self.pure(Width::B64, |d| isa::Sub { carry_out, rounding, ftz, saturate, ty, d, a, b })
            }
            Packed::Sum(Binary::Mul, rounding) => {
                self.pure(Width::B64, |d| isa::Mul { mode: None, rounding, ftz, saturate, ty, d, a, b })
            }
            Packed::Fma => {
                let (rounding, out_of_bounds, relu, c) = (Rounding::Rn, false, false, words[2]);
                self.pure(Width::B64, |d| isa::Fma {
                    rounding,
                    ftz,
                    saturate,
                    out_of_bounds,
                    relu,
                    ty,
                    d,
                    a,
                    b,
                    c,
                })
            }
        }
    }
}
