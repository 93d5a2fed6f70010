//! Executes the statements of a module that define names. A name that a condition or a loop may
//! give several values is *opaque*: its value is unknown. A kernel that reads an opaque name gets
//! an error.

use ruff_python_ast::{Expr, Stmt, StmtAugAssign, StmtIf, StmtTry};
use rustc_hash::FxHashMap;

use super::{MAX_DEPTH, SourceHost};
use crate::constexpr;
use crate::host::HostValue;
use crate::lower::expression::binary_operator;
use crate::lower::scope;
use crate::parse::blocks_of;
use crate::value::Constant;

impl SourceHost {
    /// Executes a module's statements, which define its names.
    pub(super) fn execute_module(&mut self, body: &[Stmt]) {
        self.execute(body, 0);
        // A function may assign a global before a kernel is launched. So globals that functions
        // assign are opaque.
        let mut blocks = vec![body];
        while let Some(block) = blocks.pop() {
            for statement in block {
                if let Stmt::Global(global) = statement {
                    global.names.iter().for_each(|name| self.make_opaque(name.as_str()));
                }
                blocks.extend(blocks_of(statement));
            }
        }
    }

    fn execute(&mut self, body: &[Stmt], depth: usize) {
        if depth > MAX_DEPTH {
            return self.make_all_opaque(body);
        }
        for statement in body {
            self.execute_statement(statement, depth);
        }
    }

    fn execute_statement(&mut self, statement: &Stmt, depth: usize) {
        match statement {
            Stmt::Import(import) => self.execute_import(import),
            Stmt::ImportFrom(import) => self.execute_import_from(import),
            Stmt::FunctionDef(function) => self.define(function),
            Stmt::ClassDef(class) => self.define_class(class),
            Stmt::Assign(assign) => {
                let value = self.evaluate(&assign.value, 0);
                for target in &assign.targets {
                    self.assign(target, value.as_ref());
                }
            }
            Stmt::AnnAssign(assign) => {
                let Some(value) = &assign.value else { return };
                // As in Triton, a number with the annotation `tl.constexpr` remains a plain number.
                let value = self.evaluate(value, 0);
                self.assign(&assign.target, value.as_ref());
            }
            Stmt::AugAssign(assign) => self.augmented(assign),
            Stmt::Delete(delete) => {
                for target in &delete.targets {
                    if let Expr::Name(name) = target {
                        self.current.names.remove(name.id.as_str());
                    }
                }
            }
            Stmt::If(branch) => self.conditional(branch, depth),
            Stmt::For(each) => {
                self.repeated(statement, &each.body, depth);
                self.one_of(&[vec![&each.orelse]], true, depth);
            }
            Stmt::While(each) => {
                self.repeated(statement, &each.body, depth);
                self.one_of(&[vec![&each.orelse]], true, depth);
            }
            Stmt::Try(attempt) => self.attempt(attempt, depth),
            Stmt::With(with) => {
                for item in &with.items {
                    if let Some(target) = &item.optional_vars {
                        self.assign(target, None);
                    }
                }
                self.execute(&with.body, depth + 1);
            }
            Stmt::Match(_) => {
                self.make_all_opaque(std::slice::from_ref(statement));
                let ways: Vec<_> = blocks_of(statement).into_iter().map(|block| vec![block]).collect();
                self.one_of(&ways, true, depth);
                self.make_all_opaque(std::slice::from_ref(statement));
            }
            other => self.make_all_opaque(std::slice::from_ref(other)),
        }
    }

    fn assign(&mut self, target: &Expr, value: Option<&HostValue>) {
        match (target, value) {
            (Expr::Name(name), Some(value)) => {
                self.current.names.insert(name.id.as_str().to_owned(), value.clone());
            }
            (Expr::Name(name), None) => self.make_opaque(name.id.as_str()),
            (Expr::Tuple(tuple), Some(HostValue::PlainGlobal(Constant::Tuple(items))))
                if items.len() == tuple.elts.len() =>
            {
                for (target, item) in tuple.elts.iter().zip(items) {
                    self.assign(target, Some(&HostValue::PlainGlobal(item.clone())));
                }
            }
            (other, _) => scope::assigned_in(other).into_iter().for_each(|name| self.make_opaque(name)),
        }
    }

    /// Executes `name op= value`.
    fn augmented(&mut self, assign: &StmtAugAssign) {
        let Expr::Name(target) = &*assign.target else { return };
        let name = target.id.as_str();
        let (old, value) = (self.current.names.get(name).cloned(), self.evaluate(&assign.value, 0));
        let constant = |value: &HostValue| match value {
            HostValue::PlainGlobal(constant) | HostValue::Constant(constant) => Some(constant.clone()),
            _ => None,
        };
        let new = old
            .as_ref()
            .and_then(constant)
            .zip(value.as_ref().and_then(constant))
            .and_then(|(left, right)| constexpr::binary(binary_operator(assign.op), &left, &right).ok());
        match (old, new) {
            (Some(HostValue::Constant(_)), Some(new)) => {
                self.current.names.insert(name.to_owned(), HostValue::Constant(new));
            }
            (_, Some(new)) => {
                self.current.names.insert(name.to_owned(), HostValue::PlainGlobal(new));
            }
            (_, None) => self.make_opaque(name),
        }
    }

    fn make_opaque(&mut self, name: &str) {
        let object = self.opaque(name);
        self.current.names.insert(name.to_owned(), HostValue::Object(object));
    }

    /// Makes every name that statements assign opaque.
    fn make_all_opaque(&mut self, body: &[Stmt]) {
        for name in scope::assigned(body, &|_| None) {
            self.make_opaque(name);
        }
    }

    /// Returns whether a condition is true, or `None` if this is unknown.
    fn truth(&mut self, test: &Expr) -> Option<bool> {
        if is_main_guard(test) || self.dotted(test).as_deref() == Some("typing.TYPE_CHECKING") {
            return Some(false);
        }
        match self.evaluate(test, 0)? {
            HostValue::PlainGlobal(constant) | HostValue::Constant(constant) => Some(constant.is_true()),
            _ => None,
        }
    }

    fn conditional(&mut self, branch: &StmtIf, depth: usize) {
        let others = branch.elif_else_clauses.iter().map(|clause| (clause.test.as_ref(), &clause.body));
        let mut ways: Vec<Vec<&[Stmt]>> = Vec::new();
        let mut is_complete = false;
        for (test, body) in std::iter::once((Some(&*branch.test), &branch.body)).chain(others) {
            let truth = test.map_or(Some(true), |test| {
                for name in scope::assigned_in(test) {
                    self.make_opaque(name);
                }
                self.truth(test)
            });
            if truth != Some(false) {
                ways.push(vec![body]);
            }
            if truth == Some(true) {
                is_complete = true;
                break;
            }
        }
        self.one_of(&ways, !is_complete, depth);
    }

    /// Executes the body of a loop.
    fn repeated(&mut self, whole: &Stmt, body: &[Stmt], depth: usize) {
        // The body runs any number of times, each time with the names of the previous iteration. So
        // the names that the body assigns are opaque at the beginning of the body and after the
        // loop.
        self.make_all_opaque(std::slice::from_ref(whole));
        self.one_of(&[vec![body]], true, depth);
        self.make_all_opaque(std::slice::from_ref(whole));
    }

    fn attempt(&mut self, attempt: &StmtTry, depth: usize) {
        // Imports of tilewright, and of the modules of Python that `is_at_hand` lists, do not fail.
        let cannot_fail = attempt.body.iter().all(|statement| match statement {
            Stmt::Import(import) => import.names.iter().all(|alias| is_at_hand(alias.name.as_str())),
            Stmt::ImportFrom(import) => {
                import.module.as_ref().is_some_and(|module| is_at_hand(module.as_str()))
            }
            other => matches!(other, Stmt::Pass(_)),
        });
        if cannot_fail {
            self.execute(&attempt.body, depth + 1);
            self.execute(&attempt.orelse, depth + 1);
        } else {
            let mut ways: Vec<Vec<&[Stmt]>> = vec![vec![&attempt.body, &attempt.orelse]];
            let handlers = attempt.handlers.iter().filter_map(|handler| handler.as_except_handler());
            ways.extend(
                handlers
                    .map(|handler| &handler.body[..])
                    .filter(|body| !matches!(body.last(), Some(Stmt::Raise(_))))
                    .map(|body| vec![body]),
            );
            self.one_of(&ways, false, depth);
        }
        self.execute(&attempt.finalbody, depth + 1);
    }

    /// Executes the blocks of all paths that the program may run. With `or_none`, the program may
    /// also skip all paths. A name with different values at the ends of the paths becomes opaque.
    fn one_of(&mut self, ways: &[Vec<&[Stmt]>], or_none: bool, depth: usize) {
        if let ([way], false) = (ways, or_none) {
            return way.iter().for_each(|block| self.execute(block, depth + 1));
        }
        if ways.iter().flatten().all(|block| block.is_empty()) {
            return;
        }
        let before = std::mem::take(&mut self.current.names);
        let mut ends: Vec<FxHashMap<String, HostValue>> = Vec::with_capacity(ways.len() + 1);
        for way in ways {
            self.current.names.clone_from(&before);
            for block in way {
                self.execute(block, depth + 1);
            }
            ends.push(std::mem::take(&mut self.current.names));
        }
        if or_none {
            ends.push(before);
        }
        let mut known: Vec<&String> = ends.iter().flat_map(FxHashMap::keys).collect();
        known.sort_unstable();
        known.dedup();
        let mut differ = Vec::new();
        let mut names = FxHashMap::default();
        for name in known {
            let mut values = ends.iter().filter_map(|end| end.get(name));
            let Some(value) = values.next() else { continue };
            // Only some paths may define the name as a function or module. The name then has this
            // value, because it would be undefined on the other paths.
            let is_everywhere = ends.iter().all(|end| end.contains_key(name));
            let is_constant = matches!(value, HostValue::PlainGlobal(_) | HostValue::Constant(_));
            if values.all(|other| other == value) && (is_everywhere || !is_constant) {
                names.insert(name.clone(), value.clone());
            } else {
                differ.push(name.clone());
            }
        }
        self.current.names = names;
        for name in &differ {
            self.make_opaque(name);
        }
    }
}

fn is_main_guard(test: &Expr) -> bool {
    let Expr::Compare(compare) = test else { return false };
    matches!(&*compare.left, Expr::Name(name) if name.id.as_str() == "__name__")
}

fn is_at_hand(module: &str) -> bool {
    matches!(module.split('.').next(), Some("triton" | "tilewright" | "math" | "typing" | "__future__"))
}
