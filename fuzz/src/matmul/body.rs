//! Generates the bodies of programs. A body multiplies tiles of matrices, in a loop over tiles or
//! one tile per program. Attention multiplies twice.

use tilewright_ir::Dtype;

use super::operand::Matrix;
use super::{Argument, Generator, Sizes, numbers};

/// The operand type and accumulator type of a multiplication.
const TYPES: [(Dtype, &str); 8] = [
    (Dtype::F16, "float32"),
    (Dtype::F16, "float32"),
    (Dtype::BF16, "float32"),
    (Dtype::F32, "float32"),
    (Dtype::I8, "int32"),
    (Dtype::F8E5, "float32"),
    (Dtype::F8E4NV, "float32"),
    (Dtype::F64, "float64"),
];

/// Returns the name of a type in the language.
fn name_of(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F16 => "float16",
        Dtype::BF16 => "bfloat16",
        Dtype::F32 => "float32",
        Dtype::F64 => "float64",
        Dtype::I8 => "int8",
        Dtype::I32 => "int32",
        Dtype::F8E5 => "float8e5",
        // tidy: wildcard because programs use no other type.
        _ => "float8e4nv",
    }
}

impl Generator {
    /// Generates a multiplication of two matrices, sometimes with a second right-hand side. Returns
    /// the grid.
    pub(super) fn matmul(&mut self, num_warps: u32) -> [usize; 2] {
        let sizes = self.sizes(num_warps);
        let Sizes { block: [rows, columns, inner], whole: [height, width, depth] } = sizes;
        let (dtype, sum) = self.random.pick(&TYPES);
        let stored = self.storage_type(dtype);
        let a = self.matrix("a", stored, [rows, inner], [height, depth], Some([-1, 1]));
        let b = self.matrix("b", dtype, [inner, columns], [depth, width], Some([-1, 1]));
        let second = self
            .random
            .chance(5)
            .then(|| self.matrix("g", dtype, [inner, columns], [depth, width], Some([-1, 1])));
        let adds = self.random.chance(3);
        let split = if adds { 1 + self.random.below(3) } else { 1 };
        let out = self.output_type(dtype, split > 1);
        let c = self.matrix("c", out, [rows, columns], [height, width], None);
        let tiles = [height.div_ceil(rows), width.div_ceil(columns)];
        let count = (tiles[0] * tiles[1]) as usize;
        let is_persistent = self.random.chance(3);
        if is_persistent {
            let options = self.options();
            self.say(format!(
                "for tile in tl.range(tl.program_id(0), {count}, tl.num_programs(0){options}):"
            ));
            self.depth += 1;
        } else {
            self.say("tile = tl.program_id(0)");
        }
        let (pid_m, pid_n) = (format!("tile // {}", tiles[1]), format!("tile % {}", tiles[1]));
        self.say(format!("row = ({pid_m}) * {rows}"));
        self.say(format!("col = ({pid_n}) * {columns}"));
        self.multiply_tile(sizes, [&a, &b], second.as_ref(), (dtype, sum), split);
        self.epilogue(sizes, sum);
        c.store(self, ["row", "col"], &format!("acc.to(tl.{})", name_of(out)), adds);
        let programs = if is_persistent { 1 + self.random.below(count) } else { count };
        [programs, split]
    }

    /// Returns the type in memory of an operand with type `dtype`. Sometimes the type is a byte, as
    /// for quantized weights.
    fn storage_type(&mut self, dtype: Dtype) -> Dtype {
        let is_wide = matches!(dtype, Dtype::F16 | Dtype::BF16);
        if is_wide && !self.is_regular && self.random.chance(5) { Dtype::I8 } else { dtype }
    }

    /// Returns the type of a result. If the result is an atomic sum, the type must represent the
    /// sum exactly in any order.
    fn output_type(&mut self, dtype: Dtype, is_summed: bool) -> Dtype {
        match dtype {
            Dtype::I8 => Dtype::I32,
            Dtype::F64 => Dtype::F64,
            // tidy: wildcard because these accumulate in binary32.
            _ if is_summed => Dtype::F32,
            // tidy: wildcard because all the others allow the same types.
            _ => self.random.pick(&[Dtype::F32, Dtype::F16, Dtype::F16, Dtype::BF16]),
        }
    }

    fn multiply_tile(
        &mut self,
        sizes: Sizes,
        [a, b]: [&Matrix; 2],
        second: Option<&Matrix>,
        (dtype, sum): (Dtype, &str),
        split: usize,
    ) {
        let [rows, columns, inner] = sizes.block;
        self.say(format!("acc = tl.zeros(({rows}, {columns}), dtype=tl.{sum})"));
        if second.is_some() {
            self.say(format!("gate = tl.zeros(({rows}, {columns}), dtype=tl.{sum})"));
        }
        let totals = self.random.chance(6);
        if totals {
            self.say(format!("total = tl.zeros(({rows},), dtype=tl.float32)"));
        }
        let first = if split > 1 { format!("tl.program_id(1) * {inner}") } else { "0".to_owned() };
        a.prepare(self, ["row", &first]);
        b.prepare(self, [&first, "col"]);
        if let Some(g) = second {
            g.prepare(self, [&first, "col"]);
        }
        let scale = self.random.chance(6).then(|| self.vector("s", dtype, sizes.whole[2]));
        let step = inner * split as u32;
        self.loop_over(&first, sizes.whole[2], step);
        a.load(self, ["row", "k"], Some(1));
        b.load(self, ["k", "col"], Some(0));
        self.transform("a", a.dtype, dtype);
        self.transform("b", b.dtype, dtype);
        if let Some(length) = scale {
            let index = format!("k + tl.arange(0, {inner})");
            self.say(format!("s = tl.load(s_ptr + {index}, mask={index} < {length}, other=0)"));
            self.say(format!("b = (b.to(tl.float32) * s[:, None].to(tl.float32)).to(tl.{})", name_of(dtype)));
        }
        if totals {
            self.say("total += tl.sum(a.to(tl.float32), 1)");
        }
        let is_conditional = self.random.chance(8);
        if is_conditional {
            self.say(format!("if k != {inner}:"));
            self.depth += 1;
        }
        self.multiply("acc", "a", "b", dtype);
        if is_conditional {
            self.depth -= 1;
        }
        if let Some(g) = second {
            g.load(self, ["k", "col"], Some(0));
            self.multiply("gate", "a", "g", dtype);
        }
        let by = step.to_string();
        for (matrix, axis) in [(a, 1), (b, 0)].into_iter().chain(second.map(|g| (g, 0))) {
            matrix.advance(self, axis, &by);
        }
        self.depth -= 1;
        if second.is_some() {
            let how =
                self.random.pick(&["acc - gate", "tl.maximum(acc, gate)", "tl.where(gate > 0, acc, 1)"]);
            self.say(format!("acc = {how}"));
        }
        if totals {
            self.say(format!("acc += total[:, None].to(tl.{sum})"));
        }
    }

    /// Generates the header of a loop over the inner dimension. `k` is the first index of the tile.
    fn loop_over(&mut self, first: &str, extent: u32, step: u32) {
        let end = self.number("K", extent);
        let options = self.options();
        match self.random.below(6) {
            0 if first == "0" => {
                self.say(format!("for number in tl.range(tl.cdiv({end}, {step}){options}):"));
                self.depth += 1;
                self.say(format!("k = number * {step}"));
            }
            1 => {
                self.say(format!("for k in range({first}, {end}, {step}):"));
                self.depth += 1;
            }
            2 if first == "0" && extent / step <= 4 => {
                self.say(format!("for k in tl.static_range(0, {extent}, {step}):"));
                self.depth += 1;
            }
            _ => {
                self.say(format!("for k in tl.range({first}, {end}, {step}{options}):"));
                self.depth += 1;
            }
        }
    }

    /// Transforms an operand between its load and the multiplication.
    fn transform(&mut self, name: &str, stored: Dtype, dtype: Dtype) {
        let to = name_of(dtype);
        if stored != dtype {
            self.say(format!("{name} = {name}.to(tl.{to})"));
        }
        let is_byte = dtype.bytes() == 1;
        match self.random.below(10) {
            0 if !is_byte => {
                self.say(format!("{name} = ({name} * 2).to(tl.{to})"));
            }
            1 if dtype == Dtype::I8 => self.say(format!("{name} = tl.maximum({name}, 0)")),
            1 => self.say(format!("{name} = tl.maximum({name}.to(tl.float32), 0.0).to(tl.{to})")),
            2 if !is_byte => self.say(format!("{name} = -{name}")),
            _ => {}
        }
    }

    fn multiply(&mut self, acc: &str, a: &str, b: &str, dtype: Dtype) {
        let precision = match dtype {
            Dtype::F32 => {
                self.random.pick(&["", ", input_precision=\"ieee\"", ", input_precision=\"tf32x3\""])
            }
            Dtype::F8E5 | Dtype::F8E4NV => self.random.pick(&["", ", max_num_imprecise_acc=16"]),
            // tidy: wildcard because the others have no such option.
            _ => "",
        };
        let out = match dtype {
            Dtype::I8 => ", out_dtype=tl.int32",
            Dtype::F64 => ", out_dtype=tl.float64",
            // tidy: wildcard because it is the default.
            _ => "",
        };
        match self.random.below(3) {
            0 => self.say(format!("{acc} += tl.dot({a}, {b}{precision}{out})")),
            _ => self.say(format!("{acc} = tl.dot({a}, {b}, {acc}{precision}{out})")),
        }
    }

    /// Generates operations on the accumulator after the loop.
    fn epilogue(&mut self, sizes: Sizes, sum: &str) {
        match self.random.below(6) {
            0 => self.say("acc = acc * 2"),
            1 => self.say("acc = acc - tl.max(acc, 1)[:, None]"),
            2 => {
                let length = self.vector("bias", Dtype::F32, sizes.whole[1]);
                let index = format!("col + tl.arange(0, {})", sizes.block[1]);
                self.say(format!("bias = tl.load(bias_ptr + {index}, mask={index} < {length}, other=0)"));
                self.say(format!("acc += bias.to(tl.{sum})[None, :]"));
            }
            _ => {}
        }
    }

    /// Adds a vector argument, and returns its length.
    fn vector(&mut self, name: &str, dtype: Dtype, length: u32) -> u32 {
        let bytes = numbers(&mut self.random, dtype, length.max(1) as usize, [0, 2]);
        let argument = Argument::Memory { dtype, bytes, skew: 0, descriptor: None };
        self.arguments.push((format!("{name}_ptr"), argument));
        length
    }

    /// Generates attention, which multiplies queries by keys, and the weights by values. Weights
    /// are clamped instead of exponentiated, so that sums are exact. Returns the grid.
    pub(super) fn attention(&mut self, num_warps: u32) -> [usize; 2] {
        let rows = if num_warps == 8 { 128 } else { self.random.pick(&[64, 64, 32, 16]) };
        let columns = self.random.pick(&[16, 32, 64]);
        let [width, value_width] = [(); 2].map(|()| self.random.pick(&[16, 32, 64]));
        let (queries, keys) = (self.extent(rows, 2), self.extent(columns, 4));
        let dtype = self.random.pick(&[Dtype::F16, Dtype::BF16, Dtype::F16, Dtype::F8E5, Dtype::F32]);
        let q = self.matrix("q", dtype, [rows, width], [queries, width], Some([-1, 1]));
        let key = self.matrix("key", dtype, [width, columns], [width, keys], Some([-1, 1]));
        let v = self.matrix("v", dtype, [columns, value_width], [keys, value_width], Some([-1, 1]));
        let out = self.random.pick(&[Dtype::F32, Dtype::F16]);
        let o = self.matrix("o", out, [rows, value_width], [queries, value_width], None);
        self.say(format!("row = tl.program_id(0) * {rows}"));
        q.prepare(self, ["row", "0"]);
        q.load(self, ["row", "0"], None);
        self.say(format!("acc = tl.zeros(({rows}, {value_width}), dtype=tl.float32)"));
        self.say(format!("most = tl.full(({rows},), -100.0, dtype=tl.float32)"));
        self.say(format!("total = tl.zeros(({rows},), dtype=tl.float32)"));
        key.prepare(self, ["0", "0"]);
        v.prepare(self, ["0", "0"]);
        self.loop_over("0", keys, columns);
        key.load(self, ["0", "k"], Some(1));
        let is_late = self.random.chance(2);
        if !is_late {
            v.load(self, ["k", "0"], Some(0));
        }
        self.say("p = tl.dot(q, key)");
        if self.random.chance(3) {
            let index = format!("k + tl.arange(0, {columns})");
            self.say(format!("rows = row + tl.arange(0, {rows})"));
            self.say(format!("p = tl.where(rows[:, None] >= ({index})[None, :], p, -100.0)"));
        }
        self.say("above = tl.maximum(most, tl.max(p, 1))");
        self.say("alpha = tl.where(above > most + 20, 2.0, 1.0)");
        self.say("p = tl.minimum(tl.maximum(p, -2.0), 2.0)");
        if self.random.chance(2) {
            self.say("p = tl.where(p < above[:, None], p, 1.0)");
        }
        self.say("total = total * alpha + tl.sum(p, 1)");
        self.say("acc = acc * alpha[:, None]");
        if is_late {
            v.load(self, ["k", "0"], Some(0));
        }
        self.multiply("acc", &format!("p.to(tl.{})", name_of(dtype)), "v", dtype);
        self.say("most = above");
        let by = columns.to_string();
        key.advance(self, 1, &by);
        v.advance(self, 0, &by);
        self.depth -= 1;
        self.say("acc = acc + total[:, None]");
        o.store(self, ["row", "0"], &format!("acc.to(tl.{})", name_of(out)), false);
        [queries.div_ceil(rows) as usize, 1]
    }
}
