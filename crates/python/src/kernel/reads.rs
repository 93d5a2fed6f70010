//! What a compiled form was made from: the variables and attributes of the program that its kernel reads.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use tilewright_frontend::HostValue;
use tilewright_runtime::is_same_value;

use crate::values::classify::{Classes, classify};

/// A variable or attribute that a kernel was compiled with, and what it was then.
pub(crate) struct Variable {
    place: Place,
    value: Py<PyAny>,
    meaning: HostValue,
    /// True if the same object may mean something else later: it is a list, or holds one.
    is_mutable: bool,
}

/// Where the program keeps it.
pub(crate) enum Place {
    /// In the dict of a module, by this name.
    Global(Py<PyDict>, Py<PyString>),
    /// In a cell of a closure.
    Cell(Py<PyAny>),
    /// It is this attribute of an object; to read it may run code of the program.
    Attribute(Py<PyAny>, Py<PyString>),
}

impl Place {
    fn is(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Global(dict, name), Place::Global(other, other_name)) => {
                dict.is(other) && name.is(other_name)
            }
            (Place::Cell(cell), Place::Cell(other)) => cell.is(other),
            (Place::Attribute(object, name), Place::Attribute(other, other_name)) => {
                object.is(other) && name.is(other_name)
            }
            _ => false,
        }
    }

    /// What is there now.
    #[inline]
    fn read<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match self {
            Place::Global(dict, name) => dict.bind(py).get_item(name.bind(py)).ok().flatten(),
            Place::Cell(cell) => cell.bind(py).getattr(intern!(py, "cell_contents")).ok(),
            Place::Attribute(object, name) => object.bind(py).getattr(name.bind(py)).ok(),
        }
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Place::Global(dict, name) => Place::Global(dict.clone_ref(py), name.clone_ref(py)),
            Place::Cell(cell) => Place::Cell(cell.clone_ref(py)),
            Place::Attribute(object, name) => Place::Attribute(object.clone_ref(py), name.clone_ref(py)),
        }
    }
}

impl Variable {
    pub(crate) fn new(place: Place, value: &Bound<'_, PyAny>, meaning: HostValue) -> Self {
        Self { place, is_mutable: is_mutable(value), value: value.clone().unbind(), meaning }
    }

    /// Returns whether it is the same variable.
    pub(crate) fn is_same_place(&self, other: &Variable) -> bool {
        self.place.is(&other.place)
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.place {
            Place::Global(dict, _) => visit.call(dict)?,
            Place::Cell(object) | Place::Attribute(object, _) => visit.call(object)?,
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

/// Everything that one compiled form was made from. It belongs to the handle.
pub(crate) struct ReadSet {
    /// Replaced as a whole: nobody runs Python's code while the lock is held.
    variables: Mutex<Arc<Vec<Variable>>>,
}

/// Whether a program still is what a handle was compiled from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Freshness {
    /// It is.
    Same,
    /// It is, but to find out, code of the program was run: arguments may lie elsewhere by now.
    SameByCode,
    /// The handle must not be used any more.
    Changed,
}

impl ReadSet {
    pub(crate) fn new(variables: Vec<Variable>) -> Self {
        Self { variables: Mutex::new(Arc::new(variables)) }
    }

    fn variables(&self) -> Arc<Vec<Variable>> {
        Arc::clone(&self.variables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at every variable.
    #[inline]
    pub(crate) fn freshness(&self, py: Python<'_>) -> Freshness {
        let variables = self.variables();
        let mut freshness = Freshness::Same;
        let mut others = Vec::new();
        for (index, variable) in variables.iter().enumerate() {
            let Some(now) = variable.place.read(py) else { return Freshness::Changed };
            if matches!(variable.place, Place::Attribute(..)) {
                freshness = Freshness::SameByCode;
            }
            if variable.is_mutable || !now.is(&variable.value) {
                others.push((index, now));
            }
        }
        if others.is_empty() { freshness } else { self.compare(py, &variables, &others) }
    }

    /// Another object may be the same to a kernel: notebooks and factories make equal ones again and again.
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
                place: variable.place.clone_ref(py),
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

    /// For the garbage collector.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(variables) = self.variables.try_lock() else { return Ok(()) };
        variables.iter().try_for_each(|variable| variable.visit(visit))
    }
}
