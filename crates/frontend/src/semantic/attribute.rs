//! Evaluates attributes and methods of tensors, descriptors, types and compile-time numbers.

use tilewright_base::Code;
use tilewright_ir::{Builder, Dtype, Element, Type};

use super::constants::dtype_name;
use super::convert::{kind_of, tensor};
use super::descriptor::{descriptor_attribute, descriptor_names};
use super::gluon;
use super::names::{TYPE_METHODS, methods};
use super::shape::transpose_last;
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::descriptor::DescriptorKind;
use crate::launch_response::{LAUNCH_RESPONSE, LAUNCH_RESPONSE_METHODS};
use crate::repr::mangled;
use crate::shared_memory::is_tensor_memory;
use crate::suggest::suggest;
use crate::types::LanguageType;
use crate::value::{Constant, Operand};

const TENSOR_ATTRIBUTES: &[&str] = &["dtype", "shape", "type", "T", "numel", "handle"];

const TYPE_ATTRIBUTES: &[&str] = &[
    "scalar",
    "element_ty",
    "name",
    "shape",
    "numel",
    "primitive_bitwidth",
    "int_bitwidth",
    "itemsize",
    "nbytes",
    "fp_mantissa_width",
    "exponent_bias",
    "int_signedness",
    "cache_key_part",
    "address_space",
    "const",
];

/// Names in other libraries, each with the code to write instead.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("astype", "x.to(dtype)"),
    ("type_as", "x.to(y.dtype)"),
    ("float", "x.to(tl.float32)"),
    ("half", "x.to(tl.float16)"),
    ("int", "x.to(tl.int32)"),
    ("long", "x.to(tl.int64)"),
    ("bool", "x != 0"),
    ("size", "x.shape[axis], or x.numel"),
    ("ndim", "len(x.shape)"),
    ("transpose", "tl.trans(x)"),
    ("t", "tl.trans(x)"),
    ("mean", "tl.sum(x, axis) / n"),
    ("unsqueeze", "tl.expand_dims(x, axis)"),
    ("flatten", "tl.ravel(x)"),
    ("clamp", "tl.clamp(x, low, high)"),
    ("pow", "tl.exp2(y * tl.log2(x))"),
    ("maximum", "tl.maximum(x, y)"),
    ("minimum", "tl.minimum(x, y)"),
];

/// Attributes of a tensor in Python that a pointer in a kernel lacks.
const HOST_ATTRIBUTES: &[&str] =
    &["data_ptr", "device", "dim", "itemsize", "ndim", "size", "stride", "strides"];

/// Evaluates `value.name`.
pub fn attribute<C: Caller + ?Sized>(c: &mut C, value: &Op<C>, name: &str) -> Semantic<Op<C>> {
    match value {
        Operand::Tensor(tensor) => {
            let ty = c.builder().type_of(tensor);
            tensor_attribute(c, tensor, &ty, name)
        }
        Operand::Descriptor(descriptor) => {
            if let Some(found) = descriptor_attribute(c, descriptor, name)? {
                return Ok(found);
            }
            let names = descriptor_names(descriptor.form.kind);
            let path = match descriptor.form.kind {
                DescriptorKind::BlockPointer => method(name),
                DescriptorKind::Tensor => Some(format!("tensor_descriptor.{name}")),
            };
            match path.filter(|path| names.contains(&name) && super::language(path).is_some()) {
                Some(path) => Ok(Operand::Method(Box::new(value.clone()), path.into())),
                None => Err(unknown(descriptor.describe(), name, names.iter().copied())),
            }
        }
        Operand::Shared(shared) => {
            if let Some(found) = gluon::memory_attribute(c, shared, name)? {
                return Ok(found);
            }
            let (class, attributes, methods) = if is_tensor_memory(&shared.form.tiles) {
                ("tensor_memory_descriptor", gluon::TENSOR_MEMORY_ATTRIBUTES, gluon::TENSOR_MEMORY_METHODS)
            } else {
                ("shared_memory_descriptor", gluon::ATTRIBUTES, gluon::METHODS)
            };
            if methods.contains(&name) {
                let path = format!("gluon.{class}.{name}");
                return Ok(Operand::Method(Box::new(value.clone()), path.into()));
            }
            let names = attributes.iter().chain(methods).copied();
            Err(unknown(&shared.describe(), name, names))
        }
        Operand::Launch(_) => {
            if LAUNCH_RESPONSE_METHODS.contains(&name) {
                let path = format!("gluon.clc_result.{name}");
                return Ok(Operand::Method(Box::new(value.clone()), path.into()));
            }
            let names = LAUNCH_RESPONSE_METHODS.iter().copied();
            Err(unknown(LAUNCH_RESPONSE, name, names))
        }
        Operand::Constant(Constant::Type(ty)) => {
            if let ("layout", Some(layout)) = (name, &ty.layout)
                && let Some(object) = c.layout_object(&layout.to_string())
            {
                return Ok(Operand::Constant(object));
            }
            if let Some(found) = type_attribute(ty, name) {
                return found.map(Operand::Constant);
            }
            // A type also has the attributes of the class `dtype`, such as `dtype.KIND`.
            match super::language(&format!("dtype.{name}")) {
                Some(super::LanguageItem::Constant(constant)) => return Ok(Operand::Constant(constant)),
                Some(super::LanguageItem::Module) => {
                    return Ok(Operand::Language(format!("dtype.{name}").into()));
                }
                Some(_) if name == "is_dtype" => return Ok(Operand::Language("dtype.is_dtype".into())),
                _ => {}
            }
            if super::language(&format!("dtype.{name}")).is_some() {
                return Ok(Operand::Method(Box::new(value.clone()), format!("dtype.{name}").into()));
            }
            let names = TYPE_ATTRIBUTES.iter().chain(TYPE_METHODS).copied();
            Err(unknown(&format!("the type {ty}"), name, names))
        }
        Operand::Constant(Constant::LanguageType(ty)) => language_type_attribute(c, value, ty, name),
        // An operator would convert the number to a tensor, so it has a tensor's methods.
        Operand::Constant(Constant::Int(_) | Constant::Float(_) | Constant::Bool(_)) => match name {
            "value" => Ok(value.clone()),
            "dtype" | "type" | "shape" | "numel" => {
                let scalar = tensor(c, value, 0)?;
                let ty = c.builder().type_of(&scalar);
                tensor_attribute(c, &scalar, &ty, name)
            }
            _ => match method(name) {
                Some(path) => Ok(Operand::Method(Box::new(value.clone()), path.into())),
                None => Err(unknown(&kind_of(value), name, methods().map(|(method, _)| method))),
            },
        },
        Operand::Constant(Constant::None | Constant::Str(_) | Constant::Tuple(_)) if name == "value" => {
            Ok(value.clone())
        }
        other => Err(unknown(&kind_of(other), name, [])),
    }
}

/// Evaluates `ty.name` for a type that no value of the IR has.
fn language_type_attribute<C: Caller + ?Sized>(
    c: &mut C,
    value: &Op<C>,
    ty: &LanguageType,
    name: &str,
) -> Semantic<Op<C>> {
    if let Some(found) = ty.attribute(name) {
        return Ok(Operand::Constant(found));
    }
    let is_method = ty.method(name).is_some() || (ty.as_ir().is_some() && TYPE_METHODS.contains(&name));
    match ty.as_ir() {
        _ if is_method => Ok(Operand::Method(Box::new(value.clone()), format!("dtype.{name}").into())),
        Some(ty) => attribute(c, &Operand::Constant(Constant::Type(ty)), name),
        None if name == "value" => Ok(value.clone()),
        None => Err(unknown(&format!("the type {ty}"), name, [])),
    }
}

/// Returns the path of the function that a method of tensors calls.
fn method(name: &str) -> Option<String> {
    methods().find(|(method, _)| *method == name).map(|(_, path)| path.to_string())
}

fn tensor_attribute<C: Caller + ?Sized>(
    c: &mut C,
    value: &ValueOf<C>,
    ty: &Type,
    name: &str,
) -> Semantic<Op<C>> {
    let constant = |constant| Ok(Operand::Constant(constant));
    match name {
        "dtype" => constant(pointer_or_number(c, value, ty.with_shape(tilewright_ir::Shape::scalar()))),
        "type" => constant(pointer_or_number(c, value, ty.clone())),
        // `tl.tensor(x.handle, x.type)`, in code with Triton's internals, is `x`.
        "handle" => Ok(Operand::Tensor(value.clone())),
        "shape" => constant(shape_constant(ty)),
        "numel" => constant(Constant::Int(ty.shape.elements() as i128)),
        "T" => transpose_last(c, value.clone(), ty),
        _ => {
            if let Some(path) = method(name) {
                Ok(Operand::Method(Box::new(Operand::Tensor(value.clone())), path.into()))
            } else {
                let names = TENSOR_ATTRIBUTES.iter().copied().chain(methods().map(|(method, _)| method));
                Err(if ty.is_scalar() && ty.element.pointee().is_some() && HOST_ATTRIBUTES.contains(&name) {
                    unknown(&format!("a pointer of type {ty}"), name, [])
                        .note("a kernel gets the address of a tensor's first element, and nothing else of the tensor")
                        .hint("pass what is needed of it as an argument of the launch, such as `x.stride(0)` or `x.numel()`")
                } else {
                    unknown(&format!("a tensor of type {ty}"), name, names)
                })
            }
        }
    }
}

/// Returns the type of a value, or a const pointer type for a scalar pointer to read-only memory.
fn pointer_or_number<C: Caller + ?Sized>(c: &mut C, value: &ValueOf<C>, ty: Type) -> Constant {
    match ty.element.pointee().filter(|_| ty.is_scalar()) {
        Some(pointee) if c.read_only(value).is_some() => LanguageType::ConstPointer(pointee).into_constant(),
        _ => Constant::Type(ty),
    }
}

fn shape_constant(ty: &Type) -> Constant {
    Constant::Tuple(ty.shape.iter().map(|&extent| Constant::Int(i128::from(extent))).collect())
}

fn unknown<'a>(what: &str, name: &str, names: impl IntoIterator<Item = &'a str>) -> SemanticError {
    let error = SemanticError::new(Code::UnknownAttribute, format!("{what} has no attribute `{name}`"))
        .argument(0, format!("this is {what}"));
    if let Some((_, here)) = OTHER_NAMES.iter().find(|(known, _)| *known == name) {
        return error.hint(format!("write `{here}`"));
    }
    let names: Vec<&str> = names.into_iter().collect();
    let longer = |candidate: &&str| name.len() > 2 && candidate.starts_with(name);
    match suggest(name, names.iter().copied()).or_else(|| names.iter().copied().find(longer)) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error,
    }
}

/// Returns an attribute of a type, except a method.
fn type_attribute(ty: &Type, name: &str) -> Option<Semantic<Constant>> {
    let bits = |element: Element| element.value().map_or(64, Dtype::bits);
    let int = |value: usize| Some(Ok(Constant::Int(value as i128)));
    match name {
        "scalar" => Some(Ok(Constant::Type(ty.with_shape(tilewright_ir::Shape::scalar())))),
        "element_ty" => Some(match (ty.is_scalar(), ty.element) {
            (false, element) => Ok(Constant::Type(Type::new(element, tilewright_ir::Shape::scalar()))),
            (true, Element::Pointer(pointee)) => Ok(Constant::dtype(pointee)),
            (true, Element::Value(dtype)) => Err(unknown(&format!("the type {dtype}"), name, [])
                .note("pointers and tiles have an element type")
                .hint("the type is the element type itself; of a pointer `p` it is `p.dtype.element_ty`")),
        }),
        "name" | "cache_key_part" => Some(Ok(Constant::Str(crate::repr::type_name(ty).into()))),
        "shape" => Some(Ok(shape_constant(ty))),
        "numel" => int(ty.shape.elements()),
        "primitive_bitwidth" | "int_bitwidth" => int(bits(ty.element) as usize),
        "itemsize" => int(ty.element.bytes()),
        "nbytes" => int(ty.element.bytes() * ty.shape.elements()),
        "int_signedness" => {
            let dtype = ty.dtype().filter(|dtype| ty.is_scalar() && dtype.is_int())?;
            int(usize::from(!dtype.is_signed()))
        }
        "const" if ty.is_scalar() && ty.element.pointee().is_some() => Some(Ok(Constant::Bool(false))),
        "address_space" if ty.is_scalar() && ty.element.pointee().is_some() => {
            Some(Ok(Constant::Str("global".into())))
        }
        "fp_mantissa_width" => ty.dtype().and_then(float_format).map(|(width, _)| Ok(Constant::Int(width))),
        "exponent_bias" => ty.dtype().and_then(float_format).map(|(_, bias)| Ok(Constant::Int(bias))),
        _ => None,
    }
}

/// Returns the fraction bits and the exponent bias of a float type.
fn float_format(dtype: Dtype) -> Option<(i128, i128)> {
    Some(match dtype {
        Dtype::F8E5 => (2, 15),
        Dtype::F8E5B16 => (2, 16),
        Dtype::F8E4NV => (3, 7),
        Dtype::F8E4B8 => (3, 8),
        Dtype::F8E4B15 => (3, 15),
        Dtype::F16 => (10, 15),
        Dtype::BF16 => (7, 127),
        Dtype::F32 => (23, 127),
        Dtype::F64 => (52, 1023),
        _ => return None,
    })
}

/// Returns the result of a method of a type, if there is such a method.
pub(super) fn type_method(name: &str, ty: &Type) -> Option<Constant> {
    let scalar = if ty.is_scalar() { ty.dtype() } else { None };
    let is = |predicate: fn(Dtype) -> bool| Some(Constant::Bool(scalar.is_some_and(predicate)));
    let standard = |dtype| matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64);
    let range = scalar.and_then(Dtype::int_range);
    match name {
        "is_floating" => is(Dtype::is_float),
        "is_standard_floating" => Some(Constant::Bool(scalar.is_some_and(standard))),
        "is_int" => is(Dtype::is_int),
        "is_int_signed" => is(Dtype::is_signed),
        "is_int_unsigned" => is(|dtype| dtype.is_int() && !dtype.is_signed()),
        "is_bool" => is(Dtype::is_bool),
        "is_fp8" => is(Dtype::is_fp8),
        "is_ptr" => Some(Constant::Bool(ty.is_scalar() && ty.element.pointee().is_some())),
        "is_block" => Some(Constant::Bool(!ty.is_scalar())),
        "kind" => scalar.filter(|_| ty.is_scalar()).map(|dtype| {
            let kinds = [dtype.is_bool(), dtype.is_int(), dtype.is_float()];
            Constant::Int(kinds.iter().position(|is_it| *is_it).unwrap_or_default() as i128)
        }),
        "mangle" => Some(Constant::Str(mangled(ty).into())),
        "is_const" | "is_void" => Some(Constant::Bool(false)),
        "get_int_min_value" => range.map(|(low, _)| Constant::Int(low)),
        "get_int_max_value" => range.map(|(_, high)| Constant::Int(high)),
        "get_block_shapes" => Some(shape_constant(ty)),
        "codegen_name" => scalar.map(|dtype| Constant::Str(dtype_name(dtype).into())),
        // `is_fp16()` and the like compare the type to that in their name.
        _ => {
            let wanted = name.strip_prefix("is_")?;
            Dtype::parse(wanted).map(|dtype| Constant::Bool(scalar == Some(dtype)))
        }
    }
}
