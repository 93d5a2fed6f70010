//! What a launch is and which ops it has: the tables that events refer to.

use serde::Serialize;

use crate::bytes::{Put, Take};
use crate::read::is_place;

/// What an op does, as far as a reader has to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It computes.
    Value,
    /// It reads memory.
    Load,
    /// It writes memory.
    Store,
    /// It reads and writes memory, each element at once.
    Atomic,
    /// A product of matrices.
    Dot,
    /// A reduction along an axis.
    Reduce,
    /// A scan along an axis.
    Scan,
    /// A loop; its events begin iterations.
    Loop,
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Kind {
    const ALL: [(Kind, &'static str); 8] = [
        (Kind::Value, "value"),
        (Kind::Load, "load"),
        (Kind::Store, "store"),
        (Kind::Atomic, "atomic"),
        (Kind::Dot, "dot"),
        (Kind::Reduce, "reduce"),
        (Kind::Scan, "scan"),
        (Kind::Loop, "loop"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The one with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }

    /// Whether it accesses memory.
    pub fn is_access(self) -> bool {
        matches!(self, Kind::Load | Kind::Store | Kind::Atomic)
    }
}

/// What a value is to its op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The pointers of an access.
    Pointer,
    /// Where an access takes place.
    Mask,
    /// What a load gives elsewhere.
    Other,
    /// An operand.
    Operand,
    /// A result.
    Result,
    /// The left matrix.
    Left,
    /// The right matrix.
    Right,
    /// What a product is added to.
    Accumulator,
    /// The counter of a loop.
    Counter,
}

impl Serialize for Role {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Role {
    const ALL: [(Role, &'static str); 9] = [
        (Role::Pointer, "pointer"),
        (Role::Mask, "mask"),
        (Role::Other, "other"),
        (Role::Operand, "operand"),
        (Role::Result, "result"),
        (Role::Left, "a"),
        (Role::Right, "b"),
        (Role::Accumulator, "acc"),
        (Role::Counter, "counter"),
    ];

    /// The one with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(role, _)| *role)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// A launch of a kernel.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Launch {
    /// The name of the kernel.
    pub kernel: String,
    /// The programs along x, y and z.
    pub grid: [u32; 3],
    /// Programs whose number is a multiple of this are recorded with values, and the last one.
    pub every: u64,
    /// Whether programs were run by the interpreter, not compiled.
    pub interpreted: bool,
    /// The source files that ops are in.
    pub files: Vec<File>,
    /// The parameters that are passed at run time.
    pub parameters: Vec<Parameter>,
    /// The tensors behind them.
    pub tensors: Vec<Tensor>,
    /// The compile-time values: name and value.
    pub constants: Vec<(String, String)>,
    /// The ops that events are of.
    pub ops: Vec<Op>,
    /// The tile IR that the frontend made, as text: of it the stages of a GPU can be made. Empty if it was interpreted.
    pub ir: String,
    /// The warps and pipeline stages that the launch asked for on a GPU.
    pub warps_and_stages: [u32; 2],
}

/// A source file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// The path.
    pub name: String,
    /// The text, from `first_line` on.
    pub text: String,
    /// The line of the file that the text begins at, from 1.
    pub first_line: u32,
}

/// A parameter that is passed at run time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its type: `fp32`, `*fp32`.
    pub dtype: String,
    /// Its bits; of a pointer, the address.
    pub bits: u64,
}

/// A tensor that was passed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tensor {
    /// The name of its parameter.
    pub name: String,
    /// The type of its elements.
    pub dtype: String,
    /// The bytes of an element.
    pub size: u32,
    /// The address of its first element.
    #[serde(skip)]
    pub address: u64,
    /// Its extents.
    pub shape: Vec<u64>,
    /// Its strides, in elements.
    pub strides: Vec<i64>,
}

/// Where an op stands in the source.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Place {
    /// The number of the file.
    pub file: u32,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// The line of the end.
    pub end_line: u32,
    /// One past the last column.
    pub end_column: u32,
}

/// An op of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// Its name.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// The innermost loop that it is in.
    pub parent: Option<u32>,
    /// Where it stands, and the calls that lead there, innermost first.
    pub places: Vec<Place>,
    /// What its events say.
    pub values: Vec<ValueInfo>,
}

/// A value of an op.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ValueInfo {
    /// What it is to the op.
    pub role: Role,
    /// The type of its elements: `fp32`, `int1`, `*fp32`.
    pub dtype: String,
    /// The bytes of an element.
    #[serde(skip)]
    pub size: u32,
    /// Its extents; of a scalar none.
    pub shape: Vec<u32>,
}

impl ValueInfo {
    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().map(|&extent| extent as usize).product()
    }
}

/// No tile has more elements.
const MOST_LANES: u64 = 1 << 24;

/// No kernel has more parameters: 4 KiB of one byte each.
const MOST_PARAMETERS: usize = 4096;

fn product(mut extents: impl Iterator<Item = u64>) -> Option<u64> {
    extents.try_fold(1_u64, u64::checked_mul)
}

/// How many elements there would be if no extent were 0: what goes axis by axis makes as many.
fn room(extents: impl Iterator<Item = u64>) -> Option<u64> {
    product(extents.map(|extent| extent.max(1)))
}

/// Whether elements of this size can be so many.
fn is_sound(size: u32, elements: Option<u64>, most: u64) -> bool {
    (1..=16).contains(&size) && elements.is_some_and(|elements| elements <= most)
}

impl Launch {
    /// How many programs there are.
    pub fn programs(&self) -> u64 {
        product(self.grid.iter().map(|&extent| extent.into())).unwrap_or(u64::MAX)
    }

    /// Whether a program is recorded with values.
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
                let Place { file, line, column, end_line, end_column } = *place;
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

    pub(crate) fn decode(from: &mut Take<'_>) -> Option<Self> {
        let launch = Self::decode_parts(from)?;
        let values = launch.ops.iter().flat_map(|op| &op.values);
        let mut tiles =
            values.map(|value| (value.size, room(value.shape.iter().map(|&extent| extent.into()))));
        let mut tensors =
            launch.tensors.iter().map(|tensor| (tensor.size, room(tensor.shape.iter().copied())));
        let are_tiles_sound = tiles.all(|(size, elements)| is_sound(size, elements, MOST_LANES));
        let are_tensors_sound = tensors.all(|(size, elements)| is_sound(size, elements, u64::MAX >> 8));
        let has_strides = launch.tensors.iter().all(|tensor| tensor.strides.len() == tensor.shape.len());
        let are_places_first =
            launch.ops.iter().all(|op| op.values.is_sorted_by_key(|value| !is_place(value)));
        let are_few = launch.parameters.len().max(launch.tensors.len()) <= MOST_PARAMETERS;
        let is_sound = are_tiles_sound && are_tensors_sound && has_strides && are_places_first && are_few;
        is_sound.then_some(launch)
    }

    fn decode_parts(from: &mut Take<'_>) -> Option<Self> {
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
                    shape: from.list(Take::number)?,
                    strides: from.list(Take::signed)?,
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
    fn decode(from: &mut Take<'_>) -> Option<Self> {
        Some(Self {
            name: from.text()?,
            kind: Kind::ALL.get(from.size()?)?.0,
            parent: from.small()?.checked_sub(1),
            places: from.list(|from| {
                let mut part = || from.small();
                Some(Place {
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
                    shape: from.list(Take::small)?,
                })
            })?,
        })
    }
}
