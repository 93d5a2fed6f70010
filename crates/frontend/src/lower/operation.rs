//! One operation of interpret mode: an expression whose operands are given, as a function with results.
//!
//! Python runs the body of the kernel. What it meets that is the language's, such as `tl.load(p, mask=m)` or `x + y`, is
//! lowered here by itself, with the same walk as a whole kernel: a small function whose parameters are the operands.

use std::sync::Arc;

use ruff_python_ast::{Expr, Stmt, StmtFunctionDef};
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;
use tilewright_base::{Code, Diagnostic, SourceFile, Span};
use tilewright_ir::{Function, IrBuilder, Module};

use super::branch::Exit;
use super::budget::Extent;
use super::parse::{bytes, parse};
use super::scope::{Binding, Scope};
use super::template::{self, Template};
use super::{Callee, IrOperand, Lower, Lowerer, Reported, Session};
use crate::host::Host;
use crate::value::Operand;
use crate::{Failure, Options};

/// An operation.
pub struct Operation<'a> {
    /// `def operation(a0, a1): return a0 + a1`: a function that returns an expression of its parameters.
    pub text: &'a str,
    /// What each parameter is: the type of a run-time value, or a compile-time value.
    pub arguments: &'a [Template],
    /// The parameters whose compile-time number a plain assignment has made a run-time scalar of.
    pub assigned: &'a [usize],
    /// The parameters with a pointer to memory that is only read, and the parameter of the kernel that says so.
    pub read_only: &'a [(usize, Arc<str>)],
}

/// Lowers an operation: a module whose entry takes the run-time values in the arguments and returns those in the result.
///
/// The text of the operation is the first of the sources.
pub fn lower_operation(
    operation: &Operation<'_>,
    options: &Options,
    host: &mut dyn Host,
) -> Result<(Module, Template), Box<Failure>> {
    let mut session = Session::new(host, options);
    let result = session.operation(operation);
    let Session { mut diagnostics, sources, mut functions, budget, .. } = session;
    if budget.stopped() == Some(Code::Interrupted) {
        diagnostics.retain(|diagnostic| diagnostic.code == Code::Interrupted);
    }
    match result {
        Ok((function, template)) if diagnostics.is_empty() => {
            let entry = functions.push(function);
            Ok((Module::new(functions, entry, Arc::new(sources)), template))
        }
        _ => Err(Box::new(Failure { diagnostics, sources })),
    }
}

/// The expression that the function of an operation returns.
pub(super) fn returned(definition: &StmtFunctionDef) -> Option<&Expr> {
    match definition.body.last() {
        Some(Stmt::Return(statement)) => statement.value.as_deref(),
        _ => None,
    }
}

impl Session<'_> {
    fn operation(&mut self, operation: &Operation<'_>) -> Lower<(Function, Template)> {
        let source = SourceFile::new("<operation>", operation.text);
        let file = self.sources.add(source);
        let tree = parse(operation.text).map_err(|failure| self.report(failure.diagnostic(file)))?;
        let [Stmt::FunctionDef(definition)] = &tree.body[..] else {
            return Err(self.report(Diagnostic::new(Code::SyntaxError, "an operation is one function")));
        };
        let range = bytes(definition.name.range());
        let span = Span::new(file, range.start, range.end);
        let mut lowerer = Lowerer {
            session: self,
            builder: IrBuilder::new(Function::new("operation")),
            callee: Callee::Operation,
            file,
            definition,
            scope: Scope::default(),
            span,
            loop_depth: 0,
            syntax_depth: 0,
            region_depth: 0,
            inlined: Extent::default(),
            exit: Exit::default(),
            // What is known at compile time comes back as such.
            keeps_constants: true,
            read_only: FxHashMap::default(),
        };
        lowerer.bind_parameters(operation.arguments, &[])?;
        lowerer.assign_parameters(operation.assigned)?;
        lowerer.mark_read_only(operation.read_only);
        let expression = returned(definition).ok_or(Reported)?;
        let mut result = lowerer.expression(expression)?;
        lowerer.at(span);
        if let Operand::Range(range) = &mut result {
            // Nothing compiles the loop.
            range.options = tilewright_ir::LoopOptions::default();
        }
        let values = template::values(&result);
        if let Err(error) = lowerer.builder.return_values(values) {
            return Err(lowerer.rule_error(span, error));
        }
        let template = template::of(&result, &lowerer.builder.function);
        Ok((lowerer.builder.function, template))
    }
}

impl Lowerer<'_, '_, '_> {
    /// Makes run-time scalars of the compile-time numbers of some parameters, as an assignment does.
    fn assign_parameters(&mut self, numbers: &[usize]) -> Lower<()> {
        self.keeps_constants = false;
        for &number in numbers {
            let Some(parameter) = super::function::parameters(self.definition).nth(number) else { continue };
            let name = parameter.name.as_str();
            let Some(Operand::Constant(constant)) = self.parameter_value(name) else { continue };
            let value = self.decay_all(&Operand::Constant(constant))?;
            let span = self.span_of(&parameter.name);
            self.scope.insert(name, Binding::value(value, span));
        }
        self.keeps_constants = true;
        Ok(())
    }

    fn mark_read_only(&mut self, parameters: &[(usize, Arc<str>)]) {
        for (number, owner) in parameters {
            let parameter = super::function::parameters(self.definition).nth(*number);
            let Some(value) = parameter.and_then(|it| self.parameter_value(it.name.as_str())) else {
                continue;
            };
            self.read_only
                .extend(template::values(&value).into_iter().map(|part| (part, Some(Arc::clone(owner)))));
        }
    }

    fn parameter_value(&self, name: &str) -> Option<IrOperand> {
        match &self.scope.get(name)?.state {
            super::scope::State::Value(value) => Some(value.clone()),
            super::scope::State::Poisoned | super::scope::State::Lost(_) => None,
        }
    }
}
