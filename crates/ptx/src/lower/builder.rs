//! What every family of ops emits through: instructions, one after the other, as they are asked for. What is the same, what does
//! not change in a loop and what nobody reads is found by the passes of `passes`.
//!
//! An integer is a register plus a constant ([`Scalar`]), so that sums with constants need no instruction until they are used.
//!
//! Registers are assigned once, but for those that carry values around a loop or out of a branch and those that a guarded
//! load leaves as they were.

use cranelift_entity::EntityRef;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_gpu_ir::Tuning;
use tilewright_ir as ir;

use super::packed_int8::Shifted;

use crate::isa::{
    self, Access, Destination, Destinations, Function, Instruction, LabelId, Mov, Predicate, Register,
    RegisterId, ScalarType, Source, Sources, Verbatim,
};
use crate::passes::{Line, LineKind, Listing, words_of};

/// Of the last pure instructions, so many are given again if they are asked for again: the registers of a tile often ask for
/// the same one after the other.
const REPEATED: usize = 4;

/// What a thread knows of one element: a register plus a constant, wrapping at its width. Of a predicate, the constant 1 is
/// its negation. Numbers that are not integers have a register or a constant, never both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Scalar {
    /// The register; none for a constant.
    pub base: Option<RegisterId>,
    /// The bits that are added, cut to the width.
    pub offset: u64,
}

/// The width of a register. Registers have no type besides: instructions say how they read them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Width {
    /// A predicate.
    Pred,
    /// 16 bits: binary16 and bfloat16.
    B16,
    /// 32 bits; narrower integers are in such registers, extended by their sign.
    B32,
    /// 64 bits.
    B64,
}

/// Builds the body of a kernel.
#[derive(Debug)]
pub(super) struct Builder {
    /// The kernel; its registers and labels.
    pub function: Function,
    /// Where in the source the next statements come from.
    pub location: Option<ir::Location>,
    /// The statements of each scope that is open.
    scopes: Vec<Vec<Line>>,
    /// How many of the last statements are pure.
    pure: usize,
    /// The words that elements were unpacked from.
    pub packed: FxHashMap<SmallVec<[Scalar; 4]>, Scalar>,
    /// The word that a byte was taken from, and its number there.
    pub bytes: FxHashMap<Scalar, (Scalar, u32)>,
    /// Words of four bytes of which each has a high bit that is known to be 0.
    pub small_bytes: FxHashSet<Scalar>,
    /// Numbers that were bytes.
    pub shifted: FxHashMap<Scalar, Shifted>,
    /// How many labels were placed, and how often statements that are placed later began or ended: code between is straight.
    pub labels: u32,
    /// Registers of which it is known how many of the lowest bits are zero.
    pub zeros: FxHashMap<RegisterId, u32>,
    /// Registers of which it is known that they are not negative, and their largest value.
    pub bounds: FxHashMap<RegisterId, u64>,
}

impl Scalar {
    /// A constant.
    pub const fn constant(bits: u64) -> Self {
        Self { base: None, offset: bits }
    }

    /// The constant false.
    pub const FALSE: Self = Self::constant(0);
    /// The constant true.
    pub const TRUE: Self = Self::constant(1);

    /// The bits, if they are known.
    pub fn as_constant(self) -> Option<u64> {
        self.base.is_none().then_some(self.offset)
    }

    /// The sum with a constant.
    #[must_use]
    pub fn plus(self, width: Width, offset: u64) -> Self {
        Self { base: self.base, offset: width.cut(self.offset.wrapping_add(offset)) }
    }
}

impl From<RegisterId> for Scalar {
    fn from(register: RegisterId) -> Self {
        Self { base: Some(register), offset: 0 }
    }
}

impl Width {
    /// The number of bits.
    pub fn bits(self) -> u32 {
        self.ty().bits()
    }

    /// The type without a meaning.
    pub fn ty(self) -> ScalarType {
        match self {
            Self::Pred => ScalarType::Pred,
            Self::B16 => ScalarType::B16,
            Self::B32 => ScalarType::B32,
            Self::B64 => ScalarType::B64,
        }
    }

    /// The low bits of a number.
    pub fn cut(self, bits: u64) -> u64 {
        bits & (u64::MAX >> (64 - self.bits()))
    }

    /// The number that these bits are, as a signed integer.
    pub fn signed(self, bits: u64) -> i64 {
        let unused = 64 - self.bits();
        (bits << unused) as i64 >> unused
    }
}

impl Builder {
    /// An empty body.
    pub fn new(function: Function) -> Self {
        Self {
            function,
            location: None,
            scopes: vec![Vec::new()],
            pure: 0,
            packed: FxHashMap::default(),
            bytes: FxHashMap::default(),
            small_bytes: FxHashSet::default(),
            shifted: FxHashMap::default(),
            labels: 0,
            zeros: FxHashMap::default(),
            bounds: FxHashMap::default(),
        }
    }

    /// A register. It has its name at the end.
    pub fn fresh(&mut self, width: Width) -> RegisterId {
        self.function.registers.push(Register { name: Box::default(), ty: width.ty() })
    }

    /// A label.
    pub fn label(&mut self, name: &str) -> LabelId {
        let name = format!("${name}_{}", self.function.labels.len());
        self.function.labels.push(isa::Label { name: name.into() })
    }

    /// Emits an instruction that stays where it is.
    pub fn emit(&mut self, instruction: impl Into<Instruction>) {
        self.emit_if(None, instruction);
    }

    /// Emits an instruction that is executed where the guard holds.
    pub fn emit_if(&mut self, guard: Option<Predicate>, instruction: impl Into<Instruction>) {
        self.push(LineKind::Instruction(guard, instruction.into()));
    }

    /// Places a label.
    pub fn place(&mut self, label: LabelId) {
        self.labels += 1;
        self.push(LineKind::Label(label));
    }

    /// Emits text that stays where it is.
    pub fn verbatim(&mut self, parts: Vec<Verbatim>, has_effect: bool) {
        self.push(LineKind::Verbatim(parts, has_effect));
    }

    fn push(&mut self, kind: LineKind) {
        self.pure = 0;
        let line = Line { kind, location: self.location, is_pure: false };
        self.scope().push(line);
    }

    /// The result of a pure instruction.
    pub fn pure<I: Into<Instruction>>(&mut self, width: Width, make: impl FnOnce(RegisterId) -> I) -> Scalar {
        let [register] = self.pure_many([width], |[d]| make(d));
        register.into()
    }

    /// The results of a pure instruction.
    pub fn pure_many<const N: usize, I: Into<Instruction>>(
        &mut self,
        widths: [Width; N],
        make: impl FnOnce([RegisterId; N]) -> I,
    ) -> [RegisterId; N] {
        let next = self.function.registers.len();
        let registers = std::array::from_fn(|number| RegisterId::new(next + number));
        let mut instruction = make(registers).into();
        if let Some(known) = self.repeated(&mut instruction, registers) {
            return known;
        }
        for width in widths {
            self.fresh(width);
        }
        let kind = LineKind::Instruction(None, instruction);
        let line = Line { kind, location: self.location, is_pure: true };
        self.scope().push(line);
        self.pure = REPEATED.min(self.pure + 1);
        registers
    }

    /// The results of one of the last instructions, if this is it.
    fn repeated<const N: usize>(
        &mut self,
        instruction: &mut Instruction,
        registers: [RegisterId; N],
    ) -> Option<[RegisterId; N]> {
        let lines = self.scopes.last().expect("the kernel's scope is never closed");
        for line in lines.iter().rev().take(self.pure) {
            let LineKind::Instruction(_, other) = &line.kind else { continue };
            if std::mem::discriminant(other) != std::mem::discriminant(instruction) {
                continue;
            }
            let mut known = SmallVec::<[RegisterId; 4]>::new();
            other.visit_registers(|register, access| {
                if access == Access::Write {
                    known.push(register);
                }
            });
            let Ok(known) = <[RegisterId; N]>::try_from(&known[..]) else { continue };
            set_results(instruction, known);
            if instruction == other {
                return Some(known);
            }
            set_results(instruction, registers);
        }
        None
    }

    /// Begins statements that are placed later.
    pub fn open(&mut self) {
        self.pure = 0;
        self.labels += 1;
        self.scopes.push(Vec::new());
    }

    /// Ends these statements and gives them.
    pub fn close(&mut self) -> Vec<Line> {
        debug_assert!(self.scopes.len() > 1, "the kernel's scope is closed by `finish`");
        self.pure = 0;
        self.labels += 1;
        self.scopes.pop().expect("a scope was opened")
    }

    fn scope(&mut self) -> &mut Vec<Line> {
        self.scopes.last_mut().expect("the kernel's scope is never closed")
    }

    /// Places statements.
    pub fn append(&mut self, mut lines: Vec<Line>) {
        self.pure = 0;
        self.scope().append(&mut lines);
    }

    /// The kernel and its statements.
    pub fn finish(mut self, tuning: &'static Tuning) -> (Function, Listing) {
        let lines = self.scopes.pop().expect("the kernel's scope is never closed");
        debug_assert!(self.scopes.is_empty(), "every scope is closed");
        let (words, labels) = (words_of(&self.function), self.function.labels.len());
        (self.function, Listing::new(lines, words, labels, tuning))
    }

    /// The register that holds a value.
    pub fn register(&mut self, width: Width, scalar: Scalar) -> RegisterId {
        let result = match (scalar.base, scalar.offset) {
            (Some(base), 0) => return base,
            (Some(base), _) if width == Width::Pred => {
                self.pure(width, |d| isa::Not { ty: ScalarType::Pred, d, a: base.into() })
            }
            (Some(base), offset) => {
                let ty = if width == Width::B64 { ScalarType::S64 } else { ScalarType::S32 };
                let offset = width.signed(offset).into();
                self.pure(width, |d| plain_add(ty, d, base.into(), offset))
            }
            (None, bits) => {
                let bits: Source = if width == Width::Pred { bits as i64 } else { width.signed(bits) }.into();
                self.pure(width, |d| Mov { ty: width.ty(), d: d.into(), a: bits.into() })
            }
        };
        result.base.expect("an instruction gives a register")
    }

    /// The value as an operand: a constant is an immediate.
    pub fn source(&mut self, width: Width, scalar: Scalar) -> Source {
        match scalar.as_constant() {
            Some(bits) if width != Width::Pred => width.signed(bits).into(),
            _ => self.register(width, scalar).into(),
        }
    }

    /// A predicate that is not a constant, as a guard or a condition.
    pub fn predicate(&mut self, scalar: Scalar) -> Predicate {
        match scalar.base {
            Some(register) => Predicate { register, negated: scalar.offset & 1 == 1 },
            None => Predicate { register: self.register(Width::Pred, scalar), negated: false },
        }
    }

    /// Copies a value to a register that is assigned more than once.
    pub fn assign(&mut self, width: Width, to: RegisterId, value: Scalar) {
        let from = match (width, value.base, value.offset) {
            (Width::Pred, None, bits) => (bits as i64).into(),
            _ => self.source(width, value),
        };
        self.emit(move_to(width, to, from));
    }

    /// Copies values to registers at once: no value is read after its register is written.
    pub fn assign_all(&mut self, moves: &[(Width, RegisterId, Scalar)]) {
        let mut sources: Vec<(Width, RegisterId, Source)> = Vec::new();
        for &(width, to, value) in moves {
            let from = match (width, value.as_constant()) {
                (Width::Pred, Some(bits)) => (bits as i64).into(),
                _ => self.source(width, value),
            };
            if from != Source::Register(to) {
                sources.push((width, to, from));
            }
        }
        while !sources.is_empty() {
            let is_free = |&(_, to, _): &(Width, RegisterId, Source)| {
                sources.iter().all(|(_, _, from)| *from != Source::Register(to))
            };
            if let Some(index) = sources.iter().position(is_free) {
                let (width, to, from) = sources.remove(index);
                self.emit(move_to(width, to, from));
                continue;
            }
            // A cycle: what the first move overwrites is kept aside.
            let (width, to, _) = sources[0];
            let aside = self.fresh(width);
            self.emit(move_to(width, aside, to.into()));
            for (_, _, from) in &mut sources {
                if *from == Source::Register(to) {
                    *from = aside.into();
                }
            }
        }
    }
}

/// Names the registers that an instruction writes.
fn set_results<const N: usize>(instruction: &mut Instruction, results: [RegisterId; N]) {
    let mut results = results.into_iter();
    instruction.map_registers(|register, access| {
        if access == Access::Write
            && let Some(result) = results.next()
        {
            *register = result;
        }
    });
}

pub(super) fn move_to(width: Width, to: RegisterId, from: Source) -> Mov {
    Mov { ty: width.ty(), d: to.into(), a: from.into() }
}

/// d = a + b of integers.
pub(super) fn plain_add(ty: ScalarType, d: RegisterId, a: Source, b: Source) -> isa::Add {
    isa::Add { carry_out: false, rounding: None, ftz: false, saturate: false, ty, d, a, b }
}

/// The registers that an instruction writes together.
pub(super) fn destinations(registers: &[RegisterId]) -> Destinations {
    registers.iter().copied().collect()
}

/// The operands that an instruction reads together.
pub(super) fn sources(registers: &[RegisterId]) -> Sources {
    registers.iter().copied().collect()
}

/// A result without a second one.
pub(super) fn only(register: RegisterId) -> isa::DestinationPair {
    isa::DestinationPair { first: Destination::Register(register), second: None }
}
