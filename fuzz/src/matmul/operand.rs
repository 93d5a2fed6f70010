//! Generates the accesses to the tiles of matrices in memory.

use tilewright_ir::Dtype;

use super::Generator;

/// The method of access to the tiles of a matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Pointers that advance from tile to tile.
    Moved,
    /// Pointers that are computed anew for each tile.
    Computed,
    /// Pointers from indices that wrap around at the end of an axis.
    Wrapped,
    /// A block pointer.
    Block,
    /// A descriptor that the kernel creates.
    Descriptor,
    /// A descriptor that the host creates.
    HostDescriptor,
}

impl Access {
    pub const ALL: &[Self] =
        &[Self::Moved, Self::Computed, Self::Wrapped, Self::Block, Self::Descriptor, Self::HostDescriptor];
}

/// A matrix argument.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub name: &'static str,
    /// The shape of a tile in the program.
    pub block: [u32; 2],
    /// True if the columns of the matrix are contiguous in memory.
    pub is_transposed: bool,
    pub access: Access,
    /// The row stride in memory, as source text.
    pub stride: String,
    /// The shape of a tile and the shape of the matrix, in memory order.
    pub memory: [[u32; 2]; 2],
    pub dtype: Dtype,
}

impl Matrix {
    /// Returns the shape of the matrix in the program.
    fn extents(&self) -> [u32; 2] {
        let [_, [rows, columns]] = self.memory;
        if self.is_transposed { [columns, rows] } else { [rows, columns] }
    }

    /// Returns the offsets of the tile with these rows and columns, as source text.
    fn offsets(&self, [rows, columns]: [&str; 2]) -> String {
        let stride = &self.stride;
        if self.is_transposed {
            format!("{rows}[:, None] + {columns}[None, :] * {stride}")
        } else {
            format!("{rows}[:, None] * {stride} + {columns}[None, :]")
        }
    }

    /// Returns a row and a column in memory order.
    fn in_memory(&self, [row, column]: [&str; 2]) -> String {
        if self.is_transposed { format!("{column}, {row}") } else { format!("{row}, {column}") }
    }

    /// Generates the indices of a tile along its axes.
    fn indices(&self, generator: &mut Generator, firsts: [&str; 2], wraps: [bool; 2]) {
        for axis in 0..2 {
            let (name, first, block) = (self.name, firsts[axis], self.block[axis]);
            let letter = ["r", "c"][axis];
            let index = format!("{first} + tl.arange(0, {block})");
            let extent = self.extents()[axis].max(1);
            let index = if wraps[axis] { format!("({index}) % {extent}") } else { index };
            generator.say(format!("{name}_{letter} = {index}"));
        }
    }

    /// Returns the mask that keeps accesses in bounds. The mask may be empty if all tiles are
    /// complete.
    fn mask(&self, generator: &mut Generator, wraps: [bool; 2]) -> String {
        let name = self.name;
        let extents = self.extents();
        let bound = |axis: usize| {
            let letter = ["r[:, None]", "c[None, :]"][axis];
            format!("({name}_{letter} < {})", extents[axis])
        };
        let is_needed = |axis: usize| !wraps[axis] && !extents[axis].is_multiple_of(self.block[axis]);
        let always = generator.random.chance(3);
        let masked: Vec<String> =
            (0..2).filter(|&axis| is_needed(axis) || always && !wraps[axis]).map(bound).collect();
        masked.join(" & ")
    }

    /// Generates the statements before a loop in which the tile moves along an axis. The first tile
    /// is at this row and column.
    pub fn prepare(&self, generator: &mut Generator, firsts: [&str; 2]) {
        let Self { name, stride, memory: [block, extents], .. } = self;
        match self.access {
            Access::Moved => {
                self.indices(generator, firsts, [false; 2]);
                let offsets = self.offsets([&format!("{name}_r"), &format!("{name}_c")]);
                generator.say(format!("{name}_ptrs = {name}_ptr + ({offsets})"));
            }
            Access::Computed | Access::Wrapped | Access::HostDescriptor => {}
            Access::Block => {
                let offsets = self.in_memory(firsts);
                generator.say(format!(
                    "{name}_block = tl.make_block_ptr({name}_ptr, shape={extents:?}, strides=[{stride}, 1], \
                     offsets=[{offsets}], block_shape={block:?}, order=[1, 0])"
                ));
            }
            Access::Descriptor => generator.say(format!(
                "{name}_desc = tl.make_tensor_descriptor({name}_ptr, shape={extents:?}, strides=[{stride}, 1], \
                 block_shape={block:?})"
            )),
        }
    }

    /// Loads the tile with this first row and column. The name of the matrix is also the variable
    /// for the tile. `moves` is the axis of the loop.
    pub fn load(&self, generator: &mut Generator, firsts: [&str; 2], moves: Option<usize>) {
        let name = self.name;
        let turned = if self.is_transposed {
            generator.random.pick(&[".T", ".trans()", ".permute(1, 0)"])
        } else {
            ""
        };
        match self.access {
            Access::Moved | Access::Computed | Access::Wrapped => {
                let wraps = [0, 1].map(|axis| self.access == Access::Wrapped && moves != Some(axis));
                self.indices(generator, firsts, wraps);
                let pointers = if self.access == Access::Moved {
                    format!("{name}_ptrs")
                } else {
                    format!("{name}_ptr + {}", self.offsets([&format!("{name}_r"), &format!("{name}_c")]))
                };
                let mask = self.mask(generator, wraps);
                let mask = if mask.is_empty() { mask } else { format!(", mask={mask}, other=0") };
                generator.say(format!("{name} = tl.load({pointers}{mask})"));
            }
            Access::Block => {
                let load = format!("tl.load({name}_block, boundary_check=(0, 1), padding_option=\"zero\")");
                generator.say(format!("{name} = {load}{turned}"));
            }
            Access::Descriptor | Access::HostDescriptor => {
                generator.say(format!("{name} = {name}_desc.load([{}]){turned}", self.in_memory(firsts)));
            }
        }
    }

    /// Advances pointers or offsets by a number of rows or columns.
    pub fn advance(&self, generator: &mut Generator, axis: usize, by: &str) {
        let Self { name, stride, .. } = self;
        match self.access {
            Access::Moved if (axis == 0) == self.is_transposed => {
                generator.say(format!("{name}_ptrs += {by}"));
            }
            Access::Moved => generator.say(format!("{name}_ptrs += {by} * {stride}")),
            Access::Block => {
                let distance = if axis == 0 { [by, "0"] } else { ["0", by] };
                let distance = self.in_memory(distance);
                generator.say(format!("{name}_block = tl.advance({name}_block, [{distance}])"));
            }
            Access::Computed | Access::Wrapped | Access::Descriptor | Access::HostDescriptor => {}
        }
    }

    /// Stores a value at this first row and column. If `adds` is true, atomically adds the value
    /// instead.
    pub fn store(&self, generator: &mut Generator, firsts: [&str; 2], value: &str, adds: bool) {
        let name = self.name;
        self.prepare(generator, firsts);
        match self.access {
            Access::Descriptor | Access::HostDescriptor => {
                let verb = if adds { "atomic_add" } else { "store" };
                generator.say(format!("{name}_desc.{verb}([{}], {value})", self.in_memory(firsts)));
            }
            Access::Block if !adds => {
                generator.say(format!("tl.store({name}_block, {value}, boundary_check=(0, 1))"));
            }
            Access::Block | Access::Moved | Access::Computed | Access::Wrapped => {
                self.indices(generator, firsts, [false; 2]);
                let offsets = self.offsets([&format!("{name}_r"), &format!("{name}_c")]);
                let mask = self.mask(generator, [false; 2]);
                let mask = if mask.is_empty() { mask } else { format!(", mask={mask}") };
                let verb = if adds { "atomic_add" } else { "store" };
                let how = if adds { generator.random.pick(&["", ", sem=\"relaxed\""]) } else { "" };
                generator.say(format!("tl.{verb}({name}_ptr + {offsets}, {value}{mask}{how})"));
            }
        }
    }
}
