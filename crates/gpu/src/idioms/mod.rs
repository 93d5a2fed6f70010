//! Mechanisms for one idiom of kernels each, named after it. All other passes are general.
//!
//! | idiom | what is done for it |
//! |---|---|
//! | [`online_softmax`] | warps skip the rescaling of accumulators where all factors are 1 |
//! | [`causal_order`] | programs whose loops have the most iterations begin first |

mod causal_order;
mod online_softmax;

pub use causal_order::program_order;
pub use online_softmax::{Powers, is_correction_factor, skip_rescaling};
