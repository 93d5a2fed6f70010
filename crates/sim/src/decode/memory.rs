//! Decodes loads and stores.

use smallvec::SmallVec;
use tilewright_ptx::isa::{
    self, Destinations, LoadSemantics, ScalarType, Sources, StateSpace, StoreSemantics, VectorWidth,
};
use tilewright_sanitize::Mode;

use super::{Action, Class, Decoded, Decoder};
use crate::asynchronous::Pointer;
use crate::context::{AddressSpace, Context, Flow, ResolvedAddress};
use crate::events::EventKind;
use crate::fault::{OfLane, Outcome};
use crate::numeric::{low, signed};
use crate::registers::{Slot, lanes_of};
use crate::watch::{Order, Touch, mode};

#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "they are modifiers of the opcode")]
struct Transfer {
    address: Pointer,
    /// The registers and their widths in bits.
    registers: SmallVec<[(Slot, u32); 4]>,
    /// The size of an element in bytes, 1 to 16.
    element: usize,
    /// True if a loaded element is sign-extended.
    signed: bool,
    is_atomic: bool,
    mode: Mode,
    acquires: bool,
    releases: bool,
}

fn class(space: AddressSpace, is_store: bool) -> Class {
    match (space, is_store) {
        (AddressSpace::Generic | AddressSpace::Global, false) => Class::GlobalLoad,
        (AddressSpace::Generic | AddressSpace::Global, true) => Class::GlobalStore,
        (AddressSpace::Shared, false) => Class::SharedLoad,
        (AddressSpace::Shared, true) => Class::SharedStore,
        (AddressSpace::Local, _) => Class::Local,
        (AddressSpace::Param, _) => Class::Parameter,
    }
}

impl Decoder<'_> {
    pub(super) fn decode_ld(&mut self, i: &isa::Ld) -> Decoded {
        let transfer = Transfer {
            is_atomic: !matches!(i.semantics, None | Some(LoadSemantics::Weak)),
            mode: mode(!matches!(i.semantics, None | Some(LoadSemantics::Weak)), i.scope),
            acquires: i.semantics == Some(LoadSemantics::Acquire),
            ..self.loaded(&i.d, &i.address, (i.space, i.vector, i.ty))?
        };
        let is_global = matches!(transfer.address.space, AddressSpace::Generic | AddressSpace::Global);
        self.may_wait_for_others |= transfer.is_atomic && is_global;
        Ok(Action::Execute(Box::new(move |context: &mut Context<'_>| transfer.load(context))))
    }

    pub(super) fn decode_ldu(&mut self, i: &isa::Ldu) -> Decoded {
        let transfer = self.loaded(&i.d, &i.address, (i.space, i.vector, i.ty))?;
        Ok(Action::Execute(Box::new(move |context: &mut Context<'_>| transfer.load(context))))
    }

    fn loaded(
        &mut self,
        d: &Destinations,
        address: &isa::Address,
        (space, _vector, ty): (Option<StateSpace>, Option<VectorWidth>, ScalarType),
    ) -> Decoded<Transfer> {
        let address = self.address(address, space)?;
        self.class =
            if space == Some(StateSpace::Const) { Class::Parameter } else { class(address.space, false) };
        let registers = self.destinations(d).into();
        let (element, signed) = (ty.bytes() as usize, ty.is_signed());
        self.note_access(address.space, element);
        let (is_atomic, acquires, releases) = (false, false, false);
        Ok(Transfer { address, registers, element, signed, is_atomic, mode: Mode::Plain, acquires, releases })
    }

    pub(super) fn decode_st(&mut self, i: &isa::St) -> Decoded {
        let address = self.address(&i.address, i.space)?;
        self.class = class(address.space, true);
        let transfer = Transfer {
            address,
            registers: self.stored(&i.b, i.ty)?,
            element: i.ty.bytes() as usize,
            signed: false,
            is_atomic: !matches!(i.semantics, None | Some(StoreSemantics::Weak)),
            mode: mode(!matches!(i.semantics, None | Some(StoreSemantics::Weak)), i.scope),
            acquires: false,
            releases: i.semantics == Some(StoreSemantics::Release),
        };
        self.note_access(address.space, transfer.element);
        Ok(Action::Execute(Box::new(move |context: &mut Context<'_>| transfer.store(context))))
    }

    /// Updates `Program::least_access` for an access that may be to global memory.
    pub(super) fn note_access(&mut self, space: AddressSpace, element: usize) {
        if matches!(space, AddressSpace::Generic | AddressSpace::Global) {
            self.least_access = self.least_access.min(element);
        }
    }

    fn stored(&mut self, sources: &Sources, ty: ScalarType) -> Decoded<SmallVec<[(Slot, u32); 4]>> {
        Ok(self.sources(sources, ty)?.into_iter().map(|slot| (slot, ty.bits())).collect())
    }
}

impl Transfer {
    fn bytes(&self) -> usize {
        self.element * self.registers.len()
    }

    fn load(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let bytes = self.bytes();
        let mut places = AccessAddresses::default();
        let mut buffer = [0; 64];
        for lane in lanes_of(context.lanes) {
            let place = context.locate(self.address.space, self.address.at(context, lane));
            context.record_access(EventKind::Load, place, lane, bytes);
            context.read(place, lane, bytes as u32, self.is_atomic, &mut buffer[..bytes]).of_lane(lane)?;
            places.push(lane, place);
            for (element, (slot, width)) in buffer.chunks_exact(self.element).zip(&self.registers) {
                let value = little_endian(element) as u64;
                let bits = 8 * self.element as u32;
                let value = if self.signed { low(signed(value, bits) as u64, *width) } else { value };
                context.set(*slot, lane, value);
                if self.element == 16 {
                    context.set(slot.next(), lane, (little_endian(element) >> 64) as u64);
                }
            }
            if self.is_atomic {
                context.observe(place, self.acquires);
            }
            self.watch(context, place, lane, None);
        }
        places.count(context, bytes, false);
        Ok(Flow::Next)
    }

    fn store(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let bytes = self.bytes();
        let mut places = AccessAddresses::default();
        let mut buffer = [0; 64];
        let mut stored = Vec::new();
        for lane in lanes_of(context.lanes) {
            let place = context.locate(self.address.space, self.address.at(context, lane));
            for (element, (slot, _)) in buffer.chunks_exact_mut(self.element).zip(&self.registers) {
                let mut value = u128::from(context.get(*slot, lane));
                if self.element == 16 {
                    value |= u128::from(context.get(slot.next(), lane)) << 64;
                }
                element.copy_from_slice(&value.to_le_bytes()[..element.len()]);
            }
            if self.is_atomic {
                context.publish(place, self.releases);
            }
            self.watch(context, place, lane, Some(&buffer[..bytes]));
            if context.watch.is_some()
                && !self.is_atomic
                && let ResolvedAddress::Global(address) = place
            {
                stored.push((lane, address, buffer[..bytes].to_vec()));
            }
            context.record_access(EventKind::Store, place, lane, bytes);
            context.write(place, lane, bytes as u32, self.is_atomic, &buffer[..bytes]).of_lane(lane)?;
            places.push(lane, place);
        }
        if !stored.is_empty() {
            context.watch_lanes(&stored);
        }
        places.count(context, bytes, true);
        Ok(Flow::Next)
    }

    /// Reports an access of global memory to the watch of the launch. A store reports before it
    /// writes.
    #[inline]
    fn watch(&self, context: &mut Context<'_>, place: ResolvedAddress, lane: usize, data: Option<&[u8]>) {
        let ResolvedAddress::Global(address) = place else { return };
        let writes = data.is_some();
        let touch = Touch { address, bytes: self.bytes(), reads: !writes, writes, mode: self.mode };
        if self.is_atomic {
            let order = Order { acquires: self.acquires, releases: self.releases, keeps: false };
            context.watch_atomic(place, lane, touch, order);
        } else {
            context.watch(place, lane, touch, data);
        }
    }
}

fn little_endian(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

#[derive(Default)]
pub(super) struct AccessAddresses {
    global: SmallVec<[u64; 32]>,
    shared: SmallVec<[(usize, u64); 32]>,
}

impl AccessAddresses {
    pub fn push(&mut self, lane: usize, place: ResolvedAddress) {
        match place {
            ResolvedAddress::Global(address) => self.global.push(address),
            ResolvedAddress::Shared { offset, .. } => self.shared.push((lane, offset)),
            ResolvedAddress::Local(_) | ResolvedAddress::Param(_) => {}
        }
    }

    /// Counts an access of `bytes` bytes per lane.
    pub fn count(&self, context: &mut Context<'_>, bytes: usize, is_store: bool) {
        let moved = (self.shared.len() * bytes) as u64;
        if is_store {
            context.counters.bytes_written += moved;
        } else {
            context.counters.bytes_read += moved;
        }
        if !self.global.is_empty() {
            context.count_global(self.global.iter().map(|address| (*address, bytes as u64)), is_store);
        }
        if !self.shared.is_empty() {
            context.counters.shared(&self.shared, bytes);
        }
    }
}
