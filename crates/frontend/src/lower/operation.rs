//! Lowers one operation of interpret mode, where Python runs the body of the kernel.
//!
//! An operation, such as `tl.load(p, mask=m)` or `x + y`, becomes a function of its operands. The
//! code that lowers whole kernels lowers it.

use std::sync::Arc;

use ruff_python_ast::{Expr, Stmt, StmtFunctionDef};
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;
use tilewright_base::{Code, Diagnostic, SourceFile, Span};
use tilewright_ir::{Builder, Function, IrBuilder, Literal, Module};

use super::callee::{Callee, ReadOnly};
use super::exit::Exit;
use super::lowerer::{Extent, Lower, Lowerer, Reported, Session};
use super::scope::{Binding, NameState, Scope};
use super::template::{self, Template};
use crate::host::Host;
use crate::parse::{bytes, parse};
use crate::value::Operand;
use crate::{Failure, Options};

/// An operation to lower.
pub struct Operation<'a> {
    /// A function that returns an expression of its parameters, such as `def operation(a0, a1):
    /// return a0 + a1`.
    pub text: &'a str,
    /// Each argument: the type of a run-time value, or a compile-time value.
    pub arguments: &'a [Template],
    /// The scalars that would be constants in the code of a compiled kernel. Each has its index
    /// among all run-time values in the arguments, and its value.
    pub known: &'a [(usize, Literal)],
    /// The run-time values in the arguments that point to read-only memory. Each has its index, and
    /// the name of the kernel parameter that declares the memory read-only.
    pub read_only: &'a [(usize, Arc<str>)],
}

/// An operation after lowering.
#[derive(Debug)]
pub struct LoweredOperation {
    /// The module. The parameters of its entry are the run-time values in the arguments, and its
    /// results are the run-time values in the result.
    pub module: Module,
    /// The result.
    pub result: Template,
    /// The indices of the run-time values in the result that are constants in the code.
    pub known: Vec<usize>,
    /// The run-time values in the result that point to read-only memory. Each has its index, and
    /// the name of the kernel parameter that declares the memory read-only.
    pub read_only: ReadOnly,
}

/// Lowers an operation. The text of the operation is the first file of the sources.
pub fn lower_operation(
    operation: &Operation<'_>,
    options: &Options,
    host: &mut dyn Host,
) -> Result<LoweredOperation, Box<Failure>> {
    let mut session = Session::new(host, options);
    let result = session.operation(operation);
    let Session { mut diagnostics, sources, mut functions, budget, .. } = session;
    if budget.stopped() == Some(Code::Interrupted) {
        diagnostics.retain(|diagnostic| diagnostic.code == Code::Interrupted);
    }
    match result {
        Ok((function, result, known, read_only)) if diagnostics.is_empty() => {
            let entry = functions.push(function);
            let module = Module::new(functions, entry, Arc::new(sources));
            Ok(LoweredOperation { module, result, known, read_only })
        }
        _ => Err(Box::new(Failure { diagnostics, sources })),
    }
}

pub(super) fn returned(definition: &StmtFunctionDef) -> Option<&Expr> {
    match definition.body.last() {
        Some(Stmt::Return(statement)) => statement.value.as_deref(),
        _ => None,
    }
}

impl Session<'_> {
    fn operation(&mut self, operation: &Operation<'_>) -> Lower<(Function, Template, Vec<usize>, ReadOnly)> {
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
            discarded_call: None,
            syntax_depth: 0,
            region_depth: 0,
            inlined: Extent::default(),
            exit: Exit::default(),
            // Python computes with the numbers of results, so they remain compile-time values.
            keeps_constants: true,
            read_only: FxHashMap::default(),
        };
        lowerer.bind_parameters(operation.arguments, &[])?;
        lowerer.mark_parameters(operation)?;
        let expression = returned(definition).ok_or(Reported)?;
        let mut result = lowerer.expression(expression)?;
        lowerer.at(span);
        if let Operand::Range(range) = &mut result {
            // Python runs the loop, so its options have no effect.
            range.options = tilewright_ir::LoopOptions::default();
        }
        let values = template::values(&result);
        let is_known = |value| lowerer.as_constant(&Operand::Tensor(value)).is_some();
        let known = (0..values.len()).filter(|&index| is_known(values[index])).collect();
        let read_only = lowerer.read_only_among(&values);
        if let Err(error) = lowerer.builder.return_values(values) {
            return Err(lowerer.rule_error(span, error));
        }
        let template = template::of(&result, &lowerer.builder.function);
        Ok((lowerer.builder.function, template, known, read_only))
    }
}

impl Lowerer<'_, '_, '_> {
    /// Replaces parameters with known values by constants, and marks read-only pointers.
    fn mark_parameters(&mut self, operation: &Operation<'_>) -> Lower<()> {
        let mut next = 0;
        for parameter in super::function::parameters(self.definition) {
            let name = parameter.name.as_str();
            let Some(NameState::Value(bound)) = self.scope.get(name).map(|binding| &binding.state) else {
                continue;
            };
            let bound = bound.clone();
            let span = self.span_of(&parameter.name);
            let mut values = template::values(&bound);
            let mut has_constant = false;
            for value in &mut values {
                let of_this = |(index, _): &&(usize, _)| *index == next;
                if let Some((_, literal)) = operation.known.iter().find(of_this) {
                    let constant = self.builder.constant(*literal);
                    *value = constant.map_err(|error| self.rule_error(span, error))?;
                    has_constant = true;
                }
                if let Some((_, owner)) = operation.read_only.iter().find(|(index, _)| *index == next) {
                    self.read_only.insert(*value, Some(Arc::clone(owner)));
                }
                next += 1;
            }
            if has_constant {
                let mut values = values.into_iter();
                let value = template::map(&bound, &mut |&value| values.next().unwrap_or(value));
                self.scope.insert(name, Binding::value(value, span));
            }
        }
        Ok(())
    }
}
