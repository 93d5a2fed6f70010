//! Passes from tile IR to tile IR.
