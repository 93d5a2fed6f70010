//! Decodes arithmetic of all types.

use tilewright_ptx::isa::{self, DivisionPrecision, MultiplyMode, ScalarType};

use super::lift::{halves, map1, map2, map3, map3_pair, map4_pair};
use super::{Action, Class, Decoded, Decoder};
use crate::fault::FaultKind;
use crate::numeric::approximate::{self, Function};
use crate::numeric::convert::Conversion;
use crate::numeric::float::{Kind, Mode};
use crate::numeric::integer::Int;
use crate::numeric::{Format, Rounding, integer, low};
use crate::registers::Slot;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operands {
    /// One floating-point number a register.
    Float(Kind),
    /// Two floating-point numbers a register.
    Floats(Kind),
    Int(Int),
    /// Two 16-bit integers a register.
    Ints(Int),
}

impl Operands {
    pub fn of(ty: ScalarType) -> Decoded<Self> {
        use ScalarType as T;
        let int = |bits, signed| Self::Int(Int { bits, signed });
        Ok(match ty {
            T::F16 => Self::Float(Kind::F16),
            T::Bf16 => Self::Float(Kind::Bf16),
            T::F32 => Self::Float(Kind::F32),
            T::F64 => Self::Float(Kind::F64),
            T::F16x2 => Self::Floats(Kind::F16),
            T::Bf16x2 => Self::Floats(Kind::Bf16),
            T::F32x2 => Self::Floats(Kind::F32),
            T::U8 | T::B8 => int(8, false),
            T::U16 | T::B16 => int(16, false),
            T::U32 | T::B32 => int(32, false),
            T::U64 | T::B64 => int(64, false),
            T::S8 => int(8, true),
            T::S16 => int(16, true),
            T::S32 => int(32, true),
            T::S64 => int(64, true),
            T::U16x2 => Self::Ints(Int { bits: 16, signed: false }),
            T::S16x2 => Self::Ints(Int { bits: 16, signed: true }),
            // tidy: wildcard because the rest are types of conversions and of tensor cores.
            _ => return Err(FaultKind::Unsupported(format!("arithmetic on {ty}"))),
        })
    }

    fn class(self) -> Class {
        match self {
            Self::Float(Kind::F16 | Kind::Bf16) | Self::Floats(Kind::F16 | Kind::Bf16) => Class::Half,
            Self::Float(Kind::F32) | Self::Floats(Kind::F32) => Class::Single,
            Self::Float(Kind::F64) | Self::Floats(Kind::F64) => Class::Double,
            Self::Int(_) | Self::Ints(_) => Class::Integer,
        }
    }

    fn map1(self, d: Slot, a: Slot, f: impl Fn(u64) -> u64 + Copy + Send + Sync + 'static) -> Action {
        match self {
            Self::Float(_) | Self::Int(_) => map1(d, a, f),
            Self::Floats(kind) => map1(d, a, move |a| halves(kind.bits(), [a], |[a]| f(a))),
            Self::Ints(_) => map1(d, a, move |a| halves(16, [a], |[a]| f(a))),
        }
    }

    fn map2(
        self,
        d: Slot,
        ab: [Slot; 2],
        f: impl Fn(u64, u64) -> u64 + Copy + Send + Sync + 'static,
    ) -> Action {
        match self {
            Self::Float(_) | Self::Int(_) => map2(d, ab, f),
            Self::Floats(kind) => map2(d, ab, move |a, b| halves(kind.bits(), [a, b], |[a, b]| f(a, b))),
            Self::Ints(_) => map2(d, ab, move |a, b| halves(16, [a, b], |[a, b]| f(a, b))),
        }
    }

    fn map3(
        self,
        d: Slot,
        abc: [Slot; 3],
        f: impl Fn(u64, u64, u64) -> u64 + Copy + Send + Sync + 'static,
    ) -> Action {
        match self {
            Self::Float(_) | Self::Int(_) => map3(d, abc, f),
            Self::Floats(kind) => {
                map3(d, abc, move |a, b, c| halves(kind.bits(), [a, b, c], |[a, b, c]| f(a, b, c)))
            }
            Self::Ints(_) => map3(d, abc, move |a, b, c| halves(16, [a, b, c], |[a, b, c]| f(a, b, c))),
        }
    }
}

/// Returns the rounding of a modifier, to nearest even by default.
pub(super) fn rounding(modifier: Option<isa::Rounding>) -> Decoded<Rounding> {
    Ok(match modifier {
        None | Some(isa::Rounding::Rn | isa::Rounding::Rni) => Rounding::NearestEven,
        Some(isa::Rounding::Rz | isa::Rounding::Rzi) => Rounding::Zero,
        Some(isa::Rounding::Rm | isa::Rounding::Rmi) => Rounding::Down,
        Some(isa::Rounding::Rp | isa::Rounding::Rpi) => Rounding::Up,
        Some(isa::Rounding::Rna) => Rounding::NearestAway,
        Some(isa::Rounding::Rs) => return Err(FaultKind::Unsupported("stochastic rounding, `.rs`".into())),
    })
}

fn mode(kind: Kind, modifier: Option<isa::Rounding>, flush: bool, saturate: bool) -> Decoded<Mode> {
    Ok(Mode { kind, rounding: rounding(modifier)?, flush, saturate, relu: false })
}

impl Decoder<'_> {
    fn operands(&mut self, ty: ScalarType) -> Decoded<Operands> {
        let operands = Operands::of(ty)?;
        self.class = operands.class();
        Ok(operands)
    }

    /// Returns the register of the carry flag.
    fn carry(&mut self) -> Slot {
        if self.carry.is_none() {
            self.carry = Some(self.slot());
        }
        self.carry.expect("it was just made")
    }

    /// Returns the register for a carry, which is an unused one if the flag is not written.
    fn carry_out(&mut self, is_written: bool) -> Slot {
        if is_written { self.carry() } else { self.slot() }
    }

    pub(super) fn decode_add(&mut self, i: &isa::Add) -> Decoded {
        let operands = self.operands(i.ty)?;
        let (d, ab) = (self.register(i.d), [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?]);
        if i.carry_out {
            return Ok(self.add_with_carry(d, ab, i.ty, None));
        }
        Ok(match operands {
            Operands::Float(kind) | Operands::Floats(kind) => {
                let mode = mode(kind, i.rounding, i.ftz, i.saturate)?;
                operands.map2(d, ab, move |a, b| mode.add(a, b))
            }
            Operands::Int(int) if i.saturate => {
                map2(d, ab, move |a, b| int.clamp(int.value(a) + int.value(b)))
            }
            Operands::Int(Int { bits, .. }) => map2(d, ab, move |a, b| low(a.wrapping_add(b), bits)),
            Operands::Ints(_) => operands.map2(d, ab, |a, b| low(a.wrapping_add(b), 16)),
        })
    }

    /// Adds two numbers and, optionally, the previous carry. Sets the carry flag.
    fn add_with_carry(
        &mut self,
        d: Slot,
        [a, b]: [Slot; 2],
        ty: ScalarType,
        carry_in: Option<Slot>,
    ) -> Action {
        let (bits, out) = (ty.bits(), self.carry());
        let carry = carry_in.unwrap_or_else(|| self.constant(0));
        map3_pair([d, out], [a, b, carry], move |a, b, carry| {
            let sum = u128::from(a) + u128::from(b) + u128::from(carry);
            [low(sum as u64, bits), (sum >> bits) as u64]
        })
    }

    pub(super) fn decode_addc(&mut self, i: &isa::Addc) -> Decoded {
        let Int { bits, .. } = self.integer_type(i.ty)?;
        let (d, a, b) = (self.register(i.d), self.source(i.a, i.ty)?, self.source(i.b, i.ty)?);
        let carry = self.carry();
        if i.carry_out {
            return Ok(self.add_with_carry(d, [a, b], i.ty, Some(carry)));
        }
        Ok(map3(d, [a, b, carry], move |a, b, carry| low(a.wrapping_add(b).wrapping_add(carry), bits)))
    }

    pub(super) fn decode_sub(&mut self, i: &isa::Sub) -> Decoded {
        let operands = self.operands(i.ty)?;
        let (d, a, b) = (self.register(i.d), self.source(i.a, i.ty)?, self.source(i.b, i.ty)?);
        if i.carry_out {
            let (no_borrow, out) = (self.constant(1), self.carry());
            return Ok(borrow([d, out], [a, b, no_borrow], i.ty.bits()));
        }
        Ok(match operands {
            Operands::Float(kind) | Operands::Floats(kind) => {
                let mode = mode(kind, i.rounding, i.ftz, i.saturate)?;
                operands.map2(d, [a, b], move |a, b| mode.subtract(a, b))
            }
            Operands::Int(int) if i.saturate => {
                map2(d, [a, b], move |a, b| int.clamp(int.value(a) - int.value(b)))
            }
            Operands::Int(Int { bits, .. }) => map2(d, [a, b], move |a, b| low(a.wrapping_sub(b), bits)),
            Operands::Ints(_) => operands.map2(d, [a, b], |a, b| low(a.wrapping_sub(b), 16)),
        })
    }

    pub(super) fn decode_subc(&mut self, i: &isa::Subc) -> Decoded {
        self.integer_type(i.ty)?;
        let (d, a, b) = (self.register(i.d), self.source(i.a, i.ty)?, self.source(i.b, i.ty)?);
        let carry = self.carry();
        let out = self.carry_out(i.carry_out);
        Ok(borrow([d, out], [a, b, carry], i.ty.bits()))
    }

    pub(super) fn integer_type(&mut self, ty: ScalarType) -> Decoded<Int> {
        match self.operands(ty)? {
            Operands::Int(int) => Ok(int),
            Operands::Float(_) | Operands::Floats(_) | Operands::Ints(_) => {
                Err(FaultKind::Illegal(format!("an integer instruction cannot have the type {ty}")))
            }
        }
    }

    pub(super) fn decode_mul(&mut self, i: &isa::Mul) -> Decoded {
        let operands = self.operands(i.ty)?;
        let (d, ab) = (self.register(i.d), [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?]);
        Ok(match operands {
            Operands::Float(kind) | Operands::Floats(kind) => {
                let mode = mode(kind, i.rounding, i.ftz, i.saturate)?;
                operands.map2(d, ab, move |a, b| mode.multiply(a, b))
            }
            Operands::Int(int) | Operands::Ints(int) => match i.mode {
                Some(MultiplyMode::Wide) => map2(d, ab, move |a, b| int.multiply_wide(a, b)),
                Some(MultiplyMode::Hi) => operands.map2(d, ab, move |a, b| int.multiply_high(a, b)),
                Some(MultiplyMode::Lo) | None => {
                    operands.map2(d, ab, move |a, b| low(a.wrapping_mul(b), int.bits))
                }
            },
        })
    }

    pub(super) fn decode_mad(&mut self, i: &isa::Mad) -> Decoded {
        let operands = self.operands(i.ty)?;
        let wide = i.mode == Some(MultiplyMode::Wide);
        let (d, a, b) = (self.register(i.d), self.source(i.a, i.ty)?, self.source(i.b, i.ty)?);
        let c = self.source(i.c, if wide { twice(i.ty) } else { i.ty })?;
        let int = match operands {
            Operands::Float(kind) | Operands::Floats(kind) => {
                let mode = mode(kind, i.rounding, i.ftz, i.saturate)?;
                return Ok(operands.map3(d, [a, b, c], move |a, b, c| mode.multiply_add(a, b, c)));
            }
            Operands::Int(int) | Operands::Ints(int) => int,
        };
        let none = self.constant(0);
        let out = self.carry_out(i.carry_out);
        Ok(match i.mode {
            Some(MultiplyMode::Wide) => {
                map3(d, [a, b, c], move |a, b, c| low(int.multiply_wide(a, b).wrapping_add(c), 2 * int.bits))
            }
            Some(MultiplyMode::Hi) if i.saturate => map3(d, [a, b, c], move |a, b, c| {
                int.clamp(int.value(int.multiply_high(a, b)) + int.value(c))
            }),
            Some(MultiplyMode::Hi) if i.carry_out => product_with_carry([d, out], [a, b, c, none], int, true),
            Some(MultiplyMode::Hi) => {
                map3(d, [a, b, c], move |a, b, c| low(int.multiply_high(a, b).wrapping_add(c), int.bits))
            }
            Some(MultiplyMode::Lo) | None if i.carry_out => {
                product_with_carry([d, out], [a, b, c, none], int, false)
            }
            Some(MultiplyMode::Lo) | None => {
                map3(d, [a, b, c], move |a, b, c| low(a.wrapping_mul(b).wrapping_add(c), int.bits))
            }
        })
    }

    pub(super) fn decode_madc(&mut self, i: &isa::Madc) -> Decoded {
        let int = self.integer_type(i.ty)?;
        let (d, a, b) = (self.register(i.d), self.source(i.a, i.ty)?, self.source(i.b, i.ty)?);
        let (c, carry) = (self.source(i.c, i.ty)?, self.carry());
        let out = self.carry_out(i.carry_out);
        match i.mode {
            MultiplyMode::Hi => Ok(product_with_carry([d, out], [a, b, c, carry], int, true)),
            MultiplyMode::Lo => Ok(product_with_carry([d, out], [a, b, c, carry], int, false)),
            MultiplyMode::Wide => Err(FaultKind::Illegal("`madc.wide` does not exist".into())),
        }
    }

    pub(super) fn decode_mul24(&mut self, i: &isa::Mul24) -> Decoded {
        let (int, high) = (self.integer_type(i.ty)?, i.mode == MultiplyMode::Hi);
        let (d, ab) = (self.register(i.d), [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?]);
        Ok(map2(d, ab, move |a, b| int.multiply_24(a, b, high)))
    }

    pub(super) fn decode_mad24(&mut self, i: &isa::Mad24) -> Decoded {
        let (int, high, saturate) = (self.integer_type(i.ty)?, i.mode == MultiplyMode::Hi, i.saturate);
        let d = self.register(i.d);
        let abc = [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?, self.source(i.c, i.ty)?];
        Ok(map3(d, abc, move |a, b, c| {
            let sum = int.value(int.multiply_24(a, b, high)) + int.value(c);
            if saturate { int.clamp(sum) } else { int.wrap(sum) }
        }))
    }

    pub(super) fn decode_sad(&mut self, i: &isa::Sad) -> Decoded {
        let int = self.integer_type(i.ty)?;
        let d = self.register(i.d);
        let abc = [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?, self.source(i.c, i.ty)?];
        Ok(map3(d, abc, move |a, b, c| int.absolute_difference(a, b, c)))
    }

    pub(super) fn decode_div(&mut self, i: &isa::Div) -> Decoded {
        let operands = self.operands(i.ty)?;
        let (d, ab) = (self.register(i.d), [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?]);
        Ok(match operands {
            Operands::Float(kind) | Operands::Floats(kind) => {
                let mode = mode(kind, i.rounding, i.ftz, false)?;
                match i.precision {
                    None => operands.map2(d, ab, move |a, b| mode.divide(a, b)),
                    Some(precision) => {
                        let full = precision == DivisionPrecision::Full;
                        operands.map2(d, ab, move |a, b| approximate::divide(mode, a, b, full))
                    }
                }
            }
            Operands::Int(int) | Operands::Ints(int) => operands.map2(d, ab, move |a, b| int.divide(a, b)),
        })
    }

    pub(super) fn decode_rem(&mut self, i: &isa::Rem) -> Decoded {
        let int = self.integer_type(i.ty)?;
        let (d, ab) = (self.register(i.d), [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?]);
        Ok(map2(d, ab, move |a, b| int.remainder(a, b)))
    }

    pub(super) fn decode_abs(&mut self, i: &isa::Abs) -> Decoded {
        let operands = self.operands(i.ty)?;
        let (d, a) = (self.register(i.d), self.source(i.a, i.ty)?);
        Ok(match operands {
            Operands::Float(kind) | Operands::Floats(kind) => {
                let mode = mode(kind, None, i.ftz, false)?;
                operands.map1(d, a, move |a| mode.absolute(a))
            }
            Operands::Int(int) | Operands::Ints(int) => {
                operands.map1(d, a, move |a| int.wrap(int.value(a).abs()))
            }
        })
    }

    pub(super) fn decode_neg(&mut self, i: &isa::Neg) -> Decoded {
        let operands = self.operands(i.ty)?;
        let (d, a) = (self.register(i.d), self.source(i.a, i.ty)?);
        Ok(match operands {
            Operands::Float(kind) | Operands::Floats(kind) => {
                let mode = mode(kind, None, i.ftz, false)?;
                operands.map1(d, a, move |a| mode.negate(a))
            }
            Operands::Int(int) | Operands::Ints(int) => {
                operands.map1(d, a, move |a| low(a.wrapping_neg(), int.bits))
            }
        })
    }

    pub(super) fn decode_extremum(&mut self, extremum: &Extremum) -> Decoded {
        let Extremum { largest, ftz, nan, xorsign_abs, relu, ty, d, a, b, c } = *extremum;
        let operands = self.operands(ty)?;
        let d = self.register(d);
        let (a, b) = (self.source(a, ty)?, self.source(b, ty)?);
        // With two operands, the second one is also the third, which does not change the result.
        let has_third = c.is_some();
        let c = match c {
            Some(c) => self.source(c, ty)?,
            None => b,
        };
        Ok(match operands {
            Operands::Float(kind) | Operands::Floats(kind) => {
                let mode = mode(kind, None, ftz, false)?;
                let sign = 1_u64 << (kind.bits() - 1);
                operands.map3(d, [a, b, c], move |a, b, c| {
                    if !xorsign_abs {
                        return mode.extremum(mode.extremum(a, b, largest, nan), c, largest, nan);
                    }
                    let magnitude = |x: u64| x & !sign;
                    let result = mode.extremum(magnitude(a), magnitude(b), largest, nan);
                    let three = mode.extremum(result, magnitude(c), largest, nan);
                    if kind.is_nan(three) {
                        return three;
                    }
                    three & !sign | (a ^ b ^ if has_third { c } else { 0 }) & sign
                })
            }
            Operands::Int(int) | Operands::Ints(int) => operands.map3(d, [a, b, c], move |a, b, c| {
                let [a, b, c] = [a, b, c].map(|x| int.value(x));
                let result = if largest { a.max(b).max(c) } else { a.min(b).min(c) };
                int.wrap(if relu { result.max(0) } else { result })
            }),
        })
    }

    pub(super) fn decode_fma(&mut self, i: &isa::Fma) -> Decoded {
        let operands = self.operands(i.ty)?;
        let d = self.register(i.d);
        let abc = [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?, self.source(i.c, i.ty)?];
        let (Operands::Float(kind) | Operands::Floats(kind)) = operands else {
            return Err(FaultKind::Illegal(format!("`fma` does not exist for the type {}", i.ty)));
        };
        if i.out_of_bounds {
            return Err(FaultKind::Unsupported("`fma.oob`".into()));
        }
        let mode = Mode { relu: i.relu, ..mode(kind, Some(i.rounding), i.ftz, i.saturate)? };
        Ok(operands.map3(d, abc, move |a, b, c| mode.multiply_add(a, b, c)))
    }

    /// Adds or subtracts a narrower number, exactly converted, and an f32 number.
    pub(super) fn decode_mixed_add(
        &mut self,
        (ty, rounding, saturate): (isa::MixedType, Option<isa::Rounding>, bool),
        d: isa::RegisterId,
        [a, c]: [isa::Source; 2],
        is_difference: bool,
    ) -> Decoded {
        let (narrow, widen) = narrow_type(ty);
        let (d, a, c) = (self.register(d), self.source(a, narrow)?, self.source(c, ScalarType::F32)?);
        let mode = mode(Kind::F32, rounding, false, saturate)?;
        Ok(map2(d, [a, c], move |a, c| {
            let a = widen.apply(a);
            if is_difference { mode.subtract(a, c) } else { mode.add(a, c) }
        }))
    }

    pub(super) fn decode_mixed_fma(&mut self, i: &isa::FmaMixed) -> Decoded {
        let (narrow, widen) = narrow_type(i.ty);
        let ab = [self.source(i.a, narrow)?, self.source(i.b, narrow)?];
        let (d, c) = (self.register(i.d), self.source(i.c, ScalarType::F32)?);
        let mode = mode(Kind::F32, Some(i.rounding), false, i.saturate)?;
        Ok(map3(d, [ab[0], ab[1], c], move |a, b, c| mode.multiply_add(widen.apply(a), widen.apply(b), c)))
    }

    /// Applies a function of one number, correctly rounded or approximate as the ISA says.
    pub(super) fn function(
        &mut self,
        function: Function,
        (approx, modifier, ftz, ty): (bool, Option<isa::Rounding>, bool, ScalarType),
        (d, a): (isa::RegisterId, isa::Source),
    ) -> Decoded {
        let operands = self.operands(ty)?;
        self.class = Class::Function;
        let (d, a) = (self.register(d), self.source(a, ty)?);
        let (Operands::Float(kind) | Operands::Floats(kind)) = operands else {
            return Err(FaultKind::Illegal(format!("the function does not exist for the type {ty}")));
        };
        let mode = mode(kind, modifier, ftz, false)?;
        if approx && kind == Kind::F64 && ftz {
            return Ok(map1(d, a, move |a| approximate::coarse(function, a)));
        }
        if approx || !matches!(function, Function::Reciprocal | Function::Root) {
            return Ok(operands.map1(d, a, move |a| approximate::apply(function, mode, a)));
        }
        let one = crate::numeric::Number::integer(1).round(kind.format(), Rounding::NearestEven, false);
        Ok(match function {
            Function::Root => operands.map1(d, a, move |a| mode.square_root(a)),
            Function::Reciprocal
            | Function::Exp2
            | Function::Log2
            | Function::Sine
            | Function::Cosine
            | Function::Tanh
            | Function::ReciprocalRoot => operands.map1(d, a, move |a| mode.divide(one, a)),
        })
    }

    pub(super) fn decode_dp4a(&mut self, i: &isa::Dp4a) -> Decoded {
        self.class = Class::Integer;
        let (s, t) = (i.a_ty.is_signed(), i.b_ty.is_signed());
        let d = self.register(i.d);
        let abc = [self.source(i.a, i.a_ty)?, self.source(i.b, i.b_ty)?, self.source(i.c, i.a_ty)?];
        Ok(map3(d, abc, move |a, b, c| integer::dot4(a, s, b, t, c)))
    }

    pub(super) fn decode_dp2a(&mut self, i: &isa::Dp2a) -> Decoded {
        self.class = Class::Integer;
        let (s, t, high) = (i.a_ty.is_signed(), i.b_ty.is_signed(), i.half == isa::Half::Hi);
        let d = self.register(i.d);
        let abc = [self.source(i.a, i.a_ty)?, self.source(i.b, i.b_ty)?, self.source(i.c, i.a_ty)?];
        Ok(map3(d, abc, move |a, b, c| integer::dot2(a, s, b, t, c, high)))
    }
}

#[expect(clippy::struct_excessive_bools, reason = "they are the modifiers of the opcode")]
pub(super) struct Extremum {
    pub largest: bool,
    pub ftz: bool,
    pub nan: bool,
    pub xorsign_abs: bool,
    pub relu: bool,
    pub ty: ScalarType,
    pub d: isa::RegisterId,
    pub a: isa::Source,
    pub b: isa::Source,
    pub c: Option<isa::Source>,
}

fn twice(ty: ScalarType) -> ScalarType {
    match ty {
        ScalarType::U16 => ScalarType::U32,
        ScalarType::S16 => ScalarType::S32,
        ScalarType::S32 => ScalarType::S64,
        // tidy: wildcard because only `U32` is left; `.wide` has no other types.
        _ => ScalarType::U64,
    }
}

/// `(d, carry) = a + ~b + carry`: the carry of a subtraction is the complement of its borrow. The
/// ISA does not say how an addition after a subtraction reads the flag, as in NVRTC's division of
/// 128 bits. In the code of `ptxas`, it reads the carry.
fn borrow(outs: [Slot; 2], sources: [Slot; 3], bits: u32) -> Action {
    map3_pair(outs, sources, move |a, b, carry| {
        let sum = u128::from(a) + u128::from(low(!b, bits)) + u128::from(carry);
        [low(sum as u64, bits), (sum >> bits) as u64]
    })
}

/// `(d, carry) = (high or low half of a * b) + c + carry`.
fn product_with_carry(outs: [Slot; 2], sources: [Slot; 4], int: Int, high: bool) -> Action {
    map4_pair(outs, sources, move |[a, b, c, carry]| {
        let product = if high { int.multiply_high(a, b) } else { low(a.wrapping_mul(b), int.bits) };
        let sum = u128::from(product) + u128::from(c) + u128::from(carry);
        [low(sum as u64, int.bits), (sum >> int.bits) as u64]
    })
}

fn narrow_type(ty: isa::MixedType) -> (ScalarType, Conversion) {
    match ty {
        isa::MixedType::F16 => (ScalarType::F16, Conversion::plain(Format::F16, Format::F32)),
        isa::MixedType::Bf16 => (ScalarType::Bf16, Conversion::plain(Format::BF16, Format::F32)),
    }
}
