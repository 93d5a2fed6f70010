//! Optimizations of idioms, one in each file. The passes in the other folders apply to any kernel.
//!
//! | idiom | mechanism |
//! |---|---|
//! | [`online_softmax`] | a warp skips the rescaling of an accumulator if all its factors are 1 |
//! | [`causal_order`] | the programs whose loops have the most iterations start first |

mod causal_order;
mod online_softmax;

pub use causal_order::program_order;
pub use online_softmax::{FactorBound, is_correction_factor, skip_rescaling};
