//! Defines a test case: a kernel, its inputs and its expected results.

use std::sync::Arc;

use tilewright::frontend::{Constant, HostValue};
use tilewright::runtime::{ArgumentSource, Handle, Interrupt, Options, Value, parse_argument, parse_dtype};
use tilewright::{Color, Device, Dtype, Error, Grid, Kernel, Module};

use crate::{Array, Expression};

/// A test case of a Markdown page. The documentation of the crate describes the format.
#[derive(Clone, Debug)]
pub struct Case {
    /// The line of the page at which the case starts.
    pub line: usize,
    /// The kernel's name.
    pub kernel: String,
    /// The Python source.
    pub code: String,
    /// The signature for which the kernel is compiled. A case with a signature is not run.
    pub signature: Option<String>,
    /// The arguments, the options and the grid, by name.
    pub inputs: Vec<(String, Input)>,
    /// The expected results. Each item has the name of a tensor, a tolerance, and the expression
    /// for an element. If the tolerance is `None`, the elements must be equal.
    pub expect: Vec<(String, Option<f64>, Expression)>,
}

/// An input of a case.
#[derive(Clone, Debug)]
pub enum Input {
    /// A tensor and its elements.
    Tensor(Dtype, Vec<usize>, Expression),
    /// A number with a dtype.
    Number(Dtype, Expression),
    /// The grid, or a value without a dtype. Examples are `1024`, `'text'` and `(2, 1)`.
    Constant(Constant),
}

/// The outcome of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// There are no diagnostics, and the results are correct.
    Right,
    /// The results differ from the expected ones. The text shows the first difference.
    Wrong(String),
    /// The kernel does not compile, or its launch fails. The text contains the diagnostics.
    Diagnostics(String),
}

/// The memory of a device that cannot access the memory of the host. Tensors are copied to the
/// device before a launch, and back after it.
pub trait DeviceMemory {
    /// Copies bytes to the device, and returns their address. The address is a multiple of 16.
    fn upload(&mut self, bytes: &[u8]) -> Result<u64, String>;
    /// Waits until all launches have finished, then copies bytes back.
    fn download(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), String>;
}

/// How a case is run. The results must be correct in each mode.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// On the CPU, with optimized IR.
    Optimized,
    /// On the CPU, with the IR before optimization.
    Unoptimized,
    /// On the CPU, with optimized IR, and without symbolic tiles.
    Dense,
    /// On a device, with optimized IR.
    On(Device),
}

impl Case {
    /// Parses a case from the blocks of a page.
    pub fn parse(line: usize, info: &str, code: &str, inputs: &str, expect: &str) -> Result<Self, String> {
        let attribute = |name: &str| info.split_whitespace().find_map(|word| word.strip_prefix(name));
        let kernel = attribute("kernel=").ok_or("a case needs kernel=<name>")?.to_owned();
        let signature = attribute("signature=").map(str::to_owned);
        let lines = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
        };
        let inputs = lines(inputs).iter().map(|line| parse_input(line)).collect::<Result<Vec<_>, _>>()?;
        let expect = lines(expect).iter().map(|line| parse_expect(line)).collect::<Result<Vec<_>, _>>()?;
        if signature.is_none() && inputs.is_empty() {
            return Err("a case needs a signature or inputs".into());
        }
        Ok(Self { line, kernel, code: code.to_owned(), signature, inputs, expect })
    }

    /// Runs the case on the CPU. If the case has a signature, only compiles the kernel for this
    /// signature. Otherwise compiles the kernel for the inputs, runs it in every CPU mode, and
    /// compares the results.
    ///
    /// An `Err` means that the case itself is malformed.
    pub fn run(&self) -> Result<Outcome, String> {
        self.run_in_modes(&[Mode::Optimized, Mode::Unoptimized, Mode::Dense], &mut None)
    }

    /// Runs the case once, on a device. Otherwise this function is equivalent to
    /// [`run`](Self::run). `memory` is the memory of the device, if it is separate from the host's
    /// memory. An `Err` may also be an error of `memory`.
    pub fn run_on(
        &self,
        device: Device,
        mut memory: Option<&mut dyn DeviceMemory>,
    ) -> Result<Outcome, String> {
        self.run_in_modes(&[Mode::On(device)], &mut memory)
    }

    fn run_in_modes(
        &self,
        modes: &[Mode],
        memory: &mut Option<&mut dyn DeviceMemory>,
    ) -> Result<Outcome, String> {
        let diagnostics = |error: Error| Ok(Outcome::Diagnostics(error.render(Color::Never)));
        let kernel =
            Module::from_source("example.py", self.code.as_str()).and_then(|m| m.kernel(&self.kernel));
        let kernel = match kernel {
            Ok(kernel) => kernel,
            Err(error) => return diagnostics(error),
        };
        if let Some(signature) = &self.signature {
            return match kernel.compile(signature, &Options::default()) {
                Ok(_) => Ok(Outcome::Right),
                Err(error) => diagnostics(error),
            };
        }
        for &mode in modes {
            let before = self.tensors()?;
            let mut after = before.clone();
            match self.launch(&kernel, &mut after, mode, memory)? {
                Err(error) => return diagnostics(error),
                Ok(()) => {
                    if let Some(wrong) = self.compare(&before, &after)? {
                        return Ok(Outcome::Wrong(format!("{mode:?}: {wrong}")));
                    }
                }
            }
        }
        Ok(Outcome::Right)
    }

    /// Returns the ops in the frontend's IR. Their names are those in [`OPS`](tilewright::ir::OPS).
    /// The list is empty if the case does not compile.
    pub fn ops(&self) -> Result<Vec<&'static str>, String> {
        let handle = self.handle()?;
        let mut ops = Vec::new();
        for function in handle.iter().flat_map(|handle| handle.compiled.lowered.functions.values()) {
            function.walk(function.entry, &mut |inst| ops.push(function.insts[inst].op.info().name));
        }
        Ok(ops)
    }

    /// Returns the optimized IR, or `None` if the case does not compile.
    pub fn module(&self) -> Result<Option<tilewright::ir::Module>, String> {
        Ok(self.handle()?.map(|handle| handle.compiled.module.as_ref().clone()))
    }

    /// Compiles the kernel for the case's signature. If the case has no signature, compiles it for
    /// the inputs. Returns `None` if the kernel does not compile.
    fn handle(&self) -> Result<Option<Arc<Handle>>, String> {
        let Ok(kernel) =
            Module::from_source("example.py", self.code.as_str()).and_then(|m| m.kernel(&self.kernel))
        else {
            return Ok(None);
        };
        let mut tensors = self.tensors()?;
        let (values, _) = self.values(&mut tensors)?;
        Ok(match &self.signature {
            Some(signature) => kernel.compile(signature, &Options::default()).ok().map(Arc::new),
            None => bind(&kernel, &values)
                .and_then(|(arguments, options)| kernel.handle(&arguments, &options))
                .ok(),
        })
    }

    fn tensors(&self) -> Result<Vec<(String, Array)>, String> {
        let mut tensors: Vec<(String, Array)> = Vec::new();
        for (name, input) in &self.inputs {
            if let Input::Tensor(dtype, shape, expression) = input {
                let mut array = Array::zeros(*dtype, shape);
                for index in 0..array.len() {
                    let value = expression.evaluate(&indices(shape, index), &tensors)?;
                    array.set(index, value);
                }
                tensors.push((name.clone(), array));
            }
        }
        Ok(tensors)
    }

    /// Returns the arguments and options with their names, and the grid. The tensors are first.
    fn values<'t>(&'t self, tensors: &'t mut [(String, Array)]) -> Result<(Named<'t>, GridResult), String> {
        let mut values: Named<'t> =
            tensors.iter_mut().map(|(name, array)| (name.as_str(), array.argument())).collect();
        let mut grid = Ok(Grid::from([1, 1, 1]));
        for (name, input) in &self.inputs {
            match input {
                Input::Tensor(..) => {}
                Input::Constant(constant) if name == "grid" => grid = parse_grid(constant),
                Input::Constant(constant) => values.push((name, to_value(constant))),
                Input::Number(dtype, expression) => values.push((name, number(*dtype, expression)?)),
            }
        }
        Ok((values, grid))
    }

    fn launch(
        &self,
        kernel: &Kernel,
        tensors: &mut [(String, Array)],
        mode: Mode,
        memory: &mut Option<&mut dyn DeviceMemory>,
    ) -> Result<Result<(), Error>, String> {
        let device = match mode {
            Mode::On(device) => device,
            Mode::Optimized | Mode::Unoptimized | Mode::Dense => Device::Cpu,
        };
        let mut addresses = Vec::new();
        if let Some(memory) = memory {
            for (_, array) in &*tensors {
                addresses.push(memory.upload(array.bytes())?);
            }
        }
        let (mut values, grid) = self.values(tensors)?;
        for ((_, value), &address) in values.iter_mut().zip(&addresses) {
            if let Value::Pointer(pointer) = value {
                (pointer.address, pointer.device) = (address, device);
            }
        }
        let kernel = &kernel.on(device);
        let launched = bind(kernel, &values).and_then(|(arguments, options)| {
            let handle = kernel.handle(&arguments, &options)?;
            run_in(&handle, mode, grid?, &arguments)
        });
        if let (Some(memory), Ok(())) = (memory, &launched) {
            for ((_, array), address) in tensors.iter_mut().zip(addresses) {
                memory.download(address, array.bytes_mut())?;
            }
        }
        Ok(launched)
    }

    /// Describes the first difference from the expected results. Returns `None` if there is no
    /// difference.
    fn compare(
        &self,
        before: &[(String, Array)],
        after: &[(String, Array)],
    ) -> Result<Option<String>, String> {
        for (name, tolerance, expression) in &self.expect {
            let found = after.iter().find(|(other, _)| other == name);
            let (_, array) = found.ok_or_else(|| format!("there is no tensor {name}"))?;
            for index in 0..array.len() {
                let indices = indices(&array.shape, index);
                let expected = expression.evaluate(&indices, before)?;
                let found = array.get(index);
                let is_right = match tolerance {
                    None => found == array.rounded(expected) || found.is_nan() && expected.is_nan(),
                    Some(tolerance) => {
                        found == expected
                            || (found - expected).abs() <= tolerance * expected.abs().max(1.0)
                            || found.is_nan() && expected.is_nan()
                    }
                };
                if !is_right {
                    return Ok(Some(format!("{name}{indices:?} is {found}, expected {expected}")));
                }
            }
        }
        Ok(None)
    }
}

/// Arguments and options with their names.
type Named<'t> = Vec<(&'t str, Value<'t>)>;
type GridResult = Result<Grid, Error>;

/// Matches values by name to the kernel's parameters and to the options. Returns one value for each
/// parameter, and the options.
fn bind<'t>(kernel: &Kernel, values: &Named<'t>) -> Result<(Vec<Value<'t>>, Options), Error> {
    let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
    let binding = kernel.signature().bind(0, &names)?;
    let mut options = Options::default();
    for &(index, option) in &binding.options {
        if let Some(HostValue::Constant(constant)) = values[index].1.to_host_value() {
            options.set(option, &constant)?;
        }
    }
    let arguments = binding.parameters.iter().zip(&kernel.signature().parameters).map(
        |(source, parameter)| match *source {
            ArgumentSource::Positional(index) | ArgumentSource::Keyword(index) => values[index].1.clone(),
            ArgumentSource::Default => parameter.default.clone().unwrap_or(Value::None),
        },
    );
    Ok((arguments.collect(), options))
}

fn run_in(handle: &Handle, mode: Mode, grid: Grid, arguments: &[Value<'_>]) -> Result<(), Error> {
    let program = match mode {
        Mode::Optimized | Mode::On(_) => return handle.launch(grid, arguments, Interrupt::Never),
        Mode::Unoptimized => tilewright_compiler::cpu_program(&handle.compiled.lowered),
        Mode::Dense => tilewright_compiler::cpu_program_without_symbolic_forms(&handle.compiled.module),
    };
    let program = program.map_err(|diagnostic| Error::from(*diagnostic))?;
    handle.launch_program(&program, grid, arguments, Interrupt::Never)
}

fn parse_input(line: &str) -> Result<(String, Input), String> {
    let (left, right) = line.split_once('=').ok_or_else(|| format!("'{line}': expected `name = value`"))?;
    let (left, right) = (left.trim(), right.trim());
    let Some((name, ty)) = left.split_once(':') else {
        let argument = parse_argument(right, true).map_err(|error| error.to_string())?;
        return match argument {
            tilewright::frontend::Argument::Constexpr(HostValue::Constant(constant)) => {
                Ok((left.to_owned(), Input::Constant(constant)))
            }
            _ => Err(format!("'{line}': expected a value")),
        };
    };
    let (dtype, shape) = match ty.trim().split_once('[') {
        None => (ty.trim(), None),
        Some((dtype, shape)) => {
            let extents = shape.trim_end_matches(']').split(',').filter(|extent| !extent.trim().is_empty());
            let extents = extents.map(|extent| extent.trim().parse::<usize>());
            (
                dtype,
                Some(extents.collect::<Result<Vec<_>, _>>().map_err(|error| format!("'{line}': {error}"))?),
            )
        }
    };
    let dtype = parse_dtype(dtype).ok_or_else(|| format!("'{line}': unknown dtype {dtype}"))?;
    let expression = Expression::parse(right)?;
    let input = match shape {
        Some(shape) => Input::Tensor(dtype, shape, expression),
        None => Input::Number(dtype, expression),
    };
    Ok((name.trim().to_owned(), input))
}

fn parse_expect(line: &str) -> Result<(String, Option<f64>, Expression), String> {
    let wrong = || format!("'{line}': expected `name = value` or `name ~ value`");
    let position = line.find(['=', '~']).ok_or_else(wrong)?;
    let (name, rest) = line.split_at(position);
    let (sign, rest) = rest.split_at(1);
    if sign == "=" {
        return Ok((name.trim().to_owned(), None, Expression::parse(rest.trim())?));
    }
    let (tolerance, value) = rest.split_once(' ').ok_or_else(wrong)?;
    let tolerance = if tolerance.is_empty() { 1e-5 } else { tolerance.parse().map_err(|_| wrong())? };
    Ok((name.trim().to_owned(), Some(tolerance), Expression::parse(value.trim())?))
}

fn parse_grid(constant: &Constant) -> Result<Grid, Error> {
    let extent = |constant: &Constant| match constant {
        Constant::Int(value) => Some(*value),
        _ => None,
    };
    let extents: Option<Vec<i128>> = match constant {
        Constant::Tuple(items) => items.iter().map(extent).collect(),
        other => extent(other).map(|value| vec![value]),
    };
    Grid::new(
        &extents
            .ok_or_else(|| Grid::not_a_grid(&format!("a {}", constant.type_name()), &constant.to_string()))?,
    )
}

fn to_value(constant: &Constant) -> Value<'static> {
    match constant {
        Constant::None => Value::None,
        Constant::Bool(value) => Value::Bool(*value),
        Constant::Int(value) => Value::Int(*value),
        Constant::Float(value) => Value::Float(*value),
        other => Value::Constant { value: HostValue::Constant(other.clone()), is_explicit: false },
    }
}

fn number(dtype: Dtype, expression: &Expression) -> Result<Value<'static>, String> {
    let value = expression.evaluate(&[], &[])?;
    let literal = match tilewright::ir::Literal::float(dtype, value) {
        Some(literal) => literal,
        None if dtype.is_int() => tilewright::ir::Literal::int(dtype, value as i128),
        None => return Err(format!("no number has type {dtype}")),
    };
    Ok(Value::Scalar(literal))
}

/// Returns the indices, one for each axis, of the element with a row-major index.
fn indices(shape: &[usize], mut flat: usize) -> Vec<usize> {
    let mut indices = vec![0; shape.len()];
    for (axis, &extent) in shape.iter().enumerate().rev() {
        indices[axis] = flat % extent.max(1);
        flat /= extent.max(1);
    }
    indices
}
