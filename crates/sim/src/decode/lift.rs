//! Lifts functions of single values to all lanes of a warp.

use super::Action;
use crate::registers::{LANES, Slot};

/// `d = f(a)`.
pub(super) fn map1(d: Slot, a: Slot, f: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Action {
    Action::Compute(Box::new(move |registers, mask| {
        let a = registers.get(a);
        let out = std::array::from_fn::<_, LANES, _>(|lane| f(a[lane]));
        registers.set(d, mask, &out);
    }))
}

/// `d = f(a, b)`.
pub(super) fn map2(
    d: Slot,
    [a, b]: [Slot; 2],
    f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
) -> Action {
    Action::Compute(Box::new(move |registers, mask| {
        let (a, b) = (registers.get(a), registers.get(b));
        let out = std::array::from_fn::<_, LANES, _>(|lane| f(a[lane], b[lane]));
        registers.set(d, mask, &out);
    }))
}

/// `d = f(a, b, c)`.
pub(super) fn map3(
    d: Slot,
    [a, b, c]: [Slot; 3],
    f: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static,
) -> Action {
    Action::Compute(Box::new(move |registers, mask| {
        let (a, b, c) = (registers.get(a), registers.get(b), registers.get(c));
        let out = std::array::from_fn::<_, LANES, _>(|lane| f(a[lane], b[lane], c[lane]));
        registers.set(d, mask, &out);
    }))
}

/// `d = f(a, b, c, e)`.
pub(super) fn map4(
    d: Slot,
    sources: [Slot; 4],
    f: impl Fn([u64; 4]) -> u64 + Send + Sync + 'static,
) -> Action {
    Action::Compute(Box::new(move |registers, mask| {
        let sources = sources.map(|slot| registers.get(slot));
        let out = std::array::from_fn::<_, LANES, _>(|lane| f(sources.map(|source| source[lane])));
        registers.set(d, mask, &out);
    }))
}

/// `(d, e) = f(a, b, c)`.
pub(super) fn map3_pair(
    [d, e]: [Slot; 2],
    [a, b, c]: [Slot; 3],
    f: impl Fn(u64, u64, u64) -> [u64; 2] + Send + Sync + 'static,
) -> Action {
    Action::Compute(Box::new(move |registers, mask| {
        let (a, b, c) = (registers.get(a), registers.get(b), registers.get(c));
        let both = std::array::from_fn::<_, LANES, _>(|lane| f(a[lane], b[lane], c[lane]));
        registers.set(d, mask, &both.map(|[first, _]| first));
        registers.set(e, mask, &both.map(|[_, second]| second));
    }))
}

/// `(d, e) = f(sources)`.
pub(super) fn map4_pair(
    [d, e]: [Slot; 2],
    sources: [Slot; 4],
    f: impl Fn([u64; 4]) -> [u64; 2] + Send + Sync + 'static,
) -> Action {
    Action::Compute(Box::new(move |registers, mask| {
        let sources = sources.map(|slot| registers.get(slot));
        let both = std::array::from_fn::<_, LANES, _>(|lane| f(sources.map(|source| source[lane])));
        registers.set(d, mask, &both.map(|[first, _]| first));
        registers.set(e, mask, &both.map(|[_, second]| second));
    }))
}

/// Applies `f` to both 16-bit halves of 32 bits, or both 32-bit halves of 64.
#[inline]
pub(super) fn halves<const N: usize>(half_bits: u32, operands: [u64; N], f: impl Fn([u64; N]) -> u64) -> u64 {
    let low = f(operands.map(|operand| crate::numeric::low(operand, half_bits)));
    let high = f(operands.map(|operand| operand >> half_bits));
    low | high << half_bits
}
