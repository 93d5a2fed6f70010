//! Decides whether a reduction may combine elements in any order.
//!
//! The region becomes terms over its left and right elements. Equal terms have one id: operands are
//! sorted, and `a > b` becomes `b < a`. It commutes if swapping left and right yields the same
//! terms. It also commutes if it selects the left or the right element by a comparison of both. NaN
//! is ignored. A region without a test for NaN is not associative for NaN, and one with a test
//! treats both sides alike.

use rustc_hash::FxHashMap;
use tilewright_ir::{self as ir, Block, ElementwiseFn as F, Operation, Value};
use tilewright_layout::{Exchange, Layout, Parts, Reduction};

use crate::{Function, GpuOp, Op};

/// The most tiles whose orderings are enumerated: `n` tiles have `3^n` orderings.
const MAX_COMPARED_TILES: usize = 4;

/// Returns whether a region yields the same with left and right swapped.
///
/// Returns `false` for control flow, values from outside, and ops that are not pure or have several
/// results.
pub fn commutes(function: &Function, region: Block) -> bool {
    let mut terms = Terms::default();
    let (Some(plain), Some(swapped)) =
        (terms.region(function, region, false), terms.region(function, region, true))
    else {
        return false;
    };
    let count = function.blocks[region].parameters.len() / 2;
    plain.iter().zip(&swapped).all(|(plain, swapped)| plain == swapped || terms.selects(*plain, count))
}

/// Returns how a reduction's warps exchange partial results, if they do.
///
/// Results are combined in the order of the axis if the region does not commute.
pub fn exchange_of_reduction(
    function: &Function,
    region: Block,
    layout: &Layout,
    axis: usize,
) -> Option<Exchange> {
    if commutes(function, region) {
        return Reduction::along(layout, axis).exchange;
    }
    Parts::along(layout, axis).map(|Parts { partials, gathered, .. }| Exchange { partials, gathered })
}

/// The id of a term.
type Term = usize;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Node {
    /// An element: its tile's index, and true for the right side.
    Element(usize, bool),
    Apply(F, Vec<Term>),
    /// Another op: its name with its attributes, and its operands.
    Other(String, Vec<Term>),
}

#[derive(Default)]
struct Terms {
    nodes: Vec<Node>,
    numbers: FxHashMap<Node, Term>,
}

impl Terms {
    fn add(&mut self, node: Node) -> Term {
        *self.numbers.entry(node.clone()).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }

    /// Returns the terms that a region yields. Returns `None` for a value from outside, or an op
    /// that is not pure, has regions, or has several results.
    fn region(&mut self, function: &Function, region: Block, is_swapped: bool) -> Option<Vec<Term>> {
        let block = &function.blocks[region];
        let count = block.parameters.len() / 2;
        let mut known: FxHashMap<Value, Term> = FxHashMap::default();
        for (index, parameter) in block.parameters.iter().enumerate() {
            let element = Node::Element(index % count, (index >= count) != is_swapped);
            known.insert(*parameter, self.add(element));
        }
        for inst in &block.insts {
            let data = &function.insts[*inst];
            if data.op.info().effect == ir::Effect::Terminator {
                break;
            }
            let [result] = data.results[..] else { return None };
            if !data.regions.is_empty() || data.op.info().effect != ir::Effect::Pure {
                return None;
            }
            let operands: Option<Vec<Term>> =
                data.operands.iter().map(|value| known.get(value).copied()).collect();
            let node = match &data.op {
                Op::Gpu(GpuOp::Elementwise { function, .. }) => normal(*function, operands?),
                // tidy: wildcard because every other op is a term by its name and its attributes
                other => Node::Other(format!("{} {:?}", other.name(), other.attributes()), operands?),
            };
            known.insert(result, self.add(node));
        }
        function.yielded(region).iter().map(|value| known.get(value).copied()).collect()
    }

    /// Returns whether a term selects an element of a tile by a comparison. The comparison must
    /// distinguish the tile's two elements.
    fn selects(&self, term: Term, count: usize) -> bool {
        let Node::Apply(F::Select, operands) = &self.nodes[term] else { return false };
        let [condition, left, right] = operands[..] else { return false };
        let (Node::Element(tile, left), Node::Element(other, right)) =
            (&self.nodes[left], &self.nodes[right])
        else {
            return false;
        };
        if tile != other || left == right || count > MAX_COMPARED_TILES {
            return false;
        }
        (0..3_usize.pow(count as u32)).all(|number| {
            let outcome = |tile: usize| ORDERINGS[number / 3_usize.pow(tile as u32) % 3];
            let swapped = |tile: usize| outcome(tile).reverse();
            let chosen = (self.holds(condition, &outcome), self.holds(condition, &swapped));
            let is_same = outcome(*tile) == std::cmp::Ordering::Equal;
            matches!(chosen, (Some(a), Some(b)) if a != b || is_same)
        })
    }

    /// Returns whether a condition holds for given orderings of the tiles' elements. Returns `None`
    /// if it has more than comparisons of these.
    fn holds(&self, condition: Term, outcome: &dyn Fn(usize) -> std::cmp::Ordering) -> Option<bool> {
        let Node::Apply(function, operands) = &self.nodes[condition] else { return None };
        let both = |f: fn(bool, bool) -> bool| {
            Some(f(self.holds(*operands.first()?, outcome)?, self.holds(*operands.get(1)?, outcome)?))
        };
        let compared = || {
            let (left, right) =
                (self.rank(*operands.first()?, outcome)?, self.rank(*operands.get(1)?, outcome)?);
            (left.0 == right.0).then(|| left.1.cmp(&right.1))
        };
        match function {
            F::Eq => Some(compared()?.is_eq()),
            F::Ne => Some(compared()?.is_ne()),
            F::Lt => Some(compared()?.is_lt()),
            F::Le => Some(compared()?.is_le()),
            F::Gt => Some(compared()?.is_gt()),
            F::Ge => Some(compared()?.is_ge()),
            F::And => both(|a, b| a && b),
            F::Or => both(|a, b| a || b),
            F::Xor => both(|a, b| a != b),
            F::Not => Some(!self.holds(*operands.first()?, outcome)?),
            // tidy: wildcard because no other function makes a condition of comparisons
            _ => None,
        }
    }

    /// Returns the tile of a term, and the term's rank. The left element has rank 0. The right
    /// element has rank -1, 0 or 1 if it is less than, equal to or greater than the left one
    /// (`outcome`). Minima and maxima of both also have ranks.
    fn rank(&self, term: Term, outcome: &dyn Fn(usize) -> std::cmp::Ordering) -> Option<(usize, i8)> {
        match &self.nodes[term] {
            Node::Element(tile, false) => Some((*tile, 0)),
            Node::Element(tile, true) => Some((*tile, outcome(*tile).reverse() as i8)),
            Node::Apply(function @ (F::Max | F::Min), operands) => {
                let (a, b) =
                    (self.rank(*operands.first()?, outcome)?, self.rank(*operands.get(1)?, outcome)?);
                let extremum = if *function == F::Max { a.1.max(b.1) } else { a.1.min(b.1) };
                (a.0 == b.0).then_some((a.0, extremum))
            }
            Node::Apply(..) | Node::Other(..) => None,
        }
    }
}

const ORDERINGS: [std::cmp::Ordering; 3] =
    [std::cmp::Ordering::Less, std::cmp::Ordering::Equal, std::cmp::Ordering::Greater];

/// Normalizes a function: sorts commutative operands, and mirrors comparisons.
fn normal(function: F, mut operands: Vec<Term>) -> Node {
    let mirrored = match function {
        F::Gt => Some(F::Lt),
        F::Ge => Some(F::Le),
        F::Eq | F::Ne => {
            operands.sort_unstable();
            None
        }
        // tidy: wildcard because the table lists which of the other functions are commutative
        other => {
            if other.info().commutative {
                operands.sort_unstable();
            }
            None
        }
    };
    if mirrored.is_some() {
        operands.reverse();
    }
    Node::Apply(mirrored.unwrap_or(function), operands)
}
