//! Computes the uses of each value of a function.

use tilewright_base::entity::SecondaryMap;

use crate::dialect::Dialect;
use crate::function::{Function, Inst, Value};

/// A use of a value: an operand of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Use {
    /// The instruction; a value that a block yields is an operand of its terminator.
    pub inst: Inst,
    /// The index of the operand.
    pub operand: usize,
}

/// The uses of each value, at the time of the computation.
#[derive(Clone, Debug)]
pub struct Uses {
    all: Vec<Use>,
    /// The range of each value's uses in `all`.
    ranges: SecondaryMap<Value, (u32, u32)>,
}

impl Uses {
    /// Computes the uses by all instructions that are reachable from the entry of a function.
    pub fn new<D: Dialect>(function: &Function<D>) -> Self {
        let counts = UseCounts::new(function);
        let mut ranges: SecondaryMap<Value, (u32, u32)> = SecondaryMap::new();
        ranges.resize(function.values.len());
        let mut end = 0;
        for value in function.values.keys() {
            ranges[value] = (end, end);
            end += counts.of(value);
        }
        let mut all = vec![Use { inst: Inst::from_u32(0), operand: 0 }; end as usize];
        function.walk(function.entry, &mut |inst| {
            for (operand, value) in function.insts[inst].operands.iter().enumerate() {
                let (_, end) = &mut ranges[*value];
                all[*end as usize] = Use { inst, operand };
                *end += 1;
            }
        });
        Self { all, ranges }
    }

    /// Returns the uses of a value, outer instructions before inner instructions, in text order.
    pub fn of(&self, value: Value) -> &[Use] {
        let (start, end) = self.ranges[value];
        &self.all[start as usize..end as usize]
    }

    /// Returns the instructions that use a value, once for each use.
    pub fn users(&self, value: Value) -> impl Iterator<Item = Inst> + '_ {
        self.of(value).iter().map(|other| other.inst)
    }

    /// Returns the number of uses of a value.
    pub fn count(&self, value: Value) -> usize {
        self.of(value).len()
    }

    /// Returns the use of a value, if it is used exactly once.
    pub fn only(&self, value: Value) -> Option<Use> {
        match self.of(value) {
            &[only] => Some(only),
            _ => None,
        }
    }
}

/// The number of uses of each value, at the time of the computation. It is cheaper to compute than
/// [`Uses`].
#[derive(Clone, Debug)]
pub struct UseCounts {
    of: SecondaryMap<Value, u32>,
}

impl UseCounts {
    /// Counts the uses by all instructions that are reachable from the entry of a function.
    pub fn new<D: Dialect>(function: &Function<D>) -> Self {
        let mut of: SecondaryMap<Value, u32> = SecondaryMap::new();
        of.resize(function.values.len());
        function.walk(function.entry, &mut |inst| {
            for &operand in &function.insts[inst].operands {
                of[operand] += 1;
            }
        });
        Self { of }
    }

    /// Returns the number of uses of a value.
    pub fn of(&self, value: Value) -> u32 {
        self.of[value]
    }
}
