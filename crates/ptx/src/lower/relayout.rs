//! Elements on their way from thread to thread: renamed, shuffled, or through shared memory.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_gpu::Exchange;
use tilewright_ir::{Element, Inst, Value};
use tilewright_layout::{Input, MatrixAccess, Plan, Select, SharedPlan, ShufflePlan};

use super::builder::{Scalar, Width, destinations};
use super::memory::Words;
use super::{Lowering, memory_bits, width_of};
use crate::isa::{self, LdmatrixShape, MatrixCount, RegisterId, ScalarType, ShuffleMode, StateSpace};

/// A tile in shared memory, read as it is asked for.
pub(super) struct SharedTile<'p> {
    element: Element,
    memory: &'p SharedPlan,
    matrix: Option<&'p MatrixAccess>,
    offset: u32,
    /// The access that reads each register.
    accesses: FxHashMap<u32, u32>,
    read: FxHashMap<u32, Scalar>,
}

impl<'p> SharedTile<'p> {
    /// Nothing is read yet.
    pub fn new(
        element: Element,
        memory: &'p SharedPlan,
        matrix: Option<&'p MatrixAccess>,
        offset: u32,
    ) -> Self {
        let vector = matrix.map_or(&memory.load.vector, |matrix| &matrix.registers);
        let mut accesses = FxHashMap::default();
        for number in 0..vector.accesses() {
            accesses.extend(vector.registers(number).into_iter().map(|register| (register, number)));
        }
        Self { element, memory, matrix, offset, accesses, read: FxHashMap::default() }
    }
}

impl<'p> Lowering<'p> {
    pub(super) fn lower_relayout(&mut self, inst: Inst, tile: Value) {
        let plan = self.plan;
        let result = self.kernel.insts[inst].results[0];
        let own = self.get(tile);
        let exchange =
            plan.exchanges[inst].as_ref().expect("the plan says how elements get to other threads");
        let scalars: Rc<[Scalar]> = match exchange {
            Exchange::Relayout { plan: Plan::Nothing, .. } => own,
            Exchange::Relayout { plan: Plan::Registers(registers), .. } => {
                registers.iter().map(|&register| own[register as usize]).collect()
            }
            Exchange::Relayout { plan: Plan::Shuffle(plan), .. } => {
                self.shuffled(self.element(tile), plan, &own)
            }
            Exchange::Relayout { plan: Plan::Shared(memory), matrix, offset } => {
                self.store_tile(tile, memory, *offset);
                self.wait();
                let mut shared = SharedTile::new(self.element(tile), memory, matrix.as_deref(), *offset);
                let to = self.layout(result).representatives();
                to.iter().map(|&register| self.read(&mut shared, register)).collect()
            }
            // The products that use it load it.
            Exchange::Operand { memory, offset, .. } => return self.store_tile(tile, memory, *offset),
            Exchange::Combine { .. } => panic!("a relayout combines nothing"),
        };
        self.set(result, scalars);
    }

    /// The address in shared memory of the place that a linear map, in bytes, gives this thread and a register that adds
    /// `constant` to it over F2.
    pub(super) fn shared_place(&mut self, images: &[u32], constant: u32, offset: u32) -> Scalar {
        let own = self.linear(images);
        let place = self.displaced(own, images, constant);
        let start = self.shared_address(offset);
        self.builder.add(Width::B32, place, start)
    }

    /// Stores a tile to its buffer in shared memory.
    fn store_tile(&mut self, tile: Value, memory: &SharedPlan, offset: u32) {
        let layout = self.layout(tile);
        let own = self.get(tile);
        let element = self.element(tile);
        let bytes = element.bytes() as u32;
        let is_first = self.is_first(layout.free_bits(Input::Lane), layout.free_bits(Input::Warp));
        let guard = (is_first != Scalar::TRUE).then(|| self.builder.predicate(is_first));
        let access = &memory.store;
        let images: Vec<u32> =
            Self::thread_images(&access.offsets).iter().map(|image| image * bytes).collect();
        for number in 0..access.vector.accesses() {
            let registers = access.vector.registers(number);
            let first = access.offsets.at(&[(Input::Register, registers[0])]) * bytes;
            let address = self.shared_place(&images, first, offset);
            let elements: SmallVec<[Scalar; 16]> =
                registers.iter().map(|&register| own[register as usize]).collect();
            self.store_shared(guard, element, address, &elements);
        }
    }

    /// A register of a tile in shared memory.
    pub(super) fn read(&mut self, shared: &mut SharedTile<'p>, register: u32) -> Scalar {
        if let Some(&scalar) = shared.read.get(&register) {
            return scalar;
        }
        let number = shared.accesses[&register];
        let bytes = shared.element.bytes() as u32;
        let (offsets, vector) = match shared.matrix {
            Some(matrix) => (&matrix.addresses, &matrix.registers),
            None => (&shared.memory.load.offsets, &shared.memory.load.vector),
        };
        let registers = vector.registers(number);
        let images: Vec<u32> = Self::thread_images(offsets).iter().map(|image| image * bytes).collect();
        let first = offsets.at(&[(Input::Register, registers[0])]) * bytes;
        let address = self.shared_place(&images, first, shared.offset);
        let elements = match shared.matrix {
            Some(matrix) => self.load_matrices(shared.element, matrix, address),
            None => self.load_shared(shared.element, address, registers.len()),
        };
        shared.read.extend(registers.into_iter().zip(elements));
        shared.read[&register]
    }

    /// `ldmatrix`: the elements of each matrix in turn.
    fn load_matrices(
        &mut self,
        element: Element,
        matrix: &MatrixAccess,
        address: Scalar,
    ) -> SmallVec<[Scalar; 16]> {
        let count = match matrix.matrices {
            1 => MatrixCount::X1,
            2 => MatrixCount::X2,
            _ => MatrixCount::X4,
        };
        let registers: Vec<RegisterId> = (0..count.count()).map(|_| self.builder.fresh(Width::B32)).collect();
        let address = self.builder.address(Width::B32, address);
        self.builder.emit(isa::Ldmatrix {
            shape: LdmatrixShape::M8n8,
            count,
            transpose: matrix.is_transposed,
            space: Some(StateSpace::Shared),
            format: None,
            ty: Some(ScalarType::B16),
            d: destinations(&registers),
            address,
        });
        let words = Words::new(element, (32 / memory_bits(element)) as usize);
        registers.into_iter().flat_map(|register| self.builder.unpack(words, register.into())).collect()
    }

    /// The elements that other lanes of the warp have.
    fn shuffled(&mut self, element: Element, plan: &ShufflePlan, own: &[Scalar]) -> Rc<[Scalar]> {
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

    /// The tile in shared memory that an operand of a product is, if its `relayout` left it there.
    pub(super) fn shared_operand(&self, value: Value) -> Option<SharedTile<'p>> {
        let plan = self.plan;
        let inst = self.kernel.defining_inst(value)?;
        match plan.exchanges[inst].as_ref()? {
            Exchange::Operand { memory, matrix, offset } => {
                Some(SharedTile::new(self.element(value), memory, matrix.as_deref(), *offset))
            }
            Exchange::Relayout { .. } | Exchange::Combine { .. } => None,
        }
    }
}
