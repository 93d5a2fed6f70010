//! Reads the artifacts of an entry of a lock.

use tilewright_base::{SourceFile, SourceMap};
use tilewright_compiler::{StoredGpuCode, StoredKernel};
use tilewright_lock::{ArtifactError, Artifacts, Entry, Source};

/// Reads the texts and the cubin of an entry.
pub(crate) fn stored(artifacts: &Artifacts, entry: &Entry) -> Result<StoredKernel, ArtifactError> {
    let code = &entry.code;
    let gpu = match (&code.gpu, &code.ptx) {
        (Some(program), Some(ptx)) => Some(StoredGpuCode {
            program: artifacts.read_text(program, "gpu")?,
            ptx: artifacts.read_text(ptx, "ptx")?,
            cubin: code.cubin.as_ref().map(|cubin| artifacts.read(cubin, "cubin")).transpose()?,
        }),
        _ => None,
    };
    Ok(StoredKernel {
        ir: artifacts.read_text(&code.ir, "ir")?,
        opt: artifacts.read_text(&code.opt, "opt")?,
        gpu,
    })
}

pub(crate) fn sources(artifacts: &Artifacts, entry: &Entry) -> Result<SourceMap, ArtifactError> {
    let file = |source: &Source| {
        Ok(SourceFile {
            name: source.name.clone(),
            text: artifacts.read_text(&source.text, "py")?,
            first_line: source.first_line,
            removed_columns: source.removed_columns,
        })
    };
    entry.sources.iter().map(file).collect()
}
