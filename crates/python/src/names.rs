//! Exports the names of the language, and the op tables for their conformance tests.

use pyo3::prelude::*;
use tilewright_frontend::semantic::{
    EntryKind, PARAMETERS, RESULTS, combining_signatures, language_entries, modes,
};
use tilewright_ir::{Accuracy, Domain, Dtype, ElementwiseFn, OPS};

/// Returns the functions of the language. Each has its path relative to `triton.language`, its
/// parameters as text, its doc, and whether it is also a method of tensors.
#[pyfunction]
pub(crate) fn language_names() -> Vec<(&'static str, String, String, bool)> {
    let functions = language_entries().filter(|entry| match entry.kind {
        EntryKind::Function => true,
        EntryKind::Constant | EntryKind::Class | EntryKind::Module => false,
    });
    functions
        .map(|entry| {
            let parameters =
                entry.signature.find('(').map_or("(*args, **kwargs)", |at| &entry.signature[at..]);
            (entry.path, parameters.to_owned(), entry.doc, entry.is_method)
        })
        .collect()
}

/// Returns the combine functions of the library's reductions, which are names of the module
/// `standard`. Each has its name and its parameters as text.
#[pyfunction]
pub(crate) fn combining_functions() -> Vec<(&'static str, &'static str)> {
    combining_signatures()
}

/// The name of each parameter, its type, and its meaning.
type ParameterTypes = Vec<(&'static str, &'static str, &'static str)>;

/// The names of functions, and their overloads: the parameter on which the result depends, its
/// type, and the type of the result.
type ResultTypes = Vec<(Vec<&'static str>, Vec<(Option<(&'static str, &'static str)>, &'static str)>)>;

/// The names of modes (types with a few values), and their values.
type ModeTypes = Vec<(&'static str, Vec<&'static str>)>;

/// Returns the types of the language, for the stubs.
#[pyfunction]
pub(crate) fn language_types() -> (ParameterTypes, ResultTypes, ModeTypes) {
    let parameters = PARAMETERS.iter().map(|row| (row.name, row.ty, row.doc)).collect();
    let results = RESULTS.iter().map(|(names, overloads)| {
        (names.to_vec(), overloads.iter().map(|overload| (overload.parameter, overload.result)).collect())
    });
    let modes = modes().into_iter().map(|mode| (mode.alias, mode.values)).collect();
    (parameters, results.collect(), modes)
}

/// Family, name, operands, element types, and two errors in ulp: the error (`None` if exact), and
/// the additional error of fp32 for each unit of |x|.
type ElementwiseRow = (&'static str, &'static str, Vec<&'static str>, &'static str, Option<f32>, f32);

/// Returns the rows of the elementwise table.
#[pyfunction]
pub(crate) fn elementwise_functions() -> Vec<ElementwiseRow> {
    let row = |function: &ElementwiseFn| {
        let info = function.info();
        let (ulps, slope) = match info.accuracy {
            Accuracy::Exact => (None, 0.0),
            Accuracy::Ulp(ulps) | Accuracy::FlushedUlp(ulps) => (Some(ulps), 0.0),
            Accuracy::GrowingUlp(ulps, slope) => (Some(ulps), slope),
        };
        let domain = match info.domain {
            Domain::Number => "integers and floats",
            Domain::Integer => "integers",
            Domain::Bits => "integers and booleans",
            Domain::Float => "floats",
            Domain::Any => "values of any type",
        };
        (info.family, info.name, info.operands.to_vec(), domain, ulps, slope)
    };
    ElementwiseFn::ALL.iter().map(row).collect()
}

/// Returns the ops of tile IR. Each has its name, its family, and the names of its attributes.
#[pyfunction]
pub(crate) fn tile_ops() -> Vec<(&'static str, String, Vec<&'static str>)> {
    let row = |op: &tilewright_ir::OpInfo| {
        let attributes = op.attributes.iter().map(|(name, _)| *name).collect();
        (op.name, format!("{:?}", op.family), attributes)
    };
    OPS.iter().map(row).collect()
}

/// Returns the names of the element types in the IR.
#[pyfunction]
pub(crate) fn element_types() -> Vec<&'static str> {
    Dtype::ALL.iter().map(|dtype| dtype.name()).collect()
}
