//! Lists the passes over tile IR before layout assignment.

use tilewright_base::Diagnostic;
use tilewright_ir::{Function, Module, Pass};
use tilewright_opt::{Options, optimize};

use crate::assign::{dot_decomposition, mma_selection, split_k_across_warps, swap_dot_operands};
use crate::launcher::Launcher;
use crate::tile::{addresses, legality, padding, scaled_dots, unroll, warps};
use tilewright_gpu_ir::target::GpuTarget;

pub struct Preparation<'a> {
    pub module: Module,
    pub target: GpuTarget,
    pub num_warps: u32,
    /// The number of blocks that run a program in one cluster.
    pub cluster: u32,
    pub launcher: Launcher<'a>,
}

impl Preparation<'_> {
    /// The passes, in order.
    pub const PASSES: [Pass<Self, Box<Diagnostic>>; 20] = [
        Pass::reporting("inlining", |kernel| legality::request_inlining(&mut kernel.module)),
        Self::OPTIMIZE,
        Pass::fallible("legality", |kernel| legality::check(&kernel.module, kernel.num_warps)),
        Pass::new("unrolling", |kernel| unroll::unroll(kernel.function())),
        Pass::reporting("scaled_dots", scaled_dots::select),
        Self::OPTIMIZE,
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
        Pass::reporting("dot_decomposition", |kernel| {
            let Self { target, num_warps, .. } = *kernel;
            dot_decomposition::decompose_dots(kernel.function(), target, num_warps)
        }),
        Self::OPTIMIZE,
        Pass::reporting("swap_dot_operands", |kernel| {
            let Self { target, num_warps, .. } = *kernel;
            swap_dot_operands::swap_operands(kernel.function(), target, num_warps)
        }),
        Self::OPTIMIZE,
        Pass::reporting("split_k_across_warps", |kernel| {
            let Self { target, num_warps, launcher, .. } = *kernel;
            split_k_across_warps::split_k(kernel.function(), target, num_warps, launcher)
        }),
        Self::OPTIMIZE,
    ];

    const OPTIMIZE: Pass<Self, Box<Diagnostic>> = Pass::cleanup("optimize", |kernel| {
        let options = Options { keeps_scaled_dots: true, ..Options::default() };
        optimize(&mut kernel.module, &options, &mut |_, _| {});
    });

    fn function(&mut self) -> &mut Function {
        let entry = self.module.entry;
        &mut self.module.functions[entry]
    }
}
