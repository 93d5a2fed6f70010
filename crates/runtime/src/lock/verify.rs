//! Verifies a lock: compiles each kernel anew, compares the texts, and checks the tuned choices.

use std::path::Path;
use std::sync::Arc;

use tilewright_base::{Code, Diagnostic, SourceMap};
use tilewright_compiler::{
    Job, Stage, StoredGpuCode, StoredKernel, Target, TensorMapVariant, compile_lowered, ir_digest,
    parse_stored,
};
use tilewright_frontend::{FunctionRef, Lowered, Request};
use tilewright_lock::{Choice, Entry};

use super::active::unusable;
use super::request::{WITHOUT, codegen};
use super::stored::{sources, stored};
use crate::Error;

/// The result of verifying a lock.
#[derive(Debug)]
pub struct Verified {
    /// The number of kernels in the lock.
    pub kernels: usize,
    /// The kernels whose code differs.
    pub mismatches: Vec<Mismatch>,
    /// The tuned choices that select no kernel of the lock.
    pub unmatched: Vec<Choice>,
}

/// A kernel whose locked code differs from the code that its IR compiles to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The launches of the kernel.
    pub launches: String,
    /// The part that differs: a stage, or the hash of the IR.
    pub part: &'static str,
}

/// Reads every artifact of the lock at `path`, compiles each kernel anew from its IR, and compares
/// all texts. Cubins are not compared, because they depend on the assembler. Then finds the choices
/// of tuners that select no kernel of the lock. A locked launch with such a choice would fail.
///
/// # Errors
/// If the lock or an artifact cannot be read, or if an entry is invalid or does not compile.
pub fn verify(path: &Path) -> Result<Verified, Error> {
    let (lock, artifacts) = tilewright_lock::open(path)?;
    let mut mismatches = Vec::new();
    for entry in &lock.entries {
        let locked = stored(&artifacts, entry).map_err(|error| unusable(&error))?;
        let sources = sources(&artifacts, entry).map_err(|error| unusable(&error))?;
        if let Some(part) = difference(entry, &locked, &Arc::new(sources))? {
            mismatches.push(Mismatch { launches: entry.launches.to_string(), part });
        }
    }
    let is_unmatched = |choice: &Choice| !lock.entries.iter().any(|entry| choice.may_select(&entry.launches));
    let unmatched = lock.choices.iter().filter(|choice| is_unmatched(choice)).cloned().collect();
    Ok(Verified { kernels: lock.entries.len(), mismatches, unmatched })
}

fn difference(
    entry: &Entry,
    locked: &StoredKernel,
    sources: &Arc<SourceMap>,
) -> Result<Option<&'static str>, Error> {
    let invalid = |what: &str| -> Error {
        let message = format!("the lock's entry for {} has no valid {what}", entry.launches);
        Diagnostic::new(Code::InvalidLock, message).into()
    };
    let target = Target::parse(&entry.launches.target).ok_or_else(|| invalid("target"))?;
    let codegen = codegen(&entry.launches.options, target).ok_or_else(|| invalid("options"))?;
    let module = parse_stored(Stage::Ir, &locked.ir, sources)?;
    if ir_digest(&module) != entry.launches.ir {
        return Ok(Some("ir"));
    }
    let options = tilewright_frontend::Options::default();
    let request = Request { kernel: FunctionRef(0), arguments: Vec::new(), options };
    let job = Job { request, parameters: Vec::new(), target, codegen };
    let lowered = Lowered { module, is_shareable: false };
    let kernel = compile_lowered(&job, None, lowered, &mut |_, _| {})?;
    let mut anew = StoredKernel::of(&kernel);
    if let Some(name) = entry.launches.options.get(WITHOUT) {
        let variant = TensorMapVariant::parse(name).ok_or_else(|| invalid("variant"))?;
        anew.gpu = kernel.without_tensor_maps(&variant)?.as_ref().map(StoredGpuCode::of);
    }
    if anew.opt != locked.opt {
        return Ok(Some("opt"));
    }
    Ok(match (&anew.gpu, &locked.gpu) {
        (Some(anew), Some(locked)) if anew.program != locked.program => Some("gpu"),
        (Some(anew), Some(locked)) if anew.ptx != locked.ptx => Some("ptx"),
        (Some(_), None) | (None, Some(_)) => Some("gpu"),
        (Some(_), Some(_)) | (None, None) => None,
    })
}
