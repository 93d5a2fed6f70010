//! Defines a compiled kernel that can be launched.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic};
use tilewright_compiler::{CodegenOptions, CompiledKernel, MachineCode, Resources, TensorMapVariant};
use tilewright_cpu::SanitizedProgram;
use tilewright_frontend::Argument;
use tilewright_ir::{Element, Op};

use crate::key::is_same_value;
use crate::loaded::{Loaded, Variants};
use crate::lock::Compilation;
use crate::options::OptionId;
use crate::signature::{Annotation, ArgumentSource, Signature};
use crate::specialize::{self, cpu_argument};
use crate::{Device, Error, Knobs, Options, Value, dump, num_threads};

/// Data that a caller attaches to a compiled variant, such as the Python objects on which the code
/// depends.
pub type Attachment = Arc<dyn Any + Send + Sync>;

/// A compiled variant of a kernel.
#[derive(Debug)]
pub struct Handle {
    /// The compiled code.
    pub compiled: CompiledKernel,
    signature: Arc<Signature>,
    /// The compiler's description of each parameter's argument.
    arguments: Vec<Argument>,
    /// The index of each run-time parameter, and the run-time parts of its argument.
    passed: SmallVec<[(usize, Passed); 16]>,
    options: Options,
    device: Device,
    /// The number of the compilation in the names of dumped files.
    number: u32,
    makes_pointers: bool,
    /// The loaded code on the GPU or in the simulator. The first use loads the code.
    loaded: OnceLock<Loaded>,
    /// The variants for tensors that some tensor maps cannot describe.
    pub(crate) variants: Variants,
    /// The program of sanitized launches on the CPU, compiled at its first use.
    pub(crate) sanitized: OnceLock<Box<SanitizedProgram>>,
    pub(crate) attachment: Option<Attachment>,
}

/// The run-time parts of an argument.
#[derive(Clone, Copy, Debug)]
enum Passed {
    One(Element),
    /// The run-time items of a tuple.
    Tuple,
}

/// For each parameter of a handle, the source of its argument. It is `None` for a `tl.constexpr`
/// parameter without an argument, because the code contains the value.
pub type Bound = SmallVec<[Option<ArgumentSource>; 16]>;

impl Handle {
    pub(crate) fn new(
        compiled: CompiledKernel,
        (device, number): (Device, u32),
        signature: Arc<Signature>,
        arguments: Vec<Argument>,
        options: Options,
    ) -> Self {
        let passed = arguments.iter().enumerate().filter_map(|(index, argument)| match argument {
            Argument::Pointer { pointee, .. } => Some((index, Passed::One(Element::Pointer(*pointee)))),
            Argument::Scalar { dtype, .. } => Some((index, Passed::One(Element::Value(*dtype)))),
            Argument::Constexpr(_) => None,
            Argument::Tuple(_) => Some((index, Passed::Tuple)),
        });
        let (passed, loaded) = (passed.collect(), OnceLock::new());
        let makes_pointers = makes_pointers(&compiled.lowered);
        Self {
            passed,
            compiled,
            device,
            number,
            makes_pointers,
            loaded,
            variants: Variants::default(),
            sanitized: OnceLock::new(),
            signature,
            arguments,
            options,
            attachment: None,
        }
    }

    /// Returns a handle with the same code and attachment, for options that do not change the code.
    pub(crate) fn shared(&self, options: &Options) -> Self {
        let codegen =
            CodegenOptions { tensor_maps: self.compiled.metadata.codegen.tensor_maps, ..options.codegen() };
        let language =
            tilewright_frontend::Options { num_warps: codegen.num_warps, ..self.compiled.metadata.language };
        Self {
            compiled: self.compiled.shared(language, codegen),
            signature: Arc::clone(&self.signature),
            arguments: self.arguments.clone(),
            passed: self.passed.clone(),
            options: options.clone(),
            device: self.device,
            number: self.number,
            makes_pointers: self.makes_pointers,
            loaded: OnceLock::new(),
            variants: Variants::default(),
            sanitized: OnceLock::new(),
            attachment: self.attachment.clone(),
        }
    }

    /// Returns whether another handle has the same code.
    pub(crate) fn shares_code_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.compiled.code, &other.compiled.code)
    }

    /// Returns a number that identifies the code while the code is alive.
    pub fn code_number(&self) -> usize {
        Arc::as_ptr(&self.compiled.code).addr()
    }

    /// Returns the name and the parameters of the kernel.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Returns the launch options of the request for this handle.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the data that the caller attached when it compiled the code, if the data is a `T`.
    /// Handles that share their code share the data.
    #[doc(hidden)]
    pub fn attachment<T: 'static>(&self) -> Option<&T> {
        self.attachment.as_ref()?.downcast_ref()
    }

    /// Returns the compiler's description of each argument, in the order of the parameters.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// Returns the device that the kernel runs on.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the number of threads of a launch on the CPU; `num_cpu_threads` limits the number.
    pub(crate) fn cpu_threads(&self) -> usize {
        let limit = self.options.number(OptionId::NumCpuThreads).filter(|&limit| limit > 0);
        limit.map_or_else(num_threads, |limit| num_threads().min(limit as usize))
    }

    /// Returns whether the kernel casts integers to pointers, such as addresses that it loads.
    pub fn makes_pointers(&self) -> bool {
        self.makes_pointers
    }

    /// Returns whether a launch has to pass tensor maps to the kernel.
    pub fn takes_tensor_maps(&self) -> bool {
        match &*self.compiled.code {
            MachineCode::Cpu(_) => false,
            MachineCode::Gpu(code) => !code.tensor_maps().is_empty(),
        }
    }

    /// Returns the compilation of this code or of a variant, for a lock.
    pub(crate) fn compilation(&self, tensor_maps: bool, variant: Option<&TensorMapVariant>) -> Compilation {
        let parameters = self.signature.parameters.iter();
        Compilation {
            kernel: self.signature.name.to_string(),
            parameters: parameters.map(|parameter| Arc::clone(&parameter.name)).collect(),
            arguments: self.arguments.clone(),
            target: self.compiled.metadata.target,
            codegen: CodegenOptions { tensor_maps, ..self.options.codegen() },
            variant: variant.cloned(),
        }
    }

    /// Returns the resources that the kernel uses. On a GPU, registers and spills are those that
    /// the driver reports.
    pub fn resources(&self) -> Result<Resources, Error> {
        match self.loaded()? {
            Some(loaded) => Ok(loaded.resources(self.compiled.metadata.resources)),
            None => Ok(self.compiled.metadata.resources),
        }
    }

    /// Does the work that the first launch otherwise does: generates the machine code for the CPU,
    /// or loads the code on the GPU or in the simulator.
    ///
    /// # Errors
    /// If the code cannot be loaded.
    pub fn prepare(&self) -> Result<(), Error> {
        match &*self.compiled.code {
            MachineCode::Cpu(program) => program.make_machine_code(),
            MachineCode::Gpu(_) => drop(self.loaded()?),
        }
        Ok(())
    }

    /// Returns the cubin; `None` on the CPU and in the simulator.
    pub fn cubin(&self) -> Result<Option<&[u8]>, Error> {
        Ok(self.loaded()?.and_then(Loaded::cubin))
    }

    /// Returns the code on the GPU or in the simulator; `None` on the CPU. The first call loads the
    /// code.
    pub fn loaded(&self) -> Result<Option<&Loaded>, Error> {
        match &*self.compiled.code {
            MachineCode::Cpu(_) => Ok(None),
            MachineCode::Gpu(code) => {
                if let Some(loaded) = self.loaded.get() {
                    return Ok(Some(loaded));
                }
                // An error is not cached, because memory may be free later. Two threads may both
                // load the code.
                let loaded = Loaded::new(&self.compiled.name, code, self.device, &self.options)?;
                if let Some(cubin) = loaded.cubin() {
                    dump::machine_code(&Knobs::current(), &self.compiled.name, self.number, cubin);
                }
                Ok(Some(self.loaded.get_or_init(|| loaded)))
            }
        }
    }

    /// Calls `sink` with each run-time argument in order, and with the items of tuples one by one.
    ///
    /// Fails if an argument is missing. Fails if a tuple has another length, or is another tensor
    /// descriptor, than the code was compiled for. Fails if `sink` returns `None`, which means that
    /// the value does not fit the parameter.
    #[inline]
    pub(crate) fn pass<'m>(
        &self,
        arguments: &[Value<'m>],
        sink: &mut impl FnMut(Element, &Value<'m>) -> Option<()>,
    ) -> Result<(), Error> {
        for &(index, what) in &self.passed {
            let value = arguments.get(index);
            let is_passed = match what {
                Passed::One(element) => value.and_then(|value| sink(element, value)),
                Passed::Tuple => pass_item(&self.arguments[index], value, sink),
            };
            if is_passed.is_none() {
                return Err(self.other_argument(index, value));
            }
        }
        Ok(())
    }

    /// Returns the names of the pointers that are passed, in order: `x`, `xs[0].y`.
    pub(crate) fn pointer_names(&self) -> Vec<String> {
        fn add(name: String, argument: &Argument, names: &mut Vec<String>) {
            match argument {
                Argument::Pointer { .. } => names.push(name),
                Argument::Tuple(items) => {
                    for (index, item) in items.iter().enumerate() {
                        add(format!("{name}{}", items.accessor(index)), item, names);
                    }
                }
                Argument::Scalar { .. } | Argument::Constexpr(_) => {}
            }
        }
        let mut names = Vec::new();
        for (parameter, argument) in self.signature.parameters.iter().zip(&self.arguments) {
            add(parameter.name.to_string(), argument, &mut names);
        }
        names
    }

    /// Binds the arguments of a call of this handle to its parameters. Positional arguments bind to
    /// the parameters that are not `tl.constexpr` or, if that fails, to all parameters. Callers use
    /// both conventions. Without an argument, a `tl.constexpr` parameter has the value in the code,
    /// and another parameter has its default. Launch options among the keywords have no effect,
    /// because the code was compiled with the handle's options.
    pub fn bind(&self, positional: usize, keywords: &[&str]) -> Result<Bound, Error> {
        let parameters = &self.signature.parameters;
        if positional > self.signature.most_positional() {
            return Err(self.signature.too_many(positional));
        }
        let mut named: Bound = SmallVec::from_elem(None, parameters.len());
        for (number, &keyword) in keywords.iter().enumerate() {
            match self.signature.position(keyword) {
                Some(index) => named[index] = Some(ArgumentSource::Keyword(number)),
                None if OptionId::parse(keyword).is_some() => {}
                None => return Err(self.signature.unknown_keyword(keyword)),
            }
        }
        let all: SmallVec<[usize; 16]> = (0..parameters.len()).collect();
        let short: SmallVec<[usize; 16]> =
            all.iter().copied().filter(|&index| !self.is_constexpr(index)).collect();
        if positional <= short.len()
            && let Ok(bound) = self.bind_to(positional, &named, &short)
        {
            return Ok(bound);
        }
        self.bind_to(positional, &named, &all)
    }

    /// Binds the positional arguments to the parameters `targets`, and then the defaults to the
    /// run-time parameters without an argument. `named` has the bound keyword arguments.
    fn bind_to(
        &self,
        positional: usize,
        named: &Bound,
        targets: &SmallVec<[usize; 16]>,
    ) -> Result<Bound, Error> {
        if positional > targets.len() {
            return Err(self.signature.too_many(positional));
        }
        let mut bound = named.clone();
        for (number, &index) in targets.iter().take(positional).enumerate() {
            if bound[index].is_some() {
                return Err(self.signature.given_twice(index));
            }
            bound[index] = Some(ArgumentSource::Positional(number));
        }
        for (index, source) in bound.iter_mut().enumerate() {
            if source.is_none() && self.signature.parameters[index].default.is_some() {
                // The code may contain another value than the default of a constexpr.
                *source = (!self.is_constexpr(index)).then_some(ArgumentSource::Default);
            }
        }
        let lacking = |&index: &usize| bound[index].is_none() && !self.is_constexpr(index);
        let missing: Vec<usize> = (0..bound.len()).filter(lacking).collect();
        if missing.is_empty() { Ok(bound) } else { Err(self.signature.missing(&missing)) }
    }

    fn is_constexpr(&self, index: usize) -> bool {
        self.signature.parameters[index].annotation == Annotation::Constexpr
    }

    /// Checks the arguments of a caller that launches the handle itself, and returns one argument
    /// for each parameter. `given` has an argument for each parameter, or for each parameter that
    /// is not `tl.constexpr`. The code is correct only for arguments that it was compiled for, so
    /// other arguments are an error.
    pub fn complete<'m>(&self, given: &[Value<'m>]) -> Result<Vec<Value<'m>>, Error> {
        let parameters = &self.signature.parameters;
        let short = (0..parameters.len()).filter(|&index| !self.is_constexpr(index)).count();
        if given.len() != parameters.len() && given.len() != short {
            return Err(self.signature.wrong_number(given.len()));
        }
        let mut rest = given.iter();
        let all = (0..parameters.len()).map(|index| {
            let is_left_out = self.is_constexpr(index) && given.len() != parameters.len();
            if is_left_out { None } else { rest.next().cloned() }
        });
        self.complete_bound(all.collect::<Vec<_>>())
    }

    /// Completes arguments as [`complete`](Self::complete) does. `given` has an argument or `None`
    /// for each parameter. `None` means the value that is part of the code. For a run-time
    /// parameter, it means a missing argument, which the launch refuses.
    pub fn complete_bound<'m>(
        &self,
        given: impl IntoIterator<Item = Option<Value<'m>>>,
    ) -> Result<Vec<Value<'m>>, Error> {
        let mut complete = Vec::with_capacity(self.arguments.len());
        for (index, value) in given.into_iter().enumerate() {
            if let Some(value) = &value {
                self.check(index, value)?;
            }
            complete.push(match (value, &self.arguments[index]) {
                (Some(value), _) => value,
                (None, Argument::Constexpr(value)) => {
                    Value::Constant { value: value.clone(), is_explicit: true }
                }
                (None, Argument::Pointer { .. } | Argument::Scalar { .. } | Argument::Tuple(_)) => {
                    Value::None
                }
            });
        }
        Ok(complete)
    }

    /// Checks that the code is correct for an argument:
    ///
    /// - The device can read the memory of a tensor. The tensor has the element size of the
    ///   parameter, and its address is a multiple of the parameter's divisibility.
    /// - A number fits the parameter's type. An integer is a multiple of the divisibility.
    /// - An argument of a compile-time parameter equals the value in the code.
    /// - A tuple has the expected structure, and its items satisfy these conditions.
    fn check(&self, index: usize, value: &Value<'_>) -> Result<(), Error> {
        if let Some(found) = self.elsewhere(value) {
            let expected = self.device.memory().to_string();
            return Err(self.signature.wrong_device(index, "", &found.to_string(), &expected));
        }
        if self.fits(index, &self.arguments[index], value) {
            Ok(())
        } else {
            Err(self.other_argument(index, Some(value)))
        }
    }

    /// Returns the device of the first tensor in `value` that the code's device cannot read.
    fn elsewhere(&self, value: &Value<'_>) -> Option<Device> {
        match value {
            Value::Pointer(pointer) => Some(pointer.device).filter(|_| pointer.is_elsewhere(self.device)),
            Value::Tuple(items) => items.iter().find_map(|item| self.elsewhere(item)),
            _ => None,
        }
    }

    fn fits(&self, index: usize, argument: &Argument, value: &Value<'_>) -> bool {
        match (argument, value) {
            (Argument::Pointer { pointee, divisibility, .. }, Value::Pointer(pointer)) => {
                let has_size = pointee.bytes() == pointer.pointee.bytes();
                has_size && pointer.address.is_multiple_of(u64::from(*divisibility))
            }
            (Argument::Scalar { dtype, divisibility }, value) => {
                let multiple = match value {
                    Value::Int(value) => value % i128::from(*divisibility) == 0,
                    Value::Scalar(literal) => {
                        literal.as_int().is_none_or(|v| v % i128::from(*divisibility) == 0)
                    }
                    _ => true,
                };
                multiple && cpu_argument(Element::Value(*dtype), value).is_some()
            }
            (Argument::Constexpr(_), value) => {
                let given = specialize::argument(&self.signature.parameters[index], value, Device::Cpu);
                given.is_ok_and(|given| is_same_argument(&given, argument))
            }
            (Argument::Tuple(items), Value::Tuple(values)) => {
                items.is_alike(values)
                    && items.iter().zip(values).all(|(item, value)| self.fits(index, item, value))
            }
            (Argument::Pointer { .. } | Argument::Tuple(_), _) => false,
        }
    }

    #[cold]
    fn other_argument(&self, index: usize, value: Option<&Value<'_>>) -> Error {
        let mut name = self.signature.parameters[index].name.to_string();
        let (mut argument, mut value) = (&self.arguments[index], value);
        // In a tuple of the expected structure, the error names the first unfit item.
        while let (Argument::Tuple(items), Some(Value::Tuple(values))) = (argument, value)
            && items.is_alike(values)
            && let Some(place) =
                (0..items.len()).find(|&place| !self.fits(index, &items[place], &values[place]))
        {
            name.push_str(&items.accessor(place));
            (argument, value) = (&items[place], Some(&values[place]));
        }
        let found = value.map_or_else(|| "nothing".into(), Value::describe);
        let expected = match argument {
            Argument::Pointer { pointee, divisibility: 1, .. } => format!("a tensor of {pointee}"),
            Argument::Pointer { pointee, divisibility, .. } => {
                format!("a tensor of {pointee} at a multiple of {divisibility} bytes")
            }
            Argument::Scalar { dtype, divisibility: 1 } => format!("a number of type {dtype}"),
            Argument::Scalar { dtype, divisibility } => {
                format!("a number of type {dtype} that is a multiple of {divisibility}")
            }
            Argument::Constexpr(tilewright_frontend::HostValue::Constant(constant)) => {
                format!("the value that is part of its code, {constant}")
            }
            Argument::Constexpr(_) => "the value that is part of its code".into(),
            Argument::Tuple(items) => match (items.descriptor(), items.fields()) {
                (Some(form), _) => format!("a tensor descriptor with blocks of shape {}", form.block_shape),
                (None, Some(fields)) => format!("a tuple with the fields {}", fields.join(", ")),
                (None, None) => format!("a tuple of length {}", items.len()),
            },
        };
        let message = format!(
            "argument '{name}' is not what this handle of kernel '{}' was compiled for",
            self.signature.name
        );
        let diagnostic = Diagnostic::new(Code::InvalidArgument, message)
            .note(format!("found {found}, expected {expected}"))
            .hint(format!(
                "launch with `{}[grid](...)`, which compiles another variant if needed",
                self.signature.name
            ));
        self.signature.at(diagnostic, Some(index), "this parameter")
    }
}

/// Returns whether the kernel casts an integer to a pointer.
fn makes_pointers(module: &tilewright_ir::Module) -> bool {
    let mut found = false;
    for function in module.functions.values() {
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            let (Op::Cast { element, .. } | Op::Bitcast { element }) = data.op else { return };
            let is_number = |&value: &_| function.ty(value).element.pointee().is_none();
            found |= element.pointee().is_some() && data.operands.iter().any(is_number);
        });
    }
    found
}

/// Calls `sink` with each run-time item of an argument, in order. Returns `None` if `sink` does, or
/// if the value is missing or has another structure.
fn pass_item<'m>(
    argument: &Argument,
    value: Option<&Value<'m>>,
    sink: &mut impl FnMut(Element, &Value<'m>) -> Option<()>,
) -> Option<()> {
    let element = match (argument, value?) {
        (Argument::Tuple(items), Value::Tuple(values))
            if items.len() == values.len() && items.descriptor() == values.descriptor() =>
        {
            let mut pairs = items.iter().zip(values);
            return pairs.try_for_each(|(item, value)| pass_item(item, Some(value), sink));
        }
        (Argument::Tuple(_), _) => return None,
        (Argument::Constexpr(_), _) => return Some(()),
        (Argument::Pointer { pointee, .. }, _) => Element::Pointer(*pointee),
        (Argument::Scalar { dtype, .. }, _) => Element::Value(*dtype),
    };
    sink(element, value?)
}

fn is_same_argument(one: &Argument, other: &Argument) -> bool {
    match (one, other) {
        (Argument::Constexpr(one), Argument::Constexpr(other)) => is_same_value(one, other),
        (Argument::Tuple(one), Argument::Tuple(other)) => {
            one.is_alike(other) && one.iter().zip(other).all(|(one, other)| is_same_argument(one, other))
        }
        _ => one == other,
    }
}
