//! Dots by `mma.sync`: packs the fragments of operands into words. fp64 has 64-bit words, and other
//! types 32-bit ones. The result is divided into tiles of one instruction's size. Each tile takes
//! one instruction for each step along K.

use smallvec::SmallVec;
use tilewright_gpu_ir::MmaShape;
use tilewright_ir::{Dtype, Inst, Value};
use tilewright_layout::{Fragment, Mma};

use super::builder::{Scalar, Width, destinations};
use super::dot::DotOperand;
use super::float::Float;
use super::memory::Words;
use super::shared_memory::Loads;
use super::{Lowered, Lowering, memory_bits};
use crate::isa::{self, MatrixLayout, MatrixShape, RegisterId, Rounding, ScalarType, Source, Sources};

/// A warp's repetitions of an instruction along batch axes, M, N and K.
struct Repetitions {
    batches: u32,
    m: u32,
    n: u32,
    k: u32,
}

/// Returns the elements of a fragment that each thread holds.
fn held(elements: u32) -> u32 {
    elements / super::LANES
}

impl Lowering<'_> {
    pub(super) fn lower_mma(
        &mut self,
        inst: Inst,
        [a, b, acc]: [Value; 3],
        shape: MmaShape,
        warps: [u32; 3],
        loads: [Loads; 2],
    ) -> Lowered {
        let mma = Mma::new(shape.m, shape.n, shape.k, memory_bits(self.element(a)));
        let result = self.kernel.insts[inst].results[0];
        let Some(types) = self.mma_types([a, b, acc]) else {
            return Err(self.unsupported(inst, &format!("a dot of {} on the tensor cores", self.dtype(a))));
        };
        let times = repetitions(mma, &self.tile(a).shape, &self.tile(acc).shape, warps);
        let mut sums = self.get_in(acc, Some(self.layout(result))).to_vec();
        let n_first = mma.is_n_first(self.layout(result), warps);
        let fragment = |fragment: Fragment, shape: &[u32]| mma.layout_by(fragment, shape, warps, n_first);
        let (left, right) = (&self.tile(a).shape, &self.tile(b).shape);
        let layouts = [fragment(Fragment::A, left), fragment(Fragment::B, right)];
        let [mut left, mut right] =
            [(a, 0), (b, 1)].map(|(value, place)| self.operand(value, &layouts[place], loads[place]));
        let each = held(mma.m * mma.n) as usize;
        for batch in 0..times.batches {
            for k in 0..times.k {
                for m in 0..times.m {
                    let fragment = (batch * times.m + m) * times.k + k;
                    let a = self.fragment(&mut left, types[1], a, fragment, held(mma.m * mma.k));
                    for n in 0..times.n {
                        let fragment = (batch * times.k + k) * times.n + n;
                        let b = self.fragment(&mut right, types[2], b, fragment, held(mma.k * mma.n));
                        let first = ((batch * times.m + m) * times.n + n) as usize * each;
                        let sum = &sums[first..first + each];
                        let next = self.multiply_matrices(mma, types, a.clone(), b, sum);
                        sums.splice(first..first + each, next);
                    }
                }
            }
        }
        self.set(result, sums);
        Ok(())
    }

    /// Returns the instruction's types of D, A and B; `None` if one is missing.
    pub(super) fn mma_types(&self, [a, b, acc]: [Value; 3]) -> Option<[ScalarType; 3]> {
        let operand = |value: Value| match self.dtype(value) {
            Dtype::F16 => Some(ScalarType::F16),
            Dtype::BF16 => Some(ScalarType::Bf16),
            Dtype::F32 => Some(ScalarType::Tf32),
            Dtype::F64 => Some(ScalarType::F64),
            Dtype::I8 => Some(ScalarType::S8),
            Dtype::U8 => Some(ScalarType::U8),
            Dtype::F8E4NV => Some(ScalarType::E4m3),
            Dtype::F8E5 => Some(ScalarType::E5m2),
            // tidy: wildcard because the instructions have no other operand types
            _ => None,
        };
        let sum = match self.dtype(acc) {
            Dtype::F16 => ScalarType::F16,
            Dtype::F32 => ScalarType::F32,
            Dtype::F64 => ScalarType::F64,
            Dtype::I32 => ScalarType::S32,
            // tidy: wildcard because the instructions have no other accumulators
            _ => return None,
        };
        Some([sum, operand(a)?, operand(b)?])
    }

    /// Returns the words of the fragment `number` of an operand.
    pub(super) fn fragment(
        &mut self,
        operand: &mut DotOperand,
        ty: ScalarType,
        value: Value,
        number: u32,
        elements: u32,
    ) -> Sources {
        let element = self.element(value);
        let words = Words::new(element, (32 / memory_bits(element)).max(1) as usize);
        let registers: SmallVec<[Scalar; 16]> = (number * elements..(number + 1) * elements)
            .map(|register| self.fetch(operand, register))
            .collect();
        let registers = if ty == ScalarType::Tf32 {
            registers.into_iter().map(|register| self.round_to_tf32(register)).collect()
        } else {
            registers
        };
        self.words(words, &registers)
    }

    /// Rounds fp32 to 10 bits of mantissa, to nearest, ties away from zero. The first targets with
    /// tf32 have no other rounding.
    fn round_to_tf32(&mut self, x: Scalar) -> Scalar {
        let (to, from) = ((Width::B32, ScalarType::Tf32), (Width::B32, ScalarType::F32));
        self.builder.float_convert(to, from, Some(Rounding::Rna), x)
    }

    /// Emits one `mma` instruction, and returns its result D.
    fn multiply_matrices(
        &mut self,
        mma: Mma,
        [sum_ty, a_ty, b_ty]: [ScalarType; 3],
        a: Sources,
        b: Sources,
        sums: &[Scalar],
    ) -> SmallVec<[Scalar; 16]> {
        let is_packed = sum_ty == ScalarType::F16;
        let words = Words::new(tilewright_ir::Element::Value(Dtype::F16), 2);
        let c = match sum_ty {
            ScalarType::F16 => self.words(words, sums),
            ScalarType::F32 => {
                Sources(sums.iter().map(|&sum| self.builder.float_source(Float::F32, sum)).collect())
            }
            ScalarType::F64 => {
                Sources(sums.iter().map(|&sum| self.builder.float_source(Float::F64, sum)).collect())
            }
            // tidy: wildcard because the rest are integers.
            _ => Sources(
                sums.iter().map(|&sum| Source::Register(self.builder.register(Width::B32, sum))).collect(),
            ),
        };
        let width = if sum_ty == ScalarType::F64 { Width::B64 } else { Width::B32 };
        let d: SmallVec<[RegisterId; 8]> = (0..c.0.len()).map(|_| self.builder.fresh(width)).collect();
        self.builder.emit(isa::Mma {
            shape: MatrixShape { m: mma.m, n: mma.n, k: mma.k },
            a_layout: MatrixLayout::Row,
            b_layout: MatrixLayout::Column,
            saturate: false,
            mixed: false,
            d_ty: sum_ty,
            a_ty,
            b_ty,
            c_ty: sum_ty,
            operation: None,
            d: destinations(&d),
            a,
            b,
            c,
        });
        if is_packed {
            return d.iter().flat_map(|&word| self.builder.unpack(words, word.into())).collect();
        }
        d.into_iter().map(Scalar::from).collect()
    }
}

fn repetitions(mma: Mma, a: &[u32], acc: &[u32], [along_batch, along_m, along_n]: [u32; 3]) -> Repetitions {
    let rank = acc.len();
    Repetitions {
        batches: acc[..rank - 2].iter().product::<u32>() / along_batch,
        m: (acc[rank - 2] / (mma.m * along_m)).max(1),
        n: (acc[rank - 1] / (mma.n * along_n)).max(1),
        k: a[rank - 1] / mma.k,
    }
}
