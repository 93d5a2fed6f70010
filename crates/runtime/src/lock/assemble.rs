//! Assembles the PTX of a lock with NVIDIA's `ptxas`, on a machine without a GPU.

use std::fs;
use std::path::Path;
use std::process::Command;

use tilewright_base::{Code, Diagnostic};
use tilewright_lock::LockFile;

use super::active::unusable;
use crate::Error;

/// Assembles each GPU kernel without a cubin in the lock at `path`. Returns the number of these
/// kernels. `ptxas` is the path of the assembler.
///
/// # Errors
/// If the lock cannot be read or written, or if the assembler cannot be started. Also if the
/// assembler refuses a kernel; the error has the assembler's message.
pub fn assemble_missing(path: &Path, ptxas: &Path) -> Result<usize, Error> {
    let mut lock = LockFile::read(path)?;
    let artifacts = LockFile::artifacts(path);
    let failed = |message: String| -> Error { Diagnostic::new(Code::InvalidLock, message).into() };
    let mut count = 0;
    for entry in &mut lock.entries {
        let Some(ptx) = entry.code.ptx.clone().filter(|_| entry.code.cubin.is_none()) else { continue };
        // Checks the hash of the text.
        artifacts.read(&ptx, "ptx").map_err(|error| unusable(&error))?;
        let input = artifacts.folder().join(format!("{ptx}.ptx"));
        let output = artifacts.folder().join(format!(".{}-{ptx}.cubin", std::process::id()));
        let mut command = Command::new(ptxas);
        command.arg(format!("-arch={}", entry.launches.target)).arg("-o").arg(&output).arg(&input);
        let result = command.output().map_err(|error| failed(format!("{}: {error}", ptxas.display())))?;
        let cubin = fs::read(&output);
        let _ = fs::remove_file(&output);
        match cubin {
            Ok(cubin) if result.status.success() => {
                let stored = artifacts.store("cubin", &cubin);
                entry.code.cubin = Some(stored.map_err(|error| failed(error.to_string()))?);
                count += 1;
            }
            _ => {
                let (launches, program) = (&entry.launches, ptxas.display());
                let message = String::from_utf8_lossy(&result.stderr);
                return Err(failed(format!("{program} refuses {launches}: {}", message.trim())));
            }
        }
    }
    if count > 0 {
        lock.write(path).map_err(|error| failed(format!("{} cannot be written: {error}", path.display())))?;
    }
    Ok(count)
}
