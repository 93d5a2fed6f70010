//! Finds and restores the kernels of a lock, for programs without the source and Python.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_base::{Code, Diagnostic};
use tilewright_compiler::{Job, PreparedKernel, Stage, parse_stored, restore};
use tilewright_frontend::{Argument, FunctionRef, HostValue, Lowered, Request};
use tilewright_ir::{Dtype, Element};
use tilewright_lock::{Artifacts, Entry, LockFile, Parameter};

use super::active::unusable;
use super::request::{WITHOUT, codegen, constant};
use super::stored::{sources, stored};
use crate::options::OptionId;
use crate::signature::{self, Annotation, Signature};
use crate::{Device, Error, Handle, Options, Value, parse_dtype};

/// The kernels of a lock, found by name and arguments. Threads may share a bundle.
#[derive(Debug)]
pub struct Bundle {
    file: LockFile,
    artifacts: Artifacts,
    /// The restored kernels, by the index of the entry and the device.
    handles: Mutex<FxHashMap<(usize, Device), Arc<Handle>>>,
}

impl Bundle {
    /// Reads a lock or a packed lock. The first use of a kernel reads its artifacts.
    ///
    /// # Errors
    /// If the lock cannot be read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (file, artifacts) = tilewright_lock::open(path)?;
        Ok(Self { file, artifacts, handles: Mutex::default() })
    }

    /// Reads a packed lock from memory; `name` names it in errors.
    ///
    /// # Errors
    /// If the bytes are not a packed lock.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        let (file, artifacts) = tilewright_lock::unpack(Path::new(name), bytes)?;
        Ok(Self { file, artifacts, handles: Mutex::default() })
    }

    /// Returns the entries of the lock.
    pub fn entries(&self) -> &[Entry] {
        &self.file.entries
    }

    /// Returns the restored kernel for a launch on a device, and its run-time arguments in order.
    /// `arguments` names each run-time argument. It may omit compile-time arguments; then kernels
    /// with any value of these fit. If several kernels fit, returns the kernel with the largest
    /// product of the divisors that it assumes of the arguments.
    ///
    /// # Errors
    /// If no kernel fits, or if several of the fitting kernels have the largest product. Also if an
    /// artifact cannot be read.
    pub fn find<'m>(
        &self,
        kernel: &str,
        device: Device,
        arguments: &[(&str, Value<'m>)],
    ) -> Result<(Arc<Handle>, Vec<Value<'m>>), Error> {
        for (index, (name, _)) in arguments.iter().enumerate() {
            if arguments[..index].iter().any(|(known, _)| known == name) {
                let message = format!("kernel '{kernel}' of a lock got two values for argument '{name}'");
                return Err(Diagnostic::new(Code::TooManyArguments, message).into());
            }
        }
        let target = device.target()?.to_string();
        let mut of_kernel = Vec::new();
        for (index, entry) in self.file.entries.iter().enumerate() {
            let launches = &entry.launches;
            if launches.kernel == kernel
                && launches.target == target
                && !launches.options.contains_key(WITHOUT)
            {
                of_kernel.push(index);
            }
        }
        if of_kernel.is_empty() {
            let mut names: Vec<_> =
                self.file.entries.iter().map(|entry| entry.launches.to_string()).collect();
            names.dedup();
            return Err(missing(format!("the lock has no kernel '{kernel}' for {target}"), names));
        }
        let mut reasons = Vec::new();
        let mut fitting = Vec::new();
        for &index in &of_kernel {
            match fit(&self.file.entries[index], device, arguments) {
                Ok(score) => fitting.push((score, index)),
                Err(reason) => reasons.push(format!("{}: {reason}", self.file.entries[index].launches)),
            }
        }
        let Some(&(best, index)) = fitting.iter().max_by_key(|(score, _)| *score) else {
            return Err(missing(format!("no kernel '{kernel}' of the lock fits the arguments"), reasons));
        };
        let equal: Vec<_> = fitting.iter().filter(|(score, _)| *score == best).collect();
        if equal.len() > 1 {
            let texts = equal.iter().map(|(_, index)| self.file.entries[*index].launches.to_string());
            let message = format!(
                "several kernels '{kernel}' of the lock fit the arguments equally well: if \
                 they differ in a compile-time argument, pass it, too"
            );
            return Err(missing(message, texts.collect()));
        }
        let handle = self.handle(index, device)?;
        let ordered = self.file.entries[index].launch.parameters.iter().map(|parameter| {
            let found = arguments.iter().find(|(name, _)| *name == parameter.name);
            found.map(|(_, value)| value.clone()).expect("`fit` has found each parameter")
        });
        Ok((handle, ordered.collect()))
    }

    /// Restores all kernels for a device, and generates or loads their code, so that launches do
    /// not wait for it.
    ///
    /// # Errors
    /// If the lock has no kernel for the device, or if an artifact cannot be read or loaded.
    pub fn prepare(&self, device: Device) -> Result<(), Error> {
        let target = device.target()?.to_string();
        let mut is_missing = true;
        for (index, entry) in self.file.entries.iter().enumerate() {
            if entry.launches.target == target && !entry.launches.options.contains_key(WITHOUT) {
                self.handle(index, device)?.prepare()?;
                is_missing = false;
            }
        }
        if is_missing {
            let targets = self.file.entries.iter().map(|entry| entry.launches.target.clone());
            let targets: BTreeSet<String> = targets.collect();
            let note = format!("it has kernels for {}", Vec::from_iter(targets).join(", "));
            return Err(missing(format!("the lock has no kernel for {target}"), vec![note]));
        }
        Ok(())
    }

    fn handle(&self, index: usize, device: Device) -> Result<Arc<Handle>, Error> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = handles.get(&(index, device)) {
            return Ok(Arc::clone(handle));
        }
        let handle = Arc::new(self.restore(&self.file.entries[index], device)?);
        handles.insert((index, device), Arc::clone(&handle));
        Ok(handle)
    }

    /// Restores the kernel of an entry for its run-time arguments.
    fn restore(&self, entry: &Entry, device: Device) -> Result<Handle, Error> {
        let target = device.target()?;
        let codegen = codegen(&entry.launches.options, target).ok_or_else(|| invalid(entry, "options"))?;
        let options = options(entry)?;
        let described = entry.launch.parameters.iter().map(argument).collect::<Option<Vec<_>>>();
        let arguments = described.ok_or_else(|| invalid(entry, "parameters"))?;
        let stored = stored(&self.artifacts, entry).map_err(|error| unusable(&error))?;
        let sources = Arc::new(sources(&self.artifacts, entry).map_err(|error| unusable(&error))?);
        let parameters = entry.launch.parameters.iter();
        let parameters =
            parameters.map(|parameter| signature::Parameter::new(&*parameter.name, Annotation::None));
        let signature = Signature {
            name: entry.launches.kernel.as_str().into(),
            parameters: parameters.collect(),
            source: None,
        };
        let language = options.language_for(target, false);
        let job = Job {
            request: Request { kernel: FunctionRef(0), arguments: arguments.clone(), options: language },
            parameters: signature.parameters.iter().map(|parameter| Arc::clone(&parameter.name)).collect(),
            target,
            codegen,
        };
        let module = parse_stored(Stage::Ir, &stored.ir, &sources)?;
        let prepared = PreparedKernel::new(target, stored)?;
        let compiled = restore(&job, None, Lowered { module, is_shareable: false }, prepared);
        Ok(Handle::new(compiled, (device, 0), Arc::new(signature), arguments, options))
    }
}

fn options(entry: &Entry) -> Result<Options, Error> {
    let mut options = Options::default();
    for (name, value) in &entry.launches.options {
        let Some(option) = OptionId::parse(name) else { continue };
        let value = constant(value).ok_or_else(|| invalid(entry, "options"))?;
        options.set(option, &value)?;
    }
    Ok(options)
}

/// Returns the compiler's description of a run-time argument.
fn argument(parameter: &Parameter) -> Option<Argument> {
    let divisibility = parameter.divisibility;
    Some(match parameter.ty.strip_prefix('*') {
        Some(pointee) => Argument::Pointer { pointee: parse_dtype(pointee)?, divisibility, is_const: false },
        None => Argument::Scalar { dtype: parse_dtype(&parameter.ty)?, divisibility },
    })
}

/// Returns how specific the code of an entry is: the sum of the binary logarithms of the divisors
/// that it assumes of the arguments. The error is the reason why the code does not fit the
/// arguments.
fn fit(entry: &Entry, device: Device, arguments: &[(&str, Value<'_>)]) -> Result<u64, String> {
    let mut score = 0;
    for parameter in &entry.launch.parameters {
        let found = arguments.iter().find(|(name, _)| *name == parameter.name);
        let (_, value) = found.ok_or_else(|| format!("the argument {} is missing", parameter.name))?;
        let element = argument(parameter).ok_or_else(|| format!("unknown type {}", parameter.ty))?;
        check(&element, value, device).map_err(|reason| format!("{}: {reason}", parameter.name))?;
        score += u64::from(parameter.divisibility.ilog2());
    }
    for (name, value) in arguments {
        if entry.launch.parameters.iter().any(|parameter| parameter.name == *name) {
            continue;
        }
        let locked = entry.launches.arguments.get(*name).ok_or_else(|| match OptionId::parse(name) {
            Some(_) => format!("{name} is a launch option, and locked code has its options already"),
            None => format!("it has no parameter {name}"),
        })?;
        let text = match value.to_host_value() {
            Some(HostValue::Constant(constant)) => constant.to_string(),
            _ => value.describe(),
        };
        if text != *locked {
            return Err(format!("{name} is {locked}, not {text}"));
        }
    }
    Ok(score)
}

/// Checks that an argument has the type and the divisor that the code assumes.
fn check(expected: &Argument, value: &Value<'_>, device: Device) -> Result<(), String> {
    let (element, divisibility) = match expected {
        Argument::Pointer { pointee, divisibility, .. } => (Element::Pointer(*pointee), *divisibility),
        Argument::Scalar { dtype, divisibility } => (Element::Value(*dtype), *divisibility),
        Argument::Constexpr(_) | Argument::Tuple(_) => return Err("it is no run-time value".to_owned()),
    };
    let fits = match (element, value) {
        (Element::Pointer(pointee), Value::Pointer(tensor)) => {
            if tensor.is_elsewhere(device) {
                return Err(format!("the memory is on {}", tensor.device));
            }
            tensor.pointee == pointee && tensor.address.is_multiple_of(divisibility.into())
        }
        (Element::Value(dtype), Value::Int(number)) => {
            holds(dtype, *number) && number % i128::from(divisibility) == 0
        }
        (Element::Value(dtype), Value::Float(_)) => dtype.is_float(),
        (Element::Value(dtype), Value::Bool(_)) => dtype.is_bool(),
        (Element::Value(dtype), Value::Scalar(literal)) => literal.dtype == dtype && divisibility == 1,
        _ => false,
    };
    let divisor = if divisibility == 1 { String::new() } else { format!(", a multiple of {divisibility}") };
    let name = crate::ParameterType::of(expected).name();
    if fits { Ok(()) } else { Err(format!("expected {name}{divisor}, found {}", value.describe())) }
}

/// Returns whether a value is in the range of an integer type; false for any other type.
fn holds(dtype: Dtype, number: i128) -> bool {
    match dtype {
        Dtype::I8 => i8::try_from(number).is_ok(),
        Dtype::I16 => i16::try_from(number).is_ok(),
        Dtype::I32 => i32::try_from(number).is_ok(),
        Dtype::I64 => i64::try_from(number).is_ok(),
        Dtype::U8 => u8::try_from(number).is_ok(),
        Dtype::U16 => u16::try_from(number).is_ok(),
        Dtype::U32 => u32::try_from(number).is_ok(),
        Dtype::U64 => u64::try_from(number).is_ok(),
        _ => false,
    }
}

fn missing(message: String, notes: Vec<String>) -> Error {
    let mut diagnostic = Diagnostic::new(Code::NotLocked, message);
    diagnostic.notes = notes;
    diagnostic.hint("`tilewright lock list` lists the kernels of a lock").into()
}

fn invalid(entry: &Entry, what: &str) -> Error {
    unusable(&format!("the lock's entry for {} has no valid {what}", entry.launches))
}
