//! Emits the loop of a nest over the iterations of a kernel's loop: see
//! [`iterations`](super::super::iterations).

use tilewright_native::ir::Value;

use super::super::iterations::Iterations;
use super::{Emitter, Repr};
use crate::program::Slot;
use crate::program::nest::Word;

impl Emitter<'_> {
    /// Emits a loop over consecutive iterations. Registers carry the scalars. Each carried tile has
    /// two buffers: an iteration reads one buffer and writes the other, then the loop exchanges
    /// their addresses.
    pub(super) fn iterations(&mut self, iterations: &Iterations) {
        let &Iterations { counter, step, ref scalars, ref tiles } = iterations;
        let mut first = Vec::new();
        for &[parameter, _] in scalars {
            let value = self.scalar_input(parameter);
            first.push(uniform(value));
        }
        for &[parameter, yielded] in tiles {
            first.extend([self.word(Word::Tile(parameter)), self.word(Word::Output(yielded))]);
        }
        let (zero, count, start) = (self.int(0), self.word(Word::Count), self.scalar_input(counter));
        let results: Vec<usize> = scalars
            .iter()
            .map(|&[_, yielded]| {
                self.words.push(Word::Result(yielded));
                self.words.len() - 1
            })
            .collect();
        let repeated = self.build(|builder| builder.begin_loop([zero, count], &first));
        let (index, values) = (repeated.index, repeated.values.clone());
        let distance = self.mul(index, self.int(step));
        let counted = self.add(uniform(start), distance);
        let counted = self.extended(self.ty(counter).number, counted);
        self.parameters.insert(counter, Repr::Integer(counted));
        for (&[parameter, _], &value) in scalars.iter().zip(&values) {
            let value = self.scalar(parameter, value);
            self.parameters.insert(parameter, value);
        }
        let addresses = values[scalars.len()..].chunks_exact(2);
        for (&[parameter, yielded], addresses) in tiles.iter().zip(addresses.clone()) {
            self.carried.push((Word::Tile(parameter), addresses[0]));
            self.carried.push((Word::Output(yielded), addresses[1]));
        }
        self.nest();
        let mut next: Vec<Value> =
            scalars.iter().map(|&[_, yielded]| uniform(self.values[&yielded])).collect();
        next.extend(addresses.flat_map(|pair| [pair[1], pair[0]]));
        let (_, last) = self.build(|builder| builder.end_loop(repeated, 1, &next));
        self.write_scalars(scalars, &results, &last);
        self.returns(count);
        self.begin_bail();
        self.write_scalars(scalars, &results, &values);
        self.returns(index);
    }

    /// Writes the carried scalars to the argument.
    fn write_scalars(&self, scalars: &[[Slot; 2]], words: &[usize], values: &[Value]) {
        for ((&[_, yielded], &word), &value) in scalars.iter().zip(words).zip(values) {
            self.write_result(word, yielded, self.scalar(yielded, value));
        }
    }

    fn scalar(&self, slot: Slot, value: Value) -> Repr {
        if self.ty(slot).dtype().is_float() { Repr::Float(value) } else { Repr::Integer(value) }
    }
}

fn uniform(value: Repr) -> Value {
    match value {
        Repr::Integer(value) | Repr::Float(value) => value,
        Repr::Affine { .. } | Repr::Range { .. } | Repr::Dense => unreachable!("a scalar is uniform"),
    }
}
