//! Checks that accesses of kernels are in bounds for every grid and size.
//!
//! A run of the kernel confirms each counterexample.

use std::fmt::Write;
use std::time::{Duration, Instant};

use tilewright_base::{Code, Diagnostic, SourceMap};
use tilewright_compiler::MachineCode;
use tilewright_compiler::bounds::{
    Condition, Counterexample, Expression, Finding, Outcome, Reason, Relation, Statement,
};
use tilewright_cpu::Interrupt;
use tilewright_frontend::{Argument, Constant, HostValue};
use tilewright_ir::{Module, OpFamily};

use crate::{Device, Error, Grid, Handle, Pointer, Region, SourcePlace, Value, sanitize};

/// The finding about an access.
#[derive(Clone, Debug)]
pub struct BoundsFinding {
    /// The position of the access in the source.
    pub place: Option<SourcePlace>,
    /// The access as text: ``load from `x_ptr` ``.
    pub access: String,
    /// The verdict.
    pub verdict: BoundsVerdict,
}

/// The verdict on an access.
#[derive(Clone, Debug)]
pub enum BoundsVerdict {
    /// The access is in bounds for every grid and every size.
    Proved,
    /// The access is out of bounds for a grid and sizes that the diagnostic names.
    Refuted(Box<Diagnostic>),
    /// The access is undecided, for this reason. The check found neither a proof nor a
    /// counterexample, or a run showed that the counterexample is wrong.
    Undecided(String),
}

/// The findings about a kernel.
#[derive(Clone, Debug)]
pub struct BoundsReport {
    /// The finding about each access, in the order of the optimized IR.
    pub findings: Vec<BoundsFinding>,
    /// The sources that the diagnostics point into.
    pub sources: SourceMap,
}

/// The maximum time of a run that confirms a counterexample.
const MAX_TIME: Duration = Duration::from_secs(10);
/// The maximum number of bytes of the tensors of a run.
const MAX_BYTES: i128 = 256 << 20;
/// The maximum number of programs of a run.
const MAX_PROGRAMS: i128 = 1 << 20;
/// The number of elements of a tensor in a run, if the statement does not have its extent.
const SOME_ELEMENTS: i128 = 1 << 16;

impl Handle {
    /// Decides for each access whether it is in bounds for every grid and every size that satisfy
    /// `statement`. The statement has the extents of the tensors, the grid, and conditions. This
    /// function adds the compile-time ints and the facts about descriptors to the statement. If the
    /// kernel is compiled for the CPU, a run tries to confirm each counterexample.
    ///
    /// Fails if the statement is wrong, for example if a name in it is not a parameter.
    pub fn check_bounds(&self, statement: &Statement) -> Result<BoundsReport, String> {
        let mut statement = statement.clone();
        for (parameter, argument) in self.signature().parameters.iter().zip(self.arguments()) {
            add_known(&parameter.name, argument, &mut statement);
        }
        let (module, found) = self.compiled.bounds(&statement)?;
        let sources = SourceMap::clone(&module.sources);
        let findings = found.iter().map(|finding| self.describe(&module, &statement, finding)).collect();
        Ok(BoundsReport { findings, sources })
    }

    fn describe(&self, module: &Module, statement: &Statement, finding: &Finding) -> BoundsFinding {
        let function = module.kernel();
        let chain = function.call_chain(finding.inst);
        let place = chain.first().map(|span| sanitize::place_of(&module.sources, *span));
        let op = &function.insts[finding.inst].op;
        let name = finding.parameter.map(|index| function.parameters[index].name.to_string());
        let of = |word: &str| name.as_ref().map_or_else(String::new, |name| format!(" {word} `{name}`"));
        let access = match op.family() {
            OpFamily::Load => format!("load{}", of("from")),
            OpFamily::Store => format!("store{}", of("to")),
            OpFamily::Atomic => format!("atomic access{}", of("to")),
            // tidy: wildcard because no other op accesses memory by itself
            _ => op.name().to_owned(),
        };
        let verdict = match &finding.outcome {
            Outcome::Proved => BoundsVerdict::Proved,
            Outcome::Undecided(reason) => BoundsVerdict::Undecided(why(module, reason, name.as_deref())),
            Outcome::Refuted(found) => match self.confirm(module, statement, found, name.as_deref()) {
                Ok(note) => {
                    let tensor = name.as_deref().unwrap_or("memory");
                    let hint = hint(module, statement, found, tensor);
                    let mut diagnostic = diagnostic(module, found, tensor, &note).hint(hint);
                    for (depth, span) in chain.into_iter().enumerate() {
                        let label = format!(
                            "accesses element {}, but the extent of the tensor is {}",
                            found.index, found.extent
                        );
                        diagnostic = match depth {
                            0 => diagnostic.primary(span, label),
                            _ => diagnostic.secondary(span, "called from here"),
                        };
                    }
                    BoundsVerdict::Refuted(Box::new(diagnostic))
                }
                Err(reason) => BoundsVerdict::Undecided(reason),
            },
        };
        BoundsFinding { place, access, verdict }
    }

    /// Runs the kernel with the numbers of a counterexample. Returns a note with the error of this
    /// run, or with the reason why no run confirms the counterexample. Fails if the run stays in
    /// bounds: the counterexample is wrong.
    fn confirm(
        &self,
        module: &Module,
        statement: &Statement,
        found: &Counterexample,
        tensor: Option<&str>,
    ) -> Result<String, String> {
        let not_run = |why: &str| Ok(format!("not confirmed by a run: {why}"));
        if !matches!(*self.compiled.code, MachineCode::Cpu(_)) {
            return not_run("the kernel is compiled for a GPU");
        }
        let parameters = &module.kernel().parameters;
        let number = |name: &str| {
            let of = |(index, number): &(usize, i128)| (*parameters[*index].name == *name).then_some(*number);
            let constant = statement.constants.iter().find(|(own, _)| own == name).map(|(_, number)| *number);
            constant.or_else(|| found.arguments.iter().find_map(of)).or(Some(0))
        };
        if found.grid.iter().product::<i128>() > MAX_PROGRAMS {
            return not_run("the grid is too large");
        }
        // Each pointer parameter, with the memory of its tensor and room to align its start.
        let mut memory: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut sum = 0;
        for (index, (parameter, argument)) in
            self.signature().parameters.iter().zip(self.arguments()).enumerate()
        {
            if matches!(argument, Argument::Tuple(_)) {
                return not_run("the kernel takes a tuple or a descriptor");
            }
            let Argument::Pointer { pointee, .. } = argument else { continue };
            let stated = statement.extents.iter().find(|(name, _)| **name == *parameter.name);
            let extent = stated.map_or(Some(SOME_ELEMENTS), |(_, extent)| extent.value(&number));
            let bytes = extent.and_then(|extent| extent.max(0).checked_mul(pointee.bytes() as i128));
            sum =
                bytes.and_then(|bytes| bytes.checked_add(sum)).filter(|sum| *sum <= MAX_BYTES).unwrap_or(-1);
            let Some(bytes) = bytes.filter(|_| sum >= 0) else { return not_run("its tensors are too large") };
            memory.push((index, vec![0; bytes as usize + 2 * ALIGNMENT]));
        }
        let values = self.values(&number, &mut memory);
        let complete = self.complete_bound(values);
        let Ok(complete) = complete else {
            return not_run("the arguments do not match the kernel's parameters");
        };
        let Ok(grid) = Grid::new(&found.grid) else { return not_run("the grid is too large") };
        let start = Instant::now();
        let poll = || start.elapsed() > MAX_TIME;
        match self.launch(grid, &complete, Interrupt::Poll(&poll)) {
            Err(error) if error.code() == Some(Code::OutOfBounds) => Ok(ran(&error, tensor)),
            Err(error) => not_run(&format!("the run ended with `{}`", first_line(&error))),
            Ok(()) if start.elapsed() > MAX_TIME => not_run("the run takes too long"),
            Ok(()) => Err("a run with the numbers of a counterexample stays in bounds".into()),
        }
    }

    /// Returns the argument of a run for each parameter. It is `None` for a parameter whose value
    /// is part of the code.
    fn values<'m>(
        &self,
        number: &impl Fn(&str) -> Option<i128>,
        memory: &'m mut [(usize, Vec<u8>)],
    ) -> Vec<Option<Value<'m>>> {
        let mut values: Vec<Option<Value<'m>>> = Vec::new();
        for (parameter, argument) in self.signature().parameters.iter().zip(self.arguments()) {
            values.push(match argument {
                Argument::Scalar { dtype, .. } if dtype.is_float() => Some(Value::Float(1.0)),
                Argument::Scalar { dtype, .. } if dtype.is_bool() => {
                    Some(Value::Bool(number(&parameter.name) != Some(0)))
                }
                Argument::Scalar { .. } => Some(Value::Int(number(&parameter.name).unwrap_or(0))),
                Argument::Pointer { .. } | Argument::Constexpr(_) | Argument::Tuple(_) => None,
            });
        }
        for (index, bytes) in memory {
            let Argument::Pointer { pointee, .. } = self.arguments()[*index] else { continue };
            let distance = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
            let length = bytes.len() - 2 * ALIGNMENT;
            let region = Region::of(&mut bytes[distance..distance + length]);
            let address = region.address();
            values[*index] = Some(Value::Pointer(Pointer { pointee, address, region, device: Device::Cpu }));
        }
        values
    }
}

/// Adds the known facts about an argument to a statement:
///
/// - A compile-time int is a constant.
/// - A descriptor's shape and strides determine the number of elements of its tensor. Each extent
///   is at least 1, and each stride is at least 0.
/// - A tuple that is not a descriptor contributes the facts about its items.
fn add_known(name: &str, argument: &Argument, statement: &mut Statement) {
    match argument {
        Argument::Constexpr(HostValue::Constant(Constant::Int(number))) => {
            statement.constants.push((name.to_owned(), *number));
        }
        Argument::Tuple(items) if items.descriptor().is_some() => {
            let rank = items.descriptor().map_or(0, |form| form.rank());
            // The last stride, which is 1, may be missing.
            let part = |place: usize, name: String| match items.get(place) {
                Some(Argument::Constexpr(HostValue::Constant(Constant::Int(number)))) => {
                    Expression::Number(*number)
                }
                Some(_) => Expression::Name(name),
                None => Expression::Number(1),
            };
            let one = Expression::Number(1);
            let mut extent = one.clone();
            for axis in 0..rank {
                let shape = part(1 + axis, format!("{name}.shape[{axis}]"));
                let stride = part(1 + rank + axis, format!("{name}.strides[{axis}]"));
                extent = extent.plus(shape.clone().plus_number(-1).times(stride.clone()));
                let at_least = |x: Expression, least: i128| -> Condition {
                    vec![(Relation::AtLeast, x, Expression::Number(least))]
                };
                statement.conditions.extend([at_least(shape, 1), at_least(stride, 0)]);
            }
            statement.extents.push((format!("{name}.base"), extent));
        }
        Argument::Tuple(items) => {
            for (index, item) in items.iter().enumerate() {
                add_known(&format!("{name}{}", items.accessor(index)), item, statement);
            }
        }
        Argument::Pointer { .. } | Argument::Scalar { .. } | Argument::Constexpr(_) => {}
    }
}

/// The alignment of a run's memory, in bytes.
const ALIGNMENT: usize = 64;

fn first_line(error: &Error) -> String {
    error.diagnostics().first().map_or_else(|| error.to_string(), |diagnostic| diagnostic.message.clone())
}

/// Returns a note with the error of a run. The error may be about an access to another tensor.
fn ran(error: &Error, tensor: Option<&str>) -> String {
    let message = first_line(error);
    let is_other = tensor.is_some_and(|tensor| !message.contains(&format!("`{tensor}`")));
    let earlier = if is_other { "earlier, " } else { "" };
    format!("a run with these numbers on the CPU ends {earlier}with: {message}")
}

fn diagnostic(module: &Module, found: &Counterexample, tensor: &str, note: &str) -> Diagnostic {
    let function = module.kernel();
    let parameters = &function.parameters;
    let numbers: Vec<String> = found
        .arguments
        .iter()
        .map(|(index, number)| format!("{} = {number}", parameters[*index].name))
        .collect();
    let triple = |[x, y, z]: [i128; 3]| format!("({x}, {y}, {z})");
    let mut place = format!("in program {} of the grid {}", triple(found.program), triple(found.grid));
    if !found.lane.is_empty() {
        let lane: Vec<String> = found.lane.iter().map(ToString::to_string).collect();
        let _ = write!(place, ", at element [{}] of the tile", lane.join(", "));
    }
    if !found.iterations.is_empty() {
        let iterations: Vec<String> = found.iterations.iter().map(ToString::to_string).collect();
        let _ = write!(place, ", in iteration {} of the loop", iterations.join(", "));
    }
    let sizes = if numbers.is_empty() { String::new() } else { format!("with {}: ", numbers.join(", ")) };
    let elements = if found.extent == 1 { "1 element".into() } else { format!("{} elements", found.extent) };
    Diagnostic::new(Code::OutOfBoundsForSome, format!("`{tensor}` is accessed out of bounds for some sizes"))
        .note(format!("{sizes}`{tensor}` has {elements}, but element {} is accessed {place}", found.index))
        .note(note)
}

/// Returns the advice for a counterexample: an assumption or a grid that excludes it.
fn hint(module: &Module, statement: &Statement, found: &Counterexample, tensor: &str) -> String {
    let mask = "mask the elements outside of the tensor";
    let parameters = &module.kernel().parameters;
    let extent = statement.extents.iter().find(|(name, _)| name == tensor).map(|(_, extent)| extent);
    let sizes: Vec<(&str, i128)> = found
        .arguments
        .iter()
        .map(|(index, number)| (&*parameters[*index].name, *number))
        .filter(|(name, _)| extent.is_some_and(|extent| has_name(extent, name)))
        .collect();
    let Some(&(size, number)) = sizes.first() else { return mask.into() };
    let mut blocks = statement.constants.iter().filter(|(_, block)| *block > 1);
    // The advice can only be a grid of one axis.
    let is_grid_open = statement.grid.is_empty() && sizes.len() == 1 && found.grid[1..] == [1, 1];
    let is_beyond = |(_, block): &&(String, i128)| is_grid_open && found.program[0] * block >= number;
    let in_grid = blocks.clone().find(is_beyond);
    let in_size = blocks.find(|(_, block)| number.rem_euclid(*block) != 0);
    let stated = match (in_grid, in_size) {
        (Some((block, _)), _) => {
            return format!(
                "{mask}; if such grids never occur, state the grid, for example `--grid 'cdiv({size}, {block})'`"
            );
        }
        (_, Some((block, _))) => format!("{size} % {block} == 0"),
        (_, None) => format!("{size} > {number}"),
    };
    format!("{mask}; if such sizes never occur, state it, for example `--assume '{stated}'`")
}

fn has_name(expression: &Expression, name: &str) -> bool {
    match expression {
        Expression::Number(_) => false,
        Expression::Name(own) => own == name,
        Expression::Binary(_, x, y) => has_name(x, name) || has_name(y, name),
    }
}

/// Describes the reason why an access is undecided.
fn why(module: &Module, reason: &Reason, tensor: Option<&str>) -> String {
    match reason {
        Reason::NoExtent => {
            let tensor = tensor.unwrap_or("NAME");
            format!("the extent of `{tensor}` is not stated: add --extent '{tensor}=…'")
        }
        Reason::Opaque(value) => {
            let function = module.kernel();
            let data = &function.values[*value];
            let inst = function.defining_inst(*value);
            let line = inst.and_then(|inst| function.call_chain(inst).first().copied());
            let line = line.map(|span| module.sources.file(span.file).line_column(span.start).0);
            let at = line.map_or_else(String::new, |line| format!(", line {line}"));
            let what = data.name.as_ref().map_or_else(|| "a value".to_owned(), |name| format!("`{name}`"));
            match inst.map(|inst| function.insts[inst].op.family()) {
                Some(OpFamily::Load | OpFamily::Atomic) => {
                    format!("it depends on data: {what} is read from memory{at}")
                }
                Some(OpFamily::Loop) | None => {
                    format!(
                        "{what} is carried by a loop and does not change by the same amount in each iteration{at}"
                    )
                }
                Some(_) => format!("{what} is not a polynomial of sizes, program ids and loop indices{at}"),
            }
        }
        Reason::Condition => {
            "its mask or an enclosing condition depends on data, or is not a combination of integer comparisons"
                .into()
        }
        Reason::Pointer => {
            "its pointer is cast from an integer, loaded, or advanced in a loop by an amount that varies".into()
        }
        Reason::SeveralTensors => "its pointer may point into one of several tensors".into(),
        Reason::OtherSize => "it accesses elements of another size than those of the tensor".into(),
        Reason::Hidden => "inline assembly or a call that is not inlined may access memory".into(),
        Reason::Open => "neither a proof nor a counterexample was found".into(),
    }
}
