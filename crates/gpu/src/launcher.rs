//! The abilities of the code that launches a kernel.

use tilewright_gpu_ir::TensorAccess;

/// The abilities of the code that launches a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Launcher<'a> {
    /// It makes the tensor maps of [`Header`](tilewright_gpu_ir::Header) from the arguments and passes them after these.
    pub makes_tensor_maps: bool,
    /// Accesses whose tensor maps it cannot make.
    pub without: &'a [TensorAccess],
    /// It launches as many warps as the header says, which may be more than the options request.
    pub adds_warps: bool,
    /// The blocks of a cluster that the options request for a program, if more than one. It launches one if the header says so.
    pub cluster: u32,
}
