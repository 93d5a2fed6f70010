//! Plans to PTX: the text of the benchmarks' kernels, judged by `ptxas`; and what kernels compute in the simulator, against
//! the CPU's executor.

mod asynchronous;
mod common;
mod elementwise;
mod golden;
mod math64;
mod planted;
mod programs;
