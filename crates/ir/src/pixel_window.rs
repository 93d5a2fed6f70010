//! The pixels that a tensor copy moves (im2col): PTX ISA, "Im2col mode".

use std::fmt;
use std::str::FromStr;

use smallvec::SmallVec;

/// The window of the pixels that tensor copies move. The axes of the tensor are in row-major order:
/// images, then the axes of the window, then channels.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PixelWindow {
    /// The first coordinate of the bounding box along each axis between images and channels.
    pub lower: SmallVec<[i32; 3]>,
    /// The offset of the last coordinate of the bounding box from the last coordinate of the
    /// tensor.
    pub upper: SmallVec<[i32; 3]>,
    /// The distance between neighboring pixels along each axis of the tensor.
    pub steps: SmallVec<[u32; 5]>,
}

impl fmt::Display for PixelWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lower, upper, steps } = self;
        write!(f, "lower {lower:?} upper {upper:?} steps {steps:?}")
    }
}

impl FromStr for PixelWindow {
    type Err = ();

    /// Parses the text of `Display`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (lower, rest) =
            text.strip_prefix("lower ").and_then(|rest| rest.split_once(" upper ")).ok_or(())?;
        let (upper, steps) = rest.split_once(" steps ").ok_or(())?;
        let found = Self { lower: list(lower)?, upper: list(upper)?, steps: list(steps)? };
        let axes = found.lower.len();
        let fits = (1..=3).contains(&axes) && found.upper.len() == axes && found.steps.len() == axes + 2;
        fits.then_some(found).ok_or(())
    }
}

/// Returns the numbers of a list, such as `[-1, 2]`.
fn list<const N: usize, T: FromStr>(text: &str) -> Result<SmallVec<[T; N]>, ()>
where
    [T; N]: smallvec::Array<Item = T>,
{
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).ok_or(())?;
    inner.split(", ").map(|item| item.parse().map_err(|_| ())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() {
        let text = "lower [-1, 0] upper [-2, 1] steps [1, 2, 2, 1]";
        let window: PixelWindow = text.parse().unwrap();
        assert_eq!((window.lower[0], window.upper[1], window.steps[2]), (-1, 1, 2));
        assert_eq!(window.to_string(), text);
        for wrong in ["", "lower [] upper [] steps [1, 1]", "lower [0] upper [0] steps [1, 1]"] {
            assert!(wrong.parse::<PixelWindow>().is_err(), "{wrong}");
        }
    }
}
