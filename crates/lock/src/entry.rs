//! Defines the entry of a kernel in a lock, and the request of a launch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The description of a launch, which selects its entry. Launches with the same target, options and
/// IR run the same code.
///
/// The kernel and the arguments do not select the entry. Messages and
/// [`Choice::may_select`](crate::Choice::may_select) use them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The name of the kernel.
    pub kernel: String,
    /// The target: `cpu`, or the name of a GPU target, such as `sm_90a`.
    pub target: String,
    /// The description of each argument, such as `*fp32:16` or `1024`. The keys are the names of
    /// the parameters.
    pub arguments: BTreeMap<String, String>,
    /// The options that change the code but not the IR. For a GPU, the map contains all such
    /// options, including those with default values. For the CPU, the map is empty.
    pub options: BTreeMap<String, String>,
    /// The hash of the tile IR before optimization, without locations. It depends on the kernel,
    /// its callees, the values that they read, and the arguments. It does not depend on the paths
    /// of the source files.
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
    /// The launches that run the code.
    pub launches: Request,
    /// The code.
    pub code: Code,
    /// The source files. A location in the IR refers to a source file by its index in this list.
    pub sources: Vec<Source>,
    /// The data that a launcher needs.
    pub launch: Launch,
}

impl Entry {
    /// Returns the kind and the hash of each artifact.
    pub fn artifacts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.code.artifacts().chain(self.sources.iter().map(|source| ("py", source.text.as_str())))
    }
}

/// A source file of a kernel. Messages show its lines.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The name of the file, without its folder.
    pub name: String,
    /// The hash of the artifact that contains the text.
    pub text: String,
    /// The number of the line in the file at which the text begins.
    pub first_line: u32,
    /// The number of columns that the text lacks at the start of each line.
    pub removed_columns: u32,
}

/// The artifacts of an entry's code. Each field is a hash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Code {
    /// The tile IR before optimization, with locations. `tilewright lock verify` compiles this IR
    /// again.
    pub ir: String,
    /// The tile IR after optimization, from which the CPU's program is compiled.
    pub opt: String,
    /// For a GPU, the program in the GPU dialect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// For a GPU, the PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptx: Option<String>,
    /// For a GPU, the cubin. It is `None` if no assembler was available.
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

/// The data that a launcher needs to launch a kernel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The name of the kernel in its code.
    pub entry: String,
    /// The number of threads of a block. On the CPU it is 1.
    pub threads: u32,
    /// The size of the dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The number of blocks that execute one program. They form a cluster.
    pub cluster: u32,
    /// The arguments that a launch passes, in order.
    pub parameters: Vec<Parameter>,
    /// The tensor maps that follow the arguments in the parameter buffer. Each map has 128 bytes,
    /// at an offset that is a multiple of 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensor_maps: Vec<TensorMap>,
    /// True if an int32 follows the tensor maps. If the launch runs its blocks in clusters of two,
    /// this number is the number of programs along the first axis. Otherwise it is 0.
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
    /// A number that must divide the argument. For a pointer, it must divide the address in bytes.
    /// It is 1 if any value is allowed.
    pub divisibility: u32,
}

/// The recipe from which a launch creates a tensor map with the driver's `cuTensorMapEncodeTiled`.
///
/// Some fields are expressions. An expression is a sum of products of integers and arguments, such
/// as `64 + 2*stride`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorMap {
    /// The type of the elements, such as `fp16`.
    pub element: String,
    /// The argument that points to the tensor.
    pub base: String,
    /// An expression for the offset of the tensor from the address of `base`, in elements.
    pub offset: String,
    /// For each axis, an expression for the number of elements.
    pub extents: Vec<String>,
    /// For each axis, an expression for the distance between neighboring elements, in elements. One
    /// axis has the expression `1`.
    pub strides: Vec<String>,
    /// The arguments that must not be negative.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nonnegative: Vec<String>,
    /// The shape of the box that one copy moves: the number of elements along each axis.
    #[serde(rename = "box")]
    pub block: Vec<u32>,
    /// The size in bytes of a swizzled row of the box in shared memory: 32, 64 or 128. Without
    /// swizzling, it is 0.
    pub swizzle: u32,
    /// True if copies write to the tensor.
    pub is_written: bool,
    /// For an im2col copy, the number of pixels and their window, such as
    /// `16 lower [-1] upper [0] steps [1, 1, 1]`. The launch then creates the map with
    /// `cuTensorMapEncodeIm2col`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pixels: Option<String>,
}
