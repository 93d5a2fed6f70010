//! Generates reductions and scans of random kernels.

use super::*;

impl Generator {
    /// Combines a tile with the result of a reduction, in a later phase.
    pub(super) fn function_of_reduction(&mut self) {
        let reductions: Vec<Value> =
            self.reductions.iter().filter(|value| self.values.contains(value)).cloned().collect();
        let Some(number) = reductions.len().checked_sub(1) else { return self.reduce() };
        let reduction = &reductions[number - self.random.below(number.min(2) + 1)];
        let mut shape = reduction.shape.clone();
        let larger =
            self.shapes.iter().find(|large| large.len() == shape.len() + 1 && large.starts_with(&shape));
        let Some(larger) = larger.cloned() else { return };
        let name = if shape.is_empty() {
            self.splat(&reduction.name, reduction.dtype.name(), &larger)
        } else {
            let axes: Vec<usize> = (0..shape.len()).collect();
            self.spread(&reduction.name, reduction.dtype.name(), &shape, &axes, &larger)
        };
        shape = larger;
        let dtype = reduction.dtype;
        let same: Vec<&Value> =
            self.values.iter().filter(|value| value.dtype == dtype && value.shape == shape).collect();
        let Some(last) = same.len().checked_sub(1) else { return };
        let tile = same[last - self.random.below(last + 1)].name.clone();
        let function = self.random.pick(&["add", "sub", "mul", "max", "lt"]);
        let result = if function == "lt" { Dtype::I1 } else { dtype };
        self.define_value(&format!("{function} {tile}, {name}"), result, &shape, !result.is_float());
    }

    pub(super) fn reduce(&mut self) {
        let shape = self.shape();
        if shape.is_empty() {
            return;
        }
        let dtype = self.dtype();
        let functions: &[&str] = match dtype.kind() {
            DtypeKind::Float => &["add", "add", "mul", "min", "max", "min_nan", "max_nan"],
            DtypeKind::Bool | DtypeKind::Signed | DtypeKind::Unsigned => {
                &["add", "mul", "min", "max", "and", "or", "xor"]
            }
        };
        let function = self.random.pick(functions);
        let value = self.operand(dtype, &shape);
        let axis = if self.random.chance(8) { self.random.below(shape.len()) } else { shape.len() - 1 };
        let mut result = shape;
        let is_last = axis + 1 == result.len();
        result.remove(axis);
        self.count += 1;
        let n = self.count;
        let name = format!("%v{n}");
        self.line(&format!(
            "{name} = reduce {} {{axis = {axis}}} (%x{n}: {dtype}, %y{n}: {dtype}) {{",
            value.name
        ));
        self.line(&format!("  %z{n} = {function} %x{n}, %y{n} : {dtype}"));
        self.line(&format!("  yield_values %z{n}"));
        self.line(&format!("}} : {}", ty(dtype, &result)));
        let value = Value { name, dtype, shape: result, is_exact: !dtype.is_float() };
        self.values.push(value.clone());
        if is_last {
            self.reductions.push(value);
        }
    }

    pub(super) fn scan(&mut self) {
        let shape = self.shape();
        if shape.is_empty() {
            return;
        }
        let dtype = self.dtype();
        let function = self.random.pick(&["add", "mul", "max"]);
        let value = self.operand(dtype, &shape);
        let axis = if self.random.chance(8) { self.random.below(shape.len()) } else { shape.len() - 1 };
        let reverse = self.random.chance(8);
        self.count += 1;
        let n = self.count;
        let name = format!("%v{n}");
        self.line(&format!(
            "{name} = scan {} {{axis = {axis}, reverse = {reverse}}} (%x{n}: {dtype}, %y{n}: {dtype}) {{",
            value.name
        ));
        self.line(&format!("  %z{n} = {function} %x{n}, %y{n} : {dtype}"));
        self.line(&format!("  yield_values %z{n}"));
        self.line(&format!("}} : {}", ty(dtype, &shape)));
        self.values.push(Value { name, dtype, shape, is_exact: !dtype.is_float() });
    }
}
