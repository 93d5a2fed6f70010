//! Chains of binary32 ops as one loop: what one op gives, the next one takes from the registers.
//!
//! A chain goes over its tiles in blocks: of [`BLOCK`] elements, or of several times as many where there are registers
//! enough, so that choosing what to do next costs little beside doing it. Each block is loaded, goes through all links,
//! and is put where links say. The results are those of the ops one after the other, to the bit: a sum has the same order
//! as that of [`reduce`](super::reduce), whose interleaved chains are as many as [`BLOCK`] has elements.

use pulp::{Simd, WithSimd};
use tilewright_ir::ElementwiseFn;

use super::chain_math::{apply, apply_alone};
use crate::memory::{RunReader, RunWriter};

/// The elements of a chain are a multiple of this.
pub(crate) const BLOCK: usize = 64;
/// The most elements that go through the links at a time.
const WIDE: usize = 128;

/// Where a link finds its operand.
#[derive(Clone, Copy)]
pub(crate) enum Feed<'a> {
    /// One number for all elements.
    Scalar(f32),
    /// A number for each element.
    Tile(RunReader<'a>),
    /// A number for each of the first elements, another one for the rest.
    Prefix(RunReader<'a>, f32),
    /// A number for so many times [`BLOCK`] elements after the other.
    Rows(RunReader<'a>, usize),
    /// What is written into the target with this number, earlier in the chain.
    Target(usize),
    /// For [`Link::Cut`]: elements from this one on get this value.
    Cut(usize, f32),
}

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

/// One step of a chain. Operands and targets are known by their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    Apply(Binary, usize),
    /// The function of the element and itself.
    Itself(Binary),
    Alone(Unary),
    /// What [`Feed::Cut`] says.
    Cut(usize),
    /// The elements go to the target with this number.
    Write(usize),
    /// The elements are combined. There is one such link at the most.
    Total(Total),
}

/// Where the elements go.
pub(crate) struct Target<'a> {
    pub run: RunWriter<'a>,
    /// The elements that are written; those behind them are not.
    pub elements: usize,
}

/// The result of a [`Link::Total`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub value: f32,
    /// Whether the value is the one that [`reduce`](super::reduce::reduce) gives.
    pub is_certain: bool,
}

impl Function {
    /// How a function is done; none if a chain does not have it.
    pub(crate) fn of(function: ElementwiseFn) -> Option<Function> {
        use ElementwiseFn as F;
        Some(match function {
            F::Add => Function::Binary(Binary::Add, Binary::Add),
            F::Mul => Function::Binary(Binary::Mul, Binary::Mul),
            F::Min => Function::Binary(Binary::Min, Binary::Min),
            F::Max => Function::Binary(Binary::Max, Binary::Max),
            F::Sub => Function::Binary(Binary::Sub, Binary::SubFrom),
            F::Div | F::DivRn => Function::Binary(Binary::Div, Binary::DivInto),
            F::Neg => Function::Unary(Unary::Neg),
            F::Abs => Function::Unary(Unary::Abs),
            F::Sqrt | F::SqrtRn => Function::Unary(Unary::Sqrt),
            F::Exp => Function::Unary(Unary::Exp),
            F::Exp2 => Function::Unary(Unary::Exp2),
            // tidy: wildcard because a function that is not here ends the chain.
            _ => return None,
        })
    }
}

/// Sends `elements` elements through the links. From `varying` on the operands are the same for all of them, so that one
/// block stands for the others. Both are multiples of [`BLOCK`].
pub(crate) fn run(
    links: &[Link],
    feeds: &[Feed<'_>],
    targets: &mut [Target<'_>],
    total: Option<Total>,
    elements: usize,
    varying: usize,
) -> Option<Totals> {
    pulp::Arch::new().dispatch(Chain { links, feeds, targets, total, elements, varying })
}

struct Chain<'c, 'f, 't> {
    links: &'c [Link],
    feeds: &'c [Feed<'f>],
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

/// Memory for operands that have to be put together.
#[repr(align(64))]
struct Scratch([f32; WIDE]);

/// The operand of a block.
enum Operand<'a> {
    Scalar(f32),
    /// The elements begin at this byte.
    Memory(RunReader<'a>, usize),
}

/// The totals of [`BLOCK`] interleaved chains in M registers.
struct Sums<S: Simd, const M: usize> {
    sofar: [S::f32s; M],
    /// An element that is not a number where there was one.
    bad: S::f32s,
}

/// A block in N registers.
pub(super) type Block<S, const N: usize> = [<S as Simd>::f32s; N];

/// The elements of a block in memory. It is a copy: a block whose address is taken is not kept in registers.
#[inline(always)]
fn to_elements<S: Simd, const N: usize>(block: Block<S, N>, elements: &mut [f32; WIDE]) {
    let lanes = S::F32_LANES;
    unrolled::<N>(
        #[inline(always)]
        |i| elements[i * lanes..][..lanes].copy_from_slice(bytemuck::cast_slice(&[block[i]])),
    );
}

/// Calls a function with the number of each register of a block. A compiler that unrolls loops may do so too late to keep
/// the block in registers.
#[inline(always)]
pub(super) fn unrolled<const N: usize>(mut each: impl FnMut(usize)) {
    macro_rules! calls {
        ($($i:literal)*) => {{ $(each($i);)* }};
    }
    match N {
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
        let kind = self.total?;
        to_elements::<S, M>(sums.sofar, &mut scratch.0);
        let sofar = scratch.0.first_chunk_mut().expect("it is larger than a block");
        Some(totals(kind, sofar, bytemuck::cast_slice(&[sums.bad])))
    }

    /// Sends a block of N registers through the links, which stands for so many blocks.
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
        for link in self.links {
            match *link {
                Link::Apply(function, feed) => {
                    let feed = &self.feeds[feed];
                    match operand::<S, N>(simd, feed, self.targets, first, scratch) {
                        Operand::Scalar(value) => {
                            let value = simd.splat_f32s(value);
                            block = apply::<S, N>(simd, function, block, |_| value);
                        }
                        Operand::Memory(run, offset) => {
                            let operand = run.part::<S::f32s, N>(offset);
                            block = apply::<S, N>(simd, function, block, |i| operand.read(i));
                        }
                    }
                }
                Link::Itself(function) => {
                    to_elements::<S, N>(block, &mut scratch.0);
                    let operand = RunReader::of(bytemuck::cast_slice(&scratch.0)).part::<S::f32s, N>(0);
                    block = apply::<S, N>(simd, function, block, |i| operand.read(i));
                }
                Link::Alone(function) => block = apply_alone::<S, N>(simd, function, block),
                Link::Cut(feed) => {
                    if let Feed::Cut(end, value) = self.feeds[feed]
                        && first + N * S::F32_LANES > end
                    {
                        to_elements::<S, N>(block, &mut scratch.0);
                        cut(scratch, end.saturating_sub(first), value);
                        let elements = RunReader::of(bytemuck::cast_slice(&scratch.0)).part::<S::f32s, N>(0);
                        block = apply::<S, N>(simd, Binary::Take, block, |i| elements.read(i));
                    }
                }
                Link::Write(target) => {
                    for index in 0..blocks {
                        let first = first + index * N * S::F32_LANES;
                        self.targets[target].write::<S, N>(first, block, scratch);
                    }
                }
                Link::Total(Total::Sum) => {
                    for _ in 0..blocks {
                        unrolled::<N>(
                            #[inline(always)]
                            |i| sums.sofar[i % M] = simd.add_f32s(sums.sofar[i % M], block[i]),
                        );
                    }
                }
                Link::Total(Total::Max) => {
                    unrolled::<N>(
                        #[inline(always)]
                        |i| {
                            sums.sofar[i % M] = simd.max_f32s(block[i], sums.sofar[i % M]);
                            let is_number = simd.equal_f32s(block[i], block[i]);
                            sums.bad = simd.select_f32s(is_number, sums.bad, block[i]);
                        },
                    );
                }
            }
        }
    }
}

/// The operand of the block of N registers that begins with this element.
#[inline(always)]
fn operand<'s, S: Simd, const N: usize>(
    simd: S,
    feed: &'s Feed<'_>,
    targets: &'s [Target<'_>],
    first: usize,
    scratch: &'s mut Scratch,
) -> Operand<'s> {
    let offset = first * size_of::<f32>();
    let bytes = N * S::F32_LANES * size_of::<f32>();
    match *feed {
        Feed::Scalar(value) => return Operand::Scalar(value),
        Feed::Tile(run) => return Operand::Memory(run, offset),
        Feed::Target(target) => return Operand::Memory(targets[target].run.reader(), offset),
        Feed::Prefix(run, _) if offset + bytes <= run.len() => return Operand::Memory(run, offset),
        Feed::Prefix(run, rest) if offset >= run.len() => return Operand::Scalar(rest),
        Feed::Prefix(run, rest) => pad(scratch, run, offset, rest),
        Feed::Rows(run, blocks) => {
            for (index, row) in scratch.0[..N * S::F32_LANES].chunks_exact_mut(BLOCK).enumerate() {
                let value: f32 = run.read((first / BLOCK + index) / blocks * size_of::<f32>());
                for part in row.chunks_exact_mut(S::F32_LANES) {
                    part.copy_from_slice(bytemuck::cast_slice(&[simd.splat_f32s(value)]));
                }
            }
        }
        Feed::Cut(..) => {}
    }
    Operand::Memory(RunReader::of(bytemuck::cast_slice(&scratch.0)), 0)
}

/// The elements of a run from a byte on, and others behind its end.
#[cold]
#[inline(never)]
fn pad(scratch: &mut Scratch, run: RunReader<'_>, offset: usize, rest: f32) {
    scratch.0.fill(rest);
    for (i, element) in scratch.0.iter_mut().take((run.len() - offset) / size_of::<f32>()).enumerate() {
        *element = run.read(offset + i * size_of::<f32>());
    }
}

/// Sets the elements from one on.
#[cold]
#[inline(never)]
fn cut(scratch: &mut Scratch, end: usize, value: f32) {
    scratch.0[end.min(WIDE)..].fill(value);
}

/// What the interleaved chains give together.
#[inline(always)]
fn totals(kind: Total, sofar: &mut [f32; BLOCK], bad: &[f32]) -> Totals {
    match kind {
        Total::Sum => Totals { value: halve(sofar, |x, y| x + y), is_certain: true },
        Total::Max => {
            let has_nan = bad.iter().any(|x| x.is_nan());
            let value = halve(sofar, |x, y| if y > x { y } else { x });
            // There are two zeros, and which is the larger one a comparison does not say.
            Totals { value, is_certain: !has_nan && value != 0.0 }
        }
    }
}

/// The upper half onto the lower one, until one element is left.
#[inline(always)]
fn halve(all: &mut [f32; BLOCK], f: impl Fn(f32, f32) -> f32) -> f32 {
    macro_rules! halves {
        ($($half:literal)*) => {$(
            for i in 0..$half {
                all[i] = f(all[i], all[i + $half]);
            }
        )*};
    }
    halves!(32 16 8 4 2 1);
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
            to_elements::<S, N>(block, &mut scratch.0);
            self.write_some(offset, &scratch.0[..self.elements - first]);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_some(&mut self, offset: usize, elements: &[f32]) {
        for (i, &element) in elements.iter().enumerate() {
            self.run.write(offset + i * size_of::<f32>(), element);
        }
    }
}
