//! Tracks groups of asynchronous operations: `cp.async`, bulk copies and `wgmma`.
//!
//! A commit makes a group of the operations since the last commit. A wait names the number of
//! recent groups that may remain in flight:
//!
//! ```text
//! copy a; commit; copy b; copy c; commit      groups: [a] [b c]
//! wait 1                                      [a] is complete
//! ```
//!
//! Threads of a warp usually commit together, so a group is stored once, with its lanes.

use std::collections::VecDeque;

/// The operations of a warp in flight. `T` is the data of an operation: the vector clock of a copy,
/// or the registers of a `wgmma`.
#[derive(Debug)]
pub struct Groups<T> {
    /// Uncommitted operations, with their lanes.
    open: Vec<(u32, T)>,
    committed: VecDeque<Group<T>>,
}

#[derive(Debug)]
struct Group<T> {
    lanes: u32,
    /// The lanes that have waited for the group.
    waited: u32,
    operations: Vec<T>,
}

impl<T> Default for Groups<T> {
    fn default() -> Self {
        Self { open: Vec::new(), committed: VecDeque::new() }
    }
}

impl<T: Clone> Groups<T> {
    pub fn begin(&mut self, lanes: u32, operation: T) {
        self.open.push((lanes, operation));
    }

    /// Commits the open operations of these lanes, even if there are none.
    pub fn commit(&mut self, lanes: u32) {
        let begun = self.open.iter_mut().filter(|(theirs, _)| theirs & lanes != 0);
        let operations = begun
            .map(|(theirs, operation)| {
                *theirs &= !lanes;
                operation.clone()
            })
            .collect();
        self.open.retain(|(theirs, _)| *theirs != 0);
        self.committed.push_back(Group { lanes, waited: 0, operations });
    }

    /// Waits until each lane has at most `keep` groups in flight. Returns the operations of the
    /// groups that a lane waits for the first time.
    pub fn wait(&mut self, lanes: u32, keep: usize) -> Vec<T> {
        let mut kept = [0; 32];
        let mut complete = Vec::new();
        for group in self.committed.iter_mut().rev() {
            let mut finishes = false;
            for lane in (0..32).filter(|lane| group.lanes & lanes & 1 << lane != 0) {
                if kept[lane] < keep {
                    kept[lane] += 1;
                } else {
                    finishes |= group.waited & 1 << lane == 0;
                    group.waited |= 1 << lane;
                }
            }
            if finishes {
                complete.extend(group.operations.iter().cloned());
            }
        }
        self.committed.retain(|group| group.waited != group.lanes);
        complete
    }

    /// Returns whether a lane has an operation that it has not waited for.
    pub fn is_under_way(&self, lanes: u32) -> bool {
        let holds =
            |group: &Group<T>| group.lanes & !group.waited & lanes != 0 && !group.operations.is_empty();
        self.open.iter().any(|(theirs, _)| theirs & lanes != 0) || self.committed.iter().any(holds)
    }

    /// Returns the pending operations of lanes, committed or not. A group is pending until all its
    /// lanes have waited.
    pub fn pending(&self, lanes: u32) -> impl Iterator<Item = &T> {
        let committed = self.committed.iter().filter(move |group| group.lanes & lanes != 0);
        let open = self.open.iter().filter(move |(theirs, _)| theirs & lanes != 0);
        committed.flat_map(|group| &group.operations).chain(open.map(|(_, operation)| operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_leave_the_most_recent_groups() {
        let mut groups = Groups::default();
        for number in 0..4 {
            groups.begin(u32::MAX, number);
            groups.commit(u32::MAX);
        }
        groups.begin(u32::MAX, 9);
        assert!(groups.wait(u32::MAX, 4).is_empty());
        assert_eq!(groups.wait(u32::MAX, 2), [1, 0]);
        assert!(groups.wait(u32::MAX, 2).is_empty());
        assert_eq!(groups.pending(1).copied().collect::<Vec<_>>(), [2, 3, 9]);
        assert_eq!(groups.wait(u32::MAX, 0), [3, 2]);
        assert_eq!(groups.pending(1).copied().collect::<Vec<_>>(), [9], "not committed");
    }

    #[test]
    fn empty_groups_count() {
        let mut groups = Groups::default();
        groups.begin(u32::MAX, 1);
        groups.commit(u32::MAX);
        groups.commit(u32::MAX);
        assert_eq!(groups.wait(u32::MAX, 1), [1]);
    }

    #[test]
    fn lanes_have_groups_of_their_own() {
        let mut groups = Groups::default();
        groups.begin(0b11, 1);
        groups.commit(0b01);
        groups.begin(0b10, 2);
        groups.commit(0b10);
        // Lane 0 has a group of one operation, and lane 1 a group of both.
        assert_eq!(groups.wait(0b01, 0), [1]);
        assert!(groups.wait(0b11, 1).is_empty());
        assert!(!groups.is_under_way(0b01) && groups.is_under_way(0b11));
        assert_eq!(groups.wait(0b10, 0), [1, 2]);
        assert_eq!(groups.pending(u32::MAX).count(), 0);
    }
}
