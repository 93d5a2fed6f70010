//! Represents `@jit` functions as values. The compiler refers to them by numbers.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use tilewright_base::SourceFile;
use tilewright_frontend::{FunctionRef, FunctionSource};
use tilewright_runtime::{Annotation, Parameter, ParameterKind};

/// A `@jit` function, whether it is launched or not: the base of `JitKernel`.
#[pyclass(subclass, frozen, module = "tilewright._native")]
#[derive(Default)]
pub(crate) struct Function {
    definition: OnceLock<Definition>,
}

/// The function as its decorator describes it.
struct Definition {
    number: FunctionRef,
    /// The source. Test suites replace it.
    source: RwLock<FunctionSource>,
    parameters: Vec<Parameter>,
    debug: bool,
}

type DefinedParameter = (String, bool, String, bool, bool, u8);

#[pymethods]
impl Function {
    /// Sets the definition of the function. Python's `JITFunction.__init__` calls this method.
    ///
    /// Each of `params` is a tuple with these items:
    ///
    /// - the name of the parameter;
    /// - whether it is a constexpr;
    /// - its annotation;
    /// - whether it is in `do_not_specialize`;
    /// - whether it is in `do_not_specialize_on_alignment`;
    /// - its kind as in `inspect`.
    #[pyo3(signature = (*, name, file, text, first_line, removed_columns, noinline, debug, params))]
    #[expect(clippy::too_many_arguments, reason = "they are passed by keyword")]
    fn _define(
        slf: &Bound<'_, Self>,
        name: String,
        file: String,
        text: String,
        first_line: u32,
        removed_columns: u32,
        noinline: bool,
        debug: bool,
        params: Vec<DefinedParameter>,
    ) -> PyResult<()> {
        let parameters =
            params.into_iter().map(|(name, is_constexpr, annotation, unspecialized, unaligned, kind)| {
                let annotation =
                    if is_constexpr { Annotation::Constexpr } else { Annotation::parse(&annotation) };
                let kind = match kind {
                    0 => ParameterKind::PositionalOnly,
                    2 => ParameterKind::Variadic,
                    3 => ParameterKind::KeywordOnly,
                    _ => ParameterKind::Any,
                };
                Parameter {
                    kind,
                    specialize: !unspecialized,
                    specialize_alignment: !unaligned,
                    ..Parameter::new(name, annotation)
                }
            });
        let file = SourceFile { name: file, text, first_line, removed_columns };
        let definition = Definition {
            debug,
            number: register(slf)?,
            source: RwLock::new(FunctionSource { name, file: Arc::new(file), offset: 0, noinline }),
            parameters: parameters.collect(),
        };
        slf.get()
            .definition
            .set(definition)
            .map_err(|_| PyRuntimeError::new_err("the function is defined already"))
    }

    /// Returns whether `_define` was called.
    fn _is_defined(&self) -> bool {
        self.definition.get().is_some()
    }
}

impl Function {
    /// Returns the number by which the compiler refers to the function, once it is defined.
    pub(crate) fn number(&self) -> Option<FunctionRef> {
        self.definition.get().map(|definition| definition.number)
    }

    /// Returns the source of the function, once it is defined.
    pub(crate) fn source(&self) -> Option<FunctionSource> {
        let definition = self.definition.get()?;
        Some(definition.source.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Replaces the text and position of the function.
    pub(crate) fn replace_source(&self, name: String, file: SourceFile) {
        if let Some(definition) = self.definition.get() {
            let mut source = definition.source.write().unwrap_or_else(PoisonError::into_inner);
            *source = FunctionSource { name, file: Arc::new(file), ..source.clone() };
        }
    }

    /// Returns the parameters of the function, without their defaults.
    pub(crate) fn parameters(&self) -> &[Parameter] {
        self.definition.get().map_or(&[], |definition| &definition.parameters)
    }

    /// Returns whether the decorator has `debug=True`.
    pub(crate) fn is_debug(&self) -> bool {
        self.definition.get().is_some_and(|definition| definition.debug)
    }
}

/// The functions, by number. A function lives only as long as the program refers to it.
static FUNCTIONS: Mutex<Vec<Py<PyWeakrefReference>>> = Mutex::new(Vec::new());

/// Registers a function, and returns its number.
fn register(function: &Bound<'_, Function>) -> PyResult<FunctionRef> {
    let reference = PyWeakrefReference::new(function)?.unbind();
    let mut functions = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    functions.push(reference);
    Ok(FunctionRef(functions.len() as u32 - 1))
}

/// Returns the function with a number, if the program still has it.
pub(crate) fn function(py: Python<'_>, number: FunctionRef) -> Option<Bound<'_, Function>> {
    let functions = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let reference = functions.get(number.0 as usize)?.bind(py).clone();
    drop(functions);
    reference.upgrade_as::<Function>().ok().flatten()
}
