//! Defines dense tiles: reference-counted buffers from a free list of the thread.

use std::cell::RefCell;
use std::rc::Rc;

use crate::run::kernels::buffer::{ALIGNMENT, Buffer};

/// The elements of a tile in row-major order. Only a sole owner may write.
#[derive(Clone, Default)]
pub(crate) struct Tile(Option<Rc<Buffer>>);

/// The maximum number of bytes in the free lists of a thread.
const MAX_POOLED_BYTES: usize = 256 << 20;

/// The number of size classes. The buffers of class `c` have `ALIGNMENT << c` bytes.
const CLASSES: usize = 24;

struct Pool {
    free: [Vec<Rc<Buffer>>; CLASSES],
    bytes: usize,
}

thread_local! {
    static POOL: RefCell<Pool> =
        const { RefCell::new(Pool { free: [const { Vec::new() }; CLASSES], bytes: 0 }) };
}

/// Returns the size class of a buffer, or `None` if the buffer is too large to be pooled.
fn class(bytes: usize) -> Option<usize> {
    let class = bytes.div_ceil(ALIGNMENT).next_power_of_two().trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

impl Tile {
    /// Creates a tile with unspecified content.
    pub(crate) fn new(bytes: usize) -> Self {
        let Some(class) = class(bytes) else { return Self(Some(Rc::new(Buffer::new(bytes)))) };
        let pooled = POOL.try_with(|pool| {
            let pool = &mut *pool.borrow_mut();
            let buffer = pool.free[class].pop()?;
            pool.bytes -= ALIGNMENT << class;
            Some(buffer)
        });
        let mut buffer = match pooled {
            Ok(Some(buffer)) => buffer,
            _ => Rc::new(Buffer::new(ALIGNMENT << class)),
        };
        if let Some(buffer) = Rc::get_mut(&mut buffer) {
            buffer.resize(bytes);
        }
        Self(Some(buffer))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |buffer| buffer.bytes())
    }

    /// Returns the length in bytes of the varying prefix. The rest consists of copies of one
    /// number.
    pub(crate) fn varying(&self) -> usize {
        self.0.as_ref().map_or(0, |buffer| buffer.varying())
    }

    /// Sets the length in bytes of the varying prefix. The tile must have one owner.
    pub(crate) fn set_varying(&mut self, bytes: usize) {
        if let Some(buffer) = self.0.as_mut().and_then(Rc::get_mut) {
            buffer.set_varying(bytes);
        }
    }

    /// Returns the bytes of the elements for writing, if the tile has one owner.
    pub(crate) fn unique(&mut self) -> Option<&mut [u8]> {
        Rc::get_mut(self.0.as_mut()?).map(Buffer::bytes_mut)
    }

    /// Returns the bytes for writing. Panics if the tile has several owners.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.unique().expect("only the sole owner of a tile writes to it")
    }

    pub(crate) fn is_unique(&self) -> bool {
        self.0.as_ref().is_some_and(|buffer| Rc::strong_count(buffer) == 1)
    }
}

impl Drop for Tile {
    fn drop(&mut self) {
        let Some(mut buffer) = self.0.take() else { return };
        let Some(unshared) = Rc::get_mut(&mut buffer) else { return };
        let Some(class) = class(unshared.bytes().len()) else { return };
        // While the thread ends, the free list may no longer exist.
        let _ = POOL.try_with(|pool| {
            let pool = &mut *pool.borrow_mut();
            if pool.bytes + (ALIGNMENT << class) <= MAX_POOLED_BYTES {
                pool.bytes += ALIGNMENT << class;
                pool.free[class].push(buffer);
            }
        });
    }
}

impl std::fmt::Debug for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tile({} bytes)", self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_recycled_and_shared_ones_are_not_written() {
        let mut tile = Tile::new(1000);
        tile.bytes_mut().fill(7);
        let address = tile.bytes().as_ptr();
        let copy = tile.clone();
        assert!(tile.unique().is_none() && !copy.is_unique());
        drop(copy);
        assert!(tile.unique().is_some());
        drop(tile);
        let other = Tile::new(900);
        assert_eq!(other.bytes().as_ptr(), address, "1000 and 900 bytes are of one class");
        assert_eq!(other.bytes().len(), 900);
    }
}
