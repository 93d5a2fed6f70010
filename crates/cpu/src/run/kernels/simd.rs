//! Selects the instruction set, and loops over blocks of elements.
//!
//! The last, partial block is padded, so that the applied function is always vectorized.

use super::Source;

/// The number of elements in a block. 32 elements of 32 bits take two registers of AVX-512.
pub(super) const BLOCK: usize = 32;

/// Runs a function that is compiled for the best instruction set of this processor.
///
/// The callees of the function have to be inlined: mark them `#[inline(always)]`.
#[inline(always)]
pub(super) fn vectorize<R>(function: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(function)
}

pub(super) fn each<T: Copy + Default, R: Copy + Default>(out: &mut [R], x: &[T], f: impl Fn(T) -> R) {
    vectorize(
        #[inline(always)]
        || convert(out, x, f),
    );
}

impl<T: Copy + Default> Source<'_, T> {
    #[inline(always)]
    fn only(&self) -> T {
        match self {
            Source::Tile(tile) => tile[0],
            Source::Scalar(value) => *value,
            Source::Out => T::default(),
        }
    }
}

/// The blocks of a tile (`step` is 1), or a block of copies of a scalar (`step` is 0).
#[derive(Clone, Copy)]
struct Feed<'a, T> {
    blocks: &'a [[T; BLOCK]],
    tail: &'a [T],
    step: usize,
}

impl<'a, T: Copy> Feed<'a, T> {
    /// Creates the feed of an operand. `splat` receives the copies of a scalar. The feed of
    /// [`Source::Out`] is not used.
    #[inline(always)]
    fn new(source: Source<'a, T>, splat: &'a mut [T; BLOCK], elements: usize) -> Self {
        if let Source::Tile(data) = source {
            assert!(data.len() == elements, "an operand has as many elements as the result");
            let (blocks, tail) = data.as_chunks();
            return Feed { blocks, tail, step: 1 };
        }
        if let Source::Scalar(value) = source {
            *splat = [value; BLOCK];
        }
        Feed { blocks: std::slice::from_ref(splat), tail: &splat[..elements % BLOCK], step: 0 }
    }

    #[inline(always)]
    fn block(&self, index: usize) -> &'a [T; BLOCK] {
        &self.blocks[index * self.step]
    }

    /// Returns the partial block, padded.
    #[inline(always)]
    fn padded(&self) -> [T; BLOCK]
    where
        T: Default,
    {
        padded(self.tail)
    }
}

#[inline(always)]
fn padded<T: Copy + Default>(tail: &[T]) -> [T; BLOCK] {
    let mut pad = [T::default(); BLOCK];
    pad[..tail.len()].copy_from_slice(tail);
    pad
}

/// Computes `out[i] = f(x[i])` on whole blocks. Takes a slice for the reason of [`update1`].
#[inline(always)]
fn apply1<T: Copy, R>(out: &mut [R], x: &[T], f: impl Fn(T) -> R) {
    let whole = out.len() & !(BLOCK - 1);
    for (out, &x) in out[..whole].iter_mut().zip(&x[..whole]) {
        *out = f(x);
    }
}

#[inline(always)]
fn apply2<T: Copy, R>(out: &mut [R; BLOCK], x: &[T; BLOCK], y: &[T; BLOCK], f: impl Fn(T, T) -> R) {
    for i in 0..BLOCK {
        out[i] = f(x[i], y[i]);
    }
}

#[inline(always)]
fn apply3<C: Copy, T: Copy>(
    out: &mut [T; BLOCK],
    x: &[C; BLOCK],
    y: &[T; BLOCK],
    z: &[T; BLOCK],
    f: impl Fn(C, T, T) -> T,
) {
    for i in 0..BLOCK {
        out[i] = f(x[i], y[i], z[i]);
    }
}

#[inline(always)]
fn update2<T: Copy>(out: &mut [T; BLOCK], y: &[T; BLOCK], f: impl Fn(T, T) -> T) {
    for i in 0..BLOCK {
        out[i] = f(out[i], y[i]);
    }
}

#[inline(always)]
pub(super) fn map2<T, R>(out: &mut [R], x: Source<'_, T>, y: Source<'_, T>, f: impl Fn(T, T) -> R)
where
    T: Copy + Default,
    R: Copy + Default,
{
    if let [out] = out {
        *out = f(x.only(), y.only());
        return;
    }
    let (mut splat_x, mut splat_y) = ([T::default(); BLOCK], [T::default(); BLOCK]);
    let x = Feed::new(x, &mut splat_x, out.len());
    let y = Feed::new(y, &mut splat_y, out.len());
    let (blocks, tail) = out.as_chunks_mut();
    for (index, block) in blocks.iter_mut().enumerate() {
        apply2(block, x.block(index), y.block(index), &f);
    }
    if !tail.is_empty() {
        let mut pad = [R::default(); BLOCK];
        apply2(&mut pad, &x.padded(), &y.padded(), &f);
        tail.copy_from_slice(&pad[..tail.len()]);
    }
}

/// Computes `out[i] = f(out[i], y[i])`. The operand may not be [`Source::Out`].
#[inline(always)]
pub(super) fn fold2<T: Copy + Default>(out: &mut [T], y: Source<'_, T>, f: impl Fn(T, T) -> T) {
    if let [out] = out {
        *out = f(*out, y.only());
        return;
    }
    let mut splat = [T::default(); BLOCK];
    let y = Feed::new(y, &mut splat, out.len());
    let (blocks, tail) = out.as_chunks_mut();
    for (index, block) in blocks.iter_mut().enumerate() {
        update2(block, y.block(index), &f);
    }
    if !tail.is_empty() {
        let mut pad = padded(tail);
        update2(&mut pad, &y.padded(), &f);
        tail.copy_from_slice(&pad[..tail.len()]);
    }
}

/// Computes `out[i] = f(x[i], y[i], z[i])`, where y and z may be [`Source::Out`].
#[inline(always)]
pub(super) fn map3<C: Copy + Default, T: Copy + Default>(
    out: &mut [T],
    x: Source<'_, C>,
    y: Source<'_, T>,
    z: Source<'_, T>,
    f: impl Fn(C, T, T) -> T,
) {
    let y_is_out = matches!(y, Source::Out);
    let z_is_out = matches!(z, Source::Out);
    let mut splat_x = [C::default(); BLOCK];
    let (mut splat_y, mut splat_z) = ([T::default(); BLOCK], [T::default(); BLOCK]);
    let x = Feed::new(x, &mut splat_x, out.len());
    let y = Feed::new(y, &mut splat_y, out.len());
    let z = Feed::new(z, &mut splat_z, out.len());
    let (blocks, tail) = out.as_chunks_mut();
    for (index, block) in blocks.iter_mut().enumerate() {
        let (mut in_y, mut in_z) = (y.block(index), z.block(index));
        let before;
        if y_is_out || z_is_out {
            before = *block;
            in_y = if y_is_out { &before } else { in_y };
            in_z = if z_is_out { &before } else { in_z };
        }
        apply3(block, x.block(index), in_y, in_z, &f);
    }
    if !tail.is_empty() {
        let mut pad = padded(tail);
        let in_y = if y_is_out { pad } else { y.padded() };
        let in_z = if z_is_out { pad } else { z.padded() };
        apply3(&mut pad, &x.padded(), &in_y, &in_z, &f);
        tail.copy_from_slice(&pad[..tail.len()]);
    }
}

#[inline(always)]
pub(super) fn convert<T: Copy + Default, R: Copy + Default>(out: &mut [R], x: &[T], f: impl Fn(T) -> R) {
    assert!(x.len() == out.len(), "the operand has as many elements as the result");
    let whole = out.len() & !(BLOCK - 1);
    let (blocks, tail) = out.split_at_mut(whole);
    let (x_blocks, x_tail) = x.split_at(whole);
    if !blocks.is_empty() {
        apply1(blocks, x_blocks, &f);
    }
    if !tail.is_empty() {
        let mut pad = [R::default(); BLOCK];
        apply1(&mut pad, &padded(x_tail), &f);
        tail.copy_from_slice(&pad[..tail.len()]);
    }
}

/// Computes `out[i] = f(out[i])` on whole blocks. Takes a slice, because the compiler would unroll
/// a loop over an array before vectorizing it.
#[inline(always)]
fn update1<T: Copy>(out: &mut [T], f: impl Fn(T) -> T) {
    let whole = out.len() & !(BLOCK - 1);
    for value in &mut out[..whole] {
        *value = f(*value);
    }
}

/// Copies an operand to the result.
#[inline(always)]
fn bring<T: Copy>(out: &mut [T], x: Source<'_, T>) {
    match x {
        Source::Tile(x) => out.copy_from_slice(x),
        Source::Scalar(value) => out.fill(value),
        Source::Out => {}
    }
}

/// Computes `out[i] = f(x[i])`, or `f(out[i])` for [`Source::Out`].
///
/// The operand is first copied to the result, so that the code contains `f`, which may be long,
/// only once.
#[inline(always)]
pub(super) fn map1<T: Copy + Default>(out: &mut [T], x: Source<'_, T>, f: impl Fn(T) -> T) {
    bring(out, x);
    let whole = out.len() & !(BLOCK - 1);
    let (blocks, tail) = out.split_at_mut(whole);
    let mut pad = padded(tail);
    let padded = if tail.is_empty() { &mut [] } else { &mut pad[..] };
    for part in [blocks, padded] {
        update1(part, &f);
    }
    tail.copy_from_slice(&pad[..tail.len()]);
}

/// Computes `out[i] = f(out[i], y[i])` on whole blocks. Takes slices for the reason of [`update1`].
#[inline(always)]
fn update2_long<T: Copy>(out: &mut [T], y: &[T], f: impl Fn(T, T) -> T) {
    let whole = out.len() & !(BLOCK - 1);
    for (value, &y) in out[..whole].iter_mut().zip(&y[..whole]) {
        *value = f(*value, y);
    }
}

/// Computes `out[i] = f(x[i])`, or `slow(x[i])` for hard arguments.
#[inline(always)]
pub(super) fn map1_guarded<T: Copy + Default>(
    out: &mut [T],
    x: Source<'_, T>,
    f: impl Fn(T) -> T,
    is_hard: impl Fn(T) -> bool,
    slow: impl Fn(T) -> T,
) {
    bring(out, x);
    for chunk in out.chunks_mut(CHUNK) {
        let mut before = [T::default(); CHUNK];
        let before = &mut before[..chunk.len()];
        before.copy_from_slice(chunk);
        let hard = before.iter().fold(0, |hard, &x| hard | u32::from(is_hard(x)));
        map1(chunk, Source::Out, &f);
        if hard != 0 {
            for (out, &x) in chunk.iter_mut().zip(&*before) {
                if is_hard(x) {
                    *out = slow(x);
                }
            }
        }
    }
}

/// The number of elements that a loop copies to the stack if it reads them after overwriting them.
pub(super) const CHUNK: usize = 256;

pub(super) fn binary_commutative<T: Copy + Default>(
    out: &mut [T],
    x: Source<'_, T>,
    y: Source<'_, T>,
    f: impl Fn(T, T) -> T + Copy,
) {
    match (x, y) {
        (Source::Out, Source::Out) => {
            on_itself(out, |out, copy| binary_commutative(out, Source::Out, copy, f));
        }
        (Source::Out, other) | (other, Source::Out) => {
            vectorize(
                #[inline(always)]
                || fold2(out, other, f),
            );
        }
        (x, y) => vectorize(
            #[inline(always)]
            || map2(out, x, y, f),
        ),
    }
}

pub(super) fn binary<T: Copy + Default>(
    out: &mut [T],
    x: Source<'_, T>,
    y: Source<'_, T>,
    f: impl Fn(T, T) -> T + Copy,
) {
    match (x, y) {
        (Source::Out, Source::Out) => on_itself(out, |out, copy| binary(out, Source::Out, copy, f)),
        (Source::Out, y) => vectorize(
            #[inline(always)]
            || fold2(out, y, f),
        ),
        (x, Source::Out) => vectorize(
            #[inline(always)]
            || {
                fold2(
                    out,
                    x,
                    #[inline(always)]
                    |y, x| f(x, y),
                );
            },
        ),
        (x, y) => vectorize(
            #[inline(always)]
            || map2(out, x, y, f),
        ),
    }
}

/// Computes `out[i] = f(x[i], y[i])` for long functions. Copies `x` to the result first, so that
/// `f` is compiled fewer times than in [`binary`].
pub(super) fn binary_long<T: Copy + Default>(
    out: &mut [T],
    x: Source<'_, T>,
    y: Source<'_, T>,
    f: impl Fn(T, T) -> T + Copy,
) {
    match y {
        Source::Out => {
            let mut copy = [T::default(); CHUNK];
            for (index, chunk) in out.chunks_mut(CHUNK).enumerate() {
                let copy = &mut copy[..chunk.len()];
                copy.copy_from_slice(chunk);
                let x = match x {
                    Source::Tile(x) => Source::Tile(&x[index * CHUNK..][..chunk.len()]),
                    other => other,
                };
                binary_long(chunk, x, Source::Tile(copy), f);
            }
        }
        Source::Scalar(y) => vectorize(
            #[inline(always)]
            || map1(out, x, |x| f(x, y)),
        ),
        Source::Tile(y) => {
            bring(out, x);
            assert!(y.len() == out.len(), "an operand has as many elements as the result");
            let (blocks, tail) = out.split_at_mut(y.len() & !(BLOCK - 1));
            let (y_blocks, y_tail) = y.split_at(blocks.len());
            let mut pad = padded(tail);
            let update = |part: &mut [T], y: &[T]| {
                vectorize(
                    #[inline(always)]
                    || update2_long(part, y, f),
                );
            };
            if !blocks.is_empty() {
                update(blocks, y_blocks);
            }
            if !tail.is_empty() {
                update(&mut pad, &padded(y_tail));
                tail.copy_from_slice(&pad[..tail.len()]);
            }
        }
    }
}

/// Calls a function with each chunk of the result and a copy of it.
fn on_itself<T: Copy + Default>(out: &mut [T], each: impl Fn(&mut [T], Source<'_, T>)) {
    let mut copy = [T::default(); CHUNK];
    for chunk in out.chunks_mut(CHUNK) {
        let copy = &mut copy[..chunk.len()];
        copy.copy_from_slice(chunk);
        each(chunk, Source::Tile(copy));
    }
}

pub(super) fn unary<T: Copy + Default>(out: &mut [T], x: Source<'_, T>, f: impl Fn(T) -> T) {
    vectorize(
        #[inline(always)]
        || map1(out, x, f),
    );
}

/// Computes `out[i] = f(x[i], y[i])` with a boolean result. No operand is [`Source::Out`].
pub(super) fn compare<T: Copy + Default>(
    out: &mut [u8],
    x: Source<'_, T>,
    y: Source<'_, T>,
    f: impl Fn(T, T) -> bool,
) {
    assert!(!matches!((&x, &y), (Source::Out, _) | (_, Source::Out)), "a comparison does not work in place");
    vectorize(
        #[inline(always)]
        || {
            map2(
                out,
                x,
                y,
                #[inline(always)]
                |x, y| u8::from(f(x, y)),
            );
        },
    );
}
