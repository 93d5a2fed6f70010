//! Defines the entry of a compiled kernel, and the request by which a launch finds its entry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The description of a launch, which selects its entry: launches with the same target, options and
/// IR run the same code. The kernel and the arguments do not select the entry: messages and
/// [`Choice::may_select`](crate::Choice::may_select) use them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The name of the kernel.
    pub kernel: String,
    /// The target: `cpu`, or the target of a GPU, such as `sm_90a`.
    pub target: String,
    /// The description of each argument by the name of its parameter, such as `*fp32:16` or `1024`.
    pub arguments: BTreeMap<String, String>,
    /// The options that change the code without changing the IR. For a GPU, the map has all such
    /// options, including those with their default values; for the CPU, it is empty.
    pub options: BTreeMap<String, String>,
    /// The hash of the tile IR before optimization, without locations. It depends on the kernel,
    /// the functions that it calls, the values that it reads and the arguments, but not on the
    /// paths of the source files.
    pub ir: String,
}

impl Request {
    /// Returns whether two launches run the same code.
    pub fn runs_same_code(&self, other: &Self) -> bool {
        (&self.target, &self.options, &self.ir) == (&other.target, &other.options, &other.ir)
    }
}

/// A compiled kernel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The description of the launches that run the code.
    pub launches: Request,
    /// The code.
    pub code: Code,
    /// The source files, in the order of the file numbers in the locations of the IR.
    pub sources: Vec<Source>,
    /// The facts that a launcher needs.
    pub launch: Launch,
}

impl Entry {
    /// Returns the kind and the hash of each artifact.
    pub fn artifacts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.code.artifacts().chain(self.sources.iter().map(|source| ("py", source.text.as_str())))
    }
}

/// A source file of a kernel, for messages and source lines.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The name of the file, without its folder.
    pub name: String,
    /// The hash of the artifact with the text.
    pub text: String,
    /// The line of the file at which the text begins.
    pub first_line: u32,
    /// The number of columns that were removed from the start of each line.
    pub removed_columns: u32,
}

/// The hashes of the artifacts of an entry's code.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Code {
    /// The tile IR before optimization, with locations. `tilewright lock verify` compiles this IR
    /// anew.
    pub ir: String,
    /// The tile IR after optimization. The CPU runs it.
    pub opt: String,
    /// For a GPU, the program in the GPU dialect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// For a GPU, the PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptx: Option<String>,
    /// For a GPU, the cubin; `None` if there was no assembler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubin: Option<String>,
}

impl Code {
    /// Returns the kind and the hash of each artifact.
    pub fn artifacts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let required = [("ir", Some(&self.ir)), ("opt", Some(&self.opt))];
        let optional =
            [("gpu", self.gpu.as_ref()), ("ptx", self.ptx.as_ref()), ("cubin", self.cubin.as_ref())];
        required.into_iter().chain(optional).filter_map(|(kind, hash)| Some((kind, hash?.as_str())))
    }
}

/// The facts that a launcher needs to launch a kernel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The name of the kernel in its code.
    pub entry: String,
    /// The number of threads of a block; 1 on the CPU.
    pub threads: u32,
    /// The size of the dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The number of blocks that execute a program. They form a cluster.
    pub cluster: u32,
    /// The arguments that a launch passes, in order.
    pub parameters: Vec<Parameter>,
    /// The tensor maps that follow the arguments in the parameter buffer. Each map has 128 bytes,
    /// at an offset that is a multiple of 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensor_maps: Vec<TensorMap>,
    /// True if an int32 follows the tensor maps. Its value is the number of programs along the
    /// first axis if the launch runs blocks in clusters of two, else 0.
    pub has_pairs: bool,
}

/// An argument that a launch passes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The path of the argument, such as `x_ptr` or `sizes[0]`.
    pub name: String,
    /// The type, such as `*fp32` or `i32`.
    #[serde(rename = "type")]
    pub ty: String,
    /// The offset in the parameter buffer, in bytes.
    pub offset: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// A number that must divide the integer, or the address in bytes; 1 if any value is allowed.
    pub divisibility: u32,
}

/// The recipe by which a launch makes a tensor map, with the driver's `cuTensorMapEncodeTiled`. An
/// expression is a sum of products of integers and arguments, such as `64 + 2*stride`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorMap {
    /// The type of the elements, such as `fp16`.
    pub element: String,
    /// The argument that points to the tensor.
    pub base: String,
    /// The expression of the offset in elements from the address of `base` to the tensor.
    pub offset: String,
    /// For each axis, the expression of its number of elements.
    pub extents: Vec<String>,
    /// For each axis, the expression of the distance between neighbors, in elements. The expression
    /// of one axis is `1`.
    pub strides: Vec<String>,
    /// The arguments that must not be negative.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nonnegative: Vec<String>,
    /// The number of elements along each axis of the box that a copy moves.
    #[serde(rename = "box")]
    pub block: Vec<u32>,
    /// The size in bytes of the box's swizzled rows in shared memory: 32, 64 or 128; 0 for no
    /// swizzle.
    pub swizzle: u32,
    /// True if copies write the tensor.
    pub is_written: bool,
    /// The number of pixels of an im2col copy and their window, such as `16 lower [-1] upper [0]
    /// steps [1, 1, 1]`; the driver's `cuTensorMapEncodeIm2col` then makes the map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pixels: Option<String>,
}
