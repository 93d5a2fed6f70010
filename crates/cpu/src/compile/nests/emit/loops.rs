//! Emits the loops of a phase: see [`emit`](super::emit).

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::{Dtype, Op};
use tilewright_native::Place;
use tilewright_native::ir::{Binary, Compare, Conversion, IntBinary, IntCompare, Lane, MaskBinary, Value};

use super::super::vectors::{Elements, elements};
use super::reductions::{Reduction, reduced_place};
use super::{Body, Emitter, Group, Part, Repr};
use crate::program::nest::Word;
use crate::program::{Action, Slot, Step};
use crate::tuning::{ACCUMULATORS, INTERLEAVED_VECTORS, MASKED_VECTORS, MAX_UNROLLED_STEPS, SCAN_BLOCK};
use crate::types::TileType;

/// The elements of one vector that the sinks of a group take.
struct Sunk {
    body: Body,
    /// The elements for each sink, in order.
    values: Vec<SunkValue>,
    /// The elements of each tile that the loop writes.
    written: Vec<Value>,
}

struct SunkValue {
    value: Value,
    mask: Option<Value>,
    /// The offsets of a scatter, in elements.
    offsets: Option<Value>,
}

/// The properties of the loop of a group.
pub(super) struct Loop<'g> {
    pub group: &'g Group,
    /// The number of elements of an iteration without masks, and the number of its vectors.
    pub chunk: usize,
    pub vectors: usize,
    /// False if iterations of whole vectors cover the elements of the tile exactly.
    pub is_partial: bool,
}

impl Loop<'_> {
    /// Returns the index at which the loop ends. For iterations of whole vectors, it is a multiple
    /// of `chunk`, so that each accumulator takes equally many vectors: see [`Emitter::part`].
    fn end(&self, lanes: usize) -> i64 {
        let is_padded = self.chunk >= lanes;
        (if is_padded { self.group.extent.next_multiple_of(self.chunk) } else { self.group.extent }) as i64
    }

    /// Returns the number of vectors of an iteration of a part.
    fn vectors_of(&self, part: Part, lanes: usize) -> usize {
        match part {
            Part::Streaming | Part::Whole => self.vectors,
            Part::Masked | Part::Uniform => self.vectors.min(MASKED_VECTORS.max(SCAN_BLOCK / lanes)),
        }
    }
}

impl Emitter<'_> {
    pub(super) fn group(&mut self, group: &Group) {
        let lanes = self.lanes();
        let mut reductions = self.reductions(group);
        let reads = self.reads(group);
        // Each vector of an iteration has its own accumulator.
        let unrolled = if self.plan.members.len() > MAX_UNROLLED_STEPS { lanes } else { 4 * lanes };
        let most = match (reductions.is_empty(), reads.scans.is_empty()) {
            (false, _) => ACCUMULATORS,
            (true, false) => unrolled.max(SCAN_BLOCK),
            (true, true) => unrolled,
        };
        let chunk = if group.extent >= most {
            most
        } else if reductions.is_empty() {
            group.extent.next_power_of_two().max(lanes)
        } else {
            1 << group.extent.ilog2()
        };
        let vectors = chunk.div_ceil(lanes);
        let is_partial = !group.extent.is_multiple_of(chunk.max(lanes));
        let it = Loop { group, chunk, vectors, is_partial };
        self.hoist(&reads);
        let only_reduces =
            group.written.is_empty() && group.checked.is_none() && group.sinks.len() == reductions.len();
        let has_comparisons = !reductions.is_empty() && reductions.iter().all(Reduction::has_comparison);
        let values = if only_reduces && has_comparisons && reads.scans.is_empty() {
            self.reduce_by_comparison(&it, &reads, &mut reductions)
        } else {
            self.loops(&it, &reads, &mut reductions)
        };
        for (reduction, value) in reductions.iter().zip(values) {
            self.set_result(&it, reduction, value);
        }
    }

    /// Emits the parts of a loop. Returns a vector for each reduction; its first lane is the
    /// result.
    pub(super) fn loops(&mut self, it: &Loop<'_>, reads: &Reads, reductions: &mut [Reduction]) -> Vec<Value> {
        let &Loop { group, chunk, is_partial, .. } = it;
        let lanes = self.lanes();
        self.begin_reductions(it, reductions);
        self.begin_scans(&reads.scans);
        self.begin_scatter(group);
        let extent = self.int(group.extent as i64);
        let end = self.int(it.end(lanes));
        let zero = self.int(0);
        let needs_all = !reductions.is_empty()
            || !group.written.is_empty()
            || group.checked.is_some()
            || self.stores_all(group);
        let (mut lowest, mut highest) = (extent, zero);
        let mut starts_at_zero = true;
        for &(low, high) in &reads.ranges {
            lowest = self.binary(IntBinary::Min, lowest, high);
            highest = self.binary(IntBinary::Max, highest, high);
            starts_at_zero &= self.known(low) == Some(0);
        }
        let whole_end = if !starts_at_zero || chunk < lanes {
            zero
        } else {
            let mask = self.int(-(chunk as i64));
            self.binary(IntBinary::And, lowest, mask)
        };
        let is_uniform_after = reads.is_uniform_after && !reads.ranges.is_empty() && !is_partial;
        let masked_end = match (reads.ranges.is_empty(), needs_all && !is_uniform_after) {
            (false, false) => highest,
            (true, _) | (_, true) => end,
        };
        let streaming_end = match self.streams(it) {
            Some(streams) => self.choose(streams, whole_end, zero),
            None => zero,
        };
        let mut position = self.part(it, Part::Streaming, [zero, streaming_end], reductions);
        position = self.part(it, Part::Whole, [position, whole_end], reductions);
        position = self.part(it, Part::Masked, [position, masked_end], reductions);
        if needs_all && is_uniform_after {
            self.part(it, Part::Uniform, [position, end], reductions);
        }
        self.check_scatter();
        reductions.iter().map(|reduction| self.finish(it, reduction)).collect()
    }

    /// Emits the reductions as a single loop over all elements, with masks.
    pub(super) fn masked_loop(&mut self, it: &Loop<'_>, reductions: &mut [Reduction]) -> Vec<Value> {
        self.begin_reductions(it, reductions);
        let range = [self.int(0), self.int(it.end(self.lanes()))];
        self.part(it, Part::Masked, range, reductions);
        reductions.iter().map(|reduction| self.finish(it, reduction)).collect()
    }

    fn begin_reductions(&self, it: &Loop<'_>, reductions: &mut [Reduction]) {
        for reduction in reductions {
            reduction.accumulators = vec![self.identity_of(reduction); it.vectors];
        }
    }

    /// Returns whether a store of the group also writes the elements after all ranges. It then has
    /// no mask, or its mask is not a range.
    fn stores_all(&self, group: &Group) -> bool {
        group.sinks.iter().any(|&member| {
            let step = self.plan.members[member];
            matches!(step.op(), Some(Op::Store { .. }))
                && step.operands.get(2).is_none_or(|mask| self.range(mask.slot, group.extent).is_none())
        })
    }

    /// Returns the condition under which the stores of the group bypass the caches: a launch writes
    /// more than the caches hold, and the vectors are aligned. Returns `None` unless the loop only
    /// stores contiguous elements that are not booleans.
    fn streams(&mut self, it: &Loop<'_>) -> Option<Value> {
        if !it.group.written.is_empty() {
            return None;
        }
        let mut streams: Option<Value> = None;
        for &member in &it.group.sinks {
            let step = self.plan.members[member];
            let [pointer, value, ..] = &step.operands[..] else { return None };
            let ty = self.ty(value.slot);
            let is_store = matches!(step.op(), Some(Op::Store { .. }));
            if !is_store || ty.dtype().is_bool() || !self.plan.is_contiguous(pointer.slot) {
                return None;
            }
            let root = self.plan.root(pointer.slot)?;
            let is_large = self.word(Word::Streams(root, it.group.extent * ty.size));
            let (base, _) = self.affine(pointer.slot);
            let mask = self.int((self.lanes() * ty.size) as i64 - 1);
            let rest = self.binary(IntBinary::And, base, mask);
            let zero = self.int(0);
            let is_aligned = self.compare(IntCompare::Eq, rest, zero);
            let both = self.binary(IntBinary::And, is_large, is_aligned);
            streams = Some(streams.map_or(both, |streams| self.binary(IntBinary::And, streams, both)));
        }
        streams
    }

    /// Emits a part of a loop from `start` to `end`. Returns the index after the last iteration.
    ///
    /// An iteration with fewer vectors than accumulators uses the first accumulators and then
    /// rotates them. With the accumulators `a, b, c, d` and two vectors, the next iteration begins
    /// with `c, d, a, b`.
    fn part(
        &mut self,
        it: &Loop<'_>,
        part: Part,
        [start, end]: [Value; 2],
        reductions: &mut [Reduction],
    ) -> Value {
        let mut carried: Vec<Value> =
            reductions.iter().flat_map(|reduction| reduction.accumulators.iter().copied()).collect();
        let accumulators = carried.len();
        carried.extend(self.scans.iter().map(|scan| scan.total));
        let totals = carried.len();
        carried.extend(self.scatter.iter().flat_map(|scatter| scatter.range));
        if let (Some(first), Some(last)) = (self.known(start), self.known(end))
            && first >= last
        {
            return start;
        }
        // The uniform part repeats one element, which the code computes before the loop.
        let mut uniform = FxHashMap::default();
        if part == Part::Uniform {
            let mut body = self.body(it, part, start, 0);
            for &member in &it.group.sinks {
                let step = self.plan.members[member];
                let is_store = matches!(step.op(), Some(Op::Store { .. }));
                self.element(step.operands[usize::from(is_store)].slot, &mut body);
            }
            for &slot in &it.group.written {
                self.element(slot, &mut body);
            }
            uniform = body.values;
        }
        let lanes = self.lanes();
        let vectors = it.vectors_of(part, lanes);
        let repeated = self.build(|builder| builder.begin_loop([start, end], &carried));
        let mut next = repeated.values.clone();
        self.set_scatter_range(next.drain(totals..));
        for (scan, total) in self.scans.iter_mut().zip(next.drain(accumulators..)) {
            scan.total = total;
        }
        // The loop computes several vectors before it stores any of them, so that their
        // computations interleave. The checks of the nest ensure that the stores overlap no loads
        // of other vectors.
        for first in (0..vectors).step_by(INTERLEAVED_VECTORS) {
            let group = first..vectors.min(first + INTERLEAVED_VECTORS);
            let mut computed = Vec::new();
            for vector in group.clone() {
                let mut body = self.body(it, part, repeated.index, vector);
                body.values.clone_from(&uniform);
                computed.push(self.sunk(it, body));
            }
            for (vector, sunk) in group.zip(computed) {
                self.sinks(it, sunk, vector, reductions, &mut next);
            }
        }
        for accumulators in next.chunks_mut(it.vectors) {
            accumulators.rotate_left(vectors % it.vectors);
        }
        next.extend(self.scans.iter().map(|scan| scan.total));
        next.extend(self.scatter.iter().flat_map(|scatter| scatter.range));
        let step = it.chunk.min(vectors * lanes) as i64;
        let (index, last) = self.build(|builder| builder.end_loop(repeated, step, &next));
        let mut last = last.into_iter();
        for reduction in reductions {
            for accumulator in &mut reduction.accumulators {
                *accumulator = last.next().expect("the loop carries the accumulators");
            }
        }
        for (scan, total) in self.scans.iter_mut().zip(&mut last) {
            scan.total = total;
        }
        self.set_scatter_range(last);
        index
    }

    /// Returns the initial state of the code that computes a vector.
    fn body(&mut self, it: &Loop<'_>, part: Part, position: Value, vector: usize) -> Body {
        let lanes = self.lanes();
        let offset = vector * lanes;
        // A short row, or the end of a row, has fewer elements than lanes.
        let active = (part == Part::Masked && (it.is_partial || it.chunk < lanes)).then(|| {
            let end = self.int(it.group.extent as i64);
            let left = self.sub(end, position);
            let left = if it.chunk < lanes {
                let chunk = self.int(it.chunk as i64);
                self.binary(IntBinary::Min, left, chunk)
            } else {
                let offset = self.int(offset as i64);
                self.sub(left, offset)
            };
            self.build(|builder| builder.first_lanes(left))
        });
        Body { part, position, offset, phase: it.group.phase, active, values: FxHashMap::default() }
    }

    fn sunk(&mut self, it: &Loop<'_>, mut body: Body) -> Sunk {
        let mut values = Vec::new();
        for &member in &it.group.sinks {
            let step = self.plan.members[member];
            let _origin = self.origin(step);
            let is_store = matches!(step.op(), Some(Op::Store { .. }));
            let slot = step.operands[usize::from(is_store)].slot;
            let mask = if is_store { self.store_mask(step, it, &mut body) } else { None };
            let offsets = self.plan.scattered(step).map(|[_, offsets]| self.element(offsets, &mut body));
            values.push(SunkValue { value: self.element(slot, &mut body), mask, offsets });
        }
        if let Some(member) = it.group.checked {
            let step = self.plan.members[member];
            let _origin = self.origin(step);
            let mask = self.store_mask(step, it, &mut body);
            if let Some([_, offsets]) = self.plan.scattered(step) {
                let offsets = self.element(offsets, &mut body);
                self.extend_scatter_range(offsets, mask);
            }
        }
        let written = it.group.written.iter().map(|&slot| self.element(slot, &mut body)).collect();
        Sunk { body, values, written }
    }

    /// Emits the sinks of a vector, and writes its elements of `written`. `next` has the
    /// accumulators of all reductions.
    fn sinks(
        &mut self,
        it: &Loop<'_>,
        Sunk { body, values, written }: Sunk,
        vector: usize,
        reductions: &[Reduction],
        next: &mut [Value],
    ) {
        for (&slot, value) in it.group.written.iter().zip(written) {
            self.write(slot, value, &body);
        }
        let mut reduced = 0;
        for (&member, SunkValue { value, mask, offsets }) in it.group.sinks.iter().zip(values) {
            let step = self.plan.members[member];
            let _origin = self.origin(step);
            if matches!(step.op(), Some(Op::Store { .. })) {
                let is_off = |mask: Slot| self.range(mask, it.group.extent).is_some();
                if body.part == Part::Uniform && step.operands.get(2).is_some_and(|mask| is_off(mask.slot)) {
                    continue;
                }
                if let Some(offsets) = offsets {
                    self.scatter(step, value, offsets, mask);
                    continue;
                }
                let pointer = step.operands[0].slot;
                let (base, _) = self.affine(pointer);
                if self.plan.is_contiguous(pointer) {
                    self.store(base, self.ty(step.operands[1].slot), value, mask, &body);
                } else {
                    self.store_strided(pointer, value, mask, &body);
                }
                continue;
            }
            let reduction = &reductions[reduced];
            let place = reduced_place(reductions, reduced) + vector;
            reduced += 1;
            let from = self.ty(step.operands[0].slot).dtype();
            let value = if from == reduction.dtype { value } else { self.vectors.widen(from, value) };
            let combined = self.combine(reduction, next[place], value);
            next[place] = match body.active {
                None => combined,
                Some(active) => self.chosen(reduction.dtype, active, combined, next[place]),
            };
        }
    }

    fn chosen(&self, dtype: Dtype, mask: Value, x: Value, y: Value) -> Value {
        self.build(|builder| match elements(dtype) {
            Elements::Lanes(_) => builder.select(mask, x, y),
            Elements::Mask => builder.mask_select(mask, x, y),
        })
    }

    fn store_mask(&mut self, step: &Step, it: &Loop<'_>, body: &mut Body) -> Option<Value> {
        let mask = step.operands.get(2).and_then(|mask| self.mask(mask.slot, it.group.extent, body));
        self.conjunction(mask, body.active)
    }

    fn conjunction(&self, x: Option<Value>, y: Option<Value>) -> Option<Value> {
        match (x, y) {
            (Some(x), Some(y)) => Some(self.build(|builder| builder.mask_binary(MaskBinary::And, x, y))),
            (mask, None) | (None, mask) => mask,
        }
    }

    /// Returns the mask of an access, or `None` if the mask is true for the whole vector.
    fn mask(&mut self, slot: Slot, extent: usize, body: &mut Body) -> Option<Value> {
        match (self.range(slot, extent), body.part) {
            (Some(_), Part::Whole | Part::Streaming) => None,
            (Some((low, high)), Part::Masked) => Some(self.range_mask(low, high, body)),
            (Some(_), Part::Uniform) => Some(self.build(|builder| builder.mask(false))),
            (None, _) => Some(self.element(slot, body)),
        }
    }

    /// Returns the mask of the lanes whose indices are in a range.
    fn range_mask(&self, low: Value, high: Value, body: &Body) -> Value {
        let offset = self.int(body.offset as i64);
        let first = self.add(body.position, offset);
        let below = |bound: Value| {
            let count = self.sub(bound, first);
            self.build(|builder| builder.first_lanes(count))
        };
        let mask = below(high);
        if self.known(low) == Some(0) {
            return mask;
        }
        let before = below(low);
        self.build(|builder| builder.mask_binary(MaskBinary::AndNot, before, mask))
    }

    fn place(base: Value, size: usize, body: &Body) -> Place {
        Place { base, index: Some((body.position, size as u8)), offset: (body.offset * size) as i32 }
    }

    fn load(&self, base: Value, ty: &TileType, mask: Option<Value>, body: &Body) -> Value {
        let place = Self::place(base, ty.size, body);
        self.build(|builder| match elements(ty.dtype()) {
            Elements::Lanes(lane) => builder.load(lane, place, mask),
            Elements::Mask => {
                let bytes = builder.load(Lane::I8, place, mask);
                let zero = builder.constant(Lane::I8, 0);
                builder.compare(Compare::Ne, bytes, zero)
            }
        })
    }

    fn store(&self, base: Value, ty: &TileType, value: Value, mask: Option<Value>, body: &Body) {
        let place = Self::place(base, ty.size, body);
        self.build(|builder| {
            let value = match elements(ty.dtype()) {
                Elements::Lanes(_) => value,
                Elements::Mask => {
                    let (one, zero) = (builder.constant(Lane::I8, 1), builder.constant(Lane::I8, 0));
                    builder.select(value, one, zero)
                }
            };
            builder.store(place, value, mask, body.part == Part::Streaming);
        });
    }

    fn gather(&self, pointer: Slot, ty: &TileType, mask: Option<Value>, body: &Body) -> Value {
        let Elements::Lanes(lane) = elements(ty.dtype()) else { unreachable!("the plan refuses booleans") };
        let (base, offsets) = self.strided_place(pointer, body);
        self.build(|builder| {
            let mask = mask.unwrap_or_else(|| builder.mask(true));
            builder.gather(lane, base, offsets, mask)
        })
    }

    fn store_strided(&self, pointer: Slot, value: Value, mask: Option<Value>, body: &Body) {
        let (base, offsets) = self.strided_place(pointer, body);
        self.build(|builder| {
            let mask = mask.unwrap_or_else(|| builder.mask(true));
            builder.scatter(base, offsets, value, mask);
        });
    }

    fn strided_place(&self, pointer: Slot, body: &Body) -> (Value, Value) {
        let (base, stride) = self.affine(pointer);
        let first = self.add(body.position, self.int(body.offset as i64));
        let first = self.mul(first, stride);
        let offsets = self.build(|builder| {
            let (iota, stride) = (builder.iota(Lane::I64), builder.splat(Lane::I64, stride));
            builder.binary(Binary::Mul, iota, stride)
        });
        (self.add(base, first), offsets)
    }

    fn write(&mut self, slot: Slot, value: Value, body: &Body) {
        let ty = self.ty(slot);
        if let Some(&base) = self.kept.get(&slot) {
            self.store(base, ty, value, None, body);
        }
        if self.outputs.contains(&slot) {
            let base = self.addresses[&slot];
            self.store(base, ty, value, body.active, body);
        }
    }

    /// Returns a vector of the elements of a slot.
    pub(super) fn element(&mut self, slot: Slot, body: &mut Body) -> Value {
        if let Some(&value) = body.values.get(&slot) {
            return value;
        }
        let value = self.computed(slot, body);
        body.values.insert(slot, value);
        value
    }

    fn computed(&mut self, slot: Slot, body: &mut Body) -> Value {
        let ty = self.ty(slot);
        match self.repr(slot) {
            Repr::Float(value) => return value,
            Repr::Integer(_) => return self.splats[&slot],
            Repr::Affine { base, stride } => return self.progression(ty, base, stride, body),
            Repr::Range { low, high } => {
                return match body.part {
                    Part::Whole | Part::Streaming => self.build(|builder| builder.mask(true)),
                    Part::Masked => self.range_mask(low, high, body),
                    Part::Uniform => self.build(|builder| builder.mask(false)),
                };
            }
            Repr::Dense => {}
        }
        if let Some(&base) = self.kept.get(&slot)
            && self.plan.known[&slot].phase < body.phase
        {
            return self.load(base, ty, None, body);
        }
        let Some(&step) = self.definitions.get(&slot) else {
            let base = self.addresses[&slot];
            return self.load(base, ty, body.active, body);
        };
        let _origin = self.origin(step);
        let op = match &step.action {
            Action::Op(op) => op,
            Action::Scan { .. } => return self.scanned(step, body),
            // tidy: wildcard because the result of a reduction is not dense
            _ => unreachable!("a nest has no other dense steps"),
        };
        match op {
            Op::Load { .. } => self.loaded(step, body),
            Op::Elementwise { function } => {
                let dtype = self.ty(step.operands[step.operands.len() - 1].slot).dtype();
                let operands: Vec<Value> =
                    step.operands.iter().map(|operand| self.element(operand.slot, body)).collect();
                self.vectors.apply(*function, dtype, &operands)
            }
            Op::Cast { .. } => {
                let from = self.ty(step.operands[0].slot).dtype();
                let value = self.element(step.operands[0].slot, body);
                self.vectors.cast(from, ty.dtype(), value)
            }
            Op::Bitcast { .. } => {
                let value = self.element(step.operands[0].slot, body);
                match elements(ty.dtype()) {
                    Elements::Lanes(lane) => {
                        self.build(|builder| builder.convert(Conversion::Bitcast, lane, value))
                    }
                    Elements::Mask => value,
                }
            }
            // The other ops only change the shape.
            // tidy: wildcard because the plan has no other op with a dense result
            _ => self.element(step.operands[0].slot, body),
        }
    }

    fn loaded(&mut self, step: &Step, body: &mut Body) -> Value {
        let ty = self.ty(step.results[0]);
        let pointer = step.operands[0].slot;
        let (base, _) = self.affine(pointer);
        let mask = match step.operands.get(1) {
            Some(mask) => self.mask(mask.slot, self.layout(step.results[0]).extent, body),
            None => None,
        };
        let other = step.operands.get(2).map(|other| other.slot);
        let other = |this: &mut Self, body: &mut Body| match other {
            Some(other) => this.element(other, body),
            None => this.build(|builder| match elements(ty.dtype()) {
                Elements::Lanes(lane) => builder.constant(lane, 0),
                Elements::Mask => builder.mask(false),
            }),
        };
        if body.part == Part::Uniform {
            return other(self, body);
        }
        let active = self.conjunction(mask, body.active);
        let value = if self.plan.is_contiguous(pointer) {
            self.load(base, ty, active, body)
        } else {
            self.gather(pointer, ty, active, body)
        };
        match mask {
            Some(mask) if step.operands.len() > 2 => {
                let other = other(self, body);
                self.chosen(ty.dtype(), mask, value, other)
            }
            _ => value,
        }
    }

    fn progression(&self, ty: &TileType, base: Value, stride: Value, body: &Body) -> Value {
        let Elements::Lanes(lane) = elements(ty.dtype()) else { unreachable!("indices have lanes") };
        let offset = self.int(body.offset as i64);
        let first = self.add(body.position, offset);
        let start = self.mul(first, stride);
        let start = self.add(base, start);
        self.build(|builder| {
            let start = builder.splat(lane, start);
            let iota = builder.iota(lane);
            let ramp = if builder.known(stride) == Some(1) {
                iota
            } else {
                let stride = builder.splat(lane, stride);
                builder.binary(Binary::Mul, iota, stride)
            };
            builder.binary(Binary::Add, start, ramp)
        })
    }

    /// Emits the values that all iterations share: vectors of uniform integers, and addresses of
    /// tiles.
    fn hoist(&mut self, reads: &Reads) {
        for &slot in &reads.uniforms {
            let value = self.splatted(slot);
            self.splats.insert(slot, value);
        }
        for &slot in &reads.tiles {
            let value = self.row_address(Word::Tile(slot), slot);
            self.addresses.insert(slot, value);
        }
        for &slot in &reads.outputs {
            let value = self.row_address(Word::Output(slot), slot);
            self.addresses.insert(slot, value);
        }
    }

    fn reads(&self, group: &Group) -> Reads {
        let mut reads = Reads { is_uniform_after: true, ..Reads::default() };
        for &member in &group.sinks {
            let step = self.plan.members[member];
            if matches!(step.op(), Some(Op::Store { .. })) {
                self.read(step.operands[1].slot, group, &mut reads);
                self.read_place(step, group, &mut reads);
            } else {
                self.read(step.operands[0].slot, group, &mut reads);
            }
        }
        if let Some(member) = group.checked {
            self.read_place(self.plan.members[member], group, &mut reads);
            reads.is_uniform_after = false;
        }
        for &slot in &group.written {
            self.read(slot, group, &mut reads);
            if self.outputs.contains(&slot) {
                reads.outputs.insert(slot);
            }
        }
        reads
    }

    /// Adds the values on which a store mask and scatter offsets depend.
    fn read_place(&self, step: &Step, group: &Group, reads: &mut Reads) {
        if let Some([_, offsets]) = self.plan.scattered(step) {
            self.read(offsets, group, reads);
        }
        if let Some(mask) = step.operands.get(2) {
            self.read_mask(mask.slot, group, reads);
        }
    }

    fn read_mask(&self, slot: Slot, group: &Group, reads: &mut Reads) {
        match self.range(slot, group.extent) {
            Some(range) => reads.add_range(range),
            None => self.read(slot, group, reads),
        }
    }

    fn read(&self, slot: Slot, group: &Group, reads: &mut Reads) {
        if !reads.visited.insert(slot) {
            return;
        }
        match self.repr(slot) {
            Repr::Float(_) => return,
            Repr::Integer(_) => {
                reads.uniforms.push(slot);
                return;
            }
            Repr::Affine { .. } => {
                reads.is_uniform_after = false;
                return;
            }
            Repr::Range { low, high } => {
                reads.add_range((low, high));
                return;
            }
            Repr::Dense => {}
        }
        if self.kept.contains_key(&slot) && self.plan.known[&slot].phase < group.phase {
            reads.is_uniform_after = false;
            return;
        }
        let Some(step) = self.definitions.get(&slot) else {
            reads.tiles.push(slot);
            reads.is_uniform_after = false;
            return;
        };
        if let Action::Scan { .. } = step.action {
            reads.scans.push(slot);
            reads.is_uniform_after = false;
        }
        if let Some(Op::Load { .. }) = step.op() {
            match step.operands.get(1) {
                Some(mask) => {
                    reads.is_uniform_after &= self.range(mask.slot, group.extent).is_some();
                    self.read_mask(mask.slot, group, reads);
                }
                None => reads.is_uniform_after = false,
            }
            if let Some(other) = step.operands.get(2) {
                self.read(other.slot, group, reads);
            }
            return;
        }
        for operand in &step.operands {
            self.read(operand.slot, group, reads);
        }
    }
}

#[derive(Default)]
pub(super) struct Reads {
    visited: FxHashSet<Slot>,
    /// The bounds of the ranges.
    ranges: Vec<(Value, Value)>,
    uniforms: Vec<Slot>,
    /// The dense tiles of the executor that the loop reads, and those that it writes.
    tiles: Vec<Slot>,
    outputs: FxHashSet<Slot>,
    pub scans: Vec<Slot>,
    /// True if all tiles are uniform after all ranges.
    is_uniform_after: bool,
}

impl Reads {
    fn add_range(&mut self, range: (Value, Value)) {
        if !self.ranges.contains(&range) {
            self.ranges.push(range);
        }
    }
}
