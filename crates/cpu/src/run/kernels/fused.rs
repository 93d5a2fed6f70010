//! Executes fused loops: several ops on binary32 tiles in one pass.
//! A block of [`BLOCK`] or more elements passes through all stages in registers. The results equal
//! those of the separate ops, to the bit. A sum, for example, has [`BLOCK`] interleaved
//! accumulators, combined in the order of [`reduce`](super::reduce).

use pulp::{Simd, WithSimd};

use super::fused_math::{Block, any_nan, apply, apply_alone, quotient, reciprocal, unrolled};
use crate::program::fused::{BLOCK, Binary, Reduction, Unary};
use crate::run::memory::{RunPart, RunReader, RunWriter};
use crate::tuning::MAX_FUSED_ELEMENTS;

pub(crate) struct FusedOutput<'a> {
    pub run: RunWriter<'a>,
    pub elements: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reduced {
    pub value: f32,
    /// True if [`reduce`](super::reduce::reduce) would return the same value.
    pub is_certain: bool,
}

/// The binary functions, with their opcodes for three kinds of operands: a number, a tile, and a
/// tile with one element per row.
macro_rules! binary_functions {
    ($with:ident) => {
        $with! {
            Take TakeNumber TakeTile TakeRows;
            Add AddNumber AddTile AddRows;
            Sub SubNumber SubTile SubRows;
            SubFrom SubFromNumber SubFromTile SubFromRows;
            Mul MulNumber MulTile MulRows;
            Div DivNumber DivTile DivRows;
            DivInto DivIntoNumber DivIntoTile DivIntoRows;
            Min MinNumber MinTile MinRows;
            Max MaxNumber MaxTile MaxRows;
        }
    };
}

macro_rules! opcodes {
    ($($function:ident $number:ident $tile:ident $rows:ident;)*) => {
        /// The function and the kind of operand of a stage. One opcode for both needs only one
        /// indirect jump.
        #[derive(Clone, Copy, Debug)]
        enum Opcode {
            $($number, $tile, $rows,)*
            /// Division by a number whose reciprocal is known.
            Quotient,
            Itself,
            Neg,
            Abs,
            Sqrt,
            Exp,
            Exp2,
            Square,
            Cut,
            Write,
            Sum,
            Largest,
        }

        impl Binary {
            fn of_number(self) -> Opcode {
                match self {
                    $(Binary::$function => Opcode::$number,)*
                }
            }

            fn of_tile(self) -> Opcode {
                match self {
                    $(Binary::$function => Opcode::$tile,)*
                }
            }

            fn of_rows(self) -> Opcode {
                match self {
                    $(Binary::$function => Opcode::$rows,)*
                }
            }
        }
    };
}
binary_functions!(opcodes);

#[derive(Clone, Copy)]
pub(crate) struct Stage<'a> {
    code: Opcode,
    function: Binary,
    /// The operand of a stage without a tile. A stage with a tile reads it after the end of `run`.
    /// [`Stage::cut`] replaces elements by it.
    number: f32,
    /// The reciprocal of `number`, for [`Opcode::Quotient`].
    reciprocal: f32,
    /// The first replaced element of [`Stage::cut`], the target of [`Stage::write`], or the shift
    /// of [`Stage::rows`].
    count: usize,
    /// The operand of a stage that reads a tile.
    run: RunReader<'a>,
}

impl<'a> Stage<'a> {
    const EMPTY: Stage<'a> = Stage {
        code: Opcode::Neg,
        function: Binary::Take,
        number: 0.0,
        reciprocal: 0.0,
        count: 0,
        run: RunReader::EMPTY,
    };

    #[inline(always)]
    pub(crate) fn number(function: Binary, number: f32) -> Self {
        let code = function.of_number();
        match reciprocal(number) {
            Some(reciprocal) if function == Binary::Div => {
                Stage { code: Opcode::Quotient, number, reciprocal, ..Self::EMPTY }
            }
            _ => Stage { code, number, ..Self::EMPTY },
        }
    }

    /// Combines the element with the element of `run` at the same index, or with `rest` after its
    /// end.
    #[inline(always)]
    pub(crate) fn tile(function: Binary, run: RunReader<'a>, rest: f32) -> Self {
        Stage { code: function.of_tile(), number: rest, run, ..Self::EMPTY }
    }

    /// Combines the element with the element of `run` for the current row. A row has `BLOCK <<
    /// shift` elements.
    #[inline(always)]
    pub(crate) fn rows(function: Binary, run: RunReader<'a>, shift: usize) -> Self {
        Stage { code: function.of_rows(), count: shift, run, ..Self::EMPTY }
    }

    #[inline(always)]
    pub(crate) fn itself(function: Binary) -> Self {
        Stage { code: Opcode::Itself, function, ..Self::EMPTY }
    }

    #[inline(always)]
    pub(crate) fn unary(function: Unary) -> Self {
        let code = match function {
            Unary::Neg => Opcode::Neg,
            Unary::Abs => Opcode::Abs,
            Unary::Sqrt => Opcode::Sqrt,
            Unary::Exp => Opcode::Exp,
            Unary::Exp2 => Opcode::Exp2,
            Unary::Square => Opcode::Square,
        };
        Stage { code, ..Self::EMPTY }
    }

    /// Replaces the elements from `end` on by a number.
    #[inline(always)]
    pub(crate) fn cut(end: usize, number: f32) -> Self {
        Stage { code: Opcode::Cut, number, count: end, ..Self::EMPTY }
    }

    /// Writes the elements to the target with this index.
    #[inline(always)]
    pub(crate) fn write(target: usize) -> Self {
        Stage { code: Opcode::Write, count: target, ..Self::EMPTY }
    }

    #[inline(always)]
    pub(crate) fn reduce(reduction: Reduction) -> Self {
        let code = match reduction {
            Reduction::Sum => Opcode::Sum,
            Reduction::Max => Opcode::Largest,
        };
        Stage { code, ..Self::EMPTY }
    }

    /// Returns the memory that the stage reads, which may be empty.
    #[inline(always)]
    pub(crate) fn reads(&self) -> &RunReader<'a> {
        &self.run
    }
}

/// Passes `elements` elements through the stages. From the element `varying` on, all operands are
/// uniform, so the loop computes one block for the rest. Both are multiples of [`BLOCK`]. Returns
/// the result of the reduction, if any.
pub(crate) fn run(
    stages: &[Stage<'_>],
    targets: &mut [FusedOutput<'_>],
    reduction: Option<Reduction>,
    elements: usize,
    varying: usize,
) -> Option<Reduced> {
    pulp::Arch::new().dispatch(Loop { stages, targets, reduction, elements, varying })
}

struct Loop<'c, 'r, 't> {
    stages: &'c [Stage<'r>],
    targets: &'c mut [FusedOutput<'t>],
    reduction: Option<Reduction>,
    elements: usize,
    varying: usize,
}

impl WithSimd for Loop<'_, '_, '_> {
    type Output = Option<Reduced>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<Reduced> {
        // The constants are the registers of a large and of a small block.
        match S::F32_LANES {
            16 => self.run::<S, 8, 4>(simd),
            8 => self.run::<S, 8, 8>(simd),
            4 => self.run::<S, 16, 16>(simd),
            _ => self.run::<S, 64, 64>(simd),
        }
    }
}

/// Memory for a block whose elements are set one by one.
#[repr(align(64))]
struct Scratch([f32; MAX_FUSED_ELEMENTS]);

/// The [`BLOCK`] interleaved accumulators of a reduction, in M registers.
struct Accumulators<S: Simd, const M: usize> {
    values: [S::f32s; M],
    /// A lane is NaN if the maximum has read a NaN in it.
    nan: S::f32s,
}

impl Scratch {
    /// Stores a block. It is passed by value, because a block whose address is taken leaves the
    /// registers.
    #[inline(always)]
    fn put<S: Simd, const N: usize>(&mut self, block: Block<S, N>) {
        let mut run = RunWriter::of(bytemuck::cast_slice_mut(&mut self.0));
        let mut part = run.part::<S::f32s, N>(0);
        unrolled::<N>(
            #[inline(always)]
            |i| part.write(i, block[i]),
        );
    }

    /// Loads the block over the content of the parameter.
    #[inline(always)]
    fn get<S: Simd, const N: usize>(&self, mut block: Block<S, N>) -> Block<S, N> {
        let part = RunReader::of(bytemuck::cast_slice(&self.0)).part::<S::f32s, N>(0);
        unrolled::<N>(
            #[inline(always)]
            |i| block[i] = part.read(i),
        );
        block
    }
}

impl Loop<'_, '_, '_> {
    /// Runs the loop. It calls only cold functions, so that the block and the accumulators stay in
    /// registers.
    #[inline(always)]
    fn run<S: Simd, const N: usize, const M: usize>(mut self, simd: S) -> Option<Reduced> {
        let neutral = match self.reduction {
            // Adding -0 changes no number; adding +0 would change -0.
            None | Some(Reduction::Sum) => -0.0,
            Some(Reduction::Max) => f32::NEG_INFINITY,
        };
        let mut accumulators =
            Accumulators::<S, M> { values: [simd.splat_f32s(neutral); M], nan: simd.splat_f32s(0.0) };
        let mut scratch = Scratch([0.0; MAX_FUSED_ELEMENTS]);
        let wide = N * S::F32_LANES;
        let mut first = 0;
        while wide > BLOCK && first + wide <= self.varying {
            self.block::<S, N, M>(simd, first, 1, &mut accumulators, &mut scratch);
            first += wide;
        }
        while first < self.elements {
            let blocks = if first < self.varying { 1 } else { (self.elements - first) / BLOCK };
            self.block::<S, M, M>(simd, first, blocks, &mut accumulators, &mut scratch);
            first += blocks * BLOCK;
        }
        Some(reduced::<S, M>(simd, self.reduction?, &accumulators, &mut scratch))
    }

    /// Passes a block of N registers through the stages, for `blocks` equal blocks. A sum adds it
    /// `blocks` times, and a write stores it `blocks` times.
    #[inline(always)]
    fn block<S: Simd, const N: usize, const M: usize>(
        &mut self,
        simd: S,
        first: usize,
        blocks: usize,
        accumulators: &mut Accumulators<S, M>,
        scratch: &mut Scratch,
    ) {
        let mut block: Block<S, N> = [simd.splat_f32s(0.0); N];
        for stage in self.stages {
            macro_rules! stages {
                ($($function:ident $number:ident $tile:ident $rows:ident;)*) => {
                    match stage.code {
                        $(
                            Opcode::$number => {
                                let number = simd.splat_f32s(stage.number);
                                block = apply::<S, N>(simd, Binary::$function, block, |_| number);
                            }
                            Opcode::$tile => {
                                let part = part::<S, N>(stage, first, scratch);
                                block = apply::<S, N>(simd, Binary::$function, block, |i| part.read(i));
                            }
                            Opcode::$rows => {
                                let rows = rows::<S, N>(simd, stage, first);
                                let half = |i| rows[i * S::F32_LANES / BLOCK];
                                block = apply::<S, N>(simd, Binary::$function, block, half);
                            }
                        )*
                        Opcode::Quotient => {
                            block = quotient::<S, N>(simd, block, stage.number, stage.reciprocal);
                        }
                        Opcode::Itself => {
                            scratch.put::<S, N>(block);
                            let run = RunReader::of(bytemuck::cast_slice(&scratch.0));
                            let part = run.part::<S::f32s, N>(0);
                            block = apply::<S, N>(simd, stage.function, block, |i| part.read(i));
                        }
                        Opcode::Neg => block = apply_alone::<S, N>(simd, Unary::Neg, block),
                        Opcode::Abs => block = apply_alone::<S, N>(simd, Unary::Abs, block),
                        Opcode::Sqrt => block = apply_alone::<S, N>(simd, Unary::Sqrt, block),
                        Opcode::Exp => block = apply_alone::<S, N>(simd, Unary::Exp, block),
                        Opcode::Exp2 => block = apply_alone::<S, N>(simd, Unary::Exp2, block),
                        Opcode::Square => block = apply_alone::<S, N>(simd, Unary::Square, block),
                        Opcode::Cut => {
                            if first + N * S::F32_LANES > stage.count {
                                scratch.put::<S, N>(block);
                                cut(scratch, stage.count.saturating_sub(first), stage.number);
                                block = scratch.get::<S, N>(block);
                            }
                        }
                        Opcode::Write => {
                            for index in 0..blocks {
                                let first = first + index * N * S::F32_LANES;
                                self.targets[stage.count].write::<S, N>(first, block, scratch);
                            }
                        }
                        Opcode::Sum => {
                            for _ in 0..blocks {
                                unrolled::<N>(
                                    #[inline(always)]
                                    |i| {
                                        accumulators.values[i % M] =
                                            simd.add_f32s(accumulators.values[i % M], block[i]);
                                    },
                                );
                            }
                        }
                        Opcode::Largest => unrolled::<N>(
                            #[inline(always)]
                            |i| {
                                accumulators.values[i % M] =
                                    simd.max_f32s(block[i], accumulators.values[i % M]);
                                let is_number = simd.equal_f32s(block[i], block[i]);
                                accumulators.nan =
                                    simd.select_f32s(is_number, accumulators.nan, block[i]);
                            },
                        ),
                    }
                };
            }
            binary_functions!(stages);
        }
    }
}

/// Returns the operand of a stage for the block at the element `first`. After the end of the run,
/// it is the number of the stage.
#[inline(always)]
fn part<'p, S: Simd, const N: usize>(
    stage: &Stage<'p>,
    first: usize,
    scratch: &'p mut Scratch,
) -> RunPart<'p, S::f32s, N> {
    let offset = first * size_of::<f32>();
    let bytes = N * S::F32_LANES * size_of::<f32>();
    if offset + bytes <= stage.run.len() {
        return stage.run.part(offset);
    }
    pad(&mut scratch.0[..N * S::F32_LANES], stage.run, offset, stage.number);
    RunReader::of(bytemuck::cast_slice(&scratch.0)).part(0)
}

/// Returns the operands of the rows in which a block begins and ends.
#[inline(always)]
fn rows<S: Simd, const N: usize>(simd: S, stage: &Stage<'_>, first: usize) -> [S::f32s; 2] {
    let last = first + N * S::F32_LANES - 1;
    let row = |element: usize| (element / BLOCK) >> stage.count;
    let number = |row: usize| simd.splat_f32s(stage.run.read(row * size_of::<f32>()));
    [number(row(first)), number(row(last))]
}

/// Copies a run from a byte offset on, and fills the rest with a number.
#[cold]
#[inline(never)]
fn pad(elements: &mut [f32], run: RunReader<'_>, offset: usize, rest: f32) {
    elements.fill(rest);
    let bytes = bytemuck::cast_slice_mut(elements);
    let count = run.len().saturating_sub(offset).min(bytes.len());
    if count > 0 {
        run.copy_to(offset, &mut bytes[..count]);
    }
}

/// Replaces the elements of `scratch` from `end` on by a number.
#[cold]
#[inline(never)]
fn cut(scratch: &mut Scratch, end: usize, value: f32) {
    scratch.0[end.min(MAX_FUSED_ELEMENTS)..].fill(value);
}

/// Combines the halves of the accumulators repeatedly, down to one accumulator.
#[inline(always)]
fn reduced<S: Simd, const M: usize>(
    simd: S,
    reduction: Reduction,
    accumulators: &Accumulators<S, M>,
    scratch: &mut Scratch,
) -> Reduced {
    let mut values = accumulators.values;
    macro_rules! halves {
        ($x:ident $y:ident => $combined:expr; $($half:literal)*) => {{$(
            if M > $half {
                unrolled::<$half>(
                    #[inline(always)]
                    |i| {
                        let ($x, $y) = (values[i], values[i + $half]);
                        values[i] = $combined;
                    },
                );
            }
        )*}};
    }
    // Combines registers first, then the lanes of the last register.
    match reduction {
        Reduction::Sum => halves!(x y => simd.add_f32s(x, y); 32 16 8 4 2 1),
        Reduction::Max => halves!(x y => simd.max_f32s(y, x); 32 16 8 4 2 1),
    }
    scratch.put::<S, 1>([values[0]]);
    match reduction {
        Reduction::Sum => {
            Reduced { value: halve(&mut scratch.0, S::F32_LANES, |x, y| x + y), is_certain: true }
        }
        Reduction::Max => {
            let value = halve(&mut scratch.0, S::F32_LANES, |x, y| if y > x { y } else { x });
            let has_nan = any_nan(simd, accumulators.nan);
            // A comparison does not order -0 and +0.
            Reduced { value, is_certain: !has_nan && value != 0.0 }
        }
    }
}

/// Combines the halves of the first `count` elements repeatedly, down to one element.
#[inline(always)]
fn halve(all: &mut [f32; MAX_FUSED_ELEMENTS], count: usize, f: impl Fn(f32, f32) -> f32) -> f32 {
    macro_rules! halves {
        ($($half:literal)*) => {$(
            if count > $half {
                for i in 0..$half {
                    all[i] = f(all[i], all[i + $half]);
                }
            }
        )*};
    }
    halves!(8 4 2 1);
    all[0]
}

impl FusedOutput<'_> {
    #[inline(always)]
    fn write<S: Simd, const N: usize>(&mut self, first: usize, block: Block<S, N>, scratch: &mut Scratch) {
        let offset = first * size_of::<f32>();
        if first + N * S::F32_LANES <= self.elements {
            let mut part = self.run.part::<S::f32s, N>(offset);
            if part.non_temporal() {
                unrolled::<N>(
                    #[inline(always)]
                    |i| part.stream(i, block[i]),
                );
            } else {
                unrolled::<N>(
                    #[inline(always)]
                    |i| part.write(i, block[i]),
                );
            }
        } else if first < self.elements {
            scratch.put::<S, N>(block);
            let elements = &scratch.0[..self.elements - first];
            self.run.copy_from(offset, bytemuck::cast_slice(elements));
        }
    }
}
