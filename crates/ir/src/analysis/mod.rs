//! Analyzes the values of a function, for every dialect.

pub mod addresses;
pub mod polynomial;
pub mod scalar_evolution;
