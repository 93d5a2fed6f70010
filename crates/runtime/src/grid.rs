//! Defines the grid of a launch: the number of programs along each axis.

use tilewright_base::{Code, Diagnostic};

use crate::Error;

/// The extents of a grid along three axes. The extent of an omitted axis is 1. A grid with an
/// extent of 0 is legal and runs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid([u32; 3]);

impl Grid {
    /// Creates a grid from the extents that the user gave. Fails unless they are one to three
    /// numbers from 0 to 2^31 - 1.
    pub fn new(extents: &[i128]) -> Result<Self, Error> {
        if extents.is_empty() || extents.len() > 3 {
            let message = format!("the grid has {} axes", extents.len());
            return Err(invalid(message, extents).hint("a grid has 1, 2 or 3 axes").into());
        }
        let mut grid = [1; 3];
        for (axis, &extent) in extents.iter().enumerate() {
            grid[axis] = match i32::try_from(extent) {
                Ok(count) if count >= 0 => count as u32,
                _ if extent < 0 => return Err(negative(axis, extents).into()),
                _ => return Err(too_large(axis, extents).into()),
            };
        }
        Ok(Self(grid))
    }

    /// Returns the extents along the three axes.
    pub fn extents(self) -> [u32; 3] {
        self.0
    }

    /// Returns whether the grid has no programs: an extent is 0.
    pub fn is_empty(self) -> bool {
        self.0.contains(&0)
    }

    /// Returns the error for a grid that is not a list of integers. `what` describes the value,
    /// such as `a str` or `a tuple with a float in it`, and `found` is its text.
    pub fn not_a_grid(what: &str, found: &str) -> Error {
        let hint = if what.contains("a float") {
            "use `//` or `triton.cdiv` where a size is divided"
        } else if what.contains("function") {
            "return the number of programs along each axis: `lambda meta: (triton.cdiv(n, meta['BLOCK_SIZE']),)`"
        } else {
            "give the number of programs along each axis: `kernel[(triton.cdiv(n, BLOCK_SIZE),)](...)`"
        };
        Diagnostic::new(Code::InvalidGrid, format!("the grid is {what}"))
            .note(format!(
                "found {found}, expected an int, a tuple or list of 1 to 3 ints, or a function that returns one of these"
            ))
            .hint(hint)
            .into()
    }
}

impl From<[u32; 3]> for Grid {
    /// Converts extents that a program computed itself; an extent above 2^31 - 1 becomes 2^31 - 1.
    fn from(extents: [u32; 3]) -> Self {
        Self(extents.map(|extent| extent.min(i32::MAX as u32)))
    }
}

fn invalid(message: String, extents: &[i128]) -> Diagnostic {
    let list: Vec<String> = extents.iter().map(ToString::to_string).collect();
    let comma = if extents.len() == 1 { "," } else { "" };
    Diagnostic::new(Code::InvalidGrid, message).note(format!("found the grid ({}{comma})", list.join(", ")))
}

fn negative(axis: usize, extents: &[i128]) -> Diagnostic {
    invalid(format!("the grid has {} programs along axis {axis}", extents[axis]), extents)
        .hint("the number of programs must not be negative; `triton.cdiv(n, BLOCK_SIZE)` covers n elements")
}

fn too_large(axis: usize, extents: &[i128]) -> Diagnostic {
    invalid(format!("the grid has {} programs along axis {axis}", extents[axis]), extents)
        .hint("an axis has at most 2147483647 programs; let each program do more, in a loop")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_checked() {
        assert_eq!(Grid::new(&[4]).unwrap().extents(), [4, 1, 1]);
        assert_eq!(Grid::new(&[4, 5, 6]).unwrap().extents(), [4, 5, 6]);
        assert!(Grid::new(&[3, 0]).unwrap().is_empty());
        for bad in [&[][..], &[-4], &[1, 1, 1, 1], &[1 << 31], &[1, i128::MAX], &[i128::MIN]] {
            assert_eq!(Grid::new(bad).unwrap_err().code(), Some(Code::InvalidGrid), "{bad:?}");
        }
    }
}
