//! Describes a function to the register allocator.
//!
//! An instruction has the same index in [`Program`] and in the list of the back end.

use regalloc2::{
    Allocation, Block, Function, Inst, InstRange, MachineEnv, Operand, Output, PRegSet, RegClass,
    RegallocOptions, VReg,
};
use smallvec::SmallVec;

use crate::CompileError;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Continues with the next instruction.
    Next,
    /// Ends the block and continues with a successor.
    Branch,
    /// Ends the function.
    Return,
}

/// The operands of an instruction in [`Program::operands`], and its flow.
#[derive(Clone, Copy, Debug)]
struct InstData {
    first: u32,
    end: u32,
    flow: Flow,
    is_call: bool,
}

#[derive(Clone, Default, Debug)]
struct BlockData {
    first: u32,
    end: u32,
    successors: SmallVec<[Block; 2]>,
    predecessors: SmallVec<[Block; 4]>,
    parameters: Vec<VReg>,
    /// The arguments for each successor.
    arguments: [Vec<VReg>; 2],
}

#[derive(Debug)]
pub struct Program {
    insts: Vec<InstData>,
    operands: Vec<Operand>,
    blocks: Vec<BlockData>,
    registers: usize,
    /// The registers that a call overwrites, except that of its result.
    call_clobbers: PRegSet,
    /// The size of a spill slot of each class, in units of 8 bytes.
    slots: [usize; 3],
}

impl Program {
    pub fn new(successors: &[SmallVec<[usize; 2]>], call_clobbers: PRegSet, slots: [usize; 3]) -> Self {
        let mut blocks = vec![BlockData::default(); successors.len()];
        for (from, targets) in successors.iter().enumerate() {
            for &to in targets {
                blocks[from].successors.push(Block::new(to));
                blocks[to].predecessors.push(Block::new(from));
            }
        }
        Self { insts: Vec::new(), operands: Vec::new(), blocks, registers: 0, call_clobbers, slots }
    }

    pub fn register(&mut self, class: RegClass) -> VReg {
        self.registers += 1;
        VReg::new(self.registers - 1, class)
    }

    pub fn begin_block(&mut self, block: usize, parameters: Vec<VReg>) {
        self.blocks[block].first = self.insts.len() as u32;
        self.blocks[block].parameters = parameters;
    }

    /// Ends a block with the arguments for each successor.
    pub fn end_block(&mut self, block: usize, arguments: [Vec<VReg>; 2]) {
        self.blocks[block].end = self.insts.len() as u32;
        self.blocks[block].arguments = arguments;
    }

    pub fn push(&mut self, operands: &[Operand], flow: Flow, is_call: bool) {
        let first = self.operands.len() as u32;
        self.operands.extend_from_slice(operands);
        self.insts.push(InstData { first, end: self.operands.len() as u32, flow, is_call });
    }

    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub fn successors(&self, block: usize) -> impl ExactSizeIterator<Item = usize> {
        self.blocks[block].successors.iter().map(|successor| successor.index())
    }

    pub fn predecessors(&self, block: usize) -> impl ExactSizeIterator<Item = usize> {
        self.blocks[block].predecessors.iter().map(|predecessor| predecessor.index())
    }

    pub fn instructions(&self, block: usize) -> std::ops::Range<usize> {
        self.blocks[block].first as usize..self.blocks[block].end as usize
    }

    pub fn allocate(&self, environment: &MachineEnv) -> Result<Output, CompileError> {
        let options = RegallocOptions { validate_ssa: cfg!(debug_assertions), ..RegallocOptions::default() };
        regalloc2::run(self, environment, &options)
            .map_err(|error| CompileError::Registers(error.to_string()))
    }
}

/// Returns the number of a register in its class, or `None` for a spill slot.
pub fn register_index(allocation: Allocation) -> Option<usize> {
    allocation.as_reg().map(regalloc2::PReg::hw_enc)
}

impl Function for Program {
    fn num_insts(&self) -> usize {
        self.insts.len()
    }

    fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    fn entry_block(&self) -> Block {
        Block::new(0)
    }

    fn block_insns(&self, block: Block) -> InstRange {
        let data = &self.blocks[block.index()];
        InstRange::new(Inst::new(data.first as usize), Inst::new(data.end as usize))
    }

    fn block_succs(&self, block: Block) -> &[Block] {
        &self.blocks[block.index()].successors
    }

    fn block_preds(&self, block: Block) -> &[Block] {
        &self.blocks[block.index()].predecessors
    }

    fn block_params(&self, block: Block) -> &[VReg] {
        &self.blocks[block.index()].parameters
    }

    fn is_ret(&self, inst: Inst) -> bool {
        self.insts[inst.index()].flow == Flow::Return
    }

    fn is_branch(&self, inst: Inst) -> bool {
        self.insts[inst.index()].flow == Flow::Branch
    }

    fn branch_blockparams(&self, block: Block, _inst: Inst, successor: usize) -> &[VReg] {
        &self.blocks[block.index()].arguments[successor]
    }

    fn inst_operands(&self, inst: Inst) -> &[Operand] {
        let data = self.insts[inst.index()];
        &self.operands[data.first as usize..data.end as usize]
    }

    fn inst_clobbers(&self, inst: Inst) -> PRegSet {
        if self.insts[inst.index()].is_call { self.call_clobbers } else { PRegSet::empty() }
    }

    fn num_vregs(&self) -> usize {
        self.registers
    }

    fn spillslot_size(&self, class: RegClass) -> usize {
        self.slots[class as usize]
    }
}
