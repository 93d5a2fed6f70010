//! Describes a launch: its parameters, its source files, and the ops to which events refer.

use serde::Serialize;

use crate::bytes::{Decoder, Encoder};
use crate::read::is_pointer_or_mask;

/// The kind of an op. It distinguishes only what readers of a trace treat differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A computation.
    Value,
    /// A memory read.
    Load,
    /// A memory write.
    Store,
    /// An atomic read-modify-write of each element.
    Atomic,
    /// A matrix multiplication.
    Dot,
    /// A reduction along an axis.
    Reduce,
    /// A scan along an axis.
    Scan,
    /// A loop. Each event of the loop begins an iteration.
    Loop,
    /// A synchronization of a simulated launch: an arrival, a wait, or the end of a copy.
    Sync,
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Kind {
    const ALL: [(Kind, &'static str); 9] = [
        (Kind::Value, "value"),
        (Kind::Load, "load"),
        (Kind::Store, "store"),
        (Kind::Atomic, "atomic"),
        (Kind::Dot, "dot"),
        (Kind::Reduce, "reduce"),
        (Kind::Scan, "scan"),
        (Kind::Loop, "loop"),
        (Kind::Sync, "sync"),
    ];

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Returns the kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }

    /// Returns whether ops of this kind access memory.
    pub fn is_access(self) -> bool {
        matches!(self, Kind::Load | Kind::Store | Kind::Atomic)
    }
}

/// The role of a value in its op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The pointers of an access.
    Pointer,
    /// The mask of an access.
    Mask,
    /// The `other` operand of a load.
    Other,
    /// Any other operand.
    Operand,
    /// A result.
    Result,
    /// The left matrix of a matrix multiplication.
    Left,
    /// The right matrix of a matrix multiplication.
    Right,
    /// The accumulator of a matrix multiplication.
    Accumulator,
    /// The induction variable of a loop.
    Counter,
    /// The warp of a simulated event: its index in the block, plus the block's rank times the warps
    /// of a block.
    Warp,
    /// The buffer of a copy, as an offset in shared memory.
    Memory,
    /// The offset of an `mbarrier` in shared memory, or the index of a barrier of the block.
    Barrier,
    /// The rank of the block that has the barrier.
    Block,
    /// The phase of a barrier, from 0. It is -1 for the phase before the first one.
    Phase,
    /// The arrivals at a barrier, the instructions of a dot, or the groups that stay in flight.
    Count,
    /// The bytes that arrive at a barrier, or that it expects.
    Bytes,
    /// True if the event completes the phase of the barrier.
    Completes,
}

impl Serialize for Role {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Role {
    const ALL: [(Role, &'static str); 17] = [
        (Role::Pointer, "pointer"),
        (Role::Mask, "mask"),
        (Role::Other, "other"),
        (Role::Operand, "operand"),
        (Role::Result, "result"),
        (Role::Left, "a"),
        (Role::Right, "b"),
        (Role::Accumulator, "acc"),
        (Role::Counter, "counter"),
        (Role::Warp, "warp"),
        (Role::Memory, "memory"),
        (Role::Barrier, "barrier"),
        (Role::Block, "block"),
        (Role::Phase, "phase"),
        (Role::Count, "count"),
        (Role::Bytes, "bytes"),
        (Role::Completes, "completes"),
    ];

    /// Returns the role with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(role, _)| *role)
    }

    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// The description of a kernel launch.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Launch {
    /// The kernel's name.
    pub kernel: String,
    /// The number of programs along x, y and z.
    pub grid: [u32; 3],
    /// The sampling interval. Values are recorded for the programs whose linear index is a multiple
    /// of `every`, and for the last program of the grid.
    pub every: u64,
    /// True if the interpreter ran the programs.
    pub interpreted: bool,
    /// The source files that contain the ops.
    pub files: Vec<File>,
    /// The parameters that are passed at run time.
    pub parameters: Vec<Parameter>,
    /// The tensors that are passed to pointer parameters.
    pub tensors: Vec<Tensor>,
    /// The names and values of the compile-time constants.
    pub constants: Vec<(String, String)>,
    /// The ops to which events refer.
    pub ops: Vec<Op>,
    /// The text of the tile IR that the frontend emitted. A reader of the trace can compile the
    /// later stages for a GPU from it. The text is empty for interpreted launches.
    pub ir: String,
    /// The number of warps and the number of pipeline stages that the launch would have on a GPU.
    pub warps_and_stages: [u32; 2],
}

/// The facts about a launch that a simulated GPU ran.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Simulation {
    /// The name of the device, such as `sim:sm_90`.
    pub device: String,
    /// The number of warps of a block.
    pub warps: u32,
    /// The layouts, the shared memory and the barriers of the code that ran, as JSON for a page.
    pub code: String,
}

/// A source file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// The path of the file.
    pub name: String,
    /// The text of the file, beginning at the line `first_line`.
    pub text: String,
    /// The number, from 1, of the line at which `text` begins.
    pub first_line: u32,
}

/// A parameter that is passed at run time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The name of the parameter.
    pub name: String,
    /// The type of the parameter, such as `fp32` or `*fp32`.
    pub dtype: String,
    /// The bits of the value. For a pointer, this is the address.
    pub bits: u64,
}

/// A tensor argument.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tensor {
    /// The name of the pointer parameter.
    pub name: String,
    /// The element type.
    pub dtype: String,
    /// The element size in bytes.
    pub size: u32,
    /// The address of the first element.
    #[serde(skip)]
    pub address: u64,
    /// The extents of the axes.
    pub shape: Vec<u64>,
    /// The stride of each axis, in elements.
    pub strides: Vec<i64>,
}

/// A range of source text.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SourceRange {
    /// The index of the file in [`Launch::files`].
    pub file: u32,
    /// The first line, from 1.
    pub line: u32,
    /// The first column, from 1.
    pub column: u32,
    /// The last line.
    pub end_line: u32,
    /// The column in `end_line` that follows the range.
    pub end_column: u32,
}

/// An op of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// The name of the op.
    pub name: String,
    /// The kind of the op.
    pub kind: Kind,
    /// The index in [`Launch::ops`] of the innermost loop that contains the op.
    pub parent: Option<u32>,
    /// The source range of the op, followed by the source ranges of the calls through which the op
    /// was inlined. The innermost call is first.
    pub places: Vec<SourceRange>,
    /// The values that events of the op record.
    pub values: Vec<ValueInfo>,
}

/// A value of an op.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ValueInfo {
    /// The role of the value in the op.
    pub role: Role,
    /// The element type, such as `fp32`, `int1` or `*fp32`.
    pub dtype: String,
    /// The element size in bytes.
    #[serde(skip)]
    pub size: u32,
    /// The extents of the axes. For a scalar, the list is empty.
    pub shape: Vec<u32>,
}

impl ValueInfo {
    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().map(|&extent| extent as usize).product()
    }
}

const MAX_TILE_ELEMENTS: u64 = 1 << 24;

/// The maximum number of parameters, and of tensors, of a launch. A kernel has at most 4 KiB of
/// parameters, and each parameter takes at least one byte.
const MAX_PARAMETERS: usize = 4096;

fn product(mut extents: impl Iterator<Item = u64>) -> Option<u64> {
    extents.try_fold(1_u64, u64::checked_mul)
}

/// Returns the product of the extents, with each extent of 0 counted as 1. Returns `None` on
/// overflow.
///
/// The product bounds the work of readers, which loop over the outer axes even if an inner extent
/// is 0.
fn padded_product(extents: impl Iterator<Item = u64>) -> Option<u64> {
    product(extents.map(|extent| extent.max(1)))
}

/// Returns whether the element size is from 1 to 16 bytes and the number of elements is at most
/// `most`.
fn is_sound(size: u32, elements: Option<u64>, most: u64) -> bool {
    (1..=16).contains(&size) && elements.is_some_and(|elements| elements <= most)
}

impl Launch {
    /// Returns the number of programs.
    pub fn programs(&self) -> u64 {
        product(self.grid.iter().map(|&extent| extent.into())).unwrap_or(u64::MAX)
    }

    /// Returns whether values of a program are recorded.
    pub fn is_sampled(&self, program: u64) -> bool {
        program.is_multiple_of(self.every.max(1)) || program + 1 == self.programs()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.text(&self.kernel);
        for extent in self.grid {
            out.number(extent.into());
        }
        out.number(self.every);
        out.number(self.interpreted.into());
        out.list(&self.files, |out, file| {
            out.text(&file.name);
            out.text(&file.text);
            out.number(file.first_line.into());
        });
        out.list(&self.parameters, |out, parameter| {
            out.text(&parameter.name);
            out.text(&parameter.dtype);
            out.number(parameter.bits);
        });
        out.list(&self.tensors, |out, tensor| {
            out.text(&tensor.name);
            out.text(&tensor.dtype);
            out.number(tensor.size.into());
            out.number(tensor.address);
            out.list(&tensor.shape, |out, &extent| out.number(extent));
            out.list(&tensor.strides, |out, &stride| out.signed(stride));
        });
        out.list(&self.constants, |out, (name, value)| {
            out.text(name);
            out.text(value);
        });
        out.list(&self.ops, |out, op| {
            out.text(&op.name);
            out.number(op.kind as u64);
            out.number(op.parent.map_or(0, |parent| u64::from(parent) + 1));
            out.list(&op.places, |out, place| {
                let SourceRange { file, line, column, end_line, end_column } = *place;
                for part in [file, line, column, end_line, end_column] {
                    out.number(part.into());
                }
            });
            out.list(&op.values, |out, value| {
                out.number(value.role as u64);
                out.text(&value.dtype);
                out.number(value.size.into());
                out.list(&value.shape, |out, &extent| out.number(extent.into()));
            });
        });
        out.text(&self.ir);
        for count in self.warps_and_stages {
            out.number(count.into());
        }
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let launch = Self::decode_parts(from)?;
        let values = launch.ops.iter().flat_map(|op| &op.values);
        let mut tiles =
            values.map(|value| (value.size, padded_product(value.shape.iter().map(|&extent| extent.into()))));
        let mut tensors =
            launch.tensors.iter().map(|tensor| (tensor.size, padded_product(tensor.shape.iter().copied())));
        let are_tiles_sound = tiles.all(|(size, elements)| is_sound(size, elements, MAX_TILE_ELEMENTS));
        let are_tensors_sound = tensors.all(|(size, elements)| is_sound(size, elements, u64::MAX >> 8));
        let has_strides = launch.tensors.iter().all(|tensor| tensor.strides.len() == tensor.shape.len());
        let are_pointers_and_masks_first =
            launch.ops.iter().all(|op| op.values.is_sorted_by_key(|value| !is_pointer_or_mask(value)));
        let are_few = launch.parameters.len().max(launch.tensors.len()) <= MAX_PARAMETERS;
        let is_sound =
            are_tiles_sound && are_tensors_sound && has_strides && are_pointers_and_masks_first && are_few;
        is_sound.then_some(launch)
    }

    fn decode_parts(from: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            kernel: from.text()?,
            grid: [from.small()?, from.small()?, from.small()?],
            every: from.number()?,
            interpreted: from.number()? != 0,
            files: from.list(|from| {
                Some(File { name: from.text()?, text: from.text()?, first_line: from.small()? })
            })?,
            parameters: from.list(|from| {
                Some(Parameter { name: from.text()?, dtype: from.text()?, bits: from.number()? })
            })?,
            tensors: from.list(|from| {
                Some(Tensor {
                    name: from.text()?,
                    dtype: from.text()?,
                    size: from.small()?,
                    address: from.number()?,
                    shape: from.list(Decoder::number)?,
                    strides: from.list(Decoder::signed)?,
                })
            })?,
            constants: from.list(|from| Some((from.text()?, from.text()?)))?,
            ops: from.list(Op::decode)?,
            ir: from.text()?,
            warps_and_stages: [from.small()?, from.small()?],
        })
    }
}

impl Op {
    fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            name: from.text()?,
            kind: Kind::ALL.get(from.size()?)?.0,
            parent: from.small()?.checked_sub(1),
            places: from.list(|from| {
                let mut part = || from.small();
                Some(SourceRange {
                    file: part()?,
                    line: part()?,
                    column: part()?,
                    end_line: part()?,
                    end_column: part()?,
                })
            })?,
            values: from.list(|from| {
                Some(ValueInfo {
                    role: Role::ALL.get(from.size()?)?.0,
                    dtype: from.text()?,
                    size: from.small()?,
                    shape: from.list(Decoder::small)?,
                })
            })?,
        })
    }
}
