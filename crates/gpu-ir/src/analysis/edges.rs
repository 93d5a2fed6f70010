//! The edges of structured control flow, and the values that they rename.

use tilewright_ir::{Block, Inst, Value};

use super::slots::{Edge, Origin, SlotAnalysis};

impl SlotAnalysis<'_> {
    /// Returns the trip count of a `for_loop` with constant bounds, if it is positive.
    pub fn trips(&self, inst: Inst) -> Option<i128> {
        let operands = &self.function.insts[inst].operands;
        let [lower, upper, step] = [0, 1, 2].map(|index| self.constant(operands[index]).map(i128::from));
        let (lower, upper, step) = (lower?, upper?, step?);
        (step > 0 && lower < upper).then(|| (upper - lower + step - 1) / step)
    }

    /// Returns the edges into a `for_loop`, to its next iteration, and out.
    pub fn for_edges(&self, inst: Inst) -> [Edge; 3] {
        let data = &self.function.insts[inst];
        let body = data.regions[0];
        let parameters = &self.function.blocks[body].parameters;
        let inits = std::iter::once(data.operands[0]).chain(data.operands[3..].iter().copied());
        let enter = inits.map(Origin::Value).zip(parameters.iter().copied()).collect();
        let mut back = pairs(self.function.yielded(body), &parameters[1..]);
        if let Some(step) = self.constant(data.operands[2]) {
            back.push((Origin::Plus(parameters[0], step), parameters[0]));
        }
        let leave = pairs(&parameters[1..], &data.results);
        [Edge::enter(enter), Edge::leave(back, body), Edge::leave(leave, body)]
    }

    /// Returns the edges of a `while_loop`: into the condition, to the body, back, and out.
    pub fn while_edges(&self, inst: Inst) -> [Edge; 4] {
        let data = &self.function.insts[inst];
        let [condition, body] = [data.regions[0], data.regions[1]];
        let [tested, carried] = [condition, body].map(|block| &self.function.blocks[block].parameters);
        [
            Edge::enter(pairs(&data.operands, tested)),
            Edge::leave(pairs(tested, carried), condition),
            Edge::leave(pairs(self.function.yielded(body), tested), body),
            Edge::leave(pairs(tested, &data.results), condition),
        ]
    }

    /// Returns the edge out of a region of a branch.
    pub fn branch_edge(&self, inst: Inst, region: Block) -> Edge {
        Edge::branch(pairs(self.function.yielded(region), &self.function.insts[inst].results), region)
    }
}

fn pairs(from: &[Value], to: &[Value]) -> Vec<(Origin, Value)> {
    debug_assert_eq!(from.len(), to.len(), "the verifier compares the counts");
    from.iter().copied().map(Origin::Value).zip(to.iter().copied()).collect()
}
