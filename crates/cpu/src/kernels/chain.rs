//! Chains of binary32 ops as one loop: what one op gives, the next one takes from the registers.
//!
//! Links are functions of a few instructions: those that need many registers end a chain.
//!
//! A chain goes over its tiles in blocks of [`BLOCK`] elements. Each block is loaded, goes through all links, and is put
//! where links say. The results are those of the ops one after the other, to the bit: a sum has the same order as that
//! of [`reduce`](super::reduce), whose interleaved chains are as many as a block has elements.

use pulp::{Simd, WithSimd};
use tilewright_ir::ElementwiseFn;

use crate::memory::{RunReader, RunWriter};

/// The elements that go through the links at a time.
pub(crate) const BLOCK: usize = 64;
/// Their bytes.
const BLOCK_BYTES: usize = BLOCK * size_of::<f32>();

/// Where a link finds its operand.
#[derive(Clone, Copy)]
pub(crate) enum Feed<'a> {
    /// One number for all elements.
    Scalar(f32),
    /// A number for each element.
    Tile(RunReader<'a>),
    /// A number for each of the first elements, another one for the rest.
    Prefix(RunReader<'a>, f32),
    /// A number for so many blocks after the other.
    Rows(RunReader<'a>, usize),
    /// What the link before gave.
    Itself,
    /// What is written into the target with this number, earlier in the chain.
    Target(usize),
}

/// Functions that need no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Function {
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
    Neg,
    Abs,
    Sqrt,
}

/// How the elements of a block are combined with those of the blocks before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Total {
    Sum,
    /// The largest number by comparison. [`Totals::is_certain`] says whether that is the maximum.
    Max,
}

/// One step of a chain.
#[derive(Clone, Copy)]
pub(crate) enum Link<'a> {
    Apply(Function, Feed<'a>),
    /// Elements from this one on get this value.
    Cut(usize, f32),
    /// The elements go to the target with this number.
    Write(usize),
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
    /// The function of the table, and the one with swapped operands.
    pub(crate) fn of(function: ElementwiseFn) -> Option<[Option<Function>; 2]> {
        use ElementwiseFn as F;
        Some(match function {
            F::Add => [Some(Function::Add); 2],
            F::Mul => [Some(Function::Mul); 2],
            F::Min => [Some(Function::Min); 2],
            F::Max => [Some(Function::Max); 2],
            F::Sub => [Some(Function::Sub), Some(Function::SubFrom)],
            F::Div | F::DivRn => [Some(Function::Div), Some(Function::DivInto)],
            F::Neg => [Some(Function::Neg), None],
            F::Abs => [Some(Function::Abs), None],
            F::Sqrt | F::SqrtRn => [Some(Function::Sqrt), None],
            // tidy: wildcard because a function that is not here ends the chain.
            _ => return None,
        })
    }
}

/// Sends `elements` elements through the links. They are a multiple of [`BLOCK`].
pub(crate) fn run<'a>(links: &[Link<'a>], targets: &mut [Target<'a>], elements: usize) -> Option<Totals> {
    pulp::Arch::new().dispatch(Chain { links, targets, elements })
}

struct Chain<'c, 'a> {
    links: &'c [Link<'a>],
    targets: &'c mut [Target<'a>],
    elements: usize,
}

impl WithSimd for Chain<'_, '_> {
    type Output = Option<Totals>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<Totals> {
        // The number of registers in a block.
        match S::F32_LANES {
            16 => self.run::<S, 4>(simd),
            8 => self.run::<S, 8>(simd),
            4 => self.run::<S, 16>(simd),
            _ => self.run::<S, 64>(simd),
        }
    }
}

/// What is known of the totals after some blocks.
#[repr(align(64))]
struct Sums {
    kind: Option<Total>,
    /// The elements of the blocks combined, and an element that is not a number where there was one.
    sofar: [f32; BLOCK],
    bad: [f32; BLOCK],
}

/// A block in N registers.
type Block<S, const N: usize> = [<S as Simd>::f32s; N];

/// The elements of a block in memory. It is a copy: a block whose address is taken is not kept in registers.
#[inline(always)]
fn to_elements<S: Simd, const N: usize>(block: Block<S, N>) -> [f32; BLOCK] {
    let mut elements = [0.0; BLOCK];
    let lanes = BLOCK / N;
    for (i, register) in block.into_iter().enumerate() {
        elements[i * lanes..][..lanes].copy_from_slice(bytemuck::cast_slice(&[register]));
    }
    elements
}

/// The block of some elements.
#[inline(always)]
fn to_block<S: Simd, const N: usize>(elements: &[f32; BLOCK]) -> Block<S, N> {
    let lanes = BLOCK / N;
    std::array::from_fn(|i| {
        bytemuck::pod_read_unaligned(bytemuck::cast_slice(&elements[i * lanes..][..lanes]))
    })
}

impl Chain<'_, '_> {
    /// Nothing is called on the way, so that what a block and the totals are in stays in registers.
    #[inline(always)]
    fn run<S: Simd, const N: usize>(self, simd: S) -> Option<Totals> {
        let Self { links, targets, elements } = self;
        let mut sofar = [simd.splat_f32s(0.0); N];
        let mut bad = sofar;
        let mut kind = None;
        for first in (0..elements).step_by(BLOCK) {
            let mut block = [simd.splat_f32s(0.0); N];
            for link in links {
                match *link {
                    Link::Apply(function, feed) => {
                        let operand = feed.block::<S, N>(simd, first, block, targets);
                        block = apply::<S, N>(simd, function, block, operand);
                    }
                    Link::Cut(end, value) => {
                        if first + BLOCK > end {
                            let mut elements = to_elements::<S, N>(block);
                            elements[end.saturating_sub(first)..].fill(value);
                            block = to_block::<S, N>(&elements);
                        }
                    }
                    Link::Write(target) => targets[target].write::<S, N>(first, block),
                    Link::Total(total) => {
                        if kind.is_none() {
                            kind = Some(total);
                            sofar = block;
                        } else {
                            (sofar, bad) = add_up::<S, N>(simd, total, sofar, bad, block);
                        }
                    }
                }
            }
        }
        let sums = Sums { kind, sofar: to_elements::<S, N>(sofar), bad: to_elements::<S, N>(bad) };
        sums.totals()
    }
}

impl Sums {
    #[inline(always)]
    fn totals(mut self) -> Option<Totals> {
        Some(match self.kind? {
            Total::Sum => Totals { value: halve(&mut self.sofar, |x, y| x + y), is_certain: true },
            Total::Max => {
                let has_nan = self.bad.iter().chain(&self.sofar).any(|x| x.is_nan());
                let value = halve(&mut self.sofar, |x, y| if y > x { y } else { x });
                // There are two zeros, and which is the larger one a comparison does not say.
                Totals { value, is_certain: !has_nan && value != 0.0 }
            }
        })
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

/// The totals so far with a block more. Where an element is not a number, `bad` becomes that.
#[inline(always)]
fn add_up<S: Simd, const N: usize>(
    simd: S,
    total: Total,
    mut sofar: Block<S, N>,
    mut bad: Block<S, N>,
    block: Block<S, N>,
) -> (Block<S, N>, Block<S, N>) {
    match total {
        Total::Sum => {
            for i in 0..N {
                sofar[i] = simd.add_f32s(sofar[i], block[i]);
            }
        }
        Total::Max => {
            for i in 0..N {
                let more = simd.greater_than_f32s(block[i], sofar[i]);
                sofar[i] = simd.select_f32s(more, block[i], sofar[i]);
                bad[i] = simd.select_f32s(simd.equal_f32s(block[i], block[i]), bad[i], block[i]);
            }
        }
    }
    (sofar, bad)
}

#[inline(always)]
fn apply<S: Simd, const N: usize>(
    simd: S,
    function: Function,
    x: Block<S, N>,
    y: Block<S, N>,
) -> Block<S, N> {
    let mut out = x;
    macro_rules! each {
        ($i:ident => $value:expr) => {
            for $i in 0..N {
                out[$i] = $value;
            }
        };
    }
    match function {
        Function::Take => out = y,
        Function::Add => each!(i => simd.add_f32s(x[i], y[i])),
        Function::Sub => each!(i => simd.sub_f32s(x[i], y[i])),
        Function::SubFrom => each!(i => simd.sub_f32s(y[i], x[i])),
        Function::Mul => each!(i => simd.mul_f32s(x[i], y[i])),
        Function::Div => each!(i => simd.div_f32s(x[i], y[i])),
        Function::DivInto => each!(i => simd.div_f32s(y[i], x[i])),
        Function::Neg => each!(i => simd.neg_f32s(x[i])),
        Function::Abs => each!(i => simd.abs_f32s(x[i])),
        Function::Sqrt => each!(i => simd.sqrt_f32s(x[i])),
        Function::Min => each!(i => {
            let less = simd.select_f32s(simd.less_than_f32s(x[i], y[i]), x[i], y[i]);
            extreme(simd, x[i], y[i], less, simd.or_u32s(bits(simd, x[i]), bits(simd, y[i])))
        }),
        Function::Max => each!(i => {
            let more = simd.select_f32s(simd.greater_than_f32s(x[i], y[i]), x[i], y[i]);
            extreme(simd, x[i], y[i], more, simd.and_u32s(bits(simd, x[i]), bits(simd, y[i])))
        }),
    }
    out
}

#[inline(always)]
fn bits<S: Simd>(simd: S, x: S::f32s) -> S::u32s {
    simd.transmute_u32s_f32s(x)
}

/// The minimum or maximum as [`math32`](super::math32) has it, of the one that a comparison finds and the one
/// among zeros.
#[inline(always)]
fn extreme<S: Simd>(simd: S, x: S::f32s, y: S::f32s, compared: S::f32s, of_equals: S::u32s) -> S::f32s {
    let of_equals = simd.transmute_f32s_u32s(of_equals);
    let ordered = simd.select_f32s(simd.equal_f32s(x, y), of_equals, compared);
    simd.select_f32s(simd.equal_f32s(y, y), ordered, x)
}

impl Feed<'_> {
    /// The operand of the block that begins with this element.
    #[inline(always)]
    fn block<S: Simd, const N: usize>(
        &self,
        simd: S,
        first: usize,
        itself: Block<S, N>,
        targets: &[Target<'_>],
    ) -> Block<S, N> {
        match self {
            Feed::Itself => itself,
            Feed::Scalar(value) => [simd.splat_f32s(*value); N],
            Feed::Tile(run) => run.read(first * size_of::<f32>()),
            Feed::Rows(run, blocks) => {
                let value: f32 = run.read(first / BLOCK / blocks * size_of::<f32>());
                [simd.splat_f32s(value); N]
            }
            Feed::Prefix(run, rest) => {
                let offset = first * size_of::<f32>();
                if offset + BLOCK_BYTES <= run.len() {
                    return run.read(offset);
                }
                if offset >= run.len() {
                    return [simd.splat_f32s(*rest); N];
                }
                let mut elements = [*rest; BLOCK];
                for (i, element) in elements[..(run.len() - offset) / size_of::<f32>()].iter_mut().enumerate()
                {
                    *element = run.read(offset + i * size_of::<f32>());
                }
                to_block::<S, N>(&elements)
            }
            Feed::Target(target) => targets[*target].run.reader().read(first * size_of::<f32>()),
        }
    }
}

impl Target<'_> {
    #[inline(always)]
    fn write<S: Simd, const N: usize>(&mut self, first: usize, block: Block<S, N>) {
        let offset = first * size_of::<f32>();
        if first + BLOCK <= self.elements {
            self.run.write(offset, block);
        } else if first < self.elements {
            let elements = to_elements::<S, N>(block);
            for (i, &element) in elements[..self.elements - first].iter().enumerate() {
                self.run.write(offset + i * size_of::<f32>(), element);
            }
        }
    }
}
