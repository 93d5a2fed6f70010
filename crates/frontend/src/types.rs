//! Defines the types that no value of the IR has, such as `tl.void`.

use std::fmt;
use std::sync::Arc;

use tilewright_ir::{Dtype, Type};

use crate::repr::{mangled, type_name};
use crate::tuple::Tuple;
use crate::value::{Constant, to_str};

/// A type of the language that is not a type of the IR.
#[derive(Clone, PartialEq, Debug)]
pub enum LanguageType {
    /// `tl.void`.
    Void,
    /// `tl.pointer_type(element_ty, const=True)`, the type of a parameter that is declared
    /// `tl.const`.
    ConstPointer(Dtype),
    /// `tl.constexpr_type(value)`.
    Constexpr(Constant),
    /// `tl.tuple_type(types, fields)`, and the type of an instance of a user's class.
    Tuple(Tuple<Constant>),
    /// `tl.tensor_descriptor_type(block_type, shape_type, strides_type)`.
    Descriptor(Box<[Constant; 3]>),
}

impl LanguageType {
    /// Converts the type to a compile-time value.
    pub fn into_constant(self) -> Constant {
        Constant::LanguageType(Arc::new(self))
    }

    /// Creates a tuple type with these field names, as `tl.tuple_type` does.
    pub fn tuple(types: Vec<Constant>, fields: Option<Vec<Arc<str>>>) -> Self {
        Self::Tuple(Tuple::new(types, fields.map(Into::into)))
    }

    /// Returns the types of the items of a tuple type; `None` for other types.
    pub fn types(&self) -> Option<&[Constant]> {
        match self {
            LanguageType::Tuple(types) => Some(types),
            LanguageType::Void
            | LanguageType::ConstPointer(_)
            | LanguageType::Constexpr(_)
            | LanguageType::Descriptor(_) => None,
        }
    }

    /// Returns the corresponding type of the IR. Only a pointer to const memory has one.
    pub fn as_ir(&self) -> Option<Type> {
        match self {
            LanguageType::ConstPointer(pointee) => Some(Type::pointer(*pointee)),
            LanguageType::Void
            | LanguageType::Constexpr(_)
            | LanguageType::Tuple(_)
            | LanguageType::Descriptor(_) => None,
        }
    }

    /// Returns whether `isinstance(type, class)` is true for a class of `triton.language`, such as
    /// `dtype`.
    pub fn is_of(&self, class: &str) -> bool {
        class == "base_type"
            || match self {
                LanguageType::Void => class == "dtype",
                LanguageType::ConstPointer(_) => matches!(class, "dtype" | "pointer_type"),
                LanguageType::Constexpr(_) => class == "constexpr_type",
                LanguageType::Tuple(_) => class == "tuple_type",
                LanguageType::Descriptor(_) => class == "tensor_descriptor_type",
            }
    }

    /// Returns an attribute, or `None` if the type does not have the attribute. For a pointer, also
    /// returns `None` if the corresponding type of the IR has the same attribute.
    pub fn attribute(&self, name: &str) -> Option<Constant> {
        let own_name = || Constant::Str(self.to_string().into());
        match (self, name) {
            (LanguageType::Void | LanguageType::ConstPointer(_), "name" | "cache_key_part") => {
                Some(own_name())
            }
            (LanguageType::Void, "primitive_bitwidth" | "itemsize") => Some(Constant::Int(0)),
            (LanguageType::ConstPointer(_), "const") => Some(Constant::Bool(true)),
            (LanguageType::Void | LanguageType::ConstPointer(_), "scalar") => {
                Some(self.clone().into_constant())
            }
            (LanguageType::Constexpr(value), "value") => Some(value.clone()),
            (LanguageType::Tuple(types), "types") => Some(Constant::Tuple(types.to_vec().into())),
            (LanguageType::Tuple(_), "name") => Some(own_name()),
            (LanguageType::Tuple(types), "fields") => Some(types.fields().map_or(Constant::None, |fields| {
                Constant::Tuple(fields.iter().map(|field| Constant::Str(field.clone())).collect())
            })),
            (LanguageType::Descriptor(parts), _) => {
                let names = ["block_type", "shape_type", "strides_type"];
                names.iter().position(|known| *known == name).map(|place| parts[place].clone())
            }
            _ => None,
        }
    }

    /// Returns the result of a method without arguments. For a pointer, returns `None` if the
    /// corresponding type of the IR has the same result.
    pub fn method(&self, name: &str) -> Option<Constant> {
        match (self, name) {
            (_, "mangle") => Some(Constant::Str(self.mangled().into())),
            (LanguageType::ConstPointer(_), "is_const") | (LanguageType::Void, "is_void") => {
                Some(Constant::Bool(true))
            }
            (LanguageType::Void | LanguageType::ConstPointer(_), "codegen_name") => {
                Some(Constant::Str(self.to_string().into()))
            }
            (LanguageType::Void, predicate) if predicate.starts_with("is_") => Some(Constant::Bool(false)),
            _ => None,
        }
    }

    /// Encodes the type as a part of a mangled name.
    pub fn mangled(&self) -> String {
        match self {
            LanguageType::Void => "void".into(),
            LanguageType::ConstPointer(pointee) => mangled(&Type::pointer(*pointee)),
            LanguageType::Constexpr(value) => format!("c{value}"),
            LanguageType::Tuple(types) => {
                let parts: Vec<String> = types.iter().map(mangled_constant).collect();
                format!("T{}T", parts.join("_"))
            }
            LanguageType::Descriptor(parts) => format!("TD{}", mangled_constant(&parts[0])),
        }
    }
}

fn mangled_constant(ty: &Constant) -> String {
    match ty {
        Constant::Type(ty) => mangled(ty),
        Constant::LanguageType(ty) => ty.mangled(),
        other => to_str(other),
    }
}

/// Formats the type as Python does.
impl fmt::Display for LanguageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LanguageType::Void => f.write_str("void"),
            LanguageType::ConstPointer(pointee) => {
                write!(f, "const_pointer<{}>", type_name(&Type::scalar(*pointee)))
            }
            LanguageType::Constexpr(value) => write!(f, "constexpr_type[{value}]"),
            LanguageType::Tuple(types) => {
                let names: Vec<String> = types.iter().map(to_str).collect();
                write!(f, "[{}]", names.join(","))
            }
            LanguageType::Descriptor(parts) => write!(f, "tensor_descriptor<{}>", to_str(&parts[0])),
        }
    }
}
