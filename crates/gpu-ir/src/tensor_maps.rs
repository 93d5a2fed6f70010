//! Tensor maps that a launch makes of the arguments of a kernel: the last parameters of the kernel.
//!
//! ```text
//! T0 = fp16 at p0 + 64*p7, extents [p3; p5], strides [p6; 1], box [128, 64], swizzle 128
//! ```
//! `p6` is the argument with this number, an integer; strides and the distance from the base are counted in elements, boxes and
//! all else in the order of the coordinates of a copy, one of them along the axis of stride 1. The box is `?` until a pass
//! knows what memory the copies fill. Before it may stand `nonnegative [p3, p4]`: for other arguments the map is none.

use std::fmt;

use smallvec::SmallVec;
use tilewright_ir::{AtomicKind, Dtype};
use tilewright_layout::SwizzleMode;

/// The extent of an axis that no mask bounds: more than any index.
pub const UNBOUNDED: i64 = i32::MAX as i64;
/// The bytes of a tensor map, and what its address in global memory is a multiple of.
pub const TENSOR_MAP_BYTES: u32 = 128;

/// An integer that is computed from the arguments of a launch: a sum of products of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LaunchInteger(pub Vec<LaunchProduct>);

/// A factor, and the numbers of the arguments that it is multiplied with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LaunchProduct {
    /// The factor.
    pub factor: i64,
    /// Which arguments.
    pub arguments: SmallVec<[u32; 2]>,
}

impl LaunchInteger {
    /// A number that needs no argument.
    pub fn constant(number: i64) -> Self {
        if number == 0 {
            Self::default()
        } else {
            Self(vec![LaunchProduct { factor: number, arguments: SmallVec::new() }])
        }
    }

    /// Its value, given the arguments; nothing where it overflows.
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
        text.split(" + ").map(LaunchProduct::parse).collect::<Option<_>>().map(Self)
    }
}

impl LaunchProduct {
    fn parse(text: &str) -> Option<Self> {
        let (mut factor, mut arguments) = (1, SmallVec::new());
        for (place, part) in text.split('*').enumerate() {
            match part.strip_prefix('p') {
                Some(number) => arguments.push(number.parse().ok()?),
                None if place == 0 => factor = part.parse().ok()?,
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
        for (place, LaunchProduct { factor, arguments }) in self.0.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { " + " })?;
            let mut parts: Vec<String> = arguments.iter().map(|number| format!("p{number}")).collect();
            if *factor != 1 || parts.is_empty() {
                parts.insert(0, factor.to_string());
            }
            f.write_str(&parts.join("*"))?;
        }
        Ok(())
    }
}

/// Whether the tensor memory accelerator combines elements of a type with what is in the tensor so: the element types of
/// `cp.reduce.async.bulk.tensor`, where they mean the same as the atomic operation. Its extrema of floats do not: they know no
/// order of zeros, and leave NaN out. Bitwise operations are illegal instructions with the signed type of 64 bits.
pub fn is_tensor_reduction(kind: AtomicKind, dtype: Dtype) -> bool {
    use Dtype::{BF16, F16, F32, I32, I64, U32, U64};
    match kind {
        AtomicKind::Add => matches!(dtype, U32 | I32 | U64 | F16 | BF16 | F32),
        AtomicKind::Max | AtomicKind::Min => matches!(dtype, U32 | I32 | U64 | I64),
        AtomicKind::And | AtomicKind::Or | AtomicKind::Xor => matches!(dtype, U32 | I32 | U64),
        AtomicKind::Exchange => false,
    }
}

/// What a copy moves, and how it lies in shared memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorMapBox {
    /// Elements along each axis.
    pub extents: SmallVec<[u32; 5]>,
    /// How rows are swizzled.
    pub swizzle: SwizzleMode,
    /// Whether copies write the tensor. They write whole chunks of 16 bytes, so its rows have to end at one.
    pub is_written: bool,
}

/// What a kernel does with the tensor behind an argument: it reads, or it writes. Its tensor maps are fit for copies, or not, by
/// what strides and extents the launch passes, so one that cannot be made says it of all that are for this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TensorAccess {
    /// The argument that is the pointer.
    pub base: u32,
    /// Whether the tensor is written.
    pub is_written: bool,
}

/// How a launch makes a tensor map.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorMapPlan {
    /// The type of the elements.
    pub element: Dtype,
    /// The argument that is the pointer.
    pub base: u32,
    /// Where the tensor begins: so many elements behind the pointer.
    pub offset: LaunchInteger,
    /// Elements along each axis.
    pub extents: SmallVec<[LaunchInteger; 5]>,
    /// Elements from one to the next along each axis.
    pub strides: SmallVec<[LaunchInteger; 5]>,
    /// The arguments that the coordinates of copies are known not to be negative by: none of them may be.
    pub nonnegative: SmallVec<[u32; 2]>,
    /// What a copy moves.
    pub copied: Option<TensorMapBox>,
}

impl TensorMapPlan {
    /// What its copies do.
    pub fn access(&self) -> TensorAccess {
        let is_written = self.copied.as_ref().is_some_and(|copied| copied.is_written);
        TensorAccess { base: self.base, is_written }
    }

    /// Whether a mask bounds the axis whose elements are next to each other.
    pub fn has_bounded_rows(&self) -> bool {
        let unbounded = LaunchInteger::constant(UNBOUNDED);
        self.contiguous_axis().is_some_and(|axis| self.extents[axis] != unbounded)
    }

    /// The numbers of the arguments that it is made of.
    pub fn arguments(&self) -> impl Iterator<Item = u32> {
        let numbers = self.extents.iter().chain(&self.strides).chain([&self.offset]);
        let products = numbers.flat_map(|number| number.0.iter());
        products.flat_map(|product| product.arguments.iter().copied()).chain([self.base])
    }

    /// The axis whose elements are next to each other.
    pub fn contiguous_axis(&self) -> Option<usize> {
        self.strides.iter().position(|stride| *stride == LaunchInteger::constant(1))
    }

    /// The same tensor for a tile whose axes are these of the tile: the last axes of the tensor.
    pub fn transposed(&self, axes: &[usize]) -> Option<Self> {
        let own = self.strides.len().checked_sub(axes.len())?;
        let order = || (0..own).chain(axes.iter().map(|axis| own + axis));
        Some(Self {
            extents: order().map(|axis| self.extents[axis].clone()).collect(),
            strides: order().map(|axis| self.strides[axis].clone()).collect(),
            ..self.clone()
        })
    }

    /// Reads what stands behind `T0 = `.
    pub fn parse(text: &str) -> Option<Self> {
        let (element, rest) = text.split_once(" at p")?;
        let (place, rest) = rest.split_once(", extents [")?;
        let (base, offset) = place.split_once(" + ")?;
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

    /// Whether there are so many extents as strides and as the box has, and one axis is contiguous.
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
        let swizzle: u32 = swizzle.parse().ok()?;
        let modes = [SwizzleMode::None, SwizzleMode::Bytes32, SwizzleMode::Bytes64, SwizzleMode::Bytes128];
        Some(Self {
            extents: extents.split(", ").map(|extent| extent.parse().ok()).collect::<Option<_>>()?,
            swizzle: modes.into_iter().find(|mode| mode.row_bytes().unwrap_or(0) == swizzle)?,
            is_written,
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
            Some(TensorMapBox { extents, swizzle, is_written }) => {
                let written = if *is_written { ", written" } else { "" };
                write!(f, "{extents:?}, swizzle {}{written}", swizzle.row_bytes().unwrap_or(0))
            }
        }
    }
}
