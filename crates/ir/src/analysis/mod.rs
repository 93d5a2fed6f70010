//! Analyses of functions that hold for every dialect.

pub mod addresses;
pub mod polynomial;
pub mod scalar_evolution;
