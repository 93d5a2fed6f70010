//! Tests of the layout algebra against brute force, against the formulas of the PTX ISA, and on a little machine that
//! carries out conversion plans.

mod algebra;
mod convert;
mod display;
mod f2;
mod memory;
mod query;
mod random;
mod reduce;
mod tensor_core;
