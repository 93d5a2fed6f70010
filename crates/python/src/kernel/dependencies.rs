//! Tracks the variables and attributes of the program that a compiled kernel has read.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use tilewright_frontend::HostValue;
use tilewright_runtime::is_same_value;

use crate::values::classify::{Classes, classify};

/// A variable or attribute that a kernel read when it was compiled, and its value then.
pub(crate) struct Variable {
    source: VariableSource,
    value: Py<PyAny>,
    meaning: HostValue,
    /// True if the object is or contains a list, which the program may change.
    is_mutable: bool,
}

/// The part of the program that has the variable.
pub(crate) enum VariableSource {
    /// In the dict of a module, by this name.
    Global(Py<PyDict>, Py<PyString>),
    /// In a cell of a closure.
    Cell(Py<PyAny>),
    /// An attribute of an object. Reading the attribute may run code of the program.
    Attribute(Py<PyAny>, Py<PyString>),
}

impl VariableSource {
    fn is(&self, other: &VariableSource) -> bool {
        match (self, other) {
            (VariableSource::Global(dict, name), VariableSource::Global(other, other_name)) => {
                dict.is(other) && name.is(other_name)
            }
            (VariableSource::Cell(cell), VariableSource::Cell(other)) => cell.is(other),
            (VariableSource::Attribute(object, name), VariableSource::Attribute(other, other_name)) => {
                object.is(other) && name.is(other_name)
            }
            _ => false,
        }
    }

    /// Returns the present value.
    #[inline]
    fn read<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match self {
            VariableSource::Global(dict, name) => dict.bind(py).get_item(name.bind(py)).ok().flatten(),
            VariableSource::Cell(cell) => cell.bind(py).getattr(intern!(py, "cell_contents")).ok(),
            VariableSource::Attribute(object, name) => object.bind(py).getattr(name.bind(py)).ok(),
        }
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            VariableSource::Global(dict, name) => {
                VariableSource::Global(dict.clone_ref(py), name.clone_ref(py))
            }
            VariableSource::Cell(cell) => VariableSource::Cell(cell.clone_ref(py)),
            VariableSource::Attribute(object, name) => {
                VariableSource::Attribute(object.clone_ref(py), name.clone_ref(py))
            }
        }
    }
}

impl Variable {
    pub(crate) fn new(source: VariableSource, value: &Bound<'_, PyAny>, meaning: HostValue) -> Self {
        Self { source, is_mutable: is_mutable(value), value: value.clone().unbind(), meaning }
    }

    /// Returns whether `other` is the same variable, even if the values differ.
    pub(crate) fn is_same_variable(&self, other: &Variable) -> bool {
        self.source.is(&other.source)
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.source {
            VariableSource::Global(dict, _) => visit.call(dict)?,
            VariableSource::Cell(object) | VariableSource::Attribute(object, _) => visit.call(object)?,
        }
        visit.call(&self.value)
    }
}

fn is_mutable(value: &Bound<'_, PyAny>) -> bool {
    let py = value.py();
    if value.is_instance_of::<PyList>() {
        return true;
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return tuple.iter().any(|item| is_mutable(&item));
    }
    let is_constexpr =
        Classes::get(py).is_ok_and(|classes| value.is_exact_instance(classes.constexpr.bind(py)));
    is_constexpr && value.getattr(intern!(py, "value")).is_ok_and(|inner| is_mutable(&inner))
}

/// Returns whether variables still have the values that they had.
///
/// Each variable is a tuple of its owner (a dict, or an object with attributes), its name and its
/// value. The tuple omits the value if the variable had none.
#[pyfunction]
pub(crate) fn is_unchanged(reads: &Bound<'_, PyList>) -> PyResult<bool> {
    for read in reads.iter() {
        let read = read.cast_into::<PyTuple>()?;
        let (owner, name) = (read.get_borrowed_item(0)?, read.get_borrowed_item(1)?);
        let now = match owner.cast::<PyDict>() {
            Ok(names) => names.get_item(name)?,
            // A cell without a value raises a `ValueError`.
            Err(_) => owner.getattr(name.cast::<PyString>()?).ok(),
        };
        let before = if read.len() > 2 { Some(read.get_borrowed_item(2)?) } else { None };
        let is_same = match (now, before) {
            (Some(now), Some(before)) => now.is(before),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// All dependencies of one compiled variant. They are attached to its handle.
pub(crate) struct Dependencies {
    /// The variables. The list is replaced as a whole, so that no code of the program runs under
    /// the lock.
    variables: Mutex<Arc<Vec<Variable>>>,
}

/// The result of comparing the variables of a program with the dependencies of a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Freshness {
    /// All variables have the same values.
    Same,
    /// All variables have the same values. But the comparison may have run code of the program and
    /// moved arguments.
    SameByCode,
    /// A variable has changed. The handle must not be used any more.
    Changed,
}

impl Dependencies {
    pub(crate) fn new(variables: Vec<Variable>) -> Self {
        Self { variables: Mutex::new(Arc::new(variables)) }
    }

    fn variables(&self) -> Arc<Vec<Variable>> {
        Arc::clone(&self.variables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Compares every variable with its value at the compilation.
    #[inline]
    pub(crate) fn freshness(&self, py: Python<'_>) -> Freshness {
        let variables = self.variables();
        let mut freshness = Freshness::Same;
        let mut others = Vec::new();
        for (index, variable) in variables.iter().enumerate() {
            let Some(now) = variable.source.read(py) else { return Freshness::Changed };
            if matches!(variable.source, VariableSource::Attribute(..)) {
                freshness = Freshness::SameByCode;
            }
            if variable.is_mutable || !now.is(&variable.value) {
                others.push((index, now));
            }
        }
        if others.is_empty() { freshness } else { self.compare(py, &variables, &others) }
    }

    /// Compares the meanings of the variables in `others`, which have a new or a mutable object. If
    /// all are the same, the dependencies refer to the new objects from now on.
    #[cold]
    fn compare(
        &self,
        py: Python<'_>,
        variables: &Arc<Vec<Variable>>,
        others: &[(usize, Bound<'_, PyAny>)],
    ) -> Freshness {
        for (index, now) in others {
            let is_same = classify(now).is_ok_and(|now| is_same_value(&now, &variables[*index].meaning));
            if !is_same {
                return Freshness::Changed;
            }
        }
        let mut renewed: Vec<Variable> = variables
            .iter()
            .map(|variable| Variable {
                source: variable.source.clone_ref(py),
                value: variable.value.clone_ref(py),
                meaning: variable.meaning.clone(),
                is_mutable: variable.is_mutable,
            })
            .collect();
        for (index, now) in others {
            renewed[*index].value = now.clone().unbind();
            renewed[*index].is_mutable = is_mutable(now);
        }
        let mut current = self.variables.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, Arc::new(renewed));
        drop(current);
        drop(old);
        Freshness::SameByCode
    }

    /// Visits the objects of the variables for the garbage collector.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(variables) = self.variables.try_lock() else { return Ok(()) };
        variables.iter().try_for_each(|variable| variable.visit(visit))
    }
}
