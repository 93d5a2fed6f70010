//! Calls machine code, which accesses memory by address.

use tilewright_native::Executable;

/// Calls the function of a nest with the words of its argument, and returns its result.
///
/// The words must be those for which the function was generated: regions of the launch, and
/// addresses of tiles and scratch memory of the expected lengths. The function checks all other
/// accesses against the regions.
pub(crate) fn call_machine_code(executable: &Executable, words: &mut [u64]) -> u64 {
    // SAFETY: the regions, the tiles and the scratch memory are valid during the call, and the code
    // accesses no other memory.
    unsafe { executable.call(words.as_mut_ptr()) }
}
