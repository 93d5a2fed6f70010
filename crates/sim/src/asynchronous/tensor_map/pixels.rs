//! Copies pixels (PTX ISA, "Im2col mode").
//!
//! The contiguous axis has the channels, the last axis the images, and the axes between them a
//! bounding box. A copy moves pixels of the box from a first one on, along the fastest axis, then
//! the next axes and images. Its offsets move the pixels, but not the box. Pixels outside of the
//! tensor are filled.

use super::{BoxRow, TensorMap, TensorMapError};

/// The maximum number of channels per pixel of a copy.
const MAX_CHANNELS: u32 = 256;
/// The maximum number of pixels of a copy.
const MAX_PIXELS: u32 = 1024;

/// The pixels that a copy moves. Axes are counted from the fastest one after the channels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PixelBox {
    /// The first coordinate along each axis of the bounding box.
    pub lower: Vec<i32>,
    /// The offset of the box's last coordinate from the tensor's last coordinate, along each axis.
    pub upper: Vec<i32>,
    /// The number of pixels that a copy moves, 1 to 1024.
    pub pixels: u32,
}

/// The bits of a corner offset for bounding boxes with 1, 2 and 3 axes.
const CORNER_BITS: [u32; 3] = [16, 8, 5];

impl PixelBox {
    /// Returns the first rule of `cuTensorMapEncodeIm2col` that a map breaks.
    pub(super) fn check(&self, map: &TensorMap) -> Result<(), TensorMapError> {
        let refuse = |text: String| Err(TensorMapError(text));
        let Some(axes) = map.rank().checked_sub(2).filter(|axes| (1..=3).contains(axes)) else {
            return refuse(format!("{} dimensions: a map of pixels has 3 to 5", map.rank()));
        };
        let limit = 1_i32 << (CORNER_BITS[axes - 1] - 1);
        for (name, corner) in [("lower", &self.lower), ("upper", &self.upper)] {
            if corner.len() != axes {
                return refuse(format!("the {name} corner has {} axes, expected {axes}", corner.len()));
            }
            if let Some(found) = corner.iter().find(|found| !(-limit..limit).contains(*found)) {
                return refuse(format!(
                    "the {name} corner is at {found}: it has to be from -{limit} to {}",
                    limit - 1
                ));
            }
        }
        if !(1..=MAX_PIXELS).contains(&self.pixels) {
            return refuse(format!("{} pixels: a copy moves 1 to {MAX_PIXELS}", self.pixels));
        }
        if !(1..=MAX_CHANNELS).contains(&map.box_extents[0]) {
            return refuse(format!("{} channels: a copy moves 1 to {MAX_CHANNELS}", map.box_extents[0]));
        }
        Ok(())
    }

    /// Returns the first and the last coordinate of the bounding box along an axis.
    fn range(&self, map: &TensorMap, axis: usize) -> (i64, i64) {
        let last = map.extents[axis + 1] as i64 - 1 + i64::from(self.upper[axis]);
        (self.lower[axis].into(), last)
    }

    /// Returns the reason why a copy may not begin at a pixel, if there is one.
    pub fn misplaced(&self, map: &TensorMap, coordinates: &[i32]) -> Option<String> {
        let outside = (0..self.lower.len()).find(|axis| {
            let (first, last) = self.range(map, *axis);
            !(first..=last).contains(&i64::from(coordinates[axis + 1]))
        })?;
        let (first, last) = self.range(map, outside);
        Some(format!(
            "a copy of pixels begins at {} along dimension {}, outside of its bounding box from {first} to {last}",
            coordinates[outside + 1],
            outside + 1
        ))
    }

    /// Returns the channels of each pixel, in the order of shared memory.
    pub fn rows(&self, map: &TensorMap, coordinates: &[i32], offsets: &[i16]) -> Vec<BoxRow> {
        let (images, axes) = (map.rank() - 1, self.lower.len());
        let mut at: Vec<i64> = coordinates.iter().map(|coordinate| i64::from(*coordinate)).collect();
        let mut found = Vec::new();
        for number in 0..self.pixels {
            let mut place = at.clone();
            for (axis, offset) in offsets.iter().enumerate() {
                place[axis + 1] += i64::from(*offset);
            }
            found.push(BoxRow { offset: number * map.row_bytes(), ..map.row_at(&place) });
            for axis in 0..axes {
                let (first, last) = self.range(map, axis);
                at[axis + 1] += i64::from(map.element_strides[axis + 1]);
                if at[axis + 1] <= last {
                    break;
                }
                at[axis + 1] = first;
                if axis + 1 == axes {
                    at[images] += i64::from(map.element_strides[images]);
                }
            }
        }
        found
    }
}
