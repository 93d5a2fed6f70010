//! The layouts of a module, each stored once. Types name layouts by id; equal layouts have equal
//! ids.

use cranelift_entity::{PrimaryMap, entity_impl};
use rustc_hash::FxHashMap;
use tilewright_layout::Layout;

/// The id of a layout, in text `L4`.
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
    /// Returns the id of a layout, and adds a new layout.
    pub fn add(&mut self, layout: Layout) -> LayoutId {
        if let Some(id) = self.ids.get(&layout) {
            return *id;
        }
        let id = self.table.push(layout.clone());
        self.ids.insert(layout, id);
        id
    }

    /// Returns the layout with an id.
    ///
    /// # Panics
    /// If no layout has the id.
    pub fn get(&self, id: LayoutId) -> &Layout {
        &self.table[id]
    }

    /// Returns whether a layout has this id.
    pub fn contains(&self, id: LayoutId) -> bool {
        self.table.is_valid(id)
    }

    /// Returns every layout with its id.
    pub fn iter(&self) -> impl Iterator<Item = (LayoutId, &Layout)> {
        self.table.iter()
    }
}
