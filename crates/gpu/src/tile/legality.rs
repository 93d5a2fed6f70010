//! Refuses kernels that the GPU path does not support, and inlines all calls.

use tilewright_base::{Code, Diagnostic};
use tilewright_ir::{Dialect, Function, Inst, MAX_TILE_ELEMENTS, Module, Op, OpFamily, Value};

use super::padding::{mask_place, padded};
use tilewright_gpu_ir::target::MAX_WARPS;

/// Lets the optimizer inline every call, even of `noinline` functions. Returns whether the module
/// has other functions than the kernel.
pub fn request_inlining(module: &mut Module) -> bool {
    let has_calls = module.functions.len() > 1;
    if has_calls {
        module.functions.values_mut().for_each(|function| function.noinline = false);
    }
    has_calls
}

/// Refuses unsupported kernels, for example with a tile that is too large.
pub fn check(module: &Module, num_warps: u32) -> Result<(), Box<Diagnostic>> {
    let kernel = module.kernel();
    if !num_warps.is_power_of_two() || num_warps > MAX_WARPS {
        let message = format!("num_warps must be a power of two up to {MAX_WARPS}, found {num_warps}");
        return Err(Box::new(Diagnostic::new(Code::InvalidOption, message)));
    }
    check_interface(kernel)?;
    let mut found = None;
    kernel.walk(kernel.entry, &mut |inst| {
        if found.is_none() {
            found = refusal(module, inst);
        }
    });
    found.map_or(Ok(()), |diagnostic| Err(Box::new(diagnostic)))
}

/// Refuses parameters that are tiles, because a launch passes scalars.
fn check_interface(kernel: &Function) -> Result<(), Box<Diagnostic>> {
    let parameters = kernel.parameters.iter().zip(kernel.parameter_types());
    let Some((parameter, ty)) = parameters.into_iter().find(|(_, ty)| !ty.is_scalar()) else { return Ok(()) };
    let message = format!("the parameter `{}` of the kernel is a tile of type {ty}", parameter.name);
    let diagnostic = Diagnostic::new(Code::NotOnThisDevice, message)
        .note("a launch on a GPU passes scalars and pointers")
        .hint("pass a pointer, and load the tile");
    Err(Box::new(diagnostic))
}

fn refusal(module: &Module, inst: Inst) -> Option<Diagnostic> {
    let kernel = module.kernel();
    let data = &kernel.insts[inst];
    if let Op::DotScaled { .. } = data.op {
        let message = "`dot_scaled` is an op of the GPU back end, not of a kernel";
        return Some(at(kernel, inst, Code::NotOnThisDevice, message).hint("call `tl.dot_scaled`"));
    }
    // A later pass inlines the calls of dots with scales, or replaces them.
    let is_inlined = |op: &Op| match op {
        Op::Call { callee, .. } => module.functions[*callee].scaled_dot.is_some(),
        // tidy: wildcard because other ops are no calls
        _ => true,
    };
    if !is_inlined(&data.op) {
        return Some(
            at(
                kernel,
                inst,
                Code::NotOnThisDevice,
                "a call that cannot be inlined is not supported on a GPU",
            )
            .hint("remove the recursion, or make the function smaller"),
        );
    }
    let values = data.operands.iter().chain(&data.results);
    let is_odd = |value: &Value| padded(&kernel.ty(*value).shape) != kernel.ty(*value).shape;
    let sees_padding = match data.op.family() {
        OpFamily::Movement => !matches!(data.op, Op::Gather { .. }),
        OpFamily::Atomic | OpFamily::Check => {
            mask_place(&data.op).is_none() && !matches!(data.op, Op::Print { .. })
        }
        // tidy: wildcard because no other op sees the padding of tiles
        _ => false,
    };
    if sees_padding && data.operands.iter().any(is_odd) {
        let message = format!("`{}` on a GPU takes tiles whose extents are powers of two", data.op.name());
        return Some(
            at(kernel, inst, Code::NotOnThisDevice, message)
                .hint("make the tile larger, and fill the additional elements"),
        );
    }
    let large =
        values.map(|value| kernel.ty(*value)).find(|ty| padded(&ty.shape).elements() > MAX_TILE_ELEMENTS)?;
    let message = format!(
        "`{}` on a tile of type {large}: on a GPU each axis is padded to the next power of two",
        data.op.name()
    );
    let found = padded(&large.shape).elements();
    Some(
        at(kernel, inst, Code::TooLarge, message)
            .note(format!("found {found} elements with the padding, expected at most {MAX_TILE_ELEMENTS}"))
            .hint("make the tile smaller, or its extents powers of two"),
    )
}

/// Returns a diagnostic at an instruction, with its chain of calls.
pub fn at<D: Dialect>(
    kernel: &Function<D>,
    inst: Inst,
    code: Code,
    message: impl Into<String>,
) -> Diagnostic {
    let mut diagnostic = Diagnostic::new(code, message);
    let mut chain = kernel.call_chain(inst).into_iter();
    if let Some(span) = chain.next() {
        diagnostic = diagnostic.primary(span, "");
    }
    for span in chain {
        diagnostic = diagnostic.secondary(span, "called from here");
    }
    diagnostic
}
