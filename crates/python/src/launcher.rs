//! `kernel[grid]`: a function of Python whose arguments arrive as they lie on the stack of the interpreter.
#![expect(unsafe_code, reason = "PyO3 makes such functions only where their parameters are named")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{Borrowed, ffi};
use smallvec::SmallVec;
use tilewright_runtime::ArgumentSource;

use crate::driver::CudaLauncher;
use crate::handle::{self, CompiledKernel};
use crate::kernel::JitKernel;
use crate::launch::launch;
use crate::wrapper::{self, Expected, Wrapper};

/// The arguments of a call.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a, 'py> {
    /// Those by position, then those by keyword.
    values: &'a [Borrowed<'a, 'py, PyAny>],
    positional: usize,
    keywords: Option<Borrowed<'a, 'py, PyTuple>>,
    /// What an autotuner took the arguments to be: if they are not, nothing is launched.
    expected: Option<&'a Expected<'a>>,
}

impl<'a, 'py> Call<'a, 'py> {
    /// Gives a function the arguments that are in a tuple and a dict.
    pub(crate) fn with<R>(
        positional: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
        function: impl FnOnce(&Call<'_, 'py>) -> R,
    ) -> R {
        let named = named.filter(|named| !named.is_empty());
        let named = named.map(|named| (named.keys().to_tuple(), named.values().to_tuple()));
        let mut values: SmallVec<[_; 16]> = positional.iter_borrowed().collect();
        values.extend(named.iter().flat_map(|(_, values)| values.iter_borrowed()));
        let keywords = named.as_ref().map(|(keywords, _)| keywords.as_borrowed());
        function(&Call { values: &values, positional: positional.len(), keywords, expected: None })
    }

    /// Arguments by position, and behind them those by keyword.
    pub(crate) fn new(
        values: &'a [Borrowed<'a, 'py, PyAny>],
        positional: usize,
        keywords: Option<Borrowed<'a, 'py, PyTuple>>,
        expected: Option<&'a Expected<'a>>,
    ) -> Self {
        Self { values, positional, keywords, expected }
    }

    /// What an autotuner took the arguments to be: if they are not, nothing is launched.
    #[inline]
    pub(crate) fn expected(&self) -> Option<&'a Expected<'a>> {
        self.expected
    }

    /// The number of the argument that a parameter gets.
    #[inline]
    pub(crate) fn number(&self, source: ArgumentSource) -> Option<usize> {
        match source {
            ArgumentSource::Positional(number) => Some(number),
            ArgumentSource::Keyword(number) => Some(self.positional + number),
            ArgumentSource::Default => None,
        }
    }

    /// All arguments, those by position first.
    pub(crate) fn values(&self) -> &'a [Borrowed<'a, 'py, PyAny>] {
        self.values
    }

    /// How many are given by position.
    pub(crate) fn positional(&self) -> usize {
        self.positional
    }

    /// The keywords of the others, in order; the same object at each execution of a call that is written with keywords.
    pub(crate) fn keywords(&self) -> Option<Borrowed<'a, 'py, PyTuple>> {
        self.keywords
    }

    /// The keywords as text.
    pub(crate) fn names(&self) -> PyResult<Vec<String>> {
        match self.keywords {
            Some(keywords) => keywords.extract(),
            None => Ok(vec![]),
        }
    }

    /// The argument of the keyword with this number.
    #[inline]
    pub(crate) fn named(&self, number: usize) -> Borrowed<'a, 'py, PyAny> {
        self.values[self.positional + number]
    }

    /// The argument that a parameter gets; `None` if that is its default.
    #[inline]
    pub(crate) fn argument(&self, source: ArgumentSource) -> Option<Borrowed<'a, 'py, PyAny>> {
        match source {
            ArgumentSource::Positional(number) => Some(self.values[number]),
            ArgumentSource::Keyword(number) => Some(self.named(number)),
            ArgumentSource::Default => None,
        }
    }

    /// Gives a function the same call, where the arguments by position from this one on are one tuple.
    pub(crate) fn with_rest<R>(
        &self,
        py: Python<'py>,
        first: usize,
        function: impl FnOnce(&Call<'_, 'py>) -> PyResult<R>,
    ) -> PyResult<R> {
        let (positional, named) = self.values.split_at(self.positional);
        let rest = PyTuple::new(py, &positional[first..])?;
        let mut values: SmallVec<[_; 16]> = positional[..first].iter().copied().collect();
        values.push(rest.as_any().as_borrowed());
        values.extend(named.iter().copied());
        function(&Call { values: &values, positional: first + 1, keywords: self.keywords, expected: None })
    }

    /// The arguments as Python passes them on: `(*args, **kwargs)`.
    pub(crate) fn to_python(self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let (positional, named) = self.values.split_at(self.positional);
        let keywords = PyDict::new(py);
        for (name, value) in self.keywords.iter().flat_map(|names| names.iter_borrowed()).zip(named) {
            keywords.set_item(name, value)?;
        }
        Ok((PyTuple::new(py, positional)?, keywords))
    }
}

/// `object[grid]`, of a kernel or a compiled form: what launches it with this grid.
pub(crate) fn launcher<'py>(
    object: &Bound<'py, PyAny>,
    grid: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static DEFINITION: Definition = Definition(ffi::PyMethodDef {
        ml_name: c"launch".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: call },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: c"Runs the kernel for every program of the grid.".as_ptr(),
    });
    let target = PyTuple::new(object.py(), [object, grid])?;
    make(&DEFINITION, target.as_any())
}

/// What launches as `compiled.run` does, a built-in function.
pub(crate) fn function_of<'py>(launcher: &Bound<'py, CudaLauncher>) -> PyResult<Bound<'py, PyAny>> {
    static DEFINITION: Definition = Definition(ffi::PyMethodDef {
        ml_name: c"run".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: call_run },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: c"Launches the compiled kernel.".as_ptr(),
    });
    make(&DEFINITION, launcher.as_any())
}

/// What a built-in function is made from.
struct Definition(ffi::PyMethodDef);

// SAFETY: nobody changes it.
unsafe impl Sync for Definition {}

/// A built-in function that is called with a target.
fn make<'py>(definition: &'static Definition, target: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (py, definition) = (target.py(), (&raw const definition.0).cast_mut());
    // SAFETY: the definition is as its flags say, is only read, and lives as long as the program.
    unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCFunction_NewEx(definition, target.as_ptr(), null_mut()))
    }
}

/// What Python calls, with the object and the grid as `target`.
unsafe extern "C" fn call(
    target: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python passes what the function was made with, and the arguments as it does.
    unsafe {
        with_call(target, arguments, positional, keywords, |target, call| {
            // SAFETY: the function was made with a tuple.
            let target = target.cast_unchecked::<PyTuple>();
            start(&*target.get_borrowed_item(0)?, &*target.get_borrowed_item(1)?, call)
        })
    }
}

/// What Python calls, with a launcher as `target`.
unsafe extern "C" fn call_run(
    target: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python passes what the function was made with, and the arguments as it does.
    unsafe {
        with_call(target, arguments, positional, keywords, |target, call| {
            let launcher = target.cast::<CudaLauncher>()?;
            CudaLauncher::call(&launcher, call).map(|()| target.py().None())
        })
    }
}

/// Answers a call of Python's.
///
/// # Safety
/// The arguments are those that Python calls a `METH_FASTCALL | METH_KEYWORDS` function with.
unsafe fn with_call(
    target: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
    answer: impl FnOnce(Borrowed<'_, '_, PyAny>, &Call<'_, '_>) -> PyResult<Py<PyAny>>,
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        // SAFETY: Python passes the object that the function was made with, as many arguments as it says, and a tuple of
        // keywords or null; it holds all of them until this returns.
        let (target, call) = unsafe {
            let target = Borrowed::from_ptr(py, target);
            let keywords = Borrowed::from_ptr_or_opt(py, keywords).map(|k| k.cast_unchecked::<PyTuple>());
            let positional = positional as usize;
            let count = positional + keywords.map_or(0, |keywords| keywords.len());
            let values = match count {
                0 => &[],
                // Each is a pointer to an object that is there, which is what a `Borrowed` is.
                _ => std::slice::from_raw_parts(arguments.cast(), count),
            };
            (target, Call { values, positional, keywords, expected: None })
        };
        // A panic is a bug of tilewright. It must not unwind into Python, whose exception it becomes.
        let result = catch_unwind(AssertUnwindSafe(|| answer(target, &call)))
            .unwrap_or_else(|_| Err(PanicException::new_err(("a launch has panicked",))));
        match result {
            Ok(object) => object.into_ptr(),
            Err(error) => {
                error.restore(py);
                null_mut()
            }
        }
    })
}

/// Launches the object with the grid.
pub(crate) fn start<'py>(
    object: &Bound<'py, PyAny>,
    grid: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Py<PyAny>> {
    let py = object.py();
    if let Ok(kernel) = object.cast::<JitKernel>() {
        let handle = launch(kernel, Some(grid), call, false)?;
        return Ok(handle.map_or_else(|| py.None(), Py::into_any));
    }
    if let Ok(wrapper) = object.cast::<Wrapper>() {
        return wrapper::launch(wrapper, grid, call);
    }
    match object.cast::<CompiledKernel>() {
        // Nobody compares the arguments with what is expected.
        _ if call.expected().is_some() => Ok(py.None()),
        Ok(compiled) => handle::launch(compiled, grid, call).map(|()| py.None()),
        Err(_) => wrapper::run(object, grid, call),
    }
}
