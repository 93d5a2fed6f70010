//! Defines the values of names, and finds the names that syntax assigns.

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{Expr, ExprContext, Stmt};
use rustc_hash::FxHashMap;
use tilewright_base::Span;

use super::template::IrOperand;
use crate::parse::{blocks_of, with_stack};

/// The bindings of the names of a function at a point.
pub(crate) type Scope<'a> = FxHashMap<&'a str, Binding>;

/// The meaning of a name at a point.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub state: NameState,
    /// The position of the assignment.
    pub span: Span,
    /// True if the name is a parameter that has not been assigned since.
    pub is_parameter: bool,
}

/// The value of a name, or the reason why the name has no value.
#[derive(Clone, Debug)]
pub(crate) enum NameState {
    Value(IrOperand),
    /// The value of the name is an error that has been reported.
    Poisoned,
    /// The name was not assigned on all paths. The text labels the assignment in the error.
    Lost(&'static str),
}

impl Binding {
    pub fn value(value: IrOperand, span: Span) -> Self {
        Self { state: NameState::Value(value), span, is_parameter: false }
    }

    pub fn poisoned(span: Span) -> Self {
        Self { state: NameState::Poisoned, span, is_parameter: false }
    }

    pub fn lost(span: Span, why: &'static str) -> Self {
        Self { state: NameState::Lost(why), span, is_parameter: false }
    }
}

/// Returns the value of a condition that is known before lowering.
pub(crate) type Decide<'f> = dyn Fn(&Expr) -> Option<bool> + 'f;

/// Returns the names that statements may assign, in order, without branches that `decide` excludes.
pub(crate) fn assigned<'a>(body: &'a [Stmt], decide: &Decide<'_>) -> Vec<&'a str> {
    let mut collector = Assigned { names: Vec::new(), decide };
    with_stack(|| collector.visit_body(body));
    collector.names
}

/// Returns the names that an expression assigns (`:=`), or that a target stores to.
pub(crate) fn assigned_in(expression: &Expr) -> Vec<&str> {
    let mut collector = Assigned { names: Vec::new(), decide: &|_| None };
    with_stack(|| collector.visit_expr(expression));
    collector.names
}

struct Assigned<'a, 'f> {
    names: Vec<&'a str>,
    decide: &'f Decide<'f>,
}

impl<'a> Visitor<'a> for Assigned<'a, '_> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::FunctionDef(_) | Stmt::ClassDef(_) => {}
            Stmt::If(branch) => {
                self.visit_expr(&branch.test);
                let mut taken = (self.decide)(&branch.test);
                if taken != Some(false) {
                    self.visit_body(&branch.body);
                }
                for clause in &branch.elif_else_clauses {
                    if taken == Some(true) {
                        break;
                    }
                    if let Some(test) = &clause.test {
                        self.visit_expr(test);
                    }
                    taken = clause.test.as_ref().and_then(|test| (self.decide)(test));
                    if taken != Some(false) {
                        self.visit_body(&clause.body);
                    }
                }
            }
            _ => visitor::walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) if name.ctx == ExprContext::Store => {
                if !self.names.contains(&name.id.as_str()) {
                    self.names.push(name.id.as_str());
                }
            }
            // `x[0] = …` and `self.x = …` bind `x` and `self` to new values.
            Expr::Attribute(_) | Expr::Subscript(_) if stores(expression) => {
                if let Some(name) = stored_name(expression)
                    && !self.names.contains(&name)
                {
                    self.names.push(name);
                }
                visitor::walk_expr(self, expression);
            }
            Expr::ListComp(list) => {
                self.visit_expr(&list.elt);
                for generator in &list.generators {
                    self.visit_expr(&generator.iter);
                }
            }
            Expr::Lambda(_) | Expr::Name(_) => {}
            _ => visitor::walk_expr(self, expression),
        }
    }
}

fn stores(expression: &Expr) -> bool {
    match expression {
        Expr::Attribute(attribute) => attribute.ctx == ExprContext::Store,
        Expr::Subscript(subscript) => subscript.ctx == ExprContext::Store,
        _ => false,
    }
}

/// Returns the name `x` of `x[0]` or `x.y`.
fn stored_name(expression: &Expr) -> Option<&str> {
    let value = match expression {
        Expr::Attribute(attribute) => &attribute.value,
        Expr::Subscript(subscript) => &subscript.value,
        _ => return None,
    };
    value.as_name_expr().map(|name| name.id.as_str())
}

/// Returns the number of paths that end without a `return`. An `if` without any counts as one path.
pub(crate) fn open_paths(body: &[Stmt], decide: &Decide<'_>) -> usize {
    let mut paths = 1_usize;
    for statement in body {
        match statement {
            Stmt::Return(_) => return 0,
            Stmt::If(branch) if returns(std::slice::from_ref(statement)) => {
                let others =
                    branch.elif_else_clauses.iter().map(|clause| (clause.test.as_ref(), &clause.body));
                let arms = std::iter::once((Some(&*branch.test), &branch.body)).chain(others);
                let mut open = 0_usize;
                let mut is_left = true;
                for (test, body) in arms {
                    let taken = test.map_or(Some(true), decide);
                    if taken != Some(false) {
                        open = open.saturating_add(open_paths(body, decide));
                    }
                    if taken == Some(true) {
                        is_left = false;
                        break;
                    }
                }
                paths = paths.saturating_mul(open.saturating_add(usize::from(is_left)));
            }
            _ => {}
        }
    }
    paths
}

/// Returns whether the statements contain a `return` outside of loops and nested functions.
pub(crate) fn returns(body: &[Stmt]) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::Return(_) => true,
        Stmt::If(_) => blocks_of(statement).into_iter().any(returns),
        _ => false,
    })
}
