//! Passes over tile IR that prepare a kernel for a GPU.

pub mod addresses;
pub mod cluster;
mod division;
pub mod legality;
pub mod padding;
pub mod scaled_dots;
pub mod stated;
pub mod unroll;
pub mod warps;
