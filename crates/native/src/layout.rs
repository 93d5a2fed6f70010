//! Orders the blocks of a function and splits its critical edges.

use smallvec::SmallVec;

use crate::{
    ir::{Block, Function},
    uses::jumps,
};

/// A block of machine code.
#[derive(Clone, Copy, Debug)]
pub enum MachineBlock {
    /// Receives the parameter of the function and continues with its entry block.
    Prologue,
    /// A block of the function.
    Source(Block),
    /// A block on a critical edge, from a block with two jumps to one with several predecessors.
    /// The fields are the first block and the index of its jump.
    Edge(Block, usize),
}

/// The blocks of the machine code in order, from the prologue on, and their successors.
#[derive(Debug)]
pub struct Layout {
    pub blocks: Vec<MachineBlock>,
    pub successors: Vec<SmallVec<[usize; 2]>>,
}

/// Returns the reachable blocks in reverse postorder. The first target of a branch precedes the
/// second, so the body of a loop precedes the code after it.
pub fn reachable_blocks(function: &Function) -> Vec<Block> {
    let mut visited = vec![false; function.blocks.len()];
    let mut order = Vec::new();
    let mut stack: Vec<(Block, SmallVec<[Block; 2]>)> = Vec::new();
    let successors = |block: Block| -> SmallVec<[Block; 2]> {
        function.block(block).terminator.iter().flat_map(|end| jumps(end).map(|jump| jump.block)).collect()
    };
    visited[0] = true;
    stack.push((Block(0), successors(Block(0))));
    while let Some((block, rest)) = stack.last_mut() {
        // The second target is visited first, so that it is later in the reverse order.
        match rest.pop() {
            Some(next) if !visited[next.0 as usize] => {
                visited[next.0 as usize] = true;
                stack.push((next, successors(next)));
            }
            Some(_) => {}
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }
    order.reverse();
    order
}

impl Layout {
    /// Orders the machine blocks. An edge block follows the block in which its edge begins.
    pub fn new(function: &Function, reachable: &[Block]) -> Self {
        let mut predecessors = vec![0; function.blocks.len()];
        predecessors[0] = 1;
        for &block in reachable {
            for jump in function.block(block).terminator.iter().flat_map(jumps) {
                predecessors[jump.block.0 as usize] += 1;
            }
        }
        let mut blocks = vec![MachineBlock::Prologue];
        let mut indices = vec![0; function.blocks.len()];
        for &block in reachable {
            indices[block.0 as usize] = blocks.len();
            blocks.push(MachineBlock::Source(block));
            let targets: SmallVec<[Block; 2]> = function
                .block(block)
                .terminator
                .iter()
                .flat_map(|end| jumps(end).map(|jump| jump.block))
                .collect();
            if targets.len() > 1 {
                for (index, target) in targets.iter().enumerate() {
                    if predecessors[target.0 as usize] > 1 {
                        blocks.push(MachineBlock::Edge(block, index));
                    }
                }
            }
        }
        let mut edges = rustc_hash::FxHashMap::default();
        for (at, block) in blocks.iter().enumerate() {
            if let MachineBlock::Edge(from, index) = block {
                edges.insert((*from, *index), at);
            }
        }
        let target = |block: Block, index: usize| {
            function.block(block).terminator.iter().flat_map(jumps).nth(index).map(|jump| jump.block)
        };
        let successors = blocks
            .iter()
            .map(|block| match *block {
                MachineBlock::Prologue => SmallVec::from_slice(&[indices[0]]),
                MachineBlock::Edge(from, index) => {
                    target(from, index).iter().map(|block| indices[block.0 as usize]).collect()
                }
                MachineBlock::Source(from) => (0..2)
                    .map_while(|index| {
                        let target = target(from, index)?;
                        Some(edges.get(&(from, index)).copied().unwrap_or(indices[target.0 as usize]))
                    })
                    .collect(),
            })
            .collect();
        Self { blocks, successors }
    }
}
