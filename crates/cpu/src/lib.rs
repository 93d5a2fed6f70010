//! The CPU executor of the tile IR.
