//! Calls: functions of the module are expanded in place, those of the system are simulated.

use std::fmt::Write;

use rustc_hash::FxHashMap;
use tilewright_ptx::isa::{self, Callee, FunctionId, ScalarType, Source, Symbol};

use super::lift::map1;
use super::{Action, Binding, Class, Decoded, Decoder, Gather, Jump};
use crate::context::{AddressSpace, Context, Flow};
use crate::fault::{FaultKind, OfLane, Outcome};
use crate::registers::{Slot, lanes_of};

impl Decoder<'_> {
    pub(super) fn call_function(&mut self, i: &isa::Call) -> Decoded {
        let Callee::Direct(id) = i.call.callee else {
            return Err(FaultKind::Unsupported("indirect calls".into()));
        };
        let callee = &self.module.functions[id];
        let arguments =
            i.call.arguments.iter().map(|argument| self.passed(*argument)).collect::<Decoded<Vec<_>>>()?;
        let results =
            i.call.returns.iter().map(|result| self.passed(*result)).collect::<Decoded<Vec<_>>>()?;
        let action = match (callee.name.as_str(), &callee.body) {
            (_, Some(_)) => self.expand(id, &arguments, &results)?,
            ("vprintf", None) => print(&arguments, &results)?,
            ("__assertfail", None) => fail(&arguments)?,
            (name, None) => {
                return Err(FaultKind::Unsupported(format!("the function `{name}`, which has no body")));
            }
        };
        (self.class, self.gather) = (Class::Control, Gather::Any);
        Ok(action)
    }

    /// Where an argument or a result lies: a variable of the caller.
    fn passed(&mut self, operand: Source) -> Decoded<Binding> {
        match operand {
            Source::Symbol(Symbol::Variable(id), 0) => Ok(self.frame().variables[&id]),
            Source::Symbol(..) | Source::Register(_) | Source::Immediate(_) | Source::Special(_) => {
                Err(FaultKind::Unsupported("calls that pass registers instead of parameters".into()))
            }
        }
    }

    /// The body of a function, with its parameters bound to the caller's variables.
    fn expand(&mut self, id: FunctionId, arguments: &[Binding], results: &[Binding]) -> Decoded {
        let callee = &self.module.functions[id];
        if callee.parameters.len() != arguments.len() || callee.returns.len() != results.len() {
            return Err(FaultKind::Illegal(format!(
                "a call of `{}` with other operands than it has",
                callee.name
            )));
        }
        let inputs = callee.parameters.iter().copied().zip(arguments.iter().copied());
        let outputs = callee.returns.iter().copied().zip(results.iter().copied());
        let bindings: FxHashMap<_, _> = inputs.chain(outputs).collect();
        let (site, line, guard) = (self.site, self.kernel_line, self.guard);
        // Lanes where the guard does not hold jump over the body.
        let skip = guard.map(|(predicate, holds)| {
            self.push(Action::Branch(0), Some((predicate, !holds)));
            self.steps.len() - 1
        });
        self.body(id, bindings)?;
        if let Some(skip) = skip {
            self.steps[skip].action = Action::Branch(self.steps.len() as u32);
        }
        (self.site, self.kernel_line) = (site, line);
        Ok(Action::Nothing)
    }

    pub(super) fn jump(&mut self, target: isa::Target) -> Action {
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

    /// `ret`: the end of the function, of a kernel its exit.
    pub(super) fn return_from_function(&mut self) -> Action {
        self.class = Class::Control;
        if self.frames.len() == 1 {
            return Action::Exit;
        }
        self.frame().jumps.push((u32::MAX, Jump::End));
        Action::Branch(0)
    }

    /// `nanosleep`: time does not pass here.
    pub(super) fn sleep(&mut self, i: &isa::Nanosleep) -> Decoded {
        self.class = Class::Hint;
        let time = self.source(i.time, ScalarType::U32)?;
        let scratch: Slot = self.slot();
        Ok(map1(scratch, time, |time| time))
    }
}

/// The offset of an argument in the caller's local memory.
fn local(arguments: &[Binding], index: usize) -> Decoded<u64> {
    match arguments.get(index) {
        Some(Binding::Local(offset)) => Ok(*offset),
        _ => Err(FaultKind::Illegal("a call of a function of the system without its parameters".into())),
    }
}

/// So long may a string of the kernel be.
const MAX_STRING: usize = 4096;

/// Memory of a lane, in whatever space the address is.
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

fn pointer(context: &mut Context<'_>, lane: usize, offset: u64) -> Outcome<u64> {
    Ok(u64::from_le_bytes(bytes(context, lane, AddressSpace::Local, offset)?))
}

/// The string at a generic address, up to its zero.
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

/// `__assertfail(message, file, line, function, size of a character)`.
fn fail(arguments: &[Binding]) -> Decoded {
    let at = [local(arguments, 0)?, local(arguments, 1)?, local(arguments, 2)?, local(arguments, 3)?];
    Ok(Action::Execute(Box::new(move |context: &mut Context<'_>| {
        let first = context.lanes.trailing_zeros() as usize;
        let [message, file, function] = [at[0], at[1], at[3]].map(|offset| {
            let address = pointer(context, first, offset)?;
            string(context, first, address)
        });
        let line = u32::from_le_bytes(bytes(context, first, AddressSpace::Local, at[2])?);
        let kind = FaultKind::Assertion { message: message?, file: file?, line, function: function? };
        Err(Box::<crate::fault::Stop>::from(kind)).of_lane(first)
    })))
}

/// `vprintf(format, arguments)`.
fn print(arguments: &[Binding], results: &[Binding]) -> Decoded {
    let (format, values) = (local(arguments, 0)?, local(arguments, 1)?);
    let result = local(results, 0).ok();
    Ok(Action::Execute(Box::new(move |context: &mut Context<'_>| {
        for lane in lanes_of(context.lanes) {
            let (format, values) = (pointer(context, lane, format)?, pointer(context, lane, values)?);
            let format = string(context, lane, format)?;
            let text = formatted(context, lane, &format, values)?;
            context.printed.push_str(&text);
            if let Some(result) = result {
                let count = format.matches('%').count() as u32;
                let place = context.locate(AddressSpace::Local, result);
                context.write(place, lane, 1, false, &count.to_le_bytes())?;
            }
        }
        Ok(Flow::Next)
    })))
}

/// The text of a format of C and its arguments, which lie in memory each at a multiple of its size.
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

/// A number as a conversion of C prints it.
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
        b'f' | b'F' => format!("{float:.*}", precision.unwrap_or(6)),
        b'g' | b'G' | b'a' | b'A' => float.to_string(),
        // `u`, and what C does not know.
        _ => value.to_string(),
    }
}
