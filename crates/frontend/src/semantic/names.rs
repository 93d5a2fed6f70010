//! Collects the names of `triton.language` in a table.
//!
//! The frontend resolves names in it and suggests from it. The Python stubs are generated from it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::constants::{DTYPES, named_constant, type_constants};
use super::library::{LIBRARY, LibraryFunction, combining};
use super::signature::{BuiltinParameter, parse_signature};
use super::table::{Builtin, Namespace, ROWS};
use crate::value::Constant;

/// The meaning of a name of `triton.language`.
#[derive(Clone, Debug)]
pub enum LanguageItem {
    /// A function that the semantic rules implement.
    Builtin(&'static BuiltinSpec),
    /// A function that is written in the kernel language.
    Library(LibraryFunction),
    /// A prefix of other names: `math`, `extra.libdevice`.
    Module,
    /// A compile-time value.
    Constant(Constant),
    /// A class.
    Special(Special),
}

/// A class that kernels name in annotations and in `isinstance`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// `tensor`.
    Tensor,
    /// `dtype`.
    Dtype,
    /// `const`.
    Const,
    /// `tensor_descriptor`.
    TensorDescriptor,
    /// `base_value`, `base_type` and `tensor_descriptor_base`, which only `isinstance` accepts.
    Base,
}

/// A builtin: its signature, as plain data, and its rule.
#[derive(Debug)]
pub struct BuiltinSpec {
    /// The name, without a prefix.
    pub name: &'static str,
    /// The signature, as Python writes it.
    pub signature: &'static str,
    /// The parameters.
    pub parameters: Vec<BuiltinParameter>,
    /// The documentation, one item for each line.
    pub docs: &'static [&'static str],
    /// The modules and classes that have the builtin as a member.
    namespaces: &'static [Namespace],
    pub(super) implementation: Builtin,
}

/// The methods of types. They take no arguments.
pub(super) const TYPE_METHODS: &[&str] = &[
    "is_floating",
    "is_standard_floating",
    "is_int",
    "is_int_signed",
    "is_int_unsigned",
    "is_bool",
    "is_int1",
    "is_int8",
    "is_int16",
    "is_int32",
    "is_int64",
    "is_uint8",
    "is_uint16",
    "is_uint32",
    "is_uint64",
    "is_fp8",
    "is_fp8e5",
    "is_fp8e4nv",
    "is_fp8e4b15",
    "is_fp8e4b8",
    "is_fp8e5b16",
    "is_fp16",
    "is_bf16",
    "is_fp32",
    "is_fp64",
    "is_ptr",
    "is_block",
    "is_const",
    "is_void",
    "kind",
    "mangle",
    "get_int_min_value",
    "get_int_max_value",
    "get_block_shapes",
    "codegen_name",
];

const SPECIALS: &[(&str, Special)] = &[
    ("tensor", Special::Tensor),
    ("dtype", Special::Dtype),
    ("const", Special::Const),
    ("tensor_descriptor", Special::TensorDescriptor),
    ("base_value", Special::Base),
    ("base_type", Special::Base),
    ("tensor_descriptor_base", Special::Base),
];

/// The modules in which Triton defines the names: `tl.core.load` is `tl.load`.
const ROOTS: &[&str] = &["core", "standard", "random", "semantic"];

static SPECS: LazyLock<Vec<BuiltinSpec>> = LazyLock::new(|| {
    let rows =
        ROWS.iter().filter_map(|row| spec(row.signature, row.docs, row.namespaces, row.implementation));
    let predicates = TYPE_METHODS.iter().map(|name| BuiltinSpec {
        name,
        signature: "(self)",
        parameters: vec![BuiltinParameter {
            name: "self",
            kind: super::signature::ParameterKind::Positional,
            default: None,
        }],
        docs: &["Returns the property of the type that the name of the method states."],
        namespaces: &[Namespace::TypeMethod],
        implementation: Builtin::TypeMethod,
    });
    rows.chain(predicates).collect()
});

fn spec(
    signature: &'static str,
    docs: &'static [&'static str],
    namespaces: &'static [Namespace],
    implementation: Builtin,
) -> Option<BuiltinSpec> {
    let (name, parameters) = parse_signature(signature)?;
    Some(BuiltinSpec { name, signature, parameters, docs, namespaces, implementation })
}

/// Every path in `triton.language`, with its meaning.
pub(super) static NAMES: LazyLock<BTreeMap<String, LanguageItem>> = LazyLock::new(|| {
    let mut names = BTreeMap::new();
    for module in [
        "math",
        "target_info",
        "extra",
        "extra.libdevice",
        "extra.cuda",
        "extra.cuda.libdevice",
        "extra.cpu",
        "extra.cpu.libdevice",
        "extra.hip",
        "extra.hip.libdevice",
        "PropagateNan",
        "dtype.KIND",
        "dtype.SIGNEDNESS",
    ] {
        names.insert(module.to_string(), LanguageItem::Module);
    }
    for module in ROOTS {
        names.insert((*module).to_string(), LanguageItem::Module);
    }
    for (name, special) in SPECIALS {
        names.insert((*name).to_string(), LanguageItem::Special(*special));
    }
    let constants = [
        "void",
        "pi32_t",
        "TRITON_MAX_TENSOR_NUMEL",
        "N_ROUNDS_DEFAULT",
        "PropagateNan.NONE",
        "PropagateNan.ALL",
    ];
    for (name, constant) in type_constants() {
        names.insert(format!("dtype.{name}"), LanguageItem::Constant(constant));
    }
    for name in constants.into_iter().chain(DTYPES.iter().map(|(name, _)| *name)) {
        if let Some(constant) = named_constant(name) {
            names.insert(name.to_string(), LanguageItem::Constant(constant));
        }
    }
    for spec in SPECS.iter() {
        for namespace in spec.namespaces {
            let path = match namespace {
                Namespace::Root => spec.name.to_string(),
                Namespace::Math => format!("math.{}", spec.name),
                Namespace::Libdevice => format!("extra.libdevice.{}", spec.name),
                Namespace::OnlyMethod => format!("tensor.{}", spec.name),
                Namespace::TypeMethod => format!("dtype.{}", spec.name),
                Namespace::DescriptorMethod => format!("tensor_descriptor.{}", spec.name),
                Namespace::Cuda => format!("extra.cuda.{}", spec.name),
                Namespace::TargetInfo => format!("target_info.{}", spec.name),
                Namespace::Gluon => format!("gluon.{}", spec.name),
                Namespace::GluonAsyncCopy => format!("gluon.async_copy.{}", spec.name),
                Namespace::GluonMbarrier => format!("gluon.mbarrier.{}", spec.name),
                Namespace::GluonTma => format!("gluon.tma.{}", spec.name),
                Namespace::GluonHopper => format!("gluon.hopper.{}", spec.name),
                Namespace::GluonCluster => format!("gluon.cluster.{}", spec.name),
                Namespace::GluonBlackwell => format!("gluon.blackwell.{}", spec.name),
                Namespace::TensorMemoryMethod => format!("gluon.tensor_memory_descriptor.{}", spec.name),
                Namespace::GluonClc => format!("gluon.clc.{}", spec.name),
                Namespace::LaunchMethod => format!("gluon.clc_result.{}", spec.name),
                Namespace::SharedMethod => format!("gluon.shared_memory_descriptor.{}", spec.name),
                Namespace::Method => continue,
            };
            names.entry(path).or_insert(LanguageItem::Builtin(spec));
        }
    }
    // Library functions replace rows with the same path, so they are inserted last.
    for scanned in LIBRARY.iter() {
        names.insert(scanned.path.clone(), LanguageItem::Library(scanned.function));
    }
    names
});

/// The methods of tensors: the name of each method, and the path of its function.
static METHODS: LazyLock<Vec<(&'static str, String)>> = LazyLock::new(|| {
    let of_rows = SPECS.iter().flat_map(|spec| {
        spec.namespaces.iter().filter_map(|namespace| match namespace {
            Namespace::Method => Some((spec.name, spec.name.to_string())),
            Namespace::OnlyMethod => Some((spec.name, format!("tensor.{}", spec.name))),
            Namespace::Root
            | Namespace::Math
            | Namespace::Libdevice
            | Namespace::TypeMethod
            | Namespace::DescriptorMethod
            | Namespace::Cuda
            | Namespace::TargetInfo
            | Namespace::Gluon
            | Namespace::GluonAsyncCopy
            | Namespace::GluonMbarrier
            | Namespace::GluonTma
            | Namespace::GluonHopper
            | Namespace::GluonCluster
            | Namespace::GluonBlackwell
            | Namespace::TensorMemoryMethod
            | Namespace::GluonClc
            | Namespace::LaunchMethod
            | Namespace::SharedMethod => None,
        })
    });
    let of_library = LIBRARY.iter().filter(|scanned| scanned.is_method);
    of_rows.chain(of_library.map(|scanned| (scanned.function.function, scanned.path.clone()))).collect()
});

/// Returns the methods of tensors: the name of each method, and the path of its function.
pub(super) fn methods() -> impl Iterator<Item = (&'static str, &'static str)> {
    METHODS.iter().map(|(name, path)| (*name, path.as_str()))
}

/// Names of releases 2.0 and 2.1 of Triton, each with its current name.
const OLDER: [(&str, &str); 5] = [
    ("libdevice", "extra.libdevice"),
    ("printf", "device_print"),
    ("float8e4", "float8e4nv"),
    ("float8e4b15x4", "float8e4b15"),
    ("uint32_to_uniform_float", "uint_to_uniform_float"),
];

/// Returns the meaning of a name of `triton.language`. `path` is the dotted path of the name in
/// that module.
pub fn language(path: &str) -> Option<LanguageItem> {
    if let Some(item) = NAMES.get(path) {
        return Some(item.clone());
    }
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    if let Some((_, newer)) = OLDER.iter().find(|(older, _)| *older == first) {
        return language(&rest.map_or(newer.to_string(), |rest| format!("{newer}.{rest}")));
    }
    let rest = rest?;
    if first == "standard"
        && let Some(function) = combining(rest)
    {
        return Some(LanguageItem::Library(function));
    }
    if ROOTS.contains(&first) {
        return language(rest);
    }
    if first == "math" {
        // Older versions of Triton had the functions of libdevice in `tl.math`.
        return NAMES.get(&format!("extra.libdevice.{rest}")).cloned();
    }
    if first != "extra" || rest.starts_with("libdevice.") {
        return None;
    }
    // `extra.<backend>.libdevice.<name>` is the same as `extra.libdevice.<name>`.
    match rest.split_once('.') {
        None | Some((_, "libdevice")) => Some(LanguageItem::Module),
        Some((_, below)) => NAMES.get(&format!("extra.{below}")).cloned(),
    }
}

/// Returns the path of every name of `triton.language`. Suggestions for mistyped names are chosen
/// from these paths.
pub fn language_names() -> impl Iterator<Item = &'static str> {
    NAMES.keys().map(String::as_str)
}

#[cfg(test)]
mod tests;
