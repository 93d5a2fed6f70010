//! Simulates the tensor cores.
//! The instructions multiply matrices of a warp (`mma.sync`, `wmma`), of a warpgroup (`wgmma`) and
//! in tensor memory (`tcgen05`). Others move matrices between memory and registers. `execute`
//! connects these functions of registers to the executor.

mod descriptor;
mod element;
mod execute;
mod fragment;
mod instruction_descriptor;
mod ldmatrix;
mod mma;
mod multiply;
mod pending_tensor_memory;
mod quad;
mod register_access;
mod swizzle;
mod tensor_dot;
mod tensor_moves;
mod warpgroup;
mod wgmma;
mod wmma;

pub(crate) use descriptor::Major;
pub(crate) use element::Element;
pub(crate) use execute::{LoadMatrices, MmaStep, QuadMmaStep, StoreMatrices, TransposeMatrix};
use fragment::Matrix;
pub(crate) use fragment::{Fragment, MatrixRole};
pub(crate) use instruction_descriptor::TensorKind;
pub(crate) use mma::Mma;
pub(crate) use multiply::IntegerProduct;
pub(crate) use pending_tensor_memory::PendingTensorMemory;
pub(crate) use quad::QuadMma;
pub(crate) use register_access::WgmmaRegisterAccess;
pub use swizzle::Swizzle;
pub(crate) use tensor_dot::{DotCondition, TensorDotStep, TensorLeftOperand};
pub(crate) use tensor_moves::{
    TensorAddress, TensorAllocate, TensorCommitStep, TensorCopyStep, TensorFragment, TensorFree,
    TensorLoadStep, TensorRelinquish, TensorStoreStep, TensorWaitStep,
};
pub(crate) use warpgroup::{
    Convoy, LeftOperand, PendingWgmmas, WgmmaCommitStep, WgmmaFenceStep, WgmmaStep, WgmmaWaitStep,
};
pub(crate) use wgmma::{WARPS as WARPGROUP_WARPS, Wgmma};
pub(crate) use wmma::{WmmaFragment, WmmaLoad, WmmaMemory, WmmaMultiply, WmmaStore};
