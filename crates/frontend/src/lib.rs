//! Python-syntax source to typed tile IR.
