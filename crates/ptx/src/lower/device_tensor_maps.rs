//! Makes tensor maps in the kernel.
//!
//! PTX ISA: "Data Movement and Conversion Instructions: `tensormap.replace`" and
//! "`tensormap.cp_fenceproxy`".
//!
//! ```text
//! st.shared …, 0 ; bar.warp.sync                  the lanes of the first warp clear the template
//! tensormap.replace.tile.global_address … ; …     one lane fills the template
//! bar.warp.sync
//! tensormap.cp_fenceproxy.global.shared::cta …    copies it to the map memory of the block
//! fence.proxy.tensormap::generic.acquire.gpu …    makes the map visible to copies of this warp
//! ```
//! **Map memory.** A map in use is in global memory. The module has an array with an entry for each
//! block that the device can run at once. An entry contains all maps of a block. A word for each
//! multiprocessor marks used entries. A block claims a free entry when it begins, preferably of its
//! multiprocessor, and releases it when it ends. So the launcher passes no memory, even in graphs
//! and with several streams. No block waits for another, because entries suffice.
//!
//! **Empty tensors.** No map can describe an empty tensor. The kernel makes a map of one element
//! instead, which is 0 or NaN. No thread writes this element.

use tilewright_gpu_ir::Feature;
use tilewright_gpu_ir::{LaunchInteger, SwizzleMode, TENSOR_MAP_BYTES, TensorMapPlan};
use tilewright_ir::{Dtype, Inst, Value};

use super::builder::{Scalar, Width, destinations, move_to, sources};
use super::control::jump;
use super::integer::Bitwise;
use super::memory::{plain_load, plain_store};
use super::{LANES, Lowered, Lowering};
use crate::isa::{
    self, Address, AtomicOperation, Comparison, GlobalId, Immediate, Initializer, LoadSemantics, Predicate,
    RegisterId, ScalarType, Scope, Semantics, Source, SpecialRegister, StateSpace, Symbol, TensormapField,
    Variable,
};

/// The names of the module's variables for maps.
const MAP_MEMORY: &str = "tensor_maps_made";
const TAKEN: &str = "tensor_maps_taken";
const EMPTY: &str = "tensor_of_nothing";
/// The name of the variable for an empty tensor that is filled with NaN.
const NAN: &str = "tensor_of_nan";
/// The words of used entries: one for each multiprocessor of the largest device.
const WORDS: u64 = 256;
/// The largest number of threads of a multiprocessor.
const MAX_THREADS: u32 = 2048;
/// The first PTX version with the instructions on tensor maps.
const SINCE: (u32, u32) = (8, 3);
/// The largest extent: coordinates have 31 bits.
const MAX_EXTENT: u64 = i32::MAX as u64;

/// The map memory of a block.
#[derive(Clone, Copy)]
pub(super) struct MapMemory {
    /// The index of the entry that the block has claimed.
    place: RegisterId,
}

/// A field of a map.
pub(super) struct Field {
    name: TensormapField,
    dimension: Option<u32>,
    value: Source,
}

impl Field {
    fn replace(&self, address: Address) -> isa::TensormapReplace {
        let is_wide = matches!(self.name, TensormapField::GlobalAddress | TensormapField::GlobalStride);
        let (value, dimension_value) = match self.dimension {
            Some(dimension) => (Source::from(i64::from(dimension)), Some(self.value)),
            None => (self.value, None),
        };
        isa::TensormapReplace {
            field: self.name,
            space: Some(StateSpace::SharedCta),
            map_ty: ScalarType::B1024,
            ty: if is_wide { ScalarType::B64 } else { ScalarType::B32 },
            address,
            value,
            dimension_value,
        }
    }
}

/// A map that is made together with other pending maps.
pub(super) struct PendingMap {
    /// The address of the template in shared memory. This lane clears the word `word` of it.
    template: Address,
    word: Address,
    /// The map's address in global space; `map` is its generic address.
    map_memory: Address,
    map: Address,
    fields: Vec<Field>,
}

impl Lowering<'_> {
    /// Returns the number of entries of a word. This is the most blocks of a multiprocessor, as a
    /// power of two up to 32.
    fn places_of_word(&self) -> u32 {
        let threads = self.program.header.num_warps * LANES;
        (MAX_THREADS / threads).next_power_of_two().clamp(1, u32::BITS)
    }

    fn variable(&mut self, name: &str, bytes: u64, alignment: u32) -> GlobalId {
        let known = self.module.globals.iter().find(|(_, variable)| variable.name == name);
        let known = known.map(|(id, _)| id);
        known.unwrap_or_else(|| {
            let variable = Variable::array(name, StateSpace::Global, ScalarType::B8, bytes, alignment);
            self.module.globals.push(variable)
        })
    }

    /// Returns the variable with the element of an empty tensor that is filled with NaN.
    fn nan(&mut self) -> GlobalId {
        let variable = self.variable(NAN, 16, 16);
        // A float with all bits set is NaN.
        self.module.globals[variable].initializer = vec![Initializer::Value(Immediate::Integer(0xff)); 16];
        variable
    }

    fn address_of(&mut self, variable: GlobalId) -> Scalar {
        let symbol = Source::Symbol(Symbol::Global(variable), 0);
        self.builder.pure(Width::B64, |d| move_to(Width::B64, d, symbol))
    }

    /// Returns the address of the word `number` of the bits of used entries.
    fn word_of(&mut self, number: Scalar) -> Address {
        let variable = self.variable(TAKEN, WORDS * 4, 16);
        let start = self.address_of(variable);
        let number = self.wide(number, false);
        let distance = self.builder.shl(Width::B64, number, 2);
        let address = self.builder.add(Width::B64, start, distance);
        self.builder.address(Width::B64, address)
    }

    /// Extends a 32-bit number to 64 bits.
    fn wide(&mut self, number: Scalar, signed: bool) -> Scalar {
        if let Some(bits) = number.as_constant() {
            let bits = if signed { Width::B32.signed(bits) as u64 } else { bits };
            return Scalar::constant(bits);
        }
        let from = if signed { ScalarType::S32 } else { ScalarType::U32 };
        let to = if signed { ScalarType::S64 } else { ScalarType::U64 };
        let a = self.builder.source(Width::B32, number);
        self.builder.pure(Width::B64, |d| super::integer::convert(to, from, d, a))
    }

    /// Emits a jump to `end` for the threads that are not in the first warp.
    fn skip_other_warps(&mut self, end: isa::LabelId) {
        if self.warps.count > 1 {
            let (thread, lanes) = (self.thread(), Scalar::constant(LANES.into()));
            let is_other = self.builder.compare(Width::B32, false, Comparison::Ge, thread, lanes);
            let is_other = self.builder.predicate(is_other);
            self.builder.emit_if(Some(is_other), jump(end));
        }
    }

    /// Claims an entry for the maps of this block. The lanes of the first warp get its index.
    pub(super) fn claim_map_memory(&mut self) {
        if self.program.header.made_maps.is_empty() {
            return;
        }
        self.module.version = self.module.version.max(SINCE);
        let (word, found) = (self.builder.fresh(Width::B32), self.builder.fresh(Width::B32));
        let place = self.builder.fresh(Width::B32);
        self.builder.assign(Width::B32, place, Scalar::constant(0));
        let [end, taken] = ["room", "place"].map(|name| self.builder.label(name));
        let elected = self.elected();
        self.skip_other_warps(end);
        self.builder.emit_if(Some(Predicate { negated: !elected.negated, ..elected }), jump(taken));
        self.builder.emit(move_to(Width::B32, word, SpecialRegister::SmId.into()));
        self.claim_bit(word, found, place);
        self.builder.place(taken);
        // The elected lane has the result; the other lanes have 0.
        self.builder.emit(isa::BarWarpSync { mask: (-1).into() });
        let all = self.builder.pure(Width::B32, |d| isa::Redux {
            operation: isa::WarpReduction::Or,
            abs: false,
            nan: false,
            ty: ScalarType::B32,
            d,
            a: place.into(),
            mask: (-1).into(),
        });
        self.builder.assign(Width::B32, place, all);
        self.builder.place(end);
        self.map_memory = Some(MapMemory { place });
    }

    /// Claims the lowest free bit of a word, or of a later word. Sets `place` to the entry's index.
    fn claim_bit(&mut self, word: RegisterId, found: RegisterId, place: RegisterId) {
        let places = self.places_of_word();
        let [again, full] = ["take", "full"].map(|name| self.builder.label(name));
        self.builder.place(again);
        let within = self.builder.bitwise(Bitwise::And, Width::B32, word.into(), Scalar::constant(WORDS - 1));
        self.builder.assign(Width::B32, word, within);
        let address = self.word_of(word.into());
        self.builder.emit(isa::Ld {
            semantics: Some(LoadSemantics::Relaxed),
            scope: Some(Scope::Gpu),
            space: Some(StateSpace::Global),
            ..plain_load(found.into(), address, ScalarType::B32)
        });
        let of_word = Scalar::constant(u64::from(u32::MAX >> (u32::BITS - places)));
        let ones = Scalar::constant(u64::from(u32::MAX));
        let free = self.builder.bitwise(Bitwise::Xor, Width::B32, found.into(), ones);
        let free = self.builder.bitwise(Bitwise::And, Width::B32, free, of_word);
        let is_full = self.builder.compare(Width::B32, false, Comparison::Eq, free, Scalar::constant(0));
        let is_full = self.builder.predicate(is_full);
        self.builder.emit_if(Some(is_full), jump(full));
        let negative = self.builder.sub(Width::B32, Scalar::constant(0), free);
        let bit = self.builder.bitwise(Bitwise::And, Width::B32, free, negative);
        let bit_register = self.builder.register(Width::B32, bit);
        self.builder.emit(isa::Atom {
            semantics: Some(Semantics::Acquire),
            scope: Some(Scope::Gpu),
            space: Some(StateSpace::Global),
            operation: AtomicOperation::Or,
            no_ftz: false,
            cache_hint: false,
            vector: None,
            ty: ScalarType::B32,
            d: destinations(&[found]),
            address,
            b: sources(&[bit_register]),
            c: None,
            policy: None,
        });
        let was = self.builder.bitwise(Bitwise::And, Width::B32, found.into(), bit);
        let is_lost = self.builder.compare(Width::B32, false, Comparison::Ne, was, Scalar::constant(0));
        let is_lost = self.builder.predicate(is_lost);
        self.builder.emit_if(Some(is_lost), jump(again));
        let number = self.builder.pure(Width::B32, |d| isa::Bfind {
            shift_amount: false,
            ty: ScalarType::U32,
            d,
            a: bit_register.into(),
        });
        let first = self.builder.mul(Width::B32, word.into(), Scalar::constant(places.into()));
        let number = self.builder.add(Width::B32, first, number);
        self.builder.assign(Width::B32, place, number);
        let done = self.builder.label("taken");
        self.builder.emit(jump(done));
        self.builder.place(full);
        self.builder.assign(Width::B32, word, Scalar::from(word).plus(Width::B32, 1));
        self.builder.emit(jump(again));
        self.builder.place(done);
    }

    /// Releases the entry when the block ends. No copy in flight uses its maps.
    pub(super) fn release_map_memory(&mut self) {
        let Some(MapMemory { place }) = self.map_memory else { return };
        let places = self.places_of_word();
        let elected = self.elected();
        let number = self.builder.shr(Width::B32, false, place.into(), places.trailing_zeros());
        let bit = self.builder.bitwise(
            Bitwise::And,
            Width::B32,
            place.into(),
            Scalar::constant(u64::from(places - 1)),
        );
        let bit = self.builder.source(Width::B32, bit);
        let bit = self.builder.pure(Width::B32, |d| isa::Shl { ty: ScalarType::B32, d, a: 1.into(), b: bit });
        let ones = Scalar::constant(u64::from(u32::MAX));
        let others = self.builder.bitwise(Bitwise::Xor, Width::B32, bit, ones);
        let others = self.builder.register(Width::B32, others);
        let address = self.word_of(number);
        let red = isa::Red {
            semantics: Some(Semantics::Release),
            scope: Some(Scope::Gpu),
            space: Some(StateSpace::Global),
            operation: AtomicOperation::And,
            no_ftz: false,
            cache_hint: false,
            vector: None,
            ty: ScalarType::B32,
            address,
            b: sources(&[others]),
            policy: None,
        };
        self.builder.emit_if(Some(elected), red);
    }

    /// Records a map, which [`Self::make_maps`] makes in the map memory of the block.
    pub(super) fn lower_make_tensor_map(
        &mut self,
        inst: Inst,
        buffer: Value,
        parts: &[Value],
        number: u32,
    ) -> Lowered {
        self.require(inst, Feature::Tma)?;
        let count = self.program.header.made_maps.len() as u64;
        let plan = &self.program.header.made_maps[number as usize];
        let Some(fields) = self.fields(plan, parts) else {
            return Err(self.unsupported(inst, "a tensor map without a box"));
        };
        let bytes = u64::from(TENSOR_MAP_BYTES) * count;
        let places = WORDS * u64::from(self.places_of_word());
        let map_memory = self.variable(MAP_MEMORY, places * bytes, TENSOR_MAP_BYTES);
        let start = self.address_of(map_memory);
        let place = self.map_memory.expect("a kernel that makes maps claims an entry first").place;
        let place = self.wide(place.into(), false);
        let distance = self.builder.mul(Width::B64, place, Scalar::constant(bytes));
        let own = self.builder.add(Width::B64, start, distance);
        let own = own.plus(Width::B64, u64::from(TENSOR_MAP_BYTES * number));
        let own = self.builder.register(Width::B64, own);
        let generic = self.builder.pure(Width::B64, |d| isa::Cvta {
            to: false,
            space: StateSpace::Global,
            ty: ScalarType::U64,
            d,
            a: Source::Register(own),
        });
        let template = self.scalar(buffer);
        let lane = self.special(SpecialRegister::LaneId);
        let word = self.builder.shl(Width::B32, lane, 2);
        let word = self.builder.add(Width::B32, template, word);
        let word = self.builder.address(Width::B32, word);
        let template = self.builder.address(Width::B32, template);
        let [map_memory, map] =
            [Scalar::from(own), generic].map(|place| self.builder.address(Width::B64, place));
        self.pending_maps.push(PendingMap { template, word, map_memory, map, fields });
        let result = self.kernel.insts[inst].results[0];
        self.set(result, [generic]);
        Ok(())
    }

    /// Makes the recorded maps together in the first warp, so that their latencies overlap.
    pub(super) fn make_maps(&mut self) {
        let maps = std::mem::take(&mut self.pending_maps);
        if maps.is_empty() {
            return;
        }
        let elected = self.elected();
        let end = self.builder.label("made");
        self.skip_other_warps(end);
        let zero = self.builder.register(Width::B32, Scalar::constant(0));
        for map in &maps {
            self.builder.emit(isa::St {
                space: Some(StateSpace::SharedCta),
                ..plain_store(map.word, sources(&[zero]), ScalarType::B32)
            });
        }
        self.builder.emit(isa::BarWarpSync { mask: (-1).into() });
        // Fields of one map share words and wait for each other, so alternate between maps.
        let longest = maps.iter().map(|map| map.fields.len()).max().unwrap_or(0);
        for place in 0..longest {
            for map in &maps {
                if let Some(field) = map.fields.get(place) {
                    self.builder.emit_if(Some(elected), field.replace(map.template));
                }
            }
        }
        self.builder.emit(isa::BarWarpSync { mask: (-1).into() });
        let size: Source = i64::from(TENSOR_MAP_BYTES).into();
        for map in &maps {
            self.builder.emit(isa::TensormapCpFenceproxy {
                destination_space: StateSpace::Global,
                source_space: StateSpace::SharedCta,
                tensormap_generic: true,
                semantics: Semantics::Release,
                scope: Scope::Gpu,
                sync_aligned: true,
                destination: map.map_memory,
                source: map.template,
                size,
            });
        }
        for map in &maps {
            self.builder.emit(isa::FenceProxyTensormap {
                semantics: Semantics::Acquire,
                scope: Scope::Gpu,
                address: Some(map.map),
                size: Some(size),
            });
        }
        self.builder.place(end);
    }

    /// Returns the fields of a map, with their values. Dimension 0 is contiguous. Returns `None`
    /// without a box or a contiguous axis.
    fn fields(&mut self, plan: &TensorMapPlan, parts: &[Value]) -> Option<Vec<Field>> {
        use TensormapField as F;
        let copied = plan.copied.as_ref()?;
        let contiguous = plan.contiguous_axis()?;
        let rest = (0..plan.extents.len()).rev().filter(|axis| *axis != contiguous);
        let order: Vec<usize> = [contiguous].into_iter().chain(rest).collect();
        let bytes = Scalar::constant(plan.element.bytes() as u64);
        let mut is_empty = Scalar::FALSE;
        let mut extents = Vec::new();
        for axis in &order {
            let extent = self.launch_integer(&plan.extents[*axis], parts);
            let none = self.builder.compare(Width::B64, true, Comparison::Lt, extent, Scalar::constant(1));
            is_empty = self.builder.bitwise(Bitwise::Or, Width::Pred, is_empty, none);
            extents.push(extent);
        }
        let base = self.scalar(parts[plan.base as usize]);
        let distance = self.launch_integer(&plan.offset, parts);
        let distance = self.builder.mul(Width::B64, distance, bytes);
        let base = self.builder.add(Width::B64, base, distance);
        let nothing = if copied.fills_nan { self.nan() } else { self.variable(EMPTY, 16, 16) };
        let nothing = self.address_of(nothing);
        let base = self.builder.select(Width::B64, is_empty, nothing, base);
        let mut fields = vec![(F::GlobalAddress, None, self.builder.source(Width::B64, base))];
        fields.push((F::Rank, None, (order.len() as i64 - 1).into()));
        for ((dimension, axis), extent) in (0..).zip(&order).zip(extents) {
            let longest = Scalar::constant(MAX_EXTENT);
            let is_long = self.builder.compare(Width::B64, true, Comparison::Gt, extent, longest);
            let extent = self.builder.select(Width::B64, is_long, longest, extent);
            let extent = self.builder.select(Width::B64, is_empty, Scalar::constant(1), extent);
            let extent = self.split_words(Width::B64, extent)[0];
            fields.push((F::BoxDim, Some(dimension), i64::from(copied.extents[*axis]).into()));
            fields.push((F::GlobalDim, Some(dimension), self.builder.source(Width::B32, extent)));
            fields.push((F::ElementStride, Some(dimension), 1.into()));
            if dimension > 0 {
                let stride = self.launch_integer(&plan.strides[*axis], parts);
                let stride = self.builder.mul(Width::B64, stride, bytes);
                let stride = self.builder.source(Width::B64, stride);
                fields.push((F::GlobalStride, Some(dimension - 1), stride));
            }
        }
        fields.push((F::Elemtype, None, element_number(plan.element).into()));
        fields.push((F::InterleaveLayout, None, 0.into()));
        let swizzle = match copied.swizzle {
            SwizzleMode::None => 0,
            SwizzleMode::Bytes32 => 1,
            SwizzleMode::Bytes64 => 2,
            SwizzleMode::Bytes128 => 3,
        };
        fields.push((F::SwizzleMode, None, swizzle.into()));
        fields.push((F::FillMode, None, i64::from(copied.fills_nan).into()));
        Some(fields.into_iter().map(|(name, dimension, value)| Field { name, dimension, value }).collect())
    }

    /// Evaluates a sum of products of the operands `parts` in 64 bits.
    fn launch_integer(&mut self, sum: &LaunchInteger, parts: &[Value]) -> Scalar {
        let mut so_far = Scalar::constant(0);
        for product in &sum.0 {
            let mut term = Scalar::constant(product.factor as u64);
            for number in &product.arguments {
                let part = parts[*number as usize];
                let value = self.scalar(part);
                let value = match self.width(part) {
                    Width::B64 => value,
                    // tidy: wildcard because the verifier accepts only integers of 32 and 64 bits
                    _ => self.wide(value, true),
                };
                term = self.builder.mul(Width::B64, term, value);
            }
            so_far = self.builder.add(Width::B64, so_far, term);
        }
        so_far
    }
}

/// Returns the code of an element type for `tensormap.replace`.
fn element_number(element: Dtype) -> i64 {
    match element {
        // Minimum and maximum depend on the sign.
        Dtype::I32 => 3,
        Dtype::I64 => 5,
        Dtype::F16 => 6,
        Dtype::F32 => 7,
        Dtype::F64 => 9,
        Dtype::BF16 => 10,
        other => match other.bytes() {
            1 => 0,
            2 => 1,
            4 => 2,
            _ => 4,
        },
    }
}
