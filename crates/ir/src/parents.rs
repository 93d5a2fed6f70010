//! Computes the block of each instruction, and the owner of each region.

use tilewright_base::entity::SecondaryMap;
use tilewright_base::entity::packed_option::PackedOption;

use crate::dialect::Dialect;
use crate::function::{Block, Definition, Function, Inst, Value};

/// The block of each instruction and the owner of each block, at the time of the computation.
#[derive(Clone, Debug)]
pub struct Parents {
    blocks: SecondaryMap<Inst, PackedOption<Block>>,
    owners: SecondaryMap<Block, PackedOption<Inst>>,
}

impl Parents {
    /// Computes the parents of all instructions and regions that are reachable from the entry of a
    /// function.
    pub fn new<D: Dialect>(function: &Function<D>) -> Self {
        let mut parents = Self { blocks: SecondaryMap::new(), owners: SecondaryMap::new() };
        parents.blocks.resize(function.insts.len());
        let mut blocks = vec![function.entry];
        while let Some(block) = blocks.pop() {
            for &inst in &function.blocks[block].insts {
                parents.blocks[inst] = Some(block).into();
                for &region in &function.insts[inst].regions {
                    parents.owners[region] = Some(inst).into();
                    blocks.push(region);
                }
            }
        }
        parents
    }

    /// Records that a pass has put an instruction into a block.
    pub fn set_block(&mut self, inst: Inst, block: Block) {
        self.blocks[inst] = Some(block).into();
    }

    /// Returns the block that contains an instruction.
    pub fn block(&self, inst: Inst) -> Option<Block> {
        self.blocks[inst].expand()
    }

    /// Returns the instruction that has a block as a region; the entry has none.
    pub fn owner(&self, block: Block) -> Option<Inst> {
        self.owners[block].expand()
    }

    /// Returns the block that defines a value.
    pub fn block_of_value<D: Dialect>(&self, function: &Function<D>, value: Value) -> Option<Block> {
        match function.values[value].definition {
            Definition::Parameter(block, _) => Some(block),
            Definition::Result(inst, _) => self.block(inst),
        }
    }

    /// Returns the instructions around an instruction, from the innermost to the outermost.
    pub fn enclosing(&self, inst: Inst) -> impl Iterator<Item = Inst> + '_ {
        let around = |inst: Inst| self.block(inst).and_then(|block| self.owner(block));
        std::iter::successors(around(inst), move |inst| around(*inst))
    }

    /// Returns the instructions around the definition of a value, from the innermost to the
    /// outermost.
    pub fn around_value<D: Dialect>(
        &self,
        function: &Function<D>,
        value: Value,
    ) -> impl Iterator<Item = Inst> + '_ {
        let owner = self.block_of_value(function, value).and_then(|block| self.owner(block));
        owner.into_iter().chain(owner.into_iter().flat_map(|owner| self.enclosing(owner)))
    }

    /// Returns the instruction of `block` that is `inst` or contains it.
    pub fn ancestor_in(&self, block: Block, inst: Inst) -> Option<Inst> {
        std::iter::once(inst).chain(self.enclosing(inst)).find(|outer| self.block(*outer) == Some(block))
    }

    /// Returns whether `inst` is `outer` or is nested in it.
    pub fn is_inside(&self, inst: Inst, outer: Inst) -> bool {
        inst == outer || self.enclosing(inst).any(|other| other == outer)
    }
}
