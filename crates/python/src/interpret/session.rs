//! Keeps the interpreted launch of this thread and evaluates its operations.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic, SourceFile};
use tilewright_frontend::{Constant, HostValue, Operand, semantic};
use tilewright_ir::{Dtype, Literal, Type};
use tilewright_runtime::interpret::{Environment, Form, Held, Launch, Piece, Site, Tile, locate};
use tilewright_runtime::{Error, Interrupt, are_padded_reads_allowed, keep_padded_reads, take_padded_reads};

use super::convert::{to_operand, to_python, wrapped_number};
use super::objects::{Method, Tensor};
use crate::errors::{to_exception, warn};
use crate::kernel::host::{Findings, PyHost, failure};
use crate::signals::SignalCheck;
use crate::values::classify::classify;
use crate::values::live::{self, Live};

/// The operands of an operation.
pub(crate) type Operands = SmallVec<[Operand<Tile>; 4]>;

/// A launch of an interpreted kernel.
pub(crate) struct Session {
    pub(crate) launch: Launch,
    signal: SignalCheck,
    /// Live tensors other than the arguments, whose memory pointers may reach. Empty until needed.
    live: RefCell<Vec<Live>>,
    /// The function to call after each operation.
    hook: Option<Py<PyAny>>,
    /// The function to call in place of each operation. It gets an object whose call evaluates the
    /// operation.
    around: Option<Py<PyAny>>,
    /// True during a call of `around`.
    is_around: Cell<bool>,
    /// The Python code of the body, at which the search for source locations on the stack ends.
    code: Option<Py<PyAny>>,
}

thread_local! {
    /// The active launches, outermost first. A kernel's body may launch another kernel.
    static SESSIONS: RefCell<Vec<Rc<Session>>> = const { RefCell::new(Vec::new()) };
    /// The functions of the active [`InterpretHook`]s of this thread, innermost last. A launch
    /// calls only the innermost function after each operation.
    static HOOKS: RefCell<Vec<Py<PyAny>>> = const { RefCell::new(Vec::new()) };
}

/// A guard that ends the active session when it is dropped.
pub(crate) struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        let ended = SESSIONS.with_borrow_mut(Vec::pop);
        drop(ended);
    }
}

impl Session {
    pub(crate) fn new(body: &Bound<'_, PyAny>, launch: Launch, around: Option<Py<PyAny>>) -> Self {
        let py = body.py();
        let code = body.getattr(intern!(py, "__code__")).ok().map(Bound::unbind);
        let hook = HOOKS.with_borrow(|hooks| hooks.last().map(|hook| hook.clone_ref(py)));
        let (signal, live) = (SignalCheck::default(), RefCell::default());
        Self { launch, signal, live, hook, around, is_around: Cell::new(false), code }
    }

    /// Makes this session the active session of this thread until the result is dropped.
    pub(crate) fn begin(self: &Rc<Self>) -> Running {
        SESSIONS.with_borrow_mut(|sessions| sessions.push(Rc::clone(self)));
        Running
    }

    fn evaluate(&self, py: Python<'_>, form: &Form, operands: &[Operand<Tile>]) -> PyResult<Operand<Tile>> {
        let mut host = PyHost::default();
        let findings = host.findings();
        let signal = &self.signal;
        let poll = || signal.poll();
        let mut foreign = || {
            let Ok(found) = live::tensors(py) else { return Vec::new() };
            let regions = found.regions.clone();
            self.live.borrow_mut().push(found);
            regions
        };
        let mut environment =
            Environment { host: &mut host, foreign: &mut foreign, interrupt: Interrupt::Poll(&poll) };
        match self.launch.evaluate(form, operands, &mut environment) {
            Ok(result) => {
                for mut read in self.launch.take_padded_reads() {
                    locate(&mut read, &sites(py)?);
                    if let Error::Diagnostics(failure) = Error::from(read) {
                        keep_padded_reads(failure.diagnostics, &failure.sources);
                    }
                }
                if are_padded_reads_allowed() {
                    take_padded_reads().iter().try_for_each(|read| warn(py, read))?;
                }
                Ok(result)
            }
            Err(mut error) => {
                let mut found = findings.lock().unwrap_or_else(PoisonError::into_inner);
                let Findings { raised, caught, .. } = std::mem::take(&mut *found);
                if let Some(raised) = raised.or_else(|| self.signal.take()) {
                    return Err(raised);
                }
                locate(&mut error, &sites(py)?);
                Err(failure(py, Error::from(*error), caught))
            }
        }
    }
}

/// Returns the active launch of this thread.
pub(crate) fn current() -> Option<Rc<Session>> {
    SESSIONS.with_borrow(|sessions| sessions.last().cloned())
}

/// Returns whether this thread is interpreting a kernel.
pub(crate) fn is_running() -> bool {
    SESSIONS.with_borrow(|sessions| !sessions.is_empty())
}

/// Evaluates an operation of the active session. `name` is the name of the operation in the source.
pub(crate) fn evaluate<'py>(
    py: Python<'py>,
    name: &str,
    form: &Form,
    operands: &[Operand<Tile>],
) -> PyResult<Bound<'py, PyAny>> {
    let Some(session) = current() else { return Err(outside(py, name)) };
    let result = match &session.around {
        Some(around) if !session.is_around.replace(true) => {
            let operation = Operation { form: form.clone(), operands: operands.to_vec() };
            let passed = operands.iter().map(|operand| to_python(py, operand));
            let passed = passed.collect::<PyResult<Vec<_>>>();
            let result = passed.and_then(|passed| {
                around.bind(py).call1((name, keywords(form), PyTuple::new(py, passed)?, operation))
            });
            session.is_around.set(false);
            result?
        }
        _ => to_python(py, &session.evaluate(py, form, operands)?)?,
    };
    if let Some(hook) = &session.hook {
        let passed = operands.iter().map(|operand| to_python(py, operand));
        let passed = PyTuple::new(py, passed.collect::<PyResult<Vec<_>>>()?)?;
        let [x, y, z] = session.launch.id();
        hook.call1(py, (name, keywords(form), passed, &result, (x, y, z)))?;
    }
    Ok(result)
}

/// An operation that a function of the program replaces or wraps.
#[pyclass(unsendable, module = "tilewright._native")]
pub(crate) struct Operation {
    form: Form,
    operands: Vec<Operand<Tile>>,
}

#[pymethods]
impl Operation {
    /// Evaluates the operation.
    fn __call__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(session) = current() else { return Err(outside(py, "this operation")) };
        to_python(py, &session.evaluate(py, &self.form, &self.operands)?)
    }

    /// The positions of new axes in a subscript that only adds axes; `None` for other operations.
    #[getter]
    fn new_axes(&self) -> Option<Vec<usize>> {
        let Form::Subscript { pieces, .. } = &self.form else { return None };
        let is_plain = |piece: &Piece| matches!(piece, Piece::NewAxis | Piece::Slice([false, false, false]));
        let axes = pieces.iter().enumerate().filter(|(_, piece)| matches!(piece, Piece::NewAxis));
        pieces.iter().all(is_plain).then(|| axes.map(|(axis, _)| axis).collect())
    }

    /// True for an operator with two operands.
    #[getter]
    fn is_binary(&self) -> bool {
        matches!(self.form, Form::Binary(_))
    }

    /// True for a call of the first operand with the others.
    #[getter]
    fn is_function(&self) -> bool {
        matches!(self.form, Form::Call { .. })
    }
}

/// Sets the index of the current program and the extents of the grid. Values that are not passed
/// remain unchanged.
#[pyfunction]
#[pyo3(signature = (id=None, grid=None))]
pub(crate) fn interpret_program_is(id: Option<[u32; 3]>, grid: Option<[u32; 3]>) -> PyResult<()> {
    let session =
        current().ok_or_else(|| PyRuntimeError::new_err("no kernel is interpreted on this thread now"))?;
    if let Some(grid) = grid {
        session.launch.set_grid(grid);
    }
    if let Some(id) = id {
        session.launch.set_id(id);
    }
    Ok(())
}

/// Creates a tensor from a type and the bytes of its elements in row-major order.
#[pyfunction]
pub(crate) fn interpret_tensor(ty: &Bound<'_, PyAny>, bytes: &[u8]) -> PyResult<Tensor> {
    let held = match classify(ty)? {
        HostValue::Constant(Constant::Type(ty)) => {
            Held::from_bytes(&ty, bytes).map(|held| Tile::new(ty, held))
        }
        _ => None,
    };
    held.map(Tensor::new)
        .ok_or_else(|| PyValueError::new_err("the number of bytes does not fit the type of the tensor"))
}

/// Returns the names of the keyword operands. These are the last operands.
fn keywords(form: &Form) -> Vec<&'static str> {
    match form {
        Form::Call { keywords, .. } | Form::Method { keywords, .. } => keywords.to_vec(),
        Form::Value
        | Form::Unary(_)
        | Form::Binary(_)
        | Form::Attribute(_)
        | Form::Subscript { .. }
        | Form::Builtin(..)
        | Form::Truth => Vec::new(),
    }
}

/// Returns the exception for an operation outside a running kernel.
fn outside(py: Python<'_>, name: &str) -> PyErr {
    let diagnostic = Diagnostic::new(Code::OutsideKernel, format!("'{name}' is used outside of a kernel"))
        .note("no kernel is interpreted on this thread now")
        .hint("values of an interpreted kernel can be printed and converted afterwards, not computed with");
    to_exception(py, &diagnostic.into())
}

/// Returns the source locations of the current operation and of its callers, innermost first.
fn sites(py: Python<'_>) -> PyResult<Vec<Site>> {
    type Found = (String, String, u32, u32, (u32, u32), (u32, u32));
    let module = py.import(intern!(py, "tilewright.runtime._interpreted"))?;
    let code = current().and_then(|session| session.code.as_ref().map(|code| code.clone_ref(py)));
    let found: Vec<Found> = module.call_method1(intern!(py, "sites"), (code,))?.extract()?;
    let site = |(name, text, first_line, removed_columns, start, end): Found| {
        let file = SourceFile { name, text, first_line, removed_columns };
        let range = byte(&file.text, start)?..byte(&file.text, end)?;
        Some(Site { file: Arc::new(file), range })
    };
    Ok(found.into_iter().filter_map(site).collect())
}

/// Returns the offset in bytes of a position in a text: a line, counted from 0, and a column in
/// bytes.
fn byte(text: &str, (line, column): (u32, u32)) -> Option<u32> {
    let before: usize = text.split_inclusive('\n').take(line as usize).map(str::len).sum();
    let at = before + column as usize;
    text.is_char_boundary(at).then_some(at as u32)
}

/// Returns a static copy of a name. Each thread leaks each name once.
pub(crate) fn symbol(name: &str) -> &'static str {
    thread_local! {
        static NAMES: RefCell<rustc_hash::FxHashSet<&'static str>> = RefCell::default();
    }
    NAMES.with_borrow_mut(|names| {
        if let Some(&known) = names.get(name) {
            return known;
        }
        let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
        names.insert(kept);
        kept
    })
}

/// Evaluates `and` or `or`. If the left operand is not a tensor, the caller has checked that it
/// does not determine the result. The result is then the right operand.
#[pyfunction]
pub(crate) fn interpret_boolean<'py>(
    py: Python<'py>,
    operator: &str,
    left: &Bound<'py, PyAny>,
    right: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if !left.is_instance_of::<Tensor>() {
        return Ok(right.clone());
    }
    let operator = symbol(operator);
    evaluate(py, operator, &Form::Binary(operator), &[to_operand(left)?, to_operand(right)?])
}

/// Evaluates `value.name`. Numbers have the attributes of tensors.
#[pyfunction]
pub(crate) fn interpret_attribute<'py>(
    value: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let constant = if current().is_some() { wrapped_number(value)? } else { None };
    let Some(constant) = constant.filter(|constant| *constant != Constant::None) else {
        return value.getattr(name);
    };
    let name = symbol(&name.to_cow()?);
    if Tensor::has_method(py, name)? {
        let method = Method::new(to_python(py, &Operand::Constant(constant))?.unbind(), name);
        return Ok(Bound::new(py, method)?.into_any());
    }
    evaluate(py, name, &Form::Attribute(name), &[Operand::Constant(constant)])
}

/// Evaluates `not x`.
#[pyfunction]
pub(crate) fn interpret_not<'py>(py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if !value.is_instance_of::<Tensor>() {
        return Ok(pyo3::types::PyBool::new(py, !value.is_truthy()?).to_owned().into_any());
    }
    evaluate(py, "not", &Form::Unary("not"), &[to_operand(value)?])
}

/// Evaluates `left operator right` by the rules of the language, also for two tuples.
#[pyfunction]
pub(crate) fn interpret_operator<'py>(
    operator: &str,
    left: &Bound<'py, PyAny>,
    right: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let operator = symbol(operator);
    evaluate(left.py(), operator, &Form::Binary(operator), &[to_operand(left)?, to_operand(right)?])
}

/// Calls a Python function, such as `min` or `max`, that the language also defines. While a kernel
/// is interpreted, evaluates the function of the language if an argument is a tensor and there are
/// no keyword arguments. Otherwise calls the function of Python.
#[pyfunction]
#[pyo3(signature = (name, function, args, kwargs))]
pub(crate) fn interpret_builtin<'py>(
    py: Python<'py>,
    name: &str,
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let is_tensor = args.iter_borrowed().any(|object| object.is_instance_of::<Tensor>());
    if !is_tensor || current().is_none() || kwargs.is_some_and(|kwargs| !kwargs.is_empty()) {
        return function.call(args, kwargs);
    }
    let operands = args.iter_borrowed().map(|object| to_operand(&object)).collect::<PyResult<Operands>>()?;
    let name = symbol(name);
    evaluate(py, name, &Form::Builtin(name, operands.len()), &operands)
}

/// Returns an iterator over a range, with scalars of the type of a compiled loop's index.
#[pyfunction]
pub(crate) fn interpret_range<'py>(
    py: Python<'py>,
    lower: &Bound<'py, PyAny>,
    upper: &Bound<'py, PyAny>,
    step: &Bound<'py, PyAny>,
) -> PyResult<Counter> {
    let bounds = [to_operand(lower)?, to_operand(upper)?, to_operand(step)?];
    let mut types = Vec::with_capacity(3);
    let mut numbers = [0_i128; 3];
    for (position, (bound, number)) in bounds.iter().zip(&mut numbers).enumerate() {
        let (ty, value) = match bound {
            Operand::Tensor(tile) => {
                let dtype = tile.ty.dtype().filter(|_| tile.ty.is_scalar());
                let bits = tile.held.uniform_bits().unwrap_or(0);
                let value = dtype.and_then(|dtype| Literal { dtype, bits }.as_int());
                (tile.ty.clone(), value)
            }
            Operand::Constant(constant) => {
                let dtype = semantic::natural_dtype(constant).unwrap_or(Dtype::F32);
                let value = match constant {
                    Constant::Int(value) => Some(*value),
                    Constant::Bool(value) => Some(i128::from(*value)),
                    _ => None,
                };
                (Type::scalar(dtype), value)
            }
            _ => return Err(wrong_bound(py, position, "no number")),
        };
        *number = value.unwrap_or(0);
        types.push(ty);
    }
    let dtype = semantic::loop_dtype(&types[0], &types[1], &types[2]);
    let dtype = dtype.map_err(|error| {
        let position = error.arguments.first().map_or(0, |(position, _)| *position);
        wrong_bound(py, position, &types[position].to_string())
    })?;
    let [next, end, step] = numbers;
    if step == 0 {
        let diagnostic = Diagnostic::new(Code::InvalidLoop, "the step of a loop is zero");
        return Err(located(py, diagnostic.hint("pass a step that is not 0"), "this loop would never end"));
    }
    let is_constant = bounds.iter().all(|bound| bound.constant().is_some());
    let distance = if step > 0 { end - next } else { next - end };
    let last = (is_constant && distance > 0).then(|| next + (distance - 1) / step.abs() * step);
    Ok(Counter { next, end, step, dtype, last })
}

/// Returns the exception for a mistake that Python code found.
#[pyfunction]
#[pyo3(signature = (code, message, label, hint=None))]
pub(crate) fn interpret_mistake(
    py: Python<'_>,
    code: &str,
    message: &str,
    label: &str,
    hint: Option<&str>,
) -> PyResult<Py<PyAny>> {
    let code = Code::parse(code)
        .ok_or_else(|| PyValueError::new_err(format!("there is no diagnostic code {code}")))?;
    let diagnostic = Diagnostic::new(code, message);
    let diagnostic = match hint {
        Some(hint) => diagnostic.hint(hint),
        None => diagnostic,
    };
    Ok(located(py, diagnostic, label).into_value(py).into_any())
}

fn wrong_bound(py: Python<'_>, position: usize, found: &str) -> PyErr {
    let what = ["start", "end", "step"][position.min(2)];
    let message = format!("the {what} of a range must be a scalar integer");
    let diagnostic = Diagnostic::new(Code::TypeMismatch, message)
        .note(format!("found {found}, expected int32 or int64"))
        .hint("convert it with `.to(tl.int32)`; a tile is reduced first, as by `tl.max`");
    located(py, diagnostic, "")
}

/// Returns the exception for a failed `assert`.
#[pyfunction]
#[pyo3(signature = (message=None))]
pub(crate) fn interpret_failed(py: Python<'_>, message: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
    let text = match message {
        Some(message) => format!("device assertion failed: {}", message.str()?.to_cow()?),
        None => "device assertion failed".to_owned(),
    };
    let error = located(py, Diagnostic::new(Code::DeviceAssertFailed, text), "does not hold");
    Ok(error.into_value(py).into_any())
}

/// Returns the exception for a diagnostic at the current operation, with a label.
fn located(py: Python<'_>, diagnostic: Diagnostic, label: &str) -> PyErr {
    let diagnostic = match current() {
        Some(session) => session.launch.in_program(diagnostic),
        None => diagnostic,
    };
    let mut failure = tilewright_frontend::Failure {
        diagnostics: vec![diagnostic],
        sources: tilewright_base::SourceMap::default(),
    };
    match sites(py) {
        Ok(sites) => {
            tilewright_frontend::relocate(&mut failure, &sites);
            if let Some(primary) = &mut failure.diagnostics[0].primary {
                label.clone_into(&mut primary.text);
            }
            to_exception(py, &Error::from(Box::new(failure)))
        }
        Err(error) => error,
    }
}

/// An iterator over a range.
#[pyclass(module = "tilewright._native", name = "InterpretedRange")]
pub(crate) struct Counter {
    next: i128,
    end: i128,
    step: i128,
    dtype: Dtype,
    /// The last index. `None` if a bound or the step is not a compile-time constant, or if the
    /// range is empty.
    last: Option<i128>,
}

#[pymethods]
impl Counter {
    /// Returns the last index, if a compiled kernel has this index as a constant.
    #[getter]
    fn last(&self) -> Option<Tensor> {
        let tile = |number| Tile::constant(Literal::int(self.dtype, number));
        self.last.map(|number| Tensor::new(tile(number)))
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> Option<Tensor> {
        let is_before = if self.step > 0 { self.next < self.end } else { self.next > self.end };
        if !is_before {
            return None;
        }
        let bits = Literal::int(self.dtype, self.next).bits;
        self.next += self.step;
        Some(Tensor::new(Tile::new(Type::scalar(self.dtype), Held::scalar(bits))))
    }
}

/// Returns the current program, the grid and the kernel's name, or `None` outside interpreted
/// kernels.
#[pyfunction]
pub(crate) fn interpreted_program() -> Option<([u32; 3], [u32; 3], String)> {
    let session = current()?;
    Some((session.launch.id(), session.launch.grid(), session.launch.name.clone()))
}

/// A context manager that sets the hook of the launches of this thread in interpret mode.
///
/// A launch calls the hook after each operation: `hook(name, keywords, operands, result, program)`.
/// If several managers are active when the launch begins, it only calls the hook of the innermost
/// manager.
#[pyclass(frozen, module = "tilewright._native")]
pub(crate) struct InterpretHook {
    hook: Py<PyAny>,
}

#[pymethods]
impl InterpretHook {
    #[new]
    fn new(hook: Py<PyAny>) -> Self {
        Self { hook }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        let hook = slf.get().hook.clone_ref(slf.py());
        HOOKS.with_borrow_mut(|hooks| hooks.push(hook));
        slf
    }

    #[pyo3(signature = (*_how))]
    #[expect(clippy::unused_self, reason = "Python calls it as a method")]
    fn __exit__(&self, _how: &Bound<'_, PyTuple>) -> PyResult<()> {
        let ended = HOOKS.with_borrow_mut(Vec::pop);
        ended.map(drop).ok_or_else(|| PyRuntimeError::new_err("the hook was entered on another thread"))
    }
}
