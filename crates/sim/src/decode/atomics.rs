//! Decodes atomic operations on global and shared memory.

use smallvec::SmallVec;
use tilewright_ptx::isa::{self, AtomicOperation, ScalarType, Scope, Semantics};

use super::arithmetic::Operands;
use super::lift::halves;
use super::memory::AccessAddresses;
use super::{Action, Class, Decoded, Decoder};
use crate::asynchronous::Pointer;
use crate::context::{AddressSpace, Context, Flow, ResolvedAddress, aligned};
use crate::events::EventKind;
use crate::fault::{FaultKind, OfLane, Outcome, Stop};
use crate::memory::shared::Accessor;
use crate::numeric::float::{Kind, Mode};
use crate::numeric::low;
use crate::registers::{Slot, lanes_of};
use crate::watch::{Order, Touch, mode};

/// Computes the stored value from the old value and the operands.
pub(crate) type Change = Box<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>;

struct Atomic {
    address: Pointer,
    /// The destinations of the old values and their widths in bits, empty for `red`.
    results: Vec<(Slot, u32)>,
    operands: Vec<Slot>,
    third: Option<Slot>,
    change: Change,
    /// The functions for global and shared memory.
    change_global: Change,
    bits: u32,
    acquires: bool,
    releases: bool,
    mode: tilewright_sanitize::Mode,
    /// True if the write happens only if the old value equals the first operand.
    compares: bool,
}

impl Decoder<'_> {
    pub(super) fn decode_atom(&mut self, i: &isa::Atom) -> Decoded {
        let results = self.destinations(&i.d);
        let third = i.c.map(|c| self.source(c, i.ty)).transpose()?;
        let operands = self.sources(&i.b, i.ty)?;
        let address = self.address(&i.address, i.space)?;
        self.atomically((i.operation, i.ty, i.semantics, i.scope), address, results, operands, third)
    }

    pub(super) fn reduce(&mut self, i: &isa::Red) -> Decoded {
        let operands = self.sources(&i.b, i.ty)?;
        let address = self.address(&i.address, i.space)?;
        self.atomically((i.operation, i.ty, i.semantics, i.scope), address, Vec::new(), operands, None)
    }

    fn atomically(
        &mut self,
        (operation, ty, semantics, scope): (AtomicOperation, ScalarType, Option<Semantics>, Option<Scope>),
        address: Pointer,
        results: Vec<(Slot, u32)>,
        operands: Vec<Slot>,
        third: Option<Slot>,
    ) -> Decoded {
        self.class = Class::Atomic;
        let is_global = matches!(address.space, AddressSpace::Generic | AddressSpace::Global);
        self.may_wait_for_others |= is_global && !results.is_empty();
        let change = [false, true].map(|is_global| change(operation, ty, is_global));
        let [change, change_global] = change;
        let (change, change_global) = (change?, change_global?);
        let (acquires, releases) = match semantics {
            None | Some(Semantics::Relaxed) => (false, false),
            Some(Semantics::Acquire) => (true, false),
            Some(Semantics::Release) => (false, true),
            Some(Semantics::AcquireRelease | Semantics::SequentiallyConsistent) => (true, true),
        };
        let bits = ty.bits();
        self.note_access(address.space, bits as usize / 8);
        let atomic = Atomic {
            address,
            results,
            operands,
            third,
            change,
            change_global,
            bits,
            acquires,
            releases,
            mode: mode(true, scope),
            compares: operation == AtomicOperation::CompareAndSwap,
        };
        Ok(Action::Execute(Box::new(move |context: &mut Context<'_>| atomic.execute(context))))
    }
}

/// Returns the update of an atomic operation. In global memory, f32 addition flushes subnormals.
pub(crate) fn change(operation: AtomicOperation, ty: ScalarType, is_global: bool) -> Decoded<Change> {
    use AtomicOperation as A;
    if ty == ScalarType::B128 {
        return Err(FaultKind::Unsupported("atomic operations on 128 bits".into()));
    }
    let operands = Operands::of(ty)?;
    let bits = ty.bits();
    let largest = operation == A::Max;
    Ok(match (operation, operands) {
        (A::And, _) => Box::new(|old, b, _| old & b),
        (A::Or, _) => Box::new(|old, b, _| old | b),
        (A::Xor, _) => Box::new(|old, b, _| old ^ b),
        (A::Exchange, _) => Box::new(|_, b, _| b),
        (A::CompareAndSwap, _) => Box::new(|old, b, c| if old == b { c } else { old }),
        (A::Increment, _) => Box::new(|old, b, _| if old >= b { 0 } else { old + 1 }),
        (A::Decrement, _) => Box::new(|old, b, _| if old == 0 || old > b { b } else { old - 1 }),
        (A::Add, Operands::Float(kind)) => {
            let flush = is_global && kind == Kind::F32;
            Box::new(move |old, b, _| Mode { flush, ..Mode::plain(kind) }.add(old, b))
        }
        (A::Add, Operands::Floats(kind)) => {
            Box::new(move |old, b, _| halves(kind.bits(), [old, b], |[x, y]| Mode::plain(kind).add(x, y)))
        }
        (A::Add, Operands::Int(_) | Operands::Ints(_)) => {
            Box::new(move |old, b, _| low(old.wrapping_add(b), bits))
        }
        (A::Min | A::Max, Operands::Float(kind)) => {
            Box::new(move |old, b, _| Mode::plain(kind).extremum(old, b, largest, false))
        }
        (A::Min | A::Max, Operands::Floats(kind)) => Box::new(move |old, b, _| {
            halves(kind.bits(), [old, b], |[x, y]| Mode::plain(kind).extremum(x, y, largest, false))
        }),
        (A::Min | A::Max, Operands::Int(int) | Operands::Ints(int)) => {
            Box::new(move |old, b, _| if (int.value(old) > int.value(b)) == largest { old } else { b })
        }
    })
}

impl Atomic {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        let size = self.bits as usize / 8;
        let mut places = AccessAddresses::default();
        for lane in lanes_of(context.lanes) {
            let place = context.locate(self.address.space, self.address.at(context, lane));
            aligned(place, (size * self.operands.len()) as u32, true).of_lane(lane)?;
            context.record_access(EventKind::Atomic, place, lane, size * self.operands.len());
            context.publish(place, self.releases);
            places.push(lane, place);
            let c = self.third.map_or(0, |third| context.get(third, lane));
            let change =
                if matches!(place, ResolvedAddress::Global(_)) { &self.change_global } else { &self.change };
            // The result may share a register with an operand.
            let operands: SmallVec<[u64; 4]> =
                self.operands.iter().map(|operand| low(context.get(*operand, lane), self.bits)).collect();
            let mut writes = !self.compares;
            for (index, b) in operands.into_iter().enumerate() {
                let old = self.update(context, place, (index * size) as u64, |old| change(old, b, c));
                let old = old.of_lane(lane)?;
                writes |= old == b;
                if let Some((result, _)) = self.results.get(index) {
                    context.set(*result, lane, old);
                }
            }
            context.observe(place, self.acquires);
            if let ResolvedAddress::Global(address) = place {
                let bytes = size * self.operands.len();
                let touch = Touch { address, bytes, reads: true, writes, mode: self.mode };
                let order = Order { acquires: self.acquires, releases: self.releases, keeps: true };
                context.watch_atomic(place, lane, touch, order);
            }
        }
        let bytes = size * self.operands.len();
        places.count(context, bytes, true);
        Ok(Flow::Next)
    }

    fn update(
        &self,
        context: &mut Context<'_>,
        place: ResolvedAddress,
        after: u64,
        change: impl Fn(u64) -> u64,
    ) -> Outcome<u64> {
        let size = self.bits as usize / 8;
        match place {
            ResolvedAddress::Global(address) => {
                let old = context.global.update(context.hint, address + after, size, change)?;
                context.note_written(address + after, size);
                Ok(old)
            }
            ResolvedAddress::Shared { rank, offset } => {
                context.visit(place, context.agent.index, context.agent.step())?;
                let accessor = Accessor::generic(context.agent, context.instruction, true);
                let shared = &mut context.blocks[rank].shared;
                Ok(shared.update(&accessor, offset + after, size, |old| u128::from(change(old as u64)))?
                    as u64)
            }
            ResolvedAddress::Local(_) | ResolvedAddress::Param(_) => {
                let text = "an atomic operation accesses memory that is neither global nor shared";
                Err(Box::<Stop>::from(FaultKind::Illegal(text.into())))
            }
        }
    }
}
