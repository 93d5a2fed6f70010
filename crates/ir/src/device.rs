//! Operations of a GPU that a program states itself (Gluon). They are shared and tensor
//! memory, asynchronous copies, `mbarrier`s, and instructions of the tensor cores.

use std::fmt;
use std::sync::Arc;

use tilewright_layout::{StatedBuffer, StatedLayout};

use crate::pixel_window::PixelWindow;
use crate::rule_input::{RuleError, RuleErrorKind, RuleInput};
use crate::scaled::ScaledFormat;
use crate::types::{Dtype, Shape, Type};

/// Tiles in shared memory or, by their layout, in tensor memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SharedTiles {
    /// The number of tiles.
    pub slots: u32,
    /// The type of an element.
    pub dtype: Dtype,
    /// The extents of a tile.
    pub shape: Shape,
    /// The layout of a tile.
    pub layout: Arc<StatedBuffer>,
}

macro_rules! device_functions {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal {$($field:ident: $ty:ty),*};)*) => {
        /// A function of the op `device`. The first operand of an access, `memory`, is the result
        /// of `allocate` or `view`. `slot` (int32) selects one of its tiles. If a `predicate`
        /// (int1) is false, the function has no effect.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum DeviceFn {
            $($(#[doc = $doc])* $variant {
                $(#[doc = concat!("The attribute `", stringify!($field), "`.")] $field: $ty,)*
            },)*
        }

        impl DeviceFn {
            /// Returns the name of the function.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $name,)* }
            }
        }

        impl fmt::Display for DeviceFn {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant { $($field),* } => {
                        f.write_str($name)?;
                        $(write!(f, "; {}", Field::print($field))?;)*
                    })*
                }
                Ok(())
            }
        }

        impl DeviceFn {
            /// Reads the text form.
            pub(crate) fn read(text: &str) -> Option<Self> {
                let mut fields = text.split("; ");
                let function = match fields.next()? {
                    $($name => Self::$variant { $($field: <$ty>::read(fields.next()?)?),* },)*
                    _ => return None,
                };
                fields.next().is_none().then_some(function)
            }
        }
    };
}

device_functions! {
    /// `() -> memory`: allocates shared or tensor memory until its last use. The result is int32.
    Allocate "allocate" {tiles: SharedTiles};
    /// `(memory) -> memory`: the bytes of an allocation as these tiles.
    View "view" {tiles: SharedTiles};
    /// `(memory)`: extends the lifetime of an allocation to this point.
    KeepAlive "keep_alive" {};
    /// `(memory, slot)`: loads a tile, which gets the layout.
    Load "load" {tiles: SharedTiles, layout: Arc<StatedLayout>};
    /// `(memory, slot, tile)`: stores a tile.
    Store "store" {tiles: SharedTiles};
    /// `(memory, slot, pointers)` or `(memory, slot, pointers, mask)`: starts copies from global
    /// memory by `cp.async`. Writes zeros where the mask is false. With `keeps_in_l1`, copies of 16
    /// bytes go through L1, too.
    CopyAsync "copy_async" {tiles: SharedTiles, keeps_in_l1: bool};
    /// `()`: makes a group of the copies since the last group.
    CommitGroup "commit_group" {};
    /// `()`: waits until at most `pending` groups are in flight.
    WaitGroup "wait_group" {pending: u32};
    /// `(memory, slot)`: initializes an `mbarrier` for phases of `arrivals` arrivals.
    MbarrierInit "mbarrier_init" {tiles: SharedTiles, arrivals: u32};
    /// `(memory, slot)`: ends the use of an `mbarrier`.
    MbarrierInvalidate "mbarrier_invalidate" {tiles: SharedTiles};
    /// `(memory, slot, predicate)`: arrives at an `mbarrier`, and adds `bytes` to the number of
    /// bytes for which the phase waits.
    MbarrierExpect "mbarrier_expect" {tiles: SharedTiles, bytes: u32};
    /// `(memory, slot, predicate)`: arrives `arrivals` times at an `mbarrier`.
    MbarrierArrive "mbarrier_arrive" {tiles: SharedTiles, arrivals: u32};
    /// `(memory, slot)`: arrives at an `mbarrier`, once for each thread. The arrival of a thread
    /// follows the completion of its copies (`copy_async`).
    ArriveCopies "arrive_copies" {tiles: SharedTiles};
    /// `(memory, slot)`: keeps the current phase of an `mbarrier` open until the copies of each
    /// thread are complete (`copy_async`).
    TrackCopies "track_copies" {tiles: SharedTiles};
    /// `(memory, slot, phase, predicate)`: waits for the end of the phase with this parity.
    MbarrierWait "mbarrier_wait" {tiles: SharedTiles};
    /// `(memory, slot, barriers, barrier, predicate, base, extents…, strides…, coordinates…)`:
    /// starts a copy of a box of a tensor. The copied bytes arrive at the `mbarrier` in slot
    /// `barrier` of the allocation `barriers`. The tensor has one extent and one coordinate for
    /// each axis of the tile. It has one stride for each axis but the last. Elements outside of the
    /// tensor are NaN with `fills_nan`, else zero.
    TensorLoad "tensor_load" {tiles: SharedTiles, barriers: SharedTiles, fills_nan: bool};
    /// `(memory, slot, base, extents…, strides…, coordinates…)`: starts a copy to a box of a
    /// tensor, and makes a group of the copy. The operands are as in `tensor_load`.
    TensorStore "tensor_store" {tiles: SharedTiles};
    /// `(memory, slot, barriers, barrier, predicate, blocks, base, extents…, strides…,
    /// coordinates…)`: starts a copy as `tensor_load` does, to several blocks of the cluster. The
    /// bits of the mask `blocks` (int32) are the ranks of these blocks. In a program that is not
    /// divided yet, the mask is 0. The copy is then to all blocks that have the same part of the
    /// tile. In a divided program, the mask 0 is for the own block. With `at_lead`, the bytes arrive
    /// at the `mbarrier` of the first block of the pair.
    MulticastLoad "multicast_load" {tiles: SharedTiles, barriers: SharedTiles, fills_nan: bool, at_lead: bool};
    /// `(memory, slot, barriers, barrier, predicate, blocks, base, extents…, strides…,
    /// coordinates…, offsets…)`: starts a copy of pixels of a tensor as `multicast_load` does. The
    /// mask is 0 for the own block. Each axis between the images and the channels has an offset, by
    /// which it moves the pixels. With `multicast`, the mask of a program that is not divided yet
    /// is as in `multicast_load`.
    WindowLoad "window_load" {tiles: SharedTiles, barriers: SharedTiles, window: PixelWindow, multicast: bool};
    /// `(memory, slot, predicate)`: arrives at the `mbarrier`s of blocks of the cluster, and adds
    /// `bytes` to the bytes for which their phases wait. The blocks whose rank has no bit outside
    /// of the mask `kept` arrive. Each arrives `arrivals` times at the `mbarrier` of each block
    /// whose rank has the same bits in the mask.
    ArriveFrom "arrive_from" {tiles: SharedTiles, arrivals: u32, bytes: u32, kept: u32};
    /// `(memory, slot, predicate, block)`: arrives `arrivals` times at the `mbarrier` of the block
    /// with the rank `block` (int32). Adds `bytes` to the bytes for which the phase of that
    /// `mbarrier` waits.
    RemoteArrive "remote_arrive" {tiles: SharedTiles, arrivals: u32, bytes: u32};
    /// `(memory, slot)`: loads a tile from several blocks of the cluster. Element `[i, …]` of the
    /// result is in the block whose rank has the bits of `i` at the bits set in `blocks`. The other
    /// bits of this rank are those of the own rank.
    GatherBlocks "gather_blocks" {tiles: SharedTiles, layout: Arc<StatedLayout>, blocks: u32};
    /// `()`: arrives at the barrier of the cluster.
    ClusterArrive "cluster_arrive" {};
    /// `()`: waits until all threads of the cluster have arrived at its barrier.
    ClusterWait "cluster_wait" {};
    /// `()`: waits for groups of copies to tensors. At most `pending` groups then still read shared
    /// memory or, with `complete`, still write the tensors.
    TensorStoreWait "tensor_store_wait" {pending: u32, complete: bool};
    /// `()`: orders earlier accesses of threads to shared memory before later accesses of the
    /// asynchronous proxy.
    FenceProxy "fence_proxy" {};
    /// `(a, b, acc)`: acc + a @ b by `mma.sync`.
    Mma "mma" {};
    /// `(a, b, acc)`: acc + a @ b by multiplications and additions of single elements.
    DotFma "dot_fma" {};
    /// `(acc)`: returns `acc` as an accumulator in flight, to which later `wgmma`s add.
    WgmmaInit "wgmma_init" {};
    /// `(acc, memory, slot, a)` or `(acc, memory, slot, memory, slot)`: starts acc + a @ b by
    /// `wgmma`. The first memory is that of B, the second that of A. The result is in flight. If
    /// `transposed_a` is true, A is the transpose of its tile in memory. `transposed_b` has the
    /// same meaning for B. A `window` that is not empty states the parts of the tiles in memory,
    /// after the transpose. Its numbers are the first row and column of A, those of B, and the
    /// extent along K.
    Wgmma "wgmma" {b: SharedTiles, transposed_b: bool, transposed_a: bool, max_imprecise_acc: u32, window: Vec<u32>};
    /// `(acc)`: the accumulator, after a wait until at most `pending` groups of dots are in flight.
    /// These dots may still add to the accumulator.
    WgmmaWait "wgmma_wait" {pending: u32};
    /// `(memory, slot)`: loads a tile from tensor memory, which gets the layout.
    TensorMemoryLoad "tmem_load" {tiles: SharedTiles, layout: Arc<StatedLayout>};
    /// `(memory, slot, tile, predicate)`: stores a tile to tensor memory.
    TensorMemoryStore "tmem_store" {tiles: SharedTiles};
    /// `(memory, slot, memory, slot, memory, slot, use_acc, predicate)`: starts acc + a @ b by
    /// `tcgen05.mma`, or a @ b if the int1 `use_acc` is false. The memories are those of A, B and the
    /// accumulator. If `transposed_a` is true, A is the transpose of its tile; likewise
    /// `transposed_b` for B. If the layout of the accumulator is that of a pair of blocks, the
    /// instruction also reads and writes the memory of the other block. Both blocks run the function.
    TensorDot "tcgen05_mma" {a: SharedTiles, b: SharedTiles, acc: SharedTiles, transposed_a: bool, transposed_b: bool};
    /// `(memory, slot, …, use_acc, predicate)`: starts a dot as `tcgen05_mma` does, by an instruction
    /// with scales. The memories are those of A, B, the accumulator, and the scales of A and of B.
    TensorDotScaled "tcgen05_mma_scaled" {a: SharedTiles, b: SharedTiles, acc: SharedTiles, a_scale: SharedTiles,
        b_scale: SharedTiles, a_format: ScaledFormat, b_format: ScaledFormat, transposed_a: bool, transposed_b: bool};
    /// `(memory, slot, memory, slot)`: starts a copy of a tile from shared memory, the first memory,
    /// to tensor memory.
    TensorCopy "tcgen05_copy" {source: SharedTiles, destination: SharedTiles};
    /// `(memory, slot, predicate)`: makes an `mbarrier` get an arrival when the dots (`tcgen05_mma`)
    /// and the copies (`tcgen05_copy`) are complete that have started. With `pair`, the `mbarrier`s
    /// of both blocks of the pair get an arrival.
    TensorCommit "tcgen05_commit" {tiles: SharedTiles, pair: bool};
    /// `(memory, slot, memory, slot, predicate)`: starts a request that takes over a program which
    /// has not begun (`clusterlaunchcontrol.try_cancel`). The response, 16 bytes, is written to the
    /// first memory, and arrives at an `mbarrier` of the second one. With `multicast`, each block of
    /// the cluster gets the response at its own `mbarrier`.
    ClcTryCancel "clc_try_cancel" {tiles: SharedTiles, barriers: SharedTiles, multicast: bool};
    /// `(memory, slot) -> int1, int32, int32, int32`: whether the response says that a program was
    /// taken over, and its indices. Without such a program, the indices are 0. `blocks` is the
    /// number of blocks of a program that is divided already, else 1.
    ClcLoadResult "clc_load_result" {tiles: SharedTiles, blocks: u32};
    /// `()`: waits for the workers that the last `start_workers` has started.
    JoinWorkers "join_workers" {};
}

/// An attribute of a [`DeviceFn`], with its text form.
trait Field: Sized {
    fn print(&self) -> String;
    fn read(text: &str) -> Option<Self>;
}

impl Field for u32 {
    fn print(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Field for Vec<u32> {
    fn print(&self) -> String {
        format!("{self:?}")
    }
    fn read(text: &str) -> Option<Self> {
        let items = text.strip_prefix('[')?.strip_suffix(']')?;
        items.split(", ").filter(|item| !item.is_empty()).map(|item| item.parse().ok()).collect()
    }
}

impl Field for bool {
    fn print(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Field for ScaledFormat {
    fn print(&self) -> String {
        self.name().to_owned()
    }
    fn read(text: &str) -> Option<Self> {
        Self::named(text)
    }
}

impl Field for Arc<StatedLayout> {
    fn print(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok().map(Self::new)
    }
}

impl Field for PixelWindow {
    fn print(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Field for SharedTiles {
    fn print(&self) -> String {
        let Self { slots, dtype, shape, layout } = self;
        format!("{slots} {dtype}{shape}<{layout}>")
    }
    fn read(text: &str) -> Option<Self> {
        let (slots, rest) = text.split_once(' ')?;
        let (tile, layout) = rest.strip_suffix('>')?.split_once('<')?;
        let tile = Type::parse(tile)?;
        Some(Self {
            slots: slots.parse().ok()?,
            dtype: tile.dtype()?,
            shape: tile.shape,
            layout: Arc::new(layout.parse().ok()?),
        })
    }
}

impl Type {
    /// Returns the type of an accumulator while dots add to it.
    #[must_use]
    pub fn in_flight(&self) -> Self {
        if let Some(StatedLayout::InFlight { .. }) = self.layout.as_deref() {
            return self.clone();
        }
        let accumulator = self.layout.clone();
        self.with_layout(accumulator.map(|accumulator| Arc::new(StatedLayout::InFlight { accumulator })))
    }
}

/// Returns the type of an accumulator in flight after the wait for its dots.
fn landed(ty: &Type) -> Type {
    match ty.layout.as_deref() {
        Some(StatedLayout::InFlight { accumulator }) => ty.with_layout(Some(accumulator.clone())),
        _ => ty.clone(),
    }
}

impl DeviceFn {
    /// Returns the kinds of the first operands: `memory`, `slot`, `predicate` …
    fn operand_kinds(&self) -> &'static [&'static str] {
        match self {
            Self::KeepAlive {} | Self::View { .. } => &["memory"],
            Self::Load { .. }
            | Self::TensorMemoryLoad { .. }
            | Self::GatherBlocks { .. }
            | Self::MbarrierInit { .. }
            | Self::MbarrierInvalidate { .. }
            | Self::ArriveCopies { .. }
            | Self::TrackCopies { .. }
            | Self::ClcLoadResult { .. } => &["memory", "slot"],
            Self::Store { .. } => &["memory", "slot", "tile"],
            Self::CopyAsync { .. } => &["memory", "slot", "tile", "tile"],
            Self::MbarrierExpect { .. }
            | Self::MbarrierArrive { .. }
            | Self::ArriveFrom { .. }
            | Self::TensorCommit { .. } => &["memory", "slot", "predicate"],
            Self::TensorMemoryStore { .. } => &["memory", "slot", "tile", "predicate"],
            Self::TensorDot { .. } => {
                &["memory", "slot", "memory", "slot", "memory", "slot", "predicate", "predicate"]
            }
            Self::TensorDotScaled { .. } => &[
                "memory",
                "slot",
                "memory",
                "slot",
                "memory",
                "slot",
                "memory",
                "slot",
                "memory",
                "slot",
                "predicate",
                "predicate",
            ],
            Self::TensorCopy { .. } => &["memory", "slot", "memory", "slot"],
            Self::RemoteArrive { .. } => &["memory", "slot", "predicate", "slot"],
            Self::ClcTryCancel { .. } => &["memory", "slot", "memory", "slot", "predicate"],
            Self::MulticastLoad { .. } | Self::WindowLoad { .. } => {
                &["memory", "slot", "memory", "slot", "predicate", "slot", "base"]
            }
            Self::MbarrierWait { .. } => &["memory", "slot", "phase", "predicate"],
            Self::TensorLoad { .. } => &["memory", "slot", "memory", "slot", "predicate", "base"],
            Self::TensorStore { .. } => &["memory", "slot", "base"],
            Self::Mma {} | Self::DotFma {} => &["tile", "tile", "tile"],
            Self::WgmmaInit {} | Self::WgmmaWait { .. } => &["tile"],
            Self::Wgmma { .. } => &["tile", "memory", "slot"],
            Self::Allocate { .. }
            | Self::CommitGroup {}
            | Self::WaitGroup { .. }
            | Self::TensorStoreWait { .. }
            | Self::FenceProxy {}
            | Self::ClusterArrive {}
            | Self::ClusterWait {}
            | Self::JoinWorkers {} => &[],
        }
    }

    /// Returns the indices of the operands that name an allocation.
    pub fn memory_operands(&self, count: usize) -> impl Iterator<Item = usize> {
        let of_a = (matches!(self, Self::Wgmma { .. }) && count == 5).then_some(3);
        let kinds = self.operand_kinds().iter().enumerate();
        kinds.filter(|(_, kind)| **kind == "memory").map(|(index, _)| index).chain(of_a)
    }
}

/// Returns the result types of the op `device`.
pub(crate) fn result_types(input: &RuleInput<'_>, function: &DeviceFn) -> Result<Vec<Type>, RuleError> {
    let kinds = function.operand_kinds();
    for (ty, kind) in input.operands.iter().zip(kinds) {
        let fits = match *kind {
            "memory" | "slot" | "phase" => *ty == Type::scalar(Dtype::I32),
            "predicate" => *ty == Type::scalar(Dtype::I1),
            "base" => ty.is_scalar() && ty.element.pointee().is_some(),
            "tile" => !ty.is_scalar(),
            _ => true,
        };
        if !fits {
            let message = format!("the {kind} of {} cannot be {ty}", function.name());
            return Err(RuleError::new(message, RuleErrorKind::Types));
        }
    }
    Ok(match function {
        DeviceFn::Load { tiles, layout } | DeviceFn::TensorMemoryLoad { tiles, layout } => {
            vec![Type::tile(tiles.dtype, tiles.shape.clone()).with_layout(Some(layout.clone()))]
        }
        DeviceFn::GatherBlocks { tiles, layout, blocks } => {
            let shape = [1 << blocks.count_ones()].into_iter().chain(tiles.shape.iter().copied());
            vec![Type::tile(tiles.dtype, shape.collect::<Shape>()).with_layout(Some(layout.clone()))]
        }
        DeviceFn::Allocate { .. } | DeviceFn::View { .. } => vec![Type::scalar(Dtype::I32)],
        DeviceFn::Mma {} | DeviceFn::DotFma {} => input.operands.get(2).cloned().into_iter().collect(),
        DeviceFn::Wgmma { .. } | DeviceFn::WgmmaInit {} => vec![input.operands[0].in_flight()],
        DeviceFn::WgmmaWait { .. } => vec![landed(&input.operands[0])],
        DeviceFn::ClcLoadResult { .. } => {
            [Dtype::I1, Dtype::I32, Dtype::I32, Dtype::I32].map(Type::scalar).to_vec()
        }
        DeviceFn::KeepAlive {}
        | DeviceFn::Store { .. }
        | DeviceFn::CopyAsync { .. }
        | DeviceFn::CommitGroup {}
        | DeviceFn::WaitGroup { .. }
        | DeviceFn::MbarrierInit { .. }
        | DeviceFn::MbarrierInvalidate { .. }
        | DeviceFn::MbarrierExpect { .. }
        | DeviceFn::MbarrierArrive { .. }
        | DeviceFn::MbarrierWait { .. }
        | DeviceFn::ArriveCopies { .. }
        | DeviceFn::TrackCopies { .. }
        | DeviceFn::TensorLoad { .. }
        | DeviceFn::MulticastLoad { .. }
        | DeviceFn::WindowLoad { .. }
        | DeviceFn::ArriveFrom { .. }
        | DeviceFn::RemoteArrive { .. }
        | DeviceFn::ClusterArrive {}
        | DeviceFn::ClusterWait {}
        | DeviceFn::TensorStore { .. }
        | DeviceFn::TensorStoreWait { .. }
        | DeviceFn::FenceProxy {}
        | DeviceFn::TensorMemoryStore { .. }
        | DeviceFn::TensorDot { .. }
        | DeviceFn::TensorDotScaled { .. }
        | DeviceFn::TensorCopy { .. }
        | DeviceFn::TensorCommit { .. }
        | DeviceFn::ClcTryCancel { .. }
        | DeviceFn::JoinWorkers {} => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use crate::{parse, print};

    const TEXT: &str = r#"kernel func0 @k(%x: *fp32) {
  %a = device {function = "allocate; 2 fp32[64]<SwizzledSharedLayout(1, 1, 1, [0])>"} : int32
  %0 = arange {start = 0, end = 64} : int32[64]
  %1 = set_layout %0 {layout = "BlockedLayout([1], [32], [2], [0])"} : int32[64]<BlockedLayout([1], [32], [2], [0])>
  %2 = splat %x {shape = [64]} : *fp32[64]
  %3 = set_layout %2 {layout = "BlockedLayout([1], [32], [2], [0])"} : *fp32[64]<BlockedLayout([1], [32], [2], [0])>
  %4 = ptr_add %3, %1 : *fp32[64]<BlockedLayout([1], [32], [2], [0])>
  %5 = constant {value = 1:int32} : int32
  device %a, %5, %4 {function = "copy_async; 2 fp32[64]<SwizzledSharedLayout(1, 1, 1, [0])>; false"}
  %6 = device %a {function = "view; 1 int32[8, 16]<SharedLinearLayout([[0, 1], [0, 2], [0, 4], [0, 8], [1, 0], [2, 0], [4, 0]])>"} : int32
  device {function = "commit_group"}
  device {function = "wait_group; 0"}
  %7 = device %a, %5 {function = "load; 2 fp32[64]<SwizzledSharedLayout(1, 1, 1, [0])>; BlockedLayout([1], [32], [2], [0])"} : fp32[64]<BlockedLayout([1], [32], [2], [0])>
  start_workers {warps = [1, 2], registers = []} () {
    device %a, %5, %7 {function = "store; 2 fp32[64]<SwizzledSharedLayout(1, 1, 1, [0])>"}
    yield_values
  } () {
    yield_values
  }
  device {function = "join_workers"}
  store %4, %7 {cache = "", eviction = ""}
  return_values
}
"#;

    #[test]
    fn text_is_read_back() {
        let module = parse(TEXT).unwrap();
        assert_eq!(print(&module, false), TEXT);
    }

    #[test]
    fn each_worker_has_a_number_of_warps() {
        let other = TEXT.replace("warps = [1, 2]", "warps = [1]");
        let error = parse(&other).unwrap_err().to_string();
        assert!(error.contains("start_workers has 2 regions, 1 counts of warps"), "{error}");
    }

    #[test]
    fn layouts_that_differ_are_refused() {
        let other = TEXT.replacen(
            "%1 = set_layout %0 {layout = \"BlockedLayout([1], [32], [2]",
            "%1 = set_layout %0 {layout = \"BlockedLayout([1], [32], [4]",
            1,
        );
        let other = other.replacen(
            "int32[64]<BlockedLayout([1], [32], [2]",
            "int32[64]<BlockedLayout([1], [32], [4]",
            1,
        );
        let error = parse(&other).unwrap_err().to_string();
        assert!(error.contains("the operands of ptr_add must have one layout"), "{error}");
    }
}
