//! Defines the state of a compilation ([`Session`]) and of a lowered function ([`Lowerer`]).

use std::sync::Arc;

use ruff_python_ast::StmtFunctionDef;
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;
use tilewright_base::entity::PrimaryMap;
use tilewright_base::{Code, Diagnostic, FileId, SourceMap, Span};
use tilewright_ir::{FuncId, Function, IrBuilder, Value};

use super::callee::{Callee, Loaded, Specializations, SyntaxTree};
use super::exit::Exit;
use super::scope::Scope;
use crate::Options;
use crate::host::Host;

/// An error that is already among the diagnostics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported;

/// The result of lowering a piece of syntax.
pub(crate) type Lower<T> = Result<T, Reported>;

/// The maximum nesting of expressions, statements and calls, over all functions being lowered.
const MAX_DEPTH: usize = 400;

/// The maximum nesting of syntax in one function.
const MAX_SYNTAX_DEPTH: usize = 200;

/// The maximum number of diagnostics of a compilation.
pub(super) const MAX_FINDINGS: usize = 50;

/// The size of a function's code, as if every call were inlined.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Extent {
    pub instructions: usize,
    /// The depth of the most deeply nested region.
    pub nesting: usize,
}

/// The resources that the compilation has used.
#[derive(Default)]
pub(crate) struct Budget {
    pub(super) steps: u64,
    pub(super) next_poll: u64,
    /// The instructions of all lowered functions, each with its calls inlined.
    pub(super) instructions: usize,
    /// The extent of each lowered function.
    pub(super) extents: tilewright_base::entity::SecondaryMap<FuncId, Extent>,
    pub(super) stopped: Option<Code>,
}

/// A call that is being lowered.
pub(crate) struct Frame {
    /// The position of the call, in the caller's source.
    pub call: Span,
    /// The name of the called function.
    pub name: String,
    /// True if the function belongs to the library.
    pub is_library: bool,
    /// The position of the argument of each parameter of a library function, or `None` for a
    /// default.
    pub passed: Vec<Option<Span>>,
}

/// The state that all functions of one compilation share.
pub(crate) struct Session<'h> {
    pub(super) host: &'h mut dyn Host,
    pub(super) options: &'h Options,
    pub(super) sources: SourceMap,
    pub(super) loaded: FxHashMap<Callee, Arc<Loaded>>,
    pub(super) parsed: FxHashMap<FileId, Arc<SyntaxTree>>,
    pub(super) specializations: Specializations,
    pub(super) functions: PrimaryMap<FuncId, Function>,
    pub(super) diagnostics: Vec<Diagnostic>,
    /// The positions of the warnings so far.
    pub(super) warned: Vec<Option<Span>>,
    /// The calls that are being lowered, outermost first.
    pub(super) frames: Vec<Frame>,
    /// The positions of the arguments of the next call of a library function.
    pub(super) passed: Vec<Option<Span>>,
    /// The current nesting of expressions, statements and calls.
    pub(super) depth: usize,
    pub(super) budget: Budget,
    /// The number of warps of the current worker (Gluon), or 0.
    pub(super) worker_warps: u32,
    /// See [`Lowered`](super::Lowered).
    pub(super) is_shareable: bool,
}

impl<'h> Session<'h> {
    pub(super) fn new(host: &'h mut dyn Host, options: &'h Options) -> Self {
        Self {
            host,
            options,
            sources: SourceMap::default(),
            loaded: FxHashMap::default(),
            parsed: FxHashMap::default(),
            specializations: Specializations::default(),
            functions: PrimaryMap::new(),
            diagnostics: Vec::new(),
            warned: Vec::new(),
            frames: Vec::new(),
            passed: Vec::new(),
            depth: 0,
            budget: Budget::default(),
            worker_warps: 0,
            is_shareable: true,
        }
    }
}

/// Lowers one specialization of one function. `'a` is the lifetime of its syntax tree.
pub(crate) struct Lowerer<'a, 's, 'h> {
    pub(super) session: &'s mut Session<'h>,
    pub(super) builder: IrBuilder,
    pub(super) callee: Callee,
    pub(super) file: FileId,
    pub(super) definition: &'a StmtFunctionDef,
    pub(super) scope: Scope<'a>,
    /// The span of the expression that is being evaluated.
    pub(super) span: Span,
    /// The span of the call whose result the statement discards. Lowering a call clears it.
    pub(super) discarded_call: Option<Span>,
    pub(super) loop_depth: usize,
    pub(super) syntax_depth: usize,
    pub(super) region_depth: usize,
    /// The instructions and the nesting that inlining the calls so far would add.
    pub(super) inlined: Extent,
    pub(super) exit: Exit,
    /// True if assigned and returned numbers remain compile-time values, as in a
    /// `constexpr_function`.
    pub(super) keeps_constants: bool,
    /// The read-only pointers, with the name of their parameter, or "" after a cast to a const
    /// type. `None` means that a cast made the pointer writable.
    pub(super) read_only: FxHashMap<Value, Option<Arc<str>>>,
}

impl<'a> Lowerer<'a, '_, '_> {
    pub(super) fn span_of(&self, node: &impl Ranged) -> Span {
        let range = crate::parse::bytes(node.range());
        Span::new(self.file, range.start, range.end)
    }

    /// Runs `step` one level of nesting deeper. Grows the stack if necessary, and reports too deep
    /// nesting.
    pub(super) fn deeper<T>(&mut self, span: Span, step: impl FnOnce(&mut Self) -> Lower<T>) -> Lower<T> {
        self.step(span)?;
        if self.syntax_depth >= MAX_SYNTAX_DEPTH || self.session.depth >= MAX_DEPTH {
            return Err(self.too_deep(span));
        }
        self.syntax_depth += 1;
        self.session.depth += 1;
        let result = stacker::maybe_grow(128 << 10, 2 << 20, || step(self));
        self.session.depth -= 1;
        self.syntax_depth -= 1;
        result
    }

    /// Sets the source position of the next instructions.
    pub(super) fn at(&mut self, span: Span) {
        self.span = span;
        self.builder.set_span(span);
    }

    /// Returns the statements of the function, which outlive this struct.
    pub(super) fn body(&self) -> &'a [ruff_python_ast::Stmt] {
        &self.definition.body
    }
}
