//! Defines the table of launch options, with one row for each option. A row defines:
//!
//! - the [`OptionId`], and the values that the option accepts;
//! - the default in Rust and in Python;
//! - the encoding of the option in the key of a compiled kernel;
//! - the warning if the option has no effect;
//! - the row in `docs/options.md`.
//!
//! To add an option, add a row here. If its [`Consumer`] is `Language` or `Codegen`, also add the
//! option to `Options::language` or `Options::codegen`, respectively.

use std::fmt;

use tilewright_frontend::Constant;
use tilewright_ir::InputPrecision;

/// The values that an option takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionKind {
    /// A power of two, from 1 to this maximum; `u32::MAX` is no maximum.
    PowerOfTwo(u32),
    /// An integer from the first to the second number, both inclusive.
    Int(i128, i128),
    /// An integer from the first to the second number, both inclusive, or `None`.
    OptionalInt(i128, i128),
    /// A boolean, or the int 0 or 1; `None` selects the default.
    Bool,
    /// The name of a precision of `dot`.
    Precision,
    /// A string, or `None`.
    Text,
    /// Any compile-time value.
    Any,
}

/// The default value of an option. Unlike a [`Constant`], it can be in a `static` table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultValue {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A string.
    Str(&'static str),
    /// A tuple of strings.
    Strs(&'static [&'static str]),
}

/// The component that acts on an option, or the treatment of an option that has no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consumer {
    /// The launcher, before it looks up a compiled variant. The option never reaches
    /// [`Options`](crate::Options).
    Launcher,
    /// The language: the meaning of a kernel depends on the option.
    Language,
    /// Code generation for a GPU.
    Codegen,
    /// The launch on a GPU.
    Launch,
    /// The launch on the CPU.
    CpuLaunch,
    /// The check of the target: a launch on a GPU fails if the value does not match the target.
    Check,
    /// No component, although the option requests different code or results. Setting the option to
    /// a true value is therefore an error with this text.
    Refused(&'static str),
    /// No component: a launch on a GPU that sets the option gets the warning TW0115 with this text.
    Warned(&'static str),
    /// No component: the option is ignored without a warning, for this reason.
    Silent(&'static str),
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionInfo {
    /// The option.
    pub id: OptionId,
    /// The keyword.
    pub name: &'static str,
    /// The values that the option takes.
    pub kind: OptionKind,
    /// The default.
    pub default: DefaultValue,
    /// The component that acts on the option.
    pub consumer: Consumer,
    /// A short description of the effect.
    pub about: &'static str,
}

macro_rules! options {
    ($($option:ident $name:literal $kind:expr, $default:expr, $consumer:expr, $about:literal;)*) => {
        /// An option, as a row of the table.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum OptionId {
            $(#[doc = $about] $option,)*
        }

        /// Every option, sorted by name. They are the options of Triton's CUDA and HIP back ends,
        /// of triton-cpu, and of the launcher.
        pub static OPTIONS: &[OptionInfo] = &[$(OptionInfo {
            id: OptionId::$option,
            name: $name,
            kind: $kind,
            default: $default,
            consumer: $consumer,
            about: $about,
        },)*];
    };
}

use Consumer::{Check, Codegen, CpuLaunch, Language, Launch, Launcher, Refused, Silent, Warned};
use DefaultValue as Is;
use OptionKind::{Any, Bool, Int, OptionalInt, PowerOfTwo, Precision, Text};

/// The reason for ignoring an option that only describes AMD's GPUs.
const HIP: &str = "it is for AMD's GPUs";
/// The reason for ignoring an option that has only one possible value.
const SETTLED: &str = "the language and the target determine it";
/// The reason for ignoring an option that selects other code for functions.
const SAME_FUNCTIONS: &str = "each function computes what the op table says";
/// The advice about experimental options of Triton 2.1 to 3.3.
const OLDER: &str = "later releases of Triton do not have it; there is `tl.range(warp_specialize=True)`";
const NO_LIMIT: i128 = i32::MAX as i128;

options! {
    AllowFlushDenorm "allow_flush_denorm" Bool, Is::Bool(false), Silent(HIP), "HIP: flush denormals";
    AllowFp8e4b15 "allow_fp8e4b15" Bool, Is::Bool(false), Silent(SETTLED), "Triton 2.2: fp8 types";
    AllowFp8e4nv "allow_fp8e4nv" Bool, Is::Bool(false), Silent(SETTLED), "Triton 2.2: fp8 types";
    AllowedDotInputPrecisions "allowed_dot_input_precisions" Any,
        Is::Strs(&["tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"]), Silent(SETTLED), "precisions of dot";
    Arch "arch" Any, Is::None, Check, "architecture to compile for";
    BackendName "backend_name" Text, Is::Str("cuda"), Silent(SETTLED), "name of the back end";
    Clc "clc" Bool, Is::Bool(false),
        Warned("the GPU schedules programs in the usual way"), "cluster launch control";
    ClusterDims "cluster_dims" Any, Is::None,
        Warned("`num_ctas` is the size of a cluster"), "Triton 2.1: shape of a cluster";
    Debug "debug" Bool, Is::Bool(false), Language, "check assertions";
    DefaultDotInputPrecision "default_dot_input_precision" Precision, Is::Str("tf32"), Language,
        "precision of a dot on fp32 that states none";
    DeprecatedFp8DotOperandDtypes "deprecated_fp8_dot_operand_dtypes" Any, Is::Strs(&[]), Silent(SETTLED),
        "fp8 types";
    EnableFastMath "enable_fast_math" Bool, Is::Bool(true), Silent(SAME_FUNCTIONS), "triton-cpu: approximate functions";
    EnableFpFusion "enable_fp_fusion" Bool, Is::Bool(true), Codegen, "contract multiplications and additions";
    EnablePersistent "enable_persistent" Bool, Is::Bool(false),
        Warned(OLDER), "Triton 2.1: persistent programs";
    EnableReflectFtz "enable_reflect_ftz" Bool, Is::Bool(true),
        Silent(SAME_FUNCTIONS), "flush denormals in math functions";
    EnableWarpSpecialization "enable_warp_specialization" Bool, Is::Bool(false),
        Warned(OLDER), "Triton 2.1: warp specialization";
    ExternLibs "extern_libs" Any, Is::None,
        Silent("the functions of libdevice are built in, and a call of any other is an error of its own"),
        "libraries to link";
    FpsanHomomorphicCasts "fpsan_homomorphic_casts" Bool, Is::Bool(false),
        Silent("there is no floating-point sanitizer"), "floating-point sanitizer";
    Grid "grid" Any, Is::None, Launcher, "the grid, with warmup and run";
    InstrumentationMode "instrumentation_mode" Text, Is::Str(""),
        Refused("no kernel is instrumented; `sanitize=` checks a launch on the CPU and the simulator"), "instrumentation";
    IrOverride "ir_override" Any, Is::None,
        Refused("the file is for another compiler; `tilewright compile` takes a file of IR"), "IR to use instead";
    Kpack "kpack" Int(1, 16), Is::Int(1), Silent(HIP), "HIP: packing along k";
    LaunchCooperativeGrid "launch_cooperative_grid" Bool, Is::Bool(false), Launch,
        "all programs run at the same time";
    LaunchPdl "launch_pdl" Bool, Is::Bool(false), Launch, "programmatic dependent launch";
    LlvmFnAttrs "llvm_fn_attrs" Text, Is::Str(""), Silent(HIP), "HIP: attributes of functions";
    MatrixInstrNonkdim "matrix_instr_nonkdim" Int(0, 64), Is::Int(0), Silent(HIP), "HIP: shape of matrix instructions";
    MaxNumImpreciseAccDefault "max_num_imprecise_acc_default" OptionalInt(0, NO_LIMIT), Is::None,
        Language, "fp8 products that are added before the accumulator is rounded to fp32";
    Maxnreg "maxnreg" OptionalInt(1, 1024), Is::None, Codegen, "maximum number of registers of a thread";
    MinSharedMem "min_shared_mem" OptionalInt(0, NO_LIMIT), Is::None,
        Warned("a block gets the shared memory that it needs"), "minimum bytes of shared memory";
    NumBuffersWarpSpec "num_buffers_warp_spec" Int(0, NO_LIMIT), Is::Int(0),
        Warned(OLDER), "Triton 3.3: buffers between partitions";
    NumConsumerGroups "num_consumer_groups" Int(0, NO_LIMIT), Is::Int(0),
        Warned(OLDER), "Triton 3.3: partitions that consume";
    NumCpuThreads "num_cpu_threads" Int(0, NO_LIMIT), Is::Int(0), CpuLaunch,
        "maximum number of threads that run programs; 0 is no maximum";
    // The CPU has no maximum, because only a GPU has blocks, stages or warps. `Options::check` has
    // the limits of GPUs.
    NumCtas "num_ctas" PowerOfTwo(u32::MAX), Is::Int(1), Codegen,
        "blocks of the cluster that a program is divided between; if it cannot be divided, one block with the warps of all, up to 8";
    NumStages "num_stages" Int(0, NO_LIMIT), Is::Int(3), Codegen, "stages of software pipelines";
    NumWarps "num_warps" PowerOfTwo(u32::MAX), Is::Int(4), Codegen, "warps of a program";
    OptimizeEpilogue "optimize_epilogue" Bool, Is::Bool(false),
        Warned(OLDER), "Triton 2.1: layout of stores";
    PtxOptions "ptx_options" Any, Is::None,
        Refused("the driver assembles the code, without options; there are `enable_fp_fusion=` and `maxnreg=`"),
        "options of the assembler";
    PtxVersion "ptx_version" OptionalInt(0, 999), Is::None,
        Warned("the target determines the version of the PTX"), "version of PTX";
    RegDecProducer "reg_dec_producer" Int(0, NO_LIMIT), Is::Int(0),
        Warned(OLDER), "Triton 3.3: registers of the producer";
    RegIncConsumer "reg_inc_consumer" Int(0, NO_LIMIT), Is::Int(0),
        Warned(OLDER), "Triton 3.3: registers of consumers";
    Sanitize "sanitize" Any, Is::None, Launcher,
        "checks of this launch by the sanitizer: True, or names such as 'race,init'";
    SanitizeOverflow "sanitize_overflow" Bool, Is::Bool(true), Language, "check overflow and divisors of integers in debug mode";
    Sched4reg "sched4reg" Bool, Is::Bool(false),
        Warned("the driver schedules as usual; `maxnreg` limits registers"), "schedule for registers";
    ScheduleHint "schedule_hint" Text, Is::Str(""), Silent(HIP), "HIP: scheduling";
    Stream "stream" Any, Is::None, Launcher, "the stream of the launch";
    SupportedFp8Dtypes "supported_fp8_dtypes" Any, Is::Strs(&["fp8e5", "fp8e4b15"]), Silent(SETTLED), "fp8 types";
    Ukernels "ukernels" Any, Is::None, Silent("the executor has machine code of its own for dots"),
        "triton-cpu: library for dots";
    VecLib "vec_lib" Any, Is::None, Silent(SAME_FUNCTIONS), "triton-cpu: library of vector functions";
    Warmup "warmup" Any, Is::Bool(false), Launcher, "compile and do not run";
    WarpSize "warp_size" PowerOfTwo(64), Is::Int(32), Check, "threads of a warp";
    WavesPerEu "waves_per_eu" Int(0, 64), Is::Int(0), Silent(HIP), "HIP: occupancy";
    WgpCuMode "wgp_cu_mode" Text, Is::Str("wgp"), Silent(HIP), "HIP: mode of workgroup processors";
}

impl OptionId {
    /// Returns the option with this name.
    pub fn parse(name: &str) -> Option<Self> {
        OPTIONS.binary_search_by_key(&name, |info| info.name).ok().map(|row| OPTIONS[row].id)
    }

    /// Returns the row of the option.
    pub fn info(self) -> &'static OptionInfo {
        &OPTIONS[self as usize]
    }

    /// Returns whether the option is for the launcher (`grid`, `sanitize`, `stream`, `warmup`) and
    /// not for the compiler.
    pub fn is_for_launcher(self) -> bool {
        self.info().consumer == Launcher
    }
}

impl OptionKind {
    /// Returns whether an option of this kind accepts `value`.
    pub(crate) fn takes(self, value: &Constant) -> bool {
        let number = match value {
            Constant::Int(number) => Some(*number),
            _ => None,
        };
        match self {
            PowerOfTwo(most) => {
                number.is_some_and(|n| (1..=i128::from(most)).contains(&n) && n.count_ones() == 1)
            }
            Int(least, most) => number.is_some_and(|n| (least..=most).contains(&n)),
            OptionalInt(least, most) => *value == Constant::None || Int(least, most).takes(value),
            Bool => matches!(value, Constant::Bool(_) | Constant::Int(0 | 1) | Constant::None),
            Precision => {
                matches!(value, Constant::Str(name) if InputPrecision::from_name(name).is_some())
            }
            Text => matches!(value, Constant::Str(_) | Constant::None),
            Any => true,
        }
    }
}

impl fmt::Display for OptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PowerOfTwo(u32::MAX) => f.write_str("a power of two"),
            PowerOfTwo(most) => write!(f, "a power of two from 1 to {most}"),
            Int(least, NO_LIMIT) => write!(f, "an int of at least {least}"),
            Int(least, most) => write!(f, "an int from {least} to {most}"),
            OptionalInt(least, most) => write!(f, "None or {}", Int(*least, *most)),
            Bool => f.write_str("a bool"),
            Precision => {
                let names: Vec<_> = InputPrecision::ALL.iter().map(|p| format!("'{}'", p.name())).collect();
                write!(f, "one of {}", names.join(", "))
            }
            Text => f.write_str("a string"),
            Any => f.write_str("any value"),
        }
    }
}

impl From<DefaultValue> for Constant {
    fn from(default: DefaultValue) -> Self {
        match default {
            DefaultValue::None => Constant::None,
            DefaultValue::Bool(value) => Constant::Bool(value),
            DefaultValue::Int(value) => Constant::Int(value),
            DefaultValue::Str(text) => Constant::Str(text.into()),
            DefaultValue::Strs(items) => {
                Constant::Tuple(items.iter().map(|&item| Constant::Str(item.into())).collect())
            }
        }
    }
}
