//! Global loads and stores, and the packing of elements into words.

use smallvec::SmallVec;
use tilewright_gpu_ir::Feature;
use tilewright_gpu_ir::target::ACCESS_BYTES;
use tilewright_ir::{
    CacheModifier, Dtype, Element, EvictionPolicy, Inst, MemoryScope, MemorySemantics, Value,
};
use tilewright_layout::{Input, Layout};

use super::atomics::ptx_scope;
use super::builder::{Builder, Scalar, Width, move_to};
use super::{LANES, Lowering, memory_bits, width_of};
use crate::isa::{
    self, Address, CachePolicy, Comparison, Destinations, L1Eviction, Ld, LoadCache, LoadSemantics,
    PolicyPriority, Predicate, ScalarType, Source, Sources, St, StateSpace, StoreCache, StoreSemantics,
    VectorWidth,
};

/// The first PTX version with accesses of 32 bytes.
const WIDE_SINCE: (u32, u32) = (8, 8);

/// The cache behavior and the memory order of an access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    cache: CacheModifier,
    eviction: EvictionPolicy,
    volatile: bool,
    /// The memory order and the scope of an atomic access.
    atomic: Option<(MemorySemantics, MemoryScope)>,
}

impl Policy {
    /// Returns the policy for the attributes of an op.
    pub fn new(cache: CacheModifier, eviction: EvictionPolicy, volatile: bool) -> Self {
        Self { cache, eviction, volatile, atomic: None }
    }

    /// Returns the policy of an atomic access.
    pub fn atomic(sem: MemorySemantics, scope: MemoryScope) -> Self {
        let plain = Self::new(CacheModifier::Default, EvictionPolicy::Default, false);
        Self { atomic: Some((sem, scope)), ..plain }
    }

    fn scope(self) -> Option<isa::Scope> {
        self.atomic.map(|(_, scope)| ptx_scope(scope))
    }

    fn load_semantics(self) -> Option<LoadSemantics> {
        let atomic = |(sem, _): (MemorySemantics, MemoryScope)| {
            if sem.acquires() { LoadSemantics::Acquire } else { LoadSemantics::Relaxed }
        };
        self.atomic.map(atomic).or_else(|| self.volatile.then_some(LoadSemantics::Volatile))
    }

    fn store_semantics(self) -> Option<StoreSemantics> {
        let atomic = |(sem, _): (MemorySemantics, MemoryScope)| {
            if sem.releases() { StoreSemantics::Release } else { StoreSemantics::Relaxed }
        };
        self.atomic.map(atomic)
    }

    fn load_cache(self) -> Option<LoadCache> {
        match self.cache {
            CacheModifier::All => Some(LoadCache::All),
            CacheModifier::Global => Some(LoadCache::Global),
            CacheModifier::Streaming => Some(LoadCache::Streaming),
            CacheModifier::Volatile => Some(LoadCache::Volatile),
            CacheModifier::Default | CacheModifier::WriteBack | CacheModifier::WriteThrough => None,
        }
        .filter(|_| !self.volatile)
    }

    fn store_cache(self) -> Option<StoreCache> {
        match self.cache {
            CacheModifier::Global => Some(StoreCache::Global),
            CacheModifier::Streaming => Some(StoreCache::Streaming),
            CacheModifier::WriteBack => Some(StoreCache::WriteBack),
            CacheModifier::WriteThrough => Some(StoreCache::WriteThrough),
            CacheModifier::Default | CacheModifier::All | CacheModifier::Volatile => None,
        }
    }

    /// Returns the eviction priorities in L1 and L2. They are hints, which volatile accesses and
    /// cache modifiers drop.
    fn eviction(self) -> Option<(L1Eviction, PolicyPriority)> {
        if self.volatile || self.cache != CacheModifier::Default {
            return None;
        }
        match self.eviction {
            EvictionPolicy::Default => None,
            EvictionPolicy::Last => Some((L1Eviction::Last, PolicyPriority::Last)),
            EvictionPolicy::First => Some((L1Eviction::First, PolicyPriority::First)),
        }
    }
}

/// The words that an access moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Words {
    element: Element,
    /// The size of a word, in bits.
    bits: u32,
    /// The number of words.
    count: usize,
    /// The number of elements in a word.
    elements: usize,
}

impl Words {
    /// Returns the words of an access to `elements` elements. They have at most 16 bytes, or 32 in
    /// global memory with [`Feature::WideAccesses`].
    pub fn new(element: Element, elements: usize) -> Self {
        let each = memory_bits(element);
        let bits = (each * elements as u32).min(32).max(each);
        let per_word = (bits / each) as usize;
        Self { element, bits, count: elements / per_word, elements: per_word }
    }

    /// Returns the type of a word in the access. One narrow integer has its own type, so that a
    /// load extends it.
    fn ty(self) -> ScalarType {
        let signed = self.element.value().is_some_and(Dtype::is_signed) && self.elements == 1;
        match (self.bits, signed) {
            (8, true) => ScalarType::S8,
            (8, false) => ScalarType::U8,
            (16, true) => ScalarType::S16,
            (16, false) if self.width() == Width::B16 => ScalarType::B16,
            (16, false) => ScalarType::U16,
            (32, _) => ScalarType::B32,
            _ => ScalarType::B64,
        }
    }

    /// Returns the width of the register that holds a word.
    pub fn width(self) -> Width {
        match (self.bits, self.elements) {
            (64, _) => Width::B64,
            (16, 1) => width_of(self.element),
            _ => Width::B32,
        }
    }

    /// Returns the number of bytes of all words.
    fn bytes(self) -> u32 {
        self.bits / 8 * self.count as u32
    }

    /// Returns the number of words.
    pub fn count(self) -> usize {
        self.count
    }

    /// Returns the vector modifier of the access; a single word has none.
    pub fn vector(self) -> Option<VectorWidth> {
        match self.count {
            2 => Some(VectorWidth::V2),
            4 => Some(VectorWidth::V4),
            8 => Some(VectorWidth::V8),
            _ => None,
        }
    }
}

/// Returns a load without modifiers.
pub(super) fn plain_load(d: Destinations, address: Address, ty: ScalarType) -> Ld {
    Ld {
        semantics: None,
        scope: None,
        space: None,
        cache: None,
        non_coherent: false,
        l1_eviction: None,
        l2_eviction: None,
        cache_hint: false,
        prefetch: None,
        vector: None,
        ty,
        d,
        address,
        policy: None,
    }
}

/// Returns a store without modifiers.
pub(super) fn plain_store(address: Address, b: Sources, ty: ScalarType) -> St {
    St {
        semantics: None,
        scope: None,
        space: None,
        cache: None,
        l1_eviction: None,
        l2_eviction: None,
        cache_hint: false,
        vector: None,
        ty,
        address,
        b,
        policy: None,
    }
}

impl Builder {
    /// Returns an address operand. Its base is a register, also for a constant.
    pub fn address(&mut self, width: Width, address: Scalar) -> Address {
        self.register(width, address).into()
    }

    /// Unpacks the elements of a word.
    pub fn unpack(&mut self, words: Words, word: Scalar) -> SmallVec<[Scalar; 16]> {
        if words.elements == 1 {
            return std::iter::once(word).collect();
        }
        if width_of(words.element) == Width::B16 {
            if let Some(bits) = word.as_constant() {
                return (0..2).map(|half| Scalar::constant(bits >> (16 * half) & 0xffff)).collect();
            }
            let word = self.register(Width::B32, word);
            let halves = self.pure_many([Width::B16; 2], |d| isa::Mov {
                ty: ScalarType::B32,
                d: super::builder::destinations(&d),
                a: word.into(),
            });
            let halves: SmallVec<[Scalar; 16]> = halves.into_iter().map(Scalar::from).collect();
            self.packed.insert(halves[..].into(), word.into());
            return halves;
        }
        let signed = words.element.value().is_some_and(Dtype::is_signed);
        let bits = memory_bits(words.element);
        let element = |number: usize| {
            let shift = bits * number as u32;
            match number {
                0 => self.extend(word, bits, signed),
                _ if number == words.elements - 1 && words.bits == 32 => {
                    self.shr(Width::B32, signed, word, shift)
                }
                _ => self.bit_field(word, shift, bits, signed),
            }
        };
        let elements: SmallVec<[Scalar; 16]> = (0..words.elements).map(element).collect();
        if words.bits == 32 {
            self.packed.insert(elements[..].into(), word);
        }
        if bits == 8 && word.base.is_some() {
            self.bytes.extend(elements.iter().zip(0..).map(|(&element, byte)| (element, (word, byte))));
        }
        elements
    }

    fn bit_field(&mut self, word: Scalar, shift: u32, bits: u32, signed: bool) -> Scalar {
        if word.base.is_none() {
            let shifted = self.shr(Width::B32, false, word, shift);
            return self.extend(shifted, bits, signed);
        }
        let a = self.source(Width::B32, word);
        let ty = if signed { ScalarType::S32 } else { ScalarType::U32 };
        let (b, c) = (i64::from(shift).into(), i64::from(bits).into());
        self.pure(Width::B32, |d| isa::Bfe { ty, d, a, b, c })
    }

    /// Returns whether elements were unpacked from a word, or are converted to one.
    pub fn is_word(&self, elements: &[Scalar]) -> bool {
        let is_pair = |elements: [Scalar; 2]| self.pairs.contains(&elements);
        self.packed.contains_key(elements) || elements.try_into().is_ok_and(is_pair)
    }

    /// Packs elements into a word; the bits above them are arbitrary.
    pub fn pack(&mut self, words: Words, elements: &[Scalar]) -> Scalar {
        let bits = memory_bits(words.element);
        if elements.len() == 1 {
            return elements[0];
        }
        let constant = elements.iter().rev().try_fold(0, |word, element| {
            Some(word << bits | element.as_constant()? & (u64::MAX >> (64 - bits)))
        });
        if let Some(constant) = constant {
            return Scalar::constant(constant);
        }
        if let Some(&word) = self.packed.get(elements) {
            return word;
        }
        if width_of(words.element) == Width::B16 {
            let halves = [0, 1].map(|half| self.register(Width::B16, elements[half]));
            return self.pure(Width::B32, |d| isa::Mov {
                ty: ScalarType::B32,
                d: d.into(),
                a: super::builder::sources(&halves),
            });
        }
        if bits == 8
            && let Some(word) = self.pack_bytes(elements)
        {
            return word;
        }
        // Joins bytes to halves, then halves to words.
        let mut parts: SmallVec<[Scalar; 16]> = elements.into();
        let mut selector = if bits == 8 { 0x0040 } else { 0x5410 };
        while parts.len() > 1 {
            parts = parts.chunks(2).map(|pair| self.permute(pair[0], pair[1], selector)).collect();
            selector = 0x5410;
        }
        parts[0]
    }

    /// Selects four of the eight bytes of `a` and `b`, by `prmt`.
    pub fn permute(&mut self, a: Scalar, b: Scalar, selector: u32) -> Scalar {
        let (a, b) = (self.source(Width::B32, a), self.source(Width::B32, b));
        let c = i64::from(selector).into();
        self.pure(Width::B32, |d| isa::Prmt { ty: ScalarType::B32, mode: None, d, a, b, c })
    }
}

impl Lowering<'_> {
    /// Raises the module's PTX version to that of an access to these words.
    fn raise_version(&mut self, words: Words) {
        if words.bytes() > ACCESS_BYTES {
            self.module.version = self.module.version.max(WIDE_SINCE);
        }
    }

    /// Returns an access's priority in L1, and the register of its L2 policy. Passes merge equal
    /// policies and hoist them.
    fn eviction(&mut self, policy: Policy) -> Option<(L1Eviction, CachePolicy)> {
        let (first, primary) = policy.eviction().filter(|_| self.has(Feature::CachePolicy))?;
        let second = self.builder.pure(Width::B64, |d| isa::CreatepolicyFractional {
            primary,
            secondary: None,
            ty: ScalarType::B64,
            d,
            fraction: None,
        });
        Some((first, CachePolicy(self.builder.source(Width::B64, second))))
    }

    /// Converts a loaded element to its register: a boolean becomes a predicate.
    pub(super) fn register_form(&mut self, element: Element, loaded: Scalar) -> Scalar {
        if element == Element::Value(Dtype::I1) {
            self.builder.compare(Width::B32, true, Comparison::Ne, loaded, Scalar::constant(0))
        } else {
            loaded
        }
    }

    /// Converts an element for a store to memory: a predicate becomes 0 or 1.
    pub(super) fn memory_form(&mut self, element: Element, scalar: Scalar) -> Scalar {
        if element == Element::Value(Dtype::I1) {
            self.builder.select(Width::B32, scalar, Scalar::constant(1), Scalar::constant(0))
        } else {
            scalar
        }
    }

    /// Returns the registers of each access of an op on pointers with this layout. An access has at
    /// most `width` elements along `axis`.
    pub(super) fn accesses(layout: Option<&Layout>, [axis, width]: [u32; 2]) -> Vec<SmallVec<[u32; 16]>> {
        let Some(layout) = layout else { return vec![SmallVec::from_slice(&[0])] };
        let vector = layout.vector_along(axis as usize).at_most(width);
        (0..vector.accesses()).map(|number| vector.registers(number)).collect()
    }

    pub(super) fn lower_load(
        &mut self,
        inst: Inst,
        pointer: Value,
        [mask, other]: [Option<Value>; 2],
        (vector, equal_registers): ([u32; 2], u32),
        policy: Policy,
    ) {
        let layout = self.layout_of(pointer);
        let pointers = self.get(pointer);
        let masks = mask.map(|mask| self.get_in(mask, layout));
        let others = other.map(|other| self.get_in(other, layout));
        let result = self.kernel.insts[inst].results[0];
        let element = self.element(result);
        let mut loaded = vec![None; pointers.len()];
        for registers in Self::accesses(layout, vector) {
            let same = |&register: &u32| loaded[(register & !equal_registers) as usize];
            if let Some(before) = registers.iter().map(same).collect::<Option<SmallVec<[Scalar; 16]>>>() {
                for (&register, value) in registers.iter().zip(before) {
                    loaded[register as usize] = Some(value);
                }
                continue;
            }
            let first = registers[0] as usize;
            let mask = masks.as_ref().map_or(Scalar::TRUE, |masks| masks[first]);
            let other = |register: u32| {
                others.as_ref().map_or(Scalar::constant(0), |others| others[register as usize])
            };
            let others: SmallVec<[Scalar; 16]> = registers.iter().map(|&register| other(register)).collect();
            let elements = self.load_elements(element, pointers[first], mask, &others, policy);
            for (&register, value) in registers.iter().zip(elements) {
                loaded[register as usize] = Some(value);
            }
        }
        let scalars = spread(&loaded, layout);
        self.set(result, scalars);
    }

    /// Emits one load of consecutive elements. Returns the loaded elements, or `others` if the mask
    /// is false.
    pub(super) fn load_elements(
        &mut self,
        element: Element,
        pointer: Scalar,
        mask: Scalar,
        others: &[Scalar],
        policy: Policy,
    ) -> SmallVec<[Scalar; 16]> {
        if mask == Scalar::FALSE {
            return others.into();
        }
        let words = Words::new(element, others.len());
        self.raise_version(words);
        let registers: SmallVec<[isa::RegisterId; 8]> =
            (0..words.count).map(|_| self.builder.fresh(words.width())).collect();
        let mut guard = None;
        if mask != Scalar::TRUE {
            for (&register, elements) in registers.iter().zip(others.chunks(words.elements)) {
                let elements: SmallVec<[Scalar; 16]> =
                    elements.iter().map(|&other| self.memory_form(element, other)).collect();
                let word = self.builder.pack(words, &elements);
                let word = self.builder.source(words.width(), word);
                self.builder.emit(move_to(words.width(), register, word));
            }
            guard = Some(self.builder.predicate(mask));
        }
        let address = self.builder.address(Width::B64, pointer);
        let eviction = self.eviction(policy);
        let load = Ld {
            semantics: policy.load_semantics(),
            scope: policy.scope(),
            space: Some(StateSpace::Global),
            cache: policy.load_cache(),
            l1_eviction: eviction.map(|(first, _)| first),
            cache_hint: eviction.is_some(),
            policy: eviction.map(|(_, second)| second),
            vector: words.vector(),
            ..plain_load(super::builder::destinations(&registers), address, words.ty())
        };
        self.builder.emit_if(guard, load);
        let mut elements = SmallVec::new();
        for register in registers {
            for loaded in self.builder.unpack(words, register.into()) {
                elements.push(self.register_form(element, loaded));
            }
        }
        elements
    }

    pub(super) fn lower_store(
        &mut self,
        [pointer, value]: [Value; 2],
        mask: Option<Value>,
        vector: [u32; 2],
        policy: Policy,
    ) {
        let layout = self.layout_of(pointer);
        let (pointers, values) = (self.get(pointer), self.get_in(value, layout));
        let masks = mask.map(|mask| self.get_in(mask, layout));
        // All lanes and warps but the first are redundant for a scalar.
        let [lanes, warps] = layout.map_or([LANES - 1, self.warps.count.next_power_of_two() - 1], |layout| {
            [Input::Lane, Input::Warp].map(|input| layout.free_bits(input))
        });
        let is_first = self.is_first(lanes, warps);
        let element = self.element(value);
        for registers in Self::accesses(layout, vector) {
            let first = registers[0] as usize;
            let mask = masks.as_ref().map_or(Scalar::TRUE, |masks| masks[first]);
            let mask = self.builder.and(mask, is_first);
            if mask == Scalar::FALSE {
                continue;
            }
            let words = Words::new(element, registers.len());
            self.raise_version(words);
            let elements: SmallVec<[Scalar; 16]> = registers
                .iter()
                .map(|&register| self.memory_form(element, values[register as usize]))
                .collect();
            let address = self.builder.address(Width::B64, pointers[first]);
            let packed = self.words(words, &elements);
            let guard = (mask != Scalar::TRUE).then(|| self.builder.predicate(mask));
            let eviction = self.eviction(policy);
            let store = St {
                semantics: policy.store_semantics(),
                scope: policy.scope(),
                space: Some(StateSpace::Global),
                cache: policy.store_cache(),
                l1_eviction: eviction.map(|(first, _)| first),
                cache_hint: eviction.is_some(),
                policy: eviction.map(|(_, second)| second),
                vector: words.vector(),
                ..plain_store(address, packed, store_type(words))
            };
            self.builder.emit_if(guard, store);
        }
    }

    /// Packs elements into words, the operands of a store.
    pub(super) fn words(&mut self, words: Words, elements: &[Scalar]) -> Sources {
        let mut packed = SmallVec::new();
        for elements in elements.chunks(words.elements) {
            let word = self.builder.pack(words, elements);
            packed.push(Source::Register(self.builder.register(words.width(), word)));
        }
        Sources(packed)
    }

    /// Stores elements to consecutive addresses of shared memory.
    pub(super) fn store_shared(
        &mut self,
        guard: Option<Predicate>,
        element: Element,
        address: Scalar,
        elements: &[Scalar],
    ) {
        let elements: SmallVec<[Scalar; 16]> =
            elements.iter().map(|&scalar| self.memory_form(element, scalar)).collect();
        let words = Words::new(element, elements.len());
        let address = self.builder.address(Width::B32, address);
        let packed = self.words(words, &elements);
        let store = St {
            space: Some(StateSpace::Shared),
            vector: words.vector(),
            ..plain_store(address, packed, store_type(words))
        };
        self.builder.emit_if(guard, store);
    }

    /// Loads elements from consecutive addresses of shared memory.
    pub(super) fn load_shared(
        &mut self,
        element: Element,
        address: Scalar,
        count: usize,
    ) -> SmallVec<[Scalar; 16]> {
        self.load_shared_of(StateSpace::Shared, element, address, count)
    }

    /// Loads elements from consecutive addresses of shared memory. The memory is that of this
    /// block, or of one of the cluster (`.shared::cluster`).
    pub(super) fn load_shared_of(
        &mut self,
        space: StateSpace,
        element: Element,
        address: Scalar,
        count: usize,
    ) -> SmallVec<[Scalar; 16]> {
        let words = Words::new(element, count);
        let registers: SmallVec<[isa::RegisterId; 8]> =
            (0..words.count).map(|_| self.builder.fresh(words.width())).collect();
        let address = self.builder.address(Width::B32, address);
        let load = Ld {
            space: Some(space),
            vector: words.vector(),
            ..plain_load(super::builder::destinations(&registers), address, words.ty())
        };
        self.builder.emit(load);
        let mut elements = SmallVec::new();
        for register in registers {
            for loaded in self.builder.unpack(words, register.into()) {
                elements.push(self.register_form(element, loaded));
            }
        }
        elements
    }

    /// Returns the 32-bit address of the byte at this offset in shared memory.
    pub(super) fn shared_address(&mut self, offset: u32) -> Scalar {
        let symbol = self.shared_symbol();
        let base = self
            .builder
            .pure(Width::B32, |d| move_to(Width::B32, d, Source::Symbol(isa::Symbol::Global(symbol), 0)));
        base.plus(Width::B32, offset.into())
    }

    /// Lowers the addition of offsets to pointers.
    pub(super) fn lower_ptr_add(&mut self, inst: Inst, pointer: Value, offset: Value) {
        let result = self.kernel.insts[inst].results[0];
        let layout = self.layout_of(result);
        let (pointers, offsets) = (self.get_in(pointer, layout), self.get_in(offset, layout));
        let size = self.element(pointer).pointee().map_or(1, Dtype::bytes) as u64;
        let dtype = self.ty(offset).dtype().expect("an offset is a number");
        let is_beside_product = self.between_dots.contains(result);
        let add = |(pointer, offset): (&Scalar, &Scalar)| {
            let bytes = if dtype.bits() == 64 {
                self.builder.mul(Width::B64, *offset, Scalar::constant(size))
            } else if is_beside_product && dtype == Dtype::I32 {
                self.builder.mul_halves(*offset, size)
            } else {
                self.builder.mul_wide(dtype.is_signed(), *offset, size, dtype.is_signed())
            };
            self.builder.add(Width::B64, *pointer, bytes)
        };
        let scalars: Vec<Scalar> = pointers.iter().zip(offsets.iter()).map(add).collect();
        self.set_result(inst, scalars);
    }
}

fn store_type(words: Words) -> ScalarType {
    match words.bits {
        8 => ScalarType::B8,
        16 => ScalarType::B16,
        32 => ScalarType::B32,
        _ => ScalarType::B64,
    }
}

/// Copies loaded registers to registers with the same element.
pub(super) fn spread(loaded: &[Option<Scalar>], layout: Option<&Layout>) -> Vec<Scalar> {
    let held = |register: usize| layout.map_or(0, |layout| layout.at(&[(Input::Register, register as u32)]));
    let find = |register: usize| {
        let original =
            || (0..loaded.len()).find(|&other| loaded[other].is_some() && held(other) == held(register));
        loaded[register].or_else(|| loaded[original()?])
    };
    (0..loaded.len()).map(|register| find(register).expect("the accesses cover every element")).collect()
}
