//! Types: tiles, buffers, rings, dots in flight, barriers, tensor memory.

use std::fmt;

use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Element, Shape};

use super::layouts::LayoutId;
use super::target::ACCESS_BYTES;
use super::tensor_memory::TensorMemory;

/// The type of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// A scalar, or a tile in registers: `fp32[128, 64]@L4`. Every thread holds a scalar.
    Registers {
        /// Element and shape.
        tile: ir::Type,
        /// The layout of a tile; a scalar has none.
        layout: Option<LayoutId>,
    },
    /// Shared memory for tiles of one shape, the slots: `buffer<3, fp16[128, 64]@L5>`.
    Buffer(Buffer),
    /// A ring of slots, which pass tiles between warps: `ring<3, fp16[128, 64]@L5>`.
    Ring(Buffer),
    /// A slot from `acquire` that is not published: `empty<fp16[128, 64]@L5>`. `publish` consumes
    /// it.
    Empty(Buffer),
    /// A slot from `take` that is not released: `full<fp16[128, 64]@L5>`. `release` consumes it.
    Full(Buffer),
    /// The accumulator of asynchronous dots in flight: `pending<fp32[128, 256]@L3>`. `wgmma_wait`
    /// consumes it.
    Pending {
        /// Element and shape.
        tile: ir::Type,
        /// The layout of the tile that `wgmma_wait` returns.
        layout: LayoutId,
    },
    /// `mbarrier`s of slots, at which threads and copies arrive: `mbarrier<3>`.
    Mbarrier {
        /// The number of barriers.
        slots: u32,
    },
    /// Tensor memory for tiles of one shape, the slots.
    TensorMemory(TensorMemory),
}

/// Shared memory for tiles.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// The number of tiles.
    pub slots: u32,
    /// The type of an element; `int1` takes a byte.
    pub element: Element,
    /// The extents of a tile.
    pub shape: Shape,
    /// The layout of a tile in memory: the element at each offset, with the swizzle.
    pub layout: LayoutId,
    /// The padding between elements.
    pub padding: Padding,
}

/// Padding in a buffer: ` + [32:4]` leaves 4 elements unused after each 32 elements. Only threads
/// access such a buffer.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Padding(pub SmallVec<[(u32, u32); 1]>);

impl Padding {
    /// Returns the position of an offset, in elements.
    pub fn position(&self, offset: u32) -> u32 {
        self.0.iter().fold(offset, |sum, (interval, padding)| sum + offset / interval * padding)
    }

    /// Returns the most elements that are contiguous and aligned to their size.
    pub fn max_vector(&self) -> u32 {
        self.0.iter().map(|(interval, padding)| *interval.min(padding)).min().unwrap_or(u32::MAX)
    }

    /// Returns whether a buffer has no padding.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    fn parse(text: &str) -> Option<Self> {
        let pairs = text.strip_prefix('[')?.strip_suffix(']')?.split(", ");
        let pair = |text: &str| {
            let (interval, padding) = text.split_once(':')?;
            let sizes: (u32, u32) = (interval.parse().ok()?, padding.parse().ok()?);
            (sizes.0.is_power_of_two() && sizes.1.is_power_of_two()).then_some(sizes)
        };
        pairs.map(pair).collect::<Option<_>>().map(Self)
    }
}

impl fmt::Display for Padding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return Ok(());
        }
        let pairs: Vec<String> =
            self.0.iter().map(|(interval, padding)| format!("{interval}:{padding}")).collect();
        write!(f, " + [{}]", pairs.join(", "))
    }
}

/// The most slots of a type. `mbarrier`s of 32768 slots exceed the shared memory of any GPU.
const MAX_SLOTS: u32 = 1 << 15;

impl Buffer {
    /// Returns the bytes of one slot.
    pub fn slot_bytes(&self) -> u32 {
        let bytes = (self.shape.elements() * self.element.bytes()) as u32;
        if self.padding.is_none() {
            return bytes;
        }
        let elements = self.padding.position(self.shape.elements() as u32);
        (elements * self.element.bytes() as u32).next_multiple_of(ACCESS_BYTES)
    }

    /// Returns the bytes of all slots, saturated at `u32::MAX`.
    pub fn bytes(&self) -> u32 {
        self.slots.saturating_mul(self.slot_bytes())
    }

    /// Returns the type of the tiles.
    pub fn tile(&self) -> ir::Type {
        ir::Type::new(self.element, self.shape.clone())
    }

    fn parse(text: &str) -> Option<Self> {
        let (slots, tile) = text.split_once(',')?;
        Self::of_slots(slots.trim().parse().ok()?, tile.trim())
    }

    fn of_slots(slots: u32, tile: &str) -> Option<Self> {
        let (tile, padding) = match tile.split_once(" + ") {
            Some((tile, padding)) => (tile, Padding::parse(padding)?),
            None => (tile, Padding::default()),
        };
        let (tile, layout) = parse_tile(tile)?;
        let buffer = Self { slots, element: tile.element, shape: tile.shape, layout: layout?, padding };
        ((1..=MAX_SLOTS).contains(&slots)).then_some(buffer)
    }
}

impl Type {
    /// Returns the type of a scalar.
    pub fn scalar(tile: ir::Type) -> Self {
        Self::Registers { tile, layout: None }
    }

    /// Returns the type of a tile in registers; the layout of a scalar is ignored.
    pub fn registers(tile: ir::Type, layout: Option<LayoutId>) -> Self {
        let layout = layout.filter(|_| !tile.is_scalar());
        Self::Registers { tile, layout }
    }

    /// Returns element and shape of a scalar or a tile in registers.
    pub fn as_registers(&self) -> Option<&ir::Type> {
        match self {
            Self::Registers { tile, .. } => Some(tile),
            Self::Buffer(_)
            | Self::Ring(_)
            | Self::Empty(_)
            | Self::Full(_)
            | Self::Pending { .. }
            | Self::Mbarrier { .. }
            | Self::TensorMemory(_) => None,
        }
    }

    /// Returns the tensor memory.
    pub fn as_tensor_memory(&self) -> Option<&TensorMemory> {
        match self {
            Self::TensorMemory(memory) => Some(memory),
            Self::Registers { .. }
            | Self::Buffer(_)
            | Self::Ring(_)
            | Self::Empty(_)
            | Self::Full(_)
            | Self::Pending { .. }
            | Self::Mbarrier { .. } => None,
        }
    }

    /// Returns the memory of a buffer, or of a slot of a ring.
    pub fn as_memory(&self) -> Option<&Buffer> {
        match self {
            Self::Buffer(buffer) | Self::Empty(buffer) | Self::Full(buffer) => Some(buffer),
            Self::Ring(_)
            | Self::Registers { .. }
            | Self::Pending { .. }
            | Self::Mbarrier { .. }
            | Self::TensorMemory(_) => None,
        }
    }

    /// Returns element and shape of the tile in registers or in memory.
    pub fn tile(&self) -> Option<ir::Type> {
        match self {
            Self::Registers { tile, .. } | Self::Pending { tile, .. } => Some(tile.clone()),
            Self::Buffer(buffer) | Self::Ring(buffer) | Self::Empty(buffer) | Self::Full(buffer) => {
                Some(buffer.tile())
            }
            Self::TensorMemory(memory) => Some(memory.tile()),
            Self::Mbarrier { .. } => None,
        }
    }

    /// Returns the layout that the type names.
    pub fn layout(&self) -> Option<LayoutId> {
        match self {
            Self::Registers { layout, .. } => *layout,
            Self::Pending { layout, .. } => Some(*layout),
            Self::Buffer(buffer) | Self::Ring(buffer) | Self::Empty(buffer) | Self::Full(buffer) => {
                Some(buffer.layout)
            }
            Self::Mbarrier { .. } | Self::TensorMemory(_) => None,
        }
    }

    /// Returns whether every path must consume a value of the type exactly once.
    pub fn is_linear(&self) -> bool {
        matches!(self, Self::Empty(_) | Self::Full(_) | Self::Pending { .. })
    }

    /// Reads a type.
    pub fn parse(text: &str) -> Option<Self> {
        let Some((kind, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) else {
            let (tile, layout) = parse_tile(text)?;
            return (tile.is_scalar() == layout.is_none()).then_some(Self::Registers { tile, layout });
        };
        match kind {
            "buffer" => Buffer::parse(inner).map(Self::Buffer),
            "ring" => Buffer::parse(inner).map(Self::Ring),
            "empty" => Buffer::of_slots(1, inner).map(Self::Empty),
            "full" => Buffer::of_slots(1, inner).map(Self::Full),
            "pending" => {
                let (tile, layout) = parse_tile(inner)?;
                Some(Self::Pending { tile, layout: layout? })
            }
            "tensor_memory" => TensorMemory::parse(inner).map(Self::TensorMemory),
            "mbarrier" => {
                let slots = inner.parse().ok().filter(|slots| (1..=MAX_SLOTS).contains(slots))?;
                Some(Self::Mbarrier { slots })
            }
            _ => None,
        }
    }
}

fn parse_tile(text: &str) -> Option<(ir::Type, Option<LayoutId>)> {
    let (tile, layout) = match text.rsplit_once("@L") {
        Some((tile, number)) => (tile, Some(LayoutId::from_u32(number.parse().ok()?))),
        None => (text, None),
    };
    Some((ir::Type::parse(tile)?, layout))
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = |buffer: &Buffer| format!("{}@{}{}", buffer.tile(), buffer.layout, buffer.padding);
        let slots = |buffer: &Buffer| format!("{}, {}", buffer.slots, slot(buffer));
        match self {
            Self::Registers { tile, layout: None } => write!(f, "{tile}"),
            Self::Registers { tile, layout: Some(layout) } => write!(f, "{tile}@{layout}"),
            Self::Buffer(buffer) => write!(f, "buffer<{}>", slots(buffer)),
            Self::Ring(buffer) => write!(f, "ring<{}>", slots(buffer)),
            Self::Empty(buffer) => write!(f, "empty<{}>", slot(buffer)),
            Self::Full(buffer) => write!(f, "full<{}>", slot(buffer)),
            Self::Pending { tile, layout } => write!(f, "pending<{tile}@{layout}>"),
            Self::Mbarrier { slots } => write!(f, "mbarrier<{slots}>"),
            Self::TensorMemory(memory) => write!(f, "{memory}"),
        }
    }
}
