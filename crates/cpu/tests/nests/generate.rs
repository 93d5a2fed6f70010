//! Generates random kernels in IR text, with arguments.

use std::fmt::Write;

use tilewright_fuzz::random::Random;
use tilewright_ir::{Domain, Dtype, DtypeKind, Element, ElementwiseFn, Signature};

mod accesses;
mod reductions;

pub const LOAD: &str = "{cache = \"\", eviction = \"\", volatile = false}";
pub const STORE: &str = "{cache = \"\", eviction = \"\"}";

/// The extents of tiles of one axis.
pub const EXTENTS: [u32; 16] = [1, 2, 3, 5, 16, 17, 31, 64, 100, 128, 200, 512, 781, 1000, 1024, 2000];

/// The maximum number of elements of a tile with several axes.
const MAX_ELEMENTS: u32 = 6000;

/// The accessible elements, relative to a pointer argument.
const MEMORY: (i64, i64) = (-5000, 200_000);

/// The maximum offset whose value the generator does not know.
const MAX_DYNAMIC: i64 = 7;

#[derive(Clone)]
pub enum Input {
    /// The memory of a tensor.
    Buffer {
        /// The type of the elements.
        dtype: Dtype,
        bytes: Vec<u8>,
        /// The offset of the pointer argument from the first byte of the memory.
        start: i64,
        is_read_only: bool,
    },
    Scalar(u64),
}

/// A kernel with its launch.
pub struct Case {
    pub text: String,
    pub programs: u32,
    pub inputs: Vec<Input>,
    /// True if machine code must execute each nest: accesses are in bounds, and no store overlaps
    /// another access.
    pub is_regular: bool,
    /// True if a store writes an element twice, in an order that is unspecified.
    pub repeats_elements: bool,
}

/// How the accesses of a kernel may overlap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// No store writes to the buffers of loads, and the elements of different stores are disjoint.
    Separate,
    /// All accesses of a buffer begin at the same element, as in a kernel that overwrites its
    /// operand.
    InPlace,
    /// Accesses overlap in any way.
    Any,
}

#[derive(Clone, PartialEq, Eq)]
struct Value {
    name: String,
    dtype: Dtype,
    shape: Vec<u32>,
    /// True if the bits of every element are defined, including those of a NaN.
    is_exact: bool,
}

/// The elements of a tile in each execution: one for each program and iteration.
type Known<T> = Vec<Vec<T>>;

/// An index tile.
#[derive(Clone)]
struct Index {
    name: String,
    dtype: Dtype,
    shape: Vec<u32>,
    values: Known<i64>,
}

/// A mask, and its elements if the generator knows them.
#[derive(Clone)]
struct Mask {
    name: String,
    truth: Option<Known<bool>>,
    /// True if the mask is known to be true in one range of indices and false elsewhere.
    is_range: bool,
}

struct Buffer {
    name: String,
    dtype: Dtype,
    /// The first accessed element. `high` is the index after the last accessed element.
    low: i64,
    high: i64,
    is_stored: bool,
}

struct Generator {
    random: Random,
    text: String,
    count: usize,
    placement: Placement,
    programs: u32,
    iterations: u32,
    /// The name of the iteration variable, while the generator is in the loop.
    iteration: Option<String>,
    shapes: Vec<Vec<u32>>,
    dtypes: Vec<Dtype>,
    values: Vec<Value>,
    masks: Vec<(Vec<u32>, Mask)>,
    /// The results of reductions along the last axis.
    reductions: Vec<Value>,
    buffers: Vec<Buffer>,
    scalars: Vec<(String, Dtype, u64)>,
    is_regular: bool,
    repeats_elements: bool,
    /// The distance in elements between the rows of most accesses.
    pitch: Option<i64>,
    /// True if the access under construction has an unknown offset up to [`MAX_DYNAMIC`].
    dynamic: bool,
}

pub fn generate(seed: u64) -> Case {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let placement = random.pick(&[
        Placement::Separate,
        Placement::Separate,
        Placement::Separate,
        Placement::InPlace,
        Placement::Any,
    ]);
    let programs = random.pick(&[1, 1, 2, 3]);
    let (has_loop, has_branch) = (random.chance(8), random.chance(12));
    let iterations = if has_loop { random.pick(&[2, 3, 5]) } else { 1 };
    let shapes = shapes(&mut random);
    let mut dtypes = vec![Dtype::I32];
    for _ in 0..=random.below(3) {
        dtypes.push(random.pick(Dtype::ALL));
    }
    if random.chance(2) {
        dtypes.push(Dtype::F32);
    }
    let mut pitch = None;
    if placement != Placement::Separate {
        // With few element types, most accesses are to the same buffer.
        dtypes.swap(0, 1);
        dtypes.truncate(1 + random.below(2));
        let width = i64::from(*shapes[0].last().unwrap_or(&1));
        let widths = [0, width / 2, width, 2 * width, 2 * width + 3, 3 * width];
        pitch = (shapes[0].len() > 1).then(|| random.pick(&widths));
    }
    let mut generator = Generator {
        random,
        text: String::new(),
        count: 0,
        placement,
        programs,
        iterations,
        iteration: None,
        shapes,
        dtypes,
        values: Vec::new(),
        masks: Vec::new(),
        reductions: Vec::new(),
        buffers: Vec::new(),
        scalars: Vec::new(),
        is_regular: placement == Placement::Separate && !has_loop && !has_branch,
        repeats_elements: false,
        dynamic: false,
        pitch,
    };
    generator.kernel(has_loop, has_branch);
    generator.finish()
}

/// Returns the shapes of a kernel's tiles. The first shape has the most axes.
fn shapes(random: &mut Random) -> Vec<Vec<u32>> {
    let lanes = random.pick(&EXTENTS);
    match random.below(8) {
        0..3 => vec![vec![lanes]],
        3 => vec![vec![lanes], vec![random.pick(&EXTENTS)]],
        4..7 => {
            let most = (MAX_ELEMENTS / lanes).clamp(1, 9) as usize;
            let rows = random.below(most) as u32 + 1;
            vec![vec![rows, lanes], vec![lanes], vec![rows]]
        }
        _ => {
            let most = (MAX_ELEMENTS / lanes).clamp(1, 9) as usize;
            let rows = random.below(most) as u32 + 1;
            let most = (MAX_ELEMENTS / lanes / rows).clamp(1, 9) as usize;
            let planes = random.below(most) as u32 + 1;
            vec![vec![planes, rows, lanes], vec![rows, lanes], vec![lanes], vec![planes, rows]]
        }
    }
}

impl Generator {
    fn kernel(&mut self, has_loop: bool, has_branch: bool) {
        self.line("%pid = program_id {axis = 0} : int32");
        self.line("%other = program_id {axis = 1} : int32");
        self.line("%count = num_programs {axis = 0} : int32");
        for name in ["%other", "%count", "%pid"] {
            self.push_scalar(name, Dtype::I32);
        }
        self.load();
        self.steps(6);
        if has_loop {
            self.repeat();
        }
        if has_branch {
            self.branch();
        }
        self.steps(10);
        for _ in 0..=self.random.below(3) {
            self.store();
        }
    }

    fn steps(&mut self, most: usize) {
        for _ in 0..=self.random.below(most) {
            match self.random.below(22) {
                0..4 => self.load(),
                4..6 => self.store(),
                6..13 => self.function(),
                13..15 => self.cast(),
                15 if self.random.chance(3) => self.transpose(),
                15 => self.bitcast(),
                16 => {
                    let shape = self.shape();
                    self.mask(&shape);
                }
                17 | 18 if self.random.chance(5) => self.scan(),
                17 | 18 => self.reduce(),
                _ => self.function_of_reduction(),
            }
        }
    }

    /// Adds a loop that carries tiles and scalars.
    fn repeat(&mut self) {
        let mut carried = Vec::new();
        for _ in 0..self.random.below(3) {
            let dtype = self.dtype();
            let shape = if self.random.chance(3) { Vec::new() } else { self.shape() };
            carried.push(self.operand(dtype, &shape));
        }
        let [low, high, step] = [0, i64::from(self.iterations), 1].map(|x| self.constant_int(Dtype::I32, x));
        self.count += 1;
        let number = self.count;
        let name = |index: usize| format!("%l{number}_{index}");
        let parameters: Vec<Value> = carried
            .iter()
            .enumerate()
            .map(|(index, value)| Value { name: name(index), is_exact: false, ..value.clone() })
            .collect();
        let mut header = format!("for_loop {low}, {high}, {step}");
        for value in &carried {
            write!(header, ", {}", value.name).expect("a string takes it");
        }
        write!(header, " {{options = \"stages=0 unroll=0\"}} (%iv: int32").expect("a string takes it");
        for value in &parameters {
            write!(header, ", {}: {}", value.name, ty(value.dtype, &value.shape)).expect("a string takes it");
        }
        header.push_str(") {");
        let outer = (std::mem::take(&mut self.text), self.values.len(), self.masks.len());
        self.iteration = Some("%iv".to_owned());
        self.push_scalar("%iv", Dtype::I32);
        self.values.extend(parameters);
        self.steps(8);
        let yields: Vec<String> =
            carried.iter().map(|value| self.operand(value.dtype, &value.shape).name).collect();
        self.iteration = None;
        let body = std::mem::replace(&mut self.text, outer.0);
        self.values.truncate(outer.1);
        self.masks.truncate(outer.2);
        let results: Vec<Value> = carried
            .iter()
            .enumerate()
            .map(|(index, value)| Value {
                name: format!("%r{number}_{index}"),
                is_exact: false,
                ..value.clone()
            })
            .collect();
        let names: Vec<&str> = results.iter().map(|value| value.name.as_str()).collect();
        let types: Vec<String> = results.iter().map(|value| ty(value.dtype, &value.shape)).collect();
        let (left, right) = if names.is_empty() {
            (String::new(), String::new())
        } else {
            (format!("{} = ", names.join(", ")), format!(" : {}", types.join(", ")))
        };
        self.line(&format!("{left}{header}"));
        self.text.push_str(&body);
        self.line(&format!("yield_values {}", yields.join(", ")));
        self.line(&format!("}}{right}"));
        self.values.extend(results);
    }

    /// Adds a branch that yields a scalar or a tile.
    fn branch(&mut self) {
        let (dtype, shape) = (self.dtype(), self.shape());
        let condition = self.mask(&[]).name;
        let mut regions = Vec::new();
        for _ in 0..2 {
            let outer = (std::mem::take(&mut self.text), self.values.len(), self.masks.len());
            self.steps(5);
            let value = self.operand(dtype, &shape).name;
            self.line(&format!("yield_values {value}"));
            regions.push(std::mem::replace(&mut self.text, outer.0));
            self.values.truncate(outer.1);
            self.masks.truncate(outer.2);
        }
        self.count += 1;
        let name = format!("%v{}", self.count);
        self.line(&format!("{name} = if_else {condition} () {{"));
        self.text.push_str(&regions[0]);
        self.line("} () {");
        self.text.push_str(&regions[1]);
        self.line(&format!("}} : {}", ty(dtype, &shape)));
        self.values.push(Value { name, dtype, shape, is_exact: false });
    }

    fn push_scalar(&mut self, name: &str, dtype: Dtype) {
        self.values.push(Value { name: name.to_owned(), dtype, shape: Vec::new(), is_exact: true });
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "  {}", line.trim_end()).expect("a string takes it");
    }

    fn define(&mut self, op: &str, ty: &str) -> String {
        self.count += 1;
        let name = format!("%v{}", self.count);
        self.line(&format!("{name} = {op} : {ty}"));
        name
    }

    fn define_value(&mut self, op: &str, dtype: Dtype, shape: &[u32], is_exact: bool) -> Value {
        let name = self.define(op, &ty(dtype, shape));
        let value = Value { name, dtype, shape: shape.to_vec(), is_exact };
        self.values.push(value.clone());
        value
    }

    fn shape(&mut self) -> Vec<u32> {
        match self.random.below(10) {
            0 => Vec::new(),
            1..4 => {
                let index = self.random.below(self.shapes.len());
                self.shapes[index].clone()
            }
            _ => self.shapes[0].clone(),
        }
    }

    fn dtype(&mut self) -> Dtype {
        let index = self.random.below(self.dtypes.len());
        self.dtypes[index]
    }

    fn constant_int(&mut self, dtype: Dtype, value: i64) -> String {
        let text = int_text(dtype, value);
        self.define(&format!("constant {{value = {text}:{dtype}}}"), dtype.name())
    }

    fn splat(&mut self, scalar: &str, element: &str, shape: &[u32]) -> String {
        if shape.is_empty() {
            return scalar.to_owned();
        }
        self.define(&format!("splat {scalar} {{shape = {shape:?}}}"), &format!("{element}{shape:?}"))
    }

    /// Returns a scalar: a parameter or a constant. Some constants are extreme.
    fn scalar(&mut self, dtype: Dtype) -> Value {
        let bits = element(&mut self.random, dtype);
        let name = if self.random.chance(3) {
            self.count += 1;
            let name = format!("%s{}", self.count);
            self.scalars.push((name.clone(), dtype, bits));
            name
        } else {
            let text = if dtype.is_float() {
                format!("0x{bits:0width$x}", width = dtype.bytes() * 2)
            } else if dtype.is_bool() {
                format!("{}", bits & 1)
            } else {
                int_text(dtype, bits.cast_signed())
            };
            self.define(&format!("constant {{value = {text}:{dtype}}}"), dtype.name())
        };
        let value = Value { name, dtype, shape: Vec::new(), is_exact: true };
        self.values.push(value.clone());
        value
    }

    /// Returns a value of this type and shape, usually a recent one.
    fn operand(&mut self, dtype: Dtype, shape: &[u32]) -> Value {
        let same: Vec<&Value> =
            self.values.iter().filter(|value| value.dtype == dtype && value.shape == shape).collect();
        if !same.is_empty() && !self.random.chance(5) {
            // If accesses may overlap, old values are as likely as recent ones. Steps after a store
            // then use values from before it.
            let mut back = self.random.below(same.len());
            if self.placement == Placement::Separate {
                back = back.min(self.random.below(same.len()));
            }
            return same[same.len() - 1 - back].clone();
        }
        if shape.is_empty() {
            return self.scalar(dtype);
        }
        match self.random.below(8) {
            0 | 1 => {
                let others: Vec<&Value> = self.values.iter().filter(|value| value.shape == shape).collect();
                if !others.is_empty() {
                    let other = others[self.random.below(others.len())].clone();
                    return self.cast_value(&other, dtype);
                }
            }
            2 | 3 => {
                if let Some(value) = self.spread_value(dtype, shape) {
                    return value;
                }
            }
            4 => return self.load_value(dtype, shape),
            5 => {
                // The conversion of an index may wrap.
                self.is_regular = false;
                let strides = contiguous(shape);
                let index = self.index(shape, &strides, true);
                let value =
                    Value { name: index.name, dtype: index.dtype, shape: shape.to_vec(), is_exact: true };
                return if value.dtype == dtype { value } else { self.cast_value(&value, dtype) };
            }
            _ => {}
        }
        let scalar = self.operand(dtype, &[]);
        let name = self.splat(&scalar.name, dtype.name(), shape);
        let value = Value { name, dtype, shape: shape.to_vec(), is_exact: scalar.is_exact };
        self.values.push(value.clone());
        value
    }

    /// Returns the axis of a larger shape to which a broadcast maps each axis of a smaller shape.
    fn axes(small: &[u32], large: &[u32]) -> Option<Vec<usize>> {
        if small.is_empty() || small.len() >= large.len() {
            return None;
        }
        let last = large.len() - small.len();
        if small == &large[last..] {
            return Some((last..large.len()).collect());
        }
        let count = small.len();
        (small == &large[..count]).then(|| (0..count).collect())
    }

    /// Broadcasts a value of a smaller shape.
    fn spread_value(&mut self, dtype: Dtype, shape: &[u32]) -> Option<Value> {
        let smaller: Vec<Vec<u32>> =
            self.shapes.iter().filter(|small| Self::axes(small, shape).is_some()).cloned().collect();
        if smaller.is_empty() {
            return None;
        }
        let small = &smaller[self.random.below(smaller.len())];
        let axes = Self::axes(small, shape)?;
        let value = self.operand(dtype, small);
        let name = self.spread(&value.name, dtype.name(), small, &axes, shape);
        let value = Value { name, dtype, shape: shape.to_vec(), is_exact: value.is_exact };
        self.values.push(value.clone());
        Some(value)
    }

    /// Broadcasts a tile to a larger shape, in which its axes become `axes`.
    fn spread(&mut self, name: &str, element: &str, small: &[u32], axes: &[usize], large: &[u32]) -> String {
        let mut name = name.to_owned();
        let mut shape = small.to_vec();
        if self.random.chance(5) {
            let expanded: Vec<u32> =
                (0..large.len()).map(|axis| if axes.contains(&axis) { large[axis] } else { 1 }).collect();
            name = self.define(
                &format!("reshape {name} {{shape = {expanded:?}}}"),
                &format!("{element}{expanded:?}"),
            );
            shape = expanded;
        } else {
            for axis in 0..large.len() {
                if !axes.contains(&axis) {
                    shape.insert(axis, 1);
                    name = self.define(
                        &format!("expand_dims {name} {{axis = {axis}}}"),
                        &format!("{element}{shape:?}"),
                    );
                }
            }
        }
        if shape == large {
            return name;
        }
        self.define(&format!("broadcast {name} {{shape = {large:?}}}"), &format!("{element}{large:?}"))
    }

    /// Replaces NaN by a number whose bits are defined.
    fn without_nan(&mut self, value: &Value) -> Value {
        if value.is_exact || !value.dtype.is_float() {
            return value.clone();
        }
        let (dtype, shape) = (value.dtype, &value.shape[..]);
        let number = self.define(&format!("constant {{value = 0x00:{dtype}}}"), dtype.name());
        let number = self.splat(&number, dtype.name(), shape);
        let is_nan = self.define(&format!("ne {0}, {0}", value.name), &ty(Dtype::I1, shape));
        self.define_value(&format!("select {is_nan}, {number}, {}", value.name), dtype, shape, true)
    }

    fn cast_value(&mut self, value: &Value, to: Dtype) -> Value {
        let value = if to == Dtype::F8E4B15 { self.without_nan(value) } else { value.clone() };
        let rounding = if self.random.chance(6) { "rtz" } else { "rtne" };
        let op = format!("cast {} {{element = {to}, rounding = \"{rounding}\"}}", value.name);
        let is_exact = !to.is_float() || value.dtype.is_int();
        self.define_value(&op, to, &value.shape, is_exact)
    }

    fn cast(&mut self) {
        let shape = self.shape();
        let from = self.dtype();
        let value = self.operand(from, &shape);
        let to = if self.random.chance(2) { self.dtype() } else { self.random.pick(Dtype::ALL) };
        self.cast_value(&value, to);
    }

    fn bitcast(&mut self) {
        let (shape, from) = (self.shape(), self.dtype());
        let same: Vec<Dtype> = Dtype::ALL.iter().copied().filter(|to| to.bits() == from.bits()).collect();
        let to = self.random.pick(&same);
        let value = self.operand(from, &shape);
        let value = self.without_nan(&value);
        self.define_value(&format!("bitcast {} {{element = {to}}}", value.name), to, &shape, true);
    }

    /// Swaps two axes of a tile, negates the elements, and swaps the axes back.
    fn transpose(&mut self) {
        let (dtype, shape) = (self.dtype(), self.shape());
        if shape.len() < 2 {
            return;
        }
        let value = self.operand(dtype, &shape);
        let mut permutation: Vec<usize> = (0..shape.len()).collect();
        let (x, y) = (self.random.below(shape.len()), self.random.below(shape.len()));
        permutation.swap(x, y);
        let mut swapped = shape.clone();
        swapped.swap(x, y);
        let op = |name: &str| format!("transpose {name} {{permutation = {permutation:?}}}");
        let name = self.define(&op(&value.name), &ty(dtype, &swapped));
        let negated = self.define(&format!("neg {name}"), &ty(dtype, &swapped));
        self.define_value(&op(&negated), dtype, &shape, false);
    }

    fn function(&mut self) {
        let (shape, dtype) = (self.shape(), self.dtype());
        let functions: Vec<ElementwiseFn> = ElementwiseFn::ALL
            .iter()
            .copied()
            .filter(|function| function.info().domain.contains(Element::Value(dtype)))
            .filter(|function| {
                // Divisions may end nests, and other methods of the generator add comparisons and
                // selections. These functions are therefore rare here.
                let is_rare = function.info().family == "Division" || function.info().domain == Domain::Any;
                !is_rare || self.random.chance(4)
            })
            .collect();
        let function = self.random.pick(&functions);
        let info = function.info();
        let mut operands = Vec::new();
        for index in 0..info.operands.len() {
            let is_condition = info.signature == Signature::Select && index == 0;
            let operand = if is_condition {
                let mask = self.mask(&shape);
                mask.name
            } else {
                self.operand(dtype, &shape).name
            };
            operands.push(operand);
        }
        let result = if info.signature == Signature::Compare { Dtype::I1 } else { dtype };
        let op = format!("{} {}", info.name, operands.join(", "));
        self.define_value(&op, result, &shape, !result.is_float());
    }

    fn finish(mut self) -> Case {
        let is_faulty = self.random.chance(12);
        let mut parameters = Vec::new();
        let mut inputs = Vec::new();
        for buffer in &self.buffers {
            parameters.push(format!("{}: *{}", buffer.name, buffer.dtype));
            let (mut low, mut high) = (buffer.low, buffer.high.max(buffer.low + 1));
            if is_faulty && self.random.chance(2) {
                let cut = self.random.pick(&[1, 2, 17, 100, 1000]).min(high - low - 1);
                if self.random.chance(2) { low += cut } else { high -= cut }
            }
            let is_read_only = is_faulty && self.random.chance(5);
            let dtype = buffer.dtype;
            let style = self.random.below(5);
            // In style 2, almost all elements of the buffer have these bits, for example those of a
            // negative zero.
            let constant = element(&mut self.random, dtype);
            let mut bytes = Vec::new();
            for _ in low..high {
                let bits = match style {
                    0 => self.random.bits(),
                    2 if !self.random.chance(200) => constant,
                    1 => element(&mut self.random, dtype),
                    _ if self.random.chance(40) => element(&mut self.random, dtype),
                    _ => medium(&mut self.random, dtype),
                };
                bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.bytes()]);
            }
            inputs.push(Input::Buffer { dtype, bytes, start: -low * dtype.bytes() as i64, is_read_only });
        }
        for (name, dtype, bits) in &self.scalars {
            parameters.push(format!("{name}: {dtype}"));
            inputs.push(Input::Scalar(*bits));
        }
        let text =
            format!("kernel func0 @k({}) {{\n{}  return_values\n}}\n", parameters.join(", "), self.text);
        Case {
            text,
            programs: self.programs,
            inputs,
            is_regular: self.is_regular && !is_faulty,
            repeats_elements: self.repeats_elements,
        }
    }
}

fn ty(dtype: Dtype, shape: &[u32]) -> String {
    if shape.is_empty() { dtype.name().to_owned() } else { format!("{dtype}{shape:?}") }
}

/// Returns the strides of a tile whose rows are contiguous.
fn contiguous(shape: &[u32]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * i64::from(shape[axis + 1]);
    }
    strides
}

/// Wraps a number to the range of an integer type.
fn wrapped(dtype: Dtype, value: i64) -> i64 {
    let unused = 64 - dtype.bits();
    if dtype.is_signed() {
        value << unused >> unused
    } else {
        (value.cast_unsigned() << unused >> unused).cast_signed()
    }
}

fn int_text(dtype: Dtype, value: i64) -> String {
    let value = wrapped(dtype, value);
    if dtype == Dtype::U64 { value.cast_unsigned().to_string() } else { value.to_string() }
}

fn one(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::F64 => 1023 << 52,
        Dtype::F32 => 127 << 23,
        Dtype::BF16 => 127 << 7,
        Dtype::F16 => 15 << 10,
        Dtype::F8E5 => 15 << 2,
        Dtype::F8E4NV => 7 << 3,
        Dtype::F8E4B15 => 15 << 3,
        Dtype::F8E4B8 | Dtype::F8E5B16 => 0x40,
        // tidy: wildcard because the other types are integers
        _ => 1,
    }
}

/// Returns the bits of a number of medium size.
fn medium(random: &mut Random, dtype: Dtype) -> u64 {
    if dtype.is_int() {
        return (random.below(41) as i64 - 20).cast_unsigned();
    }
    let sign = (random.bits() & 1) << (dtype.bits() - 1);
    let mantissa = match dtype {
        Dtype::F64 => 52,
        Dtype::F32 => 23,
        Dtype::BF16 => 7,
        Dtype::F16 => 10,
        Dtype::F8E5 | Dtype::F8E5B16 => 2,
        // tidy: wildcard because the other narrow floats have a mantissa of 3 bits
        _ => 3,
    };
    let most = if mantissa == 3 && dtype == Dtype::F8E4B15 { 0 } else { 3 };
    let exponent = random.below(4 + most) as u64;
    let magnitude = one(dtype) - (3 << mantissa) + (exponent << mantissa);
    sign | (magnitude + (random.bits() & ((1 << mantissa) - 1)))
}

/// Returns the bits of an element, which is often extreme.
pub fn element(random: &mut Random, dtype: Dtype) -> u64 {
    let sign = 1_u64 << (dtype.bits() - 1);
    let low = u64::MAX >> (64 - dtype.bits());
    if dtype.is_int() {
        let width = u64::from(dtype.bits());
        let extreme =
            [0, 1, 2, 3, low, low - 1, sign, sign - 1, sign + 1, width, width - 1, width + 1, 100, 1 << 31];
        return if random.chance(4) { random.bits() } else { random.pick(&extreme) } & low;
    }
    let infinity = match dtype {
        Dtype::F64 => 0x7ff << 52,
        Dtype::F32 => 0xff << 23,
        Dtype::BF16 => 0xff << 7,
        Dtype::F16 => 0x1f << 10,
        // tidy: wildcard because these bits are those of a NaN, an infinity or a large number
        _ => 0x7c,
    };
    let magnitudes = [0, 0, 1, 2, infinity, infinity - 1, infinity + 1, sign - 1, one(dtype), one(dtype) + 1];
    match random.below(3) {
        0 => medium(random, dtype),
        1 => random.bits() & low,
        _ => random.pick(&magnitudes) | if random.chance(2) { sign } else { 0 },
    }
}
