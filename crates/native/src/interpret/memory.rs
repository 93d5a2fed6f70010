//! Accesses memory and calls functions by their addresses.
#![expect(unsafe_code, reason = "a function of vector SSA knows memory and functions by address only")]

/// The memory of the process. The caller of [`Memory::new`] guarantees that each access is sound.
#[derive(Debug)]
pub(super) struct Memory(());

#[expect(clippy::unused_self, reason = "the value is the promise that the accesses are sound")]
impl Memory {
    /// Creates a value that accesses any address.
    ///
    /// # Safety
    ///
    /// Each address that the caller passes to the methods must be valid for the access: mapped,
    /// exposed, free of data races, and writable for a write. Each called function must be sound to
    /// call with its arguments.
    pub(super) unsafe fn new() -> Self {
        Self(())
    }

    /// Loads up to 8 bytes, lowest first, extended with zeros.
    pub(super) fn load(&self, address: u64, bytes: usize) -> u64 {
        let mut value = [0; 8];
        let source = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: the creator of the value guarantees that the address is valid for reads.
        unsafe { std::ptr::copy_nonoverlapping(source, value.as_mut_ptr(), bytes) };
        u64::from_le_bytes(value)
    }

    /// Stores the low bytes of a value, lowest first.
    pub(super) fn store(&self, address: u64, bytes: usize, value: u64) {
        let value = value.to_le_bytes();
        let destination = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: the creator of the value guarantees that the address is valid for writes.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), destination, bytes) };
    }

    /// Calls a function of the C ABI with up to four arguments. Panics if there are more.
    pub(super) fn call(&self, function: usize, arguments: &[u64]) -> u64 {
        let function = std::ptr::with_exposed_provenance::<()>(function);
        // SAFETY: the creator of the value guarantees that the function has this type.
        unsafe {
            match *arguments {
                [] => std::mem::transmute::<*const (), extern "C" fn() -> u64>(function)(),
                [a] => std::mem::transmute::<*const (), extern "C" fn(u64) -> u64>(function)(a),
                [a, b] => std::mem::transmute::<*const (), extern "C" fn(u64, u64) -> u64>(function)(a, b),
                [a, b, c] => {
                    std::mem::transmute::<*const (), extern "C" fn(u64, u64, u64) -> u64>(function)(a, b, c)
                }
                [a, b, c, d] => std::mem::transmute::<*const (), extern "C" fn(u64, u64, u64, u64) -> u64>(
                    function,
                )(a, b, c, d),
                // tidy: wildcard because the verifier rejects more arguments
                _ => panic!("a call has at most four arguments, not {}", arguments.len()),
            }
        }
    }
}
