//! Computes symbolically on affine tiles ([`Affine`]) and box masks ([`BoxMask`]).
//!
//! For example, `arange(0, 64) * 4 + 8` is the affine form with base 8 and stride 4, and `arange(0,
//! 64) < 10` is the box `0..10`.
//! A function returns the exact result, or `None` if the caller has to compute a dense tile. Affine
//! arithmetic is modular, so sums and products are exact even if they wrap. Comparisons, widening,
//! division, minima and maxima are not exact then. These functions compute the range of the
//! elements from the corners of the tile, and return `None` if an element wraps.
#![allow(clippy::inline_always, reason = "a value that is constructed in place is not moved through memory")]

use tilewright_ir::{
    ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, ElementwiseFamily as Family, ElementwiseFn,
};

use crate::run::value::{Affine, BoxMask, Form};
use crate::types::{Extents, Number, SYMBOLIC_RANK, View};

type Indices = [u32; SYMBOLIC_RANK];

/// Returns an affine form, or a uniform form if all elements are equal. Returns `None` if the tile
/// has too many axes.
#[inline(always)]
pub(crate) fn affine(ty: View<'_>, base: i64, mut strides: [i64; SYMBOLIC_RANK]) -> Option<Form> {
    let mut varies = 0;
    for (stride, &last) in strides.iter_mut().zip(&ty.extents.last).take(ty.extents.rank) {
        *stride = if last == 0 { 0 } else { ty.number.sign_extend(*stride as u64) };
        varies |= *stride;
    }
    if varies == 0 {
        return Some(Form::Uniform(ty.number.truncate(base as u64)));
    }
    ty.extents.may_be_symbolic.then(|| Form::Affine(Affine { base: ty.number.extend(base as u64), strides }))
}

/// Returns a box mask, or a uniform form if the box is empty or the whole tile. Returns `None` if
/// the tile has too many axes.
pub(crate) fn boxed(ty: View<'_>, low: Indices, high: Indices) -> Option<Form> {
    if ty.extents.shape.len() > SYMBOLIC_RANK {
        return None;
    }
    let mut mask = BoxMask { low: [0; SYMBOLIC_RANK], high: [1; SYMBOLIC_RANK] };
    let mut everything = true;
    for (axis, &extent) in ty.extents.shape.iter().enumerate() {
        if low[axis] >= high[axis] {
            return Some(Form::Uniform(0));
        }
        everything &= low[axis] == 0 && high[axis] == extent;
        (mask.low[axis], mask.high[axis]) = (low[axis], high[axis]);
    }
    Some(if everything { Form::Uniform(1) } else { Form::Box(mask) })
}

/// Returns the base and strides of a form. The strides of a uniform value are 0.
#[inline(always)]
pub(crate) fn as_affine(number: Number, form: &Form) -> Option<Affine> {
    match form {
        Form::Affine(affine) => Some(*affine),
        Form::Uniform(bits) => Some(Affine { base: number.extend(*bits), strides: [0; SYMBOLIC_RANK] }),
        _ => None,
    }
}

fn as_box(ty: View<'_>, form: &Form) -> Option<BoxMask> {
    let everything = || {
        let mut mask = BoxMask { low: [0; SYMBOLIC_RANK], high: [1; SYMBOLIC_RANK] };
        for (high, &extent) in mask.high.iter_mut().zip(ty.extents.shape.iter()) {
            *high = extent;
        }
        mask
    };
    match form {
        Form::Box(mask) => Some(*mask),
        Form::Uniform(0) => Some(BoxMask { high: [0; SYMBOLIC_RANK], ..everything() }),
        Form::Uniform(_) => Some(everything()),
        _ => None,
    }
}

/// Returns the least and greatest `base + Σ strides[axis] * index[axis]`, or `None` if they exceed
/// 64 bits.
#[inline(always)]
pub(crate) fn corners(extents: &Extents, affine: &Affine) -> Option<(i64, i64)> {
    let (mut low, mut high) = (affine.base, affine.base);
    for axis in 0..extents.rank {
        let reach = affine.strides[axis].checked_mul(extents.last[axis])?;
        if reach < 0 {
            low = low.checked_add(reach)?;
        } else {
            high = high.checked_add(reach)?;
        }
    }
    Some((low, high))
}

/// Returns the least and greatest element, or `None` if an element wraps.
#[inline(always)]
pub(crate) fn range(ty: View<'_>, affine: &Affine) -> Option<(i64, i64)> {
    let (low, high) = corners(ty.extents, affine)?;
    ty.number.contains(low, high).then_some((low, high))
}

/// Applies a function to forms. `ty` has the element type of the last operand, and the extents of
/// the result.
pub(crate) fn elementwise(function: ElementwiseFn, ty: View<'_>, operands: &[&Form]) -> Option<Form> {
    match (function.family(), operands) {
        (Family::Bitwise(function), _) if ty.number.is_bool() => boolean(function, ty, operands),
        (Family::Arithmetic(ArithmeticFn::Neg), [x]) if ty.number.may_be_affine() => {
            let x = as_affine(ty.number, x)?;
            affine(ty, x.base.wrapping_neg(), x.strides.map(i64::wrapping_neg))
        }
        (family, [x, y]) if ty.number.may_be_affine() => {
            // A dense operand has no symbolic result.
            let (left, right) = (as_affine(ty.number, x)?, as_affine(ty.number, y)?);
            of_affine(family, ty, &left, &right)
        }
        // tidy: wildcard because the other functions of one or three operands are not affine
        _ => None,
    }
}

fn boolean(function: BitwiseFn, ty: View<'_>, operands: &[&Form]) -> Option<Form> {
    match (function, operands) {
        (BitwiseFn::And, [Form::Uniform(bits), other] | [other, Form::Uniform(bits)]) => {
            Some(if *bits == 0 { Form::Uniform(0) } else { (*other).clone() })
        }
        (BitwiseFn::And, [x, y]) => {
            let (x, y) = (as_box(ty, x)?, as_box(ty, y)?);
            intersection(ty, &x, &y)
        }
        (BitwiseFn::Not, [Form::Box(mask)]) => complement(ty, mask),
        (BitwiseFn::Or, [Form::Uniform(bits), other] | [other, Form::Uniform(bits)]) => {
            Some(if *bits == 0 { (*other).clone() } else { Form::Uniform(1) })
        }
        // tidy: wildcard because no other function of boxes is a box
        _ => None,
    }
}

fn of_affine(family: Family, ty: View<'_>, x: &Affine, y: &Affine) -> Option<Form> {
    match family {
        Family::Arithmetic(function) => arithmetic(function, ty, x, y),
        Family::Division(function) if is_uniform(y) => divided(function, ty, x, y.base),
        Family::Bitwise(BitwiseFn::Shl) if is_uniform(y) => {
            let width = i64::from(ty.number.bits());
            // `1 << 63` is negative as an `i64`, but congruent to 2^63 modulo 2^64, so the product
            // is exact.
            if (0..width).contains(&y.base) { scaled(ty, x, 1_i64 << y.base) } else { Some(Form::Uniform(0)) }
        }
        Family::Comparison(function) => comparison(function, ty, x, y),
        // tidy: wildcard because the other bitwise functions of affine tiles are not affine
        Family::Bitwise(_)
        | Family::Division(_)
        | Family::WideProduct(_)
        | Family::Selection(_)
        | Family::Float(_)
        | Family::Math(_) => None,
    }
}

fn is_uniform(tile: &Affine) -> bool {
    tile.strides == [0; SYMBOLIC_RANK]
}

fn scaled(ty: View<'_>, tile: &Affine, by: i64) -> Option<Form> {
    affine(ty, tile.base.wrapping_mul(by), tile.strides.map(|stride| stride.wrapping_mul(by)))
}

fn arithmetic(function: ArithmeticFn, ty: View<'_>, x: &Affine, y: &Affine) -> Option<Form> {
    let zip = |f: fn(i64, i64) -> i64| {
        let mut strides = x.strides;
        for (stride, &other) in strides.iter_mut().zip(&y.strides).take(ty.extents.rank) {
            *stride = f(*stride, other);
        }
        affine(ty, f(x.base, y.base), strides)
    };
    match function {
        ArithmeticFn::Add => zip(i64::wrapping_add),
        ArithmeticFn::Sub => zip(i64::wrapping_sub),
        ArithmeticFn::Mul if is_uniform(y) => scaled(ty, x, y.base),
        ArithmeticFn::Mul if is_uniform(x) => scaled(ty, y, x.base),
        ArithmeticFn::Min | ArithmeticFn::Max => {
            let (x_range, y_range) = (range(ty, x)?, range(ty, y)?);
            let take_x = if x_range.1 <= y_range.0 {
                function == ArithmeticFn::Min
            } else if y_range.1 <= x_range.0 {
                function == ArithmeticFn::Max
            } else {
                return None;
            };
            let taken = if take_x { x } else { y };
            affine(ty, taken.base, taken.strides)
        }
        ArithmeticFn::Mul | ArithmeticFn::Neg | ArithmeticFn::Abs => None,
    }
}

/// Returns a quotient or remainder that is uniform or affine. Returns `None` if an element may be
/// negative or wrap, or if the divisor is not positive.
fn divided(function: DivisionFn, ty: View<'_>, x: &Affine, divisor: i64) -> Option<Form> {
    let (low, high) = range(ty, x)?;
    if divisor <= 0 || low < 0 {
        return None;
    }
    let quotient = low / divisor;
    if high / divisor == quotient {
        return match function {
            DivisionFn::IntDiv => Some(Form::Uniform(quotient as u64)),
            DivisionFn::IntRem => affine(ty, x.base - quotient * divisor, x.strides),
        };
    }
    // All elements have the remainder of the base, so their quotients are affine.
    if x.base >= 0 && x.strides.iter().all(|stride| stride % divisor == 0) {
        return match function {
            DivisionFn::IntDiv => affine(ty, x.base / divisor, x.strides.map(|stride| stride / divisor)),
            DivisionFn::IntRem => Some(Form::Uniform((x.base % divisor) as u64)),
        };
    }
    None
}

/// Compares two affine tiles. The result is uniform if the range of the difference decides it. It
/// is a box if the difference varies along one axis and the comparison is true for one range there.
fn comparison(function: ComparisonFn, ty: View<'_>, x: &Affine, y: &Affine) -> Option<Form> {
    range(ty, x)?;
    range(ty, y)?;
    let mut difference = Affine { base: x.base.checked_sub(y.base)?, strides: [0; SYMBOLIC_RANK] };
    let mut varying = None;
    let mut count = 0;
    for (axis, stride) in difference.strides.iter_mut().enumerate().take(ty.extents.rank) {
        *stride = x.strides[axis].checked_sub(y.strides[axis])?;
        if *stride != 0 {
            varying = Some(axis);
            count += 1;
        }
    }
    let (least, most) = corners(ty.extents, &difference)?;
    if let Some(truth) = decided(function, least, most) {
        return Some(Form::Uniform(u64::from(truth)));
    }
    let axis = varying.filter(|_| count == 1)?;
    let extent = i64::from(ty.extents.shape[axis]);
    let (low, high) = solve(function, difference.base, difference.strides[axis], extent)?;
    let (mut lows, mut highs) = ([0; SYMBOLIC_RANK], [1; SYMBOLIC_RANK]);
    for (high, &extent) in highs.iter_mut().zip(ty.extents.shape.iter()) {
        *high = extent;
    }
    (lows[axis], highs[axis]) = (low as u32, high as u32);
    boxed(ty, lows, highs)
}

/// Compares the numbers from `least` to `most` with 0. Returns the result if all agree.
fn decided(function: ComparisonFn, least: i64, most: i64) -> Option<bool> {
    let (all, none) = match function {
        ComparisonFn::Lt => (most < 0, least >= 0),
        ComparisonFn::Le => (most <= 0, least > 0),
        ComparisonFn::Gt => (least > 0, most <= 0),
        ComparisonFn::Ge => (least >= 0, most < 0),
        ComparisonFn::Eq => (least == 0 && most == 0, least > 0 || most < 0),
        ComparisonFn::Ne => (least > 0 || most < 0, least == 0 && most == 0),
    };
    if all {
        Some(true)
    } else if none {
        Some(false)
    } else {
        None
    }
}

/// Compares `base + stride * i` with 0 for each i in `0..extent`. Returns the range of indices for
/// which the comparison is true, if there is one. The stride is not 0.
fn solve(function: ComparisonFn, base: i64, stride: i64, extent: i64) -> Option<(i64, i64)> {
    // The first indices at which an ascending progression is at least 0, and above 0.
    let first_at_least =
        |base: i64, stride: i64| (-base).div_euclid(stride) + i64::from((-base).rem_euclid(stride) != 0);
    let first_above = |base: i64, stride: i64| (-base).div_euclid(stride) + 1;
    let clamp = |index: i64| index.clamp(0, extent);
    // The negation of `i64::MIN` overflows.
    if base == i64::MIN || stride == i64::MIN {
        return None;
    }
    // Negating a descending progression makes it ascending and reverses the comparison.
    let (function, base, stride) = if stride > 0 {
        (function, base, stride)
    } else {
        let mirrored = match function {
            ComparisonFn::Lt => ComparisonFn::Gt,
            ComparisonFn::Le => ComparisonFn::Ge,
            ComparisonFn::Gt => ComparisonFn::Lt,
            ComparisonFn::Ge => ComparisonFn::Le,
            ComparisonFn::Eq | ComparisonFn::Ne => function,
        };
        (mirrored, -base, -stride)
    };
    let (at_least, above) = (clamp(first_at_least(base, stride)), clamp(first_above(base, stride)));
    match function {
        ComparisonFn::Lt => Some((0, at_least)),
        ComparisonFn::Le => Some((0, above)),
        ComparisonFn::Ge => Some((at_least, extent)),
        ComparisonFn::Gt => Some((above, extent)),
        ComparisonFn::Eq => Some((at_least, above)),
        ComparisonFn::Ne if at_least == above => Some((0, extent)),
        ComparisonFn::Ne if at_least == 0 => Some((above, extent)),
        ComparisonFn::Ne if above == extent => Some((0, at_least)),
        ComparisonFn::Ne => None,
    }
}

fn intersection(ty: View<'_>, x: &BoxMask, y: &BoxMask) -> Option<Form> {
    let (mut low, mut high) = (x.low, x.high);
    for axis in 0..SYMBOLIC_RANK {
        low[axis] = low[axis].max(y.low[axis]);
        high[axis] = high[axis].min(y.high[axis]);
    }
    boxed(ty, low, high)
}

/// Returns the complement of a box that is bounded at one end of one axis. Other complements are no
/// boxes.
fn complement(ty: View<'_>, mask: &BoxMask) -> Option<Form> {
    let mut partial = (0..ty.extents.shape.len())
        .filter(|&axis| mask.low[axis] != 0 || mask.high[axis] != ty.extents.shape[axis]);
    let (axis, None) = (partial.next()?, partial.next()) else { return None };
    let (mut low, mut high) = (mask.low, mask.high);
    if mask.low[axis] == 0 {
        (low[axis], high[axis]) = (mask.high[axis], ty.extents.shape[axis]);
    } else if mask.high[axis] == ty.extents.shape[axis] {
        (low[axis], high[axis]) = (0, mask.low[axis]);
    } else {
        return None;
    }
    boxed(ty, low, high)
}

pub(crate) fn cast(from: View<'_>, to: View<'_>, form: &Form) -> Option<Form> {
    let Form::Affine(tile) = form else { return None };
    if to.number.is_bool() {
        let zero = Affine { base: 0, strides: [0; SYMBOLIC_RANK] };
        return comparison(ComparisonFn::Ne, from, tile, &zero);
    }
    if !to.number.dtype.is_int() {
        return None;
    }
    if to.number.bits() > from.number.bits() {
        range(from, tile)?;
    }
    affine(to, tile.base, tile.strides)
}

/// Advances pointers by an offset in elements of `size` bytes.
#[inline(always)]
pub(crate) fn ptr_add(
    ty: View<'_>,
    pointer: &Form,
    offset_ty: View<'_>,
    offset: &Form,
    size: usize,
) -> Option<Form> {
    let (pointer, offset) = (as_affine(ty.number, pointer)?, as_affine(offset_ty.number, offset)?);
    if offset_ty.number.bits() < 64 && offset.strides != [0; SYMBOLIC_RANK] {
        range(offset_ty, &offset)?;
    }
    let size = size as i64;
    let mut strides = pointer.strides;
    for (stride, &step) in strides.iter_mut().zip(&offset.strides).take(ty.extents.rank) {
        *stride = stride.wrapping_add(step.wrapping_mul(size));
    }
    affine(ty, pointer.base.wrapping_add(offset.base.wrapping_mul(size)), strides)
}

/// Reshapes a tile to another shape with the same number of elements.
pub(crate) fn reshape(from: View<'_>, to: View<'_>, form: &Form) -> Option<Form> {
    match form {
        Form::Uniform(_) | Form::Dense(_) => Some(form.clone()),
        Form::Affine(tile) => {
            // The result is affine if the elements, in row-major order, are in progression.
            let (mut step, mut run) = (None, 1_i64);
            for axis in (0..from.extents.shape.len()).rev().filter(|&axis| from.extents.shape[axis] > 1) {
                let expected = *step.get_or_insert(tile.strides[axis]);
                if tile.strides[axis] != from.number.sign_extend(expected.wrapping_mul(run) as u64) {
                    return None;
                }
                run *= i64::from(from.extents.shape[axis]);
            }
            let mut strides = [0; SYMBOLIC_RANK];
            let mut stride = step?;
            for axis in (0..to.extents.shape.len()).rev() {
                *strides.get_mut(axis)? = stride;
                stride = stride.wrapping_mul(i64::from(to.extents.shape[axis]));
            }
            affine(to, tile.base, strides)
        }
        Form::Box(_) | Form::InPlace(_) => None,
    }
}

/// Permutes axes: axis `axes[i]` of the tile becomes axis i. `None` inserts an axis.
pub(crate) fn rearrange(to: View<'_>, form: &Form, axes: &[Option<usize>]) -> Option<Form> {
    if axes.len() > SYMBOLIC_RANK {
        return None;
    }
    match form {
        Form::Uniform(_) => Some(form.clone()),
        Form::Dense(_) | Form::InPlace(_) => None,
        Form::Affine(tile) => {
            let mut strides = [0; SYMBOLIC_RANK];
            for (stride, axis) in strides.iter_mut().zip(axes) {
                *stride = axis.map_or(0, |axis| tile.strides[axis]);
            }
            affine(to, tile.base, strides)
        }
        Form::Box(mask) => {
            let (mut low, mut high) = ([0; SYMBOLIC_RANK], [1; SYMBOLIC_RANK]);
            for (axis, from) in axes.iter().enumerate() {
                if let Some(from) = *from {
                    (low[axis], high[axis]) = (mask.low[from], mask.high[from]);
                }
            }
            boxed(to, low, high)
        }
    }
}

/// Slices each axis: index `i` of the result is index `start + step * i` of the tile.
pub(crate) fn slice(to: View<'_>, form: &Form, starts: &[i64], steps: &[i64]) -> Option<Form> {
    match form {
        Form::Uniform(_) => Some(form.clone()),
        Form::Affine(tile) => {
            let (mut base, mut strides) = (tile.base, [0; SYMBOLIC_RANK]);
            for (axis, (&start, &step)) in starts.iter().zip(steps).enumerate() {
                base = base.wrapping_add(tile.strides[axis].wrapping_mul(start));
                strides[axis] = tile.strides[axis].wrapping_mul(step);
            }
            affine(to, base, strides)
        }
        Form::Box(_) | Form::Dense(_) | Form::InPlace(_) => None,
    }
}

pub(crate) fn broadcast(from: View<'_>, to: View<'_>, form: &Form) -> Option<Form> {
    match form {
        Form::Uniform(_) | Form::Affine(_) => Some(form.clone()),
        Form::Dense(_) | Form::InPlace(_) => None,
        Form::Box(mask) => {
            let mut high = mask.high;
            for (axis, (&before, &after)) in
                from.extents.shape.iter().zip(to.extents.shape.iter()).enumerate()
            {
                if before != after {
                    high[axis] = after;
                }
            }
            boxed(to, mask.low, high)
        }
    }
}
