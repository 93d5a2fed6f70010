//! Reductions: in each thread its registers, then the lanes of a warp by shuffles or `redux.sync`, then the warps through
//! shared memory, where each leaves its part and every thread combines all parts after one barrier.
//!
//! As in Triton, the function that combines is taken to be commutative between threads; within a thread, what is on the left
//! stays on the left.

use smallvec::SmallVec;
use tilewright_base::Diagnostic;
use tilewright_gpu::{Exchange, Feature};
use tilewright_ir::{Dtype, ElementwiseFn as F, Inst, Op, Value};
use tilewright_layout::{Input, Layout, Reduction, Space, Step, f2};

use super::builder::{Scalar, Width, only};
use super::{LANES, Lowered, Lowering};
use crate::isa::{self, ScalarType, ShuffleMode, WarpReduction};

/// One element of each operand.
type Elements = SmallVec<[Scalar; 2]>;

/// A step that joins registers: `partner` has bit `pivot`, and none of the pivots before.
#[derive(Clone, Copy)]
struct Joined {
    pivot: u32,
    partner: u32,
}

/// The register that stands for one after the steps so far.
fn canonical(joined: &[Joined], register: u32) -> u32 {
    joined.iter().fold(register, |register, step| {
        if register >> step.pivot & 1 == 1 { register ^ step.partner } else { register }
    })
}

impl Lowering<'_> {
    pub(super) fn lower_reduce(&mut self, inst: Inst, tiles: &[Value], axis: usize) -> Lowered {
        let layout = self.layout(tiles[0]);
        let columns: Vec<_> = tiles.iter().map(|&tile| self.get_in(tile, Some(layout))).collect();
        let mut values: Vec<Elements> = (0..layout.registers() as usize)
            .map(|register| columns.iter().map(|column| column[register]).collect())
            .collect();
        let reduction = Reduction::along(layout, axis);
        let mut joined: Vec<Joined> = Vec::new();
        for step in reduction.steps_of(Input::Register) {
            self.join_registers(inst, &mut values, &mut joined, *step, (layout, axis))?;
        }
        let kept: Vec<u32> =
            reduction.registers.iter().map(|&register| canonical(&joined, register)).collect();
        let steps: Vec<Step> = reduction.steps_of(Input::Lane).copied().collect();
        if let Some(function) = self.warp_function(inst, &steps) {
            for &register in &kept {
                let own = &mut values[register as usize][0];
                *own = self.reduce_warp(function, *own);
            }
        } else {
            for step in &steps {
                values = self.join_lanes(inst, tiles, &values, (&kept, &joined), *step)?;
            }
        }
        let mut results: Vec<Elements> =
            kept.iter().map(|&register| values[register as usize].clone()).collect();
        if reduction.steps_of(Input::Warp).next().is_some() {
            results = self.reduce_warps(inst, tiles, axis, &reduction, &results)?;
        }
        for (operand, &result) in self.kernel.insts[inst].results.iter().enumerate() {
            let own: Vec<Scalar> = results.iter().map(|elements| elements[operand]).collect();
            let scalars = match self.layout_of(result) {
                None => vec![own[0]],
                Some(to) => {
                    let registers = to
                        .registers_from(&reduction.result)
                        .expect("the plan puts a relayout where threads differ");
                    registers.iter().map(|&register| own[register as usize]).collect()
                }
            };
            self.set(result, scalars);
        }
        Ok(())
    }

    /// Combines the pairs of registers of a step within the thread.
    fn join_registers(
        &mut self,
        inst: Inst,
        values: &mut [Elements],
        joined: &mut Vec<Joined>,
        step: Step,
        (layout, axis): (&Layout, usize),
    ) -> Lowered {
        let partner = canonical(joined, step.register);
        let pivot = partner.ilog2();
        let coordinate =
            |register: u32| layout.output().coordinate(layout.at(&[(Input::Register, register)]), axis);
        for register in (0..values.len() as u32).filter(|register| register >> pivot & 1 == 0) {
            if canonical(joined, register) != register {
                continue;
            }
            let other = canonical(joined, register ^ partner);
            let (left, right) =
                if coordinate(register) < coordinate(other) { (register, other) } else { (other, register) };
            let (left, right) = (values[left as usize].clone(), values[right as usize].clone());
            values[register as usize] = self.combine(inst, &left, &right)?;
        }
        joined.push(Joined { pivot, partner });
        Ok(())
    }

    /// Combines the registers that are kept with those of the partner lane of a step.
    fn join_lanes(
        &mut self,
        inst: Inst,
        tiles: &[Value],
        values: &[Elements],
        (kept, joined): (&[u32], &[Joined]),
        step: Step,
    ) -> Result<Vec<Elements>, Box<Diagnostic>> {
        let mut next = values.to_vec();
        for &register in kept {
            let partner = &values[canonical(joined, register ^ step.register) as usize];
            let others = self.shuffle_elements(tiles, partner, step.lane);
            next[register as usize] = self.combine(inst, &values[register as usize], &others)?;
        }
        Ok(next)
    }

    /// The elements of the lane whose number differs by this mask.
    fn shuffle_elements(&mut self, tiles: &[Value], own: &[Scalar], lane: u32) -> Elements {
        own.iter().zip(tiles).map(|(&own, &tile)| self.shuffle(self.width(tile), own, lane)).collect()
    }

    /// What the region of the reduction makes of two elements of each operand.
    fn combine(
        &mut self,
        inst: Inst,
        left: &[Scalar],
        right: &[Scalar],
    ) -> Result<Elements, Box<Diagnostic>> {
        let region = self.kernel.insts[inst].regions[0];
        let parameters = &self.kernel.blocks[region].parameters;
        for (&parameter, &scalar) in parameters.iter().zip(left.iter().chain(right)) {
            self.set(parameter, [scalar]);
        }
        self.block(region)?;
        Ok(self.kernel.yielded(region).iter().map(|&value| self.scalar(value)).collect())
    }

    /// The value of the lane whose number differs by this mask.
    pub(super) fn shuffle(&mut self, width: Width, own: Scalar, lane: u32) -> Scalar {
        self.shuffle_from(width, own, ShuffleMode::Butterfly, Scalar::constant(lane.into()))
    }

    /// The value of another lane.
    pub(super) fn shuffle_from(
        &mut self,
        width: Width,
        own: Scalar,
        mode: ShuffleMode,
        lane: Scalar,
    ) -> Scalar {
        if own.base.is_none() {
            return own;
        }
        let words = self.split_words(width, own);
        let b = self.builder.source(Width::B32, lane);
        let moved: SmallVec<[Scalar; 2]> = words
            .into_iter()
            .map(|word| {
                let a = self.builder.source(Width::B32, word);
                self.builder.pure(Width::B32, |d| isa::Shfl {
                    mode,
                    ty: ScalarType::B32,
                    d: only(d),
                    a,
                    b,
                    c: i64::from(LANES - 1).into(),
                    mask: (-1).into(),
                })
            })
            .collect();
        self.join_words(width, &moved)
    }

    /// A value as 32-bit words.
    pub(super) fn split_words(&mut self, width: Width, scalar: Scalar) -> SmallVec<[Scalar; 2]> {
        match width {
            Width::B32 => std::iter::once(scalar).collect(),
            Width::Pred => {
                let word = self.builder.select(Width::B32, scalar, Scalar::constant(1), Scalar::constant(0));
                std::iter::once(word).collect()
            }
            Width::B16 => {
                let half = self.builder.register(width, scalar);
                let a = super::builder::sources(&[half, half]);
                let word =
                    self.builder.pure(Width::B32, |d| isa::Mov { ty: ScalarType::B32, d: d.into(), a });
                std::iter::once(word).collect()
            }
            Width::B64 => {
                let whole = self.builder.register(width, scalar);
                let words = self.builder.pure_many([Width::B32; 2], |d| isa::Mov {
                    ty: ScalarType::B64,
                    d: super::builder::destinations(&d),
                    a: whole.into(),
                });
                words.into_iter().map(Scalar::from).collect()
            }
        }
    }

    /// The value of 32-bit words.
    pub(super) fn join_words(&mut self, width: Width, words: &[Scalar]) -> Scalar {
        match width {
            Width::B32 => words[0],
            Width::Pred => {
                self.builder.compare(Width::B32, true, isa::Comparison::Ne, words[0], Scalar::constant(0))
            }
            Width::B16 => {
                let word = self.builder.register(Width::B32, words[0]);
                let halves = self.builder.pure_many([Width::B16; 2], |d| isa::Mov {
                    ty: ScalarType::B32,
                    d: super::builder::destinations(&d),
                    a: word.into(),
                });
                halves[0].into()
            }
            Width::B64 => {
                let words = [words[0], words[1]].map(|word| self.builder.register(Width::B32, word));
                let a = super::builder::sources(&words);
                self.builder.pure(width, |d| isa::Mov { ty: ScalarType::B64, d: d.into(), a })
            }
        }
    }

    /// The instruction that reduces over a whole warp at once, if there is one for what the region does.
    fn warp_function(&self, inst: Inst, steps: &[Step]) -> Option<(WarpReduction, ScalarType, Dtype)> {
        let masks: f2::Columns = steps.iter().map(|step| step.lane).collect();
        let is_whole_warp =
            f2::rank(&masks) == LANES.ilog2() as usize && steps.iter().all(|step| step.register == 0);
        if !is_whole_warp || !self.has(Feature::Redux) {
            return None;
        }
        let region = self.kernel.insts[inst].regions[0];
        let block = &self.kernel.blocks[region];
        let ([x, y], [first, _]) = (&block.parameters[..], &block.insts[..]) else { return None };
        let data = &self.kernel.insts[*first];
        let Op::Elementwise { function } = data.op else { return None };
        let is_direct = data.results[..] == *self.kernel.yielded(region)
            && (data.operands[..] == [*x, *y] || data.operands[..] == [*y, *x]);
        let dtype = self
            .kernel
            .ty(*x)
            .dtype()
            .filter(|dtype| dtype.is_int() && !dtype.is_bool() && dtype.bits() <= 32)?;
        let ty = if dtype.is_signed() { ScalarType::S32 } else { ScalarType::U32 };
        let (function, ty) = match function {
            F::Add => (WarpReduction::Add, ty),
            F::Min => (WarpReduction::Min, ty),
            F::Max => (WarpReduction::Max, ty),
            F::And => (WarpReduction::And, ScalarType::B32),
            F::Or => (WarpReduction::Or, ScalarType::B32),
            F::Xor => (WarpReduction::Xor, ScalarType::B32),
            // tidy: wildcard because the instruction has no other functions.
            _ => return None,
        };
        is_direct.then_some((function, ty, dtype))
    }

    fn reduce_warp(
        &mut self,
        (operation, ty, dtype): (WarpReduction, ScalarType, Dtype),
        own: Scalar,
    ) -> Scalar {
        let a = self.builder.register(Width::B32, own).into();
        let mask = (-1).into();
        let all = self.builder.pure(Width::B32, |d| isa::Redux {
            operation,
            abs: false,
            nan: false,
            ty,
            d,
            a,
            mask,
        });
        if dtype.bits() < 32 { self.builder.extend(all, dtype.bits(), dtype.is_signed()) } else { all }
    }

    /// Combines the parts of the warps. If there is a single result, each lane loads one vector of parts, and shuffles
    /// combine those of the lanes.
    fn reduce_warps(
        &mut self,
        inst: Inst,
        tiles: &[Value],
        axis: usize,
        reduction: &Reduction,
        own: &[Elements],
    ) -> Result<Vec<Elements>, Box<Diagnostic>> {
        let Some(Exchange::Combine { offset, .. }) = self.plan.exchanges[inst] else {
            panic!("the plan gives a reduction between warps its shared memory");
        };
        let places = Parts::new(self.layout(tiles[0]), axis, reduction);
        let mut buffers = Vec::new();
        let mut at = offset;
        for &tile in tiles {
            buffers.push(at);
            at += (places.count * places.elements * self.element(tile).bytes() as u32).next_multiple_of(16);
        }
        let [lanes, warps] = places.copies();
        let is_first = self.is_first(lanes, warps);
        let guard = (is_first != Scalar::TRUE).then(|| self.builder.predicate(is_first));
        for (operand, &tile) in tiles.iter().enumerate() {
            let bytes = self.element(tile).bytes() as u32;
            let images: Vec<u32> = places.store.iter().map(|image| image * bytes).collect();
            for (register, elements) in own.iter().enumerate() {
                let constant = places.store_registers[register] * bytes;
                let address = self.shared_place(&images, constant, buffers[operand]);
                self.store_shared(guard, self.element(tile), address, &[elements[operand]]);
            }
        }
        self.wait();
        let widest = tiles.iter().map(|&tile| self.element(tile).bytes() as u32).max().unwrap_or(1);
        let count = if places.elements == 1 { places.count.min(16 / widest) } else { places.count };
        let mut results = Vec::new();
        for register in 0..own.len() {
            let mut parts: Vec<Elements> = vec![Elements::new(); count as usize];
            for (operand, &tile) in tiles.iter().enumerate() {
                let loaded = self.load_parts(&places, register, buffers[operand], (tile, count));
                for (part, scalar) in parts.iter_mut().zip(loaded) {
                    part.push(scalar);
                }
            }
            while parts.len() > 1 {
                parts = parts
                    .chunks(2)
                    .map(|pair| self.combine(inst, &pair[0], &pair[1]))
                    .collect::<Result<_, _>>()?;
            }
            let mut result = parts.remove(0);
            for bit in 0..(places.count / count).ilog2() {
                let others = self.shuffle_elements(tiles, &result, 1 << bit);
                result = self.combine(inst, &result, &others)?;
            }
            results.push(result);
        }
        Ok(results)
    }

    /// Loads so many parts of an element: the lane's own, if that is not all.
    fn load_parts(
        &mut self,
        places: &Parts,
        register: usize,
        buffer: u32,
        (tile, count): (Value, u32),
    ) -> Vec<Scalar> {
        let element = self.element(tile);
        let bytes = element.bytes() as u32;
        let shared_out = (places.count / count).ilog2() as usize;
        let mut images: Vec<u32> = places.load.iter().map(|image| image * bytes).collect();
        for (bit, image) in images[..shared_out].iter_mut().enumerate() {
            *image += (count * bytes) << bit;
        }
        let address = self.shared_place(&images, places.load_registers[register] * bytes, buffer);
        // The parts of one element lie side by side only if there is one element.
        let width = if places.elements == 1 { count.min(16 / bytes) } else { 1 };
        let mut scalars = Vec::new();
        for part in (0..count).step_by(width as usize) {
            let address = address.plus(Width::B32, u64::from(part * places.elements * bytes));
            scalars.extend(self.load_shared(element, address, width as usize));
        }
        scalars
    }
}

/// Where the parts of warps are: an array `[parts, elements of the result]`.
struct Parts {
    /// The number of parts.
    count: u32,
    /// The elements of the result.
    elements: u32,
    /// Of the bits of the thread: the index that it stores its part at.
    store: Vec<u32>,
    /// Of each register of the result: what it adds to that.
    store_registers: Vec<u32>,
    /// Of the bits of the thread: the index of the first part that it loads.
    load: Vec<u32>,
    /// Of each register of the result: what it adds to that.
    load_registers: Vec<u32>,
    lanes: usize,
}

impl Parts {
    fn new(layout: &Layout, axis: usize, reduction: &Reduction) -> Self {
        let result = &reduction.result;
        let log_elements = result.output().bits();
        // Coordinates along the axis as sums of what the steps change: what the steps between warps change is the part.
        let changes: f2::Columns = reduction.steps.iter().map(|step| step.coordinate).collect();
        let span = f2::Span::of(&changes);
        let part = |column: u32| {
            let coordinate = layout.output().coordinate(column, axis);
            let steps = span.solve(coordinate).expect("the steps reach every coordinate");
            let reaches_warps = |(_, step): &(usize, &Step)| step.reach() == Input::Warp;
            let between = reduction.steps.iter().enumerate().filter(reaches_warps);
            between
                .enumerate()
                .fold(0, |part, (bit, (number, _))| part | ((steps >> number & 1) as u32) << bit)
        };
        let threads = |layout: &Layout| [layout.bases(Input::Lane), layout.bases(Input::Warp)].concat();
        let load = threads(result);
        let images = threads(layout);
        let store = images
            .iter()
            .zip(&load)
            .map(|(&column, &element)| part(column) << log_elements | element)
            .collect();
        let load_registers: Vec<u32> =
            (0..result.registers()).map(|register| result.at(&[(Input::Register, register)])).collect();
        let own_part = |register: &u32| part(layout.at(&[(Input::Register, *register)])) << log_elements;
        let store_registers = reduction
            .registers
            .iter()
            .map(own_part)
            .zip(&load_registers)
            .map(|(part, &element)| part | element);
        Self {
            count: 1 << reduction.steps_of(Input::Warp).count(),
            elements: 1 << log_elements,
            store,
            store_registers: store_registers.collect(),
            load,
            load_registers,
            lanes: layout.bits_of(Input::Lane) as usize,
        }
    }

    /// The bits of the lane and of the warp that change nothing of where a thread stores, or only what its registers change.
    fn copies(&self) -> [u32; 2] {
        let mut span = f2::Span::of(&f2::independent(&self.store_registers));
        let free = self
            .store
            .iter()
            .enumerate()
            .fold(0_u32, |free, (bit, &image)| free | u32::from(!span.insert(image)) << bit);
        [free & ((1 << self.lanes) - 1), free >> self.lanes]
    }
}
