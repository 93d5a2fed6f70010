//! Analyses of functions in the GPU dialect that the verifier and the passes share.
//!
//! | module | result |
//! |---|---|
//! | [`slots`] | the slot of a buffer that an instruction accesses |
//! | [`dataflow`] | the walk of a forward analysis over structured control flow |

pub mod dataflow;
mod edges;
mod slot_indices;
pub mod slots;
