//! Stores the called functions: their sources and specializations.

use std::sync::Arc;

use ruff_python_ast::{Stmt, StmtFunctionDef};
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_base::{FileId, SourceFile};
use tilewright_ir::FuncId;

use super::template::{self, Template};
use crate::parse::{Tree, find_function};
use crate::reference::{FunctionRef, ObjectRef};
use crate::semantic::LibraryFunction;

/// A function of the kernel language, of the user or of the library.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callee {
    User(FunctionRef),
    /// The `__init__` of a user's class, and the class of the instance, which may be derived.
    Constructor(FunctionRef, ObjectRef),
    Library(LibraryFunction),
    /// An operation of interpret mode; it is never called.
    Operation,
}

impl Callee {
    /// Returns a key of the function without the text of its library file.
    fn key(&self) -> (Option<FunctionRef>, Option<ObjectRef>, &'static str, &'static str) {
        match self {
            Callee::User(function) => (Some(*function), None, "", ""),
            Callee::Constructor(function, class) => (Some(*function), Some(*class), "", ""),
            Callee::Library(function) => (None, None, function.file, function.function),
            Callee::Operation => (None, None, "", ""),
        }
    }

    /// Returns the function, if it is a user's function.
    pub(super) fn user(self) -> Option<FunctionRef> {
        match self {
            Callee::User(function) | Callee::Constructor(function, _) => Some(function),
            Callee::Library(_) | Callee::Operation => None,
        }
    }

    /// Returns the class, if the function is a constructor.
    pub(super) fn constructs(self) -> Option<ObjectRef> {
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

/// The values that derive from a read-only parameter, by index, and the name of the parameter.
pub(crate) type ReadOnly = SmallVec<[(usize, Arc<str>); 1]>;

/// A parsed file.
pub(crate) struct SyntaxTree {
    pub module: Arc<Tree>,
    pub source: Arc<SourceFile>,
}

/// A function whose source has been read.
pub(crate) struct Loaded {
    pub file: FileId,
    pub tree: Arc<SyntaxTree>,
    pub name: String,
    pub(super) offset: u32,
    pub(super) noinline: bool,
}

impl Loaded {
    pub fn definition(&self) -> Option<&StmtFunctionDef> {
        let body = &self.tree.module.body;
        let is_it = |function: &&StmtFunctionDef| function.name.as_str() == self.name;
        let only = if let [Stmt::FunctionDef(function)] = &body[..] { Some(function) } else { None };
        let starts = |function: &&StmtFunctionDef| u32::from(function.name.start()) >= self.offset;
        match only.filter(is_it).filter(starts) {
            Some(function) => Some(function),
            None => find_function(&self.tree.module, &self.name, self.offset),
        }
    }
}

/// A function lowered for certain arguments.
struct Specialization {
    arguments: Vec<Template>,
    /// The run-time values of the arguments that point to read-only memory.
    read_only: ReadOnly,
    state: SpecializationState,
}

/// The specializations of all functions.
#[derive(Default)]
pub(crate) struct Specializations(FxHashMap<SpecializationKey, Vec<Specialization>>);

/// A function, the number of warps of the calling worker (or 0), and the hash of the arguments.
type SpecializationKey = (Callee, u32, u64);

pub(super) type SpecializationIndex = (SpecializationKey, usize);

impl Specializations {
    /// Returns the state of the specialization for these arguments. If there is none, adds one in
    /// the state `Open`, and returns its index as the error.
    pub(super) fn find_or_open(
        &mut self,
        (callee, warps): (Callee, u32),
        arguments: &[Template],
        read_only: &ReadOnly,
    ) -> Result<SpecializationState, SpecializationIndex> {
        let key = (callee, warps, template::hash(arguments));
        let of_hash = self.0.entry(key).or_default();
        let same = |known: &&Specialization| {
            let mut pairs = known.arguments.iter().zip(arguments);
            known.arguments.len() == arguments.len()
                && known.read_only == *read_only
                && pairs.all(|(left, right)| template::same(left, right, &|left, right| left == right))
        };
        if let Some(known) = of_hash.iter().find(same) {
            return Ok(known.state.clone());
        }
        let (arguments, read_only) = (arguments.to_vec(), read_only.clone());
        of_hash.push(Specialization { arguments, read_only, state: SpecializationState::Open });
        Err((key, of_hash.len() - 1))
    }

    pub(super) fn close(&mut self, (key, index): SpecializationIndex, state: SpecializationState) {
        if let Some(known) = self.0.get_mut(&key) {
            known[index].state = state;
        }
    }
}

#[derive(Clone)]
pub(super) enum SpecializationState {
    /// The function is being lowered, so a call is recursion.
    Open,
    Failed,
    Done(Option<FuncId>, Template, ReadOnly),
}
