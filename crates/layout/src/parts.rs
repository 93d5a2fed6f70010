//! Splits a scan or an ordered reduction into phases within and between warps.
//!
//! Level `i` of a [`Scan`] combines adjacent blocks of `2^i` elements. The first level that crosses
//! warps ends the first phase. A *line* is the elements that differ only in the coordinate along
//! the axis. In the first phase, each warp combines runs of consecutive elements of a line, the
//! *parts*. Example: a scan of 512 elements by four warps of 128 consecutive elements has four
//! parts.

use crate::f2::{self, Columns};
use crate::map::Layout;
use crate::reduce::Scan;
use crate::space::{Input, Space, Tile};

/// The runs of elements along an axis that a warp combines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The number of levels within warps; a part has `2^levels` elements.
    pub levels: usize,
    /// The layout of the parts after the levels within warps. The last axis of its tile is the part
    /// of a line. The other axes are those of the source without the scan's axis.
    pub partials: Layout,
    /// Register `r` of `partials` is register `registers[r]` of the source.
    pub registers: Columns,
    /// The layout in which every thread has all parts of its lines, in consecutive registers.
    pub gathered: Layout,
}

impl Parts {
    /// Returns the parts along an axis; `None` if no line crosses warps.
    ///
    /// # Panics
    /// If the layout does not hold every element.
    pub fn along(layout: &Layout, axis: usize) -> Option<Self> {
        let scan = Scan::along(layout, axis);
        let levels = scan.steps.iter().position(|level| level.step.reach() > Input::Lane)?;
        let count = scan.steps.len() - levels;
        let tile = layout.output();
        let lines = layout.remove_axis(axis);
        let mut shape = lines.output().shape();
        shape.push(1 << count);
        let last = shape.len() - 1;
        let part = |(element, line): (&u32, &u32)| line << count | tile.coordinate(*element, axis) >> levels;
        let columns = layout.columns().iter().zip(lines.columns()).map(part).collect();
        let all = Layout::new(*layout.input(), Tile::new(&shape), columns);
        let free = all.free_bits(Input::Register);
        let kept: Columns = (0..all.bits_of(Input::Register))
            .map(|bit| 1 << bit)
            .filter(|register| free & register == 0)
            .collect();
        let partials = all.without_duplicate_registers();
        debug_assert_eq!(
            kept.len() as u32,
            partials.bits_of(Input::Register),
            "bits that are not free are kept"
        );
        let registers = (0..partials.registers()).map(|register| f2::multiply(&kept, register)).collect();
        let rest = partials.remove_axis(last).without_duplicate_registers();
        let every = Layout::identity(last + 1, last, Input::Register, 1 << count);
        let gathered = every.product(&rest.insert_axis(last));
        debug_assert_eq!(
            gathered.output().bits(),
            partials.output().bits(),
            "both layouts are of the same tile"
        );
        Some(Self { levels, partials, registers, gathered })
    }

    /// Returns the number of parts of a line.
    pub fn count(&self) -> u32 {
        let tile = self.partials.output();
        tile.size(tile.rank() - 1)
    }
}

/// Distributes parts over lanes, at most `most` of a line in each thread. Returns `None` in three
/// cases:
/// - The lanes of a warp have parts of different lines.
/// - A line has at most `most` parts.
/// - The lanes of a warp are too few to hold all parts of a line, `most` in each lane.
pub fn spread_over_lanes(gathered: &Layout, most: u32) -> Option<Layout> {
    let (registers, lanes) = (gathered.bases(Input::Register), gathered.bases(Input::Lane));
    let tile = gathered.output();
    let parts = tile.bits_of(tile.rank() - 1) as usize;
    let kept = parts.min(most.ilog2() as usize);
    let spread = &registers[kept..parts];
    if spread.is_empty() || spread.len() > lanes.len() || lanes.iter().any(|lane| *lane != 0) {
        return None;
    }
    let mut spread: Columns = spread.into();
    spread.resize(lanes.len(), 0);
    let kept: Columns = registers[..kept].iter().chain(&registers[parts..]).copied().collect();
    Some(gathered.with_bases(Input::Register, &kept).with_bases(Input::Lane, &spread))
}
