//! Lowers programs to PTX, assembles it, and compares results with the CPU.

mod asynchronous;
mod blackwell;
mod common;
mod elementwise;
mod golden;
mod math64;
mod planted;
mod programs;
