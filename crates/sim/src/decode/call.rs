//! Decodes calls: inlines functions or uses a stack, and simulates system functions.

use std::fmt::Write;

use rustc_hash::FxHashMap;
use tilewright_ptx::isa::{
    self, Callee, FunctionId, FunctionKind, Initializer, Instruction, ScalarType, Source, StatementKind,
    Symbol, Variable, VariableId,
};

use super::lift::map1;
use super::{Action, Binding, Class, Decoded, Decoder, Gather, Jump};
use crate::call::{Call, CallTarget, CalledFunction, FrameVariable, LocalAddress, resolved};
use crate::context::{AddressSpace, Context, Flow, ResolvedAddress};
use crate::fault::{FaultKind, OfLane, Outcome};
use crate::registers::{Slot, lanes_of};

struct Passed {
    binding: Binding,
    bytes: u64,
}

/// The maximum number of inlined calls of a kernel. Further calls use the stack. It bounds the
/// expansion of functions that call each other.
const MAX_EXPANSIONS: usize = 4096;
/// The maximum nesting of inlined calls.
const MAX_DEPTH: usize = 32;

impl Decoder<'_> {
    pub(super) fn call_function(&mut self, i: &isa::Call) -> Decoded {
        let (kind, formal) = match i.call.callee {
            Callee::Direct(id) => {
                let id = resolved(self.module, id);
                let function = &self.module.functions[id];
                let of = |ids: &[_]| ids.iter().map(|id| function.variables[*id].clone()).collect();
                (Ok(id), [of(&function.parameters), of(&function.returns)])
            }
            Callee::Indirect(register, prototype) => {
                let prototype = &self.frame().function.prototypes[prototype];
                let formal = [prototype.parameters.clone(), prototype.returns.clone()];
                (Err(self.register(register)), formal)
            }
        };
        let [arguments, results] = &formal;
        if i.call.arguments.len() != arguments.len() || i.call.returns.len() != results.len() {
            return Err(FaultKind::Illegal(
                "the arguments and results of a call differ from those of the called function".into(),
            ));
        }
        let passed = |this: &mut Self, operands: &[Source], formal: &[Variable], is_read| {
            let each = operands.iter().zip(formal);
            each.map(|(operand, formal)| this.passed(*operand, formal, is_read)).collect::<Decoded<Vec<_>>>()
        };
        let arguments = passed(self, &i.call.arguments, arguments, true)?;
        let results = passed(self, &i.call.returns, results, false)?;
        let action = match kind {
            Ok(id) => self.call_direct(id, &arguments, &results)?,
            Err(register) => {
                self.addressed().into_iter().for_each(|id| self.request(id));
                self.call_on_stack(CallTarget::Address(register), &arguments, &results)
            }
        };
        (self.class, self.gather) = (Class::Control, Gather::Any);
        self.push(action, self.guard);
        for (result, passed) in i.call.returns.iter().zip(&results) {
            self.receive(*result, passed);
        }
        (self.class, self.gather) = (Class::Control, Gather::Any);
        Ok(Action::Nothing)
    }

    fn call_direct(&mut self, id: FunctionId, arguments: &[Passed], results: &[Passed]) -> Decoded {
        let callee = &self.module.functions[id];
        match (callee.name.as_str(), &callee.body) {
            (_, Some(_)) => {
                let is_active = self.frames.iter().any(|frame| frame.id == id);
                self.expansions += 1;
                if is_active || self.frames.len() >= MAX_DEPTH || self.expansions > MAX_EXPANSIONS {
                    self.request(id);
                    return Ok(self.call_on_stack(CallTarget::Function(id), arguments, results));
                }
                self.expand(id, arguments, results)
            }
            ("vprintf", None) => {
                let [format, values] = self.system_arguments(arguments)?;
                let results = results.first().map(|result| self.local_address(result));
                Ok(print(format, values, results))
            }
            ("__assertfail", None) => {
                let arguments = self.system_arguments(arguments)?;
                Ok(fail(arguments))
            }
            (name, None) => Err(FaultKind::Unsupported(format!("the function `{name}`, which has no body"))),
        }
    }

    /// Returns the functions whose addresses the module takes.
    fn addressed(&self) -> Vec<FunctionId> {
        let mut found = Vec::new();
        for element in self.module.globals.values().flat_map(|variable| &variable.initializer) {
            if let Initializer::Address { symbol: Symbol::Function(id), .. } = element {
                found.push(resolved(self.module, *id));
            }
        }
        let bodies = self.module.functions.values().filter_map(|function| function.body.as_ref());
        for statement in bodies.flatten() {
            if let StatementKind::Instruction { instruction: Instruction::Mov(mov), .. } = &statement.kind
                && let [Source::Symbol(Symbol::Function(id), _)] = mov.a.0[..]
            {
                found.push(resolved(self.module, id));
            }
        }
        found
    }

    /// Queues a called function for decoding, if it has a body.
    fn request(&mut self, id: FunctionId) {
        let function = &self.module.functions[id];
        let is_function = function.kind == FunctionKind::Function && function.body.is_some();
        if is_function && !self.functions.contains_key(&id) && !self.called.contains(&id) {
            self.called.push(id);
        }
    }

    pub(super) fn called_function(&mut self, id: FunctionId) {
        let function = &self.module.functions[id];
        let (entry, first) = (self.steps.len() as u32, self.slots);
        let mut end = 0_u64;
        let mut bindings = FxHashMap::default();
        let mut place = |ids: &[VariableId]| -> Vec<FrameVariable> {
            let each = ids.iter().map(|id| {
                let variable = &function.variables[*id];
                let offset = end.next_multiple_of(u64::from(variable.alignment()));
                end = offset + variable.bytes();
                bindings.insert(*id, Binding::Frame(offset));
                FrameVariable { offset, bytes: variable.bytes() }
            });
            each.collect()
        };
        let (parameters, returns) = (place(&function.parameters), place(&function.returns));
        self.frame_bytes = Some(end);
        self.site = self.sites.len() as u32;
        if let Err(kind) = self.body(id, bindings) {
            self.push(super::failing(kind), None);
        }
        self.push(Action::Return, None);
        let frame_bytes = self.frame_bytes.take().expect("it was set above");
        let registers = first..self.slots;
        self.functions.insert(id, CalledFunction { entry, registers, frame_bytes, parameters, returns });
    }

    fn call_on_stack(&mut self, target: CallTarget, arguments: &[Passed], results: &[Passed]) -> Action {
        let stack = self.stack();
        let mut places = |passed: &[Passed]| {
            passed.iter().map(|one| (self.local_address(one), one.bytes)).collect::<Vec<_>>()
        };
        let (arguments, results) = (places(arguments), places(results));
        Action::Call(Box::new(Call { target, arguments, results, stack }))
    }

    /// Returns the variable with an argument or a result. Registers and constants get new
    /// variables.
    fn passed(&mut self, operand: Source, formal: &Variable, is_read: bool) -> Decoded<Passed> {
        let bytes = formal.bytes();
        if let Source::Symbol(Symbol::Variable(id), 0) = operand {
            let variable = &self.frame().function.variables[id];
            let (name, found) = (variable.name.clone(), variable.bytes());
            let binding = self.frame().variables[&id];
            if !matches!(binding, Binding::Frame(_) | Binding::Local(_)) {
                let text = format!(
                    "a call passes `{name}`, which is not a `.param` variable of the calling function"
                );
                return Err(FaultKind::Illegal(text));
            }
            if found < bytes {
                let text =
                    format!("a call passes `{name}` of {found} bytes for a parameter of {bytes} bytes");
                return Err(FaultKind::Illegal(text));
            }
            return Ok(Passed { binding, bytes });
        }
        let passed = Passed { binding: self.bind(formal)?, bytes };
        if is_read {
            let (from, to) = (self.source(operand, formal.ty)?, self.local_address(&passed));
            let store = move |context: &mut Context<'_>| {
                for lane in lanes_of(context.lanes) {
                    let place = ResolvedAddress::Local(context.get(to.base, lane) + to.offset);
                    let value = context.get(from, lane).to_le_bytes();
                    context.write(place, lane, 1, false, &value[..(bytes as usize).min(8)])?;
                }
                Ok(Flow::Next)
            };
            self.push(Action::Execute(Box::new(store)), self.guard);
        }
        Ok(passed)
    }

    fn receive(&mut self, result: Source, passed: &Passed) {
        let Source::Register(register) = result else { return };
        let (to, from, bytes) = (self.register(register), self.local_address(passed), passed.bytes as usize);
        let load = move |context: &mut Context<'_>| {
            for lane in lanes_of(context.lanes) {
                let place = ResolvedAddress::Local(context.get(from.base, lane) + from.offset);
                let mut value = [0; 8];
                context.read(place, lane, 1, false, &mut value[..bytes.min(8)])?;
                context.set(to, lane, u64::from_le_bytes(value));
            }
            Ok(Flow::Next)
        };
        self.push(Action::Execute(Box::new(load)), self.guard);
    }

    /// Returns the address of a passed variable, which is always in local memory.
    fn local_address(&mut self, passed: &Passed) -> LocalAddress {
        match passed.binding {
            Binding::Frame(offset) => LocalAddress { base: self.stack().frame, offset },
            Binding::Local(offset) => LocalAddress { base: self.constant(0), offset },
            Binding::Param(_) | Binding::Shared(_) | Binding::Global(_) | Binding::DynamicShared => {
                unreachable!("only variables that `bind` has put into local memory are passed")
            }
        }
    }

    fn system_arguments<const N: usize>(&mut self, arguments: &[Passed]) -> Decoded<[LocalAddress; N]> {
        if arguments.len() < N {
            let text = format!("a system function has {} arguments, but needs {N}", arguments.len());
            return Err(FaultKind::Illegal(text));
        }
        Ok(std::array::from_fn(|index| self.local_address(&arguments[index])))
    }

    /// Inlines the body of a function, with parameters bound to the caller's variables.
    fn expand(&mut self, id: FunctionId, arguments: &[Passed], results: &[Passed]) -> Decoded {
        let callee = &self.module.functions[id];
        let inputs = callee.parameters.iter().zip(arguments);
        let outputs = callee.returns.iter().zip(results);
        let bindings: FxHashMap<_, _> =
            inputs.chain(outputs).map(|(id, passed)| (*id, passed.binding)).collect();
        let (site, line, guard) = (self.site, self.kernel_line, self.guard);
        // Lanes whose guard is false branch around the body.
        let skip = guard.map(|(predicate, holds)| {
            self.push(Action::Branch(0), Some((predicate, !holds)));
            self.steps.len() - 1
        });
        self.body(id, bindings)?;
        if let Some(skip) = skip {
            self.steps[skip].action = Action::Branch(self.steps.len() as u32);
        }
        (self.site, self.kernel_line, self.guard) = (site, line, guard);
        Ok(Action::Nothing)
    }

    pub(super) fn jump(&mut self, target: isa::BranchTarget) -> Action {
        self.class = Class::Control;
        self.frame().jumps.push((u32::MAX, Jump::Label(target.0)));
        Action::Branch(0)
    }

    pub(super) fn jump_by_index(&mut self, i: &isa::BrxIdx) -> Decoded {
        self.class = Class::Control;
        let index = self.source(i.index, ScalarType::U32)?;
        let labels = self.frame().function.branch_tables[i.targets].targets.clone();
        for (entry, label) in labels.iter().enumerate() {
            self.frame().jumps.push((u32::MAX, Jump::Entry(entry, *label)));
        }
        Ok(Action::Choose { index, targets: vec![0; labels.len()] })
    }

    /// `ret`: leaves a function, or exits from a kernel.
    pub(super) fn return_from_function(&mut self) -> Action {
        self.class = Class::Control;
        if self.frames.len() == 1 {
            return if self.frame_bytes.is_some() { Action::Return } else { Action::Exit };
        }
        self.frame().jumps.push((u32::MAX, Jump::End));
        Action::Branch(0)
    }

    /// Decodes `nanosleep`, which has no effect: the clock counts steps.
    pub(super) fn sleep(&mut self, i: &isa::Nanosleep) -> Decoded {
        self.class = Class::Hint;
        let time = self.source(i.time, ScalarType::U32)?;
        let scratch: Slot = self.slot();
        Ok(map1(scratch, time, |time| time))
    }
}

/// The maximum length of a string argument. Longer strings are truncated.
const MAX_STRING: usize = 4096;

fn bytes<const N: usize>(
    context: &mut Context<'_>,
    lane: usize,
    space: AddressSpace,
    address: u64,
) -> Outcome<[u8; N]> {
    let mut bytes = [0; N];
    let place = context.locate(space, address);
    context.read(place, lane, 1, false, &mut bytes).of_lane(lane)?;
    Ok(bytes)
}

/// Reads the first `N` bytes of an argument.
fn argument<const N: usize>(context: &mut Context<'_>, lane: usize, place: LocalAddress) -> Outcome<[u8; N]> {
    let address = context.get(place.base, lane) + place.offset;
    bytes(context, lane, AddressSpace::Local, address)
}

fn pointer(context: &mut Context<'_>, lane: usize, place: LocalAddress) -> Outcome<u64> {
    Ok(u64::from_le_bytes(argument(context, lane, place)?))
}

/// Reads the zero-terminated string at a generic address.
fn string(context: &mut Context<'_>, lane: usize, address: u64) -> Outcome<String> {
    let mut text = Vec::new();
    while text.len() < MAX_STRING {
        let [byte] = bytes(context, lane, AddressSpace::Generic, address + text.len() as u64)?;
        if byte == 0 {
            break;
        }
        text.push(byte);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Simulates `__assertfail(message, file, line, function, size of a character)`.
fn fail(at: [LocalAddress; 4]) -> Action {
    Action::Execute(Box::new(move |context: &mut Context<'_>| {
        let first = context.lanes.trailing_zeros() as usize;
        let [message, file, function] = [at[0], at[1], at[3]].map(|offset| {
            let address = pointer(context, first, offset)?;
            string(context, first, address)
        });
        let line = u32::from_le_bytes(argument(context, first, at[2])?);
        let kind = FaultKind::Assertion { message: message?, file: file?, line, function: function? };
        Err(Box::<crate::fault::Stop>::from(kind)).of_lane(first)
    }))
}

/// Simulates `vprintf(format, arguments)` in each lane.
fn print(format: LocalAddress, values: LocalAddress, result: Option<LocalAddress>) -> Action {
    Action::Execute(Box::new(move |context: &mut Context<'_>| {
        for lane in lanes_of(context.lanes) {
            let (format, values) = (pointer(context, lane, format)?, pointer(context, lane, values)?);
            let format = string(context, lane, format)?;
            let text = formatted(context, lane, &format, values)?;
            context.printed.push_str(&text);
            if let Some(result) = result {
                let count = format.matches('%').count() as u32;
                let place = ResolvedAddress::Local(context.get(result.base, lane) + result.offset);
                context.write(place, lane, 1, false, &count.to_le_bytes())?;
            }
        }
        Ok(Flow::Next)
    }))
}

/// Formats a C format string. Each argument is at a multiple of its size.
fn formatted(context: &mut Context<'_>, lane: usize, format: &str, mut at: u64) -> Outcome<String> {
    let mut out = String::new();
    let mut rest = format;
    while let Some(start) = rest.find('%') {
        out.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic() && !"hlLzjt".contains(c) || c == '%')
        else {
            out.push('%');
            break;
        };
        let (flags, kind) = (&rest[..end], rest.as_bytes()[end]);
        rest = &rest[end + 1..];
        if kind == b'%' {
            out.push('%');
            continue;
        }
        let is_long = flags.contains(['l', 'z', 'j', 't']) || b"pseEfFgGaA".contains(&kind);
        let value = if is_long {
            at = at.next_multiple_of(8);
            let value = u64::from_le_bytes(bytes(context, lane, AddressSpace::Generic, at)?);
            at += 8;
            value
        } else {
            let value = u32::from_le_bytes(bytes(context, lane, AddressSpace::Generic, at)?);
            at += 4;
            u64::from(value)
        };
        let text =
            if kind == b's' { string(context, lane, value)? } else { number(flags, kind, value, is_long) };
        let flags = flags.trim_end_matches(['h', 'l', 'z', 'j', 't']);
        let width = flags.split('.').next().unwrap_or_default();
        let columns = width.trim_start_matches(['-', '+', ' ', '#', '0']).parse().unwrap_or(0);
        if width.starts_with('-') {
            let _ = write!(out, "{text:<columns$}");
        } else if width.starts_with('0') {
            let (sign, digits) = text.split_at(usize::from(text.starts_with('-')));
            let _ = write!(out, "{sign}{digits:0>zeros$}", zeros = columns.saturating_sub(sign.len()));
        } else {
            let _ = write!(out, "{text:>columns$}");
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Formats a number for a conversion of C.
fn number(flags: &str, kind: u8, value: u64, is_long: bool) -> String {
    let signed = if is_long { value as i64 } else { i64::from(value as i32) };
    let precision = flags
        .split_once('.')
        .and_then(|(_, digits)| digits.trim_end_matches(['h', 'l', 'z', 'j', 't']).parse().ok());
    let float = f64::from_bits(value);
    match kind {
        b'd' | b'i' => signed.to_string(),
        b'x' => format!("{value:x}"),
        b'X' => format!("{value:X}"),
        b'o' => format!("{value:o}"),
        b'p' => format!("{value:#x}"),
        b'c' => char::from(value as u8).to_string(),
        b'e' | b'E' => format!("{float:.*e}", precision.unwrap_or(6)),
        b'f' | b'F' => tilewright_base::output::c_float(float, precision.unwrap_or(6)),
        b'g' | b'G' | b'a' | b'A' => float.to_string(),
        // The conversion `u`, and those that C does not define.
        _ => value.to_string(),
    }
}
