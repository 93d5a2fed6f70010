//! How messages call a value: as the text does.

use rustc_hash::FxHashMap;
use tilewright_ir::{Block, Value};

use super::slots::Names;

impl Names<'_> {
    /// What the text calls a value.
    pub fn text(&self, value: Value) -> String {
        let function = self.function;
        let mut used: FxHashMap<&str, u32> = FxHashMap::default();
        let mut found = None;
        let mut define = |defined: Value| {
            let name = function.values[defined].name.as_deref().unwrap_or("");
            let number = used.entry(name).or_insert(0);
            if defined == value {
                found = Some(match (name, *number) {
                    ("", number) => format!("%{number}"),
                    (name, 0) => format!("%{name}"),
                    (name, number) => format!("%{name}.{number}"),
                });
            }
            *number += 1;
        };
        function.blocks[function.entry].parameters.iter().for_each(|value| define(*value));
        self.define(function.entry, &mut define);
        found.unwrap_or_else(|| value.to_string())
    }

    fn define(&self, block: Block, each: &mut impl FnMut(Value)) {
        for inst in &self.function.blocks[block].insts {
            let data = &self.function.insts[*inst];
            data.results.iter().for_each(|value| each(*value));
            for region in &data.regions {
                self.function.blocks[*region].parameters.iter().for_each(|value| each(*value));
                self.define(*region, each);
            }
        }
    }
}
