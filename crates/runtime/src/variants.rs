//! Variants of a kernel's GPU code, for launches whose tensors some tensor maps cannot describe.
//!
//! ```text
//! all maps can be made                                 the handle's own code
//! those of some accesses cannot                        code in which threads make these accesses
//! more sets of accesses than are kept (MAX_VARIANTS)   code without tensor maps
//! ```
//! A variant is identified by the accesses that it does not make by tensor copies. A launch finds
//! an access unfit for a reason that the compiler would have known for other arguments (a base or
//! strides that are not aligned), so it gets the code that the compiler would have made for these.
//! If only the rows of C end within 16 bytes, A and B stay tensor copies; if the rows of A are not
//! aligned, B does. A variant is compiled at its first use, and lives as long as the handle; a
//! launch all of whose maps can be made needs none.

use std::fmt::Write;
use std::sync::{Arc, PoisonError};

use tilewright_base::memory::Region;
use tilewright_compiler::TensorAccess;
use tilewright_cuda::Parameters;

use crate::loaded::{Accesses, Loaded, Variant, Variants};
use crate::tensor_maps::{Blocks, Unfit};
use crate::{Error, Handle};

/// The maximum number of variants of a handle: all subsets of three tensors, such as those of a
/// matmul.
const MAX_VARIANTS: usize = 7;

/// The code that a launch runs, and its blocks.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Nothing if it is the handle's own code.
    pub(crate) other: Option<ChosenVariant>,
    pub(crate) blocks: Blocks,
}

/// A variant that a launch runs in place of the handle's own code, and the reasons.
#[derive(Debug)]
pub(crate) struct ChosenVariant {
    pub(crate) variant: Arc<Variant>,
    unfit: Unfit,
}

/// Chooses the code for the arguments of a launch, and appends its tensor maps to them.
#[inline]
pub(crate) fn choose(
    handle: &Handle,
    loaded: &Loaded,
    grid: [u32; 3],
    regions: &[Region<'_>],
    parameters: &mut Parameters,
) -> Result<Choice, Error> {
    match loaded.append_maps(grid, regions, parameters)? {
        Ok(blocks) => Ok(Choice { other: None, blocks }),
        Err(unfit) => choose_other(handle, unfit, grid, regions, parameters),
    }
}

#[cold]
fn choose_other(
    handle: &Handle,
    mut unfit: Unfit,
    grid: [u32; 3],
    regions: &[Region<'_>],
    parameters: &mut Parameters,
) -> Result<Choice, Error> {
    loop {
        let variant = handle.variants.get(handle, &unfit)?;
        match variant.loaded.append_maps(grid, regions, parameters)? {
            Ok(blocks) => return Ok(Choice { other: Some(ChosenVariant { variant, unfit }), blocks }),
            // The variant may have maps that the handle's own code does not need. It has none for
            // accesses that it was compiled without, so this ends.
            Err(more) => {
                let count = unfit.len();
                unfit.extend(more.into_iter().filter(|(access, _)| !variant.is_without(*access)));
                assert!(unfit.len() > count, "code without a tensor map asks for it");
            }
        }
    }
}

impl Variants {
    fn get(&self, handle: &Handle, unfit: &Unfit) -> Result<Arc<Variant>, Error> {
        let mut without: Accesses = unfit.iter().map(|(access, _)| *access).collect();
        without.sort_unstable();
        let without = Some(without);
        let find =
            |variants: &[Arc<Variant>]| variants.iter().find(|variant| variant.without == without).cloned();
        let (found, is_full) = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            (find(&known), known.len() >= MAX_VARIANTS)
        };
        if let Some(variant) = found {
            return Ok(variant);
        }
        if is_full {
            return self.plain(handle);
        }
        // Two threads may both compile it here. An error is not kept: memory may be free later.
        let variant = Arc::new(Variant::new(handle, without.clone())?);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = find(&known) {
            return Ok(other);
        }
        known.push(Arc::clone(&variant));
        Ok(variant)
    }

    /// Returns the code without tensor maps.
    fn plain(&self, handle: &Handle) -> Result<Arc<Variant>, Error> {
        if let Some(plain) = self.plain.get() {
            return Ok(Arc::clone(plain));
        }
        let variant = Arc::new(Variant::new(handle, None)?);
        Ok(Arc::clone(self.plain.get_or_init(|| variant)))
    }
}

impl Variant {
    fn new(handle: &Handle, without: Option<Accesses>) -> Result<Self, Error> {
        let code = handle.compiled.without_tensor_maps(without.as_deref())?;
        let code = code.expect("only code of a GPU asks for tensor maps");
        let loaded = Loaded::new(&handle.compiled.name, &code, handle.device(), handle.options())?;
        Ok(Self { without, code, loaded })
    }

    fn is_without(&self, access: TensorAccess) -> bool {
        self.without.as_ref().is_none_or(|without| without.contains(&access))
    }
}

impl Choice {
    /// Returns the code that is launched, given the handle's own.
    pub(crate) fn loaded<'a>(&'a self, own: &'a Loaded) -> &'a Loaded {
        self.other.as_ref().map_or(own, |other| &other.variant.loaded)
    }
}

impl ChosenVariant {
    /// Describes the variant and the reasons, as a suffix to the kernel's text: ` without tensor
    /// copies to c_ptr (its rows …)`.
    pub(crate) fn describe(&self, handle: &Handle) -> String {
        let parameters = &handle.compiled.module.kernel().parameters;
        if self.variant.without.is_none() {
            return format!(
                " without any tensor copies: there are {MAX_VARIANTS} variants for other arguments"
            );
        }
        let mut text = String::from(" without tensor copies");
        for (number, (TensorAccess { base, is_written }, reason)) in self.unfit.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let how = if *is_written { "to" } else { "from" };
            let name = parameters.get(*base as usize).map_or("?", |parameter| &*parameter.name);
            let _ = write!(text, "{comma} {how} {name} ({reason})");
        }
        text
    }
}
