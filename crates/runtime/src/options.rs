//! The options of a launch: the keyword arguments that are not parameters of the kernel.

use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic};
use tilewright_compiler::{CodegenOptions, Target};
use tilewright_frontend::{Constant, suggest};
use tilewright_ir::InputPrecision;

use crate::key::Key;
use crate::{Error, FpFusion, Knobs};

/// An option, as a row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OptionId(u8);

/// What an option takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionKind {
    /// A power of two, from 1 to this.
    PowerOfTwo(u32),
    /// An integer from the first to the second number.
    Int(i128, i128),
    /// As `Int`, or `None`.
    OptionalInt(i128, i128),
    /// A boolean.
    Bool,
    /// The name of a precision of `dot`.
    Precision,
    /// A string.
    Text,
    /// Anything known at compile time: it concerns a GPU's tools that tilewright does without.
    Any,
    /// Read by the launcher before a kernel is looked up; it never reaches [`Options`].
    Launcher,
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionInfo {
    /// The keyword.
    pub name: &'static str,
    /// What it takes.
    pub kind: OptionKind,
    /// The default, as Python writes it.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
}

use OptionKind::{Any, Bool, Int, Launcher, OptionalInt, PowerOfTwo, Precision, Text};

macro_rules! options {
    ($($name:literal $kind:expr, $default:literal, $about:literal;)*) => {
        /// Every option, sorted by name: those of Triton's CUDA and HIP back ends, and those of the launcher.
        pub static OPTIONS: &[OptionInfo] = &[$(OptionInfo {
            name: $name,
            kind: $kind,
            default: $default,
            about: $about,
        },)*];
    };
}

options! {
    "allow_flush_denorm" Bool, "False", "HIP: flush denormals";
    "allowed_dot_input_precisions" Any, "('tf32', 'tf32x3', 'ieee', 'bf16x3', 'bf16x6')", "precisions of dot";
    "arch" Any, "None", "architecture to compile for";
    "backend_name" Text, "'cuda'", "name of the back end";
    "clc" Bool, "False", "cluster launch control";
    "debug" Bool, "False", "check assertions";
    "default_dot_input_precision" Precision, "'tf32'", "precision of a dot on fp32 that does not say";
    "deprecated_fp8_dot_operand_dtypes" Any, "()", "fp8 types";
    "enable_fp_fusion" Bool, "True", "contract multiplications and additions";
    "enable_reflect_ftz" Bool, "True", "flush denormals in math functions";
    "extern_libs" Any, "None", "libraries to link";
    "fpsan_homomorphic_casts" Bool, "False", "floating-point sanitizer";
    "grid" Launcher, "None", "the grid, with warmup and run";
    "instrumentation_mode" Text, "''", "instrumentation";
    "ir_override" Any, "None", "IR to use instead";
    "kpack" Int(1, 16), "1", "HIP: packing along k";
    "launch_cooperative_grid" Bool, "False", "all programs run at the same time";
    "launch_pdl" Bool, "False", "programmatic dependent launch";
    "llvm_fn_attrs" Text, "''", "HIP: attributes of functions";
    "matrix_instr_nonkdim" Int(0, 64), "0", "HIP: shape of matrix instructions";
    "max_num_imprecise_acc_default" OptionalInt(0, i32::MAX as i128), "None", "fp8 products between exact sums";
    "maxnreg" OptionalInt(1, 1024), "None", "most registers of a thread";
    "min_shared_mem" OptionalInt(0, i32::MAX as i128), "None", "least shared memory";
    "num_ctas" PowerOfTwo(16), "1", "blocks in a cluster";
    "num_stages" Int(0, 64), "3", "stages of software pipelines";
    "num_warps" PowerOfTwo(64), "4", "warps of a program";
    "ptx_options" Any, "None", "options of the assembler";
    "ptx_version" OptionalInt(0, 999), "None", "version of PTX";
    "sanitize_overflow" Bool, "True", "check integer overflow in debug mode";
    "sched4reg" Bool, "False", "schedule for registers";
    "schedule_hint" Text, "''", "HIP: scheduling";
    "stream" Launcher, "None", "the stream of the launch";
    "supported_fp8_dtypes" Any, "('fp8e5', 'fp8e4b15')", "fp8 types";
    "warmup" Launcher, "False", "compile and do not run";
    "warp_size" PowerOfTwo(64), "32", "threads of a warp";
    "waves_per_eu" Int(0, 64), "0", "HIP: occupancy";
    "wgp_cu_mode" Text, "'wgp'", "HIP: mode of workgroup processors";
}

/// Options of the code of a GPU that nothing here does yet, and that change no result: a launch that sets one is warned of. Those of HIP are not among them: they say something of other machines alone.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("clc", "programs are given to multiprocessors in the usual way"),
    ("min_shared_mem", "a block gets the shared memory that it needs"),
    ("num_ctas", "each program is one block, in no cluster"),
    ("ptx_version", "the PTX is of the version that goes with the target"),
    ("sched4reg", "the driver schedules as usual; `maxnreg` limits registers"),
];

/// Options that change what a kernel does, and that nothing here does yet.
const NOT_YET: &[&str] = &["instrumentation_mode", "ir_override", "ptx_options"];

impl OptionId {
    /// The option with this name.
    pub fn parse(name: &str) -> Option<Self> {
        OPTIONS.binary_search_by_key(&name, |info| info.name).ok().map(|row| Self(row as u8))
    }

    /// Its row.
    pub fn info(self) -> &'static OptionInfo {
        &OPTIONS[usize::from(self.0)]
    }

    /// Whether it is for the launcher (`grid`, `warmup`, `stream`) and not for the compiler.
    pub fn is_for_launcher(self) -> bool {
        self.info().kind == Launcher
    }
}

/// The options of one launch. Those that a kernel's code depends on are part of its key in the cache.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    pub(crate) num_warps: u32,
    pub(crate) num_stages: u32,
    pub(crate) num_ctas: u32,
    pub(crate) max_registers: Option<u32>,
    fp_fusion: FpFusion,
    pub(crate) debug: bool,
    /// `TRITON_DEBUG` is on, which no launch takes back.
    is_always_debug: bool,
    pub(crate) allow_plain_globals: bool,
    pub(crate) default_dot_precision: InputPrecision,
    /// The others, as they were set.
    pub(crate) others: SmallVec<[(OptionId, Constant); 0]>,
}

impl Options {
    /// The defaults, as the knobs have them.
    pub fn new(knobs: &Knobs) -> Self {
        Self {
            num_warps: 4,
            num_stages: 3,
            num_ctas: 1,
            max_registers: None,
            fp_fusion: knobs.fp_fusion,
            debug: knobs.debug,
            is_always_debug: knobs.debug,
            allow_plain_globals: knobs.allow_plain_globals,
            default_dot_precision: knobs.default_dot_precision,
            others: SmallVec::new(),
        }
    }

    /// Checks assertions, unless a launch says otherwise.
    #[must_use]
    pub fn with_debug(mut self) -> Self {
        self.debug = true;
        self
    }

    /// Sets an option; fails if it does not take this value. Options of the launcher are passed over.
    pub fn set(&mut self, option: OptionId, value: &Constant) -> Result<(), Error> {
        let info = option.info();
        let number = as_int(value);
        let fits = match info.kind {
            PowerOfTwo(most) => {
                number.is_some_and(|n| (1..=i128::from(most)).contains(&n) && n.count_ones() == 1)
            }
            Int(least, most) => number.is_some_and(|n| (least..=most).contains(&n)),
            OptionalInt(least, most) => {
                *value == Constant::None || number.is_some_and(|n| (least..=most).contains(&n))
            }
            Bool => matches!(value, Constant::Bool(_) | Constant::Int(0 | 1) | Constant::None),
            Precision => matches!(value, Constant::Str(name) if InputPrecision::from_name(name).is_some()),
            Text => matches!(value, Constant::Str(_) | Constant::None),
            Any => true,
            Launcher => return Ok(()),
        };
        if !fits {
            return Err(invalid(info, value).into());
        }
        if NOT_YET.contains(&info.name) && value.is_true() {
            let message = format!("the launch option {} is not available yet", info.name);
            let note = format!("found {value}; a launch without it works");
            return Err(Diagnostic::new(Code::NotOnThisDevice, message).note(note).into());
        }
        let number = number.unwrap_or_default() as u32;
        match info.name {
            "num_warps" => self.num_warps = number,
            "num_stages" => self.num_stages = number,
            "num_ctas" => self.num_ctas = number,
            "maxnreg" => self.max_registers = (*value != Constant::None).then_some(number),
            "enable_fp_fusion" if *value == Constant::None || self.fp_fusion == FpFusion::Forbidden => {}
            "enable_fp_fusion" => {
                self.fp_fusion = if value.is_true() { FpFusion::On } else { FpFusion::Off };
            }
            "debug" => self.debug = value.is_true() || self.is_always_debug,
            "default_dot_input_precision" => {
                if let Constant::Str(name) = value {
                    self.default_dot_precision = InputPrecision::from_name(name).unwrap_or_default();
                }
            }
            _ => self.set_other(option, value),
        }
        Ok(())
    }

    /// Sets the option with this name.
    pub fn set_named(&mut self, name: &str, value: &Constant) -> Result<(), Error> {
        let Some(option) = OptionId::parse(name) else {
            let similar = suggest(name, OPTIONS.iter().map(|info| info.name));
            let hint = similar.map(|similar| format!("did you mean '{similar}'?"));
            let message = format!("'{name}' is not a launch option");
            let diagnostic = Diagnostic { hint, ..Diagnostic::new(Code::UnknownOption, message) };
            return Err(diagnostic.into());
        };
        self.set(option, value)
    }

    /// What an option is set to, for a handle's metadata.
    pub fn get(&self, option: OptionId) -> Constant {
        match option.info().name {
            "num_warps" => Constant::Int(self.num_warps.into()),
            "num_stages" => Constant::Int(self.num_stages.into()),
            "num_ctas" => Constant::Int(self.num_ctas.into()),
            "maxnreg" => self.max_registers.map_or(Constant::None, |count| Constant::Int(count.into())),
            "enable_fp_fusion" => Constant::Bool(self.contracts()),
            "debug" => Constant::Bool(self.debug),
            "default_dot_input_precision" => Constant::Str(self.default_dot_precision.name().into()),
            _ => {
                let set = self.others.iter().find(|(other, _)| *other == option);
                set.map_or_else(|| parse_default(option.info().default), |(_, value)| value.clone())
            }
        }
    }

    /// Refuses what contradicts the target. The CPU takes everything that GPUs take, so that programs for these run on it.
    pub(crate) fn check(&self, target: Target) -> Result<(), Error> {
        let Target::Gpu(gpu) = target else { return Ok(()) };
        let refused = |name: &str, note: String| {
            let option = OptionId::parse(name).expect("it is in the table");
            let message = format!("the launch option {name} is {}, for {target}", self.get(option));
            Diagnostic::new(Code::InvalidOption, message).note(note)
        };
        let threads = "a warp has 32 threads, and a block at most 1024";
        if self.num_warps > 32 {
            let note = format!("expected a power of two from 1 to 32: {threads}");
            return Err(refused("num_warps", note).into());
        }
        if !matches!(self.other("warp_size"), None | Some(Constant::Int(32))) {
            return Err(refused("warp_size", format!("expected 32: {threads}")).into());
        }
        let arch = match self.other("arch") {
            None | Some(Constant::None) => return Ok(()),
            Some(Constant::Str(name)) => name.to_string(),
            Some(other) => other.to_string(),
        };
        // As Triton and its users write it: sm90, sm_90a, 90.
        let digits: String = arch.chars().filter(char::is_ascii_digit).collect();
        if !arch.starts_with("gfx") && digits == gpu.capability.to_string() {
            return Ok(());
        }
        let note = format!("a kernel is compiled for its target; expected 'sm{}'", gpu.capability);
        let hint = "for the code of another GPU, `triton.compile(source, target=GPUTarget(\"cuda\", 80, 32))`; to run it \
                    there, the device sim:sm_80";
        Err(refused("arch", note).hint(hint).into())
    }

    /// The options that are set and that the code for a target does not follow, with what happens instead.
    pub fn without_effect(&self, target: Target) -> Vec<(OptionInfo, Constant, &'static str)> {
        let Target::Gpu(gpu) = target else { return Vec::new() };
        let ptx_version = Constant::Int((gpu.ptx_version.0 * 10 + gpu.ptx_version.1).into());
        let rows = WITHOUT_EFFECT.iter().filter_map(|&(name, instead)| {
            let option = OptionId::parse(name)?;
            let value = self.get(option);
            let is_asked_for = match name {
                "num_ctas" => self.num_ctas != 1,
                "ptx_version" => value != Constant::None && value != ptx_version,
                _ => value.is_true(),
            };
            is_asked_for.then_some((*option.info(), value, instead))
        });
        rows.collect()
    }

    /// What one of the rarer options is set to.
    fn other(&self, name: &str) -> Option<&Constant> {
        self.others.iter().find(|(option, _)| option.info().name == name).map(|(_, value)| value)
    }

    fn set_other(&mut self, option: OptionId, value: &Constant) {
        match self.others.iter_mut().find(|(other, _)| *other == option) {
            Some((_, old)) => *old = value.clone(),
            None => self.others.push((option, value.clone())),
        }
    }

    fn contracts(&self) -> bool {
        self.fp_fusion == FpFusion::On
    }

    pub(crate) fn codegen(&self) -> CodegenOptions {
        CodegenOptions {
            num_ctas: self.num_ctas,
            max_registers: self.max_registers,
            contraction: self.contracts(),
        }
    }

    pub(crate) fn language(&self) -> tilewright_frontend::Options {
        tilewright_frontend::Options {
            debug: self.debug,
            allow_plain_globals: self.allow_plain_globals,
            default_dot_precision: self.default_dot_precision,
            num_warps: self.num_warps,
            num_stages: self.num_stages,
        }
    }

    /// Adds what the code depends on.
    pub(crate) fn encode(&self, key: &mut Key) {
        let flags = u64::from(self.debug)
            | u64::from(self.allow_plain_globals) << 1
            | u64::from(self.contracts()) << 2;
        key.push(
            u64::from(self.num_warps)
                | u64::from(self.num_stages) << 8
                | u64::from(self.num_ctas) << 16
                | u64::from(self.max_registers.unwrap_or(0)) << 24
                | (self.default_dot_precision as u64) << 40
                | flags << 48
                | (self.others.len() as u64) << 56,
        );
        for (option, value) in &self.others {
            key.push(u64::from(option.0));
            key.push_constant(value);
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new(&Knobs::current())
    }
}

fn as_int(value: &Constant) -> Option<i128> {
    match value {
        Constant::Int(value) => Some(*value),
        _ => None,
    }
}

fn invalid(info: &OptionInfo, value: &Constant) -> Diagnostic {
    let expected = match info.kind {
        PowerOfTwo(most) => format!("a power of two from 1 to {most}"),
        Int(least, most) => format!("an int from {least} to {most}"),
        OptionalInt(least, _) => format!("None or an int of at least {least}"),
        Bool => "a bool".into(),
        Precision => {
            let names: Vec<_> = InputPrecision::ALL.iter().map(|p| format!("'{}'", p.name())).collect();
            format!("one of {}", names.join(", "))
        }
        Text => "a string".into(),
        Any | Launcher => "any value".into(),
    };
    Diagnostic::new(Code::InvalidOption, format!("the launch option {} is {value}", info.name))
        .note(format!("found {value} of type {}, expected {expected}", value.type_name()))
        .hint(format!("{}: {}; the default is {}", info.name, info.about, info.default))
}

/// The value of a default in the table: the few forms that stand there.
fn parse_default(text: &str) -> Constant {
    match text {
        "True" => Constant::Bool(true),
        "False" => Constant::Bool(false),
        "None" => Constant::None,
        _ if text.starts_with('(') => {
            let items = text.trim_matches(['(', ')']).split(", ").filter(|item| !item.is_empty());
            Constant::Tuple(items.map(parse_default).collect())
        }
        _ if text.starts_with('\'') => Constant::Str(text.trim_matches('\'').into()),
        _ => text.parse().map_or(Constant::None, Constant::Int),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &Constant) -> Result<Options, Error> {
        let mut options = Options::new(&Knobs::default());
        options.set(OptionId::parse(name).unwrap(), value)?;
        Ok(options)
    }

    #[test]
    fn the_table_is_sorted_and_its_defaults_are_in_force() {
        for pair in OPTIONS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} {}", pair[0].name, pair[1].name);
        }
        let options = Options::new(&Knobs::default());
        for info in OPTIONS {
            let option = OptionId::parse(info.name).unwrap();
            assert_eq!(options.get(option), parse_default(info.default), "{}", info.name);
        }
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(set("num_warps", &Constant::Int(8)).unwrap().num_warps, 8);
        assert_eq!(set("maxnreg", &Constant::None).unwrap().max_registers, None);
        assert_eq!(set("extern_libs", &Constant::Tuple(vec![].into())).unwrap().others.len(), 1);
        for (name, value) in [
            ("num_warps", Constant::Int(3)),
            ("num_warps", Constant::Int(0)),
            ("num_warps", Constant::Int(128)),
            ("num_warps", Constant::Int(i128::MIN)),
            ("num_warps", Constant::Bool(true)),
            ("num_warps", Constant::Float(4.0)),
            ("num_stages", Constant::Int(-1)),
            ("maxnreg", Constant::Str("many".into())),
            ("debug", Constant::Str("yes".into())),
            ("default_dot_input_precision", Constant::Str("fp4".into())),
        ] {
            assert_eq!(set(name, &value).unwrap_err().code(), Some(Code::InvalidOption), "{name}");
        }
    }

    #[test]
    fn the_key_tells_options_apart() {
        let key = |options: &Options| {
            let mut key = Key::default();
            options.encode(&mut key);
            key
        };
        let default = key(&Options::new(&Knobs::default()));
        assert_ne!(key(&set("num_warps", &Constant::Int(8)).unwrap()), default);
        assert_ne!(key(&set("debug", &Constant::Bool(true)).unwrap()), default);
        assert_ne!(key(&set("clc", &Constant::Bool(true)).unwrap()), default);
    }
}
