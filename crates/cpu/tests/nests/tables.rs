//! Generates kernels with every function, conversion, reduction and scan of an element type.

use std::fmt::Write;

use tilewright_fuzz::random::Random;
use tilewright_ir::{Dtype, Element, ElementwiseFn, Signature};

use crate::generate::{Case, Input, LOAD, STORE, element};

/// A kernel with a buffer for each tile that it loads or stores.
struct Kernel {
    random: Random,
    text: String,
    parameters: Vec<String>,
    inputs: Vec<Input>,
    extent: u32,
    content: Content,
}

/// The elements of buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Random elements, some of them extreme.
    All,
    /// Only the highest bit is set: -0, or the smallest signed integer.
    Constant,
    /// Each element is 0 or one of the other constants.
    Zeros,
    /// All bits except the highest are set: a NaN, or the greatest number.
    Nans,
}

impl Kernel {
    fn new(extent: u32) -> Self {
        let text = format!("  %i = arange {{start = 0, end = {extent}}} : int32[{extent}]\n");
        let random = Random(u64::from(extent));
        Self { random, text, parameters: Vec::new(), inputs: Vec::new(), extent, content: Content::All }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "  {line}").expect("a string takes it");
    }

    /// Adds a buffer. Returns the index of its parameter.
    fn buffer(&mut self, dtype: Dtype, count: usize) -> usize {
        let mut bytes = Vec::new();
        let highest = 1 << (dtype.bits() - 1);
        for _ in 0..count {
            let bits = match self.content {
                Content::All => element(&mut self.random, dtype),
                Content::Constant => highest,
                Content::Zeros => self.random.pick(&[0, highest, highest - 1]),
                Content::Nans => highest - 1,
            };
            bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.bytes()]);
        }
        let number = self.parameters.len();
        self.parameters.push(format!("%b{number}: *{dtype}"));
        self.inputs.push(Input::Buffer { dtype, bytes, start: 0, is_read_only: false });
        number
    }

    fn pointers(&mut self, dtype: Dtype) -> String {
        let (number, extent) = (self.buffer(dtype, self.extent as usize), self.extent);
        self.line(&format!("%s{number} = splat %b{number} {{shape = [{extent}]}} : *{dtype}[{extent}]"));
        self.line(&format!("%p{number} = ptr_add %s{number}, %i : *{dtype}[{extent}]"));
        format!("%p{number}")
    }

    fn load(&mut self, name: &str, dtype: Dtype) {
        let pointers = self.pointers(dtype);
        self.line(&format!("{name} = load {pointers} {LOAD} : {dtype}[{}]", self.extent));
    }

    fn store(&mut self, op: &str, dtype: Dtype) {
        let pointers = self.pointers(dtype);
        self.line(&format!("%r{} = {op} : {dtype}[{}]", &pointers[2..], self.extent));
        self.line(&format!("store {pointers}, %r{} {STORE}", &pointers[2..]));
    }

    fn finish(self) -> Case {
        let parameters = self.parameters.join(", ");
        Case {
            text: format!("kernel func0 @k({parameters}) {{\n{}  return_values\n}}\n", self.text),
            programs: 1,
            inputs: self.inputs,
            is_regular: true,
            repeats_elements: false,
        }
    }
}

pub fn functions(dtype: Dtype, extent: u32) -> Case {
    let mut kernel = Kernel::new(extent);
    kernel.load("%c", Dtype::I1);
    for name in ["%x", "%y", "%z"] {
        kernel.load(name, dtype);
    }
    let takes = |function: &&ElementwiseFn| function.info().domain.contains(Element::Value(dtype));
    for function in ElementwiseFn::ALL.iter().filter(takes) {
        let info = function.info();
        let (operands, result) = match info.signature {
            Signature::Select => ("%c, %x, %y", dtype),
            Signature::Compare => ("%x, %y", Dtype::I1),
            Signature::Same => (&"%x, %y, %z"[..4 * info.operands.len() - 2], dtype),
        };
        kernel.store(&format!("{} {operands}", info.name), result);
    }
    kernel.finish()
}

pub fn conversions(from: Dtype, extent: u32) -> Case {
    let mut kernel = Kernel::new(extent);
    kernel.load("%x", from);
    for &to in Dtype::ALL {
        for rounding in ["rtne", "rtz"] {
            kernel.store(&format!("cast %x {{element = {to}, rounding = \"{rounding}\"}}"), to);
        }
        if from.bits() == to.bits() {
            kernel.store(&format!("bitcast %x {{element = {to}}}"), to);
        }
    }
    kernel.finish()
}

/// Returns the functions by which elements are reduced and scanned.
pub fn combine_functions(dtype: Dtype) -> &'static [&'static str] {
    if dtype.is_float() {
        &["add", "mul", "min", "max", "min_nan", "max_nan"]
    } else {
        &["add", "mul", "min", "max", "and", "or", "xor"]
    }
}

/// Returns a kernel with all scans of an element type, in both directions. If `rows` is 1, it reads
/// a result again after a reduction. Otherwise, it scans the last axis of `rows` rows.
pub fn scans(dtype: Dtype, [rows, extent]: [u32; 2]) -> Case {
    let mut kernel = Kernel::new(extent * rows);
    kernel.load("%x", dtype);
    let flat = format!("{dtype}[{}]", extent * rows);
    let tile =
        format!("{dtype}{}", if rows > 1 { format!("[{rows}, {extent}]") } else { format!("[{extent}]") });
    let shape = &tile[dtype.name().len()..];
    kernel.line(&format!("%t = reshape %x {{shape = {shape}}} : {tile}"));
    let combine = |kernel: &mut Kernel, name: &str, op: &str, function: &str, result: &str| {
        kernel.line(&format!("{name} = {op} (%u: {dtype}, %v: {dtype}) {{"));
        kernel.line(&format!("  %w = {function} %u, %v : {dtype}"));
        kernel.line("  yield_values %w");
        kernel.line(&format!("}} : {result}"));
    };
    let axis = u32::from(rows > 1);
    for (index, function) in combine_functions(dtype).iter().enumerate() {
        for reverse in [false, true] {
            let name = format!("%q{index}{reverse}");
            let op = format!("scan %t {{axis = {axis}, reverse = {reverse}}}");
            combine(&mut kernel, &name, &op, function, &tile);
            kernel.line(&format!(
                "%f{index}{reverse} = reshape {name} {{shape = [{}]}} : {flat}",
                extent * rows
            ));
            let pointers = kernel.pointers(dtype);
            kernel.line(&format!("store {pointers}, %f{index}{reverse} {STORE}"));
        }
    }
    if rows == 1 {
        combine(&mut kernel, "%m", "reduce %q0false {axis = 0}", "max", dtype.name());
        kernel.line(&format!("%n = splat %m {{shape = {shape}}} : {tile}"));
        kernel.store("max %q0false, %n", dtype);
    }
    kernel.finish()
}

/// Returns a kernel with reductions of an element type, along the last axis of `rows` rows.
pub fn reductions(dtype: Dtype, functions: &[&str], [rows, extent]: [u32; 2], content: Content) -> Case {
    let mut kernel = Kernel::new(extent * rows);
    kernel.content = content;
    kernel.load("%x", dtype);
    let mut shape = format!("[{extent}]");
    let (mut tile, mut axis, mut result) = ("%x", 0, String::new());
    if rows > 1 {
        shape = format!("[{rows}, {extent}]");
        (axis, result) = (1, format!("[{rows}]"));
        kernel.line(&format!("%t = reshape %x {{shape = {shape}}} : {dtype}{shape}"));
        kernel.line(&format!("%j = arange {{start = 0, end = {rows}}} : int32[{rows}]"));
        tile = "%t";
    }
    for function in functions {
        let number = kernel.buffer(dtype, rows as usize);
        kernel.line(&format!("%q{number} = reduce {tile} {{axis = {axis}}} (%u: {dtype}, %v: {dtype}) {{"));
        kernel.line(&format!("  %w = {function} %u, %v : {dtype}"));
        kernel.line("  yield_values %w");
        kernel.line(&format!("}} : {dtype}{result}"));
        let mut pointer = format!("%b{number}");
        if rows > 1 {
            kernel.line(&format!("%s{number} = splat {pointer} {{shape = {result}}} : *{dtype}{result}"));
            kernel.line(&format!("%p{number} = ptr_add %s{number}, %j : *{dtype}{result}"));
            pointer = format!("%p{number}");
        }
        kernel.line(&format!("store {pointer}, %q{number} {STORE}"));
    }
    kernel.finish()
}
