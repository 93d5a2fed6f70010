//! Provides an evaluator that shares no code with the passes, and a program generator.

pub mod evaluate;
pub mod generate;
pub mod number;

pub use tilewright_fuzz::random::Random;

pub fn seeds(default: u64) -> std::ops::Range<u64> {
    let count = std::env::var("TILEWRIGHT_SEEDS").ok().and_then(|text| text.parse().ok());
    0..count.unwrap_or(default)
}
