//! The grid of a launch.

/// Returns the coordinates of the program with a linear index, which increases fastest along x.
pub(crate) fn coordinates(grid: [u32; 3], number: u64) -> [u32; 3] {
    let (x, y) = (u64::from(grid[0].max(1)), u64::from(grid[1].max(1)));
    [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
}
