//! Reads the knobs: the settings that environment variables control. Other crates read further
//! variables. `cuda` reads those of the driver, of the cache of cubins and of CUPTI. `command-line`
//! reads those that name NVIDIA's tools and Python. `command-line` and `python` read `NO_COLOR`.
//!
//! | variable | meaning |
//! |---|---|
//! | `TILEWRIGHT_DEVICE` | the device that kernels run on: `cpu`, `cuda:1`, `sim:sm_90`; if it is not set, they run on the device of their tensors |
//! | `TRITON_CPU_BACKEND=1`, `TRITON_DEFAULT_BACKEND` | the device if `TILEWRIGHT_DEVICE` is not set: the CPU; or that of the back end `cpu` or `nvidia` |
//! | `TILEWRIGHT_NUM_THREADS`, `TRITON_CPU_MAX_THREADS`, `OMP_NUM_THREADS` | threads that run programs on the CPU (the first one that is set) |
//! | `TILEWRIGHT_MACHINE_CODE=0` | no machine code runs on the CPU: kernels run step by step, with the same results |
//! | `TILEWRIGHT_DEBUG`, `TRITON_DEBUG` | `1`: assertions in kernels are checked, even if a kernel or launch turns them off |
//! | `TILEWRIGHT_PORTABLE` | `1`: the compiler warns of code that the official Triton refuses |
//! | `TILEWRIGHT_SANITIZE=race,init` | launches are checked: `bounds`, `race`, `init`, `alignment`, `overflow`, `nan`; `1` for all |
//! | `TILEWRIGHT_LOCK=file` | kernels are launched from this lock, and nothing is compiled or tuned |
//! | `TILEWRIGHT_LOCK_POLICY` | for a launch that is not in the lock: `error`, or `warn`, which compiles it |
//! | `TILEWRIGHT_LOCK_RECORD=folder` | compiled kernels are recorded in this folder, for a lock |
//! | `TILEWRIGHT_DUMP=ir,opt` | these stages of each compiled kernel are written to stderr; `all` for every stage |
//! | `TILEWRIGHT_DUMP=folder` | every stage is written to files in this folder; a value is a folder if it does not contain the name of a stage |
//! | `TILEWRIGHT_DUMP_DIR` | the stages are written to files in this folder, and not to stderr or to a folder that another variable names: `<folder>/<kernel>-<number>.<stage>` |
//! | `TRITON_KERNEL_DUMP=1`, `TRITON_DUMP_DIR` | every stage is written to files in this folder (by default `~/.triton/dump`) |
//! | `TRITON_ALLOW_NON_CONSTEXPR_GLOBALS=1` | kernels may read globals that are not `tl.constexpr` |
//! | `TRITON_DEFAULT_FP_FUSION=0` | GPUs round multiplications and additions separately, unless a launch sets `enable_fp_fusion=True` |
//! | `TRITON_FORCE_DISABLE_FP_FUSION=1` | GPUs round multiplications and additions separately, even if a launch sets `enable_fp_fusion=True` |
//! | `TRITON_F32_DEFAULT` | precision of `tl.dot` on binary32: `ieee`, `tf32`, `tf32x3`, `bf16x3`, `bf16x6` |

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tilewright_compiler::Stage;
use tilewright_ir::InputPrecision;
use tilewright_sanitize::Checks;

/// A larger number is most likely a mistake, and would exhaust the system.
pub(crate) const MAX_THREADS: usize = 1024;

/// The settings that environment variables control, and that a program may change while it runs.
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches")]
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Knobs {
    /// `TILEWRIGHT_DEVICE`, `TRITON_CPU_BACKEND`, `TRITON_DEFAULT_BACKEND`.
    pub device: Option<String>,
    /// `TILEWRIGHT_DEBUG`, `TRITON_DEBUG`: assertions are checked, even if a kernel or launch turns
    /// them off.
    pub debug: bool,
    /// `TRITON_ALLOW_NON_CONSTEXPR_GLOBALS`.
    pub allow_plain_globals: bool,
    /// `TILEWRIGHT_PORTABLE`: the compiler warns of code that the official Triton refuses.
    pub portable: bool,
    /// `TRITON_DEFAULT_FP_FUSION`, `TRITON_FORCE_DISABLE_FP_FUSION`.
    pub fp_fusion: FpFusion,
    /// `TRITON_F32_DEFAULT`.
    pub default_dot_precision: InputPrecision,
    /// `TILEWRIGHT_SANITIZE`: the checks of launches. A list with an unknown name means every
    /// check.
    pub sanitize: Checks,
    /// The stages to write out when a kernel is compiled.
    pub dump: Vec<Stage>,
    /// The folder that the stages are written to; `None` is stderr.
    pub dump_directory: Option<PathBuf>,
    /// The requested number of threads that run programs on the CPU.
    pub num_threads: Option<usize>,
    /// `TILEWRIGHT_MACHINE_CODE=0`: no machine code runs on the CPU.
    pub without_machine_code: bool,
    /// `TILEWRIGHT_LOCK`: the lock that kernels are launched from.
    pub lock: Option<PathBuf>,
    /// `TILEWRIGHT_LOCK_POLICY=warn`: a launch that is not in the lock is compiled, after a line on
    /// stderr.
    pub lock_permits_misses: bool,
    /// `TILEWRIGHT_LOCK_RECORD`: the folder in which compiled kernels are recorded for a lock.
    pub lock_record: Option<PathBuf>,
    /// The value of `TILEWRIGHT_NUM_THREADS` if it is neither empty nor an integer from 1 to 1024.
    pub invalid_threads: Option<String>,
}

/// The permission for a GPU to fuse a multiplication and an addition, which rounds once instead of
/// twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FpFusion {
    /// Permitted, unless a launch sets `enable_fp_fusion=False`.
    #[default]
    On,
    /// Only permitted if a launch sets `enable_fp_fusion=True`.
    Off,
    /// Never permitted, even if a launch sets `enable_fp_fusion=True`.
    Forbidden,
}

static CURRENT: RwLock<Option<Arc<Knobs>>> = RwLock::new(None);

impl Knobs {
    /// Returns the knobs in force. The first call reads the environment.
    pub fn current() -> Arc<Self> {
        if let Some(knobs) = CURRENT.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Arc::clone(knobs);
        }
        let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(current.get_or_insert_with(|| Arc::new(Self::from_environment())))
    }

    /// Replaces the knobs, for launches from now on.
    pub fn set(self) {
        *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(self));
        crate::checks::forget();
    }

    /// Reads the environment. Reports each invalid value on stderr once in a process. Does not
    /// report invalid values of `TILEWRIGHT_DEVICE`, `TILEWRIGHT_NUM_THREADS` and
    /// `TILEWRIGHT_SANITIZE`.
    pub fn from_environment() -> Self {
        static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let variable = |name: &str| std::env::var_os(name);
        let no_texts = FLAGS.iter().filter_map(|name| Some((name, variable(name)?)));
        let no_texts = no_texts.filter(|(_, value)| value.to_str().is_none());
        let no_texts = no_texts.map(|(name, value)| {
            format!(
                "{name} is '{}', which is not UTF-8: a flag with this value is off, and a number is ignored",
                text_of(&value)
            )
        });
        let no_texts: Vec<String> = no_texts.collect();
        for finding in
            misunderstood(|name| variable(name).as_deref().map(text_of)).into_iter().chain(no_texts)
        {
            if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(finding.clone()) {
                eprintln!("tilewright: {finding}");
            }
        }
        Self::read(variable)
    }

    fn read(bytes: impl Fn(&str) -> Option<OsString>) -> Self {
        let variable = |name: &str| bytes(name).as_deref().map(text_of);
        let path = |name: &str| bytes(name).map(PathBuf::from);
        let flag = |name: &str| variable(name).is_some_and(|value| is_true(&value));
        let kernel_dump = flag("TRITON_KERNEL_DUMP");
        let mut dump = variable("TILEWRIGHT_DUMP").map(|list| parse_stages(&list)).unwrap_or_default();
        let mut dump_directory = path("TILEWRIGHT_DUMP_DIR");
        if variable("TILEWRIGHT_DUMP").is_some_and(|list| is_folder(&list)) {
            dump = Stage::ALL.to_vec();
            dump_directory = dump_directory.or(path("TILEWRIGHT_DUMP"));
        }
        if kernel_dump {
            dump = Stage::ALL.to_vec();
            let home = || path("HOME").map(|home| home.join(".triton").join("dump"));
            let triton = path("TRITON_DUMP_DIR");
            dump_directory = dump_directory.or(triton).or_else(home);
        }
        // OpenMP's list for nested parallelism, such as `4,2`, begins with the outer level.
        let openmp = variable("OMP_NUM_THREADS")
            .and_then(|list| list.split(',').next()?.trim().parse().ok())
            .filter(|&count| count > 0);
        let limit = variable("TRITON_CPU_MAX_THREADS").and_then(|text| max_threads(&text));
        let threads = variable("TILEWRIGHT_NUM_THREADS").filter(|text| !text.trim().is_empty());
        let is_number = |text: &String| matches!(text.trim().parse::<usize>(), Ok(1..=MAX_THREADS));
        let invalid_threads = threads.clone().filter(|text| !is_number(text));
        Self {
            device: variable("TILEWRIGHT_DEVICE").filter(|name| !name.is_empty()).or_else(|| {
                let backend = variable("TRITON_DEFAULT_BACKEND").unwrap_or_default();
                let device = if flag("TRITON_CPU_BACKEND") { Some("cpu") } else { device_of(&backend) };
                device.map(str::to_owned)
            }),
            debug: flag("TILEWRIGHT_DEBUG") || flag("TRITON_DEBUG"),
            allow_plain_globals: flag("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS"),
            portable: flag("TILEWRIGHT_PORTABLE"),
            fp_fusion: match variable("TRITON_DEFAULT_FP_FUSION") {
                _ if flag("TRITON_FORCE_DISABLE_FP_FUSION") => FpFusion::Forbidden,
                Some(value) if !is_true(&value) => FpFusion::Off,
                _ => FpFusion::On,
            },
            default_dot_precision: variable("TRITON_F32_DEFAULT")
                .and_then(|name| InputPrecision::from_name(&name))
                .unwrap_or_default(),
            sanitize: variable("TILEWRIGHT_SANITIZE")
                .map_or(Checks::NONE, |list| Checks::parse(&list).unwrap_or(Checks::ALL)),
            dump,
            dump_directory,
            num_threads: threads
                .and_then(|text| text.trim().parse().ok())
                .filter(|&count| count > 0)
                .or(limit)
                .or(openmp),
            invalid_threads,
            lock: path("TILEWRIGHT_LOCK").filter(|path| !path.as_os_str().is_empty()),
            lock_permits_misses: variable("TILEWRIGHT_LOCK_POLICY").is_some_and(|name| name == "warn"),
            lock_record: path("TILEWRIGHT_LOCK_RECORD").filter(|path| !path.as_os_str().is_empty()),
            without_machine_code: variable("TILEWRIGHT_MACHINE_CODE")
                .is_some_and(|value| !value.is_empty() && !is_true(&value)),
        }
    }
}

/// The variables that accept every UTF-8 text.
const FLAGS: [&str; 10] = [
    "OMP_NUM_THREADS",
    "TILEWRIGHT_DEBUG",
    "TILEWRIGHT_MACHINE_CODE",
    "TILEWRIGHT_PORTABLE",
    "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS",
    "TRITON_CPU_BACKEND",
    "TRITON_DEBUG",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_FORCE_DISABLE_FP_FUSION",
    "TRITON_KERNEL_DUMP",
];

/// Returns the text of a variable, with bytes that are not UTF-8 escaped (`\xff`). Such a text is
/// then reported as a wrong value.
fn text_of(value: &OsStr) -> String {
    value.to_str().map_or_else(|| value.as_encoded_bytes().escape_ascii().to_string(), str::to_owned)
}

/// Returns a message about each variable of this function with an invalid value.
fn misunderstood(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(name) = variable("TRITON_F32_DEFAULT").filter(|name| !name.is_empty())
        && InputPrecision::from_name(&name).is_none()
    {
        let names: Vec<_> = InputPrecision::ALL.iter().map(|precision| precision.name()).collect();
        let (names, default) = (names.join(", "), InputPrecision::default().name());
        found.push(format!("TRITON_F32_DEFAULT is '{name}', expected one of {names}: {default} is used"));
    }
    if let Some(name) = variable("TILEWRIGHT_LOCK_POLICY")
        && !matches!(name.as_str(), "" | "error" | "warn")
    {
        found.push(format!("TILEWRIGHT_LOCK_POLICY is '{name}', expected error or warn: error is used"));
    }
    if let Some(limit) = variable("TILEWRIGHT_CACHE_LIMIT").filter(|limit| !limit.is_empty())
        && limit.trim().parse::<u64>().is_err()
    {
        let default = tilewright_cuda::CACHE_LIMIT >> 20;
        found.push(format!(
            "TILEWRIGHT_CACHE_LIMIT is '{limit}', expected a number of MiB: {default} is used"
        ));
    }
    if let Some(name) = variable("TRITON_DEFAULT_BACKEND").filter(|name| !name.is_empty())
        && device_of(&name).is_none()
    {
        found.push(format!("TRITON_DEFAULT_BACKEND is '{name}', expected cpu or nvidia: it is ignored"));
    }
    if let Some(text) = variable("TRITON_CPU_MAX_THREADS")
        && !matches!(text.trim(), "" | "0")
        && max_threads(&text).is_none()
    {
        let expected = format!("expected an integer from 0 to {MAX_THREADS}");
        found.push(format!("TRITON_CPU_MAX_THREADS is '{text}', {expected}: it is ignored"));
    }
    if let Some(list) = variable("TILEWRIGHT_DUMP").filter(|list| !is_folder(list) && list.contains(',')) {
        for name in list.split(',').map(str::trim).filter(|name| Stage::parse(name).is_none()) {
            let stages: Vec<_> = Stage::ALL.iter().map(|stage| stage.name()).collect();
            found.push(format!(
                "TILEWRIGHT_DUMP has '{name}', which is no stage: there are {}",
                stages.join(", ")
            ));
        }
    }
    found
}

/// Returns the name of the device for a back end of Triton; `None` for an unknown back end.
fn device_of(backend: &str) -> Option<&'static str> {
    match backend {
        "cpu" => Some("cpu"),
        "cuda" | "nvidia" => Some("cuda"),
        _ => None,
    }
}

/// Parses `TRITON_CPU_MAX_THREADS`. Returns `None` for 0, which means no maximum, and for an
/// invalid value.
fn max_threads(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|count| (1..=MAX_THREADS).contains(count))
}

/// Reads a flag as Triton does.
fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on" | "y")
}

/// Parses a list of stages such as `ir,opt`. Ignores unknown names.
fn parse_stages(list: &str) -> Vec<Stage> {
    if matches!(list, "all" | "1") {
        return Stage::ALL.to_vec();
    }
    list.split(',').filter_map(|name| Stage::parse(name.trim())).collect()
}

/// Returns whether `list`, the value of `TILEWRIGHT_DUMP`, is a folder: it names no stage, and is
/// not empty, `all`, `0` or `1`.
fn is_folder(list: &str) -> bool {
    let is_none = |name: &str| Stage::parse(name.trim()).is_none();
    let is_switch = matches!(list.trim(), "" | "all" | "0" | "1");
    !is_switch && list.split(',').all(is_none)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(variables: &[(&str, &str)]) -> Knobs {
        Knobs::read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    #[cfg(unix)]
    fn what_is_no_text_is_a_wrong_value() {
        use std::os::unix::ffi::OsStrExt;
        let bytes = OsStr::from_bytes(b"sim\xff");
        let read = |name: &str| Knobs::read(|asked| (asked == name).then(|| bytes.to_owned()));
        assert_eq!(read("TILEWRIGHT_DEVICE").device.as_deref(), Some("sim\\xff"));
        assert_eq!(read("TILEWRIGHT_NUM_THREADS").invalid_threads.as_deref(), Some("sim\\xff"));
        assert_eq!(read("TILEWRIGHT_SANITIZE").sanitize, Checks::ALL);
        // A path may have any bytes.
        assert_eq!(read("TILEWRIGHT_DUMP_DIR").dump_directory.as_deref(), Some(bytes.as_ref()));
        assert_eq!(read("TILEWRIGHT_DUMP").dump_directory.as_deref(), Some(bytes.as_ref()));
        let found = misunderstood(|asked| (asked == "TRITON_F32_DEFAULT").then(|| text_of(bytes)));
        assert!(found[0].starts_with("TRITON_F32_DEFAULT is 'sim\\xff'"), "{found:?}");
    }

    #[test]
    fn what_nobody_understands_is_said() {
        let found = |name: &str, text: &str| misunderstood(|asked| (asked == name).then(|| text.to_owned()));
        assert_eq!(found("TRITON_F32_DEFAULT", "ieee"), [""; 0]);
        assert_eq!(found("TRITON_F32_DEFAULT", ""), [""; 0]);
        let expected =
            "TRITON_F32_DEFAULT is 'fp32', expected one of tf32, tf32x3, ieee, bf16x3, bf16x6: tf32 is used";
        assert_eq!(found("TRITON_F32_DEFAULT", "fp32"), [expected]);
        assert_eq!(found("TILEWRIGHT_CACHE_LIMIT", "3"), [""; 0]);
        let expected = "TILEWRIGHT_CACHE_LIMIT is '3G', expected a number of MiB: 1024 is used";
        assert_eq!(found("TILEWRIGHT_CACHE_LIMIT", "3G"), [expected]);
        assert_eq!(found("TRITON_DEFAULT_BACKEND", "cpu"), [""; 0]);
        let expected = "TRITON_DEFAULT_BACKEND is 'amd', expected cpu or nvidia: it is ignored";
        assert_eq!(found("TRITON_DEFAULT_BACKEND", "amd"), [expected]);
        assert_eq!(found("TRITON_CPU_MAX_THREADS", "0"), [""; 0]);
        let expected = "TRITON_CPU_MAX_THREADS is 'all', expected an integer from 0 to 1024: it is ignored";
        assert_eq!(found("TRITON_CPU_MAX_THREADS", "all"), [expected]);
        for fine in ["", "0", "1", "all", "ir", "ir, opt", "folder", "a,b"] {
            assert_eq!(found("TILEWRIGHT_DUMP", fine), [""; 0], "{fine}");
        }
        let wrong = found("TILEWRIGHT_DUMP", "ir,ptxx, sas");
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(
            wrong[0].starts_with("TILEWRIGHT_DUMP has 'ptxx', which is no stage: there are ast, ir"),
            "{wrong:?}"
        );
        assert!(knobs(&[("TILEWRIGHT_NUM_THREADS", "1024")]).invalid_threads.is_none());
        assert_eq!(knobs(&[("TILEWRIGHT_NUM_THREADS", "1025")]).invalid_threads.as_deref(), Some("1025"));
    }

    #[test]
    fn variables_are_read() {
        assert_eq!(knobs(&[]), Knobs::default());
        assert!(knobs(&[("TRITON_DEBUG", "1")]).debug);
        assert!(!knobs(&[("TRITON_DEBUG", "0")]).debug);
        assert_eq!(knobs(&[("TILEWRIGHT_DEVICE", "sim:sm_90")]).device.as_deref(), Some("sim:sm_90"));
        assert_eq!(knobs(&[("TILEWRIGHT_DEVICE", "")]).device, None);
        assert_eq!(knobs(&[("TILEWRIGHT_DUMP", "ir, opt,nonsense")]).dump, [Stage::Ir, Stage::Opt]);
        let folder = knobs(&[("TILEWRIGHT_DUMP", "/tmp/stages")]);
        assert_eq!(folder.dump_directory, Some(PathBuf::from("/tmp/stages")));
        assert_eq!(folder.dump.len(), Stage::ALL.len());
        assert_eq!(knobs(&[("TILEWRIGHT_DUMP", "0")]), Knobs::default());
        assert_eq!(knobs(&[("TRITON_CPU_BACKEND", "1")]).device.as_deref(), Some("cpu"));
        assert_eq!(knobs(&[("TRITON_CPU_BACKEND", "0")]).device, None);
        for (backend, device) in [("cpu", Some("cpu")), ("nvidia", Some("cuda")), ("amd", None), ("", None)] {
            assert_eq!(knobs(&[("TRITON_DEFAULT_BACKEND", backend)]).device.as_deref(), device);
        }
        let both = [("TILEWRIGHT_DEVICE", "sim:sm_90"), ("TRITON_CPU_BACKEND", "1")];
        assert_eq!(knobs(&both).device.as_deref(), Some("sim:sm_90"));
        let limit = ("TRITON_CPU_MAX_THREADS", "4");
        assert_eq!(knobs(&[limit, ("OMP_NUM_THREADS", "3")]).num_threads, Some(4));
        assert_eq!(knobs(&[limit, ("TILEWRIGHT_NUM_THREADS", "5")]).num_threads, Some(5));
        assert_eq!(knobs(&[("TRITON_CPU_MAX_THREADS", "0"), ("OMP_NUM_THREADS", "3")]).num_threads, Some(3));
        assert_eq!(knobs(&[("OMP_NUM_THREADS", "3,2")]).num_threads, Some(3));
        assert_eq!(knobs(&[("TILEWRIGHT_NUM_THREADS", "5"), ("OMP_NUM_THREADS", "3")]).num_threads, Some(5));
        assert_eq!(knobs(&[("OMP_NUM_THREADS", "0")]).num_threads, None);
        for bad in ["0", "-2", "many", "1.5"] {
            let knobs = knobs(&[("TILEWRIGHT_NUM_THREADS", bad), ("OMP_NUM_THREADS", "3")]);
            assert_eq!((knobs.num_threads, knobs.invalid_threads.as_deref()), (Some(3), Some(bad)));
        }
        assert_eq!(knobs(&[("TILEWRIGHT_SANITIZE", "race")]).sanitize.to_string(), "race");
        assert_eq!(knobs(&[("TILEWRIGHT_SANITIZE", "1")]).sanitize, Checks::ALL);
        assert_eq!(knobs(&[("TRITON_F32_DEFAULT", "ieee")]).default_dot_precision, InputPrecision::Ieee);
        let on = ("TRITON_DEFAULT_FP_FUSION", "1");
        assert_eq!(knobs(&[("TRITON_DEFAULT_FP_FUSION", "0")]).fp_fusion, FpFusion::Off);
        assert_eq!(knobs(&[on]).fp_fusion, FpFusion::On);
        assert_eq!(knobs(&[("TRITON_FORCE_DISABLE_FP_FUSION", "1"), on]).fp_fusion, FpFusion::Forbidden);
        let dump = knobs(&[("TRITON_KERNEL_DUMP", "1"), ("HOME", "/h")]);
        assert_eq!(dump.dump_directory, Some(PathBuf::from("/h/.triton/dump")));
        assert_eq!(dump.dump.len(), Stage::ALL.len());
    }
}
