//! Defines the table of diagnostic codes.
//!
//! A code is never reused for another diagnostic. `docs/diagnostics/<code>.md` explains it.

/// The class of a diagnostic's Python exception.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The kernel's source has an error: `CompilationError`.
    Compilation,
    /// The kernel's source reads an attribute that a value does not have: `UnknownAttributeError`.
    /// This class is a `CompilationError` and an `AttributeError`, so that `hasattr` works in
    /// interpret mode.
    Attribute,
    /// A `static_assert` failed: `CompileTimeAssertionFailure`, a `CompilationError`.
    StaticAssertion,
    /// The kernel uses a construct of Python that kernels do not support:
    /// `UnsupportedLanguageConstruct`, a `CompilationError`. The class also covers a feature that
    /// the device or tilewright does not have.
    Unsupported,
    /// An argument of the launch is missing, superfluous or of an unsupported type: `LaunchError`,
    /// a `TypeError`.
    LaunchType,
    /// An argument, an option or the grid of the launch has an invalid value: `LaunchError`, a
    /// `ValueError`.
    LaunchValue,
    /// The launch names an unknown option or kernel: `LaunchError`, a `KeyError`.
    LaunchKey,
    /// The launch or a command lacks something that it needs, such as a grid, a device or a lock:
    /// `LaunchError`, a `RuntimeError`. The class also covers something unusable, such as the
    /// folder of a Python environment.
    LaunchState,
    /// The kernel needs more of a resource than the device has: `OutOfResources`.
    OutOfResources,
    /// A running kernel accessed memory outside of its arguments, or elements outside of a tile:
    /// `OutOfBoundsError`, an `IndexError`. The class also covers sizes for which the bounds
    /// analysis finds that a kernel does so.
    OutOfBounds,
    /// A running kernel had another error: `ExecutionError`, a `RuntimeError`.
    Execution,
    /// A `device_assert` failed: `DeviceAssertionError`, an `AssertionError`.
    DeviceAssertion,
    /// The program uses a part of Triton that tilewright replaces with something else:
    /// `NotAvailableError`, a `NotImplementedError`.
    NotAvailable,
    /// The kernel or the launch is legal, but seldom intended: `LaunchWarning`, a `UserWarning`.
    Warning,
}

macro_rules! codes {
    ($($code:literal $name:ident $kind:ident $title:literal;)*) => {
        /// The code of a diagnostic.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// Returns the code as messages print it, such as `TW0001`.
            pub fn name(self) -> &'static str {
                match self { $(Code::$name => $code,)* }
            }

            /// Returns the title of the code's page.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }

            /// Returns the class of the Python exception that the code raises.
            pub fn kind(self) -> Kind {
                match self { $(Code::$name => Kind::$kind,)* }
            }

            /// Returns the page that `tilewright explain` prints, in Markdown.
            pub fn page(self) -> &'static str {
                match self {
                    $(Code::$name => include_str!(concat!("../pages/", $code, ".md")),)*
                }
            }
        }
    };
}

codes! {
    // 00xx: the kernel's source.
    "TW0001" UndefinedName Compilation "undefined name";
    "TW0002" SyntaxError Compilation "not valid Python";
    "TW0003" UnsupportedConstruct Unsupported "Python construct that kernels do not support";
    "TW0004" IncompatibleShapes Compilation "incompatible shapes";
    "TW0005" TypeMismatch Compilation "operand of the wrong type";
    "TW0006" InvalidArange Compilation "invalid range in arange";
    "TW0007" MaskMismatch Compilation "mask or other does not fit the pointer";
    "TW0008" NotConstexpr Compilation "compile-time value expected";
    "TW0009" WrongArguments Compilation "call does not fit the signature";
    "TW0010" NotCallable Compilation "not callable in a kernel";
    "TW0011" LoopTypeChange Compilation "name changes its type across iterations";
    "TW0012" ReturnMismatch Compilation "return types differ";
    "TW0013" InvalidStore Compilation "value cannot be stored there";
    "TW0014" InvalidIndex Compilation "invalid index or pointer offset";
    "TW0015" UnknownAttribute Attribute "no such attribute";
    "TW0016" InvalidValue Compilation "argument value not allowed";
    "TW0017" StaticAssertFailed StaticAssertion "static assertion failed";
    "TW0018" BranchMismatch Compilation "name has different types after the branches";
    "TW0019" DotMismatch Compilation "operands of dot do not fit";
    "TW0020" ConstexprError Compilation "compile-time expression failed";
    "TW0021" RecursiveCall Compilation "recursion in a kernel";
    "TW0022" TooLarge Compilation "tile or program too large";
    "TW0023" GlobalNotConstexpr Compilation "global variable is not a constexpr";
    "TW0024" NotOnThisDevice Unsupported "feature not available on this device";
    "TW0025" MalformedIr Compilation "malformed IR text";
    "TW0026" UnknownExternal Unsupported "external function that is not built in";
    "TW0027" UnusedResult Compilation "result that must be used";
    "TW0028" LayoutMismatch Compilation "layouts that do not fit together";
    "TW0029" SharedMemoryMisuse Compilation "wrong use of shared memory or barriers";
    "TW0030" PartitionMisuse Compilation "partitions of warps that do not fit";
    // Legal, but seldom intended.
    "TW0050" AndOfTiles Warning "'and' or 'or' of tiles";
    "TW0051" ChainedComparison Warning "'&' or '|' within a chained comparison";
    "TW0052" NotPortable Warning "tile that the official Triton refuses";
    // 01xx: the launch.
    "TW0101" MissingArgument LaunchType "missing argument at launch";
    "TW0102" UnknownOption LaunchKey "unknown launch option";
    "TW0103" InvalidGrid LaunchValue "invalid grid";
    "TW0104" NoGrid LaunchState "kernel called without a grid";
    "TW0105" InvalidArgument LaunchType "argument of an unsupported type";
    "TW0106" WrongDevice LaunchValue "tensor on the wrong device";
    "TW0107" TooManyArguments LaunchType "too many arguments at launch";
    "TW0108" InvalidOption LaunchValue "launch option with an invalid value";
    "TW0109" NoDevice LaunchState "no such device on this machine";
    "TW0110" KernelNotFound LaunchKey "no such kernel";
    "TW0111" OutsideKernel LaunchState "language function called outside a kernel";
    "TW0112" EmptyGrid Warning "empty grid";
    "TW0113" GridNotATuple Warning "grid is not a tuple";
    "TW0114" OutOfSharedMemory OutOfResources "not enough shared memory for a block";
    "TW0115" OptionWithoutEffect Warning "launch option without effect";
    "TW0116" NotTimed Warning "launch that could not be timed";
    "TW0117" Replaced NotAvailable "part of Triton that something else replaces";
    "TW0118" NotActivated LaunchState "Python environment that cannot be changed";
    "TW0119" NotLocked LaunchState "launch that is not in the lock";
    "TW0120" InvalidLock LaunchState "lock that cannot be used";
    "TW0121" UnknownTunedParameter LaunchValue "unknown parameter in an autotuner";
    "TW0122" ConflictingValues LaunchValue "conflicting meta-parameters";
    // 02xx: the running kernel.
    "TW0201" OutOfBounds OutOfBounds "memory access out of bounds";
    "TW0202" DivisionByZero Execution "integer division by zero";
    "TW0203" DeviceAssertFailed DeviceAssertion "device assertion failed";
    "TW0204" Interrupted Execution "interrupted";
    "TW0205" InvalidLoop Execution "loop with a step of zero";
    "TW0206" OutOfMemory Execution "not enough memory for the tiles of a program";
    "TW0207" DeviceFault Execution "a GPU stopped the kernel";
    "TW0211" MisalignedAtomic Execution "atomic access not aligned";
    "TW0212" IndexOutOfBounds OutOfBounds "index of a gather out of bounds";
    // Findings of a sanitizer, after which the kernel continues. The last row is a finding of the
    // bounds analysis, which runs no kernel.
    "TW0221" Race Execution "race for an element of memory";
    "TW0222" Unwritten Execution "read of unwritten memory";
    "TW0223" Misaligned Execution "address or value not aligned as promised";
    "TW0224" OffsetOverflow Execution "integer overflow in an address";
    "TW0225" NotFinite Execution "NaN or infinity made by an operation";
    "TW0226" MaskedValue Execution "value of a masked lane used";
    "TW0227" OutOfBoundsForSome OutOfBounds "access out of bounds for some sizes";
}

impl Code {
    /// Returns the code with this name, in upper or lower case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name().eq_ignore_ascii_case(name))
    }

    /// Returns the address of the page on the web.
    pub fn url(self) -> String {
        let root = env!("CARGO_PKG_REPOSITORY");
        format!("{root}/blob/main/docs/diagnostics/{}.md", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_sorted_and_pages_carry_their_title() {
        for pair in Code::ALL.windows(2) {
            assert!(pair[0].name() < pair[1].name());
        }
        for code in Code::ALL {
            assert_eq!(Code::parse(&code.name().to_lowercase()), Some(*code));
            let heading = format!("# {}: {}\n", code.name(), code.title());
            assert!(code.page().starts_with(&heading), "{} must begin with {heading:?}", code.name());
        }
    }
}
