//! Lowers programs to PTX. The tests assemble the text of the benchmarks' kernels with `ptxas`.
//! They compare the results of kernels in the simulator with those of the CPU's executor.

mod asynchronous;
mod blackwell;
mod common;
mod elementwise;
mod golden;
mod math64;
mod planted;
mod programs;
