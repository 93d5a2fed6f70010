//! Programs to PTX: the text of the benchmarks' kernels, assembled by `ptxas`; and results of
//! kernels in the simulator, compared with the CPU's executor.

mod asynchronous;
mod blackwell;
mod common;
mod elementwise;
mod golden;
mod math64;
mod planted;
mod programs;
