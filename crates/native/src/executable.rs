//! Maps machine code to executable memory.
//!
//! A page is first writable, then executable, and never both. All `unsafe` code of the crate is
//! here and in `interpret`.

#![allow(unsafe_code, reason = "executable memory is mapped and called by raw pointers")]

use std::io;

use crate::Code;

/// A function in executable memory.
#[derive(Debug)]
pub struct Executable {
    mapping: Mapping,
}

impl Executable {
    /// Copies machine code to executable memory. Fails if the platform forbids executable memory.
    pub fn new(code: &Code) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(&code.bytes)? })
    }

    /// Calls the function with `argument` as its parameter.
    ///
    /// # Safety
    ///
    /// The processor must have the instructions of the target for which the code was compiled. The
    /// caller must be allowed to access all memory that the function accesses, in the same way.
    pub unsafe fn call(&self, argument: *mut u64) -> u64 {
        // SAFETY: the mapping begins with the instructions of a function of this type, and lives as
        // long as `self`. The caller guarantees the accesses.
        unsafe {
            let function: extern "C" fn(*mut u64) -> u64 = std::mem::transmute(self.mapping.start());
            function(argument)
        }
    }
}

#[cfg(all(unix, not(miri)))]
mod mapping {
    use std::{io, ptr::NonNull};

    #[derive(Debug)]
    pub(super) struct Mapping {
        start: NonNull<libc::c_void>,
        bytes: usize,
    }

    // SAFETY: no code writes to the pages after `new`.
    unsafe impl Send for Mapping {}
    // SAFETY: no code writes to the pages after `new`.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        pub(super) fn new(code: &[u8]) -> io::Result<Self> {
            let bytes = code.len().max(1);
            let writable = libc::PROT_READ | libc::PROT_WRITE;
            let private = libc::MAP_PRIVATE | libc::MAP_ANON;
            // SAFETY: a new anonymous mapping overlaps no memory of the program.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, writable, private, -1, 0) };
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let start = NonNull::new(start).ok_or_else(|| io::Error::other("mmap returned null"))?;
            let mapping = Self { start, bytes };
            // SAFETY: the mapping is writable and has at least `code.len()` bytes. It is new, so it
            // does not overlap `code`. `mprotect` changes only this mapping.
            let status = unsafe {
                std::ptr::copy_nonoverlapping(code.as_ptr(), start.as_ptr().cast(), code.len());
                super::instruction_cache::synchronize(start.as_ptr().cast(), bytes);
                libc::mprotect(start.as_ptr(), bytes, libc::PROT_READ | libc::PROT_EXEC)
            };
            if status != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(mapping)
        }

        pub(super) fn start(&self) -> *const u8 {
            self.start.as_ptr().cast()
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: `new` created the mapping with this size, and nothing refers to it any more.
            unsafe { libc::munmap(self.start.as_ptr(), self.bytes) };
        }
    }
}

#[cfg(not(all(unix, not(miri))))]
mod mapping {
    use std::io;

    /// This platform has no executable memory yet.
    #[derive(Debug)]
    pub(super) enum Mapping {}

    impl Mapping {
        pub(super) fn new(_code: &[u8]) -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "no executable memory on this platform"))
        }

        pub(super) fn start(&self) -> *const u8 {
            match *self {}
        }
    }
}

/// Makes instruction caches coherent with stores. On x86-64, the processor does this itself.
#[cfg(all(unix, not(miri)))]
mod instruction_cache {
    /// Makes the processors fetch the bytes that were stored last.
    ///
    /// # Safety
    ///
    /// The memory is mapped.
    #[cfg(all(target_arch = "aarch64", not(target_vendor = "apple")))]
    pub(super) unsafe fn synchronize(start: *const u8, bytes: usize) {
        // The register has the binary logarithms of the smallest cache lines, in words.
        let types: u64;
        // SAFETY: programs may read the register.
        unsafe { std::arch::asm!("mrs {}, ctr_el0", out(reg) types, options(nomem, nostack)) };
        let (data, instructions) = (4 << (types >> 16 & 15), 4 << (types & 15));
        let lines = |line: usize| {
            let first = start.addr() & !(line - 1);
            (first..start.addr() + bytes).step_by(line)
        };
        // SAFETY: the instructions change no memory, and the lines have mapped memory.
        unsafe {
            for line in lines(data) {
                std::arch::asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags));
            }
            std::arch::asm!("dsb ish", options(nostack, preserves_flags));
            for line in lines(instructions) {
                std::arch::asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags));
            }
            std::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags));
        }
    }

    /// Makes the processors fetch the bytes that were stored last.
    ///
    /// # Safety
    ///
    /// The memory is mapped.
    #[cfg(all(target_arch = "aarch64", target_vendor = "apple"))]
    pub(super) unsafe fn synchronize(start: *const u8, bytes: usize) {
        unsafe extern "C" {
            fn sys_icache_invalidate(start: *const libc::c_void, bytes: usize);
        }
        // SAFETY: the caller mapped the memory.
        unsafe { sys_icache_invalidate(start.cast(), bytes) };
    }

    /// Does nothing, because the processors fetch the bytes that were stored last.
    ///
    /// # Safety
    ///
    /// The function has no precondition.
    #[cfg(not(target_arch = "aarch64"))]
    pub(super) unsafe fn synchronize(_start: *const u8, _bytes: usize) {}
}

use mapping::Mapping;
