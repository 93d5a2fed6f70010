//! Compiles vector SSA to machine code.
//!
//! ```text
//! Function ── value numbering ── interleaved chains ── Uses (unused results)
//!     ── Layout (block order, edge blocks) ── selection of instructions
//!     ── allocation of registers ── encoding ──> Code
//! ```

use crate::{
    Code, CompileError, Isa, Target,
    aarch64::Aarch64,
    interleave::interleave,
    ir::{Function, Value},
    layout::{Layout, reachable_blocks},
    select::{Assigned, Machine, select, vectors_of},
    uses::Uses,
    value_numbering::number_values,
    x86::{self, X86},
};

/// Compiles a function. The function must be well formed; debug builds verify it.
pub fn compile(function: &Function, target: &Target) -> Result<Code, CompileError> {
    compile_function(function, *target, false)
}

/// Compiles a function to the same code as [`compile`], and records the origin of each instruction
/// for [`listing`](crate::listing).
pub fn compile_with_origins(function: &Function, target: &Target) -> Result<Code, CompileError> {
    compile_function(function, *target, true)
}

fn compile_function(function: &Function, target: Target, notes_origins: bool) -> Result<Code, CompileError> {
    if function.lanes != target.lanes() {
        return Err(CompileError::Lanes { function: function.lanes, target: target.lanes() });
    }
    #[cfg(debug_assertions)]
    if let Err(error) = crate::verify(function) {
        panic!("{error}\n{function}");
    }
    let mut function = function.clone();
    number_values(&mut function);
    match target.isa() {
        Isa::Avx2 => generate::<X86>(function, x86::Isa::Avx2, notes_origins),
        Isa::Avx512 => generate::<X86>(function, x86::Isa::Avx512, notes_origins),
        Isa::Neon => generate::<Aarch64>(function, (), notes_origins),
    }
}

/// Generates the code of a function, whose number of lanes is that of 32 bits in a register.
fn generate<M: Machine>(
    mut function: Function,
    isa: M::Isa,
    notes_origins: bool,
) -> Result<Code, CompileError> {
    let reachable = reachable_blocks(&function);
    let types = function.types.clone();
    let vectors = |value: Value| vectors_of::<M>(isa, types[value.0 as usize]);
    interleave(&mut function, &reachable, M::vector_registers(isa), &vectors);
    let uses = Uses::new(&function, &reachable);
    let layout = Layout::new(&function, &reachable);
    let selected = select::<M>(&function, isa, &uses, &layout, &reachable)?;
    let output = selected.program.allocate(&M::environment(isa))?;
    M::encode(&Assigned { isa, selected: &selected, output: &output, notes_origins })
}
