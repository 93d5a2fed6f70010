//! Decodes operands to registers.

use tilewright_ptx::isa::{
    Address, AddressBase, Destination, Destinations, GlobalId, Immediate, Predicate, RegisterId, ScalarType,
    Source, Sources, SpecialRegister, StateSpace, Symbol, Variable,
};

use super::{Action, Binding, Decoded, Decoder, Fill};
use crate::asynchronous::Pointer;
use crate::call::{Stack, address_of};
use crate::context::{AddressSpace, Context, Flow};
use crate::fault::FaultKind;
use crate::numeric::convert::Conversion;
use crate::numeric::{Format, low};
use crate::registers::{LANES, Slot};

impl Decoder<'_> {
    pub fn register(&mut self, id: RegisterId) -> Slot {
        if let Some(slot) = self.frame().registers.get(&id) {
            return *slot;
        }
        let slot = self.slot();
        if self.frame().function.registers[id].ty == ScalarType::B128 {
            self.slot();
        }
        self.frame().registers.insert(id, slot);
        slot
    }

    pub fn width(&mut self, id: RegisterId) -> u32 {
        self.frame().function.registers[id].ty.bits()
    }

    /// Returns the slot and the width of a destination. `_` gets an unused slot.
    pub fn destination(&mut self, destination: Destination) -> (Slot, u32) {
        match destination {
            Destination::Register(id) => (self.register(id), self.width(id)),
            Destination::Sink => {
                let slot = self.slot();
                self.slot();
                (slot, 64)
            }
        }
    }

    pub fn destinations(&mut self, destinations: &Destinations) -> Vec<(Slot, u32)> {
        destinations.0.iter().map(|destination| self.destination(*destination)).collect()
    }

    /// Returns the slot of a source, in an instruction of the type `ty`.
    pub fn source(&mut self, source: Source, ty: ScalarType) -> Decoded<Slot> {
        match source {
            Source::Register(id) => Ok(self.register(id)),
            Source::Symbol(Symbol::Function(id), 0) => Ok(self.constant(address_of(self.module, id))),
            Source::Immediate(immediate) => Ok(self.constant(immediate_bits(immediate, ty))),
            Source::Special(special) => Ok(self.special(special)),
            Source::Symbol(symbol, offset) => match self.symbol(symbol)? {
                Binding::DynamicShared if offset == 0 => Ok(self.fill(Fill::DynamicShared)),
                Binding::DynamicShared => {
                    let base = self.fill(Fill::DynamicShared);
                    Ok(self.after(base, offset))
                }
                Binding::Frame(at) => {
                    let base = self.stack().frame;
                    Ok(self.after(base, offset.wrapping_add_unsigned(at)))
                }
                Binding::Param(address)
                | Binding::Local(address)
                | Binding::Shared(address)
                | Binding::Global(address) => Ok(self.constant(address.wrapping_add_signed(offset))),
            },
        }
    }

    /// Returns a slot with the value of a register plus `offset`.
    fn after(&mut self, base: Slot, offset: i64) -> Slot {
        let sum = self.slot();
        self.push(super::lift::map1(sum, base, move |base| base.wrapping_add_signed(offset)), None);
        sum
    }

    pub fn stack(&mut self) -> Stack {
        if self.stack.is_none() {
            self.stack = Some(Stack { frame: self.slot(), top: self.fill(Fill::LocalEnd) });
        }
        self.stack.expect("it was just made")
    }

    /// Returns the slots of sources of the same type.
    pub fn sources(&mut self, sources: &Sources, ty: ScalarType) -> Decoded<Vec<Slot>> {
        sources.0.iter().map(|source| self.source(*source, ty)).collect()
    }

    /// Returns the slot of a predicate, and 1 if it is negated.
    pub fn predicate(&mut self, predicate: Predicate) -> (Slot, u64) {
        (self.register(predicate.register), u64::from(predicate.negated))
    }

    pub fn constant(&mut self, value: u64) -> Slot {
        self.fill(Fill::Constant(value))
    }

    fn fill(&mut self, fill: Fill) -> Slot {
        if let Some(slot) = self.fills.get(&fill) {
            return *slot;
        }
        let slot = self.slot();
        self.fills.insert(fill, slot);
        slot
    }

    fn special(&mut self, special: SpecialRegister) -> Slot {
        use SpecialRegister::{Clock, Clock64, ClockHi, GlobalTimer, GlobalTimerHi, GlobalTimerLo};
        let (shift, bits) = match special {
            Clock | GlobalTimerLo => (0, 32),
            ClockHi | GlobalTimerHi => (32, 32),
            Clock64 | GlobalTimer => (0, 64),
            // tidy: wildcard because all others are constant while a warp runs.
            _ => return self.fill(Fill::Special(special)),
        };
        let slot = self.slot();
        let read = move |context: &mut Context<'_>| {
            let time = low(context.time >> shift, bits);
            let lanes = context.lanes;
            context.registers.set(slot, lanes, &[time; LANES]);
            Ok(Flow::Next)
        };
        self.push(Action::Execute(Box::new(read)), None);
        slot
    }

    fn symbol(&mut self, symbol: Symbol) -> Decoded<Binding> {
        match symbol {
            Symbol::Variable(id) => Ok(self.frame().variables[&id]),
            Symbol::Global(id) => self.global(id),
            Symbol::Function(id) => {
                let name = &self.module.functions[id].name;
                Err(FaultKind::Illegal(format!(
                    "the address of the function `{name}` is used as an address of data"
                )))
            }
        }
    }

    fn global(&mut self, id: GlobalId) -> Decoded<Binding> {
        let variable = &self.module.globals[id];
        match variable.space {
            StateSpace::Shared | StateSpace::SharedCta | StateSpace::SharedCluster => {
                if let Some(binding) = self.shared.get(&id) {
                    return Ok(*binding);
                }
                let binding = self.bind(variable)?;
                self.shared.insert(id, binding);
                Ok(binding)
            }
            StateSpace::Global | StateSpace::Const => Ok(Binding::Global((self.addresses)(id))),
            StateSpace::Local | StateSpace::Param | StateSpace::ParamEntry | StateSpace::ParamFunction => {
                Err(FaultKind::Illegal(format!(
                    "the module variable `{}` is in {}, which is only for variables of functions",
                    variable.name, variable.space
                )))
            }
        }
    }

    /// Allocates a variable of a function, or a variable of the module in shared memory.
    pub(super) fn bind(&mut self, variable: &Variable) -> Decoded<Binding> {
        let alignment = u64::from(variable.alignment());
        let place = |end: &mut u64| {
            let start = end.next_multiple_of(alignment);
            *end = start + variable.bytes();
            start
        };
        match variable.space {
            StateSpace::Shared | StateSpace::SharedCta | StateSpace::SharedCluster => {
                if variable.bytes() == 0 {
                    self.dynamic_alignment = self.dynamic_alignment.max(alignment);
                    return Ok(Binding::DynamicShared);
                }
                Ok(Binding::Shared(place(&mut self.shared_bytes)))
            }
            StateSpace::Local | StateSpace::Param | StateSpace::ParamEntry | StateSpace::ParamFunction => {
                Ok(match &mut self.frame_bytes {
                    Some(end) => Binding::Frame(place(end)),
                    None => Binding::Local(place(&mut self.local_bytes)),
                })
            }
            StateSpace::Global | StateSpace::Const => {
                let what =
                    format!("the variable `{}` in {} inside a function", variable.name, variable.space);
                Err(FaultKind::Unsupported(what))
            }
        }
    }

    /// Decodes a memory operand. `space` is the named state space, or `None` for generic addresses.
    pub fn address(&mut self, address: &Address, space: Option<StateSpace>) -> Decoded<Pointer> {
        let named = match space {
            None => AddressSpace::Generic,
            Some(StateSpace::Global | StateSpace::Const) => AddressSpace::Global,
            Some(StateSpace::Shared | StateSpace::SharedCta | StateSpace::SharedCluster) => {
                AddressSpace::Shared
            }
            // The parameters of called functions are in local memory.
            Some(StateSpace::Local | StateSpace::ParamFunction) => AddressSpace::Local,
            Some(StateSpace::Param) if self.frames.len() > 1 || self.frame_bytes.is_some() => {
                AddressSpace::Local
            }
            Some(StateSpace::Param | StateSpace::ParamEntry) => AddressSpace::Param,
        };
        let (base, space) = match address.base {
            AddressBase::Register(id) => (self.register(id), named),
            AddressBase::Absolute if matches!(named, AddressSpace::Local) => (self.constant(0), named),
            AddressBase::Absolute => {
                let text = "an instruction has an absolute address outside of local memory";
                return Err(FaultKind::Illegal(text.into()));
            }
            AddressBase::Symbol(symbol) => match self.symbol(symbol)? {
                Binding::Param(at) => (self.constant(at), AddressSpace::Param),
                Binding::Local(at) => (self.constant(at), AddressSpace::Local),
                Binding::Frame(at) => {
                    let offset = address.offset.wrapping_add_unsigned(at);
                    return Ok(Pointer { base: self.stack().frame, offset, space: AddressSpace::Local });
                }
                Binding::Shared(at) => (self.constant(at), AddressSpace::Shared),
                Binding::Global(at) => (self.constant(at), AddressSpace::Global),
                Binding::DynamicShared => (self.fill(Fill::DynamicShared), AddressSpace::Shared),
            },
        };
        Ok(Pointer { base, offset: address.offset, space })
    }
}

/// Returns the bits of a constant, in an instruction of the type `ty`.
fn immediate_bits(immediate: Immediate, ty: ScalarType) -> u64 {
    let from = match immediate {
        Immediate::Integer(value) => return low(value as u64, ty.bits()),
        Immediate::F32(bits) => (Format::F32, u64::from(bits)),
        Immediate::F64(bits) => (Format::F64, bits),
    };
    let to = match ty {
        ScalarType::F16 => Format::F16,
        ScalarType::Bf16 => Format::BF16,
        ScalarType::F32 | ScalarType::Tf32 => Format::F32,
        ScalarType::F64 => Format::F64,
        // tidy: wildcard because the other types have no floating-point constants and use the bits.
        _ => return low(from.1, ty.bits()),
    };
    if from.0 == to { from.1 } else { Conversion::plain(from.0, to).apply(from.1) }
}
