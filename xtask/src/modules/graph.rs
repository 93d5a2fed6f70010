//! Finds the strongly connected components of a graph.

/// Returns the strongly connected components of a graph. Uses Tarjan's algorithm. `targets`
/// contains the successors of each node.
pub fn components(targets: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = TarjanState {
        targets,
        index: vec![None; targets.len()],
        low: vec![0; targets.len()],
        is_open: vec![false; targets.len()],
        open: Vec::new(),
        next: 0,
        found: Vec::new(),
    };
    for node in 0..targets.len() {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

struct TarjanState<'a> {
    targets: &'a [Vec<usize>],
    /// The number of nodes that were visited before each node; `None` before its visit.
    index: Vec<Option<usize>>,
    /// The smallest index of an open node that is reachable from each node.
    low: Vec<usize>,
    is_open: Vec<bool>,
    /// The nodes that do not belong to a component yet.
    open: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl TarjanState<'_> {
    fn visit(&mut self, node: usize) {
        let index = self.next;
        self.next += 1;
        self.index[node] = Some(index);
        self.low[node] = index;
        self.open.push(node);
        self.is_open[node] = true;
        for &target in &self.targets[node] {
            match self.index[target] {
                None => {
                    self.visit(target);
                    self.low[node] = self.low[node].min(self.low[target]);
                }
                Some(earlier) if self.is_open[target] => self.low[node] = self.low[node].min(earlier),
                Some(_) => {}
            }
        }
        if self.low[node] == index {
            let first = self.open.iter().position(|&open| open == node).unwrap_or(0);
            let mut component = self.open.split_off(first);
            for &member in &component {
                self.is_open[member] = false;
            }
            component.sort_unstable();
            self.found.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_that_touch_are_one_component() {
        // The nodes 0 to 3 are one component: 0 -> 1 -> 2 -> 0 and 2 <-> 3. Node 4 leads to it, and
        // it leads to node 5.
        let targets = [vec![1], vec![2, 5], vec![0, 3], vec![2], vec![0], vec![]];
        let mut found = components(&targets);
        found.sort();
        assert_eq!(found, [vec![0, 1, 2, 3], vec![4], vec![5]]);
    }
}
