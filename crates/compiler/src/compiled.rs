//! Defines the result of a compilation: the code, the options, and queries about both.

use std::sync::Arc;

use tilewright_frontend::{Argument, FunctionSource, Padding, Tuple};
use tilewright_gpu_ir::{GpuOp, Op, TensorMapPlan};
use tilewright_ir::{Dtype, Element, Module};

use crate::{
    CodegenOptions, CompileError, Job, Stage, Target, TensorMapVariant, gpu_code, syntax_tree, with_stack,
};

/// A compiled kernel.
#[derive(Debug)]
pub struct CompiledKernel {
    /// The kernel's name.
    pub name: String,
    /// Each parameter's name and type, in order.
    pub signature: Vec<(Arc<str>, ParameterType)>,
    /// The optimized IR. Its entry has the parameters that are not compile-time values.
    pub module: Arc<Module>,
    /// The code that the target executes.
    pub code: Arc<MachineCode>,
    /// The options of the compilation, and the resources that the code needs.
    pub metadata: Metadata,
    /// The IR before optimization.
    pub lowered: Arc<Module>,
    /// True if launches with other back-end options, such as another number of warps, can use the
    /// same code.
    ///
    /// The kernel must be for a CPU, its code must not depend on these options, and its compilation
    /// must have printed nothing.
    pub is_shareable: bool,
    pub(crate) source: Option<FunctionSource>,
}

/// The code that a target executes.
#[derive(Debug)]
pub enum MachineCode {
    /// The program of the CPU's executor.
    Cpu(Box<tilewright_cpu::Program>),
    /// PTX for a GPU.
    Gpu(Box<GpuCode>),
}

/// The code of a kernel that the driver or the simulator loads.
///
/// A launch passes its arguments in one buffer, in the order of the parameters. Each argument is
/// aligned to its size. A bool occupies one byte.
#[derive(Debug)]
pub struct GpuCode {
    /// The PTX module as text.
    pub ptx: String,
    /// The name of the kernel in the module.
    pub entry: String,
    /// The target GPU.
    pub target: tilewright_gpu_ir::GpuTarget,
    /// The number of threads of a block.
    pub threads: u32,
    /// The number of bytes of shared memory that a launch reserves for each block.
    pub shared_bytes: u32,
    /// The cubin, if it exists before the code is loaded.
    pub cubin: Option<Vec<u8>>,
    /// The module of the GPU dialect from which the PTX was generated.
    pub(crate) program: tilewright_gpu_ir::Module,
}

impl GpuCode {
    pub(crate) fn new(
        ptx: String,
        target: tilewright_gpu_ir::GpuTarget,
        program: tilewright_gpu_ir::Module,
    ) -> Self {
        Self {
            ptx,
            entry: tilewright_ptx::entry_name(&program.kernel().name).into_owned(),
            target,
            threads: 32 * program.header.num_warps,
            shared_bytes: program.header.shared_bytes,
            cubin: None,
            program,
        }
    }

    /// Returns the number of warps that compute. In a warp-specialized kernel, these are the warps
    /// of the first partition. In any other kernel, all warps of a block compute.
    pub fn num_warps(&self) -> u32 {
        let (kernel, mut found) = (self.program.kernel(), self.program.header.num_warps);
        kernel.walk(kernel.entry, &mut |inst| {
            if let Op::Gpu(GpuOp::WarpSpecialize { warps, .. }) = &kernel.insts[inst].op {
                found = warps[0] as u32;
            }
        });
        found
    }

    /// Returns the tensor maps that a launch passes after the arguments.
    pub fn tensor_maps(&self) -> &[TensorMapPlan] {
        &self.program.header.tensor_maps
    }

    /// Returns whether the kernel has an int32 parameter after the tensor maps.
    ///
    /// Each launch of such a kernel decides whether its blocks run in pairs (clusters of 2). If
    /// they do, the parameter is the number of programs along the first axis; otherwise it is 0. If
    /// the parameter is not 0, blocks with an id of at least this number do nothing: they only
    /// complete the last pair.
    pub fn has_pairs(&self) -> bool {
        self.program.header.paired
    }

    /// Returns the number of blocks that run one program. The blocks form a cluster along the first
    /// axis.
    ///
    /// The number is 1 unless the launch requested more blocks and the compiler could divide the
    /// program.
    pub fn cluster(&self) -> u32 {
        self.program.header.cluster
    }

    /// Returns the type of each argument, and its offset in bytes in the parameter buffer. The
    /// result does not include the tensor maps and the int32 parameter ([`Self::has_pairs`]), which
    /// follow the arguments.
    pub fn arguments(&self) -> Vec<(usize, Element)> {
        let types: Vec<_> = self.program.kernel().parameter_types().collect();
        let count = types.len() - self.tensor_maps().len() - usize::from(self.has_pairs());
        let mut end = 0;
        let place = |ty: &&tilewright_gpu_ir::Type| {
            let element = ty.as_registers().expect("arguments are scalars").element;
            let bytes = element.bytes();
            let start = usize::next_multiple_of(end, bytes);
            end = start + bytes;
            (start, element)
        };
        types[..count].iter().map(place).collect()
    }
}

/// Lowers a module of the GPU dialect to PTX. `max_registers` limits the registers of a thread,
/// unless the module states a limit.
#[cfg(feature = "gpu")]
pub(crate) fn ptx(
    program: &tilewright_gpu_ir::Module,
    max_registers: Option<u32>,
) -> Result<String, Box<tilewright_base::Diagnostic>> {
    let mut module = tilewright_ptx::lower(program)?;
    for function in module.functions.values_mut() {
        // A warp-specialized kernel states its own limit, because its partitions exchange
        // registers.
        function.directives.max_registers = function.directives.max_registers.or(max_registers);
    }
    Ok(tilewright_ptx::isa::print(&module))
}

/// Removes the folders from the paths of the module's source files. The printed stages of the
/// kernel then do not depend on the folder that contains the user's program.
pub fn remove_folders(module: &mut Module) {
    let name = |name: &str| name.rsplit(['/', '\\']).next().unwrap_or(name).to_owned();
    module.sources = Arc::new(module.sources.with_names(name));
}

/// The type of a parameter in one compiled kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ParameterType {
    /// A pointer to elements of this type.
    Pointer(Dtype),
    /// A scalar at run time.
    Scalar(Dtype),
    /// A compile-time value, which is compiled into the code.
    Constexpr,
    /// A tuple of parameters.
    Tuple(Tuple<ParameterType>),
}

/// The options and the resources of a compiled kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// The target for which the kernel is compiled.
    pub target: Target,
    /// The options that the frontend read.
    pub language: tilewright_frontend::Options,
    /// The options that only back ends read.
    pub codegen: CodegenOptions,
    /// The resources of a program.
    pub resources: Resources,
}

/// The resources that a program of the grid needs.
///
/// Host code divides by these numbers to choose a grid. The registers of a multiprocessor suffice
/// for `max_num_regs // (n_regs * warp_size * num_warps)` programs. Its shared memory suffices for
/// `max_shared_mem // shared` programs.
///
/// A CPU has no multiprocessors, so its `registers` and `shared` only make such divisions work.
/// Neither is zero, and both are small enough that at least one program fits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Resources {
    /// The number of registers of a thread. On a CPU it is 32, the number of vector registers of
    /// AVX-512 and NEON. On a GPU it is 32 until the assembler has chosen the number.
    pub registers: u32,
    /// The number of registers that a thread spills to memory. On a CPU it is 0.
    pub spills: u32,
    /// The number of bytes of shared memory of a block. On a CPU it is 1.
    pub shared: u32,
}

impl Resources {
    /// The resources of every program on a CPU.
    pub const CPU: Self = Self { registers: 32, spills: 0, shared: 1 };
}

impl CompiledKernel {
    pub(crate) fn new(
        job: &Job,
        source: Option<FunctionSource>,
        lowered: Module,
        module: Module,
        code: MachineCode,
    ) -> Self {
        let types = job.request.arguments.iter().map(ParameterType::of);
        Self {
            name: module.kernel().name.clone(),
            signature: job.parameters.iter().cloned().zip(types).collect(),
            metadata: Metadata {
                target: job.target,
                language: job.request.options,
                codegen: match &code {
                    MachineCode::Cpu(_) => job.codegen,
                    // The number of warps may be greater than the launch requested.
                    MachineCode::Gpu(code) => CodegenOptions { num_warps: code.num_warps(), ..job.codegen },
                },
                resources: match &code {
                    MachineCode::Cpu(_) => Resources::CPU,
                    MachineCode::Gpu(code) => Resources { shared: code.shared_bytes, ..Resources::CPU },
                },
            },
            module: Arc::new(module),
            code: Arc::new(code),
            source,
            lowered: Arc::new(lowered),
            is_shareable: false,
        }
    }

    /// Returns a kernel with the same code and the given options.
    ///
    /// If these differ from the options of this kernel, the kernel must be
    /// [shareable](Self::is_shareable). Its code must not depend on the options that differ.
    #[must_use]
    pub fn shared(&self, language: tilewright_frontend::Options, codegen: CodegenOptions) -> Self {
        Self {
            name: self.name.clone(),
            signature: self.signature.clone(),
            module: Arc::clone(&self.module),
            code: Arc::clone(&self.code),
            metadata: Metadata { language, codegen, ..self.metadata },
            lowered: Arc::clone(&self.lowered),
            is_shareable: self.is_shareable,
            source: self.source.clone(),
        }
    }

    /// Returns the same kernel, with the folders removed from the paths of its source files; see
    /// [`remove_folders`].
    #[must_use]
    pub fn without_folders(&self) -> Self {
        let renamed = |module: &Module| {
            let mut module = module.clone();
            remove_folders(&mut module);
            Arc::new(module)
        };
        Self {
            module: renamed(&self.module),
            lowered: renamed(&self.lowered),
            ..self.shared(self.metadata.language, self.metadata.codegen)
        }
    }

    /// Returns the name of the entry in the code. In GPU code, this name may differ from the name
    /// of the function.
    pub fn entry_name(&self) -> &str {
        match &*self.code {
            MachineCode::Cpu(_) => &self.name,
            MachineCode::Gpu(code) => &code.entry,
        }
    }

    /// Returns the number of blocks that run one program. The number is 1 unless the launch
    /// requested more blocks and the compiler could divide the program.
    pub fn cluster(&self) -> u32 {
        match &*self.code {
            MachineCode::Cpu(_) => 1,
            MachineCode::Gpu(code) => code.cluster(),
        }
    }

    /// Compiles a variant of the kernel for launches with tensors that tensor maps cannot describe.
    /// Returns `None` on a CPU.
    ///
    /// [`TensorMapVariant::Without`] lists the accesses that use no tensor map in this variant.
    /// With [`TensorMapVariant::NoMaps`], no access uses a tensor map.
    ///
    /// # Errors
    /// Returns an error if code generation fails.
    pub fn without_tensor_maps(&self, variant: &TensorMapVariant) -> Result<Option<GpuCode>, CompileError> {
        let MachineCode::Gpu(code) = &*self.code else { return Ok(None) };
        // Not the requested number of blocks: if the program was not divided, its single block has
        // all the warps (`metadata.codegen.num_warps`).
        let num_ctas = code.cluster();
        let (without, tensor_maps) = match variant {
            TensorMapVariant::Without(accesses) => (&**accesses, true),
            TensorMapVariant::NoMaps => (&[][..], false),
        };
        let codegen = CodegenOptions { num_ctas, tensor_maps, ..self.metadata.codegen };
        with_stack(|| gpu_code(&self.module, code.target, (codegen, without), &mut |_, _| {})).map(Some)
    }

    /// Returns the text of a stage. PTX is stored; the text of any other stage is printed at each
    /// call.
    ///
    /// Returns `None` for a stage that the target does not have, and for the cubin, which the
    /// compiler does not produce.
    pub fn asm(&self, stage: Stage) -> Option<String> {
        with_stack(|| match (stage, &*self.code) {
            (Stage::Ast, _) => Some(syntax_tree(self.source.as_ref())),
            (Stage::Ir, _) => Some(tilewright_ir::print(&self.lowered, false)),
            (Stage::Opt, _) => Some(tilewright_ir::print(&self.module, false)),
            (Stage::Cpu, MachineCode::Cpu(program)) => Some(program.to_string()),
            (Stage::Asm, MachineCode::Cpu(program)) if cfg!(feature = "cpu") => {
                Some(program.machine_listing().to_string())
            }
            (Stage::Gpu, MachineCode::Gpu(code)) => Some(tilewright_ir::print(&code.program, false)),
            (Stage::Ptx, MachineCode::Gpu(code)) => Some(code.ptx.clone()),
            (Stage::Cpu, MachineCode::Gpu(_))
            | (Stage::Gpu | Stage::Ptx, MachineCode::Cpu(_))
            | (Stage::Asm | Stage::Cubin, _) => None,
        })
    }

    /// Decides for each memory access whether it is in bounds, for every grid and for all arguments
    /// that satisfy `statement`. The statement describes the sizes that callers guarantee. Also
    /// returns the module that contains the accesses of the findings.
    ///
    /// # Errors
    /// Returns an error if the statement is wrong; for example, if it names an unknown parameter.
    pub fn bounds(
        &self,
        statement: &tilewright_opt::bounds::Statement,
    ) -> Result<(Module, Vec<tilewright_opt::bounds::Finding>), String> {
        with_stack(|| {
            let mut module = Module::clone(&self.lowered);
            for function in module.functions.values_mut() {
                // The check does not see the accesses of a called function.
                function.noinline = false;
            }
            tilewright_opt::optimize(&mut module, &tilewright_opt::Options::default(), &mut |_, _| {});
            let found = tilewright_opt::bounds::check(module.kernel(), statement)?;
            Ok((module, found))
        })
    }

    /// Returns the memory accesses of the optimized IR. For each access, lists the parameters of
    /// the entry from which its pointers may derive.
    pub fn accesses(&self) -> Vec<tilewright_opt::analysis::Access> {
        with_stack(|| tilewright_opt::analysis::accesses(&self.module))
    }

    /// Returns a hexadecimal hash of the target, the options and the IR before optimization. The
    /// hash of equal kernels is the same on every machine. It is computed at each call.
    pub fn hash(&self) -> String {
        let Metadata { target, language, codegen, resources: _ } = self.metadata;
        let ir = with_stack(|| tilewright_ir::print(&self.lowered, false));
        // `Debug` prints every field of the options.
        let text = format!("{target} {language:?} {codegen:?}\n{ir}");
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }
}

impl ParameterType {
    /// Returns the parameter type of an argument.
    pub fn of(argument: &Argument) -> Self {
        match argument {
            Argument::Pointer { pointee, .. } => ParameterType::Pointer(*pointee),
            Argument::Scalar { dtype, .. } => ParameterType::Scalar(*dtype),
            Argument::Constexpr(_) => ParameterType::Constexpr,
            Argument::Tuple(items) => ParameterType::Tuple(items.map(Self::of)),
        }
    }

    /// Returns Triton's name of the type: `*fp32`, `i32`, `constexpr`, `tensordesc<fp16[64, 32]>`.
    /// The name of a tuple is `(*fp32, i32)`, or `(x=*fp32, n=i32)` if it has named fields.
    pub fn name(&self) -> String {
        match self {
            ParameterType::Pointer(dtype) => format!("*{}", short_name(*dtype)),
            ParameterType::Scalar(dtype) => short_name(*dtype),
            ParameterType::Constexpr => "constexpr".into(),
            ParameterType::Tuple(items) if items.descriptor().is_some() => descriptor_name(items),
            ParameterType::Tuple(items) => {
                let names = items.iter().map(Self::name);
                let names: Vec<String> = match items.fields() {
                    Some(fields) => {
                        fields.iter().zip(names).map(|(field, name)| format!("{field}={name}")).collect()
                    }
                    None => names.collect(),
                };
                let comma = if names.len() == 1 && items.fields().is_none() { "," } else { "" };
                format!("({}{comma})", names.join(", "))
            }
        }
    }
}

/// Returns the name of a descriptor type, such as `tensordesc<fp16[64, 32], nan>`. With `nan`,
/// loads return NaN for elements outside of the tensor.
fn descriptor_name(parts: &Tuple<ParameterType>) -> String {
    let (Some(form), Some(ParameterType::Pointer(dtype))) = (parts.descriptor(), parts.first()) else {
        return "constexpr".into();
    };
    let padding = match form.padding {
        Padding::Zero => "",
        Padding::Nan => ", nan",
    };
    let layout = form.layout.as_ref().map_or(String::new(), |layout| format!(", {layout}"));
    let (name, window) = match &form.window {
        None => ("tensordesc", String::new()),
        Some(window) => ("tensordesc_im2col", format!(", {window}")),
    };
    format!("{name}<{}{}{padding}{layout}{window}>", short_name(*dtype), form.block_shape)
}

/// Returns the short name of a type: `i32` for `int32`, `u8` for `uint8`, `u1` for a boolean.
fn short_name(dtype: Dtype) -> String {
    match dtype {
        Dtype::I1 => "u1".into(),
        _ if dtype.is_float() => dtype.name().into(),
        _ => dtype.name().replace("int", "i").replace("ui", "u"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parameters_are_those_of_triton() {
        assert_eq!(ParameterType::Pointer(Dtype::F32).name(), "*fp32");
        assert_eq!(ParameterType::Pointer(Dtype::U8).name(), "*u8");
        assert_eq!(ParameterType::Scalar(Dtype::I64).name(), "i64");
        assert_eq!(ParameterType::Scalar(Dtype::I1).name(), "u1");
        assert_eq!(ParameterType::Scalar(Dtype::F8E4NV).name(), "fp8e4nv");
        let (pointer, int) = (ParameterType::Pointer(Dtype::F32), ParameterType::Scalar(Dtype::I32));
        let inner = ParameterType::Tuple(vec![ParameterType::Constexpr].into());
        assert_eq!(ParameterType::Tuple(vec![pointer.clone(), inner].into()).name(), "(*fp32, (constexpr,))");
        let fields = Some(["x".into(), "n".into()].into());
        assert_eq!(ParameterType::Tuple(Tuple::new(vec![pointer, int], fields)).name(), "(x=*fp32, n=i32)");
    }
}
