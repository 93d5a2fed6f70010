//! Builds the body of a kernel. Lowerings emit their instructions here, in order. Passes remove
//! duplicates and unused results, and hoist loop-invariant code.
//!
//! An integer is a register plus a constant ([`Scalar`]), so adding a constant needs no
//! instruction.
//!
//! A register is assigned once, with these exceptions:
//!
//! - a register that carries a value around a loop or out of a branch;
//! - the result of a guarded load or atomic operation, which an earlier move initializes;
//! - the accumulator of `wgmma`;
//! - a register that inline assembly reads and writes.

use cranelift_entity::EntityRef;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_gpu_ir::GpuTarget;
use tilewright_ir as ir;

use super::packed_int8::Shifted;
use super::value_ranges::{FloatRange, Interval};

use crate::isa::{
    self, Access, Destination, Destinations, Function, Instruction, LabelId, Mov, Predicate, Register,
    RegisterId, ScalarType, Source, Sources, Verbatim,
};
use crate::passes::{Line, LineKind, Listing, words_of};

/// The number of latest pure instructions whose results are reused. Consecutive registers of a tile
/// often need one instruction.
const REPEATED: usize = 4;

/// A thread's view of an element: a register plus a constant, modulo the width. A predicate with
/// the constant 1 is negated. A float has a register or a constant, not both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Scalar {
    /// The register; `None` for a constant.
    pub base: Option<RegisterId>,
    /// The constant that is added, cut to the width.
    pub offset: u64,
}

/// The width of a register. Registers have no other type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Width {
    /// A predicate.
    Pred,
    /// 16 bits: binary16 and bfloat16.
    B16,
    /// 32 bits. Such registers also hold fp8 and narrower integers, extended by their sign or by
    /// zeros.
    B32,
    B64,
}

#[derive(Debug)]
pub(super) struct Builder {
    /// The kernel with its registers and labels; `finish` returns its statements.
    pub function: Function,
    /// The source location of the next statements.
    pub location: Option<ir::Location>,
    scopes: Vec<Vec<Line>>,
    /// The number of pure statements at the end of the innermost scope, at most [`REPEATED`].
    pure: usize,
    /// The word of each list of elements that were unpacked from it.
    pub packed: FxHashMap<SmallVec<[Scalar; 4]>, Scalar>,
    /// The pairs of adjacent elements of a tile that were converted from fp32 to 16 bits. The pass
    /// `pair_conversions` converts a pair that is packed by one instruction.
    pub pairs: FxHashSet<[Scalar; 2]>,
    /// The word and the index of each extracted byte.
    pub bytes: FxHashMap<Scalar, (Scalar, u32)>,
    /// Words of four bytes whose high bits are known to be 0.
    pub small_bytes: FxHashSet<Scalar>,
    /// The origin of each number that was converted from a byte.
    pub shifted: FxHashMap<Scalar, Shifted>,
    /// The number of labels and scopes so far. Code is straight-line while it does not change.
    pub labels: u32,
    /// The number of low bits that are known to be zero, by register.
    pub zeros: FxHashMap<RegisterId, u32>,
    /// The largest possible value of each register that is known not to be negative.
    pub bounds: FxHashMap<RegisterId, u64>,
    /// The range of each register that holds an fp32 number with a known range.
    pub float_ranges: FxHashMap<RegisterId, FloatRange>,
    /// The interval of each 32-bit register that is another register plus one of some constants.
    pub intervals: FxHashMap<RegisterId, Interval>,
}

impl Scalar {
    /// Returns a constant.
    pub const fn constant(bits: u64) -> Self {
        Self { base: None, offset: bits }
    }

    /// The constant false.
    pub const FALSE: Self = Self::constant(0);
    /// The constant true.
    pub const TRUE: Self = Self::constant(1);

    /// Returns the bits of a constant.
    pub fn as_constant(self) -> Option<u64> {
        self.base.is_none().then_some(self.offset)
    }

    /// Adds a constant.
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
    /// Returns the number of bits.
    pub fn bits(self) -> u32 {
        self.ty().bits()
    }

    /// Returns the untyped PTX type (`.b32`, …) of this width.
    pub fn ty(self) -> ScalarType {
        match self {
            Self::Pred => ScalarType::Pred,
            Self::B16 => ScalarType::B16,
            Self::B32 => ScalarType::B32,
            Self::B64 => ScalarType::B64,
        }
    }

    /// Returns the low bits of a number.
    pub fn cut(self, bits: u64) -> u64 {
        bits & (u64::MAX >> (64 - self.bits()))
    }

    /// Interprets the low bits as a signed integer.
    pub fn signed(self, bits: u64) -> i64 {
        let unused = 64 - self.bits();
        (bits << unused) as i64 >> unused
    }
}

impl Builder {
    /// Returns a builder of a kernel with an empty body.
    pub fn new(function: Function) -> Self {
        Self {
            function,
            location: None,
            scopes: vec![Vec::new()],
            pure: 0,
            packed: FxHashMap::default(),
            pairs: FxHashSet::default(),
            bytes: FxHashMap::default(),
            small_bytes: FxHashSet::default(),
            shifted: FxHashMap::default(),
            labels: 0,
            zeros: FxHashMap::default(),
            bounds: FxHashMap::default(),
            float_ranges: FxHashMap::default(),
            intervals: FxHashMap::default(),
        }
    }

    /// Returns a new register. `epilogue` names it.
    pub fn fresh(&mut self, width: Width) -> RegisterId {
        self.function.registers.push(Register { name: Box::default(), ty: width.ty() })
    }

    /// Returns a new label.
    pub fn label(&mut self, name: &str) -> LabelId {
        let name = format!("${name}_{}", self.function.labels.len());
        self.function.labels.push(isa::Label { name: name.into() })
    }

    /// Emits an instruction that no pass moves.
    pub fn emit(&mut self, instruction: impl Into<Instruction>) {
        self.emit_if(None, instruction);
    }

    /// Emits an instruction for the threads whose guard is true.
    pub fn emit_if(&mut self, guard: Option<Predicate>, instruction: impl Into<Instruction>) {
        self.push(LineKind::Instruction(guard, instruction.into()));
    }

    /// Places a label.
    pub fn place(&mut self, label: LabelId) {
        self.labels += 1;
        self.push(LineKind::Label(label));
    }

    /// Emits text that no pass moves.
    pub fn verbatim(&mut self, parts: Vec<Verbatim>, has_effect: bool) {
        self.push(LineKind::Verbatim(parts, has_effect));
    }

    fn push(&mut self, kind: LineKind) {
        self.pure = 0;
        let line = Line { kind, location: self.location, is_pure: false };
        self.scope().push(line);
    }

    /// Emits a pure instruction and returns its result. Reuses the result of an equal instruction
    /// among the latest.
    pub fn pure<I: Into<Instruction>>(&mut self, width: Width, make: impl FnOnce(RegisterId) -> I) -> Scalar {
        let [register] = self.pure_many([width], |[d]| make(d));
        register.into()
    }

    /// Emits a pure instruction and returns its results. Reuses the results of an equal instruction
    /// among the latest.
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

    /// Returns the results of an equal instruction among the latest, if there is one.
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

    /// Opens a scope. [`Self::append`] places its statements, which [`Self::close`] returns.
    pub fn open(&mut self) {
        self.pure = 0;
        self.labels += 1;
        self.scopes.push(Vec::new());
    }

    /// Closes a scope and returns its statements.
    pub fn close(&mut self) -> Vec<Line> {
        debug_assert!(self.scopes.len() > 1, "the kernel's scope is closed by `finish`");
        self.pure = 0;
        self.labels += 1;
        self.scopes.pop().expect("a scope was opened")
    }

    fn scope(&mut self) -> &mut Vec<Line> {
        self.scopes.last_mut().expect("the kernel's scope is never closed")
    }

    /// Places the statements of a closed scope.
    pub fn append(&mut self, mut lines: Vec<Line>) {
        self.pure = 0;
        self.scope().append(&mut lines);
    }

    /// Returns the kernel and its statements.
    pub fn finish(mut self, target: GpuTarget) -> (Function, Listing) {
        let lines = self.scopes.pop().expect("the kernel's scope is never closed");
        debug_assert!(self.scopes.is_empty(), "every scope is closed");
        let (words, labels) = (words_of(&self.function), self.function.labels.len());
        (self.function, Listing::new(lines, words, labels, target))
    }

    /// Returns the register of a value, and computes the value if needed.
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

    /// Returns the value as an operand; a constant is an immediate.
    pub fn source(&mut self, width: Width, scalar: Scalar) -> Source {
        match scalar.as_constant() {
            Some(bits) if width != Width::Pred => width.signed(bits).into(),
            _ => self.register(width, scalar).into(),
        }
    }

    /// Returns a predicate as a guard; a constant goes to a register.
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

    /// Copies values in parallel: none is read after its register is written.
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
            // The other moves form cycles, so save the first overwritten value.
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

/// Sets the registers that an instruction writes.
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

/// Returns the instruction `d = a + b`, which wraps, on integers of the type `ty`.
pub(super) fn plain_add(ty: ScalarType, d: RegisterId, a: Source, b: Source) -> isa::Add {
    isa::Add { carry_out: false, rounding: None, ftz: false, saturate: false, ty, d, a, b }
}

/// Returns the registers that an instruction writes together.
pub(super) fn destinations(registers: &[RegisterId]) -> Destinations {
    registers.iter().copied().collect()
}

/// Returns the operands that an instruction reads together.
pub(super) fn sources(registers: &[RegisterId]) -> Sources {
    registers.iter().copied().collect()
}

/// Returns a destination that has only the first of an instruction's two possible results.
pub(super) fn only(register: RegisterId) -> isa::DestinationPair {
    isa::DestinationPair { first: Destination::Register(register), second: None }
}
