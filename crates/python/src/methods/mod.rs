//! The Python methods of the classes of `kernel` and `launch`: they may name every layer.

mod compiled_kernel;
mod jit_kernel;
mod wrapper;
