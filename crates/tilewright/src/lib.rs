//! Compile and launch Triton kernels from Rust.
