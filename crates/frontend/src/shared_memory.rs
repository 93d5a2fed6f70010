//! Defines shared or tensor memory that a program allocates (Gluon). Such a value exists only in
//! the frontend. Lowering turns each access to it into an op `device`.

use std::sync::Arc;

use tilewright_ir::{Shape, SharedTiles, Type};

/// A part of a matrix whose elements are not contiguous in shared memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    /// The coordinates of the first element.
    pub start: [u32; 2],
    /// The extents.
    pub shape: Shape,
}

/// The compile-time properties of shared memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SharedForm {
    /// The tiles.
    pub tiles: SharedTiles,
    /// The number of tiles of an array, from which an index selects one; `None` for one tile.
    pub count: Option<u32>,
    /// True for the transpose of a matrix. Only `warpgroup_mma` reads a transpose.
    pub is_transposed: bool,
    /// The selected part of the tile. `None` selects the whole tile. The axes are the axes of the
    /// tile, not of its transpose.
    pub window: Option<Window>,
}

/// Returns tiles with the axes in another order.
///
/// # Errors
/// Returns the reason why the layout does not fit the tiles.
pub fn permuted_tiles(tiles: &SharedTiles, order: &[usize]) -> Result<SharedTiles, String> {
    let SharedTiles { slots, dtype, shape, layout } = tiles.clone();
    let linear = layout.linear(&shape, dtype.bits())?.transpose(order);
    let shape: Shape = linear.output().shape().iter().copied().collect();
    let layout = Arc::new(layout.transposed(order).with_linear(&linear, dtype.bits()));
    Ok(SharedTiles { slots, dtype, shape, layout })
}

/// Returns whether memory is tensor memory.
pub fn is_tensor_memory(tiles: &SharedTiles) -> bool {
    tiles.layout.is_tensor_memory()
}

impl SharedForm {
    /// Returns the tiles as the program sees them. The axes of a transpose are exchanged.
    ///
    /// # Errors
    /// Returns the reason why the layout does not fit the tiles.
    pub fn seen_tiles(&self) -> Result<SharedTiles, String> {
        if self.is_transposed { permuted_tiles(&self.tiles, &[1, 0]) } else { Ok(self.tiles.clone()) }
    }

    /// Returns the extents, with the number of tiles of an array first.
    pub fn shape(&self) -> Vec<u32> {
        let mut tile = self.window.as_ref().map_or(&self.tiles.shape, |window| &window.shape).to_vec();
        if self.is_transposed {
            tile.reverse();
        }
        self.count.into_iter().chain(tile).collect()
    }
}

/// Shared memory: one tile, or an array of tiles. `T` is the type of its run-time parts.
#[derive(Clone, Debug)]
pub struct SharedMemory<T> {
    /// The compile-time properties.
    pub form: Arc<SharedForm>,
    /// The allocation.
    pub memory: T,
    /// The index of the tile, or of the first tile of an array, in the allocation.
    pub slot: T,
}

impl<T> SharedMemory<T> {
    /// Returns a noun for messages.
    pub fn describe(&self) -> String {
        let SharedForm { tiles, count, window, .. } = &*self.form;
        let tile = Type::tile(tiles.dtype, tiles.shape.clone());
        let space = if is_tensor_memory(tiles) { "tensor" } else { "shared" };
        if let Some(Window { start, shape }) = window {
            let part = Type::tile(tiles.dtype, shape.clone());
            return format!(
                "shared memory for the part {part} from {start:?} on of a tile {tile} with {}",
                tiles.layout
            );
        }
        match count {
            Some(count) => format!("{space} memory for {count} tiles {tile} with {}", tiles.layout),
            None => format!("{space} memory for a tile {tile} with {}", tiles.layout),
        }
    }

    /// Maps each part, and keeps the form.
    pub fn map<U>(&self, mut each: impl FnMut(&T) -> U) -> SharedMemory<U> {
        SharedMemory { form: self.form.clone(), memory: each(&self.memory), slot: each(&self.slot) }
    }

    /// Maps each part up to the first error, and keeps the form.
    pub fn try_map<U, E>(&self, mut each: impl FnMut(&T) -> Result<U, E>) -> Result<SharedMemory<U>, E> {
        Ok(SharedMemory { form: self.form.clone(), memory: each(&self.memory)?, slot: each(&self.slot)? })
    }
}
