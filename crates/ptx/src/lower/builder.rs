//! What every family of ops emits through: instructions into nested scopes, numbered by value as they are built.
//!
//! - A pure instruction with the same operands as one of an enclosing scope is that one: its registers are given again.
//! - What does not change in a loop goes before it when its scope is closed (`licm`).
//! - An integer is a register plus a constant ([`Scalar`]), so that sums with constants need no instruction until they are
//!   used, and end as offsets of addresses where they can.
//!
//! Registers are assigned once, but for those that carry values around a loop or out of a branch and those that a guarded
//! load leaves as they were.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir as ir;

use crate::isa::{
    self, Access, Destination, Destinations, Function, Instruction, LabelId, Mov, Predicate, Register,
    RegisterId, ScalarType, Source, Sources, Verbatim,
};

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

/// A statement, and where in the source it comes from.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The statement.
    pub kind: LineKind,
    /// Where it comes from.
    pub location: Option<ir::Location>,
    /// Whether it may be executed where the program would not execute it.
    pub is_pure: bool,
}

/// What a statement is.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are instructions")]
pub(super) enum LineKind {
    /// A label.
    Label(LabelId),
    /// An instruction with its guard.
    Instruction(Option<Predicate>, Instruction),
    /// Text that is written as it is, and whether it does something besides writing its registers.
    Verbatim(Vec<Verbatim>, bool),
}

impl LineKind {
    /// Calls back with each register, and what is done to it.
    pub fn visit_registers(&self, mut each: impl FnMut(RegisterId, Access)) {
        match self {
            Self::Label(_) => {}
            Self::Instruction(guard, instruction) => {
                if let Some(guard) = guard {
                    each(guard.register, Access::Read);
                }
                instruction.visit_registers(each);
            }
            Self::Verbatim(parts, _) => {
                for part in parts {
                    if let Verbatim::Register(register, access) = part {
                        each(*register, *access);
                    }
                }
            }
        }
    }
}

/// Statements that run together: a body of a loop, a branch, or the kernel.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub lines: Vec<Line>,
    /// The results of its pure instructions.
    pub numbers: FxHashMap<Instruction, SmallVec<[RegisterId; 2]>>,
}

/// Builds the body of a kernel.
#[derive(Debug)]
pub(super) struct Builder {
    /// The kernel; its registers and labels.
    pub function: Function,
    /// Where in the source the next statements come from.
    pub location: Option<ir::Location>,
    scopes: Vec<Scope>,
    /// The scope that each register is from.
    depths: Vec<u32>,
    /// The words that elements were unpacked from.
    pub packed: FxHashMap<SmallVec<[Scalar; 4]>, Scalar>,
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

/// A register that stands for result `number` in the key of an instruction.
fn placeholder(number: usize) -> RegisterId {
    RegisterId::from_u32(u32::MAX - 2 - number as u32)
}

impl Builder {
    /// An empty body.
    pub fn new(function: Function) -> Self {
        Self {
            function,
            location: None,
            scopes: vec![Scope::default()],
            depths: Vec::new(),
            packed: FxHashMap::default(),
        }
    }

    /// A register of the scope that is built.
    pub fn fresh(&mut self, width: Width) -> RegisterId {
        self.fresh_in(width, self.scopes.len() - 1)
    }

    /// A register of the scope that is opened next.
    pub fn fresh_inside(&mut self, width: Width) -> RegisterId {
        self.fresh_in(width, self.scopes.len())
    }

    fn fresh_in(&mut self, width: Width, scope: usize) -> RegisterId {
        self.depths.push(scope as u32);
        self.function.registers.push(Register { name: "%".into(), ty: width.ty() })
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
        self.push(LineKind::Label(label));
    }

    /// Emits text that stays where it is.
    pub fn verbatim(&mut self, parts: Vec<Verbatim>, has_effect: bool) {
        self.push(LineKind::Verbatim(parts, has_effect));
    }

    fn push(&mut self, kind: LineKind) {
        self.push_line(Line { kind, location: self.location, is_pure: false });
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
        let key = make(std::array::from_fn(placeholder)).into();
        let known = self.scopes.iter().rev().find_map(|scope| scope.numbers.get(&key));
        if let Some(registers) = known {
            return std::array::from_fn(|index| registers[index]);
        }
        let registers = widths.map(|width| self.fresh(width));
        let mut instruction = key.clone();
        instruction.map_registers(|register, access| {
            if access == Access::Write {
                *register = registers[(u32::MAX - 2 - register.as_u32()) as usize];
            }
        });
        let kind = LineKind::Instruction(None, instruction);
        self.push_line(Line { kind, location: self.location, is_pure: true });
        self.remember(key, SmallVec::from_slice(&registers));
        registers
    }

    /// Begins a scope.
    pub fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Ends the innermost scope and gives its statements, which stay where they are from now on.
    pub fn close(&mut self) -> Vec<Line> {
        let mut lines = self.pop_scope().lines;
        for line in &mut lines {
            line.is_pure = false;
        }
        lines
    }

    pub(super) fn pop_scope(&mut self) -> Scope {
        debug_assert!(self.scopes.len() > 1, "the kernel's scope is closed by `finish`");
        self.scopes.pop().expect("a scope was opened")
    }

    pub(super) fn scope_count(&self) -> usize {
        self.scopes.len()
    }

    fn scope(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("the kernel's scope is never closed")
    }

    pub(super) fn push_line(&mut self, line: Line) {
        self.scope().lines.push(line);
    }

    /// Notes the results of a pure instruction, with placeholders for its registers.
    pub(super) fn remember(&mut self, instruction: Instruction, results: SmallVec<[RegisterId; 2]>) {
        self.scope().numbers.insert(instruction, results);
    }

    /// The number of the scope that a register is from.
    pub(super) fn depth(&self, register: RegisterId) -> u32 {
        self.depths[register.as_u32() as usize]
    }

    pub(super) fn set_depth(&mut self, registers: impl IntoIterator<Item = RegisterId>, depth: u32) {
        for register in registers {
            self.depths[register.as_u32() as usize] = depth;
        }
    }

    /// Appends statements of a scope that was closed.
    pub fn append(&mut self, mut lines: Vec<Line>) {
        self.scope().lines.append(&mut lines);
    }

    /// The registers are from the innermost scope from here on: those that a loop leaves behind.
    pub fn adopt(&mut self, registers: impl IntoIterator<Item = RegisterId>) {
        self.set_depth(registers, self.scopes.len() as u32 - 1);
    }

    /// The kernel and its statements.
    pub fn finish(mut self) -> (Function, Vec<Line>) {
        let scope = self.scopes.pop().expect("the kernel's scope is never closed");
        debug_assert!(self.scopes.is_empty(), "every scope is closed");
        (self.function, scope.lines)
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
