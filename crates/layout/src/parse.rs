//! Parses layouts, in the format that `Display` of [`Layout`] prints.

use std::str::FromStr;

use smallvec::SmallVec;

use crate::f2::Columns;
use crate::map::Layout;
use crate::space::{Hardware, Input, Tile};

/// The error for a text that is not a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseLayoutError;

impl std::fmt::Display for ParseLayoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("expected a layout such as `[16,32] register (0,1) (0,2) lane (1,0)`")
    }
}

impl std::error::Error for ParseLayoutError {}

/// Parses `[16,32] register (0,1) (0,2) lane (1,0)`.
impl FromStr for Layout {
    type Err = ParseLayoutError;

    fn from_str(text: &str) -> Result<Self, ParseLayoutError> {
        parse(text).ok_or(ParseLayoutError)
    }
}

fn parse(text: &str) -> Option<Layout> {
    let (shape, mut rest) = text.trim().strip_prefix('[')?.split_once(']')?;
    let shape = numbers(shape)?;
    let is_tile = shape.iter().all(|size| size.is_power_of_two());
    let log_size: u32 = shape.iter().filter(|_| is_tile).map(|size| size.ilog2()).sum();
    if !is_tile || log_size > 32 {
        return None;
    }
    let tile = Tile::new(&shape);
    let mut columns: SmallVec<[Columns; Input::ALL.len()]> = Input::ALL.map(|_| Columns::new()).into();
    let mut last = None;
    while !rest.trim_start().is_empty() {
        rest = rest.trim_start();
        let end = rest.find(' ').unwrap_or(rest.len());
        let input = Input::ALL.into_iter().find(|input| input.name() == &rest[..end])?;
        // Inputs are in the order of the bits of a hardware index, each at most once.
        if last.replace(input).is_some_and(|last| last >= input) {
            return None;
        }
        rest = rest[end..].trim_start();
        while let Some(open) = rest.strip_prefix('(') {
            let (coordinates, after) = open.split_once(')')?;
            let coordinates = numbers(coordinates)?;
            let fits = coordinates.len() == tile.rank()
                && coordinates.iter().enumerate().all(|(axis, at)| *at < tile.size(axis));
            if !fits {
                return None;
            }
            columns[input as usize].push(tile.index(&coordinates));
            rest = after.trim_start();
        }
    }
    let bits = Input::ALL.map(|input| (input, columns[input as usize].len() as u32));
    if bits.iter().map(|(_, bits)| bits).sum::<u32>() > 32 {
        return None;
    }
    Some(Layout::new(Hardware::new(&bits), tile, columns.into_iter().flatten().collect()))
}

fn numbers(list: &str) -> Option<Vec<u32>> {
    if list.trim().is_empty() {
        return Some(Vec::new());
    }
    list.split(',').map(|number| number.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SwizzleMode, blocked, swizzled};

    #[test]
    fn text_is_read_back() {
        let layouts = [
            blocked(&[16, 64], &[1, 8], &[4, 8], &[4, 1], &[1, 0]),
            blocked(&[1], &[1], &[32], &[4], &[0]),
            swizzled(&[64, 64], &[1, 0], 16, SwizzleMode::Bytes128),
        ];
        for layout in layouts {
            assert_eq!(layout.to_string().parse(), Ok(layout));
        }
    }

    #[test]
    fn invalid_layouts_are_rejected() {
        for text in
            ["", "[3]", "[4] register (4)", "[4] lane (1) register (2)", "[4] bank (1)", "[4] lane (1,1)"]
        {
            assert_eq!(text.parse::<Layout>(), Err(ParseLayoutError), "{text}");
        }
    }
}
