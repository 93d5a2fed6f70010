//! Parses the input of `include_kernels!`.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{LitStr, Token, braced, bracketed, parenthesized};

/// The input of the macro.
pub(crate) struct Included {
    /// The attributes, the visibility and the name of the module, as they appear in the input.
    pub(crate) attributes: TokenStream,
    pub(crate) visibility: TokenStream,
    pub(crate) name: Ident,
    /// The targets for which the kernels are compiled.
    pub(crate) targets: Vec<LitStr>,
    pub(crate) files: Vec<File>,
}

/// A Python file, and the kernels that are declared for it.
pub(crate) struct File {
    pub(crate) path: LitStr,
    pub(crate) kernels: Vec<Declaration>,
}

/// A kernel and its signature. The macro generates a function for it.
pub(crate) struct Declaration {
    pub(crate) attributes: TokenStream,
    /// The name of the kernel in the Python file.
    pub(crate) kernel: Ident,
    /// The name of the generated Rust function.
    pub(crate) function: Ident,
    pub(crate) signature: LitStr,
    pub(crate) options: Vec<(Ident, TokenTree)>,
}

mod keyword {
    syn::custom_keyword!(targets);
    syn::custom_keyword!(from);
}

impl Parse for Included {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = attributes(input)?;
        let visibility = visibility(input)?;
        input.parse::<Token![mod]>()?;
        let name = input.parse()?;
        input.parse::<Token![;]>()?;
        let targets = if input.peek(keyword::targets) {
            input.parse::<keyword::targets>()?;
            input.parse::<Token![=]>()?;
            let list;
            bracketed!(list in input);
            let targets = list.parse_terminated(<LitStr as Parse>::parse, Token![,])?;
            input.parse::<Token![;]>()?;
            targets.into_iter().collect()
        } else {
            vec![LitStr::new("cpu", proc_macro2::Span::call_site())]
        };
        let mut files = Vec::new();
        while !input.is_empty() {
            files.push(input.parse()?);
        }
        Ok(Self { attributes, visibility, name, targets, files })
    }
}

impl Parse for File {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.parse::<keyword::from>()?;
        let path = input.parse()?;
        let block;
        braced!(block in input);
        let mut kernels = Vec::new();
        while !block.is_empty() {
            kernels.push(block.parse()?);
        }
        Ok(Self { path, kernels })
    }
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = attributes(input)?;
        let kernel: Ident = input.parse()?;
        let function = if input.peek(Token![as]) {
            input.parse::<Token![as]>()?;
            input.parse()?
        } else {
            kernel.clone()
        };
        let arguments;
        parenthesized!(arguments in input);
        let signature = arguments.parse()?;
        let mut options = Vec::new();
        while !arguments.is_empty() {
            arguments.parse::<Token![,]>()?;
            if arguments.is_empty() {
                break;
            }
            let name = arguments.parse()?;
            arguments.parse::<Token![=]>()?;
            options.push((name, arguments.parse()?));
        }
        input.parse::<Token![;]>()?;
        Ok(Self { attributes, kernel, function, signature, options })
    }
}

/// Parses any number of attributes `#[…]`, including doc comments.
fn attributes(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let mut found = TokenStream::new();
    while input.peek(Token![#]) {
        input.parse::<Token![#]>()?.to_tokens(&mut found);
        let content;
        bracketed!(content in input);
        let content: TokenStream = content.parse()?;
        found.extend(quote::quote! { [#content] });
    }
    Ok(found)
}

/// Parses `pub`, `pub(…)`, or an empty visibility.
fn visibility(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let mut found = TokenStream::new();
    if input.peek(Token![pub]) {
        input.parse::<Token![pub]>()?.to_tokens(&mut found);
        if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            let content: TokenStream = content.parse()?;
            found.extend(quote::quote! { (#content) });
        }
    }
    Ok(found)
}
