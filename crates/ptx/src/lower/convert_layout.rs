//! Conversions of layouts within warps, by renaming registers or shuffling lanes.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tilewright_ir::{Element, Inst, Value};
use tilewright_layout::{Select, ShufflePlan, shuffle_plan};

use super::builder::{Scalar, Width};
use super::memory::Words;
use super::{Lowering, memory_bits, width_of};
use crate::isa::ShuffleMode;

impl Lowering<'_> {
    pub(super) fn lower_convert_layout(&mut self, inst: Inst, tile: Value) {
        let result = self.kernel.insts[inst].results[0];
        let (from, to) = (self.layout(tile), self.layout(result));
        let own = self.get(tile);
        let scalars: Vec<Scalar> = if let Some(registers) = to.registers_from(from) {
            registers.iter().map(|&register| own[register as usize]).collect()
        } else {
            let plan = shuffle_plan(from, to).expect("only shared memory crosses warps");
            self.shuffled(self.element(tile), &plan, &own)
        };
        self.set(result, scalars);
    }

    /// Emits the shuffles of a plan, and returns the registers of the result. Narrow elements from
    /// one lane share a word.
    fn shuffled(&mut self, element: Element, plan: &ShufflePlan, own: &[Scalar]) -> Vec<Scalar> {
        let together = plan.elements_per_word(memory_bits(element)) as usize;
        let width = if together == 1 { width_of(element) } else { Width::B32 };
        let given = self.given(element, plan, together, own);
        let is_butterfly = plan.is_butterfly();
        let images = Self::thread_images(&plan.source_lane);
        let mut received = Vec::with_capacity(given.len());
        for (rounds, word) in plan.rounds.chunks(together).zip(given) {
            let constant = rounds[0].lane;
            if is_butterfly && constant == 0 {
                received.push(word);
                continue;
            }
            let (mode, lane) = if is_butterfly {
                (ShuffleMode::Butterfly, Scalar::constant(constant.into()))
            } else {
                let lane = self.linear(&images);
                (ShuffleMode::Index, self.displaced(lane, &images, constant))
            };
            received.push(self.shuffle_from(width, word, mode, lane));
        }
        let takes_words = plan.takes_words(together as u32);
        if takes_words {
            let shift = together.trailing_zeros();
            let of_words = |select: &Select| Select { registers: select.registers >> shift, ..*select };
            let take: SmallVec<[Select; 4]> = plan.take.iter().map(of_words).collect();
            received = self.selected(width, &take, &received);
        }
        let mut taken: Vec<Scalar> =
            received.into_iter().flat_map(|word| self.apart(element, together, word)).collect();
        if !takes_words {
            taken = self.selected(width_of(element), &plan.take, &taken);
        }
        let results: Vec<Scalar> = plan.results.iter().map(|&round| taken[round as usize]).collect();
        if memory_bits(element) == 8 && results.len().is_multiple_of(4) {
            // Pack and unpack the results, so that a user of the same bytes reads the builder's
            // word.
            return results
                .chunks(4)
                .flat_map(|bytes| {
                    let word = self.together(element, bytes);
                    self.apart(element, 4, word)
                })
                .collect();
        }
        results
    }

    /// Returns the words that a thread sends. A word has the elements of `together` consecutive
    /// rounds.
    fn given(
        &mut self,
        element: Element,
        plan: &ShufflePlan,
        together: usize,
        own: &[Scalar],
    ) -> Vec<Scalar> {
        let width = if together == 1 { width_of(element) } else { Width::B32 };
        let first = plan.rounds[0].register;
        let members: SmallVec<[u32; 4]> =
            plan.rounds[..together].iter().map(|round| round.register ^ first).collect();
        let wanted: SmallVec<[u32; 16]> =
            plan.rounds.iter().step_by(together).map(|round| round.register).collect();
        // A word is named by its first element's register. `chosen_from[0]` has the sent words, the
        // results of the last select. Each following list has the words from which one select
        // chooses.
        let mut chosen_from = vec![wanted.clone()];
        for select in plan.give.iter().rev() {
            let next = &chosen_from[chosen_from.len() - 1];
            let others = next.iter().map(|register| register ^ select.registers);
            let mut all: SmallVec<[u32; 16]> = next.iter().copied().chain(others).collect();
            all.sort_unstable();
            all.dedup();
            chosen_from.push(all);
        }
        let mut words: BTreeMap<u32, Scalar> = BTreeMap::new();
        for register in chosen_from.pop().expect("it has the wanted ones") {
            let elements: SmallVec<[Scalar; 4]> =
                members.iter().map(|member| own[(register ^ member) as usize]).collect();
            words.insert(register, self.together(element, &elements));
        }
        for select in &plan.give {
            let condition = self.parity(select.lanes, select.warps);
            let registers = chosen_from.pop().expect("there is one more than selects");
            let choose = |&register: &u32| {
                let other = words[&(register ^ select.registers)];
                (register, self.builder.select(width, condition, other, words[&register]))
            };
            words = registers.iter().map(choose).collect();
        }
        wanted.iter().map(|register| words[register]).collect()
    }

    /// Packs elements into one word. Returns a single element unchanged.
    fn together(&mut self, element: Element, elements: &[Scalar]) -> Scalar {
        if let [single] = elements {
            return *single;
        }
        let forms: SmallVec<[Scalar; 4]> =
            elements.iter().map(|&scalar| self.memory_form(element, scalar)).collect();
        self.builder.pack(Words::new(element, forms.len()), &forms)
    }

    /// Returns the elements of a word.
    fn apart(&mut self, element: Element, count: usize, word: Scalar) -> SmallVec<[Scalar; 16]> {
        if count == 1 {
            return std::iter::once(word).collect();
        }
        let elements = self.builder.unpack(Words::new(element, count), word);
        elements.into_iter().map(|scalar| self.register_form(element, scalar)).collect()
    }

    /// Applies selects, whose conditions depend on the thread.
    fn selected(&mut self, width: Width, selects: &[Select], registers: &[Scalar]) -> Vec<Scalar> {
        let mut current = registers.to_vec();
        for select in selects {
            let condition = self.parity(select.lanes, select.warps);
            let swapped = |register: usize| current[register ^ select.registers as usize];
            current = (0..current.len())
                .map(|register| self.builder.select(width, condition, swapped(register), current[register]))
                .collect();
        }
        current
    }
}
