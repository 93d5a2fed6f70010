//! The passes over tile IR that prepare a kernel for layouts, from `tile` and `assign`, in one list.

use tilewright_base::Diagnostic;
use tilewright_ir::{Function, Module, Pass};
use tilewright_opt::{Options, optimize};

use crate::assign::{depth_splitting, mma_selection, product_splitting, transposed_products};
use crate::launcher::Launcher;
use crate::tile::{addresses, legality, padding, unroll, warps};
use tilewright_gpu_ir::target::GpuTarget;

/// A kernel on its way to layouts.
pub struct Preparation<'a> {
    /// Its tile IR.
    pub module: Module,
    /// The GPU that it is compiled for.
    pub target: GpuTarget,
    /// The warps of a block.
    pub num_warps: u32,
    /// The blocks of a program.
    pub cluster: u32,
    /// The code that launches it.
    pub launcher: Launcher<'a>,
}

impl Preparation<'_> {
    /// The passes, in order.
    pub const PASSES: [Pass<Self, Box<Diagnostic>>; 18] = [
        Pass::reporting("inlining", |kernel| legality::request_inlining(&mut kernel.module)),
        Self::OPTIMIZE,
        Pass::fallible("legality", |kernel| legality::check(kernel.module.kernel(), kernel.num_warps)),
        Pass::new("unrolling", |kernel| unroll::unroll(kernel.function())),
        Pass::reporting("padding", |kernel| {
            let tuning = kernel.target.tuning;
            padding::pad(kernel.function(), tuning)
        }),
        Self::OPTIMIZE,
        Pass::reporting("cluster", warps::divide_for_cluster),
        Self::OPTIMIZE,
        Pass::reporting("addresses", |kernel| addresses::split(kernel.function())),
        Self::OPTIMIZE,
        Pass::new("warps", warps::add_warps),
        Pass::new("operand_conversion", |kernel| {
            let Self { target, num_warps, .. } = *kernel;
            mma_selection::convert_operands(kernel.function(), target, num_warps);
        }),
        Pass::reporting("product_splitting", |kernel| {
            let Self { target, num_warps, .. } = *kernel;
            product_splitting::split(kernel.function(), target, num_warps)
        }),
        Self::OPTIMIZE,
        Pass::reporting("transposed_products", |kernel| {
            let Self { target, num_warps, .. } = *kernel;
            transposed_products::transpose(kernel.function(), target, num_warps)
        }),
        Self::OPTIMIZE,
        Pass::reporting("depth_splitting", |kernel| {
            let Self { target, num_warps, launcher, .. } = *kernel;
            depth_splitting::split(kernel.function(), target, num_warps, launcher)
        }),
        Self::OPTIMIZE,
    ];

    /// Simplifies what the passes before it left.
    const OPTIMIZE: Pass<Self, Box<Diagnostic>> =
        Pass::cleanup("optimize", |kernel| optimize(&mut kernel.module, &Options::default(), &mut |_, _| {}));

    fn function(&mut self) -> &mut Function {
        let entry = self.module.entry;
        &mut self.module.functions[entry]
    }
}
