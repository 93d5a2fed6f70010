//! Defines the error type of the runtime.

use std::fmt;
use std::sync::Arc;

use tilewright_base::{Code, Color, Diagnostic, Kind, SourceMap};
use tilewright_compiler::{CompileError, InternalError};
use tilewright_frontend::Failure;

/// The reason why a kernel was not compiled, was not launched, or did not finish. `Debug` prints
/// the same text as `Display`, so that the message of a failed `unwrap` is readable.
#[derive(Clone)]
pub enum Error {
    /// The user's program, its input or the device is at fault: diagnostics with codes, and the
    /// sources that the diagnostics point into.
    Diagnostics(Box<Failure>),
    /// A kernel needs more of a resource than the device has.
    OutOfResources(OutOfResources),
    /// The assembler of the driver refuses a kernel, with this message.
    Assembler(String),
    /// Tilewright is at fault.
    Internal(Arc<InternalError>),
}

/// A kernel needs more of a resource than the device has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutOfResources {
    /// The amount that the kernel requires.
    pub required: u64,
    /// The amount that the device has.
    pub limit: u64,
    /// The name of the resource: `shared memory`, `threads`.
    pub name: &'static str,
}

impl fmt::Display for OutOfResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { required, limit, name } = self;
        write!(
            f,
            "out of resource: {name}, Required: {required}, Hardware limit: {limit}. Reducing block sizes or `num_stages` \
             may help."
        )
    }
}

impl Error {
    /// Creates an error with one finding, and the sources that it points into.
    pub fn new(diagnostic: Diagnostic, sources: SourceMap) -> Self {
        Error::Diagnostics(Box::new(Failure { diagnostics: vec![diagnostic], sources }))
    }

    /// Returns the findings; none if the error is not [`Error::Diagnostics`].
    pub fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            Error::Diagnostics(failure) => &failure.diagnostics,
            Error::OutOfResources(_) | Error::Assembler(_) | Error::Internal(_) => &[],
        }
    }

    /// Returns the code of the first finding. Returns `None` without a finding.
    pub fn code(&self) -> Option<Code> {
        self.diagnostics().first().map(|diagnostic| diagnostic.code)
    }

    /// Returns the kind of the first finding, or `None` without findings. The kind determines the
    /// class of the Python exception.
    pub fn kind(&self) -> Option<Kind> {
        self.code().map(Code::kind)
    }

    /// Returns the text of `Display` for a terminal, in color if requested.
    pub fn render(&self, color: Color) -> String {
        match self {
            Error::Diagnostics(failure) => {
                let render = |diagnostic: &Diagnostic| diagnostic.render(&failure.sources, color);
                failure.diagnostics.iter().map(render).collect::<Vec<_>>().join("\n\n")
            }
            Error::OutOfResources(error) => error.to_string(),
            Error::Assembler(message) => message.clone(),
            Error::Internal(error) => error.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(Color::Never))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Self {
        Error::new(diagnostic, SourceMap::default())
    }
}

impl From<Box<Failure>> for Error {
    fn from(failure: Box<Failure>) -> Self {
        Error::Diagnostics(failure)
    }
}

impl From<CompileError> for Error {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Kernel(failure) => Error::Diagnostics(failure),
            CompileError::Internal(error) => Error::Internal(Arc::from(error)),
        }
    }
}
