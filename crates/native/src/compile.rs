//! Compiles vector SSA to machine code.
//!
//! ```text
//! Function ── value numbering ── interleaved chains ── Uses (unused results)
//!     ── Layout (block order, edge blocks) ── selection of instructions ── allocation of registers ── encoding ──> Code
//! ```

use crate::{Code, CompileError, Target, ir::Function, value_numbering::number_values, x86};

/// Compiles a function. The function is well formed: debug builds verify it.
pub fn compile(function: &Function, target: &Target) -> Result<Code, CompileError> {
    if function.lanes != target.lanes() {
        return Err(CompileError::Lanes { function: function.lanes, target: target.lanes() });
    }
    #[cfg(debug_assertions)]
    if let Err(error) = crate::verify(function) {
        panic!("{error}\n{function}");
    }
    let mut function = function.clone();
    number_values(&mut function);
    x86::compile(function, target.isa())
}
