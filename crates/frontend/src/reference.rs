//! Defines references to objects of the host, by their indices.

/// An object that only the host can use: a module, a class, a plain Python function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectRef(pub u32);

/// A `@jit` function of the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionRef(pub u32);

/// A function in the body of a class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemberFunction {
    /// The function. The host finds the source by this reference.
    pub function: FunctionRef,
    /// The object that the host calls at compile time, if the function is a `constexpr_function`.
    pub at_compile_time: Option<ObjectRef>,
}
