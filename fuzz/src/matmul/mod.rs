//! Generates random programs that multiply matrices, as real kernels do. The programs have loops
//! over tiles with all loop options. They access operands through pointers, block pointers and
//! descriptors. There is also code around the multiplications.
//!
//! A program is source text, so that the frontend is tested too. Its numbers are small integers
//! with exact sums, so that all devices must produce the same bits. `operand` reads and writes
//! matrices. `body` generates the loops.

mod body;
mod operand;

use tilewright_ir::Dtype;

use crate::random::Random;
use operand::{Access, Matrix};

/// A program and its launch arguments.
#[derive(Debug)]
pub struct Program {
    /// The source of a module with the kernel `k`.
    pub source: String,
    /// The arguments with their names.
    pub arguments: Vec<(String, Argument)>,
    /// The numbers of programs along two axes.
    pub grid: [usize; 2],
    /// The launch option `num_warps`.
    pub num_warps: u32,
    /// The launch option `num_stages`.
    pub num_stages: u32,
}

/// The argument of a parameter.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A number.
    Number(i128),
    /// Memory.
    Memory {
        /// The element type.
        dtype: Dtype,
        /// The initial content.
        bytes: Vec<u8>,
        /// The distance in bytes of the first byte from the preceding multiple of 16.
        skew: usize,
        /// For a tensor descriptor that the host creates: the extents, the stride of the first
        /// axis, and the block shape.
        descriptor: Option<([i128; 2], i128, [u32; 2])>,
    },
}

struct Generator {
    random: Random,
    /// The statements of the kernel. `depth` is the indentation of the next statement.
    lines: Vec<String>,
    depth: usize,
    arguments: Vec<(String, Argument)>,
    /// True if every tile can be the box of a tensor map and loops request warp specialization.
    is_regular: bool,
}

/// The sizes of the multiplication in a program.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// The rows, columns and inner dimension of the tiles.
    block: [u32; 3],
    /// The rows, columns and inner dimension of the matrices.
    whole: [u32; 3],
}

/// Returns the program with this seed.
pub fn program(seed: u64) -> Program {
    let mut random = Random(seed ^ 0x9d2c_5680_0f1e_2d3c);
    let is_regular = random.chance(3);
    let num_warps = random.pick(if is_regular { &[4, 4, 8] } else { &[4, 4, 4, 8, 8, 2, 1] });
    let num_stages = 1 + random.below(4) as u32;
    let mut generator = Generator { random, lines: Vec::new(), depth: 1, arguments: Vec::new(), is_regular };
    let grid =
        if generator.random.chance(4) { generator.attention(num_warps) } else { generator.matmul(num_warps) };
    let Generator { lines, arguments, .. } = generator;
    let names: Vec<&str> = arguments.iter().map(|(name, _)| name.as_str()).collect();
    let source = format!(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k({}):\n{}\n",
        names.join(", "),
        lines.join("\n")
    );
    Program { source, arguments, grid, num_warps, num_stages }
}

/// Returns the bytes of elements that are random integers from `low` to `high`, inclusive.
fn numbers(random: &mut Random, dtype: Dtype, count: usize, [low, high]: [i64; 2]) -> Vec<u8> {
    let of = |number: i64| {
        if dtype.is_int() { number as u64 } else { crate::kernel::small_float(dtype, number) }
    };
    let span = (high - low + 1) as usize;
    (0..count)
        .flat_map(|_| of(low + random.below(span) as i64).to_le_bytes().into_iter().take(dtype.bytes()))
        .collect()
}

impl Generator {
    /// Appends a statement.
    fn say(&mut self, line: impl AsRef<str>) {
        self.lines.push(format!("{}{}", "    ".repeat(self.depth), line.as_ref()));
    }

    /// Returns a number as source text: an argument of the launch, or a literal.
    fn number(&mut self, name: &str, value: u32) -> String {
        if self.random.chance(5) {
            return value.to_string();
        }
        self.arguments.push((name.to_owned(), Argument::Number(value.into())));
        name.to_owned()
    }

    /// Returns the options of a loop as source text.
    fn options(&mut self) -> String {
        let mut options = Vec::new();
        let random = &mut self.random;
        if random.chance(2) {
            options.push(format!(", num_stages={}", 1 + random.below(4)));
        }
        for (name, one_in) in
            [("warp_specialize", 2), ("flatten", 4), ("disallow_acc_multi_buffer", 4), ("disable_licm", 8)]
        {
            let is_asked = self.is_regular && name == "warp_specialize";
            if is_asked || random.chance(one_in) {
                options.push(format!(", {name}=True"));
            }
        }
        if random.chance(4) {
            options.push(format!(", loop_unroll_factor={}", 1 + random.below(3)));
        }
        options.concat()
    }

    /// Returns an extent of at most `most` tiles. The last tile may be partial.
    fn extent(&mut self, block: u32, most: usize) -> u32 {
        let whole = block * (1 + self.random.below(most) as u32);
        match self.random.below(4) {
            0 => whole - self.random.below(block as usize) as u32,
            1 => (whole - self.random.below(block as usize) as u32).next_multiple_of(16),
            _ => whole,
        }
    }

    fn sizes(&mut self, num_warps: u32) -> Sizes {
        let random = &mut self.random;
        let rows: &[u32] = if num_warps == 8 { &[128, 128, 64, 32] } else { &[64, 64, 64, 128, 32, 16] };
        let block = [random.pick(rows), random.pick(&[16, 32, 64, 64]), random.pick(&[16, 32, 32, 64])];
        let mut whole = [0; 3];
        for (axis, most) in [2, 2, 4].into_iter().enumerate() {
            whole[axis] = self.extent(block[axis], most);
        }
        if self.random.chance(16) {
            whole[2] = 0;
        }
        Sizes { block, whole }
    }

    /// Adds a matrix argument. Inputs are random numbers in `numbers_between`. Outputs are 0.
    fn matrix(
        &mut self,
        name: &'static str,
        dtype: Dtype,
        block: [u32; 2],
        extents: [u32; 2],
        numbers_between: Option<[i64; 2]>,
    ) -> Matrix {
        let is_transposed = numbers_between.is_some() && self.random.chance(3);
        let access = self.random.pick(Access::ALL);
        let [rows, columns] = if is_transposed { [extents[1], extents[0]] } else { extents };
        let is_described = matches!(access, Access::Descriptor | Access::HostDescriptor);
        let mut stride = columns.max(1);
        if is_described || self.is_regular || self.random.chance(2) {
            stride = stride.next_multiple_of(16) + 16 * self.random.below(2) as u32;
        } else if self.random.chance(4) {
            stride += self.random.below(4) as u32;
        }
        let count = (rows.max(1) * stride) as usize;
        let bytes = match numbers_between {
            Some(between) => numbers(&mut self.random, dtype, count, between),
            None => vec![0; count * dtype.bytes()],
        };
        let skew = if is_described || self.is_regular || !self.random.chance(6) { 0 } else { dtype.bytes() };
        let memory = [if is_transposed { [block[1], block[0]] } else { block }, [rows, columns]];
        let is_host = access == Access::HostDescriptor;
        let descriptor = is_host.then(|| (memory[1].map(i128::from), i128::from(stride), memory[0]));
        let suffix = if is_host { "desc" } else { "ptr" };
        let argument = Argument::Memory { dtype, bytes, skew, descriptor };
        self.arguments.push((format!("{name}_{suffix}"), argument));
        let stride_text = if is_host { String::new() } else { self.number(&format!("{name}_s"), stride) };
        Matrix { name, block, is_transposed, access, stride: stride_text, memory, dtype }
    }
}
