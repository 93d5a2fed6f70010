//! Pads reductions and scans, so that the padding does not change their results.
//!
//! If the op combines one tile by an elementwise function, such as a sum, the neutral element
//! replaces the padding. Otherwise, a flag is reduced, too: true for the program's elements. An
//! element combined with padding is the element.

use smallvec::{SmallVec, smallvec};
use tilewright_ir::{
    Block, Definition, Dtype, ElementwiseFn, Inst, InstData, Literal, Op, Shape, Type, Value,
};

use super::movement::mask_of;
use super::{Pad, is_padded, padded};

impl Pad<'_> {
    pub(super) fn reduce(&mut self, inst: Inst) {
        let data = self.cursor.function.insts[inst].clone();
        let axis = match data.op {
            Op::Reduce { axis } => axis,
            Op::Histogram { bins } => {
                self.cursor.function.insts[inst].op = Op::Histogram { bins: bins.next_power_of_two() };
                return self.access(inst);
            }
            // tidy: wildcard because no other op of the family combines elements
            _ => return self.cursor.insert(inst),
        };
        match self.reduced_tiles(&data, axis as usize) {
            Some((operands, valid)) => self.without_padding(inst, &data, operands, valid),
            None => self.cursor.insert(inst),
        }
    }

    /// Pads a scan. A forward scan reaches the padding last, so it changes only if its function
    /// must not run on padding. A reverse scan reaches the padding first.
    pub(super) fn scan(&mut self, inst: Inst) {
        let data = self.cursor.function.insts[inst].clone();
        let shape = self.shape(data.operands[0]);
        match data.op {
            Op::Scan { .. } if !is_padded(&shape) && self.has_control(data.regions[0]) => {
                let valid = self.valid(&shape);
                self.with_flag(&data, data.operands.clone(), valid);
            }
            Op::Scan { axis, reverse: true } if !shape[axis as usize].is_power_of_two() => {
                let valid = self.valid_along(&shape, axis as usize);
                self.without_padding(inst, &data, data.operands.clone(), valid);
            }
            // tidy: wildcard because forward scans stay, and padding of other ops is refused
            _ => self.cursor.insert(inst),
        }
    }

    fn without_padding(&mut self, inst: Inst, data: &InstData, operands: SmallVec<[Value; 4]>, valid: Value) {
        let neutral = operands.first().and_then(|tile| self.neutral(data.regions[0], *tile));
        if let (Some(neutral), &[tile]) = (neutral, &operands[..]) {
            let ty = self.cursor.function.ty(tile).clone();
            let scalar = ty.with_shape(Shape::scalar());
            let value = self.cursor.value(Op::Constant { value: neutral }, &[], scalar);
            let rest = self.cursor.value(Op::Splat { shape: ty.shape.clone() }, &[value], ty);
            self.cursor.function.insts[inst].operands = smallvec![self.select(valid, tile, rest)];
            self.cursor.insert(inst);
            return;
        }
        self.with_flag(data, operands, valid);
    }

    /// Returns the tiles to reduce, and the mask of the program's elements. Returns `None` if the
    /// axis is not padded and the function may run on other padding.
    fn reduced_tiles(&mut self, data: &InstData, axis: usize) -> Option<(SmallVec<[Value; 4]>, Value)> {
        let sources: Option<SmallVec<[Value; 4]>> =
            data.operands.iter().map(|tile| self.flattened.get(tile).copied()).collect();
        if let Some(sources) = sources
            && sources.iter().all(|source| self.shape(*source) == self.shape(sources[0]))
        {
            // Padding may be between the elements of these tiles.
            let shape = self.shape(sources[0]);
            let line = Shape::from([padded(&shape).elements() as u32]);
            let valid = self.valid(&shape);
            let valid = self.reshaped(valid, &line);
            let tiles = sources.into_iter().map(|source| self.reshaped(source, &line)).collect();
            return Some((tiles, valid));
        }
        let shape = self.shape(data.operands[0]);
        if !is_padded(&shape) && self.has_control(data.regions[0]) {
            // The function must not run on other padding either.
            return Some((data.operands.clone(), self.valid(&shape)));
        }
        (!shape[axis].is_power_of_two()).then(|| {
            let valid = self.valid_along(&shape, axis);
            (data.operands.clone(), valid)
        })
    }

    /// Returns the neutral element of a region of one elementwise function. Returns `None` for
    /// other regions and functions.
    fn neutral(&self, region: Block, tile: Value) -> Option<Literal> {
        use ElementwiseFn as F;
        let insts = &self.cursor.function.blocks[region].insts;
        let parameters = &self.cursor.function.blocks[region].parameters;
        let &[only, _] = &insts[..] else { return None };
        let data = &self.cursor.function.insts[only];
        let Op::Elementwise { function } = data.op else { return None };
        let is_plain = data.operands.len() == 2
            && parameters.len() == 2
            && parameters.iter().all(|parameter| data.operands.contains(parameter))
            && self.cursor.function.yielded(region) == &data.results[..];
        let dtype = self.cursor.function.ty(tile).dtype().filter(|dtype| is_plain && !dtype.is_bool())?;
        if dtype.is_float() {
            let number = match function {
                F::Add => -0.0,
                F::Mul => 1.0,
                F::Min | F::Max => f64::NAN,
                F::MinNan => f64::INFINITY,
                F::MaxNan => f64::NEG_INFINITY,
                // tidy: wildcard because other functions are not associative, or have no neutral element
                _ => return None,
            };
            return Literal::float(dtype, number);
        }
        let (low, high) = dtype.int_range()?;
        let number = match function {
            F::Add | F::Or | F::Xor => 0,
            F::Mul => 1,
            F::And => -1,
            F::Min => high,
            F::Max => low,
            // tidy: wildcard because other functions are not associative, or have no neutral element
            _ => return None,
        };
        Some(Literal::int(dtype, number))
    }

    /// Emits the reduction or scan with a flag for the program's elements.
    fn with_flag(&mut self, data: &InstData, mut operands: SmallVec<[Value; 4]>, valid: Value) {
        let region = data.regions[0];
        self.combine_flagged(region, operands.len());
        operands.push(valid);
        let mut types: SmallVec<[Type; 4]> =
            data.results.iter().map(|result| self.cursor.function.ty(*result).clone()).collect();
        types.push(mask_of(&types[0]));
        let op = data.op.clone();
        let inst = self.cursor.emit_with_regions(op, &operands, smallvec![region], types);
        for (place, result) in data.results.iter().enumerate() {
            self.cursor.function.redefine(*result, inst, place);
        }
    }

    /// Adds a flag for each side to a region that combines `count` elements.
    fn combine_flagged(&mut self, region: Block, count: usize) {
        let flag = Type::scalar(Dtype::I1);
        let [left, right] = [(); 2].map(|()| self.cursor.function.add_parameter(region, flag.clone(), None));
        let parameters = &mut self.cursor.function.blocks[region].parameters;
        parameters.truncate(2 * count);
        parameters.insert(count, left);
        parameters.push(right);
        for (place, parameter) in
            self.cursor.function.blocks[region].parameters.clone().into_iter().enumerate()
        {
            self.cursor.function.values[parameter].definition = Definition::Parameter(region, place as u32);
        }
        let has_control = self.has_control(region);
        let outer = self.cursor.enter(region);
        let mut insts = self.cursor.take_rest();
        let end: Inst = insts.pop().expect("a region yields");
        let parameters = self.cursor.function.blocks[region].parameters.clone();
        let sides = |place: usize| (parameters[place], parameters[count + 1 + place]);
        let combined: SmallVec<[Value; 4]> = self.cursor.function.insts[end].operands.clone();
        if has_control {
            let both = self.binary(ElementwiseFn::And, left, right);
            let alone: SmallVec<[Value; 4]> =
                (0..count).map(|place| self.select(left, sides(place).0, sides(place).1)).collect();
            self.cursor.function.insts[end].operands = self.if_there(both, insts, &combined, &alone);
        } else {
            self.cursor.insert_all(insts);
            for (place, combined) in combined.into_iter().enumerate() {
                let (one, other) = sides(place);
                let kept = self.select(right, combined, one);
                self.cursor.function.insts[end].operands[place] = self.select(left, kept, other);
            }
        }
        let any = self.binary(ElementwiseFn::Or, left, right);
        self.cursor.function.insts[end].operands.push(any);
        self.cursor.insert(end);
        self.cursor.go_to(outer);
    }
}
