//! The second op table (`ops.rs` has the first): functions of single elements, by family.
//!
//! Each row defines a variant of [`ElementwiseFn`], a variant of the enum of its family, and the
//! plain data of [`ElementwiseFn::info`]. A backend matches on [`ElementwiseFn::family`] and then
//! on the function in the family, without a wildcard arm. So a backend does not compile until it
//! implements each new row.

use crate::types::{Dtype, DtypeKind, Element, Type};

/// The element types that a function accepts.
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
    /// Any element, including pointers.
    Any,
}

impl Domain {
    /// Returns whether the domain contains an element type.
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

/// The rule of the result type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    /// All operands and the result have the same type.
    Same,
    /// All operands have the same type; the result has booleans.
    Compare,
    /// The first operand is a boolean; the other two operands and the result have the same type.
    Select,
}

/// The largest error that an implementation may have, in units in the last place of the exact
/// result (ulp).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Accuracy {
    /// The exact result, rounded once to nearest even (or an exact integer or bit operation).
    Exact,
    /// Within this many ulp for fp32 and fp64; narrower types compute in fp32 and round once.
    Ulp(f32),
    /// The same as `Ulp`, but the limit for fp32 is the first number plus |x| times the second
    /// number.
    GrowingUlp(f32, f32),
    /// The same as `Ulp`, but computations in fp32 may flush a subnormal result to 0.
    FlushedUlp(f32),
}

/// A row of the table, as plain data.
#[derive(Clone, Copy, Debug)]
pub struct ElementwiseInfo {
    /// The mnemonic.
    pub name: &'static str,
    /// The name of the function's family.
    pub family: &'static str,
    /// The exact semantics.
    pub docs: &'static [&'static str],
    /// The names of the operands.
    pub operands: &'static [&'static str],
    /// The element types that the function accepts.
    pub domain: Domain,
    /// The rule of the result type.
    pub signature: Signature,
    /// The allowed error.
    pub accuracy: Accuracy,
    /// True if swapping the two operands does not change the result.
    pub commutative: bool,
}

macro_rules! is_commutative {
    () => {
        false
    };
    (commutative) => {
        true
    };
}

macro_rules! elementwise {
    ($($(#[doc = $family_doc:literal])* $family:ident $family_fn:ident $domain:ident $signature:ident {
        $($(#[doc = $doc:literal])* $variant:ident $name:literal ($($operand:ident)*)
          $accuracy:expr $(, $commutative:ident)?;)*
    })*) => {
        /// A function of single elements.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum ElementwiseFn {
            $($($(#[doc = $doc])* $variant,)*)*
        }

        /// A function, by its family. All functions of a family accept the same element types.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum ElementwiseFamily {
            $($(#[doc = $family_doc])* $family($family_fn),)*
        }

        $($(#[doc = $family_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $family_fn {
            $($(#[doc = $doc])* $variant,)*
        }

        impl $family_fn {
            /// Every function of the family.
            pub const ALL: &[$family_fn] = &[$($family_fn::$variant,)*];
        }

        impl From<$family_fn> for ElementwiseFn {
            fn from(function: $family_fn) -> Self {
                match function { $($family_fn::$variant => ElementwiseFn::$variant,)* }
            }
        })*

        impl ElementwiseFn {
            /// Every function.
            pub const ALL: &[ElementwiseFn] = &[$($(ElementwiseFn::$variant,)*)*];

            /// Returns the family, and the function within it.
            pub fn family(self) -> ElementwiseFamily {
                match self { $($(ElementwiseFn::$variant => ElementwiseFamily::$family($family_fn::$variant),)*)* }
            }

            /// Returns the row of the function.
            pub fn info(self) -> &'static ElementwiseInfo {
                match self {
                    $($(ElementwiseFn::$variant => &ElementwiseInfo {
                        name: $name,
                        family: stringify!($family),
                        docs: &[$($doc,)*],
                        operands: &[$(stringify!($operand),)*],
                        domain: Domain::$domain,
                        signature: Signature::$signature,
                        accuracy: $accuracy,
                        commutative: is_commutative!($($commutative)?),
                    },)*)*
                }
            }
        }
    };
}

elementwise! {
    /// Arithmetic that all numbers have, booleans among them.
    Arithmetic ArithmeticFn Number Same {
        /// Sum. Integers wrap; booleans add modulo 2.
        Add "add" (x y) Accuracy::Exact, commutative;
        /// Difference. Integers wrap.
        Sub "sub" (x y) Accuracy::Exact;
        /// Product. Integers wrap.
        Mul "mul" (x y) Accuracy::Exact, commutative;
        /// Negation. Integers wrap.
        Neg "neg" (x) Accuracy::Exact;
        /// Absolute value; the smallest signed integer yields itself.
        Abs "abs" (x) Accuracy::Exact;
        /// The smaller operand. If one operand is NaN, the other operand (IEEE 754-2019
        /// minimumNumber; -0 is below +0).
        Min "min" (x y) Accuracy::Exact, commutative;
        /// The larger operand. If one operand is NaN, the other operand (IEEE 754-2019
        /// maximumNumber; -0 is below +0).
        Max "max" (x y) Accuracy::Exact, commutative;
    }
    /// Division of integers.
    Division DivisionFn Bits Same {
        /// Quotient truncated towards zero, as in C. Division by zero yields all ones; the smallest
        /// value divided by -1 wraps.
        IntDiv "int_div" (x y) Accuracy::Exact;
        /// Remainder with the sign of x, as in C. The remainder by -1 is 0. The remainder by zero
        /// is all ones, as on a GPU.
        IntRem "int_rem" (x y) Accuracy::Exact;
    }
    /// Bitwise functions and shifts.
    Bitwise BitwiseFn Bits Same {
        /// Bitwise and.
        And "and" (x y) Accuracy::Exact, commutative;
        /// Bitwise or.
        Or "or" (x y) Accuracy::Exact, commutative;
        /// Bitwise exclusive or.
        Xor "xor" (x y) Accuracy::Exact, commutative;
        /// Bitwise complement; for a boolean, its negation.
        Not "not" (x) Accuracy::Exact;
        /// x shifted left by an unsigned number of bits y; 0 if y is the width or more.
        Shl "shl" (x y) Accuracy::Exact;
        /// x shifted right by an unsigned number of bits y. For signed types, the shift is
        /// arithmetic, and a y of the width or more yields the sign. For unsigned types, the shift
        /// is logical, and such a y yields 0.
        Shr "shr" (x y) Accuracy::Exact;
    }
    /// Products of twice the width.
    WideProduct WideProductFn Integer Same {
        /// The upper half of the product of twice the width.
        MulHigh "mul_high" (x y) Accuracy::Exact, commutative;
    }
    /// Comparisons.
    Comparison ComparisonFn Any Compare {
        /// Equal; false if either operand is NaN.
        Eq "eq" (x y) Accuracy::Exact, commutative;
        /// Not equal; true if either operand is NaN.
        Ne "ne" (x y) Accuracy::Exact, commutative;
        /// Less; false if either operand is NaN.
        Lt "lt" (x y) Accuracy::Exact;
        /// Less or equal; false if either operand is NaN.
        Le "le" (x y) Accuracy::Exact;
        /// Greater; false if either operand is NaN.
        Gt "gt" (x y) Accuracy::Exact;
        /// Greater or equal; false if either operand is NaN.
        Ge "ge" (x y) Accuracy::Exact;
    }
    /// Selections by a condition.
    Selection SelectionFn Any Select {
        /// x if the condition holds, else y. The program evaluates both x and y.
        Select "select" (condition x y) Accuracy::Exact;
    }
    /// IEEE 754 operations that only floats have. Even if a row allows an inexact result, the exact
    /// result is correct.
    Float FloatFn Float Same {
        /// Quotient; x/0 is an infinity or NaN as in IEEE 754.
        Div "div" (x y) Accuracy::Ulp(2.0);
        /// Quotient rounded to nearest even.
        DivRn "div_rn" (x y) Accuracy::Exact;
        /// Remainder with the sign of x, exact, as C's fmod.
        FloatRem "float_rem" (x y) Accuracy::Exact;
        /// x * y + z, rounded once.
        Fma "fma" (x y z) Accuracy::Exact;
        /// The smaller operand; NaN if either operand is NaN (IEEE 754-2019 minimum).
        MinNan "min_nan" (x y) Accuracy::Exact, commutative;
        /// The larger operand; NaN if either operand is NaN (IEEE 754-2019 maximum).
        MaxNan "max_nan" (x y) Accuracy::Exact, commutative;
        /// Square root; NaN below 0.
        Sqrt "sqrt" (x) Accuracy::Ulp(2.0);
        /// Square root rounded to nearest even.
        SqrtRn "sqrt_rn" (x) Accuracy::Exact;
        /// The largest integer not above x.
        Floor "floor" (x) Accuracy::Exact;
        /// The smallest integer not below x.
        Ceil "ceil" (x) Accuracy::Exact;
    }
    /// Transcendental functions. Each target has its own approximation.
    Math MathFn Float Same {
        /// e to the power of x. In fp32 the error may grow with |x|, as in Triton, because the
        /// product of x and log2(e) is rounded.
        Exp "exp" (x) Accuracy::GrowingUlp(7.0, 1.25);
        /// e to the power of x within 2 ulp, as `expf` of CUDA's math library computes it.
        AccurateExp "accurate_exp" (x) Accuracy::Ulp(2.0);
        /// 2 to the power of x. In fp32 a subnormal result may be flushed to 0, as in Triton.
        Exp2 "exp2" (x) Accuracy::FlushedUlp(2.0);
        /// Natural logarithm; NaN below 0, -inf at 0.
        Log "log" (x) Accuracy::Ulp(2.0);
        /// Binary logarithm; NaN below 0, -inf at 0.
        Log2 "log2" (x) Accuracy::Ulp(2.0);
        /// Sine of radians, over the whole range.
        Sin "sin" (x) Accuracy::Ulp(2.0);
        /// Cosine of radians, over the whole range.
        Cos "cos" (x) Accuracy::Ulp(2.0);
        /// 1 / sqrt(x).
        Rsqrt "rsqrt" (x) Accuracy::Ulp(2.0);
        /// Error function.
        Erf "erf" (x) Accuracy::Ulp(4.0);
        /// Hyperbolic tangent.
        Tanh "tanh" (x) Accuracy::Ulp(4.0);
    }
}

impl ElementwiseFn {
    /// Returns the mnemonic.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Returns the function with this mnemonic.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|function| function.name() == name)
    }

    /// Returns the result type for these operand types, or the error.
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
