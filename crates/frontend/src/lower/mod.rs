//! From syntax to IR: one IR function for each specialisation of each `@jit` function that the kernel reaches.
//!
//! `mod.rs` holds what all functions of one compilation share; `function.rs` specialises and calls; `statement.rs`,
//! `branch.rs` and `loops.rs` walk statements; `expression.rs`, `call.rs`, `host_call.rs` and `python.rs` evaluate expressions;
//! `with.rs` lowers `with`; `operation.rs` lowers one operation of interpret mode; `aggregate.rs` makes instances of users' classes; `names.rs` resolves names; `scope.rs` is what a name stands for at a point; `report.rs` words findings.

mod advice;
mod aggregate;
mod branch;
mod budget;
mod call;
mod dunder;
pub(crate) mod expression;
mod external;
pub(crate) mod function;
mod host_call;
pub(crate) mod known;
pub(crate) mod literals;
mod loops;
pub(crate) mod names;
mod objects;
pub(crate) mod operation;
pub(crate) mod python;
mod read_only;
pub(crate) mod relocate;
mod report;
pub(crate) mod scope;
mod statement;
pub(crate) mod template;
mod with;

use std::sync::Arc;

use ruff_python_ast::StmtFunctionDef;
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;
use tilewright_base::entity::PrimaryMap;
use tilewright_base::{Code, Diagnostic, FileId, SourceMap, Span};
use tilewright_ir::{FuncId, Function, IrBuilder, Module, Value};

use crate::host::{FunctionRef, Host, ObjectRef};
use crate::semantic::LibraryFunction;
use crate::value::Operand;
use crate::{Failure, Options, Request};

use branch::Exit;
use budget::{Budget, Extent};
use function::{Loaded, Specialisations};
use report::Frame;
use scope::Scope;

/// An error that has been put among the diagnostics already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported;

/// What lowering a piece of syntax gives.
pub(crate) type Lower<T> = Result<T, Reported>;

/// What an expression evaluates to here.
pub(crate) type IrOperand = Operand<Value>;

/// How many levels of expressions, statements and calls may be open at once.
const MAX_DEPTH: usize = 400;

/// How many levels of syntax one function may have.
const MAX_SYNTAX_DEPTH: usize = 200;

/// The most findings that are reported at once.
const MAX_FINDINGS: usize = 50;

/// Lowers a kernel and all that it calls to IR; the module's entry is the kernel.
///
/// If the host says that the user wants no more of it, the failure holds one finding with the code `Interrupted`.
pub fn lower(request: &Request, host: &mut dyn Host) -> Result<Module, Box<Failure>> {
    lower_kernel(request, host).map(|lowered| lowered.module)
}

/// A lowered kernel, and what the compilation was besides.
#[derive(Debug)]
pub struct Lowered {
    /// The IR.
    pub module: Module,
    /// Whether it is the same for every number of warps, and nothing was printed meanwhile that the user would miss if a
    /// compilation for another number were left out.
    pub is_shareable: bool,
}

/// As [`lower`], and says whether the result does for other numbers of warps.
pub fn lower_kernel(request: &Request, host: &mut dyn Host) -> Result<Lowered, Box<Failure>> {
    let mut session = Session::new(host, &request.options);
    let entry = session.kernel(request);
    let Session { mut diagnostics, sources, functions, budget, is_shareable, .. } = session;
    // Who stopped it asks for no other findings.
    if budget.stopped() == Some(Code::Interrupted) {
        diagnostics.retain(|diagnostic| diagnostic.code == Code::Interrupted);
    }
    match entry {
        Ok(entry) if diagnostics.is_empty() => {
            Ok(Lowered { module: Module::new(functions, entry, Arc::new(sources)), is_shareable })
        }
        _ => Err(Box::new(Failure { diagnostics, sources })),
    }
}

/// A function of the kernel language: a user's or the library's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callee {
    User(FunctionRef),
    /// The `__init__` of a user's class, for an instance of this class.
    Constructor(FunctionRef, ObjectRef),
    Library(LibraryFunction),
    /// An operation of interpret mode, which is all that is lowered.
    Operation,
}

impl Callee {
    /// What tells it from others: not the text of a whole library file.
    fn key(&self) -> (Option<FunctionRef>, Option<ObjectRef>, &'static str, &'static str) {
        match self {
            Callee::User(function) => (Some(*function), None, "", ""),
            Callee::Constructor(function, class) => (Some(*function), Some(*class), "", ""),
            Callee::Library(function) => (None, None, function.file, function.function),
            Callee::Operation => (None, None, "", ""),
        }
    }

    /// The user's function.
    fn user(self) -> Option<FunctionRef> {
        match self {
            Callee::User(function) | Callee::Constructor(function, _) => Some(function),
            Callee::Library(_) | Callee::Operation => None,
        }
    }

    /// The class whose instance it makes.
    fn constructs(self) -> Option<ObjectRef> {
        match self {
            Callee::Constructor(_, class) => Some(class),
            Callee::User(_) | Callee::Library(_) | Callee::Operation => None,
        }
    }
}

impl PartialEq for Callee {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Callee {}

impl std::hash::Hash for Callee {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// What all functions of one compilation share.
pub(crate) struct Session<'h> {
    host: &'h mut dyn Host,
    options: &'h Options,
    sources: SourceMap,
    loaded: FxHashMap<Callee, Arc<Loaded>>,
    parsed: FxHashMap<FileId, Arc<function::SyntaxTree>>,
    specialisations: Specialisations,
    functions: PrimaryMap<FuncId, Function>,
    diagnostics: Vec<Diagnostic>,
    /// The places that were warned of.
    warned: Vec<Option<Span>>,
    /// The calls that are being lowered, outermost first.
    frames: Vec<Frame>,
    /// Where the arguments of the next call stand, if it is of the library.
    passed: Vec<Option<Span>>,
    /// Open levels of expressions, statements and calls.
    depth: usize,
    budget: Budget,
    /// See [`Lowered`].
    is_shareable: bool,
}

impl<'h> Session<'h> {
    fn new(host: &'h mut dyn Host, options: &'h Options) -> Self {
        Self {
            host,
            options,
            sources: SourceMap::default(),
            loaded: FxHashMap::default(),
            parsed: FxHashMap::default(),
            specialisations: Specialisations::default(),
            functions: PrimaryMap::new(),
            diagnostics: Vec::new(),
            warned: Vec::new(),
            frames: Vec::new(),
            passed: Vec::new(),
            depth: 0,
            budget: Budget::default(),
            is_shareable: true,
        }
    }
}

/// Lowers one specialisation of one function. `'a` is the life of its syntax tree.
pub(crate) struct Lowerer<'a, 's, 'h> {
    session: &'s mut Session<'h>,
    builder: IrBuilder,
    callee: Callee,
    file: FileId,
    definition: &'a StmtFunctionDef,
    scope: Scope<'a>,
    /// Of the expression that is being evaluated.
    span: Span,
    loop_depth: usize,
    syntax_depth: usize,
    /// How many regions are open.
    region_depth: usize,
    /// What the calls until now come to when they are inlined.
    inlined: Extent,
    /// Whether the way to the current place may have returned already.
    exit: Exit,
    /// Whether assigned and returned numbers stay compile-time values: in a `constexpr_function`.
    keeps_constants: bool,
    /// Pointers to memory that is only read, and the parameter that says so; nothing for what was cast to write there.
    read_only: FxHashMap<Value, Option<Arc<str>>>,
}

impl<'a> Lowerer<'a, '_, '_> {
    fn span_of(&self, node: &impl Ranged) -> Span {
        let range = crate::parse::bytes(node.range());
        Span::new(self.file, range.start, range.end)
    }

    /// Runs a step one level deeper, on a stack that suffices, or says that the nesting is too deep.
    fn deeper<T>(&mut self, span: Span, step: impl FnOnce(&mut Self) -> Lower<T>) -> Lower<T> {
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

    /// Says where the next instructions come from.
    fn at(&mut self, span: Span) {
        self.span = span;
        self.builder.set_span(span);
    }

    /// The statements of the function, which outlive this struct.
    fn body(&self) -> &'a [ruff_python_ast::Stmt] {
        &self.definition.body
    }
}
