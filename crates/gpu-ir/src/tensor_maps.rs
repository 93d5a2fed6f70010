//! Plans of tensor maps, from which a launch or a kernel makes maps. A launch passes the map as a
//! parameter; a kernel makes it by `make_tensor_map`.
//!
//! ```text
//! T0 = fp16 at p0 + 64*p7, extents [p3; p5], strides [p6; 1], box [128, 64], swizzle 128
//! ```
//! `p0` is the pointer to the tensor, and `p6` the integer argument with index 6. Strides and the
//! offset from the pointer are in elements. Extents, strides and box are in the order of the
//! coordinates of a copy; one stride is 1. The box is `?` until a pass knows the memory that the
//! copies fill. The swizzle is in bytes; `, nan` follows if loads fill elements outside of the
//! tensor with NaN. `nonnegative [p3, p4]` before the box: no map exists if one of these arguments
//! is negative. `, written` ends the line if copies write the tensor. An im2col copy has the box
//! `[1, 1, 1, 64]`, the channels of a pixel. The number of pixels of a copy and their window follow
//! the swizzle: `, pixels 128 lower [-1, -1] upper [-1, -1] steps [1, 1, 1, 1]`.

use std::fmt;

use smallvec::SmallVec;
use tilewright_ir::{AtomicKind, Dtype, PixelWindow};
use tilewright_layout::SwizzleMode;

/// The extent of an axis that no mask bounds: more than any index.
pub const UNBOUNDED: i64 = i32::MAX as i64;
/// The bytes of a tensor map, and the alignment of its address in global memory.
pub const TENSOR_MAP_BYTES: u32 = 128;

/// An integer from arguments: a sum of products.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LaunchInteger(pub Vec<LaunchTerm>);

/// A factor, times the arguments with these indices.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LaunchTerm {
    /// The factor.
    pub factor: i64,
    /// The indices of the arguments.
    pub arguments: SmallVec<[u32; 2]>,
}

impl LaunchInteger {
    /// Returns a constant.
    pub fn constant(number: i64) -> Self {
        if number == 0 {
            Self::default()
        } else {
            Self(vec![LaunchTerm { factor: number, arguments: SmallVec::new() }])
        }
    }

    /// Returns the value for these arguments, or `None` if the computation overflows.
    pub fn value(&self, argument: impl Fn(u32) -> i64) -> Option<i64> {
        self.0.iter().try_fold(0_i64, |sum, product| {
            let value = product
                .arguments
                .iter()
                .try_fold(product.factor, |so_far, number| so_far.checked_mul(argument(*number)));
            sum.checked_add(value?)
        })
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Self::default());
        }
        text.split(" + ").map(LaunchTerm::parse).collect::<Option<_>>().map(Self)
    }
}

impl LaunchTerm {
    fn parse(text: &str) -> Option<Self> {
        let (mut factor, mut arguments) = (1, SmallVec::new());
        for (index, part) in text.split('*').enumerate() {
            match part.strip_prefix('p') {
                Some(number) => arguments.push(number.parse().ok()?),
                None if index == 0 => factor = part.parse().ok()?,
                None => return None,
            }
        }
        Some(Self { factor, arguments })
    }
}

impl fmt::Display for LaunchInteger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("0");
        }
        for (index, LaunchTerm { factor, arguments }) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { " + " })?;
            let mut parts: Vec<String> = arguments.iter().map(|number| format!("p{number}")).collect();
            if *factor != 1 || parts.is_empty() {
                parts.insert(0, factor.to_string());
            }
            f.write_str(&parts.join("*"))?;
        }
        Ok(())
    }
}

/// Returns whether a tensor copy can combine elements by the function `kind`.
///
/// `cp.reduce.async.bulk.tensor` must compute the same as the atomic operation. Its float minimum
/// and maximum do not: they do not order zeros, and ignore NaN. Its bitwise operations on the
/// signed 64-bit type are illegal instructions.
pub fn is_tensor_reduction(kind: AtomicKind, dtype: Dtype) -> bool {
    use Dtype::{BF16, F16, F32, I32, I64, U32, U64};
    match kind {
        AtomicKind::Add => matches!(dtype, U32 | I32 | U64 | F16 | BF16 | F32),
        AtomicKind::Max | AtomicKind::Min => matches!(dtype, U32 | I32 | U64 | I64),
        AtomicKind::And | AtomicKind::Or | AtomicKind::Xor => matches!(dtype, U32 | I32 | U64),
        AtomicKind::Exchange => false,
    }
}

/// The box that a copy moves, and its swizzle in shared memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorMapBox {
    /// Elements along each axis.
    pub extents: SmallVec<[u32; 5]>,
    /// The swizzle of the rows.
    pub swizzle: SwizzleMode,
    /// True if loads fill elements outside of the tensor with NaN, not zeros.
    pub fills_nan: bool,
    /// True if copies write the tensor. They write chunks of 16 bytes, so each row must end with a
    /// chunk.
    pub is_written: bool,
    /// The pixels and window of an im2col copy; `None` for boxes.
    pub pixels: Option<(u32, PixelWindow)>,
}

/// The access of a kernel to the tensor of one of its arguments.
///
/// At a launch, strides and extents decide whether maps can be made: all maps of an access, or
/// none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TensorAccess {
    /// The argument that is the pointer.
    pub base: u32,
    /// True if the kernel writes the tensor.
    pub is_written: bool,
}

/// The recipe of a tensor map.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorMapPlan {
    /// The type of the elements.
    pub element: Dtype,
    /// The argument that is the pointer.
    pub base: u32,
    /// The offset of the tensor from the pointer, in elements.
    pub offset: LaunchInteger,
    /// Elements along each axis.
    pub extents: SmallVec<[LaunchInteger; 5]>,
    /// The distance between neighboring elements along each axis, in elements.
    pub strides: SmallVec<[LaunchInteger; 5]>,
    /// The arguments that must not be negative, or coordinates would be.
    pub nonnegative: SmallVec<[u32; 2]>,
    /// The box of a copy; `None` until its memory is known.
    pub copied: Option<TensorMapBox>,
}

impl TensorMapPlan {
    /// Returns the argument of the tensor, and whether copies by the map write the tensor.
    pub fn access(&self) -> TensorAccess {
        let is_written = self.copied.as_ref().is_some_and(|copied| copied.is_written);
        TensorAccess { base: self.base, is_written }
    }

    /// Returns whether the contiguous axis has an extent other than `UNBOUNDED`.
    pub fn has_bounded_rows(&self) -> bool {
        let unbounded = LaunchInteger::constant(UNBOUNDED);
        self.contiguous_axis().is_some_and(|axis| self.extents[axis] != unbounded)
    }

    /// Returns the indices of the map's arguments, without `nonnegative`.
    pub fn arguments(&self) -> impl Iterator<Item = u32> {
        let numbers = self.extents.iter().chain(&self.strides).chain([&self.offset]);
        let products = numbers.flat_map(|number| number.0.iter());
        products.flat_map(|product| product.arguments.iter().copied()).chain([self.base])
    }

    /// Returns the axis of stride 1.
    pub fn contiguous_axis(&self) -> Option<usize> {
        self.strides.iter().position(|stride| *stride == LaunchInteger::constant(1))
    }

    /// Returns the plan with the tile's axes in the order `axes`. Returns `None` if the tile has
    /// more axes than the tensor.
    ///
    /// The axes of a tile are the last axes of its tensor. The extents of the box are not permuted.
    pub fn transposed(&self, axes: &[usize]) -> Option<Self> {
        let own = self.strides.len().checked_sub(axes.len())?;
        let order = || (0..own).chain(axes.iter().map(|axis| own + axis));
        Some(Self {
            extents: order().map(|axis| self.extents[axis].clone()).collect(),
            strides: order().map(|axis| self.strides[axis].clone()).collect(),
            ..self.clone()
        })
    }

    /// Reads the text after `T0 = `.
    pub fn parse(text: &str) -> Option<Self> {
        let (element, rest) = text.split_once(" at p")?;
        let (address, rest) = rest.split_once(", extents [")?;
        let (base, offset) = address.split_once(" + ")?;
        let (extents, rest) = rest.split_once("], strides [")?;
        let (strides, rest) = rest.split_once("], ")?;
        let (nonnegative, copied) = match rest.strip_prefix("nonnegative [p") {
            Some(rest) => rest.split_once("], box ")?,
            None => ("", rest.strip_prefix("box ")?),
        };
        let nonnegative = nonnegative.split(", p").filter(|number| !number.is_empty());
        let list = |text: &str| text.split("; ").map(LaunchInteger::parse).collect::<Option<SmallVec<_>>>();
        Some(Self {
            element: Dtype::parse(element)?,
            base: base.parse().ok()?,
            offset: LaunchInteger::parse(offset)?,
            extents: list(extents)?,
            strides: list(strides)?,
            nonnegative: nonnegative.map(|number| number.parse().ok()).collect::<Option<_>>()?,
            copied: if copied == "?" { None } else { Some(TensorMapBox::parse(copied)?) },
        })
    }

    /// Returns whether extents, strides and box have one rank, and an axis is contiguous. The rank
    /// is from 1 to 5.
    pub fn is_consistent(&self) -> bool {
        let rank = self.extents.len();
        (1..=5).contains(&rank)
            && self.strides.len() == rank
            && self.copied.as_ref().is_none_or(|copied| copied.extents.len() == rank)
            && self.contiguous_axis().is_some()
    }
}

impl TensorMapBox {
    fn parse(text: &str) -> Option<Self> {
        let (extents, swizzle) = text.strip_prefix('[')?.split_once("], swizzle ")?;
        let (swizzle, is_written) = match swizzle.strip_suffix(", written") {
            Some(swizzle) => (swizzle, true),
            None => (swizzle, false),
        };
        let (swizzle, pixels) = match swizzle.split_once(", pixels ") {
            Some((swizzle, pixels)) => {
                let (count, window) = pixels.split_once(' ')?;
                (swizzle, Some((count.parse().ok()?, window.parse().ok()?)))
            }
            None => (swizzle, None),
        };
        let (swizzle, fills_nan) = match swizzle.strip_suffix(", nan") {
            Some(swizzle) => (swizzle, true),
            None => (swizzle, false),
        };
        let swizzle: u32 = swizzle.parse().ok()?;
        let modes = [SwizzleMode::None, SwizzleMode::Bytes32, SwizzleMode::Bytes64, SwizzleMode::Bytes128];
        Some(Self {
            extents: extents.split(", ").map(|extent| extent.parse().ok()).collect::<Option<_>>()?,
            swizzle: modes.into_iter().find(|mode| mode.row_bytes().unwrap_or(0) == swizzle)?,
            fills_nan,
            is_written,
            pixels,
        })
    }
}

impl fmt::Display for TensorMapPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { element, base, offset, extents, strides, nonnegative, copied } = self;
        let list =
            |list: &[LaunchInteger]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let (extents, strides) = (list(extents), list(strides));
        write!(f, "{} at p{base} + {offset}, extents [{extents}], strides [{strides}], ", element.name())?;
        if !nonnegative.is_empty() {
            let numbers: Vec<String> = nonnegative.iter().map(|number| format!("p{number}")).collect();
            write!(f, "nonnegative [{}], ", numbers.join(", "))?;
        }
        f.write_str("box ")?;
        match copied {
            None => f.write_str("?"),
            Some(TensorMapBox { extents, swizzle, fills_nan, is_written, pixels }) => {
                write!(f, "{extents:?}, swizzle {}", swizzle.row_bytes().unwrap_or(0))?;
                f.write_str(if *fills_nan { ", nan" } else { "" })?;
                if let Some((count, window)) = pixels {
                    write!(f, ", pixels {count} {window}")?;
                }
                f.write_str(if *is_written { ", written" } else { "" })
            }
        }
    }
}
