//! Loads a stub of the driver for each test.
//!
//! Each test loads its own copy of the file, so that it has its own state.
#![expect(unsafe_code, reason = "the stub is a C library")]

use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use libloading::Library;
use tilewright_cuda::{Context, Driver, Error, Module};

/// A temporary folder. Dropping the value removes the folder and its content.
pub struct TemporaryFolder(pub PathBuf);

impl TemporaryFolder {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let folder =
                std::env::temp_dir().join(format!("tilewright-cuda-{}-{number}", std::process::id()));
            match std::fs::create_dir(&folder) {
                Ok(()) => return Self(folder),
                // An earlier process, or one in another container, with the same id has left the
                // folder.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", folder.display()),
            }
        }
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the path of the stub's library, which Cargo places next to the tests.
pub fn stub_file() -> PathBuf {
    let folder = std::env::current_exe().expect("a test knows its file");
    let name =
        format!("{}tilewright_cuda_stub{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    folder.with_file_name(name)
}

/// A loaded stub of the driver, for one test.
pub struct Stub {
    pub file: PathBuf,
    library: Library,
    _folder: TemporaryFolder,
}

impl Stub {
    /// Loads a stub with the configuration `words`; see the header of `stub/src/lib.rs`.
    pub fn new(words: &str) -> Self {
        let folder = TemporaryFolder::new();
        let file = folder.0.join("libcuda.so.1");
        std::fs::copy(stub_file(), &file).expect("cargo has built the stub");
        // SAFETY: the stub has no initializers.
        let library = unsafe { Library::new(&file) }.expect("the stub is a library");
        let stub = Self { file, library, _folder: folder };
        stub.configure(words);
        stub
    }

    pub fn configure(&self, words: &str) {
        let words = CString::new(words).expect("no NUL in it");
        self.symbol::<extern "C" fn(*const c_char)>("tilewright_stub_configure")(words.as_ptr());
    }

    /// Returns the launches since the last call, one line for each launch. The stub must be
    /// configured to `record` launches.
    pub fn take_launches(&self) -> Vec<String> {
        let mut buffer = vec![0_u8; 1 << 16];
        let take = self.symbol::<extern "C" fn(*mut c_char, usize) -> usize>("tilewright_stub_take_launches");
        let length = take(buffer.as_mut_ptr().cast(), buffer.len());
        String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned).collect()
    }

    /// Returns the number of allocations, modules, streams and events that the test has not freed.
    pub fn count_live(&self) -> usize {
        self.symbol::<extern "C" fn() -> usize>("tilewright_stub_count_live")()
    }

    /// Calls a function of the stub directly. The function takes a number or a pointer to a number.
    pub fn call<T>(&self, function: &str, argument: T) -> i32 {
        self.symbol::<extern "system" fn(T) -> i32>(function)(argument)
    }

    fn symbol<T: Copy>(&self, name: &str) -> T {
        // SAFETY: each caller in this file passes the type that the symbol has in the stub.
        *unsafe { self.library.get::<T>(name) }.expect("the stub has it")
    }

    pub fn current_context(&self) -> usize {
        let mut context = 0;
        assert_eq!(self.call("cuCtxGetCurrent", &raw mut context), 0);
        context
    }

    pub fn open(&self) -> Result<&'static Driver, Error> {
        Driver::open(Some(&self.file))
    }

    /// Returns the primary context of the first device.
    pub fn context(&self) -> Context {
        let device = self.open().and_then(|driver| driver.device(0));
        device.and_then(Context::primary).expect("the stub has a device")
    }
}

/// A module with the kernel `scale`, which does nothing.
pub const PTX: &str = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry scale() { ret; }\n";

/// Loads the module of [`PTX`].
pub fn module(context: Context) -> Module {
    Module::load(context, "scale", PTX.as_bytes()).expect("the stub takes every module")
}
