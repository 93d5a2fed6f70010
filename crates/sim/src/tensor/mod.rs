//! The tensor cores: matrix products of a warp (`mma.sync`) and of a warpgroup (`wgmma`), and the instructions that move
//! matrices between shared memory and registers in the layouts that the products want.
//!
//! Everything here is written from the PTX ISA document, as functions of registers and of reads of memory; `execute`
//! binds them to the executor.

mod descriptor;
mod element;
mod execute;
mod fragment;
mod mma;
mod moves;
mod product;
mod quad;
mod swizzle;
mod warpgroup;
mod wgmma;
mod wmma;

pub(crate) use descriptor::Major;
pub(crate) use element::Element;
pub(crate) use execute::{LoadMatrices, MmaStep, QuadMmaStep, StoreMatrices, TransposeMatrix};
use fragment::Matrix;
pub(crate) use fragment::{Fragment, MatrixRole};
pub(crate) use mma::Mma;
pub(crate) use product::IntegerProduct;
pub(crate) use quad::QuadMma;
pub use swizzle::Swizzle;
pub(crate) use warpgroup::{
    Convoy, LeftOperand, ProductAccess, ProductCommit, ProductFence, ProductStep, ProductWait, Products,
};
pub(crate) use wgmma::{WARPS as WARPGROUP_WARPS, Wgmma};
pub(crate) use wmma::{WmmaFragment, WmmaLoad, WmmaMemory, WmmaProduct, WmmaStore};
