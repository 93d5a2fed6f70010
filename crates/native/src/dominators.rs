//! Computes the dominator tree of a function.

use crate::{ir::Function, layout::reachable_blocks, uses::jumps};

/// The dominator tree of the reachable blocks. Source: Cooper, Harvey and Kennedy, "A Simple, Fast
/// Dominance Algorithm", 2001.
pub struct Dominators {
    /// The number of each block in reverse postorder, or `None` if it is unreachable.
    order: Vec<Option<usize>>,
    /// The immediate dominator of each block, by reverse postorder numbers.
    parents: Vec<usize>,
}

impl Dominators {
    pub fn new(function: &Function) -> Self {
        let blocks = reachable_blocks(function);
        let mut order = vec![None; function.blocks.len()];
        for (number, &block) in blocks.iter().enumerate() {
            order[block.0 as usize] = Some(number);
        }
        let mut predecessors = vec![Vec::new(); blocks.len()];
        for (number, &block) in blocks.iter().enumerate() {
            for jump in function.block(block).terminator.iter().flat_map(jumps) {
                predecessors[order[jump.block.0 as usize].unwrap_or(0)].push(number);
            }
        }
        let mut parents: Vec<Option<usize>> = vec![None; blocks.len()];
        parents[0] = Some(0);
        let mut changed = true;
        while changed {
            changed = false;
            for number in 1..blocks.len() {
                let mut parent = None;
                for &predecessor in &predecessors[number] {
                    if parents[predecessor].is_some() {
                        parent =
                            Some(parent.map_or(predecessor, |other| intersect(&parents, predecessor, other)));
                    }
                }
                changed |= parents[number] != parent;
                parents[number] = parent;
            }
        }
        Self { order, parents: parents.into_iter().map(|parent| parent.unwrap_or(0)).collect() }
    }

    pub fn is_reachable(&self, block: usize) -> bool {
        self.order[block].is_some()
    }

    /// Returns whether each path from the entry to a reachable block passes through `dominator`.
    pub fn dominates(&self, dominator: usize, block: usize) -> bool {
        let (Some(dominator), Some(mut number)) = (self.order[dominator], self.order[block]) else {
            return false;
        };
        while number > dominator {
            number = self.parents[number];
        }
        number == dominator
    }
}

/// Returns the closest common dominator of two blocks, by reverse postorder numbers.
fn intersect(parents: &[Option<usize>], mut a: usize, mut b: usize) -> usize {
    while a != b {
        if a > b {
            a = parents[a].unwrap_or(0);
        } else {
            b = parents[b].unwrap_or(0);
        }
    }
    a
}
