//! Encodes tensor maps, the 128-byte objects that describe a tensor to tensor copies.
//!
//! NVIDIA does not document the encoding of its driver, so the simulator has its own,
//! [`TensorMap::encode`]. It accepts and rejects the arguments of `cuTensorMapEncodeTiled`.

use std::fmt;
use std::ops::Range;

pub use pixels::PixelBox;

use crate::tensor::Swizzle;

mod pixels;

/// The size of an encoded map in bytes.
pub const TENSOR_MAP_BYTES: usize = 128;
/// The maximum number of dimensions.
pub const MAX_RANK: usize = 5;
/// The first bytes of an encoded map.
const MAGIC: [u8; 4] = *b"TWTM";

/// The element type of a tensor. Reductions and the fill depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TensorDataType {
    /// Unsigned 8 bits.
    U8,
    /// Unsigned 16 bits.
    U16,
    /// Unsigned 32 bits.
    U32,
    /// Signed 32 bits.
    S32,
    /// Unsigned 64 bits.
    U64,
    /// Signed 64 bits.
    S64,
    /// binary16.
    F16,
    /// binary32.
    F32,
    /// binary64.
    F64,
    /// bfloat16.
    Bf16,
    /// binary32, denormals flushed to zero.
    F32Ftz,
    /// TensorFloat-32.
    Tf32,
    /// TensorFloat-32, denormals flushed to zero.
    Tf32Ftz,
}

impl TensorDataType {
    /// All types, in the order of their codes in `tensormap.replace`.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::S32,
        Self::U64,
        Self::S64,
        Self::F16,
        Self::F32,
        Self::F32Ftz,
        Self::F64,
        Self::Bf16,
        Self::Tf32,
        Self::Tf32Ftz,
    ];

    /// Returns the bytes of an element.
    pub fn bytes(self) -> u32 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::S32 | Self::F32 | Self::F32Ftz | Self::Tf32 | Self::Tf32Ftz => 4,
            Self::U64 | Self::S64 | Self::F64 => 8,
        }
    }

    /// Returns the bits of a NaN, for floating-point types.
    fn nan(self) -> Option<u64> {
        match self {
            Self::F16 | Self::Bf16 => Some(0x7fff),
            Self::F32 | Self::F32Ftz | Self::Tf32 | Self::Tf32Ftz => Some(0x7fff_ffff),
            Self::F64 => Some(0x7fff_ffff_ffff_ffff),
            Self::U8 | Self::U16 | Self::U32 | Self::S32 | Self::U64 | Self::S64 => None,
        }
    }
}

/// The value that a tensor copy reads for elements outside of the tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OutOfBoundsFill {
    /// Zeros.
    Zero,
    /// NaN, for floating-point types.
    Nan,
}

/// A tensor in global memory and the box of one copy. Dimension 0 is the contiguous one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// The element type.
    pub data_type: TensorDataType,
    /// The address of the first element, a multiple of 16.
    pub address: u64,
    /// The extents in elements, 1 to 5 dimensions.
    pub extents: Vec<u64>,
    /// The strides in bytes of dimensions 1 and up, multiples of 16.
    pub strides: Vec<u64>,
    /// The extents of the box, 1 to 256 each.
    pub box_extents: Vec<u32>,
    /// The element step of each dimension, 1 to 8. A copy ignores the step of dimension 0 and moves
    /// every element along this dimension.
    pub element_strides: Vec<u32>,
    /// The swizzle of the box in shared memory.
    pub swizzle: Swizzle,
    /// The value of elements outside of the tensor.
    pub fill: OutOfBoundsFill,
    /// The pixels that an im2col copy moves. The box then has one element along each dimension
    /// except the first one.
    pub pixels: Option<PixelBox>,
}

/// The reason why a tensor map is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMapError(String);

impl fmt::Display for TensorMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tensor map: {}", self.0)
    }
}

impl std::error::Error for TensorMapError {}

/// A field of an encoded map, named as in `tensormap.replace`. Dimensions count from 0; `Stride(0)`
/// is the stride of dimension 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// The address of the tensor.
    Address,
    /// The number of dimensions minus 1.
    Rank,
    /// The extent of the box.
    BoxExtent(usize),
    /// The extent of the tensor.
    Extent(usize),
    /// The stride in bytes.
    Stride(usize),
    /// The step along a dimension.
    ElementStride(usize),
    /// The element type, by its index in [`TensorDataType::ALL`].
    ElementType,
    /// The interleaving: 0, which is none, is the only supported value.
    Interleave,
    /// The number of pixels of an im2col copy; 0 for copies of boxes.
    Pixels,
    /// The offset of the lower corner of an im2col copy along an axis of its bounding box.
    LowerCorner(usize),
    /// The offset of the upper corner.
    UpperCorner(usize),
    /// The swizzle: 0 is none; 1, 2 and 3 have lines of 32, 64 and 128 bytes.
    Swizzle,
    /// The fill: 0 is zero, 1 is NaN.
    Fill,
}

impl Field {
    /// Returns the offset and the length of the field in the object.
    fn place(self) -> (usize, usize) {
        let dimension = |dimension: usize, offset: usize| 16 + dimension * 16 + offset;
        match self {
            Self::ElementType => (4, 1),
            Self::Rank => (5, 1),
            Self::Swizzle => (6, 1),
            Self::Fill => (7, 1),
            Self::Address => (8, 8),
            Self::Extent(number) => (dimension(number, 0), 4),
            Self::BoxExtent(number) => (dimension(number, 4), 2),
            Self::ElementStride(number) => (dimension(number, 6), 2),
            Self::Stride(number) => (dimension(number, 8), 8),
            Self::Interleave => (dimension(MAX_RANK, 0), 1),
            Self::Pixels => (dimension(MAX_RANK, 2), 2),
            Self::LowerCorner(axis) => (dimension(MAX_RANK, 4 + 2 * axis), 2),
            Self::UpperCorner(axis) => (dimension(MAX_RANK, 10 + 2 * axis), 2),
        }
    }

    /// Returns the writes that set the field: an offset and bytes each. One of them writes the
    /// magic bytes by which [`TensorMap::decode`] recognizes a map.
    pub fn patches(self, value: u64) -> [(usize, Vec<u8>); 2] {
        let (at, len) = self.place();
        [(0, MAGIC.to_vec()), (at, value.to_le_bytes()[..len].to_vec())]
    }
}

/// A contiguous run of a box along dimension 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoxRow {
    /// The offset in bytes of the row in the dense box, without the swizzle.
    pub offset: u32,
    /// The address of the first element of the row, even outside of the tensor.
    pub address: u64,
    /// The bytes of the row that are inside of the tensor.
    pub inside: Range<u32>,
}

impl TensorMap {
    /// Encodes the object that a tensor copy reads.
    ///
    /// # Errors
    /// If `cuTensorMapEncodeTiled` would reject the map.
    pub fn encode(&self) -> Result<[u8; TENSOR_MAP_BYTES], TensorMapError> {
        self.check()?;
        let mut bytes = [0; TENSOR_MAP_BYTES];
        let mut put = |field: Field, value: u64| {
            for (at, patch) in field.patches(value) {
                bytes[at..at + patch.len()].copy_from_slice(&patch);
            }
        };
        let data_type = TensorDataType::ALL.iter().position(|&ty| ty == self.data_type);
        put(Field::ElementType, data_type.expect("ALL has every type") as u64);
        put(Field::Rank, self.rank() as u64 - 1);
        put(Field::Swizzle, self.swizzle as u64);
        put(Field::Fill, self.fill as u64);
        put(Field::Address, self.address);
        for dimension in 0..self.rank() {
            put(Field::Extent(dimension), self.extents[dimension]);
            put(Field::BoxExtent(dimension), self.box_extents[dimension].into());
            put(Field::ElementStride(dimension), self.element_strides[dimension].into());
        }
        for (dimension, &stride) in self.strides.iter().enumerate() {
            put(Field::Stride(dimension), stride);
        }
        if let Some(pixels) = &self.pixels {
            put(Field::Pixels, pixels.pixels.into());
            for (axis, (lower, upper)) in pixels.lower.iter().zip(&pixels.upper).enumerate() {
                put(Field::LowerCorner(axis), *lower as u64);
                put(Field::UpperCorner(axis), *upper as u64);
            }
        }
        Ok(bytes)
    }

    /// Decodes the object that a tensor copy reads.
    ///
    /// # Errors
    /// If neither [`Self::encode`] nor `tensormap.replace` wrote the bytes. Also if a field has an
    /// unknown value, or if [`Self::encode`] would reject the map.
    pub fn decode(bytes: &[u8; TENSOR_MAP_BYTES]) -> Result<Self, TensorMapError> {
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(TensorMapError("the simulator has not encoded these bytes".into()));
        }
        let number = |field: Field| {
            let (at, len) = field.place();
            let mut word = [0; 8];
            word[..len].copy_from_slice(&bytes[at..at + len]);
            u64::from_le_bytes(word)
        };
        let choice = |field: Field, name: &str, count: usize| {
            let index = number(field) as usize;
            let error = || TensorMapError(format!("{name} {index}: it has to be below {count}"));
            (index < count).then_some(index).ok_or_else(error)
        };
        let swizzles = [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];
        let rank = choice(Field::Rank, "rank minus 1 of", MAX_RANK)? + 1;
        choice(Field::Interleave, "interleaved layout", 1)?;
        let corner = |field: fn(usize) -> Field| {
            (0..rank.saturating_sub(2)).map(|axis| i32::from(number(field(axis)) as i16)).collect()
        };
        let pixels = number(Field::Pixels) as u32;
        let pixels = (pixels > 0).then(|| PixelBox {
            lower: corner(Field::LowerCorner),
            upper: corner(Field::UpperCorner),
            pixels,
        });
        let map = Self {
            data_type: TensorDataType::ALL
                [choice(Field::ElementType, "element type", TensorDataType::ALL.len())?],
            address: number(Field::Address),
            // 2^32, the greatest extent, is encoded as 0.
            extents: (0..rank)
                .map(|dimension| u64::from(number(Field::Extent(dimension)).wrapping_sub(1) as u32) + 1)
                .collect(),
            strides: (1..rank).map(|dimension| number(Field::Stride(dimension - 1))).collect(),
            box_extents: (0..rank).map(|dimension| number(Field::BoxExtent(dimension)) as u32).collect(),
            element_strides: (0..rank)
                .map(|dimension| number(Field::ElementStride(dimension)) as u32)
                .collect(),
            swizzle: swizzles[choice(Field::Swizzle, "swizzle mode", swizzles.len())?],
            fill: [OutOfBoundsFill::Zero, OutOfBoundsFill::Nan][choice(Field::Fill, "fill mode", 2)?],
            pixels,
        };
        map.check()?;
        Ok(map)
    }

    fn check(&self) -> Result<(), TensorMapError> {
        let refuse = |text: String| Err(TensorMapError(text));
        let rank = self.extents.len();
        if !(1..=MAX_RANK).contains(&rank) {
            return refuse(format!("{rank} dimensions: a tensor map has 1 to {MAX_RANK}"));
        }
        let lengths = [self.strides.len() + 1, self.box_extents.len(), self.element_strides.len()];
        if lengths != [rank; 3] {
            return refuse(format!("the strides, box or element strides do not have {rank} dimensions"));
        }
        if !self.address.is_multiple_of(16) {
            return refuse(format!("the address {:#x} is not a multiple of 16", self.address));
        }
        for (dimension, &extent) in self.extents.iter().enumerate() {
            if !(1..=1 << 32).contains(&extent) {
                return refuse(format!("extent {extent} of dimension {dimension}: it has to be 1 to 2^32"));
            }
            let (box_extent, step) = (self.box_extents[dimension], self.element_strides[dimension]);
            if !(1..=256).contains(&box_extent) {
                return refuse(format!(
                    "box extent {box_extent} of dimension {dimension}: it has to be 1 to 256"
                ));
            }
            if !(1..=8).contains(&step) {
                return refuse(format!(
                    "element stride {step} of dimension {dimension}: it has to be 1 to 8"
                ));
            }
        }
        for &stride in &self.strides {
            if !stride.is_multiple_of(16) || stride >= 1 << 40 {
                return refuse(format!(
                    "a stride of {stride} bytes: it has to be a multiple of 16 below 2^40"
                ));
            }
        }
        if let Some(pixels) = &self.pixels {
            pixels.check(self)?;
        }
        let row = self.row_bytes();
        if !row.is_multiple_of(16) {
            return refuse(format!("a row of the box has {row} bytes: it has to be a multiple of 16"));
        }
        if self.swizzle != Swizzle::None && row > self.swizzle.line_bytes() {
            return refuse(format!(
                "a row of the box has {row} bytes: a swizzle of {} bytes allows at most that many",
                self.swizzle.line_bytes()
            ));
        }
        if self.fill == OutOfBoundsFill::Nan && self.data_type.nan().is_none() {
            return refuse(format!("{:?} has no NaN to fill with", self.data_type));
        }
        Ok(())
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.extents.len()
    }

    /// Returns the bytes of a row of the box.
    pub fn row_bytes(&self) -> u32 {
        self.box_extents[0] * self.data_type.bytes()
    }

    /// Returns the number of elements that a copy moves along a dimension.
    fn taken(&self, dimension: usize) -> u32 {
        if dimension == 0 {
            return self.box_extents[0];
        }
        self.box_extents[dimension].div_ceil(self.element_strides[dimension])
    }

    /// Returns the bytes of the box in shared memory. A copy counts all of them, even outside of
    /// the tensor.
    pub fn box_bytes(&self) -> u32 {
        let rows = match &self.pixels {
            Some(pixels) => pixels.pixels,
            None => (1..self.rank()).map(|dimension| self.taken(dimension)).product(),
        };
        rows * self.row_bytes()
    }

    /// Returns the bytes that a copy stores for a row outside of the tensor.
    pub fn fill_row(&self) -> Vec<u8> {
        let element = match self.fill {
            OutOfBoundsFill::Zero => 0,
            OutOfBoundsFill::Nan => self.data_type.nan().unwrap_or(0),
        };
        let width = self.data_type.bytes() as usize;
        element.to_le_bytes()[..width].repeat(self.box_extents[0] as usize)
    }

    /// Returns the rows of the box at these coordinates, in the order of shared memory.
    pub fn rows<'m>(&'m self, coordinates: &'m [i32]) -> impl Iterator<Item = BoxRow> + 'm {
        let (row_bytes, count) = (self.row_bytes(), self.box_bytes() / self.row_bytes());
        (0..count).map(move |row| {
            let mut rest = row;
            let mut place: Vec<i64> = coordinates.iter().map(|coordinate| i64::from(*coordinate)).collect();
            for (dimension, index) in place.iter_mut().enumerate().skip(1) {
                let taken = self.taken(dimension);
                *index += i64::from(rest % taken) * i64::from(self.element_strides[dimension]);
                rest /= taken;
            }
            BoxRow { offset: row * row_bytes, ..self.row_at(&place) }
        })
    }

    fn row_at(&self, place: &[i64]) -> BoxRow {
        let width = u64::from(self.data_type.bytes());
        let start = place[0];
        let clip = |element: i64| element.clamp(0, i64::from(self.box_extents[0])) as u32 * width as u32;
        let whole = clip(-start)..clip(self.extents[0] as i64 - start);
        let mut address = self.address.wrapping_add_signed(start * width as i64);
        let mut is_inside = true;
        for (dimension, &index) in place.iter().enumerate().skip(1) {
            is_inside &= (0..self.extents[dimension] as i64).contains(&index);
            address = address.wrapping_add_signed(index.wrapping_mul(self.strides[dimension - 1] as i64));
        }
        let inside = if is_inside && whole.start < whole.end { whole } else { 0..0 };
        BoxRow { offset: 0, address, inside }
    }
}

#[cfg(test)]
mod tests;
