//! Emits the copies with which a loop fills slots for its successor ([`super`]).

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Dtype, ElementwiseFn, Value, constant_int};

use crate::passes::pipelining::loop_plan::{Boxes, Fusion, Growth, Successor};
use crate::passes::pipelining::loop_rewriter::{Continued, LoopRewriter, NextCoordinate, NextLoop};
use tilewright_gpu_ir::Type;

impl LoopRewriter<'_> {
    /// Computes the difference between the successor's boxes and those out of range.
    pub(in crate::passes::pipelining) fn continued(&mut self, fusion: &Fusion) -> Continued {
        let lower = self.function.insts[self.plan.inst].operands[0];
        let next = self.next_loop(fusion);
        let slots = match fusion.successor {
            Successor::Sibling { .. } => self.always_taken(),
            Successor::Nested(_) => self.distance,
        };
        let upper = self.function.insts[self.plan.inst].operands[1];
        let length = self.length([lower, upper], slots, None);
        let length = self.whole_steps(length);
        let length = self.cast_as(length, lower);
        // The counter of the successor that corresponds to the first iteration of this loop.
        let first = self.scalar(ElementwiseFn::Sub, &[next.lower, length]);
        let [own_values, next_values] = [
            self.boxes_at(&fusion.own, FxHashMap::default(), lower),
            self.boxes_at(&fusion.next, next.copies.clone(), first),
        ];
        let mut coordinates = Vec::new();
        for (load, growths) in fusion.growths.iter().enumerate() {
            let pairs = own_values[load].iter().zip(&next_values[load]).zip(growths);
            let moved = pairs.map(|((own, next), growth)| self.next_coordinate([*own, *next], *growth));
            coordinates.push(moved.collect());
        }
        let distance = self.scalar(ElementwiseFn::Sub, &[first, lower]);
        let end = next.length.map(|next| {
            let length = self.scalar(ElementwiseFn::Add, &[length, next]);
            self.scalar(ElementwiseFn::Add, &[lower, length])
        });
        Continued { next, coordinates, distance, end }
    }

    pub(super) fn next_coordinate(&mut self, [own, next]: [Value; 2], growth: Growth) -> NextCoordinate {
        let [one, other] = [own, next].map(|value| constant_int(self.function, value));
        match growth {
            Growth::Unknown => NextCoordinate::Computed,
            Growth::Same => NextCoordinate::Same,
            Growth::None | Growth::Alike if own == next || (one.is_some() && one == other) => {
                NextCoordinate::Same
            }
            Growth::None => NextCoordinate::Invariant(next),
            Growth::Alike => NextCoordinate::Moved(self.scalar(ElementwiseFn::Sub, &[next, own])),
        }
    }

    /// Returns the number of slots that a loop without an iteration takes.
    pub(super) fn always_taken(&self) -> u32 {
        u32::from(self.plan.late.is_some())
    }

    /// Returns the next loop, or this loop in the next outer iteration.
    pub(in crate::passes::pipelining) fn next_loop(&mut self, fusion: &Fusion) -> NextLoop {
        match &fusion.successor {
            Successor::Sibling { .. } => {
                let insts = &mut self.function.blocks[self.plan.block].insts;
                insts.retain(|inst| !fusion.scalars.contains(inst));
                self.out.extend(&fusion.scalars);
                let [lower, upper] = fusion.bounds;
                let filled = i128::from(self.distance - self.always_taken());
                let length = (fusion.min_iterations < filled).then(|| {
                    let last = self.scalar(ElementwiseFn::Max, &[lower, upper]);
                    self.scalar(ElementwiseFn::Sub, &[last, lower])
                });
                NextLoop { copies: FxHashMap::default(), lower, length }
            }
            Successor::Nested(outer) => self.next_of_nest(fusion, outer),
        }
    }

    /// Selects this iteration's coordinates if it is in range, else the successor's.
    pub(in crate::passes::pipelining) fn select_current_or_next_loop(
        &mut self,
        coordinates: &mut [Value],
        load: usize,
        continued: &Continued,
        (counter, in_range): (Value, Value),
    ) {
        let mut computed = None;
        for (index, coordinate) in coordinates.iter_mut().enumerate() {
            *coordinate = match continued.coordinates[load][index] {
                NextCoordinate::Same => *coordinate,
                NextCoordinate::Invariant(next) => {
                    self.scalar(ElementwiseFn::Select, &[in_range, *coordinate, next])
                }
                NextCoordinate::Moved(distance) => {
                    let zero = self.zero_like(distance);
                    let distance = self.scalar(ElementwiseFn::Select, &[in_range, zero, distance]);
                    self.scalar(ElementwiseFn::Add, &[*coordinate, distance])
                }
                NextCoordinate::Computed => {
                    let values = computed.get_or_insert_with(|| self.boxes_of_next(continued, counter));
                    self.scalar(ElementwiseFn::Select, &[in_range, *coordinate, values[load][index]])
                }
            };
        }
        if let Some(end) = continued.end {
            let in_range = self.compare(ElementwiseFn::Lt, [counter, end]);
            coordinates[0] = self.mask_coordinate(in_range, coordinates[0]);
        }
    }

    /// Computes the successor's coordinates at a counter of this loop.
    pub(super) fn boxes_of_next(
        &mut self,
        continued: &Continued,
        counter: Value,
    ) -> Vec<SmallVec<[Value; 5]>> {
        let plan = self.plan;
        let fusion = plan.fusion.as_ref().expect("the loop is fused");
        let counter = self.scalar(ElementwiseFn::Add, &[counter, continued.distance]);
        self.boxes_at(&fusion.next, continued.next.copies.clone(), counter)
    }

    pub(super) fn boxes_at(
        &mut self,
        boxes: &Boxes,
        mut copies: FxHashMap<Value, Value>,
        counter: Value,
    ) -> Vec<SmallVec<[Value; 5]>> {
        copies.insert(boxes.counter, counter);
        for inst in &boxes.insts {
            self.copy(*inst, &mut copies);
        }
        let copy = |value: &Value| copies.get(value).copied().unwrap_or(*value);
        boxes.coordinates.iter().map(|values| values.iter().map(copy).collect()).collect()
    }

    /// Computes the distance of a counter in 64 bits, clamped to `min` and `max` iterations.
    pub(super) fn length(&mut self, [lower, upper]: [Value; 2], min: u32, max: Option<u32>) -> Value {
        let step = self.plan.step.expect("the step of a fused loop is a constant");
        let [lower, upper] = [lower, upper].map(|value| self.cast(value, Dtype::I64));
        let mut length = self.scalar(ElementwiseFn::Sub, &[upper, lower]);
        let limits = [Some((ElementwiseFn::Max, min)), max.map(|max| (ElementwiseFn::Min, max))];
        for (function, limit) in limits.into_iter().flatten() {
            let limit = self.constant(Dtype::I64, step * i128::from(limit));
            length = self.scalar(function, &[length, limit]);
        }
        length
    }

    /// Rounds a distance up to whole steps.
    pub(super) fn whole_steps(&mut self, length: Value) -> Value {
        let step = self.plan.step.expect("the step of a fused loop is a constant");
        if step == 1 {
            return length;
        }
        let dtype = self.function.ty(length).as_registers().and_then(ir::Type::dtype);
        let dtype = dtype.expect("a length is an integer");
        let [more, step] = [step - 1, step].map(|number| self.constant(dtype, number));
        let length = self.scalar(ElementwiseFn::Add, &[length, more]);
        let rest = self.scalar(ElementwiseFn::IntRem, &[length, step]);
        self.scalar(ElementwiseFn::Sub, &[length, rest])
    }

    /// Returns the distance that the counter moves in `iterations` iterations.
    pub(super) fn offset(&mut self, iterations: u32) -> Value {
        let step = self.plan.step.expect("the step of a fused loop is a constant");
        self.constant(Dtype::I32, step * i128::from(iterations))
    }

    pub(super) fn zero_like(&mut self, value: Value) -> Value {
        let dtype = self.function.ty(value).as_registers().and_then(ir::Type::dtype);
        self.constant(dtype.expect("coordinates are integers"), 0)
    }

    pub(super) fn cast(&mut self, value: Value, dtype: Dtype) -> Value {
        let (element, rounding) = (ir::Element::Value(dtype), ir::Rounding::NearestEven);
        self.value(ir::Op::Cast { element, rounding }, &[value], Type::scalar(ir::Type::scalar(dtype)))
    }

    pub(super) fn cast_as(&mut self, value: Value, like: Value) -> Value {
        let dtype = self.function.ty(like).as_registers().and_then(ir::Type::dtype);
        self.cast(value, dtype.expect("a counter is an integer"))
    }

    pub(super) fn scalar(&mut self, function: ElementwiseFn, operands: &[Value]) -> Value {
        let ty = self.function.ty(operands[operands.len() - 1]).clone();
        self.elementwise(function, operands, ty)
    }

    pub(super) fn compare(&mut self, function: ElementwiseFn, operands: [Value; 2]) -> Value {
        self.elementwise(function, &operands, Type::scalar(ir::Type::scalar(Dtype::I1)))
    }
}
