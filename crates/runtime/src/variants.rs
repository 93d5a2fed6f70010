//! Chooses and compiles variants of a kernel's GPU code.
//!
//! A launch needs a variant ([`TensorMapVariant`]) if the kernel's tensor maps cannot describe some
//! of its tensors. A variant is compiled at its first use, and the handle keeps it.

use std::fmt::Write;
use std::sync::{Arc, PoisonError};

use tilewright_base::memory::Region;
use tilewright_compiler::{MAX_VARIANTS, TensorAccess, TensorMapVariant};
use tilewright_cuda::Parameters;

use crate::loaded::{Loaded, Variant, Variants};
use crate::tensor_maps::{Blocks, Unfit};
use crate::{Error, Handle, Knobs, lock};

/// The code that a launch runs, and the grid in blocks.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The variant; `None` for the handle's own code.
    pub(crate) other: Option<ChosenVariant>,
    pub(crate) blocks: Blocks,
}

/// A variant in place of the handle's own code, and the accesses that require it.
#[derive(Debug)]
pub(crate) struct ChosenVariant {
    pub(crate) variant: Arc<Variant>,
    unfit: Unfit,
}

/// Chooses the code for the arguments of a launch, and appends its tensor maps to `parameters`.
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
            // The variant has no maps for the accesses in `unfit`, so each iteration adds an access
            // and the loop ends.
            Err(more) => {
                let count = unfit.len();
                unfit.extend(more.into_iter().filter(|(access, _)| !variant.kind.is_without(*access)));
                assert!(unfit.len() > count, "code that was compiled without a tensor map takes it");
            }
        }
    }
}

impl Variants {
    fn get(&self, handle: &Handle, unfit: &Unfit) -> Result<Arc<Variant>, Error> {
        let choose = |known: &[Arc<Variant>]| {
            let accesses = unfit.iter().map(|(access, _)| *access);
            let kind = TensorMapVariant::choose(accesses, known.iter().map(|variant| &variant.kind));
            let found = known.iter().find(|variant| variant.kind == kind).cloned();
            (kind, found)
        };
        let (kind, found) = choose(&self.known.read().unwrap_or_else(PoisonError::into_inner));
        if let Some(variant) = found {
            return Ok(variant);
        }
        // An error is not cached, because memory may be free later. Two threads may both compile
        // the variant.
        let variant = Arc::new(Variant::new(handle, kind)?);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let (_, Some(other)) = choose(&known) {
            return Ok(other);
        }
        known.push(Arc::clone(&variant));
        Ok(variant)
    }
}

impl Variant {
    fn new(handle: &Handle, kind: TensorMapVariant) -> Result<Self, Error> {
        let knobs = Knobs::current();
        let locked = match lock::active(&knobs)? {
            Some(lock) => {
                lock.restore_variant(&handle.compiled, &handle.compilation(true, Some(&kind)), &knobs)?
            }
            None => None,
        };
        let code = if let Some(code) = locked {
            code
        } else {
            let code = handle.compiled.without_tensor_maps(&kind)?;
            code.expect("only code for a GPU takes tensor maps")
        };
        if let Some(recorder) = lock::recorder(&knobs) {
            recorder.record_variant(handle, &kind)?;
        }
        let loaded = Loaded::new(&handle.compiled.name, &code, handle.device(), handle.options())?;
        Ok(Self { kind, code, loaded })
    }
}

impl Choice {
    /// Returns the code of the chosen variant, or else `own`, the handle's code.
    pub(crate) fn loaded<'a>(&'a self, own: &'a Loaded) -> &'a Loaded {
        self.other.as_ref().map_or(own, |other| &other.variant.loaded)
    }
}

impl ChosenVariant {
    /// Describes the variant and its reasons: ` without tensor copies to c_ptr (its rows …)`.
    pub(crate) fn describe(&self, handle: &Handle) -> String {
        let parameters = &handle.compiled.module.kernel().parameters;
        if self.variant.kind == TensorMapVariant::NoMaps {
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
