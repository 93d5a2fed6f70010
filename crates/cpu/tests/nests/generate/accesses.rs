//! Generates index tiles, masks and accesses of random kernels.

use super::*;

impl Generator {
    /// Returns the number of executions of the next steps: one for each program and iteration.
    pub(super) fn worlds(&self) -> usize {
        (self.programs * self.iterations) as usize
    }

    pub(super) fn program(&self, world: usize) -> i64 {
        (world / self.iterations as usize) as i64
    }

    /// Returns a 1-D index tile with a stride. With `is_plain`, its indices neither wrap nor
    /// approach the limits of their type.
    pub(super) fn axis_index(&mut self, extent: u32, stride: i64, is_plain: bool) -> Index {
        let start = if is_plain || !self.random.chance(8) {
            self.random.pick(&[0, 0, 0, 0, 1, 5, -3])
        } else {
            i64::from(i32::MAX) - i64::from(extent)
        };
        let shape = vec![extent];
        let mut values: Vec<i64> = (0..i64::from(extent)).map(|i| start + i).collect();
        let end = start + i64::from(extent);
        let mut name =
            self.define(&format!("arange {{start = {start}, end = {end}}}"), &ty(Dtype::I32, &shape));
        let fits = |dtype: Dtype| {
            let (low, high) = dtype.int_range().expect("it is an integer type");
            let least = start.min(start * stride).min((end - 1) * stride);
            let most = (end - 1).max(start * stride).max((end - 1) * stride);
            i128::from(least) >= low && i128::from(most) <= high
        };
        let dtypes = [Dtype::I32, Dtype::I32, Dtype::I64, Dtype::I16, Dtype::I8, Dtype::U32, Dtype::U8];
        let mut dtype = self.random.pick(&dtypes);
        if !fits(dtype) {
            if is_plain || !self.random.chance(3) {
                dtype = if start > 1000 { Dtype::I64 } else { Dtype::I32 };
            } else {
                self.is_regular = false;
            }
        }
        if dtype != Dtype::I32 {
            name = self.define(
                &format!("cast {name} {{element = {dtype}, rounding = \"rtne\"}}"),
                &ty(dtype, &shape),
            );
            for value in &mut values {
                *value = wrapped(dtype, *value);
            }
        }
        let mut step = |this: &mut Self, function: &str, by: i64| {
            let scalar = this.constant_int(dtype, wrapped(dtype, by));
            let scalar = this.splat(&scalar, dtype.name(), &shape);
            let operands =
                if function != "sub" && this.random.chance(2) { (&scalar, &name) } else { (&name, &scalar) };
            name = this.define(&format!("{function} {}, {}", operands.0, operands.1), &ty(dtype, &shape));
            for value in &mut values {
                *value = wrapped(
                    dtype,
                    match function {
                        "add" => value.wrapping_add(by),
                        "sub" => value.wrapping_sub(by),
                        _ => value.wrapping_mul(by),
                    },
                );
            }
        };
        if start > 1000 {
            let by = start - self.random.pick(&[0, 1, 7]);
            if self.random.chance(3) {
                // Some elements wrap in the addition. The subtraction makes all elements small
                // again.
                step(self, "add", 1 + i64::from(extent / 2));
                step(self, "sub", by);
            } else {
                step(self, "sub", by);
            }
        }
        if stride != 1 {
            step(self, "mul", stride);
        }
        let values = vec![values; self.worlds()];
        Index { name, dtype, shape, values }
    }

    /// Broadcasts a 1-D index tile.
    pub(super) fn spread_index(&mut self, index: &Index, axis: usize, shape: &[u32]) -> Index {
        if shape.len() == 1 {
            return index.clone();
        }
        let name = self.spread(&index.name, index.dtype.name(), &index.shape, &[axis], shape);
        let inner: usize = shape[axis + 1..].iter().map(|&extent| extent as usize).product();
        let count = shape.iter().map(|&extent| extent as usize).product();
        let extent = shape[axis] as usize;
        let spread = |values: &Vec<i64>| (0..count).map(|i| values[i / inner % extent]).collect();
        let values = index.values.iter().map(spread).collect();
        Index { name, dtype: index.dtype, shape: shape.to_vec(), values }
    }

    pub(super) fn index(&mut self, shape: &[u32], strides: &[i64], is_plain: bool) -> Index {
        let mut sum: Option<Index> = None;
        for (axis, (&extent, &stride)) in shape.iter().zip(strides).enumerate() {
            let index = self.axis_index(extent, stride, is_plain || shape.len() > 1);
            let index = self.spread_index(&index, axis, shape);
            sum = Some(match sum {
                None => index,
                Some(sum) => self.add_indices(sum, index),
            });
        }
        sum.expect("a tile has axes")
    }

    pub(super) fn add_indices(&mut self, x: Index, y: Index) -> Index {
        let [x, y] = [x, y].map(|index| {
            let dtype = Dtype::I32;
            if index.dtype == dtype {
                return index;
            }
            let op = format!("cast {} {{element = {dtype}, rounding = \"rtne\"}}", index.name);
            let name = self.define(&op, &ty(dtype, &index.shape));
            Index { name, dtype, ..index }
        });
        let name = self.define(&format!("add {}, {}", x.name, y.name), &ty(x.dtype, &x.shape));
        let add = |(x, y): (&Vec<i64>, &Vec<i64>)| x.iter().zip(y).map(|(x, y)| x + y).collect();
        let values = x.values.iter().zip(&y.values).map(add).collect();
        Index { name, dtype: x.dtype, shape: x.shape, values }
    }

    /// Returns the quotients or the remainders of int32 or int64 indices, or indices computed from
    /// both. Other indices stay unchanged.
    fn divided_index(&mut self, index: Index) -> Index {
        let Index { mut name, dtype, shape, mut values } = index;
        if dtype != Dtype::I32 && dtype != Dtype::I64 {
            return Index { name, dtype, shape, values };
        }
        let counters = [Some("%pid".to_owned()), self.iteration.clone()];
        for (place, counter) in counters.into_iter().enumerate() {
            let Some(counter) = counter.filter(|_| dtype == Dtype::I32) else { continue };
            let step = self.random.pick(&[0, 8, 64, 100, 1024]);
            let by = self.constant_int(dtype, step);
            let by = self.define(&format!("mul {counter}, {by}"), "int32");
            let by = self.splat(&by, "int32", &shape);
            name = self.define(&format!("add {name}, {by}"), &ty(dtype, &shape));
            for (world, values) in values.iter_mut().enumerate() {
                let iteration = (world % self.iterations as usize) as i64;
                let count = if place == 0 { self.program(world) } else { iteration };
                for value in values {
                    *value = wrapped(dtype, *value + step * count);
                }
            }
        }
        let divisor = self.random.pick(&[7, 8, 24, 64, 64, 96, 128, 128, 1024]);
        let pitch = self.random.pick(&[1, divisor, 200]);
        let [divisor_tile, pitch_tile] = [divisor, pitch].map(|number| {
            let scalar = self.constant_int(dtype, number);
            self.splat(&scalar, dtype.name(), &shape)
        });
        let tile = ty(dtype, &shape);
        let row = self.define(&format!("int_div {name}, {divisor_tile}"), &tile);
        let column = self.define(&format!("int_rem {name}, {divisor_tile}"), &tile);
        let row_start = self.define(&format!("mul {row}, {pitch_tile}"), &tile);
        let both = self.define(&format!("add {row_start}, {column}"), &tile);
        let choice = self.random.below(4);
        let of = |&value: &i64| match choice {
            0 => value / divisor,
            1 => value % divisor,
            _ => value / divisor * pitch + value % divisor,
        };
        let values = values.iter().map(|values| values.iter().map(of).collect()).collect();
        let name = [row, column, both.clone(), both][choice].clone();
        Index { name, dtype, shape, values }
    }

    pub(super) fn mask(&mut self, shape: &[u32]) -> Mask {
        let known: Vec<Mask> =
            self.masks.iter().filter(|mask| mask.0 == shape).map(|mask| mask.1.clone()).collect();
        if !known.is_empty() && self.random.chance(2) {
            return known[self.random.below(known.len())].clone();
        }
        let mask = match self.random.below(8) {
            // The mask is any boolean tile.
            0 | 1 => {
                let name = self.operand(Dtype::I1, shape).name;
                return Mask { name, truth: None, is_range: false };
            }
            2 => {
                let dtype = self.dtype();
                let (x, y) = (self.operand(dtype, shape), self.operand(dtype, shape));
                let function = self.random.pick(&["lt", "le", "gt", "ge", "eq", "ne"]);
                let op = format!("{function} {}, {}", x.name, y.name);
                Mask { name: self.define(&op, &ty(Dtype::I1, shape)), truth: None, is_range: false }
            }
            3 if !known.is_empty() => {
                let (x, y) = (&known[0], &known[self.random.below(known.len())]);
                let op = format!("and {}, {}", x.name, y.name);
                let name = self.define(&op, &ty(Dtype::I1, shape));
                let both =
                    |(x, y): (&Vec<bool>, &Vec<bool>)| x.iter().zip(y).map(|(x, y)| *x && *y).collect();
                let truth = match (&x.truth, &y.truth) {
                    (Some(x), Some(y)) => Some(x.iter().zip(y).map(both).collect()),
                    (truth, None) | (None, truth) => truth.clone(),
                };
                Mask { name, truth, is_range: x.is_range && y.is_range }
            }
            _ if shape.is_empty() => {
                let name = self.operand(Dtype::I1, shape).name;
                return Mask { name, truth: None, is_range: false };
            }
            _ => self.range_mask(shape),
        };
        self.masks.push((shape.to_vec(), mask.clone()));
        let value =
            Value { name: mask.name.clone(), dtype: Dtype::I1, shape: shape.to_vec(), is_exact: true };
        self.values.push(value);
        mask
    }

    /// Returns a mask that compares the indices along an axis with a bound.
    pub(super) fn range_mask(&mut self, shape: &[u32]) -> Mask {
        let axis = if self.random.chance(4) { self.random.below(shape.len()) } else { shape.len() - 1 };
        let extent = shape[axis];
        let is_plain = !self.random.chance(6);
        let index = self.axis_index(extent, 1, is_plain);
        // The comparison with the bound comes before or after the broadcast.
        let is_early = shape.len() > 1 && self.random.chance(2);
        let index = if is_early { index } else { self.spread_index(&index, axis, shape) };
        let bound = match self.random.below(6) {
            0 => 0,
            1 => i64::from(extent),
            2 => i64::from(extent / 64 * 64),
            _ => self.random.below(extent as usize + 2) as i64,
        };
        let bound = wrapped(index.dtype, bound);
        if index.dtype == Dtype::I32 && self.random.chance(6) {
            // The generator does not know the bound.
            let bound = self.operand(Dtype::I32, &[]);
            let bound = self.splat(&bound.name, "int32", &index.shape);
            let function = self.random.pick(&["lt", "lt", "le", "ge", "eq"]);
            let op = format!("{function} {}, {bound}", index.name);
            let mut name = self.define(&op, &ty(Dtype::I1, &index.shape));
            if is_early {
                name = self.spread(&name, "int1", &index.shape, &[axis], shape);
            }
            return Mask { name, truth: None, is_range: false };
        }
        let step = i64::from(extent) / i64::from(self.programs);
        let depends = self.random.chance(3) && index.dtype == Dtype::I32;
        let scalar = match self.random.below(2) {
            0 => {
                self.count += 1;
                let name = format!("%s{}", self.count);
                self.scalars.push((name.clone(), index.dtype, bound.cast_unsigned()));
                name
            }
            _ => self.constant_int(index.dtype, bound),
        };
        let (scalar, bounds): (String, Vec<i64>) = if depends {
            let by = self.constant_int(Dtype::I32, step);
            let by = self.define(&format!("mul %pid, {by}"), "int32");
            let scalar = self.define(&format!("sub {scalar}, {by}"), "int32");
            let bounds = (0..self.worlds()).map(|world| bound - step * self.program(world)).collect();
            (scalar, bounds)
        } else {
            (scalar, vec![bound; self.worlds()])
        };
        let bound = self.splat(&scalar, index.dtype.name(), &index.shape);
        let function = self.random.pick(&["lt", "lt", "lt", "le", "gt", "ge", "ge", "eq", "ne"]);
        let swaps = self.random.chance(3);
        let op = if swaps {
            format!("{function} {bound}, {}", index.name)
        } else {
            format!("{function} {}, {bound}", index.name)
        };
        let mut name = self.define(&op, &ty(Dtype::I1, &index.shape));
        let compare = |(values, &bound): (&Vec<i64>, &i64)| {
            let holds = |&value: &i64| {
                let (x, y) = if swaps { (bound, value) } else { (value, bound) };
                match function {
                    "lt" => x < y,
                    "le" => x <= y,
                    "gt" => x > y,
                    "ge" => x >= y,
                    "eq" => x == y,
                    _ => x != y,
                }
            };
            values.iter().map(holds).collect::<Vec<bool>>()
        };
        let mut truth: Known<bool> = index.values.iter().zip(&bounds).map(compare).collect();
        if is_early {
            name = self.spread(&name, "int1", &index.shape, &[axis], shape);
            let inner: usize = shape[axis + 1..].iter().map(|&extent| extent as usize).product();
            let count = shape.iter().map(|&extent| extent as usize).product();
            for values in &mut truth {
                *values = (0..count).map(|i| values[i / inner % extent as usize]).collect();
            }
        }
        Mask { name, truth: Some(truth), is_range: function != "eq" && function != "ne" }
    }

    pub(super) fn buffer(&mut self, dtype: Dtype, is_store: bool) -> usize {
        let is_separate = self.placement == Placement::Separate;
        let fits = |buffer: &Buffer| buffer.dtype == dtype && (!is_separate || buffer.is_stored == is_store);
        let same: Vec<usize> = (0..self.buffers.len()).filter(|&index| fits(&self.buffers[index])).collect();
        let makes_more = self.placement != Placement::InPlace && self.random.chance(4);
        let index = if same.is_empty() || (makes_more && self.buffers.len() < 8) {
            let name = format!("%b{}", self.buffers.len());
            self.buffers.push(Buffer { name, dtype, low: 0, high: 0, is_stored: false });
            self.buffers.len() - 1
        } else {
            same[self.random.below(same.len())]
        };
        self.buffers[index].is_stored |= is_store;
        index
    }

    pub(super) fn strides(&mut self, shape: &[u32], is_store: bool) -> Vec<i64> {
        let is_separate = self.placement == Placement::Separate;
        let may_repeat = !(is_separate && is_store);
        let mut strides = vec![0; shape.len()];
        let mut next: i64 = 1;
        let keeps_pitch = !self.random.chance(5);
        for axis in (0..shape.len()).rev() {
            let is_last = axis + 1 == shape.len();
            if let Some(pitch) = self.pitch
                && keeps_pitch
                && shape == self.shapes[0]
            {
                strides[axis] = next;
                next = if is_last { pitch } else { next * i64::from(shape[axis]) };
                continue;
            }
            let stride = match self.random.below(20) {
                0 if is_last && may_repeat => self.random.pick(&[2, -1, 0]),
                0 | 1 if !is_last => next + self.random.below(70) as i64,
                2 if !is_last && may_repeat => 0,
                3 if !is_last && may_repeat => self.random.pick(&[1, next / 2, -next]),
                _ => next,
            };
            strides[axis] = stride;
            next = stride.abs().max(1) * i64::from(shape[axis]);
        }
        strides
    }

    /// Adds pointers to the elements of an access. Returns their name, and the indices of the
    /// elements in the buffer.
    #[expect(clippy::too_many_lines, reason = "one random decision follows another")]
    pub(super) fn pointers(&mut self, number: usize, shape: &[u32], is_store: bool) -> (String, Known<i64>) {
        let dtype = self.buffers[number].dtype;
        let is_separate = self.placement == Placement::Separate;
        let strides = self.strides(shape, is_store);
        let mut indices: Vec<Index> = shape
            .iter()
            .zip(&strides)
            .map(|(&extent, &stride)| {
                let is_plain = is_separate || shape.len() > 1;
                self.axis_index(extent, stride, is_plain)
            })
            .collect();
        if !is_store && self.random.chance(5) {
            let last = indices.pop();
            indices.extend(last.map(|index| self.divided_index(index)));
        }
        let lowest: i64 =
            indices.iter().map(|index| index.values[0].iter().min().copied().unwrap_or(0)).sum();
        let highest: i64 =
            indices.iter().map(|index| index.values[0].iter().max().copied().unwrap_or(0)).sum();
        let footprint = (highest - lowest + 1).min(8000);
        let (offset, step) = match self.placement {
            Placement::Separate if is_store => {
                let gap = self.random.pick(&[0, 0, 1, 3]);
                let buffer = &mut self.buffers[number];
                let offset = buffer.high + gap - lowest;
                (offset, footprint + MAX_DYNAMIC)
            }
            Placement::Separate => {
                let offset = self.random.pick(&[0, 0, 1, 7, 64, 100]);
                (offset, self.random.pick(&[0, footprint, 1]))
            }
            Placement::InPlace => (9 - lowest, i64::from(self.shapes[0].iter().product::<u32>())),
            Placement::Any if self.pitch.is_some() && self.random.chance(2) => {
                let (pitch, width) =
                    (self.pitch.unwrap_or(0), i64::from(*self.shapes[0].last().unwrap_or(&1)));
                let offset =
                    self.random.pick(&[0, 0, width, width / 2, width - 1, width + 1, pitch, pitch - 1]);
                (offset - lowest, self.random.pick(&[0, footprint]))
            }
            Placement::Any => {
                let offset = self.random.pick(&[0, 0, 1, 3, 64, 100, 512, 513, 1000]);
                (offset, self.random.pick(&[0, footprint, 1, -5]))
            }
        };
        // Computes the offset from the pointer argument.
        let name = self.buffers[number].name.clone();
        let element = format!("*{dtype}");
        let by = self.constant_int(Dtype::I32, step);
        let by = self.define(&format!("mul %pid, {by}"), "int32");
        let start = self.constant_int(Dtype::I32, offset);
        let mut start = self.define(&format!("add {by}, {start}"), "int32");
        let mut per_iteration = 0;
        if let Some(iteration) = self.iteration.clone()
            && !(is_separate && is_store)
            && self.random.chance(2)
        {
            per_iteration = self.random.pick(&[1, 64, footprint]);
            let by = self.constant_int(Dtype::I32, per_iteration);
            let by = self.define(&format!("mul {iteration}, {by}"), "int32");
            start = self.define(&format!("add {start}, {by}"), "int32");
        }
        if self.random.chance(8) {
            // Adds an unknown offset from 0 to 7.
            let by = self.operand(Dtype::I32, &[]);
            let most = self.constant_int(Dtype::I32, MAX_DYNAMIC);
            let by = self.define(&format!("and {}, {most}", by.name), "int32");
            start = self.define(&format!("add {start}, {by}"), "int32");
            self.dynamic = true;
        }
        let (programs, iterations) = (i64::from(self.programs), i64::from(self.iterations));
        let mut elements: Known<i64> = (0..programs)
            .flat_map(|program| (0..iterations).map(move |iteration| (program, iteration)))
            .map(|(program, iteration)| vec![offset + step * program + per_iteration * iteration])
            .collect();
        // The offset is added to int32 indices instead of the pointer.
        let is_in_index = shape.len() == 1 && indices[0].dtype == Dtype::I32 && self.random.chance(3);
        let mut pointer =
            if is_in_index { name } else { self.define(&format!("ptr_add {name}, {start}"), &element) };
        let spread = |elements: &mut Known<i64>, index: &Index| {
            for (elements, values) in elements.iter_mut().zip(&index.values) {
                let start = elements.clone();
                let one = |(i, value): (usize, &i64)| start[if start.len() == 1 { 0 } else { i }] + value;
                *elements = values.iter().enumerate().map(one).collect();
            }
        };
        if shape.len() == 2 && self.random.chance(3) {
            // Computes pointers to the rows, broadcasts them, and adds the indices in a row.
            let rows = &indices[0];
            pointer = self.splat(&pointer, &element, &rows.shape);
            pointer = self
                .define(&format!("ptr_add {pointer}, {}", rows.name), &format!("{element}{:?}", rows.shape));
            pointer = self.spread(&pointer, &element, &rows.shape, &[0], shape);
            let rows = Self::spread_known(rows, 0, shape);
            spread(&mut elements, &rows);
            let lanes = self.spread_index(&indices[1], 1, shape);
            pointer =
                self.define(&format!("ptr_add {pointer}, {}", lanes.name), &format!("{element}{shape:?}"));
            spread(&mut elements, &lanes);
            return (pointer, elements);
        }
        let Some(mut sum) = indices.first().map(|index| self.spread_index(index, 0, shape)) else {
            return (pointer, elements);
        };
        for (axis, index) in indices.iter().enumerate().skip(1) {
            let index = self.spread_index(index, axis, shape);
            sum = self.add_indices(sum, index);
        }
        if is_in_index {
            let start = self.splat(&start, "int32", shape);
            sum.name = self.define(&format!("add {}, {start}", sum.name), &ty(Dtype::I32, shape));
            for (values, elements) in sum.values.iter_mut().zip(&mut elements) {
                for value in values.iter_mut() {
                    *value = wrapped(Dtype::I32, *value + elements[0]);
                }
                elements[0] = 0;
            }
        }
        if is_store && self.random.chance(5) {
            // The compiler recognizes no progression in these offsets, so the store becomes a
            // scatter.
            let bits = if is_separate { 0 } else { self.random.pick(&[0, 1, 5]) };
            let by = self.constant_int(sum.dtype, bits);
            let by = self.splat(&by, sum.dtype.name(), shape);
            sum.name = self.define(&format!("xor {}, {by}", sum.name), &ty(sum.dtype, shape));
            for value in sum.values.iter_mut().flatten() {
                *value = wrapped(sum.dtype, *value ^ bits);
            }
        }
        pointer = self.splat(&pointer, &element, shape);
        pointer = self.define(&format!("ptr_add {pointer}, {}", sum.name), &format!("{element}{shape:?}"));
        spread(&mut elements, &sum);
        (pointer, elements)
    }

    pub(super) fn spread_known(index: &Index, axis: usize, shape: &[u32]) -> Index {
        let inner: usize = shape[axis + 1..].iter().map(|&extent| extent as usize).product();
        let count = shape.iter().map(|&extent| extent as usize).product();
        let extent = shape[axis] as usize;
        let spread = |values: &Vec<i64>| (0..count).map(|i| values[i / inner % extent]).collect();
        Index { values: index.values.iter().map(spread).collect(), ..index.clone() }
    }

    /// Extends the memory of a buffer to the accessed elements.
    pub(super) fn extend(&mut self, number: usize, elements: &Known<i64>, mask: Option<&Mask>) {
        // If a mask is not a range, machine code also checks the masked-off elements.
        self.is_regular &= mask.is_none_or(|mask| mask.is_range || mask.truth.is_none());
        let truth = mask.and_then(|mask| mask.truth.as_ref());
        let dynamic = if std::mem::take(&mut self.dynamic) { MAX_DYNAMIC } else { 0 };
        let buffer = &mut self.buffers[number];
        for (world, elements) in elements.iter().enumerate() {
            for (index, &element) in elements.iter().enumerate() {
                if truth.is_some_and(|truth| !truth[world][index]) {
                    continue;
                }
                if (MEMORY.0..MEMORY.1).contains(&element) {
                    buffer.low = buffer.low.min(element);
                    buffer.high = buffer.high.max(element + 1 + dynamic);
                } else {
                    self.is_regular = false;
                }
            }
        }
    }

    pub(super) fn load(&mut self) {
        let (dtype, shape) = (self.dtype(), self.shape());
        self.load_value(dtype, &shape);
    }

    pub(super) fn load_value(&mut self, dtype: Dtype, shape: &[u32]) -> Value {
        let mask = self.random.chance(2).then(|| self.mask(shape));
        let number = self.buffer(dtype, false);
        let (pointer, elements) = self.pointers(number, shape, false);
        self.extend(number, &elements, mask.as_ref());
        let mut op = format!("load {pointer}");
        let mut is_exact = self.placement == Placement::Separate;
        if let Some(mask) = &mask {
            write!(op, ", {}", mask.name).expect("a string takes it");
            if self.random.chance(2) {
                let other = if self.random.chance(2) {
                    let scalar = self.scalar(dtype);
                    let name = self.splat(&scalar.name, dtype.name(), shape);
                    Value { name, ..scalar }
                } else {
                    // `other` is an existing tile or a splat, because it must not add a load.
                    self.other(dtype, shape)
                };
                is_exact &= other.is_exact;
                write!(op, ", {}", other.name).expect("a string takes it");
            }
        }
        self.define_value(&format!("{op} {LOAD}"), dtype, shape, is_exact)
    }

    pub(super) fn other(&mut self, dtype: Dtype, shape: &[u32]) -> Value {
        let same: Vec<&Value> =
            self.values.iter().filter(|value| value.dtype == dtype && value.shape == shape).collect();
        if same.is_empty() {
            let scalar = self.scalar(dtype);
            let name = self.splat(&scalar.name, dtype.name(), shape);
            return Value { name, ..scalar };
        }
        same[self.random.below(same.len())].clone()
    }

    pub(super) fn store(&mut self) {
        let (dtype, shape) = (self.dtype(), self.shape());
        let value = self.operand(dtype, &shape);
        let mask = self.random.chance(2).then(|| self.mask(&shape));
        let number = self.buffer(dtype, true);
        let (pointer, elements) = self.pointers(number, &shape, true);
        if self.placement == Placement::Separate {
            // The next store to the buffer begins after all elements of this store.
            self.extend(number, &elements, None);
        } else {
            self.extend(number, &elements, mask.as_ref());
        }
        self.repeats_elements |= elements.iter().any(|elements| {
            let mut sorted = elements.clone();
            sorted.sort_unstable();
            sorted.windows(2).any(|pair| pair[0] == pair[1])
        });
        let mask = mask.map_or_else(String::new, |mask| format!(", {}", mask.name));
        self.line(&format!("store {pointer}, {}{mask} {STORE}", value.name));
    }
}
