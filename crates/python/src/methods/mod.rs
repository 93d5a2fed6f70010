//! Implements the Python methods of the classes of `kernel` and `launch`.

mod compiled_kernel;
mod jit_kernel;
mod wrapper;
