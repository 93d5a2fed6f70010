//! The state of the stub.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, c_void};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

/// Everything but what a launch needs, which has to be quick.
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
    /// Records that a buffer of CUPTI takes; with 0 as many as fit.
    pub records: usize,
    /// The limit of a context that was set last; the stub has one.
    pub limit: usize,
    pub memory: BTreeMap<u64, Vec<u8>>,
    pub events: HashMap<usize, Instant>,
    pub modules: HashMap<usize, Option<Vec<u8>>>,
    /// Streams and events.
    pub live: HashSet<usize>,
    pub launches: String,
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
            kernel: [32, 0, 0, 1024],
            failures: Vec::new(),
            next: 1,
        }
    }
}

/// A kernel of a module.
pub struct Function {
    pub name: String,
    pub dynamic_limit: AtomicU32,
    /// Offset and bytes of each parameter, where the PTX is known.
    pub parameters: Option<Vec<(usize, usize)>>,
}

/// The code that a call was told to fail with.
pub fn failure(call: &str) -> Option<i32> {
    // The state is made by the first call, and with it what the environment says.
    static READY: LazyLock<()> = LazyLock::new(|| drop(STATE.lock()));
    LazyLock::force(&READY);
    if !FAILING.load(Ordering::Relaxed) {
        return None;
    }
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.failures.iter().find(|(name, _)| name == call).map(|(_, code)| *code)
}

/// Name and description of the codes that occur in tests.
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

/// The contexts of this thread; the last one is current.
pub fn with_stack<T>(work: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    STACK.with_borrow_mut(work)
}

/// The current context of this thread, or 0.
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

    /// A number that was not used as a handle yet.
    pub fn number(&mut self) -> usize {
        self.next += 1;
        self.next << 4
    }

    /// A stream or an event.
    pub fn create(&mut self) -> usize {
        let number = self.number();
        self.live.insert(number);
        number
    }

    /// Returns attributes of an H100, 0 for those that no test reads; newer ones are unknown.
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

    /// Bytes of one allocation.
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

    /// A kernel of a module, if it has one of that name.
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

/// The offset of the parameters in the constant memory of `sm_90`, in which they are aligned.
const PARAMETER_BASE: usize = 0x210;

/// Offset and bytes of each parameter of a kernel, if the PTX has one of that name.
fn parameters(ptx: &str, name: &str) -> Option<Vec<(usize, usize)>> {
    let (_, rest) = ptx.split_once(&format!(".entry {name}("))?;
    let (list, _) = rest.split_once(')')?;
    let mut end = 0_usize;
    let place = |text: &str| {
        // The bits of the type are the only digits of the first type; an array says its bytes and
        // alignment itself.
        let digits =
            |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
        let words: Vec<&str> = text.split_whitespace().collect();
        // The words after `.ptr` are about the memory that the parameter points to.
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

/// The record of a launch.
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

/// An assembler at work.
pub struct Link {
    options: Vec<(i32, *mut c_void)>,
    pub cubin: Vec<u8>,
}

/// Ends the work of an assembler.
pub fn destroy(link: *mut Link) {
    // SAFETY: the handle came from `cuLinkCreate_v2`, and it is not used afterwards.
    drop(unsafe { Box::from_raw(link) });
}

/// The offset in the header of an ELF file that has room for a mark.
const MARK: usize = 8;

impl Link {
    pub fn new(options: Vec<(i32, *mut c_void)>) -> Self {
        Self { options, cubin: Vec::new() }
    }

    /// An ELF file with a section that holds the options and the PTX.
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

    /// Writes to a log, if the caller gave one: 3 is that for messages, 5 that for errors.
    pub fn write(&self, log: i32, message: &str) {
        let option =
            |key: i32| self.options.iter().find(|(option, _)| *option == key).map(|(_, value)| *value);
        if let (Some(buffer), Some(bytes)) = (option(log), option(log + 1)) {
            crate::copy_out(buffer, &message.as_bytes()[..message.len().min(bytes.addr())]);
        }
    }
}

/// The bytes of the PTX that a cubin of [`Link::assemble`] holds.
pub fn embedded_length(header: &[u8]) -> Option<usize> {
    let length = header.get(MARK..)?.strip_prefix(b"STUB")?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*length) as usize)
}
