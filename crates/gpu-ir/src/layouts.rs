//! The layouts of a module, each once: types name them by number, so that two are the same if their numbers are.

use cranelift_entity::{PrimaryMap, entity_impl};
use rustc_hash::FxHashMap;
use tilewright_layout::Layout;

/// The number of a layout, in text `L4`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayoutId(u32);
entity_impl!(LayoutId, "L");

/// The layouts of a module.
#[derive(Clone, Debug, Default)]
pub struct Layouts {
    table: PrimaryMap<LayoutId, Layout>,
    ids: FxHashMap<Layout, LayoutId>,
}

impl Layouts {
    /// The number of a layout.
    pub fn add(&mut self, layout: Layout) -> LayoutId {
        if let Some(id) = self.ids.get(&layout) {
            return *id;
        }
        let id = self.table.push(layout.clone());
        self.ids.insert(layout, id);
        id
    }

    /// The layout with a number.
    ///
    /// # Panics
    /// If there is none with it.
    pub fn get(&self, id: LayoutId) -> &Layout {
        &self.table[id]
    }

    /// Whether there is a layout with this number.
    pub fn contains(&self, id: LayoutId) -> bool {
        self.table.is_valid(id)
    }

    /// Every layout with its number.
    pub fn iter(&self) -> impl Iterator<Item = (LayoutId, &Layout)> {
        self.table.iter()
    }
}
