//! Stores the configuration and the state of the stub.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, c_void};
use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The state of the stub. The counters and flags that every launch uses are atomics, because a lock
/// would add to the measured times.
pub static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let mut state = State::default();
    state.configure(&std::env::var("TILEWRIGHT_STUB_CUDA").unwrap_or_default());
    Mutex::new(state)
});
pub static LAUNCHES: AtomicU64 = AtomicU64::new(0);
pub static RECORDING: AtomicBool = AtomicBool::new(false);
static FAILING: AtomicBool = AtomicBool::new(false);

pub struct State {
    pub version: i32,
    pub devices: i32,
    pub capability: (i32, i32),
    pub capturing: bool,
    /// The maximum number of records in a buffer of CUPTI. 0 means no limit.
    pub records: usize,
    /// The value of the last `cuCtxSetLimit`, for all contexts and all kinds of limits.
    pub limit: usize,
    pub memory: BTreeMap<u64, Vec<u8>>,
    pub events: HashMap<usize, Instant>,
    pub modules: HashMap<usize, Option<Vec<u8>>>,
    /// The handles of streams and events that exist.
    pub live: HashSet<usize>,
    pub launches: String,
    /// The file to which each assembly appends a line.
    pub assemblies: Option<PathBuf>,
    /// The time that an assembly takes.
    pub pause: Duration,
    kernel: [i32; 4],
    failures: Vec<(String, i32)>,
    next: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            version: 12080,
            devices: 1,
            capability: (9, 0),
            capturing: false,
            records: 0,
            limit: 1 << 20,
            memory: BTreeMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            live: HashSet::new(),
            launches: String::new(),
            assemblies: None,
            pause: Duration::ZERO,
            kernel: [32, 0, 0, 1024],
            failures: Vec::new(),
            next: 1,
        }
    }
}

/// Appends a line about an assembly to a file, if the configuration names one.
pub fn log_assembly(file: Option<&Path>, ptx: &str) {
    if let Some(path) = file {
        let file = std::fs::File::options().create(true).append(true).open(path);
        // A single write keeps the lines of several processes apart. A test that reads the file
        // detects a missing line.
        let _ = file.and_then(|mut file| file.write_all(format!("{} bytes\n", ptx.len()).as_bytes()));
    }
}

/// A kernel of a module.
pub struct Function {
    pub name: String,
    pub dynamic_limit: AtomicU32,
    /// The offset and the size in bytes of each parameter. `None` if the PTX is unknown.
    pub parameters: Option<Vec<(usize, usize)>>,
}

/// Returns the code that the configuration sets for a call (`fail=`). Returns `None` without such a
/// code.
pub fn failure(call: &str) -> Option<i32> {
    // The first use of the state reads the configuration and sets `FAILING`.
    static READY: LazyLock<()> = LazyLock::new(|| drop(STATE.lock()));
    LazyLock::force(&READY);
    if !FAILING.load(Ordering::Relaxed) {
        return None;
    }
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.failures.iter().find(|(name, _)| name == call).map(|(_, code)| *code)
}

/// Returns the name and the description of a code.
pub fn error_text(code: i32) -> (&'static CStr, &'static CStr) {
    match code {
        1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        100 => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
        200 => (c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
        201 => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        218 => (c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
        221 => (c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", c"PTX JIT compiler library not found"),
        222 => (
            c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            c"the provided PTX was compiled with an unsupported toolchain.",
        ),
        500 => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        803 => (
            c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            c"system has unsupported display driver / cuda driver combination",
        ),
        700 => (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
        _ => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
    }
}

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with the stack of contexts of this thread. The last context is current.
pub fn with_stack<T>(work: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    STACK.with_borrow_mut(work)
}

/// Returns the current context of this thread. Returns 0 if no context is current.
pub fn current() -> usize {
    with_stack(|stack| stack.last().copied().unwrap_or(0))
}

impl State {
    pub fn configure(&mut self, words: &str) {
        *self = Self {
            memory: std::mem::take(&mut self.memory),
            modules: std::mem::take(&mut self.modules),
            live: std::mem::take(&mut self.live),
            next: self.next,
            ..Self::default()
        };
        let mut recording = false;
        for (word, value) in words.split(',').filter_map(|word| word.trim().split_once('=')) {
            let number = value.parse().unwrap_or(0);
            match word {
                "version" => self.version = number,
                "devices" => self.devices = number,
                "capability" => {
                    let (major, minor) = value.split_once('.').unwrap_or((value, "0"));
                    self.capability = (major.parse().unwrap_or(0), minor.parse().unwrap_or(0));
                }
                "registers" => self.kernel[0] = number,
                "local" => self.kernel[1] = number,
                "shared" => self.kernel[2] = number,
                "threads" => self.kernel[3] = number,
                "capturing" => self.capturing = number != 0,
                "records" => self.records = number as usize,
                "pause" => self.pause = Duration::from_millis(number.unsigned_abs().into()),
                "assemblies" => self.assemblies = Some(value.into()),
                "record" => recording = number != 0,
                "fail" => {
                    let (call, code) = value.split_once(':').unwrap_or((value, "999"));
                    self.failures.push((call.to_owned(), code.parse().unwrap_or(999)));
                }
                _ => {}
            }
        }
        RECORDING.store(recording, Ordering::Relaxed);
        FAILING.store(!self.failures.is_empty(), Ordering::Relaxed);
    }

    /// Returns an unused handle.
    pub fn number(&mut self) -> usize {
        self.next += 1;
        self.next << 4
    }

    /// Creates a stream or an event, and returns its handle.
    pub fn create(&mut self) -> usize {
        let number = self.number();
        self.live.insert(number);
        number
    }

    /// Returns a device attribute of an H100 with the configured capability; 0 for others. Returns
    /// `None` for a number above 140, as an older driver does.
    pub fn device_attribute(&self, attribute: i32) -> Option<i32> {
        let (major, minor) = self.capability;
        let table = [
            (1, 1024),
            (8, 48 << 10),
            (10, 32),
            (12, 65536),
            (13, 1_980_000),
            (16, 132),
            (36, 2_619_000),
            (37, 5120),
            (38, 50 << 20),
            (39, 2048),
            (75, major),
            (76, minor),
            (81, 228 << 10),
            (82, 65536),
            (95, 1),
            (97, 227 << 10),
            (106, 32),
            (111, 1024),
            (120, i32::from(major >= 9)),
            (127, i32::from(major >= 9)),
        ];
        let known = table.iter().find(|(number, _)| *number == attribute).map(|(_, value)| *value);
        known.or((1..=140).contains(&attribute).then_some(0))
    }

    pub fn function_attribute(&self, function: &Function, attribute: i32) -> i32 {
        let [registers, local, shared, threads] = self.kernel;
        match attribute {
            0 => threads,
            1 => shared,
            3 => local,
            4 => registers,
            6 => self.capability.0 * 10 + self.capability.1,
            8 => function.dynamic_limit.load(Ordering::Relaxed) as i32,
            _ => 0,
        }
    }

    pub fn allocate(&mut self, bytes: usize) -> u64 {
        let after = |(address, content): (&u64, &Vec<u8>)| address + content.len() as u64;
        let address = self.memory.last_key_value().map_or(1 << 40, after).next_multiple_of(256);
        self.memory.insert(address, vec![0xa5; bytes]);
        address
    }

    /// Returns `bytes` bytes at an address. Returns `None` unless one allocation contains all of
    /// them.
    pub fn range(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let (start, content) = self.memory.range_mut(..=address).next_back()?;
        let offset = (address - start) as usize;
        content.get_mut(offset..offset.checked_add(bytes)?)
    }

    pub fn add_module(&mut self, ptx: Option<Vec<u8>>) -> usize {
        let number = self.number();
        self.modules.insert(number, ptx);
        number
    }

    /// Returns the kernel with this name, if the module has it. A module with unknown PTX has every
    /// kernel.
    pub fn function(&self, module: usize, name: &str) -> Option<Function> {
        let parameters = match self.modules.get(&module)? {
            None => None,
            Some(ptx) => Some(parameters(&String::from_utf8_lossy(ptx), name)?),
        };
        Some(Function { name: name.to_owned(), dynamic_limit: AtomicU32::new(0), parameters })
    }

    pub fn record(&mut self, launch: &Launch<'_>) {
        let Launch { function, grid, block, shared, stream, context, attributes, parameters } = launch;
        let mut line =
            format!("{} grid={grid:?} block={block:?} shared={shared} stream={stream:#x}", function.name);
        let _ = write!(line, " context={context:#x} attributes=[");
        for (index, (id, value)) in attributes.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(line, "{comma}{id}: {:?}", &value[..3]);
        }
        line.push_str("] parameters=");
        for byte in *parameters {
            let _ = write!(line, "{byte:02x}");
        }
        line.push('\n');
        self.launches.push_str(&line);
    }
}

/// The offset in bytes of the parameters in the constant bank of `sm_90`. Parameters are aligned in
/// it.
const PARAMETER_BASE: usize = 0x210;

/// Returns the offset and the size in bytes of each parameter of a kernel. Returns `None` if the
/// PTX has no kernel with this name.
fn parameters(ptx: &str, name: &str) -> Option<Vec<(usize, usize)>> {
    let (_, rest) = ptx.split_once(&format!(".entry {name}("))?;
    let (list, _) = rest.split_once(')')?;
    let mut end = 0_usize;
    let place = |text: &str| {
        // A scalar type states its bits (`.u64`). An array states its alignment and its bytes
        // (`.align 64 .b8 map[128]`).
        let digits =
            |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
        let words: Vec<&str> = text.split_whitespace().collect();
        // The words after `.ptr` describe the memory that the parameter points to.
        let mut own = words.iter().take_while(|word| **word != ".ptr");
        let (bytes, alignment) = match own.position(|word| *word == ".align") {
            Some(at) => (digits(text.split_once('[').map_or("", |(_, bytes)| bytes)), digits(words[at + 1])),
            None => (digits(words[1]) / 8, digits(words[1]) / 8),
        };
        let start = (PARAMETER_BASE + end).next_multiple_of(alignment) - PARAMETER_BASE;
        end = start + bytes;
        (start, bytes)
    };
    Some(list.split(',').filter(|text| !text.trim().is_empty()).map(place).collect())
}

/// A launch to be recorded.
pub struct Launch<'a> {
    pub function: &'a Function,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub stream: usize,
    pub context: usize,
    pub attributes: &'a [(u32, [u32; 16])],
    pub parameters: &'a [u8],
}

/// An open invocation of the assembler (`CUlinkState`).
pub struct Link {
    options: Vec<(i32, *mut c_void)>,
    pub cubin: Vec<u8>,
}

/// Closes an invocation of the assembler.
pub fn destroy(link: *mut Link) {
    // SAFETY: the handle came from `cuLinkCreate_v2`, and the caller does not use it afterwards.
    drop(unsafe { Box::from_raw(link) });
}

/// The offset of 8 padding bytes in an ELF header: a magic number, and the length of the options
/// and the PTX.
const MARK: usize = 8;

impl Link {
    pub fn new(options: Vec<(i32, *mut c_void)>) -> Self {
        Self { options, cubin: Vec::new() }
    }

    /// Creates the cubin: an ELF file with a section that contains the options and the PTX.
    pub fn assemble(&mut self, ptx: &str) {
        let is_log = |option: i32| (3..=6).contains(&option);
        let mut text = String::from("//");
        for (option, value) in self.options.iter().filter(|(option, _)| !is_log(*option)) {
            let _ = write!(text, " {option}={}", value.addr());
        }
        let _ = write!(text, "\n{}", ptx.trim_end_matches('\0'));
        let mut file = vec![0; 0x40];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[MARK..MARK + 4].copy_from_slice(b"STUB");
        file[MARK + 4..MARK + 8].copy_from_slice(&(text.len() as u32).to_le_bytes());
        file[0x28..0x30].copy_from_slice(&(0x40 + text.len() as u64).to_le_bytes());
        file[0x3a] = 0x40;
        file[0x3c] = 1;
        file.extend(text.as_bytes());
        let mut section = [0_u8; 0x40];
        section[4] = 1;
        section[0x18..0x20].copy_from_slice(&0x40_u64.to_le_bytes());
        section[0x20..0x28].copy_from_slice(&(text.len() as u64).to_le_bytes());
        file.extend(section);
        self.cubin = file;
    }

    /// Writes a message to a log, if the caller has passed it. `log` is 3 for messages, and 5 for
    /// errors.
    pub fn write(&self, log: i32, message: &str) {
        let option =
            |key: i32| self.options.iter().find(|(option, _)| *option == key).map(|(_, value)| *value);
        if let (Some(buffer), Some(bytes)) = (option(log), option(log + 1)) {
            crate::copy_out(buffer, &message.as_bytes()[..message.len().min(bytes.addr())]);
        }
    }
}

/// Returns the length of the options and the PTX in a cubin of [`Link::assemble`].
pub fn embedded_length(header: &[u8]) -> Option<usize> {
    let length = header.get(MARK..)?.strip_prefix(b"STUB")?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*length) as usize)
}
