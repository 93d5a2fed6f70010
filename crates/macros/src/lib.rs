//! Defines the macro `include_kernels!`, which compiles kernels into a Rust program.
//!
//! The crate `tilewright` exports and documents it.

mod compile;
mod declaration;
mod generate;

use std::path::Path;

use proc_macro2::TokenStream;

use declaration::Included;

/// Compiles kernels at build time, and defines a module with a function for each of them.
///
/// The paths are relative to the folder of the file that invokes the macro. A file may import other
/// files of its folder or package. The signature has the syntax of
/// `tilewright compile --signature`: a type for each argument, and a value for each `tl.constexpr`
/// parameter. The type `*kfp32` is a tensor that the kernel does not write. The type `*fp32:16` is
/// a tensor whose address is a multiple of 16. Options follow the signature.
///
/// A declaration can rename its function with `as`, so that one kernel can have functions for
/// several signatures. The parameters have the same names as in the kernel. The exceptions are
/// `self`, `Self`, `super`, `crate` and `_`, which Rust reserves: they get an underscore, such as
/// `self_`.
///
/// A function takes the run-time arguments, and returns a [`KernelLaunch`]. The module also has the
/// function `bundle()`, which returns the [`Bundle`] of all kernels. If a kernel or a signature is
/// wrong, the build fails.
///
/// [`KernelLaunch`]: ../tilewright/struct.KernelLaunch.html
/// [`Bundle`]: ../tilewright/struct.Bundle.html
#[proc_macro]
pub fn include_kernels(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let file = proc_macro::Span::call_site().local_file();
    let folder = file.as_deref().and_then(Path::parent);
    let expanded = syn::parse2::<Included>(TokenStream::from(input)).and_then(|included| {
        let compiled = compile::compile(&included, folder)?;
        generate::module(&included, &compiled)
    });
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}
