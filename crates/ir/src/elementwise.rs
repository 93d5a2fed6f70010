//! The second op table: functions that act on each element alone.

use crate::types::{Dtype, DtypeKind, Element, Type};

/// Which element types a function takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// Integers (booleans among them) and floating point.
    Number,
    /// Integers of at least 8 bits.
    Integer,
    /// Integers and booleans.
    Bits,
    /// Floating point.
    Float,
    /// Anything, pointers too.
    Any,
}

impl Domain {
    /// Whether an element type belongs to it.
    pub fn contains(self, element: Element) -> bool {
        let Some(dtype) = element.value() else { return self == Domain::Any };
        match self {
            Domain::Any | Domain::Number => true,
            Domain::Integer => dtype.is_int() && !dtype.is_bool(),
            Domain::Bits => dtype.is_int(),
            Domain::Float => dtype.kind() == DtypeKind::Float,
        }
    }
}

/// How the result type follows from the operand types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    /// All operands have one type, which is the result's.
    Same,
    /// All operands have one type; the result holds booleans.
    Compare,
    /// A boolean, then two operands of one type, which is the result's.
    Select,
}

/// The largest error that an implementation may have, in units in the last place of the exact result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Accuracy {
    /// The exact result, rounded once to nearest even (or an exact integer or bit operation).
    Exact,
    /// Within this many ulp for binary32 and binary64; narrower types compute in binary32 and round once.
    Ulp(f32),
    /// The same, but for binary32 within the first plus |x| times the second.
    GrowingUlp(f32, f32),
}

/// A row of the table, as plain data.
#[derive(Clone, Copy, Debug)]
pub struct ElementwiseInfo {
    /// The mnemonic.
    pub name: &'static str,
    /// The exact meaning.
    pub docs: &'static [&'static str],
    /// The names of the operands.
    pub operands: &'static [&'static str],
    /// The element types it takes.
    pub domain: Domain,
    /// The rule of its result type.
    pub signature: Signature,
    /// The error that it may have.
    pub accuracy: Accuracy,
}

macro_rules! elementwise {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal ($($operand:ident)*) $domain:ident $signature:ident
       $accuracy:expr;)*) => {
        /// A function that acts on each element alone.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum ElementwiseFn {
            $($(#[doc = $doc])* $variant,)*
        }

        impl ElementwiseFn {
            /// Every function.
            pub const ALL: &[ElementwiseFn] = &[$(ElementwiseFn::$variant,)*];

            /// Its row.
            pub fn info(self) -> &'static ElementwiseInfo {
                match self {
                    $(ElementwiseFn::$variant => &ElementwiseInfo {
                        name: $name,
                        docs: &[$($doc,)*],
                        operands: &[$(stringify!($operand),)*],
                        domain: Domain::$domain,
                        signature: Signature::$signature,
                        accuracy: $accuracy,
                    },)*
                }
            }
        }
    };
}

elementwise! {
    /// Sum. Integers wrap; booleans add modulo 2.
    Add "add" (x y) Number Same Accuracy::Exact;
    /// Difference. Integers wrap.
    Sub "sub" (x y) Number Same Accuracy::Exact;
    /// Product. Integers wrap.
    Mul "mul" (x y) Number Same Accuracy::Exact;
    /// Quotient; x/0 is an infinity or NaN as in IEEE 754.
    Div "div" (x y) Float Same Accuracy::Ulp(2.0);
    /// Quotient rounded to nearest even.
    DivRn "div_rn" (x y) Float Same Accuracy::Exact;
    /// Quotient truncated towards zero, as in C. By zero all bits of it are one; the smallest value by -1 wraps.
    IntDiv "int_div" (x y) Bits Same Accuracy::Exact;
    /// Remainder with the sign of x, as in C: x less the quotient times y, which by zero is x, and by -1 is 0.
    IntRem "int_rem" (x y) Bits Same Accuracy::Exact;
    /// Remainder with the sign of x, exact, as C's fmod.
    FloatRem "float_rem" (x y) Float Same Accuracy::Exact;
    /// Negation. Integers wrap.
    Neg "neg" (x) Number Same Accuracy::Exact;
    /// Absolute value. The smallest signed integer stays itself.
    Abs "abs" (x) Number Same Accuracy::Exact;
    /// The smaller one; where one is NaN, the other (IEEE 754-2019 minimumNumber; -0 is below +0).
    Min "min" (x y) Number Same Accuracy::Exact;
    /// The larger one; where one is NaN, the other (IEEE 754-2019 maximumNumber; -0 is below +0).
    Max "max" (x y) Number Same Accuracy::Exact;
    /// The smaller one; NaN where either is NaN (IEEE 754-2019 minimum).
    MinNan "min_nan" (x y) Float Same Accuracy::Exact;
    /// The larger one; NaN where either is NaN (IEEE 754-2019 maximum).
    MaxNan "max_nan" (x y) Float Same Accuracy::Exact;
    /// Bitwise and.
    And "and" (x y) Bits Same Accuracy::Exact;
    /// Bitwise or.
    Or "or" (x y) Bits Same Accuracy::Exact;
    /// Bitwise exclusive or.
    Xor "xor" (x y) Bits Same Accuracy::Exact;
    /// Bitwise complement; of a boolean, its negation.
    Not "not" (x) Bits Same Accuracy::Exact;
    /// x shifted left by y, an unsigned number of bits; 0 where y is the width or more.
    Shl "shl" (x y) Bits Same Accuracy::Exact;
    /// x shifted right by y, an unsigned number of bits: arithmetic for signed types, where a y of the width or more
    /// gives the sign; logical for unsigned types, where it gives 0.
    Shr "shr" (x y) Bits Same Accuracy::Exact;
    /// Equal; false where either is NaN.
    Eq "eq" (x y) Any Compare Accuracy::Exact;
    /// Not equal; true where either is NaN.
    Ne "ne" (x y) Any Compare Accuracy::Exact;
    /// Less; false where either is NaN.
    Lt "lt" (x y) Any Compare Accuracy::Exact;
    /// Less or equal; false where either is NaN.
    Le "le" (x y) Any Compare Accuracy::Exact;
    /// Greater; false where either is NaN.
    Gt "gt" (x y) Any Compare Accuracy::Exact;
    /// Greater or equal; false where either is NaN.
    Ge "ge" (x y) Any Compare Accuracy::Exact;
    /// x where the condition holds, else y. Both are evaluated.
    Select "select" (condition x y) Any Select Accuracy::Exact;
    /// x * y + z, rounded once.
    Fma "fma" (x y z) Float Same Accuracy::Exact;
    /// The upper half of the product of twice the width.
    MulHigh "mul_high" (x y) Integer Same Accuracy::Exact;
    /// e to the power of x. Of binary32 it is as exact as the product of x and log2(e), as in Triton.
    Exp "exp" (x) Float Same Accuracy::GrowingUlp(7.0, 1.25);
    /// 2 to the power of x.
    Exp2 "exp2" (x) Float Same Accuracy::Ulp(2.0);
    /// Natural logarithm; NaN below 0, -inf at 0.
    Log "log" (x) Float Same Accuracy::Ulp(2.0);
    /// Binary logarithm; NaN below 0, -inf at 0.
    Log2 "log2" (x) Float Same Accuracy::Ulp(2.0);
    /// Sine of radians, over the whole range.
    Sin "sin" (x) Float Same Accuracy::Ulp(2.0);
    /// Cosine of radians, over the whole range.
    Cos "cos" (x) Float Same Accuracy::Ulp(2.0);
    /// Square root; NaN below 0.
    Sqrt "sqrt" (x) Float Same Accuracy::Ulp(2.0);
    /// Square root rounded to nearest even.
    SqrtRn "sqrt_rn" (x) Float Same Accuracy::Exact;
    /// 1 / sqrt(x).
    Rsqrt "rsqrt" (x) Float Same Accuracy::Ulp(2.0);
    /// The largest integer not above x.
    Floor "floor" (x) Float Same Accuracy::Exact;
    /// The smallest integer not below x.
    Ceil "ceil" (x) Float Same Accuracy::Exact;
    /// Error function.
    Erf "erf" (x) Float Same Accuracy::Ulp(4.0);
    /// Hyperbolic tangent.
    Tanh "tanh" (x) Float Same Accuracy::Ulp(4.0);
}

impl ElementwiseFn {
    /// The mnemonic.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The function with this mnemonic.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|function| function.name() == name)
    }

    /// Whether swapping its two operands changes nothing.
    pub fn is_commutative(self) -> bool {
        use ElementwiseFn as F;
        matches!(
            self,
            F::Add
                | F::Mul
                | F::Min
                | F::Max
                | F::MinNan
                | F::MaxNan
                | F::And
                | F::Or
                | F::Xor
                | F::Eq
                | F::Ne
                | F::MulHigh
        )
    }

    /// The result type for these operand types, or what is wrong with them.
    pub fn result_type(self, operands: &[Type]) -> Result<Type, String> {
        let info = self.info();
        let [.., last] = operands else { return Err(format!("{} takes operands", info.name)) };
        let values = match info.signature {
            Signature::Same | Signature::Compare => operands,
            Signature::Select => {
                let condition = &operands[0];
                if !condition.is_bool() || condition.shape != last.shape {
                    return Err(format!("the condition must be int1{}, found {condition}", last.shape));
                }
                &operands[1..]
            }
        };
        if let Some(other) = values.iter().find(|ty| *ty != last) {
            return Err(format!(
                "the operands of {} must have one type, found {other} and {last}",
                info.name
            ));
        }
        if !info.domain.contains(last.element) {
            return Err(format!("{} does not take {last}", info.name));
        }
        Ok(match info.signature {
            Signature::Same | Signature::Select => last.clone(),
            Signature::Compare => last.with_dtype(Dtype::I1),
        })
    }
}
