//! Maps the memory of random programs, between inaccessible pages.
#![expect(unsafe_code, reason = "pages and processes of the operating system")]

use std::ffi::c_int;
use std::io;

use crate::generate::ARENA;

/// [`ARENA`] bytes between two inaccessible pages. Child processes share them.
pub struct Arena {
    /// A guard page, the arena, a guard page, and a page for results.
    mapping: *mut u8,
    /// The number of bytes of the arena, rounded up to pages.
    size: usize,
    page: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The run ended with this value.
    Done(u64),
    /// The run failed with an error.
    Failed(String),
    /// A signal ended the process.
    Signal(c_int),
}

/// The maximum time of a run in seconds.
const PATIENCE: u32 = 20;

impl Arena {
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call has no precondition.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let size = ARENA.next_multiple_of(page);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANON;
        // SAFETY: the system chooses the address of a new mapping.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), size + 3 * page, protection, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = mapping.cast::<u8>();
        for guard in [0, page + size] {
            // SAFETY: the page belongs to the mapping, and nothing refers to it.
            if unsafe { libc::mprotect(mapping.add(guard).cast(), page, libc::PROT_NONE) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self { mapping, size, page })
    }

    /// Returns the address of the arena, which ends at the end of a page.
    pub fn address(&self) -> u64 {
        self.start().expose_provenance() as u64
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the offset is in the mapping.
        unsafe { self.mapping.add(self.page + self.size - ARENA) }
    }

    fn results(&self) -> *mut u64 {
        // SAFETY: the offset is in the mapping.
        unsafe { self.mapping.add(2 * self.page + self.size) }.cast()
    }

    pub fn write(&mut self, content: &[u8]) {
        assert_eq!(content.len(), ARENA);
        // SAFETY: the arena has `ARENA` bytes, and so has `content`.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), self.start(), ARENA) };
    }

    pub fn read(&self) -> Vec<u8> {
        // SAFETY: the arena has `ARENA` bytes, and no code writes to them now.
        unsafe { std::slice::from_raw_parts(self.start(), ARENA) }.to_vec()
    }

    /// Calls `run` in a child process, whose stores to the arena this process sees. A signal ends a
    /// run after [`PATIENCE`] seconds.
    pub fn isolate(&mut self, run: &dyn Fn(u64) -> Result<u64, String>) -> Outcome {
        let results = self.results();
        // SAFETY: the child process only calls `run`, and ends without running destructors.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork: {}", io::Error::last_os_error());
        if child == 0 {
            // SAFETY: the calls have no precondition.
            unsafe {
                libc::alarm(PATIENCE);
                // The messages of a failing process must not be in the output of the tests.
                libc::close(libc::STDERR_FILENO);
            }
            let result = run(self.address());
            let text = result.as_ref().err().map_or(&[][..], |error| error.as_bytes());
            let length = text.len().min(self.page - 16);
            // SAFETY: the page of results has room for two integers and the text.
            unsafe {
                results.write(result.as_ref().copied().unwrap_or(0));
                results.add(1).write(length as u64);
                std::ptr::copy_nonoverlapping(text.as_ptr(), results.add(2).cast(), length);
                libc::_exit(c_int::from(result.is_err()));
            }
        }
        let mut status = 0;
        // SAFETY: the child process is the one created above, and the status is writable.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(waited == child, "waitpid: {}", io::Error::last_os_error());
        if libc::WIFSIGNALED(status) {
            return Outcome::Signal(libc::WTERMSIG(status));
        }
        // SAFETY: the child process wrote the results and ended.
        unsafe {
            if libc::WEXITSTATUS(status) == 0 {
                return Outcome::Done(results.read());
            }
            let length = results.add(1).read() as usize;
            let text = std::slice::from_raw_parts(results.add(2).cast::<u8>(), length.min(self.page - 16));
            Outcome::Failed(String::from_utf8_lossy(text).into_owned())
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `new` created the mapping with this size, and nothing refers to it any more.
        unsafe { libc::munmap(self.mapping.cast(), self.size + 3 * self.page) };
    }
}
