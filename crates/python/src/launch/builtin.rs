//! Creates built-in functions of Python, which get their arguments from the interpreter's stack.
#![expect(unsafe_code, reason = "PyO3 gives functions with `**kwargs` a tuple and a dict instead")]

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{Borrowed, ffi};

use crate::values::call::Call;

/// A built-in function of one object, its *target*. Each call gets the target.
pub(crate) trait Builtin {
    const NAME: &'static CStr;
    const DOC: &'static CStr;

    /// Runs a call of the function for this target.
    fn answer(target: Borrowed<'_, '_, PyAny>, call: &Call<'_, '_>) -> PyResult<Py<PyAny>>;
}

/// Creates a built-in function with a target.
pub(crate) fn make<'py, B: Builtin>(target: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (py, definition) = (target.py(), std::ptr::from_ref(Definition::<B>::METHOD).cast_mut());
    // SAFETY: `call` has the signature that the flags of the definition state. Python only reads
    // the definition, which lives as long as the program.
    unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCFunction_NewEx(definition, target.as_ptr(), null_mut()))
    }
}

/// The description of a built-in function for Python.
struct Definition<B>(std::marker::PhantomData<B>);

impl<B: Builtin> Definition<B> {
    const METHOD: &'static ffi::PyMethodDef = &ffi::PyMethodDef {
        ml_name: B::NAME.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: call::<B> },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: B::DOC.as_ptr(),
    };
}

/// Runs a call from Python. This function has the signature of a C function with `METH_FASTCALL`.
unsafe extern "C" fn call<B: Builtin>(
    target: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        // SAFETY: Python passes the target of the function, `count` arguments, and a tuple of
        // keywords or null. It keeps all of them alive until this function returns.
        let (target, call) = unsafe {
            let target = Borrowed::from_ptr(py, target);
            let keywords = Borrowed::from_ptr_or_opt(py, keywords).map(|k| k.cast_unchecked::<PyTuple>());
            let positional = positional as usize;
            let count = positional + keywords.map_or(0, |keywords| keywords.len());
            let values = match count {
                0 => &[],
                // Each pointer refers to a live object, and `Borrowed` has the same representation.
                _ => std::slice::from_raw_parts(arguments.cast(), count),
            };
            (target, Call::new(values, positional, keywords, None))
        };
        // A panic must not unwind into Python.
        let result = catch_unwind(AssertUnwindSafe(|| B::answer(target, &call)))
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
