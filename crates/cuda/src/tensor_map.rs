//! Encodes tensor maps, which describe tensors for the tensor memory accelerator (`sm_90` and
//! newer). For a map that breaks a rule, the driver only returns "invalid argument". This module
//! therefore checks the rules itself, and its errors name the broken rule. The rules are in the
//! driver's manual, at `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`.

use std::fmt;

use crate::calls::{TensorMapBlock, TensorMapCall};
use crate::{Context, Error};

macro_rules! numbered {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        #[repr(u32)]
        pub enum $name { $($(#[$variant_doc])* $variant = $number,)* }

        impl $name {
            /// Returns the variant whose value in the driver's header is `number`.
            pub fn from_number(number: u32) -> Option<Self> {
                [$(Self::$variant),*].into_iter().find(|value| *value as u32 == number)
            }
        }
    )*};
}

numbered! {
    /// The type of a tensor's elements.
    TensorMapElement {
        /// 8-bit integers and 8-bit floating-point formats.
        U8 = 0,
        /// 16-bit integers.
        U16 = 1,
        /// 32-bit integers.
        U32 = 2,
        /// 32-bit signed integers.
        I32 = 3,
        /// 64-bit integers.
        U64 = 4,
        /// 64-bit signed integers.
        I64 = 5,
        /// binary16
        F16 = 6,
        /// binary32
        #[default]
        F32 = 7,
        /// binary64
        F64 = 8,
        /// bfloat16
        BF16 = 9,
        /// binary32 whose subnormals become 0.
        F32Ftz = 10,
        /// binary32 that is rounded to tf32.
        TF32 = 11,
        /// tf32 whose subnormals become 0.
        TF32Ftz = 12,
    }
    /// The interleaving of channels in memory.
    TensorMapInterleave {
        /// No interleaving.
        #[default]
        None = 0,
        /// Interleaving in groups of 16 bytes.
        Bytes16 = 1,
        /// Interleaving in groups of 32 bytes.
        Bytes32 = 2,
    }
    /// The swizzle in shared memory. A swizzle permutes the 16-byte chunks of a row within a span.
    TensorMapSwizzle {
        /// No swizzle.
        #[default]
        None = 0,
        /// A span of 32 bytes.
        Bytes32 = 1,
        /// A span of 64 bytes.
        Bytes64 = 2,
        /// A span of 128 bytes.
        Bytes128 = 3,
    }
    /// The granularity at which the L2 cache is filled.
    TensorMapPromotion {
        /// The granularity of the access.
        None = 0,
        /// 64 bytes.
        Bytes64 = 1,
        /// 128 bytes.
        #[default]
        Bytes128 = 2,
        /// 256 bytes.
        Bytes256 = 3,
    }
    /// The value of elements outside of the tensor.
    TensorMapFill {
        /// Zeros.
        #[default]
        Zero = 0,
        /// A NaN that fused multiply-adds treat as zero; only for floating-point elements.
        Nan = 1,
    }
}

impl TensorMapElement {
    /// Returns the size of an element in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::F32Ftz | Self::TF32 | Self::TF32Ftz => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    fn is_float(self) -> bool {
        !matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::I32 | Self::U64 | Self::I64)
    }
}

impl TensorMapSwizzle {
    /// Returns the size of the span in bytes. A row of the block must fit into the span. Returns
    /// `None` without a swizzle.
    fn span(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }
}

/// A tensor in global memory, and the block of the tensor that one copy moves. Axis 0 is the
/// contiguous axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TensorMapSource<'a> {
    /// The type of the elements.
    pub element: TensorMapElement,
    /// The address of the first element.
    pub address: u64,
    /// The number of elements along each axis. A tensor has 1 to 5 axes.
    pub shape: &'a [u64],
    /// The distance in bytes between neighboring elements along each axis except axis 0.
    pub strides: &'a [u64],
    /// The number of elements of the block along each axis.
    pub block: &'a [u32],
    /// The distance in elements between copied elements along each axis. Empty if every element is
    /// copied.
    pub steps: &'a [u32],
    /// The interleaving of channels.
    pub interleave: TensorMapInterleave,
    /// The swizzle of the block in shared memory.
    pub swizzle: TensorMapSwizzle,
    /// The granularity at which the L2 cache is filled.
    pub promotion: TensorMapPromotion,
    /// The value of elements outside of the tensor.
    pub fill: TensorMapFill,
}

/// The elements that one tensor copy with an im2col map moves: some channels of each pixel. The
/// pixels lie in a bounding box. The box covers all axes except the channels (the first axis) and
/// the images (the last axis).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TensorMapWindow<'a> {
    /// The offset of the box's lower corner from the first element of the axis, for each axis of
    /// the box.
    pub lower: &'a [i32],
    /// The offset of the box's upper corner from the last element of the axis, for each axis of the
    /// box.
    pub upper: &'a [i32],
    /// The number of channels of a pixel that a copy moves: 1 to 256.
    pub channels: u32,
    /// The number of pixels that a copy moves: 1 to 1024.
    pub pixels: u32,
}

/// The rule that a tensor map breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TensorMapRule {
    /// A tensor has 1 to 5 axes. With interleaving or in an im2col map, it has 3 to 5 axes.
    Rank {
        /// The number of axes.
        found: usize,
        /// The minimum number of axes.
        least: usize,
    },
    /// A list has the length that the number of axes requires.
    Length {
        /// The name of the list.
        list: &'static str,
        /// The length of the list.
        found: usize,
        /// The required length.
        expected: usize,
    },
    /// The address is a multiple of 16. With interleaving by 32 bytes, the address is a multiple of
    /// 32.
    Address {
        /// The address.
        found: u64,
        /// The required divisor.
        multiple: u64,
    },
    /// An axis has 1 to 2^32 elements.
    Shape {
        /// The axis.
        axis: usize,
        /// The number of elements along the axis.
        found: u64,
    },
    /// A stride is less than 2^40 and a multiple of 16 bytes. With interleaving by 32 bytes, the
    /// stride is a multiple of 32 bytes.
    Stride {
        /// The axis.
        axis: usize,
        /// The stride in bytes.
        found: u64,
        /// The required divisor.
        multiple: u64,
    },
    /// A block has 1 to 256 elements along each axis.
    Block {
        /// The axis.
        axis: usize,
        /// The number of elements of the block along the axis.
        found: u32,
    },
    /// A row of a block without interleaving is a multiple of 16 bytes.
    Row {
        /// The number of bytes of the row.
        found: u32,
    },
    /// A row of a block without interleaving fits into the span of its swizzle.
    SwizzledRow {
        /// The number of bytes of the row.
        found: u32,
        /// The span of the swizzle in bytes.
        span: u32,
    },
    /// Interleaving by 32 bytes requires the swizzle of 32 bytes.
    InterleavedSwizzle,
    /// A step is from 1 to 8.
    Step {
        /// The axis.
        axis: usize,
        /// The step.
        found: u32,
    },
    /// Integer elements cannot be filled with NaN.
    Fill,
    /// The offset of a corner of an im2col window is a signed number. The number has 16 bits if the
    /// window slides over one axis, 8 bits for two axes, and 5 bits for three axes.
    Corner {
        /// The axis.
        axis: usize,
        /// The offset.
        found: i32,
        /// The exclusive upper bound of the offset. The offset is at least `-limit`.
        limit: i32,
    },
    /// An im2col tensor map copies 1 to 256 channels.
    Channels {
        /// The requested number.
        found: u32,
    },
    /// An im2col tensor map copies 1 to 1024 pixels.
    Pixels {
        /// The requested number.
        found: u32,
    },
}

impl fmt::Display for TensorMapRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Rank { found, least } => {
                write!(f, "the tensor has {found} axes, and {least} to 5 are allowed")
            }
            Self::Length { list, found, expected } => {
                write!(f, "the number of {list} is {found}, and the tensor's axes require {expected}")
            }
            Self::Address { found, multiple } => {
                write!(f, "the address {found:#x} is not a multiple of {multiple}")
            }
            Self::Shape { axis, found } => {
                write!(f, "axis {axis} has {found} elements, and 1 to 2^32 are allowed")
            }
            Self::Stride { axis, found, multiple } => write!(
                f,
                "the stride of axis {axis} is {found} bytes, and it has to be a multiple of {multiple} below 2^40"
            ),
            Self::Block { axis, found } => {
                write!(f, "the block has {found} elements along axis {axis}, and 1 to 256 are allowed")
            }
            Self::Row { found } => {
                write!(f, "a row of the block has {found} bytes, and it has to be a multiple of 16")
            }
            Self::SwizzledRow { found, span } => {
                write!(f, "a row of a copy has {found} bytes, and its swizzle allows at most {span}")
            }
            Self::InterleavedSwizzle => f.write_str("interleaving by 32 bytes needs the swizzle of 32 bytes"),
            Self::Step { axis, found } => {
                write!(f, "the step along axis {axis} is {found}, and 1 to 8 are allowed")
            }
            Self::Fill => f.write_str("elements that are integers cannot be filled with NaN"),
            Self::Corner { axis, found, limit } => write!(
                f,
                "the window's corner is at {found} on axis {axis}, and -{limit} to {} are allowed",
                limit - 1
            ),
            Self::Channels { found } => {
                write!(f, "a copy has {found} channels of a pixel, and 1 to 256 are allowed")
            }
            Self::Pixels { found } => write!(f, "a copy has {found} pixels, and 1 to 1024 are allowed"),
        }
    }
}

impl TensorMapSource<'_> {
    /// Returns an error for the first rule that a tiled map breaks.
    fn check(&self) -> Result<(), TensorMapRule> {
        let least = if self.is_interleaved() { 3 } else { 1 };
        self.check_tensor(least, self.shape.len())?;
        let row = self.block[0] * self.element.bytes();
        if !self.is_interleaved() && !row.is_multiple_of(16) {
            return Err(TensorMapRule::Row { found: row });
        }
        self.check_row(row)
    }

    /// Returns an error for the first rule that an im2col map breaks.
    fn check_window(&self, window: &TensorMapWindow<'_>) -> Result<(), TensorMapRule> {
        self.check_tensor(3, 0)?;
        let axes = self.shape.len() - 2;
        // A signed offset has 16 bits for one axis, 8 bits for two axes, 5 bits for three axes.
        let limit = 1 << ([16, 8, 5][axes - 1] - 1);
        let corners =
            [("offsets of the lower corner", window.lower), ("offsets of the upper corner", window.upper)];
        for (list, corner) in corners {
            if corner.len() != axes {
                return Err(TensorMapRule::Length { list, found: corner.len(), expected: axes });
            }
            for (axis, &found) in (1..).zip(corner) {
                if !(-limit..limit).contains(&found) {
                    return Err(TensorMapRule::Corner { axis, found, limit });
                }
            }
        }
        if !(1..=256).contains(&window.channels) {
            return Err(TensorMapRule::Channels { found: window.channels });
        }
        if !(1..=1024).contains(&window.pixels) {
            return Err(TensorMapRule::Pixels { found: window.pixels });
        }
        self.check_row(window.channels * self.element.bytes())
    }

    fn is_interleaved(&self) -> bool {
        self.interleave != TensorMapInterleave::None
    }

    /// Checks the rules for the tensor. The tensor must have at least `least` axes. The block must
    /// have `extents` extents; `extents` is 0 for an im2col map.
    fn check_tensor(&self, least: usize, extents: usize) -> Result<(), TensorMapRule> {
        let rank = self.shape.len();
        if !(least..=5).contains(&rank) {
            return Err(TensorMapRule::Rank { found: rank, least });
        }
        let steps = if self.steps.is_empty() { rank } else { self.steps.len() };
        for (list, found, expected) in [
            ("strides", self.strides.len(), rank - 1),
            ("extents of the block", self.block.len(), extents),
            ("steps", steps, rank),
        ] {
            if found != expected {
                return Err(TensorMapRule::Length { list, found, expected });
            }
        }
        let by_32 = self.interleave == TensorMapInterleave::Bytes32;
        let multiple = if by_32 { 32 } else { 16 };
        if !self.address.is_multiple_of(multiple) {
            return Err(TensorMapRule::Address { found: self.address, multiple });
        }
        self.check_axes(multiple)
    }

    /// Checks the rules for the swizzle, the interleaving and the fill. `row` is the number of
    /// bytes that a copy moves along axis 0.
    fn check_row(&self, row: u32) -> Result<(), TensorMapRule> {
        if let Some(span) = self.swizzle.span()
            && !self.is_interleaved()
            && row > span
        {
            return Err(TensorMapRule::SwizzledRow { found: row, span });
        }
        if self.interleave == TensorMapInterleave::Bytes32 && self.swizzle != TensorMapSwizzle::Bytes32 {
            return Err(TensorMapRule::InterleavedSwizzle);
        }
        if self.fill == TensorMapFill::Nan && !self.element.is_float() {
            return Err(TensorMapRule::Fill);
        }
        Ok(())
    }

    fn check_axes(&self, multiple: u64) -> Result<(), TensorMapRule> {
        for (axis, &found) in self.shape.iter().enumerate() {
            if !(1..=1 << 32).contains(&found) {
                return Err(TensorMapRule::Shape { axis, found });
            }
        }
        for (axis, &found) in (1..).zip(self.strides) {
            if !found.is_multiple_of(multiple) || found >= 1 << 40 {
                return Err(TensorMapRule::Stride { axis, found, multiple });
            }
        }
        for (axis, &found) in self.block.iter().enumerate() {
            if !(1..=256).contains(&found) {
                return Err(TensorMapRule::Block { axis, found });
            }
        }
        for (axis, &found) in self.steps.iter().enumerate() {
            if !(1..=8).contains(&found) {
                return Err(TensorMapRule::Step { axis, found });
            }
        }
        Ok(())
    }
}

/// A tensor map. The hardware defines the format of its 128 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TensorMap([u64; 16]);

impl TensorMap {
    /// The alignment in bytes of a tensor map's address. It applies in global memory and among the
    /// parameters of a kernel. The kernel's PTX declares this alignment.
    pub const ALIGNMENT: usize = 64;

    /// Encodes a tensor map with the driver of a context.
    ///
    /// # Errors
    /// - [`Error::TensorMap`] with the broken rule.
    /// - [`Error::NotInThisDriver`] if the driver is older than CUDA 12.0.
    pub fn encode(context: Context, source: &TensorMapSource<'_>) -> Result<Self, Error> {
        source.check().map_err(Error::TensorMap)?;
        let mut block = [1; 5];
        block[..source.block.len()].copy_from_slice(source.block);
        Self::call(context, source, TensorMapBlock::Tiled(block))
    }

    /// Encodes an im2col tensor map. A copy through such a map moves a window of a convolution's
    /// input. The block of `source` must be empty. Axis 0 is the channels. The next one to three
    /// axes are the axes that the window slides over. The last axis is the images.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode).
    pub fn encode_im2col(
        context: Context,
        source: &TensorMapSource<'_>,
        window: &TensorMapWindow<'_>,
    ) -> Result<Self, Error> {
        source.check_window(window).map_err(Error::TensorMap)?;
        let (mut lower, mut upper) = ([0; 3], [0; 3]);
        lower[..window.lower.len()].copy_from_slice(window.lower);
        upper[..window.upper.len()].copy_from_slice(window.upper);
        let (channels, pixels) = (window.channels, window.pixels);
        Self::call(context, source, TensorMapBlock::Im2col { lower, upper, channels, pixels })
    }

    fn call(context: Context, source: &TensorMapSource<'_>, block: TensorMapBlock) -> Result<Self, Error> {
        let mut call = TensorMapCall {
            element: source.element as u32,
            rank: source.shape.len() as u32,
            address: source.address,
            shape: [1; 5],
            strides: [0; 5],
            block,
            steps: [1; 5],
            interleave: source.interleave as u32,
            swizzle: source.swizzle as u32,
            promotion: source.promotion as u32,
            fill: source.fill as u32,
        };
        call.shape[..source.shape.len()].copy_from_slice(source.shape);
        call.strides[..source.strides.len()].copy_from_slice(source.strides);
        call.steps[..source.steps.len()].copy_from_slice(source.steps);
        let _entered = context.enter()?;
        context.driver().encode_tensor_map(&call).map(Self)
    }

    /// Returns the bytes of the map.
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: [u64; 3] = [64, 128, 3];
    const STRIDES: [u64; 2] = [128, 16384];

    fn source() -> TensorMapSource<'static> {
        TensorMapSource {
            element: TensorMapElement::F16,
            address: 0x1000,
            shape: &SHAPE,
            strides: &STRIDES,
            block: &[64, 32, 1],
            swizzle: TensorMapSwizzle::Bytes128,
            ..TensorMapSource::default()
        }
    }

    fn check(change: impl FnOnce(&mut TensorMapSource<'static>), expect: Result<(), TensorMapRule>) {
        let mut source = source();
        change(&mut source);
        assert_eq!(source.check(), expect, "{source:?}");
    }

    #[test]
    fn each_rule_has_its_edges() {
        use TensorMapRule as Rule;
        let (mul_32, by_32) = (TensorMapInterleave::Bytes32, TensorMapSwizzle::Bytes32);
        check(|_| {}, Ok(()));
        check(|s| s.shape = &[], Err(Rule::Rank { found: 0, least: 1 }));
        check(|s| s.shape = &[1; 6], Err(Rule::Rank { found: 6, least: 1 }));
        check(|s| (s.shape, s.interleave) = (&[1, 1], mul_32), Err(Rule::Rank { found: 2, least: 3 }));
        check(|s| s.strides = &[128], Err(Rule::Length { list: "strides", found: 1, expected: 2 }));
        check(|s| s.steps = &[1], Err(Rule::Length { list: "steps", found: 1, expected: 3 }));
        check(|s| s.address = 0x1008, Err(Rule::Address { found: 0x1008, multiple: 16 }));
        check(|s| s.address = 0x1010, Ok(()));
        check(
            |s| (s.address, s.interleave) = (0x1010, mul_32),
            Err(Rule::Address { found: 0x1010, multiple: 32 }),
        );
        check(|s| s.shape = &[0, 1, 1], Err(Rule::Shape { axis: 0, found: 0 }));
        check(|s| s.shape = &[1 << 32, 1, 1], Ok(()));
        check(|s| s.shape = &[1, (1 << 32) + 1, 1], Err(Rule::Shape { axis: 1, found: (1 << 32) + 1 }));
        check(|s| s.strides = &[128, 24], Err(Rule::Stride { axis: 2, found: 24, multiple: 16 }));
        check(|s| s.strides = &[1 << 40, 16], Err(Rule::Stride { axis: 1, found: 1 << 40, multiple: 16 }));
        check(|s| s.strides = &[(1 << 40) - 16, 0], Ok(()));
        check(|s| s.block = &[64, 256, 1], Ok(()));
        check(|s| s.block = &[64, 257, 1], Err(Rule::Block { axis: 1, found: 257 }));
        check(|s| s.block = &[64, 32, 0], Err(Rule::Block { axis: 2, found: 0 }));
        check(|s| s.block = &[4, 32, 1], Err(Rule::Row { found: 8 }));
        check(|s| s.block = &[72, 32, 1], Err(Rule::SwizzledRow { found: 144, span: 128 }));
        check(|s| s.swizzle = by_32, Err(Rule::SwizzledRow { found: 128, span: 32 }));
        check(|s| (s.interleave, s.swizzle) = (mul_32, by_32), Ok(()));
        check(|s| s.interleave = mul_32, Err(Rule::InterleavedSwizzle));
        check(|s| s.steps = &[1, 8, 1], Ok(()));
        check(|s| s.steps = &[1, 9, 1], Err(Rule::Step { axis: 1, found: 9 }));
        check(|s| (s.element, s.fill) = (TensorMapElement::U16, TensorMapFill::Nan), Err(Rule::Fill));
        check(|s| s.fill = TensorMapFill::Nan, Ok(()));
    }

    fn check_window(change: impl FnOnce(&mut TensorMapWindow<'static>), expect: Result<(), TensorMapRule>) {
        let tensor =
            TensorMapSource { shape: &[64, 30, 20, 8], strides: &[128, 3840, 76800], block: &[], ..source() };
        let mut window = TensorMapWindow { lower: &[-1, -1], upper: &[-1, -1], channels: 64, pixels: 128 };
        change(&mut window);
        assert_eq!(tensor.check_window(&window), expect, "{window:?}");
    }

    #[test]
    fn each_rule_of_windows_has_its_edges() {
        use TensorMapRule as Rule;
        check_window(|_| {}, Ok(()));
        check_window(|w| w.lower = &[-128, 127], Ok(()));
        check_window(|w| w.lower = &[-129, 0], Err(Rule::Corner { axis: 1, found: -129, limit: 128 }));
        check_window(|w| w.upper = &[0, 128], Err(Rule::Corner { axis: 2, found: 128, limit: 128 }));
        let list = "offsets of the upper corner";
        check_window(|w| w.upper = &[0], Err(Rule::Length { list, found: 1, expected: 2 }));
        check_window(|w| w.channels = 0, Err(Rule::Channels { found: 0 }));
        check_window(|w| w.channels = 257, Err(Rule::Channels { found: 257 }));
        check_window(|w| w.channels = 65, Err(Rule::SwizzledRow { found: 130, span: 128 }));
        check_window(|w| w.pixels = 1024, Ok(()));
        check_window(|w| w.pixels = 1025, Err(Rule::Pixels { found: 1025 }));
        let flat = TensorMapSource { shape: &[64, 8], strides: &[128], block: &[], ..source() };
        let window = TensorMapWindow { lower: &[], upper: &[], channels: 64, pixels: 128 };
        assert_eq!(flat.check_window(&window), Err(Rule::Rank { found: 2, least: 3 }));
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!(TensorMapElement::from_number(9), Some(TensorMapElement::BF16));
        assert_eq!(TensorMapElement::from_number(13), None);
        assert_eq!(TensorMapSwizzle::from_number(3), Some(TensorMapSwizzle::Bytes128));
    }
}
