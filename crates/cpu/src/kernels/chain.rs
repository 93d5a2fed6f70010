//! Chains of binary32 ops as one loop: what one op gives, the next one takes from the registers.
//!
//! A chain goes over its tiles in blocks: of [`BLOCK`] elements, or of several times as many where there are registers
//! enough, so that choosing what to do next costs little beside doing it. Each block is loaded, goes through all links,
//! and is put where links say. The results are those of the ops one after the other, to the bit: a sum has the same order
//! as that of [`reduce`](super::reduce), whose interleaved chains are as many as [`BLOCK`] has elements.

use pulp::{Simd, WithSimd};
use tilewright_ir::{ArithmeticFn, ElementwiseFamily as Family, ElementwiseFn, FloatFn, MathFn};

use super::chain_math::{any_nan, apply, apply_alone, quotient, reciprocal};
use crate::memory::{RunPart, RunReader, RunWriter};

/// The elements of a chain are a multiple of this.
pub(crate) const BLOCK: usize = 64;
/// The most elements that go through the links at a time.
const WIDE: usize = 128;

/// Functions of the element and an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binary {
    /// The operand itself: the beginning of a chain.
    Take,
    Add,
    Sub,
    /// The operand minus the element.
    SubFrom,
    Mul,
    Div,
    /// The operand divided by the element.
    DivInto,
    Min,
    Max,
}

/// Functions of the element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unary {
    Neg,
    Abs,
    Sqrt,
    Exp,
    Exp2,
    /// The element times itself.
    Square,
}

/// How a function of the table is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    Unary(Unary),
    /// The function, and the one with swapped operands.
    Binary(Binary, Binary),
}

/// How the elements of a block are combined with those of the blocks before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Total {
    Sum,
    /// The largest number by comparison. [`Totals::is_certain`] says whether that is the maximum.
    Max,
}

/// Where the elements go.
pub(crate) struct Target<'a> {
    pub run: RunWriter<'a>,
    /// The elements that are written; those behind them are not.
    pub elements: usize,
}

/// The result of a [`Total`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub value: f32,
    /// Whether the value is the one that [`reduce`](super::reduce::reduce) gives.
    pub is_certain: bool,
}

impl Function {
    /// How a function is done; none if a chain does not have it.
    pub(crate) fn of(function: ElementwiseFn) -> Option<Function> {
        Some(match function.family() {
            Family::Arithmetic(ArithmeticFn::Add) => Function::Binary(Binary::Add, Binary::Add),
            Family::Arithmetic(ArithmeticFn::Mul) => Function::Binary(Binary::Mul, Binary::Mul),
            Family::Arithmetic(ArithmeticFn::Min) => Function::Binary(Binary::Min, Binary::Min),
            Family::Arithmetic(ArithmeticFn::Max) => Function::Binary(Binary::Max, Binary::Max),
            Family::Arithmetic(ArithmeticFn::Sub) => Function::Binary(Binary::Sub, Binary::SubFrom),
            Family::Arithmetic(ArithmeticFn::Neg) => Function::Unary(Unary::Neg),
            Family::Arithmetic(ArithmeticFn::Abs) => Function::Unary(Unary::Abs),
            Family::Float(FloatFn::Div | FloatFn::DivRn) => Function::Binary(Binary::Div, Binary::DivInto),
            Family::Float(FloatFn::Sqrt | FloatFn::SqrtRn) => Function::Unary(Unary::Sqrt),
            Family::Math(MathFn::Exp) => Function::Unary(Unary::Exp),
            Family::Math(MathFn::Exp2) => Function::Unary(Unary::Exp2),
            // tidy: wildcard because a function that is not here ends the chain.
            Family::Float(_) | Family::Math(_)
            // Of integers and booleans, or with booleans among the operands or results.
            | Family::Division(_)
            | Family::Bitwise(_)
            | Family::WideProduct(_)
            | Family::Comparison(_)
            | Family::Selection(_) => return None,
        })
    }
}

/// A table of the binary functions: the name of each, and of its codes for an operand that is a number, a tile, and a
/// column of a tile.
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

macro_rules! codes {
    ($($function:ident $number:ident $tile:ident $rows:ident;)*) => {
        /// What a stage does: the function and the kind of its operand in one, so that finding the code of a stage is one
        /// jump. Jumps for the stage, the kind and the function one after the other take as long as what they lead to.
        #[derive(Clone, Copy, Debug)]
        enum Code {
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
            fn of_number(self) -> Code {
                match self {
                    $(Binary::$function => Code::$number,)*
                }
            }

            fn of_tile(self) -> Code {
                match self {
                    $(Binary::$function => Code::$tile,)*
                }
            }

            fn of_rows(self) -> Code {
                match self {
                    $(Binary::$function => Code::$rows,)*
                }
            }
        }
    };
}
binary_functions!(codes);

/// One step of a chain, whose operand is found.
#[derive(Clone, Copy)]
pub(crate) struct Stage<'a> {
    code: Code,
    /// That of [`Code::Itself`].
    function: Binary,
    number: f32,
    reciprocal: f32,
    count: usize,
    run: RunReader<'a>,
}

impl<'a> Stage<'a> {
    const EMPTY: Stage<'a> = Stage {
        code: Code::Neg,
        function: Binary::Take,
        number: 0.0,
        reciprocal: 0.0,
        count: 0,
        run: RunReader::EMPTY,
    };

    /// A function of the element and a number.
    #[inline(always)]
    pub(crate) fn number(function: Binary, number: f32) -> Self {
        let code = function.of_number();
        match reciprocal(number) {
            Some(reciprocal) if function == Binary::Div => {
                Stage { code: Code::Quotient, number, reciprocal, ..Self::EMPTY }
            }
            _ => Stage { code, number, ..Self::EMPTY },
        }
    }

    /// A function of the element and the one of a run at the same place; behind the end of the run, of a number.
    #[inline(always)]
    pub(crate) fn tile(function: Binary, run: RunReader<'a>, rest: f32) -> Self {
        Stage { code: function.of_tile(), number: rest, run, ..Self::EMPTY }
    }

    /// A function of the element and the one of a run at the number of its row, which has `1 << shift` times [`BLOCK`]
    /// elements.
    #[inline(always)]
    pub(crate) fn rows(function: Binary, run: RunReader<'a>, shift: usize) -> Self {
        Stage { code: function.of_rows(), count: shift, run, ..Self::EMPTY }
    }

    /// A function of the element and itself.
    #[inline(always)]
    pub(crate) fn itself(function: Binary) -> Self {
        Stage { code: Code::Itself, function, ..Self::EMPTY }
    }

    /// A function of the element.
    #[inline(always)]
    pub(crate) fn alone(function: Unary) -> Self {
        let code = match function {
            Unary::Neg => Code::Neg,
            Unary::Abs => Code::Abs,
            Unary::Sqrt => Code::Sqrt,
            Unary::Exp => Code::Exp,
            Unary::Exp2 => Code::Exp2,
            Unary::Square => Code::Square,
        };
        Stage { code, ..Self::EMPTY }
    }

    /// Elements from `end` on are this number.
    #[inline(always)]
    pub(crate) fn cut(end: usize, number: f32) -> Self {
        Stage { code: Code::Cut, number, count: end, ..Self::EMPTY }
    }

    /// The elements go to the target with this number.
    #[inline(always)]
    pub(crate) fn write(target: usize) -> Self {
        Stage { code: Code::Write, count: target, ..Self::EMPTY }
    }

    /// The elements are combined.
    #[inline(always)]
    pub(crate) fn total(total: Total) -> Self {
        let code = match total {
            Total::Sum => Code::Sum,
            Total::Max => Code::Largest,
        };
        Stage { code, ..Self::EMPTY }
    }

    /// The memory that it reads, if any.
    #[inline(always)]
    pub(crate) fn reads(&self) -> &RunReader<'a> {
        &self.run
    }
}

/// Sends `elements` elements through the stages. From `varying` on the operands are the same for all of them, so that one
/// block stands for the others. Both are multiples of [`BLOCK`].
pub(crate) fn run(
    stages: &[Stage<'_>],
    targets: &mut [Target<'_>],
    total: Option<Total>,
    elements: usize,
    varying: usize,
) -> Option<Totals> {
    pulp::Arch::new().dispatch(Chain { stages, targets, total, elements, varying })
}

struct Chain<'c, 'r, 't> {
    stages: &'c [Stage<'r>],
    targets: &'c mut [Target<'t>],
    total: Option<Total>,
    elements: usize,
    varying: usize,
}

impl WithSimd for Chain<'_, '_, '_> {
    type Output = Option<Totals>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<Totals> {
        // The number of registers in a block of the larger kind, and in one of the smaller kind.
        match S::F32_LANES {
            16 => self.run::<S, 8, 4>(simd),
            8 => self.run::<S, 8, 8>(simd),
            4 => self.run::<S, 16, 16>(simd),
            _ => self.run::<S, 64, 64>(simd),
        }
    }
}

/// Memory for a block whose elements are put together one by one.
#[repr(align(64))]
struct Scratch([f32; WIDE]);

/// The totals of [`BLOCK`] interleaved chains in M registers.
struct Sums<S: Simd, const M: usize> {
    sofar: [S::f32s; M],
    /// An element that is not a number where there was one.
    bad: S::f32s,
}

/// A block in N registers.
pub(super) type Block<S, const N: usize> = [<S as Simd>::f32s; N];

impl Scratch {
    /// Takes a copy of a block: one whose own address is taken is not kept in registers.
    #[inline(always)]
    fn put<S: Simd, const N: usize>(&mut self, block: Block<S, N>) {
        let mut run = RunWriter::of(bytemuck::cast_slice_mut(&mut self.0));
        let mut part = run.part::<S::f32s, N>(0);
        unrolled::<N>(
            #[inline(always)]
            |i| part.write(i, block[i]),
        );
    }

    /// The block that it holds.
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

/// Calls a function with the number of each register of a block. A compiler that unrolls loops may do so too late to keep
/// the block in registers.
#[inline(always)]
pub(super) fn unrolled<const N: usize>(mut each: impl FnMut(usize)) {
    macro_rules! calls {
        ($($i:literal)*) => {{ $(each($i);)* }};
    }
    match N {
        1 => calls!(0),
        2 => calls!(0 1),
        4 => calls!(0 1 2 3),
        8 => calls!(0 1 2 3 4 5 6 7),
        _ => {
            for i in 0..N {
                each(i);
            }
        }
    }
}

impl Chain<'_, '_, '_> {
    /// Nothing is called on the way but what is seldom needed, so that what a block and the totals are in stays in
    /// registers.
    #[inline(always)]
    fn run<S: Simd, const N: usize, const M: usize>(mut self, simd: S) -> Option<Totals> {
        let neutral = match self.total {
            // The only number that changes no other.
            None | Some(Total::Sum) => -0.0,
            Some(Total::Max) => f32::NEG_INFINITY,
        };
        let mut sums = Sums::<S, M> { sofar: [simd.splat_f32s(neutral); M], bad: simd.splat_f32s(0.0) };
        let mut scratch = Scratch([0.0; WIDE]);
        let wide = N * S::F32_LANES;
        let mut first = 0;
        while wide > BLOCK && first + wide <= self.varying {
            self.block::<S, N, M>(simd, first, 1, &mut sums, &mut scratch);
            first += wide;
        }
        while first < self.elements {
            let blocks = if first < self.varying { 1 } else { (self.elements - first) / BLOCK };
            self.block::<S, M, M>(simd, first, blocks, &mut sums, &mut scratch);
            first += blocks * BLOCK;
        }
        Some(totals::<S, M>(simd, self.total?, &sums, &mut scratch))
    }

    /// Sends a block of N registers through the stages, which stands for so many blocks.
    #[inline(always)]
    fn block<S: Simd, const N: usize, const M: usize>(
        &mut self,
        simd: S,
        first: usize,
        blocks: usize,
        sums: &mut Sums<S, M>,
        scratch: &mut Scratch,
    ) {
        let mut block: Block<S, N> = [simd.splat_f32s(0.0); N];
        for stage in self.stages {
            macro_rules! stages {
                ($($function:ident $number:ident $tile:ident $rows:ident;)*) => {
                    match stage.code {
                        $(
                            Code::$number => {
                                let number = simd.splat_f32s(stage.number);
                                block = apply::<S, N>(simd, Binary::$function, block, |_| number);
                            }
                            Code::$tile => {
                                let part = part::<S, N>(stage, first, scratch);
                                block = apply::<S, N>(simd, Binary::$function, block, |i| part.read(i));
                            }
                            Code::$rows => {
                                let rows = rows::<S, N>(simd, stage, first);
                                let half = |i| rows[i * S::F32_LANES / BLOCK];
                                block = apply::<S, N>(simd, Binary::$function, block, half);
                            }
                        )*
                        Code::Quotient => {
                            block = quotient::<S, N>(simd, block, stage.number, stage.reciprocal);
                        }
                        Code::Itself => {
                            scratch.put::<S, N>(block);
                            let run = RunReader::of(bytemuck::cast_slice(&scratch.0));
                            let part = run.part::<S::f32s, N>(0);
                            block = apply::<S, N>(simd, stage.function, block, |i| part.read(i));
                        }
                        Code::Neg => block = apply_alone::<S, N>(simd, Unary::Neg, block),
                        Code::Abs => block = apply_alone::<S, N>(simd, Unary::Abs, block),
                        Code::Sqrt => block = apply_alone::<S, N>(simd, Unary::Sqrt, block),
                        Code::Exp => block = apply_alone::<S, N>(simd, Unary::Exp, block),
                        Code::Exp2 => block = apply_alone::<S, N>(simd, Unary::Exp2, block),
                        Code::Square => block = apply_alone::<S, N>(simd, Unary::Square, block),
                        Code::Cut => {
                            if first + N * S::F32_LANES > stage.count {
                                scratch.put::<S, N>(block);
                                cut(scratch, stage.count.saturating_sub(first), stage.number);
                                block = scratch.get::<S, N>(block);
                            }
                        }
                        Code::Write => {
                            for index in 0..blocks {
                                let first = first + index * N * S::F32_LANES;
                                self.targets[stage.count].write::<S, N>(first, block, scratch);
                            }
                        }
                        Code::Sum => {
                            for _ in 0..blocks {
                                unrolled::<N>(
                                    #[inline(always)]
                                    |i| sums.sofar[i % M] = simd.add_f32s(sums.sofar[i % M], block[i]),
                                );
                            }
                        }
                        Code::Largest => unrolled::<N>(
                            #[inline(always)]
                            |i| {
                                sums.sofar[i % M] = simd.max_f32s(block[i], sums.sofar[i % M]);
                                let is_number = simd.equal_f32s(block[i], block[i]);
                                sums.bad = simd.select_f32s(is_number, sums.bad, block[i]);
                            },
                        ),
                    }
                };
            }
            binary_functions!(stages);
        }
    }
}

/// The elements of a tile for the block of N registers that begins with this element.
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

/// The numbers of the rows that a block of N registers begins and ends in.
#[inline(always)]
fn rows<S: Simd, const N: usize>(simd: S, stage: &Stage<'_>, first: usize) -> [S::f32s; 2] {
    let last = first + N * S::F32_LANES - 1;
    let row = |element: usize| (element / BLOCK) >> stage.count;
    let number = |row: usize| simd.splat_f32s(stage.run.read(row * size_of::<f32>()));
    [number(row(first)), number(row(last))]
}

/// The elements of a run from a byte on, and others behind its end.
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

/// Sets the elements from one on.
#[cold]
#[inline(never)]
fn cut(scratch: &mut Scratch, end: usize, value: f32) {
    scratch.0[end.min(WIDE)..].fill(value);
}

/// What the interleaved chains give together: the upper half is combined with the lower one, until one is left.
#[inline(always)]
fn totals<S: Simd, const M: usize>(simd: S, kind: Total, sums: &Sums<S, M>, scratch: &mut Scratch) -> Totals {
    let mut sofar = sums.sofar;
    macro_rules! halves {
        ($x:ident $y:ident => $combined:expr; $($half:literal)*) => {{$(
            if M > $half {
                unrolled::<$half>(
                    #[inline(always)]
                    |i| {
                        let ($x, $y) = (sofar[i], sofar[i + $half]);
                        sofar[i] = $combined;
                    },
                );
            }
        )*}};
    }
    // Of registers, then of the elements of the one that is left.
    match kind {
        Total::Sum => halves!(x y => simd.add_f32s(x, y); 32 16 8 4 2 1),
        Total::Max => halves!(x y => simd.max_f32s(y, x); 32 16 8 4 2 1),
    }
    scratch.put::<S, 1>([sofar[0]]);
    match kind {
        Total::Sum => Totals { value: halve(&mut scratch.0, S::F32_LANES, |x, y| x + y), is_certain: true },
        Total::Max => {
            let value = halve(&mut scratch.0, S::F32_LANES, |x, y| if y > x { y } else { x });
            let has_nan = any_nan(simd, sums.bad);
            // There are two zeros, and which is the larger one a comparison does not say.
            Totals { value, is_certain: !has_nan && value != 0.0 }
        }
    }
}

/// The upper half of the first elements onto the lower one, until one element is left.
#[inline(always)]
fn halve(all: &mut [f32; WIDE], count: usize, f: impl Fn(f32, f32) -> f32) -> f32 {
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

impl Target<'_> {
    #[inline(always)]
    fn write<S: Simd, const N: usize>(&mut self, first: usize, block: Block<S, N>, scratch: &mut Scratch) {
        let offset = first * size_of::<f32>();
        if first + N * S::F32_LANES <= self.elements {
            let mut part = self.run.part::<S::f32s, N>(offset);
            if part.passes_caches() {
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
