//! The tilewright command.
