//! Machine code for x86-64 with AVX2 or AVX-512.

mod constants;
mod encode;
mod instruction;
mod registers;
mod select;
mod tables;

use crate::{
    Code, CompileError, Isa,
    interleave::interleave,
    ir::{Function, Value},
    layout::{Layout, reachable_blocks},
    uses::Uses,
};

/// Compiles a function whose lanes are those of the ISA.
pub fn compile(mut function: Function, isa: Isa) -> Result<Code, CompileError> {
    let reachable = reachable_blocks(&function);
    let types = function.types.clone();
    let weight = |value: Value| select::vector_registers(isa, types[value.0 as usize]);
    interleave(&mut function, &reachable, registers::vector_count(isa), &weight);
    let uses = Uses::new(&function, &reachable);
    let layout = Layout::new(&function, &reachable);
    let selected = select::select(&function, isa, &uses, &layout, &reachable)?;
    let output = selected.program.allocate(&registers::environment(isa))?;
    encode::encode(&encode::Assigned {
        isa,
        program: &selected.program,
        insts: &selected.insts,
        output: &output,
        constants: &selected.constants,
        scratch_bytes: selected.scratch_bytes,
        has_streaming_stores: selected.has_streaming_stores,
    })
}
