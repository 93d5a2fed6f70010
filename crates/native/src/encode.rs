//! Writes the blocks of a function in order, with the writer of the architecture.

use regalloc2::{Allocation, Edit, InstOrEdit, RegClass};

use crate::{
    CompileError,
    select::{Assigned, Machine, MachineInst},
};

pub trait Writer {
    type Machine: Machine;

    fn offset(&self) -> usize;
    /// Begins a block. `is_loop` is true if this or a later block jumps to it.
    fn begin_block(&mut self, block: usize, is_loop: bool);
    /// Saves registers and reserves the frame.
    fn prologue(&mut self) -> Result<(), CompileError>;
    fn epilogue(&mut self) -> Result<(), CompileError>;
    fn call(&mut self, function: usize) -> Result<(), CompileError>;
    /// Moves a value between registers, or between a register and a spill slot.
    fn edit(&mut self, from: Allocation, to: Allocation) -> Result<(), CompileError>;
    /// Writes an instruction with the registers of its operands.
    fn plain(
        &mut self,
        plain: &<Self::Machine as Machine>::Plain,
        allocations: &[Allocation],
    ) -> Result<(), CompileError>;
    /// Jumps to a block. With a condition, jumps only if the condition is true.
    fn jump(&mut self, condition: Option<<Self::Machine as Machine>::Condition>, block: usize);
}

/// Writes the blocks of a function. With `function.notes_origins`, returns each offset at which the
/// origin changes, and the new origin.
pub fn write<W: Writer>(
    writer: &mut W,
    function: &Assigned<'_, W::Machine>,
) -> Result<Vec<(usize, u32)>, CompileError> {
    let mut origins: Vec<(usize, u32)> = Vec::new();
    let program = &function.selected.program;
    let forwarding = forwarding_blocks(function);
    let resolve = |mut block: usize| {
        // `forwarding_blocks` excludes cycles. The bound is a safeguard.
        for _ in 0..program.blocks() {
            if !forwarding[block] {
                break;
            }
            block = program.successors(block).next().unwrap_or(block);
        }
        block
    };
    writer.prologue()?;
    for block in 0..program.blocks() {
        let is_loop = program.predecessors(block).any(|predecessor| predecessor >= block);
        writer.begin_block(block, is_loop);
        if forwarding[block] && resolve(block) != block {
            continue;
        }
        let next = (block + 1..program.blocks()).find(|&next| !forwarding[next]);
        let successors: Vec<usize> = program.successors(block).map(resolve).collect();
        for item in function.output.block_insts_and_edits(program, regalloc2::Block::new(block)) {
            match item {
                InstOrEdit::Edit(Edit::Move { from, to }) if from != to => writer.edit(*from, *to)?,
                InstOrEdit::Edit(_) => {}
                InstOrEdit::Inst(inst) => {
                    let allocations = function.output.inst_allocs(inst);
                    let origin = function.selected.origins[inst.index()];
                    let last = origins.last().map_or(0, |&(_, last)| last);
                    if function.notes_origins && origin != last {
                        origins.push((writer.offset(), origin));
                    }
                    let inst = &function.selected.insts[inst.index()];
                    write_inst(writer, inst, allocations, &successors, next)?;
                }
            }
        }
    }
    Ok(origins)
}

fn write_inst<W: Writer>(
    writer: &mut W,
    inst: &MachineInst<W::Machine>,
    allocations: &[Allocation],
    successors: &[usize],
    next: Option<usize>,
) -> Result<(), CompileError> {
    match inst {
        MachineInst::Begin => {}
        MachineInst::Plain(plain) => writer.plain(plain, allocations)?,
        MachineInst::Jump => {
            if next != Some(successors[0]) {
                writer.jump(None, successors[0]);
            }
        }
        MachineInst::Branch(condition) => {
            let (holds, fails) = (successors[0], successors[1]);
            if holds == fails {
                if next != Some(holds) {
                    writer.jump(None, holds);
                }
            } else if next == Some(fails) {
                writer.jump(Some(*condition), holds);
            } else {
                writer.jump(Some(W::Machine::negated(*condition)), fails);
                if next != Some(holds) {
                    writer.jump(None, holds);
                }
            }
        }
        MachineInst::Call(function) => writer.call(*function)?,
        MachineInst::Return => writer.epilogue()?,
    }
    Ok(())
}

/// Returns whether each block only jumps to its successor, so that jumps to it may go there
/// instead.
fn forwarding_blocks<M: Machine>(function: &Assigned<'_, M>) -> Vec<bool> {
    let program = &function.selected.program;
    let mut has_moves = vec![false; function.selected.insts.len()];
    for (point, Edit::Move { from, to }) in &function.output.edits {
        has_moves[point.inst().index()] |= from != to;
    }
    (0..program.blocks())
        .map(|block| {
            let insts = program.instructions(block);
            let first = insts.start;
            // Every cycle has a block that branches, or a backward jump whose predecessor has one
            // successor. These blocks do not forward, so each chain of forwarding blocks ends.
            let is_forward = program.successors(block).all(|successor| successor > block);
            let is_edge = program.predecessors(block).all(|from| program.successors(from).len() > 1);
            (is_forward || is_edge)
                && insts.len() == 1
                && matches!(function.selected.insts[first], MachineInst::Jump)
                && !has_moves[first]
        })
        .collect()
}

/// Returns the general and vector registers that a function may write, or also only reads.
pub fn written_registers<M: Machine>(function: &Assigned<'_, M>) -> [[bool; 32]; 2] {
    let mut written = [[false; 32]; 2];
    let mut mark = |allocation: Allocation| {
        if let Some(register) = allocation.as_reg() {
            match register.class() {
                RegClass::Int => written[0][register.hw_enc()] = true,
                RegClass::Float => written[1][register.hw_enc()] = true,
                RegClass::Vector => {}
            }
        }
    };
    function.output.allocs.iter().for_each(|&allocation| mark(allocation));
    for (_, Edit::Move { to, .. }) in &function.output.edits {
        mark(*to);
    }
    written
}

/// Returns the class, the source and the destination of a move. `None` is a spill slot.
pub fn moved_registers(
    from: Allocation,
    to: Allocation,
) -> Result<(RegClass, Option<usize>, Option<usize>), CompileError> {
    match (from.as_reg(), to.as_reg()) {
        (Some(from), to) => Ok((from.class(), Some(from.hw_enc()), to.map(regalloc2::PReg::hw_enc))),
        (None, Some(to)) => Ok((to.class(), None, Some(to.hw_enc()))),
        (None, None) => Err(CompileError::Registers("a move between two slots".into())),
    }
}
