//! Generates the module of `include_kernels!`.

use std::sync::Arc;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use tilewright_frontend::{Argument, Constant, HostValue};
use tilewright_ir::Dtype;

use crate::compile::Compiled;
use crate::declaration::{Declaration, Included};

/// Returns the module, which contains the bundle and a function for each declaration.
pub(crate) fn module(included: &Included, compiled: &Compiled) -> syn::Result<TokenStream> {
    let Included { attributes, visibility, name, .. } = included;
    let declarations = included.files.iter().flat_map(|file| &file.kernels);
    let mut functions = TokenStream::new();
    for (declaration, arguments) in declarations.zip(&compiled.kernels) {
        functions.extend(function(declaration, arguments)?);
    }
    let files = compiled.files.iter().map(|file| file.display().to_string());
    let (text, bundle) = (name.to_string(), Literal::byte_string(&compiled.bundle));
    Ok(quote! {
        #attributes
        #visibility mod #name {
            static BUNDLE: ::tilewright::EmbeddedBundle = ::tilewright::EmbeddedBundle::new(#text, #bundle);
            // Cargo builds the crate of the module again when a file changes.
            const _: &[&[u8]] = &[#(include_bytes!(#files)),*];

            /// Returns the bundle of all kernels of this module.
            ///
            /// # Errors
            /// If the bundle in the binary is damaged.
            pub fn bundle() -> ::core::result::Result<&'static ::tilewright::Bundle, ::tilewright::Error> {
                BUNDLE.get()
            }

            #functions
        }
    })
}

fn function(declaration: &Declaration, arguments: &[(Arc<str>, Argument)]) -> syn::Result<TokenStream> {
    let Declaration { attributes, kernel, function, signature, .. } = declaration;
    let (mut parameters, mut values) = (TokenStream::new(), TokenStream::new());
    for (name, argument) in arguments {
        let text: &str = name;
        let refused = |found: &str| {
            let message = format!(
                "the argument `{name}` is {found}, which a function of `include_kernels!` cannot pass"
            );
            syn::Error::new(signature.span(), message)
        };
        let ty = match argument {
            Argument::Pointer { pointee, is_const, .. } => {
                let element = element(*pointee).ok_or_else(|| refused(&format!("a tensor of {pointee}")))?;
                let tensor = if *is_const { quote!(ReadTensor) } else { quote!(WriteTensor) };
                quote!(impl ::tilewright::#tensor<'m, #element>)
            }
            Argument::Scalar { dtype, .. } => {
                scalar(*dtype).ok_or_else(|| refused(&format!("a scalar of type {dtype}")))?
            }
            Argument::Constexpr(HostValue::Constant(constant)) => {
                let value = value(constant).ok_or_else(|| refused(&constant.to_string()))?;
                values.extend(quote!(.with(#text, #value)));
                continue;
            }
            Argument::Constexpr(_) => return Err(refused("a function or an object")),
            Argument::Tuple(_) => return Err(refused("a tuple or a tensor descriptor")),
        };
        let parameter = identifier(name, arguments);
        parameters.extend(quote!(#parameter: #ty,));
        values.extend(quote!(.with(#text, #parameter)));
    }
    let kernel = kernel.to_string();
    let documentation = if attributes.is_empty() {
        let text = format!(
            "Returns a launch of the kernel `{kernel}` with the signature `{}`; its method `run` starts it.",
            signature.value()
        );
        quote!(#[doc = #text])
    } else {
        attributes.clone()
    };
    Ok(quote! {
        #documentation
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the kernel has these parameters")]
        pub fn #function<'m>(#parameters) -> ::tilewright::KernelLaunch<'m> {
            BUNDLE.kernel(#kernel)#values
        }
    })
}

/// Returns the Rust type of the elements of a tensor argument, or `None` if Rust has no such type.
fn element(dtype: Dtype) -> Option<TokenStream> {
    match dtype {
        Dtype::F16 => Some(quote!(::tilewright::f16)),
        Dtype::BF16 => Some(quote!(::tilewright::bf16)),
        other => scalar(other),
    }
}

/// Returns the Rust type of a scalar argument. Returns `None` for a type, such as fp16, that a
/// launch from Rust cannot pass as a scalar.
fn scalar(dtype: Dtype) -> Option<TokenStream> {
    let name = match dtype {
        Dtype::F32 => "f32",
        Dtype::F64 => "f64",
        Dtype::I1 => "bool",
        Dtype::I8 => "i8",
        Dtype::I16 => "i16",
        Dtype::I32 => "i32",
        Dtype::I64 => "i64",
        Dtype::U8 => "u8",
        Dtype::U16 => "u16",
        Dtype::U32 => "u32",
        Dtype::U64 => "u64",
        _ => return None,
    };
    let name = format_ident!("{name}");
    Some(quote!(#name))
}

/// Returns the Rust expression of a compile-time value. Returns `None` for a tuple, an object, or a
/// type that is not a dtype, such as a pointer type.
fn value(constant: &Constant) -> Option<TokenStream> {
    Some(match constant {
        Constant::None => quote!(::core::option::Option::<i32>::None),
        Constant::Bool(value) => quote!(#value),
        Constant::Int(value) => quote!(#value),
        Constant::Float(value) => quote!(#value),
        Constant::Str(text) => {
            let text: &str = text;
            quote!(#text)
        }
        Constant::Type(ty) if ty.is_scalar() => {
            let name = format_ident!("{}", format!("{:?}", ty.element.value()?));
            quote!(::tilewright::Dtype::#name)
        }
        _ => return None,
    })
}

/// Returns the Rust identifier of a parameter. A keyword becomes a raw identifier. Keywords such as
/// `self` get underscores until the name is unique.
fn identifier(name: &str, arguments: &[(Arc<str>, Argument)]) -> Ident {
    if let Ok(identifier) = syn::parse_str(name) {
        return identifier;
    }
    if !matches!(name, "self" | "Self" | "super" | "crate" | "_") {
        return Ident::new_raw(name, Span::call_site());
    }
    let mut longer = format!("{name}_");
    while arguments.iter().any(|(other, _)| **other == longer) {
        longer.push('_');
    }
    Ident::new(&longer, Span::call_site())
}

#[cfg(test)]
mod tests {
    use tilewright_ir::Type;

    use super::*;

    #[test]
    fn only_dtypes_are_types_that_rust_passes() {
        let text = |ty| value(&Constant::Type(ty)).map(|value| value.to_string());
        assert_eq!(text(Type::scalar(Dtype::F32)), Some(quote!(::tilewright::Dtype::F32).to_string()));
        assert_eq!(text(Type::tile(Dtype::F32, [16])), None);
        assert_eq!(text(Type::pointer(Dtype::F32)), None);
    }
}
