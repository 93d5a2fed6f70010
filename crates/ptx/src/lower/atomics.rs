//! Atomic operations on global memory. If several threads hold an element, the first one executes
//! the operation.
//!
//! One instruction for an operation carries the memory order. Several instructions are relaxed,
//! with fences around them.
//!
//! An operation without users is a `red`, except an exchange and a compare-and-swap. A `red` has no
//! acquire order, and needs none: a thread that ignores the result orders no later access.
//!
//! 16-bit operations without an instruction are compare-and-swap loops.

use smallvec::SmallVec;
use tilewright_gpu_ir::Feature;
use tilewright_ir::{AtomicKind, Dtype, Element, ElementwiseFn, Inst, MemoryScope, MemorySemantics, Value};
use tilewright_layout::{Input, Layout};

use super::builder::{Scalar, Width, move_to};
use super::control::jump;
use super::memory::{Policy, Words, plain_load, spread};
use super::{LANES, Lowered, Lowering, memory_bits, width_of};
use crate::isa::{
    self, Address, Atom, AtomicOperation, Comparison, Ld, LoadSemantics, Predicate, Red, RegisterId,
    ScalarType, Semantics, Source, Sources, SpecialRegister, StateSpace, VectorWidth,
};

/// The first PTX version with vector additions.
const VECTORS_SINCE: (u32, u32) = (8, 1);

/// The memory order of the instructions that implement an operation.
#[derive(Clone, Copy)]
struct Order {
    sem: MemorySemantics,
    scope: MemoryScope,
    /// True if a fence follows the instructions.
    is_fenced: bool,
}

/// The address and the conditions of one access of a thread.
#[derive(Clone)]
struct AtomicAccess {
    address: Address,
    /// The condition of the access; `None` if it is always true. A constant false does not occur.
    guard: Option<Predicate>,
    order: Order,
    /// True if the old value has users.
    is_used: bool,
}

/// The implementation of an operation.
#[derive(Clone, Copy)]
enum AtomicVariant {
    Instruction(AtomicOperation, ScalarType),
    /// The minimum or maximum of floats by integer instructions on their bits. The first is on
    /// signed integers, for a positive operand. The second is the opposite, on unsigned integers,
    /// for a negative operand.
    Extremum(AtomicOperation, AtomicOperation),
    /// A compare-and-swap loop on 16 bits.
    Loop,
}

impl Lowering<'_> {
    pub(super) fn lower_atomic_rmw(
        &mut self,
        inst: Inst,
        [pointer, value]: [Value; 2],
        mask: Option<Value>,
        kind: AtomicKind,
        (sem, scope): (MemorySemantics, MemoryScope),
        vector: [u32; 2],
    ) -> Lowered {
        let layout = self.layout_of(pointer);
        let (pointers, values) = (self.get(pointer), self.get_in(value, layout));
        let guards = self.first_copies(mask, layout);
        let result = self.kernel.insts[inst].results[0];
        let is_used = self.is_used(result);
        let element = self.element(value);
        let accesses = Self::accesses(layout, vector);
        let variant = self.variant(kind, element, accesses[0].len());
        let is_loop = matches!(variant, AtomicVariant::Loop);
        let order = self.begin_order((sem, scope), is_loop || accesses.len() > 1, is_used);
        let mut found = vec![None; pointers.len()];
        for registers in accesses {
            let first = registers[0] as usize;
            if guards[first] == Scalar::FALSE {
                registers.iter().for_each(|&register| found[register as usize] = Some(Scalar::constant(0)));
                continue;
            }
            let guard = self.guard(guards[first]);
            let address = self.builder.address(Width::B64, pointers[first]);
            let place = AtomicAccess { address, guard, order, is_used };
            let own: SmallVec<[Scalar; 16]> =
                registers.iter().map(|&register| values[register as usize]).collect();
            let old = match variant {
                AtomicVariant::Instruction(operation, ty) => {
                    self.atomic_words((operation, ty), element, &own, &place)
                }
                AtomicVariant::Extremum(positive, negative) => {
                    self.atomic_extremum([positive, negative], element, own[0], &place)
                }
                AtomicVariant::Loop => {
                    let old = self.swap_loop(kind, element, own[0], &place);
                    std::iter::once(old.ok_or_else(|| self.no_op(inst))?).collect()
                }
            };
            for (&register, old) in registers.iter().zip(old) {
                found[register as usize] = Some(old);
            }
        }
        self.end_order(order);
        self.set(result, spread(&found, layout));
        Ok(())
    }

    pub(super) fn lower_atomic_cas(
        &mut self,
        inst: Inst,
        [pointer, expected, value]: [Value; 3],
        mask: Option<Value>,
        (sem, scope): (MemorySemantics, MemoryScope),
    ) {
        let layout = self.layout_of(pointer);
        let pointers = self.get(pointer);
        let [expected, values] = [expected, value].map(|value| self.get_in(value, layout));
        let guards = self.first_copies(mask, layout);
        let element = self.element(value);
        let accesses = Self::accesses(layout, [0, 1]);
        let order = self.begin_order((sem, scope), accesses.len() > 1, true);
        let mut found = vec![None; pointers.len()];
        for registers in accesses {
            let register = registers[0] as usize;
            if guards[register] == Scalar::FALSE {
                found[register] = Some(Scalar::constant(0));
                continue;
            }
            let guard = self.guard(guards[register]);
            let address = self.builder.address(Width::B64, pointers[register]);
            let place = AtomicAccess { address, guard, order, is_used: true };
            let operands = [expected[register], values[register]].map(|scalar| self.word(element, scalar));
            let old = self.zeros(word_width(element), 1, &place)[0];
            self.compare_and_swap(element, old, operands, &place);
            found[register] = Some(self.element_of(element, old));
        }
        self.end_order(order);
        let result = self.kernel.insts[inst].results[0];
        self.set(result, spread(&found, layout));
    }

    pub(super) fn lower_atomic_load(
        &mut self,
        inst: Inst,
        pointer: Value,
        mask: Option<Value>,
        (sem, scope): (MemorySemantics, MemoryScope),
    ) {
        let layout = self.layout_of(pointer);
        let pointers = self.get(pointer);
        let guards = self.first_copies(mask, layout);
        let result = self.kernel.insts[inst].results[0];
        let element = self.element(result);
        let accesses = Self::accesses(layout, [0, 1]);
        let order = self.begin_order((sem, scope), accesses.len() > 1, true);
        let policy = Policy::atomic(order.sem, order.scope);
        let mut found = vec![None; pointers.len()];
        for registers in accesses {
            let register = registers[0] as usize;
            let zero = [Scalar::constant(0)];
            let loaded = self.load_elements(element, pointers[register], guards[register], &zero, policy);
            found[register] = Some(loaded[0]);
        }
        self.end_order(order);
        self.set(result, spread(&found, layout));
    }

    pub(super) fn lower_atomic_store(
        &mut self,
        [pointer, value]: [Value; 2],
        mask: Option<Value>,
        (sem, scope): (MemorySemantics, MemoryScope),
    ) {
        let accesses = Self::accesses(self.layout_of(pointer), [0, 1]);
        let order = self.begin_order((sem, scope), accesses.len() > 1, false);
        self.lower_store([pointer, value], mask, [0, 1], Policy::atomic(order.sem, order.scope));
    }

    /// Emits a loop in which one thread polls. It ends when the value equals `expected`, or at the
    /// timeout.
    pub(super) fn lower_atomic_poll(
        &mut self,
        inst: Inst,
        [pointer, expected]: [Value; 2],
        timeout: Option<Value>,
        (sem, scope): (MemorySemantics, MemoryScope),
    ) {
        let [pointer, wanted] = [pointer, expected].map(|value| self.scalar(value));
        let (element, timeout) = (self.element(expected), timeout.map(|timeout| self.scalar(timeout)));
        let is_met = self.builder.fresh(Width::Pred);
        self.builder.assign(Width::Pred, is_met, Scalar::FALSE);
        let [again, end] = ["poll", "polled"].map(|name| self.builder.label(name));
        let is_other = self.first_copies(None, None)[0].plus(Width::Pred, 1);
        let is_other = self.builder.predicate(is_other);
        self.builder.emit_if(Some(is_other), jump(end));
        let start = timeout.map(|_| self.time());
        self.builder.open();
        self.builder.place(again);
        let (zero, policy) = ([Scalar::constant(0)], Policy::atomic(sem, scope));
        let loaded = self.load_elements(element, pointer, Scalar::TRUE, &zero, policy)[0];
        let met = if width_of(element) == Width::B16 {
            let [loaded, wanted] = [loaded, wanted].map(|scalar| self.split_words(Width::B16, scalar)[0]);
            self.builder.compare(Width::B32, false, Comparison::Eq, loaded, wanted)
        } else {
            self.builder.compare(width_of(element), false, Comparison::Eq, loaded, wanted)
        };
        self.builder.assign(Width::Pred, is_met, met);
        if let (Some(start), Some(timeout)) = (start, timeout) {
            let now = self.time();
            let passed = self.builder.sub(Width::B64, now, start);
            let is_late = self.builder.compare(Width::B64, true, Comparison::Ge, passed, timeout);
            let is_late = self.builder.predicate(is_late);
            self.builder.emit_if(Some(is_late), jump(end));
        }
        self.builder.emit_if(Some(Predicate { register: is_met, negated: true }), jump(again));
        let lines = self.builder.close();
        self.builder.append(lines);
        self.builder.place(end);
        self.set_result(inst, [Scalar::from(is_met)]);
    }

    /// Reads the global timer, in nanoseconds. No pass moves the read.
    fn time(&mut self) -> Scalar {
        let time = self.builder.fresh(Width::B64);
        let a = SpecialRegister::GlobalTimer.into();
        self.builder.emit(isa::Mov { ty: ScalarType::U64, d: time.into(), a });
        time.into()
    }

    /// Returns for each register whether this thread accesses the element. The mask is true, and no
    /// earlier thread holds the element.
    fn first_copies(&mut self, mask: Option<Value>, layout: Option<&Layout>) -> Vec<Scalar> {
        let count = layout.map_or(1, |layout| layout.registers() as usize);
        let masks = mask.map(|mask| self.get_in(mask, layout));
        // All lanes and warps but the first are redundant for a scalar.
        let [lanes, warps] = layout.map_or([LANES - 1, self.warps.count.next_power_of_two() - 1], |layout| {
            [Input::Lane, Input::Warp].map(|input| layout.free_bits(input))
        });
        let is_first = self.is_first(lanes, warps);
        let guard = |register: usize| match &masks {
            Some(masks) => self.builder.and(masks[register], is_first),
            None => is_first,
        };
        (0..count).map(guard).collect()
    }

    fn guard(&mut self, holds: Scalar) -> Option<Predicate> {
        (holds != Scalar::TRUE).then(|| self.builder.predicate(holds))
    }

    /// Returns the memory order of the instructions of an operation. Several instructions are
    /// relaxed. For a release, emits the fence before them.
    fn begin_order(
        &mut self,
        (sem, scope): (MemorySemantics, MemoryScope),
        are_several: bool,
        is_used: bool,
    ) -> Order {
        if !are_several {
            return Order { sem, scope, is_fenced: false };
        }
        if sem.releases() {
            self.fence(scope);
        }
        Order { sem: MemorySemantics::Relaxed, scope, is_fenced: sem.acquires() && is_used }
    }

    fn end_order(&mut self, order: Order) {
        if order.is_fenced {
            self.fence(order.scope);
        }
    }

    fn fence(&mut self, scope: MemoryScope) {
        let (semantics, scope) = (Some(Semantics::AcquireRelease), ptx_scope(scope));
        self.builder.emit(isa::Fence { semantics, restrict: None, scope });
    }

    fn variant(&self, kind: AtomicKind, element: Element, elements: usize) -> AtomicVariant {
        use AtomicOperation as A;
        use ScalarType as T;
        let dtype = element.value().unwrap_or(Dtype::U64);
        let is_wide = dtype.bits() == 64;
        let (operation, opposite) = match kind {
            AtomicKind::Add => (A::Add, None),
            AtomicKind::And => (A::And, None),
            AtomicKind::Or => (A::Or, None),
            AtomicKind::Xor => (A::Xor, None),
            AtomicKind::Max => (A::Max, Some(A::Min)),
            AtomicKind::Min => (A::Min, Some(A::Max)),
            AtomicKind::Exchange => (A::Exchange, None),
        };
        if dtype.bits() == 16 {
            return match (kind, dtype, elements) {
                (AtomicKind::Add, Dtype::F16, 1) => AtomicVariant::Instruction(operation, T::F16),
                (AtomicKind::Add, Dtype::F16, _) => AtomicVariant::Instruction(operation, T::F16x2),
                (AtomicKind::Add, Dtype::BF16, _) if !self.has(Feature::Bf16Atomics) => AtomicVariant::Loop,
                (AtomicKind::Add, Dtype::BF16, 1) => AtomicVariant::Instruction(operation, T::Bf16),
                (AtomicKind::Add, Dtype::BF16, _) => AtomicVariant::Instruction(operation, T::Bf16x2),
                _ => AtomicVariant::Loop,
            };
        }
        let ty = match kind {
            AtomicKind::Add | AtomicKind::Max | AtomicKind::Min if dtype.is_float() => match opposite {
                Some(opposite) => return AtomicVariant::Extremum(operation, opposite),
                None if is_wide => T::F64,
                None => T::F32,
            },
            AtomicKind::Max | AtomicKind::Min if dtype.is_signed() && is_wide => T::S64,
            AtomicKind::Max | AtomicKind::Min if dtype.is_signed() => T::S32,
            AtomicKind::Add | AtomicKind::Max | AtomicKind::Min if is_wide => T::U64,
            AtomicKind::Add | AtomicKind::Max | AtomicKind::Min => T::U32,
            AtomicKind::And | AtomicKind::Or | AtomicKind::Xor | AtomicKind::Exchange if is_wide => T::B64,
            AtomicKind::And | AtomicKind::Or | AtomicKind::Xor | AtomicKind::Exchange => T::B32,
        };
        AtomicVariant::Instruction(operation, ty)
    }

    /// Returns new registers for the results of an access. They are zero if the access's guard is
    /// false.
    fn zeros(&mut self, width: Width, count: usize, place: &AtomicAccess) -> SmallVec<[RegisterId; 8]> {
        let registers: SmallVec<[RegisterId; 8]> = (0..count).map(|_| self.builder.fresh(width)).collect();
        if place.guard.is_some() {
            for register in &registers {
                self.builder.emit(move_to(width, *register, 0.into()));
            }
        }
        registers
    }

    /// Emits one `atom` or `red` on contiguous elements. Returns the old values, or zeros after a
    /// `red`.
    fn atomic_words(
        &mut self,
        operation: (AtomicOperation, ScalarType),
        element: Element,
        elements: &[Scalar],
        place: &AtomicAccess,
    ) -> SmallVec<[Scalar; 16]> {
        let words = Words::new(element, elements.len());
        let b = self.words(words, elements);
        let vector = words.vector();
        if vector.is_some() {
            self.module.version = self.module.version.max(VECTORS_SINCE);
        }
        if !place.is_used && operation.0 != AtomicOperation::Exchange {
            self.red(operation, b, vector, place);
            return elements.iter().map(|_| Scalar::constant(0)).collect();
        }
        let registers = self.zeros(words.width(), words.count(), place);
        self.atom(operation, &registers, (b, None), vector, place);
        registers.into_iter().flat_map(|register| self.builder.unpack(words, register.into())).collect()
    }

    fn atom(
        &mut self,
        (operation, ty): (AtomicOperation, ScalarType),
        d: &[RegisterId],
        (b, c): (Sources, Option<Source>),
        vector: Option<VectorWidth>,
        place: &AtomicAccess,
    ) {
        let AtomicAccess { address, guard, order, .. } = place.clone();
        let atom = Atom {
            semantics: Some(ptx_semantics(order.sem)),
            scope: Some(ptx_scope(order.scope)),
            space: Some(StateSpace::Global),
            operation,
            no_ftz: is_half(ty),
            cache_hint: false,
            vector,
            ty,
            d: super::builder::destinations(d),
            address,
            b,
            c,
            policy: None,
        };
        self.builder.emit_if(guard, atom);
    }

    fn red(
        &mut self,
        (operation, ty): (AtomicOperation, ScalarType),
        b: Sources,
        vector: Option<VectorWidth>,
        place: &AtomicAccess,
    ) {
        let AtomicAccess { address, guard, order, .. } = place.clone();
        let semantics = if order.sem.releases() { Semantics::Release } else { Semantics::Relaxed };
        let red = Red {
            semantics: Some(semantics),
            scope: Some(ptx_scope(order.scope)),
            space: Some(StateSpace::Global),
            operation,
            no_ftz: is_half(ty),
            cache_hint: false,
            vector,
            ty,
            address,
            b,
            policy: None,
        };
        self.builder.emit_if(guard, red);
    }

    /// Emits the two guarded integer instructions of a float minimum or maximum.
    fn atomic_extremum(
        &mut self,
        operations: [AtomicOperation; 2],
        element: Element,
        value: Scalar,
        place: &AtomicAccess,
    ) -> SmallVec<[Scalar; 16]> {
        let width = width_of(element);
        let types = match width {
            Width::B64 => [ScalarType::S64, ScalarType::U64],
            Width::B32 | Width::B16 | Width::Pred => [ScalarType::S32, ScalarType::U32],
        };
        let is_negative = self.builder.compare(width, true, Comparison::Lt, value, Scalar::constant(0));
        let b = self.builder.register(width, value);
        let old = if place.is_used {
            // One of the two instructions overwrites the zero.
            self.zeros(width, 1, place)
        } else {
            SmallVec::new()
        };
        let signs = [is_negative.plus(Width::Pred, 1), is_negative];
        for ((operation, ty), sign) in operations.into_iter().zip(types).zip(signs) {
            let mut holds = sign;
            if let Some(guard) = place.guard {
                let guard = Scalar { base: Some(guard.register), offset: guard.negated.into() };
                holds = self.builder.and(guard, sign);
            }
            if holds == Scalar::FALSE {
                continue;
            }
            let place = AtomicAccess { guard: self.guard(holds), ..place.clone() };
            if place.is_used {
                self.atom((operation, ty), &old, (b.into(), None), None, &place);
            } else {
                self.red((operation, ty), b.into(), None, &place);
            }
        }
        std::iter::once(old.first().map_or(Scalar::constant(0), |old| Scalar::from(*old))).collect()
    }

    /// Emits a compare-and-swap loop. Returns the old value; `None` if the target lacks the
    /// function.
    fn swap_loop(
        &mut self,
        kind: AtomicKind,
        element: Element,
        value: Scalar,
        place: &AtomicAccess,
    ) -> Option<Scalar> {
        let (width, ty) = (word_width(element), word_type(element));
        let old = self.zeros(width, 1, place)[0];
        let seen = self.builder.fresh(width);
        let [again, end] = ["swap", "swapped"].map(|name| self.builder.label(name));
        if let Some(guard) = place.guard {
            let skips = Predicate { negated: !guard.negated, ..guard };
            self.builder.emit_if(Some(skips), jump(end));
        }
        self.builder.open();
        let place = AtomicAccess { guard: None, ..place.clone() };
        self.builder.emit(Ld {
            semantics: Some(LoadSemantics::Relaxed),
            scope: Some(ptx_scope(place.order.scope)),
            space: Some(StateSpace::Global),
            ..plain_load(old.into(), place.address, ty)
        });
        self.builder.place(again);
        self.builder.emit(move_to(width, seen, old.into()));
        let found = self.element_of(element, seen);
        let next = self.combined(kind, element, found, value);
        if let Some(next) = next {
            let next = self.word(element, next);
            self.compare_and_swap(element, old, [seen, next], &place);
            let [old, seen] = [old, seen].map(|word| self.split_words(width, word.into())[0]);
            let differs = self.builder.compare(Width::B32, false, Comparison::Ne, old, seen);
            let differs = self.builder.predicate(differs);
            self.builder.emit_if(Some(differs), jump(again));
        }
        let lines = self.builder.close();
        self.builder.append(lines);
        self.builder.place(end);
        next.map(|_| self.element_of(element, old))
    }

    /// Returns the stored value; `None` if the target lacks the function.
    fn combined(
        &mut self,
        kind: AtomicKind,
        element: Element,
        found: Scalar,
        value: Scalar,
    ) -> Option<Scalar> {
        let function = match kind {
            AtomicKind::Add => ElementwiseFn::Add,
            AtomicKind::And => ElementwiseFn::And,
            AtomicKind::Or => ElementwiseFn::Or,
            AtomicKind::Xor => ElementwiseFn::Xor,
            AtomicKind::Max => ElementwiseFn::Max,
            AtomicKind::Min => ElementwiseFn::Min,
            AtomicKind::Exchange => return Some(value),
        };
        let is_extremum = matches!(kind, AtomicKind::Max | AtomicKind::Min);
        if !is_extremum || !element.value().is_some_and(Dtype::is_float) {
            return self.apply(function, element, &[found, value]);
        }
        let opposite = if kind == AtomicKind::Max { ElementwiseFn::Min } else { ElementwiseFn::Max };
        let words = [found, value].map(|scalar| self.split_words(Width::B16, scalar)[0]);
        let signed = words.map(|word| self.builder.extend(word, 16, true));
        let unsigned = words.map(|word| self.builder.extend(word, 16, false));
        let positive = self.apply(function, Element::Value(Dtype::I16), &signed)?;
        let negative = self.apply(opposite, Element::Value(Dtype::U16), &unsigned)?;
        let is_negative =
            self.builder.compare(Width::B32, true, Comparison::Lt, signed[1], Scalar::constant(0));
        let next = self.builder.select(Width::B32, is_negative, negative, positive);
        Some(self.join_words(Width::B16, &[next]))
    }

    fn compare_and_swap(
        &mut self,
        element: Element,
        old: RegisterId,
        [expected, value]: [RegisterId; 2],
        place: &AtomicAccess,
    ) {
        let operation = (AtomicOperation::CompareAndSwap, word_type(element));
        self.atom(operation, &[old], (expected.into(), Some(value.into())), None, place);
    }

    /// Moves an element to a register of the width that atomic instructions need.
    fn word(&mut self, element: Element, scalar: Scalar) -> RegisterId {
        let scalar = match (word_width(element), width_of(element)) {
            (Width::B16, Width::B32) => self.join_words(Width::B16, &[scalar]),
            _ => scalar,
        };
        self.builder.register(word_width(element), scalar)
    }

    /// Converts a register of an atomic instruction to the element that it holds.
    fn element_of(&mut self, element: Element, word: RegisterId) -> Scalar {
        match (word_width(element), width_of(element)) {
            (Width::B16, Width::B32) => {
                let word = self.split_words(Width::B16, word.into())[0];
                self.builder.extend(word, 16, element.value().is_some_and(Dtype::is_signed))
            }
            _ => word.into(),
        }
    }
}

/// Returns the width of the registers of atomic instructions on an element.
fn word_width(element: Element) -> Width {
    match memory_bits(element) {
        16 => Width::B16,
        64 => Width::B64,
        _ => Width::B32,
    }
}

fn word_type(element: Element) -> ScalarType {
    word_width(element).ty()
}

fn is_half(ty: ScalarType) -> bool {
    matches!(ty, ScalarType::F16 | ScalarType::F16x2 | ScalarType::Bf16 | ScalarType::Bf16x2)
}

pub(super) fn ptx_scope(scope: MemoryScope) -> isa::Scope {
    match scope {
        MemoryScope::Gpu => isa::Scope::Gpu,
        MemoryScope::Cta => isa::Scope::Cta,
        MemoryScope::System => isa::Scope::Sys,
    }
}

fn ptx_semantics(sem: MemorySemantics) -> Semantics {
    match sem {
        MemorySemantics::AcquireRelease => Semantics::AcquireRelease,
        MemorySemantics::Acquire => Semantics::Acquire,
        MemorySemantics::Release => Semantics::Release,
        MemorySemantics::Relaxed => Semantics::Relaxed,
    }
}
