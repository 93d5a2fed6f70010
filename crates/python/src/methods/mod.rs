//! Implements the Python methods of the classes of `kernel` and `launch`. The methods may use every
//! layer.

mod compiled_kernel;
mod jit_kernel;
mod wrapper;
