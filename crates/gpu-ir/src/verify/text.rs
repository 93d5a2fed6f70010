//! Names of values in messages: those of the printed function. The printer changes a name that a
//! part of a tuple already has.

use std::fmt;

use rustc_hash::FxHashMap;
use tilewright_ir::{Block, Value};

use crate::analysis::slots::SlotAnalysis;

/// The name of a value. Displaying it walks the whole function.
#[derive(Clone, Copy)]
pub struct Text<'n> {
    analysis: &'n SlotAnalysis<'n>,
    value: Value,
}

impl SlotAnalysis<'_> {
    /// Returns the name of a value for a message.
    pub fn text(&self, value: Value) -> Text<'_> {
        Text { analysis: self, value }
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

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.analysis.function;
        let mut used: FxHashMap<&str, u32> = FxHashMap::default();
        let mut found = None;
        let mut define = |defined: Value| {
            let name = function.values[defined].name.as_deref().unwrap_or("");
            let number = used.entry(name).or_insert(0);
            if defined == self.value {
                found = Some((name, *number));
            }
            *number += 1;
        };
        function.blocks[function.entry].parameters.iter().for_each(|value| define(*value));
        self.analysis.define(function.entry, &mut define);
        match found {
            None => write!(f, "{}", self.value),
            Some(("", number)) => write!(f, "%{number}"),
            Some((name, 0)) => write!(f, "%{name}"),
            Some((name, number)) => write!(f, "%{name}.{number}"),
        }
    }
}
