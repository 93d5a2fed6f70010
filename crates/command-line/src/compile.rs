//! Implements `tilewright compile k.py::kernel --signature …`, which prints the text of a stage.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::PossibleValue;
use tilewright::frontend::Constant;
use tilewright::runtime::OPTIONS;
use tilewright::runtime::lock::describe;
use tilewright::{
    Code, Device, Diagnostic, Error, Handle, Kernel, Knobs, Module, Options, SourceMap, Stage, Target,
};

use crate::output::{self, Failure};
use crate::run::launches_of;

/// The value of `--emit` for the description of a kernel, which other launchers need.
const DESCRIPTION: &str = "json";

/// The help text about `--signature`.
pub const SIGNATURES: &str = "\
Arguments in --signature, one for each parameter, separated by commas:
  *fp32  *i64  *bf16       a tensor
  i32  u8  fp32  u1        a number at run time
  *fp32:16  i32:16         the same; the address or the number is a multiple of 16
  1024  -1.5  'text'       a compile-time value; also True and None
  fp16                     for a parameter that is a tl.constexpr: the type, as a value
  (*fp32, i32, 2)          a tuple of these; a NamedTuple names its fields: (x=*fp32, n=i32)
  tensordesc<fp16[64, 32]> a tensor descriptor with blocks of this shape
  BlockedLayout([1], [32], [4], [0])   a layout of Gluon; also after a comma in tensordesc<…>
  BLOCK=1024               by name, after those by position";

/// Compile a kernel and print a stage of it
#[derive(clap::Args)]
#[command(after_help = SIGNATURES)]
pub struct Arguments {
    #[arg(
        help = "The file and the kernel: k.py::add_kernel (or k.py, if it has one kernel); or a file with the output of --emit gpu: k.gpu"
    )]
    kernel: OsString,
    #[command(flatten)]
    specialization: Specialization,
    /// The target to compile for
    #[arg(long, default_value = "cpu", value_parser = Target::names())]
    target: String,
    /// The stage to print; or `json`, which describes the arguments and the launch
    #[arg(long, default_value = "opt", value_parser = stages())]
    emit: String,
    #[arg(
        long,
        value_name = "GRID",
        allow_hyphen_values = true,
        help = "With --emit json: the programs along three axes, as expressions of arguments: 'cdiv(M, 64), N, 1'"
    )]
    grid: Option<String>,
    /// The file to write it to
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// The arguments and options to compile a kernel for.
#[derive(clap::Args)]
pub struct Specialization {
    /// The types of the arguments: '*fp32,*fp32:16,i32,BLOCK=1024'
    #[arg(long, short, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    signature: String,
    #[arg(
        long = "option",
        value_name = "NAME=VALUE",
        help = "A launch option, such as num_warps=8; may be repeated"
    )]
    options: Vec<String>,
    /// Let the code take tensor maps as arguments; only launches by tilewright make them
    #[arg(long)]
    tensor_maps: bool,
    #[arg(
        long,
        value_name = "PROGRAM",
        conflicts_with_all = ["signature", "options", "tensor_maps"],
        help = "Run a Python program, and take the arguments and options of its first launch of the kernel"
    )]
    run: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let usage = |what: &str| Failure::Usage(format!("unknown {what}"));
    let target = Target::parse(&arguments.target).ok_or_else(|| usage("target"))?;
    if arguments.emit == DESCRIPTION {
        let handle = compile(&kernel_of(&arguments.kernel)?, &arguments.specialization, target)?;
        return write(arguments, &describe(&handle, arguments.grid.as_deref())?);
    }
    if arguments.grid.is_some() {
        return Err(Failure::Usage("--grid needs --emit json, which describes the launch".into()));
    }
    let stage = Stage::parse(&arguments.emit).ok_or_else(|| usage("stage"))?;
    if stage == Stage::Cubin {
        return Err(Failure::Usage(
            "a cubin is assembled by a GPU's driver when the kernel is launched: `kernel[grid](...).asm['cubin']` returns it; \
             without a GPU, pass the text of --emit ptx to ptxas"
                .into(),
        ));
    }
    let (path, name) = file_and_name(&arguments.kernel);
    if name.is_none() && path.extension().is_some_and(|extension| extension == "gpu") {
        return write(arguments, &gpu_text(path, stage)?);
    }
    if !Stage::of(target).contains(&stage) {
        let names: Vec<&str> = Stage::of(target).iter().map(|stage| stage.name()).collect();
        let (stage, names) = (stage.name(), names.join(", "));
        let other = if target == Target::Cpu { "sm_90" } else { "cpu" };
        return Err(Failure::Usage(format!(
            "there is no stage '{stage}' for {target}; there are {names}; for '{stage}', pass `--target {other}`"
        )));
    }
    let module = Module::from_file(path)?;
    let name = match &name {
        Some(name) => name,
        None => only_kernel(&module, path)?,
    };
    let text = if stage == Stage::Ast {
        // The tree exists even if the kernel has errors.
        module.syntax_tree(name)?
    } else {
        let handle = compile(&module.kernel(name)?, &arguments.specialization, target)?;
        handle
            .compiled
            .asm(stage)
            .expect("`Stage::of(target)` lists only the stages of a kernel for the target")
    };
    write(arguments, &text)
}

/// Returns the kernel that an argument names: `k.py::kernel`, or `k.py` if the file has only one
/// kernel.
pub fn kernel_of(argument: &OsStr) -> Result<Kernel, Failure> {
    let (path, name) = file_and_name(argument);
    let module = Module::from_file(path)?;
    let name = match &name {
        Some(name) => name,
        None => only_kernel(&module, path)?,
    };
    Ok(module.kernel(name)?)
}

/// Compiles a file with the text of the stage `gpu`. Returns the text of `stage`, which is `gpu` or
/// `ptx`.
fn gpu_text(path: &Path, stage: Stage) -> Result<String, Failure> {
    if !matches!(stage, Stage::Gpu | Stage::Ptx) {
        return Err(Failure::Usage(format!(
            "a .gpu file has no stage '{}'; its stages are gpu and ptx",
            stage.name()
        )));
    }
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Failure::Io(format!("cannot read {name}: {error}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| Failure::Io(format!("cannot read {name}: it is not UTF-8: {error}")))?;
    tilewright::compiler::compile_gpu_text(&name, &text, stage).map_err(|error| Error::from(error).into())
}

fn write(arguments: &Arguments, text: &str) -> Result<(), Failure> {
    match &arguments.output {
        None => output::print(text),
        Some(path) => tilewright_base::write_file(path, text.as_bytes())
            .map_err(|error| Failure::Io(format!("cannot write {}: {error}", path.display()))),
    }
}

/// Compiles a kernel for a target with the signature and the options of the command line.
pub fn compile(kernel: &Kernel, specialization: &Specialization, target: Target) -> Result<Handle, Failure> {
    let launched;
    let specialization = match &specialization.run {
        None => specialization,
        Some(program) => {
            launched = of_launch(&kernel.signature().name, program, target)?;
            &launched
        }
    };
    let mut options = Options::new(&Knobs::current());
    for option in &specialization.options {
        let (name, value) = option
            .split_once('=')
            .ok_or_else(|| Failure::Usage(format!("an option must be NAME=VALUE, not '{option}'")))?;
        options.set_named(name.trim(), &option_value(value.trim())).map_err(with_options)?;
    }
    let device = target.capability().map_or(Device::Cpu, |capability| Device::Sim(capability as u16));
    let compiled = kernel.on(device).compile_for_launches(
        &specialization.signature,
        &options,
        specialization.tensor_maps,
    );
    Ok(compiled.map_err(with_signature)?)
}

/// Returns the arguments and options of a program's first launch of a kernel.
fn of_launch(kernel: &str, program: &Path, target: Target) -> Result<Specialization, Failure> {
    let mut launches = launches_of(program, target)?;
    launches.retain(|launch| launch.kernel == kernel);
    let name = program.display();
    let Some(launch) = launches.first() else {
        return Err(Failure::Io(format!("{name} has not launched a kernel '{kernel}'")));
    };
    if launches.len() > 1 {
        let all: Vec<_> = launches.iter().map(|launch| format!("  {launch}\n")).collect();
        let count = launches.len();
        output::note(&format!(
            "{name} launches '{kernel}' in {count} forms; this is the first:\n{}",
            all.concat()
        ));
    }
    let arguments = launch.arguments.iter().map(|(name, text)| format!("{name}={text}"));
    let options = launch.options.iter().filter(|(name, value)| *name != "tensor_maps" && *value != "None");
    Ok(Specialization {
        signature: arguments.collect::<Vec<_>>().join(","),
        options: options.map(|(name, value)| format!("{name}={value}")).collect(),
        tensor_maps: launch.options.get("tensor_maps").is_some_and(|value| value == "true"),
        run: None,
    })
}

/// Parses an integer, a bool or `None`. Every other text is a string.
fn option_value(text: &str) -> Constant {
    match text {
        "True" | "true" => Constant::Bool(true),
        "False" | "false" => Constant::Bool(false),
        "None" | "none" => Constant::None,
        _ => text.parse().map_or_else(|_| Constant::Str(text.into()), Constant::Int),
    }
}

/// Returns the stages that `--emit` accepts. `cubin` is hidden, but its error explains how to get
/// one.
fn stages() -> Vec<PossibleValue> {
    let value = |stage: &Stage| PossibleValue::new(stage.name()).hide(*stage == Stage::Cubin);
    Stage::ALL.iter().map(value).chain([PossibleValue::new(DESCRIPTION)]).collect()
}

/// Adds the names of the options of a compilation to an error about an unknown option.
fn with_options(error: Error) -> Error {
    let [diagnostic] = error.diagnostics() else { return error };
    if diagnostic.code != Code::UnknownOption {
        return error;
    }
    let of_compilation = OPTIONS.iter().filter(|info| !info.id.is_for_launcher());
    let names: Vec<_> = of_compilation.map(|info| info.name).collect();
    let note = format!("the options are {}", names.join(", "));
    Error::new(diagnostic.clone().note(note), SourceMap::default())
}

/// Rewords an error about a missing argument for a compilation, with a hint about `--signature`.
fn with_signature(error: Error) -> Error {
    let Error::Diagnostics(mut failure) = error else { return error };
    for diagnostic in &mut failure.diagnostics {
        if diagnostic.code == Code::MissingArgument {
            diagnostic.message = diagnostic.message.replace("is launched without", "is compiled without");
            let hint =
                "describe each argument: --signature '*fp32,i32,BLOCK=128' (see `tilewright compile --help`)";
            diagnostic.hint = Some(hint.into());
        }
    }
    Error::Diagnostics(failure)
}

/// Splits `k.py::kernel` into a file and a name, at the last `::`. The path need not be UTF-8.
fn file_and_name(argument: &OsStr) -> (&Path, Option<String>) {
    let bytes = argument.as_encoded_bytes();
    let split = bytes.windows(2).rposition(|pair| pair == b"::");
    match split.and_then(|at| Some((prefix(argument, at)?, str::from_utf8(&bytes[at + 2..]).ok()?))) {
        Some((path, name)) => (Path::new(path), Some(name.into())),
        None => (Path::new(argument), None),
    }
}

/// Returns the first `end` bytes of an argument.
#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "on other platforms it may return none")]
fn prefix(argument: &OsStr, end: usize) -> Option<&OsStr> {
    use std::os::unix::ffi::OsStrExt;
    Some(OsStr::from_bytes(&argument.as_bytes()[..end]))
}

/// Returns the first `end` bytes of an argument. Returns `None` if the argument is not UTF-8.
#[cfg(not(unix))]
fn prefix(argument: &OsStr, end: usize) -> Option<&OsStr> {
    Some(OsStr::new(&argument.to_str()?[..end]))
}

fn only_kernel<'a>(module: &'a Module, path: &Path) -> Result<&'a str, Error> {
    let path = path.display();
    let mut names = module.kernel_names();
    // If several kernels have the same name, the last one counts, as in Python.
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(*name));
    match names[..] {
        [name] => Ok(name),
        [] => Err(Diagnostic::new(Code::KernelNotFound, format!("{path} has no kernel"))
            .note("it has no function with the decorator @triton.jit")
            .into()),
        [first, ..] => Err(Diagnostic::new(Code::KernelNotFound, format!("{path} has several kernels"))
            .note(format!("they are {}", names.join(", ")))
            .hint(format!("name one: {path}::{first}"))
            .into()),
    }
}
