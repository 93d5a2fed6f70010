//! Tests the layout algebra against brute force and the formulas of the PTX ISA.

mod algebra;
mod convert;
mod display;
mod f2;
mod memory;
mod query;
mod random;
mod reduce;
mod tensor_core;
