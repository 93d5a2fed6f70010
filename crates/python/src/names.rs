//! The names of the language, for the Python namespace `tilewright.language`; the two op tables,
//! for their conformance tests.

use pyo3::prelude::*;
use tilewright_frontend::semantic::{
    EntryKind, PARAMETERS, RESULTS, combining_signatures, language_entries, modes,
};
use tilewright_ir::{Accuracy, Domain, Dtype, ElementwiseFn, OPS};

/// The functions of the language: for each its path below `triton.language`, its parameters as they
/// are written, what it does, and whether tensors have it as a method.
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

/// The functions that the library's reductions combine with, names of the module `standard`: the
/// name, and the parameters as they are written.
#[pyfunction]
pub(crate) fn combining_functions() -> Vec<(&'static str, &'static str)> {
    combining_signatures()
}

/// The types of the parameters, by their names: the type and the meaning.
type ParameterTypes = Vec<(&'static str, &'static str, &'static str)>;

/// The results that are not one tensor, by the names of the functions: for each overload the
/// parameter that the result depends on with its type, if there is one, and the type of the result.
type ResultTypes = Vec<(Vec<&'static str>, Vec<(Option<(&'static str, &'static str)>, &'static str)>)>;

/// The names of modes, and their values.
type ModeTypes = Vec<(&'static str, Vec<&'static str>)>;

/// The types of the language as the stubs write them.
#[pyfunction]
pub(crate) fn language_types() -> (ParameterTypes, ResultTypes, ModeTypes) {
    let parameters = PARAMETERS.iter().map(|row| (row.name, row.ty, row.doc)).collect();
    let results = RESULTS.iter().map(|(names, overloads)| {
        (names.to_vec(), overloads.iter().map(|overload| (overload.parameter, overload.result)).collect())
    });
    let modes = modes().into_iter().map(|mode| (mode.alias, mode.values)).collect();
    (parameters, results.collect(), modes)
}

/// A row of the elementwise table: its family, its name, its operands, its element types, its
/// error in ulp (none if it is exact), and the additional error of fp32 for each unit of |x|.
type ElementwiseRow = (&'static str, &'static str, Vec<&'static str>, &'static str, Option<f32>, f32);

/// The elementwise functions.
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

/// The ops of the tile IR: for each its name, its family, and the names of its attributes.
#[pyfunction]
pub(crate) fn tile_ops() -> Vec<(&'static str, String, Vec<&'static str>)> {
    let row = |op: &tilewright_ir::OpInfo| {
        let attributes = op.attributes.iter().map(|(name, _)| *name).collect();
        (op.name, format!("{:?}", op.family), attributes)
    };
    OPS.iter().map(row).collect()
}

/// The element types, by the names that the IR gives them.
#[pyfunction]
pub(crate) fn element_types() -> Vec<&'static str> {
    Dtype::ALL.iter().map(|dtype| dtype.name()).collect()
}
