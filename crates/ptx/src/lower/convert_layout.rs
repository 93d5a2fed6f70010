//! Conversions of layouts within warps: registers are renamed, or lanes shuffle.

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
            let plan = shuffle_plan(from, to).expect("what leaves its warp goes through shared memory");
            self.shuffled(self.element(tile), &plan, &own)
        };
        self.set(result, scalars);
    }

    /// The elements that other lanes of the warp have.
    fn shuffled(&mut self, element: Element, plan: &ShufflePlan, own: &[Scalar]) -> Vec<Scalar> {
        let give = self.selected(element, &plan.give, own);
        // Narrow elements that come from one lane travel in one word.
        let together = plan.rounds_per_lane.min(32 / memory_bits(element).min(32)) as usize;
        let is_butterfly = plan.is_butterfly();
        let images = Self::thread_images(&plan.source_lane);
        let mut received = Vec::with_capacity(plan.rounds.len());
        for rounds in plan.rounds.chunks(together) {
            let given: SmallVec<[Scalar; 16]> =
                rounds.iter().map(|round| give[round.register as usize]).collect();
            let constant = rounds[0].lane;
            if is_butterfly && constant == 0 {
                received.extend(given);
                continue;
            }
            let (mode, lane) = if is_butterfly {
                (ShuffleMode::Butterfly, Scalar::constant(constant.into()))
            } else {
                let lane = self.linear(&images);
                (ShuffleMode::Index, self.displaced(lane, &images, constant))
            };
            received.extend(self.shuffle_together(element, &given, mode, lane));
        }
        let taken = self.selected(element, &plan.take, &received);
        plan.results.iter().map(|&round| taken[round as usize]).collect()
    }

    /// Shuffles elements that go together.
    fn shuffle_together(
        &mut self,
        element: Element,
        given: &[Scalar],
        mode: ShuffleMode,
        lane: Scalar,
    ) -> SmallVec<[Scalar; 16]> {
        if given.len() == 1 {
            return std::iter::once(self.shuffle_from(width_of(element), given[0], mode, lane)).collect();
        }
        let words = Words::new(element, given.len());
        let elements: SmallVec<[Scalar; 16]> =
            given.iter().map(|&scalar| self.memory_form(element, scalar)).collect();
        let word = self.builder.pack(words, &elements);
        let moved = self.shuffle_from(Width::B32, word, mode, lane);
        let unpacked = self.builder.unpack(words, moved);
        unpacked.into_iter().map(|scalar| self.register_form(element, scalar)).collect()
    }

    /// The registers in the order that the selects give them in this thread.
    fn selected(&mut self, element: Element, selects: &[Select], registers: &[Scalar]) -> Vec<Scalar> {
        let mut current = registers.to_vec();
        for select in selects {
            let condition = self.parity(select.lanes, select.warps);
            let swapped = |register: usize| current[register ^ select.registers as usize];
            current = (0..current.len())
                .map(|register| {
                    self.builder.select(width_of(element), condition, swapped(register), current[register])
                })
                .collect();
        }
        current
    }
}
