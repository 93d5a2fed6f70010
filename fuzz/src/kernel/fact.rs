//! Computes the generator's facts about values. The generator needs the facts to keep accesses in
//! bounds, floating-point sums exact, and stores disjoint. The facts follow from numbers that the
//! generator chose. They are independent of the compiler's analyses.

use tilewright_ir::{Dtype, Element, ElementwiseFn as F, Op, Type};

/// The integers from `low` to `high`, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    pub low: i128,
    pub high: i128,
}

impl Range {
    pub const fn new(low: i128, high: i128) -> Self {
        Self { low, high }
    }

    pub const fn exactly(number: i128) -> Self {
        Self::new(number, number)
    }

    pub fn plus(self, other: Self) -> Self {
        Self::new(self.low + other.low, self.high + other.high)
    }

    pub fn minus(self, other: Self) -> Self {
        self.plus(other.times(Self::exactly(-1)))
    }

    pub fn times(self, other: Self) -> Self {
        let product = |x: i128, y: i128| x.saturating_mul(y).clamp(-HUGE, HUGE);
        let ends = [
            product(self.low, other.low),
            product(self.low, other.high),
            product(self.high, other.low),
            product(self.high, other.high),
        ];
        Self::new(ends.into_iter().min().expect("four"), ends.into_iter().max().expect("four"))
    }

    pub fn hull(self, other: Self) -> Self {
        Self::new(self.low.min(other.low), self.high.max(other.high))
    }

    pub fn is_within(self, other: Self) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    /// Returns the integer if the range has only one.
    pub fn single(self) -> Option<i128> {
        (self.low == self.high).then_some(self.low)
    }

    /// Reduces the range modulo 2^64, such that its lower bound is a signed 64-bit number.
    fn as_address(self) -> Self {
        self.minus(Self::exactly((self.low + (1 << 63)) >> 64 << 64))
    }

    /// Returns the number of integers.
    pub fn count(self) -> i128 {
        self.high - self.low + 1
    }
}

/// A bound that is larger than any sum of products of 64-bit numbers.
const HUGE: i128 = 1 << 124;

/// The relation between the elements of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// All elements are equal.
    Same,
    /// All elements are distinct.
    Distinct,
    /// The relation is unknown.
    Any,
}

/// The known properties of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fact {
    /// The range of the elements. For floating-point numbers, all elements are integers in this
    /// range. For pointers, the range is that of byte offsets from the start of their memory.
    pub range: Option<Range>,
    pub spread: Spread,
    /// The memory to which the pointers point.
    pub memory: Memory,
}

/// The memory to which a pointer points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// An input. The pointer has the element type of the input.
    Input,
    /// The program's slice of an output.
    Output,
    /// Any memory, with any element type. Also used for values that are not pointers.
    Any,
}

/// Returns the largest number up to which a format represents all integers exactly.
fn exact_integers(dtype: Dtype) -> i128 {
    match dtype {
        Dtype::F64 => 1 << 53,
        Dtype::F32 => 1 << 24,
        Dtype::F16 => 1 << 11,
        Dtype::BF16 => 1 << 8,
        Dtype::F8E4NV | Dtype::F8E4B8 => 1 << 4,
        Dtype::F8E5 | Dtype::F8E5B16 => 1 << 3,
        // tidy: wildcard because the others are integers, and a format that ends below 2.
        _ => 1,
    }
}

/// Returns the range of integers that a type can represent.
pub fn limits(element: Element) -> Range {
    match element {
        Element::Pointer(_) => Range::new(-HUGE, HUGE),
        Element::Value(dtype) => match dtype.int_range() {
            Some((low, high)) => Range::new(low, high),
            None => Range::new(-exact_integers(dtype), exact_integers(dtype)),
        },
    }
}

/// Returns the range of a result, given its mathematical range. Unsigned numbers wrap around. A
/// signed number that overflows becomes unknown, because addresses must not depend on it.
fn fit(element: Element, range: Option<Range>) -> Option<Range> {
    let limits = limits(element);
    let full = element.value().is_some_and(Dtype::is_int).then_some(limits);
    // A product that reached the bound `HUGE` was clamped, so its low bits are wrong.
    let Some(range) = range.filter(|range| -HUGE < range.low && range.high < HUGE) else { return full };
    if range.is_within(limits) {
        return Some(range);
    }
    let wraps = element.value().is_some_and(|dtype| dtype.is_int() && !dtype.is_signed());
    let period = limits.count();
    let wrapped = range.minus(Range::exactly(range.low.div_euclid(period) * period));
    if wraps && wrapped.is_within(limits) { Some(wrapped) } else { full }
}

impl Fact {
    /// Returns the fact of an unknown value with this type.
    pub fn unknown(ty: &Type) -> Self {
        let spread = if ty.shape.elements() == 1 { Spread::Same } else { Spread::Any };
        Self { range: fit(ty.element, None), spread, memory: Memory::Any }
    }

    /// Returns the fact of a constant, or of a pointer with this byte offset from the start of its
    /// memory.
    pub fn exactly(number: i128, memory: Memory) -> Self {
        Self { range: Some(Range::exactly(number)), spread: Spread::Same, memory }
    }

    /// Returns the fact of a value that is one of two values.
    pub fn or(self, other: Self) -> Self {
        Self {
            range: self.range.zip(other.range).map(|(a, b)| a.hull(b)),
            spread: Spread::Any,
            memory: if self.memory == other.memory { self.memory } else { Memory::Any },
        }
    }
}

/// Returns the spread of a sum.
fn sum_spread(x: Spread, y: Spread) -> Spread {
    match (x, y) {
        (Spread::Same, other) | (other, Spread::Same) => other,
        _ => Spread::Any,
    }
}

/// Returns the fact of the result of a pure op.
pub fn of_result(op: &Op, result: &Type, operands: &[(&Type, Fact)]) -> Fact {
    let unknown = Fact::unknown(result);
    let ranged = |range: Range| Fact { range: fit(result.element, Some(range)), ..unknown };
    let mut fact = match op {
        Op::Constant { value } => value.as_int().map_or(unknown, |number| ranged(Range::exactly(number))),
        Op::Arange { start, end } => {
            let range = Range::new((*start).into(), i128::from(*end) - 1);
            Fact { spread: Spread::Distinct, ..ranged(range) }
        }
        Op::Splat { .. } => Fact { spread: Spread::Same, ..operands[0].1 },
        Op::Broadcast { .. } => {
            let is_kept = operands[0].0.shape == result.shape || operands[0].1.spread == Spread::Same;
            let spread = if is_kept { operands[0].1.spread } else { Spread::Any };
            Fact { spread, ..operands[0].1 }
        }
        Op::ExpandDims { .. }
        | Op::Slice { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Hint { .. } => operands[0].1,
        Op::Gather { .. } => {
            let spread = if operands[0].1.spread == Spread::Same { Spread::Same } else { Spread::Any };
            Fact { spread, ..operands[0].1 }
        }
        Op::PtrAdd {} => {
            let size = operands[0].0.element.pointee().map_or(1, Dtype::bytes) as i128;
            let [(_, pointer), (_, offset)] = *operands else { return unknown };
            let moved = |(p, o): (Range, Range)| p.plus(o.times(Range::exactly(size))).as_address();
            let range = pointer.range.zip(offset.range).map(moved);
            Fact { range, spread: sum_spread(pointer.spread, offset.spread), ..pointer }
        }
        Op::Cast { element, .. } => {
            let (from, fact) = operands[0];
            match (from.element, element) {
                (Element::Pointer(_), Element::Pointer(_)) => {
                    let is_input = fact.memory == Memory::Input && from.element != *element;
                    Fact { memory: if is_input { Memory::Any } else { fact.memory }, ..fact }
                }
                (Element::Pointer(_), Element::Value(_)) | (Element::Value(_), Element::Pointer(_)) => {
                    unknown
                }
                (Element::Value(from), Element::Value(to)) => {
                    // Integer casts keep the low bits. Float casts saturate, and boolean casts
                    // compare with 0.
                    let may_wrap = from.is_int() && !to.is_bool();
                    let range = fact.range.filter(|range| may_wrap || range.is_within(limits(*element)));
                    let range = fit(result.element, range);
                    let spread = if range == fact.range { fact.spread } else { unknown.spread };
                    Fact { range, spread, memory: Memory::Any }
                }
            }
        }
        Op::Elementwise { function } => of_elementwise(*function, result, operands).unwrap_or(unknown),
        // tidy: wildcard because results of the others are unknown.
        _ => unknown,
    };
    if result.shape.elements() == 1 {
        fact.spread = Spread::Same;
    }
    fact
}

fn of_elementwise(function: F, result: &Type, operands: &[(&Type, Fact)]) -> Option<Fact> {
    let fact = |index: usize| operands[index].1;
    let range = |index: usize| fact(index).range;
    let unknown = Fact::unknown(result);
    if function == F::Select {
        return Some(fact(1).or(fact(2)));
    }
    if result.dtype()?.is_bool() {
        return None;
    }
    let is_sum = matches!(function, F::Add | F::Sub | F::Neg | F::Not);
    let x = range(0)?;
    let y = || range(1);
    let is_natural = |range: Range| range.low >= 0;
    let exact = match function {
        F::Add => x.plus(y()?),
        F::Sub => x.minus(y()?),
        F::Mul => x.times(y()?),
        F::Fma => x.times(y()?).plus(range(2)?),
        F::Neg => Range::exactly(0).minus(x),
        F::Not => Range::exactly(-1).minus(x),
        F::Min => Range::new(x.low.min(y()?.low), x.high.min(y()?.high)),
        F::Max => Range::new(x.low.max(y()?.low), x.high.max(y()?.high)),
        F::And => {
            let most = [x, y()?].into_iter().filter(|range| is_natural(*range)).map(|range| range.high).min();
            Range::new(0, most?)
        }
        F::Xor | F::Or if is_natural(x) && is_natural(y()?) => {
            let bits = 128 - (x.high | y()?.high).leading_zeros();
            Range::new(0, (1 << bits) - 1)
        }
        F::Shl if y()?.is_within(Range::new(0, 63)) => x.times(Range::new(1 << y()?.low, 1 << y()?.high)),
        F::Shr if y()?.is_within(Range::new(0, 63)) => Range::new(
            (x.low >> y()?.low).min(x.low >> y()?.high),
            (x.high >> y()?.low).max(x.high >> y()?.high),
        ),
        F::IntRem if y()?.low > 0 => {
            let most = y()?.high - 1;
            Range::new(if is_natural(x) { 0 } else { -most }, most)
        }
        F::IntDiv if y()?.low > 0 && y()?.single().is_some() => {
            Range::new(x.low / y()?.low, x.high / y()?.low)
        }
        // tidy: wildcard because results of the others are unknown.
        _ => return None,
    };
    let fitted = fit(result.element, Some(exact));
    let spread = if !is_sum || fitted.is_none_or(|range| range.count() != exact.count()) {
        unknown.spread
    } else if operands.len() == 2 {
        sum_spread(fact(0).spread, fact(1).spread)
    } else {
        fact(0).spread
    };
    Some(Fact { range: fitted, spread, memory: Memory::Any })
}
