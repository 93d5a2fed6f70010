//! Compares symbolic and dense tiles on random kernels of index arithmetic.

mod common;

use std::fmt::Write;

use common::{Arg, i32s, i64s, int, run};
use tilewright_fuzz::random::Random;

const LOAD: &str = "{cache = \"\", eviction = \"\", volatile = false}";
const STORE: &str = "{cache = \"\", eviction = \"\"}";

/// A kernel whose tiles all have the shape `shape`.
struct Kernel {
    random: Random,
    text: String,
    shape: Vec<u32>,
    count: usize,
    ints: Vec<(String, &'static str)>,
    masks: Vec<String>,
}

const DTYPES: [&str; 6] = ["int32", "int32", "int64", "uint32", "int16", "uint8"];
const CONSTANTS: [i64; 14] =
    [0, 1, 2, 3, 7, 64, 100, 127, -1, -5, 1 << 14, i32::MAX as i64, i32::MIN as i64, -1000];

impl Kernel {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let shape =
            random.pick(&[&[16][..], &[1], &[8, 4], &[4, 1], &[1, 8], &[2, 4, 8], &[2, 2, 2, 4]]).to_vec();
        let text = "kernel func0 @k(%out: *int64, %data: *int32, %n: int32) {\n".to_owned();
        let mut kernel = Self { random, text, shape, count: 0, ints: Vec::new(), masks: Vec::new() };
        for axis in 0..kernel.shape.len() {
            kernel.index(axis);
        }
        kernel
    }

    fn ty(&self, element: &str) -> String {
        format!("{element}{:?}", self.shape)
    }

    fn define(&mut self, op: &str, ty: &str) -> String {
        self.count += 1;
        let name = format!("%v{}", self.count);
        writeln!(self.text, "  {name} = {op} : {ty}").expect("it is a string");
        name
    }

    /// Adds a tile of the shape with the index along an axis.
    fn index(&mut self, axis: usize) {
        let extent = self.shape[axis];
        let start = self.random.pick(&[0, 0, 5, -3, 2_147_483_600, -2_147_483_648]);
        let mut name = self.define(
            &format!("arange {{start = {start}, end = {}}}", start + i64::from(extent)),
            &format!("int32[{extent}]"),
        );
        let mut shape = vec![extent];
        for other in 0..self.shape.len() {
            if other != axis {
                let at = if other < axis { 0 } else { shape.len() };
                let at = at.min(shape.len());
                shape.insert(at, 1);
                name =
                    self.define(&format!("expand_dims {name} {{axis = {at}}}"), &format!("int32{shape:?}"));
            }
        }
        let ty = self.ty("int32");
        let name = self.define(&format!("broadcast {name} {{shape = {:?}}}", self.shape), &ty);
        self.ints.push((name, "int32"));
    }

    fn constant(&mut self, dtype: &'static str) -> String {
        let value = self.random.pick(&CONSTANTS);
        let wide = self.define(&format!("constant {{value = {value}:int64}}"), "int64");
        let scalar = self.define(&format!("cast {wide} {{element = {dtype}, rounding = \"rtne\"}}"), dtype);
        let ty = self.ty(dtype);
        self.define(&format!("splat {scalar} {{shape = {:?}}}", self.shape), &ty)
    }

    fn step(&mut self) {
        let (x, dtype) = {
            let i = self.random.below(self.ints.len());
            self.ints[i].clone()
        };
        let same: Vec<String> =
            self.ints.iter().filter(|(_, ty)| *ty == dtype).map(|(name, _)| name.clone()).collect();
        let y = if self.random.below(2) == 0 {
            self.constant(dtype)
        } else {
            same[self.random.below(same.len())].clone()
        };
        let ty = self.ty(dtype);
        match self.random.below(12) {
            0..4 => {
                let function = self.random.pick(&[
                    "add", "sub", "mul", "shl", "min", "max", "and", "xor", "shr", "int_div", "int_rem",
                ]);
                let name = self.define(&format!("{function} {x}, {y}"), &ty);
                self.ints.push((name, dtype));
            }
            4 => {
                let function = self.random.pick(&["neg", "abs", "not"]);
                let name = self.define(&format!("{function} {x}"), &ty);
                self.ints.push((name, dtype));
            }
            5 => {
                let function = self.random.pick(&["int_div", "int_rem"]);
                let divisor = self.random.pick(&[0, 1, 2, 3, 7, 64, 100]);
                let scalar = self.define(&format!("constant {{value = {divisor}:{dtype}}}"), dtype);
                let divisor = self.define(&format!("splat {scalar} {{shape = {:?}}}", self.shape), &ty);
                let name = self.define(&format!("{function} {x}, {divisor}"), &ty);
                self.ints.push((name, dtype));
            }
            6 => {
                let to = self.random.pick(&DTYPES);
                let ty = self.ty(to);
                let name = self.define(&format!("cast {x} {{element = {to}, rounding = \"rtne\"}}"), &ty);
                self.ints.push((name, to));
            }
            7..10 => {
                let function = self.random.pick(&["lt", "le", "gt", "ge", "eq", "ne"]);
                let ty = self.ty("int1");
                let name = self.define(&format!("{function} {x}, {y}"), &ty);
                self.masks.push(name);
            }
            10 => self.mask_step(),
            _ => {
                let Some(mask) = self.masks.last().cloned() else { return };
                let name = self.define(&format!("select {mask}, {x}, {y}"), &ty);
                self.ints.push((name, dtype));
            }
        }
    }

    fn mask_step(&mut self) {
        if self.masks.is_empty() {
            return;
        }
        let (i, j) = (self.random.below(self.masks.len()), self.random.below(self.masks.len()));
        let (x, y) = (self.masks[i].clone(), self.masks[j].clone());
        let ty = self.ty("int1");
        let name = match self.random.below(4) {
            0 | 1 => self.define(&format!("and {x}, {y}"), &ty),
            2 => self.define(&format!("or {x}, {y}"), &ty),
            _ => self.define(&format!("not {x}"), &ty),
        };
        self.masks.push(name);
    }

    /// Adds a masked load from `%data`, and sometimes a store to the same elements.
    fn access(&mut self) {
        let i = self.random.below(self.ints.len());
        let (offset, dtype) = self.ints[i].clone();
        if dtype == "uint8" {
            return;
        }
        let (int_ty, mask_ty, pointer_ty) = (self.ty(dtype), self.ty("int1"), self.ty("*int32"));
        let shape = format!("{:?}", self.shape);
        let splat = |kernel: &mut Self, value: i64| {
            let scalar = kernel.define(&format!("constant {{value = {value}:{dtype}}}"), dtype);
            kernel.define(&format!("splat {scalar} {{shape = {shape}}}"), &int_ty)
        };
        let (zero, end) = (splat(self, 0), splat(self, 100));
        let low = self.define(&format!("ge {offset}, {zero}"), &mask_ty);
        let high = self.define(&format!("lt {offset}, {end}"), &mask_ty);
        let mut mask = self.define(&format!("and {low}, {high}"), &mask_ty);
        if !self.masks.is_empty() && self.random.below(2) == 0 {
            let other = self.random.below(self.masks.len());
            mask = self.define(&format!("and {mask}, {}", self.masks[other].clone()), &mask_ty);
        }
        let base = self.define(&format!("splat %data {{shape = {shape}}}"), &pointer_ty);
        let pointer = self.define(&format!("ptr_add {base}, {offset}"), &pointer_ty);
        let ty = self.ty("int32");
        let other = if self.random.below(2) == 0 {
            let others: Vec<String> =
                self.ints.iter().filter(|(_, ty)| *ty == "int32").map(|(name, _)| name.clone()).collect();
            format!(", {}", others[self.random.below(others.len())])
        } else {
            String::new()
        };
        let name = self.define(&format!("load {pointer}, {mask}{other} {LOAD}"), &ty);
        if self.random.below(3) == 0 {
            writeln!(self.text, "  store {pointer}, {name}, {mask} {STORE}").expect("it is a string");
        }
        self.ints.push((name, "int32"));
    }

    /// Adds a store of every tile. Returns the text and the number of stored elements.
    fn finish(mut self) -> (String, usize) {
        let elements: u32 = self.shape.iter().product();
        let shape = format!("{:?}", self.shape);
        let flat =
            self.define(&format!("arange {{start = 0, end = {elements}}}"), &format!("int32[{elements}]"));
        let ty = self.ty("int32");
        let index = self.define(&format!("reshape {flat} {{shape = {shape}}}"), &ty);
        let (wide, pointer_ty) = (self.ty("int64"), self.ty("*int64"));
        let names: Vec<String> =
            self.ints.iter().map(|(name, _)| name.clone()).chain(self.masks.clone()).collect();
        let mut first = 0;
        for name in &names {
            let value = self.define(&format!("cast {name} {{element = int64, rounding = \"rtne\"}}"), &wide);
            let start = self.define(&format!("constant {{value = {first}:int32}}"), "int32");
            let base = self.define(&format!("ptr_add %out, {start}"), "*int64");
            let base = self.define(&format!("splat {base} {{shape = {shape}}}"), &pointer_ty);
            let pointer = self.define(&format!("ptr_add {base}, {index}"), &pointer_ty);
            writeln!(self.text, "  store {pointer}, {value} {STORE}").expect("it is a string");
            first += elements;
        }
        self.text += "  return_values\n}\n";
        (self.text, first as usize)
    }
}

#[test]
fn symbolic_tiles_equal_dense_tiles() {
    for seed in 0..400 {
        let mut kernel = Kernel::new(seed);
        for _ in 0..14 {
            kernel.step();
        }
        for _ in 0..3 {
            kernel.access();
            kernel.step();
        }
        let (text, elements) = kernel.finish();
        let mut args: Vec<Arg> = vec![
            i64s(&vec![0; elements]),
            i32s(&(0..100).map(|i| i * 31 % 57 - 20).collect::<Vec<_>>()),
            int(16),
        ];
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&text, [1, 1, 1], &mut args)));
        assert!(outcome.is_ok(), "seed {seed}:\n{text}");
    }
}
