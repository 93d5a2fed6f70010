//! Prints layouts on one line, on one line for each input, or as a table.

use std::fmt::{self, Write};

use crate::convert::Plan;
use crate::map::{Layout, Map, Transfer};
use crate::space::{Hardware, Input, Space, Tile};

/// Prints the shape and the images of each input's bits: `[16,32] register (0,1) (0,2) lane (1,0)`.
/// The alternate format has a line for each input: `register: 1 -> (0,1), 2 -> (0,2)`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.output())?;
        write_bases(self, f)
    }
}

/// Prints `{lane,warp} -> {lane} lane (1) (2) warp (0)`. The parts of a hardware index replace the
/// coordinates of a layout.
impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.input(), self.output())?;
        write_bases(self, f)
    }
}

/// Prints a conversion: `through 8192 bytes: 4 stores of 8, 32 loads of 1 elements`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Registers(_) => f.write_str("registers renamed"),
            Self::Shuffle(plan) => {
                let (rounds, selects) = (plan.rounds.len(), plan.give.len() + plan.take.len());
                write!(f, "{rounds} rounds of shuffles, {selects} selects")
            }
            Self::Shared(plan) => {
                let [(stores, store), (loads, load)] =
                    [&plan.store.vector, &plan.load.vector].map(|vector| (vector.accesses(), vector.width()));
                write!(
                    f,
                    "through {} bytes: {stores} stores of {store}, {loads} loads of {load} elements",
                    plan.bytes
                )
            }
        }
    }
}

/// Prints `[16,32]`.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, ('[', ']'), self.shape().iter())
    }
}

/// Prints `{register,lane}`: the inputs that have bits.
impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, ('{', '}'), Input::ALL.iter().filter(|input| self.bits_of(**input) > 0))
    }
}

impl Layout {
    /// Returns the tile as a table for documentation and debugging. A cell lists the hardware
    /// indices of an element, as `w1 l5 r0`. `b` is the block, and `@` an offset. The last two axes
    /// are the rows and columns. The text has one table for each index along the other axes.
    pub fn table(&self) -> String {
        let tile = self.output();
        let mut cells = vec![String::new(); 1 << tile.bits()];
        for place in 0..1_u64 << self.input().bits() {
            let cell = &mut cells[self.apply(place as u32) as usize];
            if !cell.is_empty() {
                cell.push('|');
            }
            cell.push_str(&self.place_name(place as u32));
        }
        let width = cells.iter().map(String::len).max().unwrap_or_default();
        let columns = if tile.rank() == 0 { 1 } else { tile.size(tile.rank() - 1) as usize };
        let rows = if tile.rank() < 2 { 1 } else { tile.size(tile.rank() - 2) as usize };
        let mut text = String::new();
        for (number, row) in cells.chunks(columns).enumerate() {
            if number > 0 && number % rows == 0 {
                text.push('\n');
            }
            let line = row.iter().map(|cell| format!("{cell:width$}")).collect::<Vec<_>>().join("  ");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Returns a line for each hardware index, such as `w0 l5 r1  (2, 7)`.
    pub fn places(&self) -> String {
        let mut text = String::new();
        for place in 0..1_u64 << self.input().bits() {
            let coordinates: Vec<_> =
                self.output().coordinates(self.apply(place as u32)).iter().map(u32::to_string).collect();
            let _ = writeln!(text, "{}  ({})", self.place_name(place as u32), coordinates.join(", "));
        }
        text
    }

    fn place_name(&self, place: u32) -> String {
        let named = [
            (Input::Block, 'b'),
            (Input::Warp, 'w'),
            (Input::Lane, 'l'),
            (Input::Register, 'r'),
            (Input::Offset, '@'),
        ];
        let parts = named.into_iter().filter(|(input, _)| self.bits_of(*input) > 0);
        parts
            .map(|(input, name)| format!("{name}{}", self.input().part(place, input)))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

fn write_list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    (open, close): (char, char),
    items: impl Iterator<Item = T>,
) -> fmt::Result {
    f.write_char(open)?;
    for (number, item) in items.enumerate() {
        write!(f, "{}{item}", if number == 0 { "" } else { "," })?;
    }
    f.write_char(close)
}

fn write_bases<O: Space>(map: &Map<Hardware, O>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for input in Input::ALL.into_iter().filter(|input| map.bits_of(*input) > 0) {
        write!(f, "{}{input}", if f.alternate() { "\n  " } else { " " })?;
        for (bit, column) in map.bases(input).iter().enumerate() {
            if f.alternate() {
                let separator = if bit == 0 { ": " } else { ", " };
                write!(f, "{separator}{} -> ", 1_u64 << bit)?;
            } else {
                f.write_char(' ')?;
            }
            write_list(f, ('(', ')'), map.output().parts(*column).iter())?;
        }
    }
    Ok(())
}
