//! Computes the facts ([`AxisInfo`]) about the results of each op.

use smallvec::SmallVec;
use tilewright_ir::{Element, HintKind, Inst, IntList, Op, Type, Value};

use super::walk::Walk;
use super::{Axis, AxisInfo, MAX_DIVISIBILITY, Range, power_of_two_in, run_length, run_length_of, unit};

/// The maximum number of programs along an axis of the grid.
const MAX_PROGRAMS: i128 = i32::MAX as i128;

impl Walk<'_> {
    /// Returns the facts about the result of a straight-line instruction.
    pub(super) fn transfer(&self, inst: Inst, ty: &Type) -> AxisInfo {
        let data = &self.function.insts[inst];
        match (&data.op, &data.operands[..]) {
            (Op::Constant { value }, _) => match value.as_int() {
                Some(constant) => AxisInfo::of_constant(ty, constant),
                None => AxisInfo::unknown(ty),
            },
            (Op::ProgramId { .. }, _) => AxisInfo::uniform(ty, 1, Range { low: 0, high: MAX_PROGRAMS - 1 }),
            (Op::NumPrograms { .. }, _) => AxisInfo::uniform(ty, 1, Range { low: 1, high: MAX_PROGRAMS }),
            (Op::Arange { start, end }, _) => arange(ty, i128::from(*start), i128::from(*end)),
            (Op::Splat { .. }, &[scalar]) => {
                let info = &self.infos[scalar];
                AxisInfo::uniform(ty, info.divisibility_everywhere(unit(ty)), info.range)
            }
            (Op::ExpandDims { axis }, &[tile]) => self.expand_dims(tile, *axis as usize, ty),
            (Op::Broadcast { .. }, &[tile]) => self.broadcast(tile, ty),
            (Op::Reshape { .. }, &[tile]) => self.reshape(tile, ty),
            (Op::Transpose { permutation }, &[tile]) if permutation.is_empty() => self.infos[tile].clone(),
            (Op::Transpose { permutation }, &[tile]) => {
                let info = &self.infos[tile];
                let axes = permutation.iter().map(|&axis| info.axis(axis as usize)).collect();
                AxisInfo { axes, ..info.clone() }
            }
            (Op::Elementwise { function }, operands) => self.elementwise(*function, operands, ty),
            (Op::Cast { .. }, &[value]) => self.cast(value, ty),
            (Op::Bitcast { .. }, &[value]) => self.bitcast(value, ty),
            // Elements from equal addresses are equal. A store of another thread may be between the
            // reads, but it is not ordered with the load, so the analysis may ignore it.
            (Op::Load { volatile: false, .. }, operands) => self.constancy_of(operands, ty),
            (Op::PtrAdd {}, &[pointer, offset]) => self.ptr_add(pointer, offset, ty),
            (Op::Reduce { axis }, tiles) => self.reduce(tiles, *axis as usize, ty),
            (Op::Scan { axis, .. }, tiles) => self.scan(tiles, *axis as usize, ty),
            (Op::SetLayout { .. }, &[tile]) => self.infos[tile].clone(),
            (Op::Hint { kind, values }, &[value]) => self.hint(value, *kind, values, ty),
            // tidy: wildcard because nothing is known of the results of the other ops
            _ => AxisInfo::unknown(ty),
        }
    }

    fn expand_dims(&self, tile: Value, axis: usize, ty: &Type) -> AxisInfo {
        let mut info = self.infos[tile].clone();
        let new = Axis { divisibility: info.divisibility_everywhere(unit(ty)), ..Axis::UNKNOWN };
        if self.function.ty(tile).is_scalar() {
            info.axes.clear();
        }
        info.axes.insert(axis.min(info.axes.len()), new);
        info
    }

    fn broadcast(&self, tile: Value, ty: &Type) -> AxisInfo {
        let mut info = self.infos[tile].clone();
        let from = &self.function.ty(tile).shape;
        for (axis, (known, (&from, &to))) in
            info.axes.iter_mut().zip(from.iter().zip(ty.shape.iter())).enumerate()
        {
            if from != to {
                known.constancy = run_length_of(&ty.shape, axis);
            }
        }
        info
    }

    /// Keeps the facts if the reshape only inserts or removes axes of extent 1. Otherwise keeps a
    /// divisor, and the runs along the last long axis.
    fn reshape(&self, tile: Value, ty: &Type) -> AxisInfo {
        let info = &self.infos[tile];
        let from = &self.function.ty(tile).shape;
        let unit = unit(ty);
        let divisibility = info.divisibility_everywhere(unit);
        let rest = Axis { divisibility, ..Axis::UNKNOWN };
        let wide = |shape: &[u32]| -> SmallVec<[usize; 4]> {
            (0..shape.len()).filter(|&axis| shape[axis] != 1).collect()
        };
        let (old, new) = (wide(from), wide(&ty.shape));
        let mut result = AxisInfo { axes: SmallVec::from_elem(rest, ty.rank().max(1)), ..info.clone() };
        let only_units = old.iter().map(|&axis| from[axis]).eq(new.iter().map(|&axis| ty.shape[axis]));
        if only_units {
            for (&old, &new) in old.iter().zip(&new) {
                result.axes[new] = info.axis(old);
            }
        } else if let (Some(&old), Some(&new)) = (old.last(), new.last()) {
            let Axis { contiguity, constancy, .. } = info.axis(old);
            let longest = run_length(ty.shape[new]);
            let contiguity = contiguity.min(longest);
            result.axes[new] = Axis {
                contiguity,
                constancy: constancy.min(longest),
                divisibility: info.divisibility_at(old, contiguity, unit),
            };
        }
        if info.constant.is_some() {
            return AxisInfo::uniform(ty, divisibility, info.range);
        }
        result
    }

    fn cast(&self, value: Value, ty: &Type) -> AxisInfo {
        let from = self.function.ty(value);
        match (from.element, ty.element) {
            (Element::Value(source), Element::Value(target)) if source.is_int() && target.is_int() => {
                if target.is_bool() {
                    return self.cast_to_bool(value, ty);
                }
                // Narrowing casts may wrap in spite of the assumption about overflow. Aligned runs
                // remain contiguous.
                let fits = self.infos[value].range.is_within(Range::of_dtype(target));
                let cuts = target.bits() > source.bits() || (self.assumptions.no_signed_overflow && !fits);
                let mut info = if cuts { self.extended(value) } else { self.infos[value].clone() };
                if cuts && !fits {
                    info.cut_to_aligned();
                }
                info.range = info.range.wrapped(target, false);
                info.constant = info.constant.filter(|_| info.range.low == info.range.high);
                info
            }
            (Element::Value(_), Element::Value(_)) => self.constancy_of(&[value], ty),
            (Element::Pointer(_), Element::Value(target)) if target.is_bool() => {
                self.constancy_of(&[value], ty)
            }
            (Element::Pointer(_) | Element::Value(_), Element::Pointer(_))
            | (Element::Pointer(_), Element::Value(_)) => {
                let mut info = AxisInfo { constant: None, range: Range::of(ty), ..self.infos[value].clone() };
                if unit(from) != unit(ty) {
                    for axis in 0..info.axes.len() {
                        info.limit_contiguity(axis, 1, unit(from));
                    }
                }
                info
            }
        }
    }

    fn cast_to_bool(&self, value: Value, ty: &Type) -> AxisInfo {
        let range = self.infos[value].range;
        if range.low > 0 || range.high < 0 {
            AxisInfo::of_constant(ty, 1)
        } else if range.low == range.high {
            AxisInfo::of_constant(ty, 0)
        } else {
            self.constancy_of(&[value], ty)
        }
    }

    fn bitcast(&self, value: Value, ty: &Type) -> AxisInfo {
        let is_int = |ty: &Type| ty.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_bool());
        if is_int(self.function.ty(value)) && is_int(ty) {
            self.cast(value, ty)
        } else {
            self.constancy_of(&[value], ty)
        }
    }

    fn ptr_add(&self, pointer: Value, offset: Value, ty: &Type) -> AxisInfo {
        let (base, moved) = (&self.infos[pointer], self.extended(offset));
        let unit = unit(ty);
        let axis = |axis| {
            let (p, o) = (base.axis(axis), moved.axis(axis));
            let contiguity = p.contiguity.min(o.constancy).max(o.contiguity.min(p.constancy));
            let bytes = moved.divisibility_at(axis, contiguity, 1).saturating_mul(unit).min(MAX_DIVISIBILITY);
            Axis {
                contiguity,
                constancy: p.constancy.min(o.constancy),
                divisibility: base.divisibility_at(axis, contiguity, unit).min(bytes),
            }
        };
        AxisInfo { axes: (0..base.axes.len()).map(axis).collect(), ..AxisInfo::default() }
    }

    /// Returns the facts about a reduction: equal slices have equal results.
    fn reduce(&self, tiles: &[Value], axis: usize, ty: &Type) -> AxisInfo {
        let mut info = AxisInfo::unknown(ty);
        for place in 0..ty.rank() {
            let source = if place < axis { place } else { place + 1 };
            let constancy = tiles.iter().map(|&tile| self.infos[tile].constancy(source)).min();
            info.axes[place].constancy = constancy.unwrap_or(1);
        }
        info
    }

    /// Returns the facts about a scan: equal vectors along the axis have equal results.
    fn scan(&self, tiles: &[Value], axis: usize, ty: &Type) -> AxisInfo {
        let mut info = self.constancy_of(tiles, ty);
        info.axes[axis].constancy = 1;
        info
    }

    fn hint(&self, value: Value, kind: HintKind, values: &IntList, ty: &Type) -> AxisInfo {
        let mut info = self.infos[value].clone();
        for (place, (known, &promised)) in info.axes.iter_mut().zip(values).enumerate() {
            let promised = power_of_two_in(i128::from(promised.max(1)));
            let run = promised.min(u64::from(run_length_of(&ty.shape, place))) as u32;
            match kind {
                HintKind::MultipleOf => known.divisibility = known.divisibility.max(promised),
                HintKind::MaxContiguous => known.contiguity = known.contiguity.max(run),
                HintKind::MaxConstancy => known.constancy = known.constancy.max(run),
                // Relies on this promise only for a field that is loaded. For an argument, the
                // launch already specializes on its divisibility. A computed field may break the
                // promise: such a program is correct, but has no tensor copies.
                HintKind::Described if place == 0 && self.is_loaded(value) => {
                    known.divisibility = known.divisibility.max(promised);
                }
                HintKind::Described => {}
            }
        }
        info
    }

    /// Returns whether a scalar is loaded, possibly with casts and hints after the load.
    fn is_loaded(&self, mut value: Value) -> bool {
        while let Some(inst) = self.function.defining_inst(value) {
            let data = &self.function.insts[inst];
            match &data.op {
                Op::Cast { .. } | Op::Bitcast { .. } | Op::Hint { .. } => value = data.operands[0],
                Op::Load { .. } => return true,
                // tidy: wildcard because the facts about a computed value are known
                _ => return false,
            }
        }
        false
    }

    /// Returns only the constancy of a result: functions of equal operands are equal.
    pub(super) fn constancy_of(&self, operands: &[Value], ty: &Type) -> AxisInfo {
        let mut info = AxisInfo::unknown(ty);
        for (axis, known) in info.axes.iter_mut().enumerate() {
            let constancy = operands.iter().map(|&operand| self.infos[operand].constancy(axis)).min();
            known.constancy = constancy.unwrap_or(1);
        }
        info
    }
}

fn arange(ty: &Type, start: i128, end: i128) -> AxisInfo {
    let mut info = AxisInfo::unknown(ty);
    let contiguity = run_length_of(&ty.shape, 0);
    let is_one_run = ty.shape.first() == Some(&contiguity);
    let step = if is_one_run { MAX_DIVISIBILITY } else { u64::from(contiguity) };
    info.axes[0] = Axis { contiguity, constancy: 1, divisibility: power_of_two_in(start).min(step) };
    info.range = Range { low: start, high: end - 1 };
    info
}
