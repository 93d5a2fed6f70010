//! The forms of a kernel's code: for arguments that some of its tensor maps cannot be made of, code without these.
//!
//! ```text
//! all maps can be made                              the handle's own code
//! those of some accesses cannot                     code in which threads make these accesses
//! more sets of accesses than are kept (MOST_FORMS)  code without tensor maps
//! ```
//! A form is known by the arguments whose tensors it does not read, or not write, by tensor copies: what the launch finds unfit
//! says no more than what the compiler would have known of other arguments (a base or strides that are not aligned), and it gets the
//! code that it would have got then. So where rows of C alone end within 16 bytes A and B stay tensor copies, and where the rows of
//! A are not aligned B does. A form is compiled when it is first asked for, and stays as long as the handle; a launch all of whose maps can
//! be made asks for none.

use std::fmt::Write;
use std::sync::{Arc, PoisonError};

use tilewright_base::memory::Region;
use tilewright_compiler::TensorAccess;
use tilewright_cuda::Parameters;

use crate::loaded::{Accesses, Form, Forms, Loaded};
use crate::tensor_maps::{Blocks, Unfit};
use crate::{Error, Handle};

/// So many are kept of a handle: all that there are of three tensors, such as those of a product.
const MOST_FORMS: usize = 7;

/// What a launch runs.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Nothing if it is the handle's own code.
    pub(crate) other: Option<OtherForm>,
    pub(crate) blocks: Blocks,
}

/// A form that is not the handle's own, and why a launch runs it.
#[derive(Debug)]
pub(crate) struct OtherForm {
    pub(crate) form: Arc<Form>,
    unfit: Unfit,
}

/// Chooses the form for the arguments of a launch, and appends to these what it takes besides.
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
        let form = handle.forms.get(handle, &unfit)?;
        match form.loaded.append_maps(grid, regions, parameters)? {
            Ok(blocks) => return Ok(Choice { other: Some(OtherForm { form, unfit }), blocks }),
            // It may have maps that the handle's own code has no use for. Those of what it was compiled without it does not have, so
            // that this ends.
            Err(more) => {
                let count = unfit.len();
                unfit.extend(more.into_iter().filter(|(access, _)| !form.is_without(*access)));
                assert!(unfit.len() > count, "code without a tensor map asks for it");
            }
        }
    }
}

impl Forms {
    fn get(&self, handle: &Handle, unfit: &Unfit) -> Result<Arc<Form>, Error> {
        let mut without: Accesses = unfit.iter().map(|(access, _)| *access).collect();
        without.sort_unstable();
        let without = Some(without);
        let find = |forms: &[Arc<Form>]| forms.iter().find(|form| form.without == without).cloned();
        let (found, is_full) = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            (find(&known), known.len() >= MOST_FORMS)
        };
        if let Some(form) = found {
            return Ok(form);
        }
        if is_full {
            return self.plain(handle);
        }
        // Two threads may both make it here. An error is not kept: memory may be free later.
        let form = Arc::new(Form::new(handle, without.clone())?);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = find(&known) {
            return Ok(other);
        }
        known.push(Arc::clone(&form));
        Ok(form)
    }

    /// Code without tensor maps.
    fn plain(&self, handle: &Handle) -> Result<Arc<Form>, Error> {
        if let Some(plain) = self.plain.get() {
            return Ok(Arc::clone(plain));
        }
        let form = Arc::new(Form::new(handle, None)?);
        Ok(Arc::clone(self.plain.get_or_init(|| form)))
    }
}

impl Form {
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
    /// The code that is launched, given the handle's own.
    pub(crate) fn loaded<'a>(&'a self, own: &'a Loaded) -> &'a Loaded {
        self.other.as_ref().map_or(own, |other| &other.form.loaded)
    }
}

impl OtherForm {
    /// What it is and why it was chosen, behind the name of the kernel's form: ` without tensor copies to c_ptr (its rows …)`.
    pub(crate) fn describe(&self, handle: &Handle) -> String {
        let parameters = &handle.compiled.module.kernel().parameters;
        if self.form.without.is_none() {
            return format!(" without any tensor copies: there are {MOST_FORMS} forms for other arguments");
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
