//! Defines vector clocks over the agents of a launch: programs or warps.
//!
//! A *step* is the part of an agent's execution between two synchronizations that publish its
//! clock, such as releases and barriers. An agent numbers its steps in order:
//!
//! ```text
//! agent 0   step 1 | release | step 2
//! agent 1   ................ | acquire | ...   its clock is now {agent 0: step 1}
//! ```
//! A launch may have very many agents, so a clock consists of chunks that several clocks share.

use std::sync::Arc;

use rustc_hash::FxHashMap;

const CHUNK: usize = 64;

/// A vector clock of an agent, its owner. For each agent, it stores the last step that happens
/// before the owner's next access.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    chunks: Vec<Option<Arc<[u32; CHUNK]>>>,
}

impl Clock {
    /// Returns whether a step of an agent happens before the owner's next access.
    #[inline]
    pub fn knows(&self, agent: u32, step: u32) -> bool {
        self.step_of(agent) >= step
    }

    /// Returns the last step of an agent that happens before the owner's next access. Returns 0 if
    /// no such step is recorded.
    #[inline]
    pub fn step_of(&self, agent: u32) -> u32 {
        let agent = agent as usize;
        match self.chunks.get(agent / CHUNK) {
            Some(Some(chunk)) => chunk[agent % CHUNK],
            Some(None) | None => 0,
        }
    }

    /// Records that a step of an agent happens before the owner's next access.
    pub fn learn(&mut self, agent: u32, step: u32) {
        if self.knows(agent, step) {
            return;
        }
        let agent = agent as usize;
        if self.chunks.len() <= agent / CHUNK {
            self.chunks.resize(agent / CHUNK + 1, None);
        }
        let chunk = self.chunks[agent / CHUNK].get_or_insert_with(|| Arc::new([0; CHUNK]));
        Arc::make_mut(chunk)[agent % CHUNK] = step;
    }

    /// Merges another clock into this one by taking the elementwise maximum.
    pub fn join(&mut self, other: &Self) {
        if self.chunks.len() < other.chunks.len() {
            self.chunks.resize(other.chunks.len(), None);
        }
        for (mine, theirs) in self.chunks.iter_mut().zip(&other.chunks) {
            let Some(theirs) = theirs else { continue };
            match mine {
                None => *mine = Some(Arc::clone(theirs)),
                Some(mine) if Arc::ptr_eq(mine, theirs) => {}
                Some(mine) => {
                    if mine.iter().zip(theirs.iter()).all(|(mine, theirs)| mine <= theirs) {
                        *mine = Arc::clone(theirs);
                    } else if mine.iter().zip(theirs.iter()).any(|(mine, theirs)| mine < theirs) {
                        for (mine, theirs) in Arc::make_mut(mine).iter_mut().zip(theirs.iter()) {
                            *mine = (*mine).max(*theirs);
                        }
                    }
                }
            }
        }
    }

    /// Returns whether all entries of the clock are 0.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the nonzero entries. Each entry is an agent and its step.
    pub fn known(&self) -> impl Iterator<Item = (u32, u32)> {
        let chunks = self.chunks.iter().enumerate().filter_map(|(at, chunk)| Some((at, chunk.as_ref()?)));
        chunks.flat_map(|(at, chunk)| {
            let known = chunk.iter().enumerate().filter(|(_, step)| **step != 0);
            known.map(move |(index, &step)| ((at * CHUNK + index) as u32, step))
        })
    }
}

/// A release, with the clock of the releasing agent. An acquire may synchronize with the release.
#[derive(Clone, Debug)]
pub struct Published {
    /// The agent that releases.
    pub agent: u32,
    /// The step that the agent ends with the release.
    pub step: u32,
    /// The agent's clock, which includes this step.
    pub clock: Clock,
}

/// The releases at each address.
#[derive(Debug, Default)]
pub struct Releases {
    at: FxHashMap<u64, Vec<Arc<Published>>>,
}

impl Releases {
    /// Returns the releases with which an acquire at an address synchronizes.
    pub fn get(&self, address: u64) -> &[Arc<Published>] {
        self.at.get(&address).map_or(&[], |published| published)
    }

    /// Adds the release of an atomic read-modify-write. Earlier releases remain in the release
    /// sequence unless the new clock includes them.
    pub fn add(&mut self, address: u64, published: &Arc<Published>) {
        let all = self.at.entry(address).or_default();
        all.retain(|old| !published.clock.knows(old.agent, old.step));
        all.push(Arc::clone(published));
    }

    /// Replaces the releases at an address, as an atomic store does. `published` is `None` if the
    /// store releases nothing.
    pub fn set(&mut self, address: u64, published: Option<&Arc<Published>>) {
        match published {
            Some(published) => {
                self.at.insert(address, vec![Arc::clone(published)]);
            }
            None => {
                self.at.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_join() {
        let (mut one, mut other) = (Clock::default(), Clock::default());
        one.learn(3, 2);
        one.learn(1000, 7);
        other.learn(4, 5);
        other.learn(3, 1);
        one.join(&other);
        assert!(one.knows(3, 2) && one.knows(4, 5) && one.knows(1000, 7) && one.knows(9, 0));
        assert!(!one.knows(3, 3) && !one.knows(9, 1) && !other.knows(1000, 1));
        other.join(&one);
        assert_eq!(other.known().collect::<Vec<_>>(), [(3, 2), (4, 5), (1000, 7)]);
    }

    #[test]
    fn a_release_stays_until_a_later_one_includes_it() {
        let published = |agent, knows: &[(u32, u32)]| {
            let mut clock = Clock::default();
            for &(agent, step) in knows {
                clock.learn(agent, step);
            }
            clock.learn(agent, 1);
            Arc::new(Published { agent, step: 1, clock })
        };
        let mut releases = Releases::default();
        releases.add(64, &published(0, &[]));
        releases.add(64, &published(1, &[]));
        assert_eq!(releases.get(64).len(), 2);
        releases.add(64, &published(2, &[(0, 1), (1, 1)]));
        assert_eq!(releases.get(64).len(), 1);
        releases.set(64, None);
        assert!(releases.get(64).is_empty());
    }
}
