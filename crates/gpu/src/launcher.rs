//! The abilities of the code that launches a kernel.

use tilewright_gpu_ir::TensorAccess;

/// The abilities of the code that launches a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Launcher<'a> {
    /// True if the launcher makes the tensor maps of [`Header`](tilewright_gpu_ir::Header). It
    /// passes them after the arguments.
    pub makes_tensor_maps: bool,
    /// The accesses to global memory whose tensor maps the launcher cannot make.
    pub without: &'a [TensorAccess],
    /// True if the launcher launches the number of warps in the header. This number may exceed the
    /// requested one.
    pub adds_warps: bool,
    /// The requested number of blocks of a cluster; 0 means 1. The number in the header may be
    /// lower.
    pub cluster: u32,
}
