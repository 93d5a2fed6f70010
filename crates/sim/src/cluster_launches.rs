//! Counts the clusters of a grid that have not begun.

use std::sync::atomic::{AtomicU64, Ordering};

/// The clusters of a grid that have not begun.
#[derive(Debug)]
pub(crate) struct ClusterLaunches {
    /// The index of the next cluster, or at least `count` if all have begun.
    pub next: AtomicU64,
    pub count: u64,
    /// The number of clusters along each axis.
    pub grid: [u32; 3],
    /// The number of blocks of a cluster along each axis.
    pub cluster: [u32; 3],
}

impl ClusterLaunches {
    /// Removes the next cluster that has not begun. Returns the index of its first block.
    pub fn cancel(&self) -> Option<[u32; 3]> {
        let take = |next| (next < self.count).then_some(next + 1);
        let number = self.next.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()?;
        let (x, y) = (u64::from(self.grid[0]), u64::from(self.grid[1]));
        let position = [number % x, number / x % y, number / x / y];
        Some(std::array::from_fn(|axis| position[axis] as u32 * self.cluster[axis]))
    }
}
