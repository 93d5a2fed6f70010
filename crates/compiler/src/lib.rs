//! The whole path of a kernel as one function.
