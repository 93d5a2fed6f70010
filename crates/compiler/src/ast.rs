//! Reads the signatures of the functions of a source.

use ruff_python_ast::visitor::source_order::{SourceOrderVisitor, walk_body, walk_stmt};
use ruff_python_ast::{AnyParameterRef, Decorator, Expr, ModModule, Parameter, Stmt, StmtFunctionDef};
use ruff_python_parser::parse_module;
use ruff_text_size::{Ranged, TextRange};
use tilewright_frontend::FunctionSource;

use crate::syntax::{FunctionSyntax, ParameterSyntax};

/// Returns the signature of every function of a module, including nested functions. `text` is the
/// source of the module.
pub fn functions_of(module: &ModModule, text: &str) -> Vec<FunctionSyntax> {
    struct Collector<'t>(&'t str, Vec<FunctionSyntax>);
    impl<'a> SourceOrderVisitor<'a> for Collector<'_> {
        fn visit_stmt(&mut self, stmt: &'a Stmt) {
            if let Stmt::FunctionDef(definition) = stmt {
                self.1.push(function(self.0, definition));
            }
            walk_stmt(self, stmt);
        }

        // Expressions contain no `def`, and may be deeply nested.
        fn visit_expr(&mut self, _expression: &'a Expr) {}
    }
    let mut collector = Collector(text, Vec::new());
    stacker::maybe_grow(4 << 20, 16 << 20, || walk_body(&mut collector, &module.body));
    collector.1
}

/// Returns the signatures of the functions of a text; none if it is not valid Python.
fn functions(text: &str) -> Vec<FunctionSyntax> {
    // The parser recurses once for each level. The frontend accepts 2000 levels.
    stacker::maybe_grow(4 << 20, 16 << 20, || {
        parse_module(text).map_or_else(|_| Vec::new(), |parsed| functions_of(parsed.syntax(), text))
    })
}

/// Finds the function that `source` describes; see [`function_syntax`](crate::function_syntax).
pub(crate) fn find_function(source: &FunctionSource) -> Option<FunctionSyntax> {
    let found = functions(&source.file.text);
    found.into_iter().find(|function| function.name == source.name && function.name_range.0 >= source.offset)
}

fn function(text: &str, definition: &StmtFunctionDef) -> FunctionSyntax {
    let slice = |range: TextRange| text.get(range.to_std_range()).unwrap_or("").to_owned();
    let bytes = |range: TextRange| (range.start().to_u32(), range.end().to_u32());
    let describe = |parameter: &Parameter, default: Option<&Expr>, is_variadic: bool| {
        let annotation = parameter.annotation.as_deref();
        let end = default.map_or(parameter.range.end(), Ranged::end);
        ParameterSyntax {
            name: parameter.name.to_string(),
            range: bytes(TextRange::new(parameter.range.start(), end)),
            annotation: annotation.map(|annotation| match annotation.as_string_literal_expr() {
                Some(literal) => literal.value.to_str().to_owned(),
                None => slice(annotation.range()),
            }),
            default: default.map(|default| slice(default.range())),
            is_variadic,
        }
    };
    let parameters = definition.parameters.iter().map(|parameter| match parameter {
        AnyParameterRef::NonVariadic(found) => describe(&found.parameter, found.default.as_deref(), false),
        AnyParameterRef::Variadic(parameter) => describe(parameter, None, true),
    });
    let count = definition.parameters.len() - usize::from(definition.parameters.kwarg.is_some());
    FunctionSyntax {
        name: definition.name.to_string(),
        name_range: bytes(definition.name.range()),
        offset: definition.range.start().to_u32(),
        decorators: definition
            .decorator_list
            .iter()
            .map(|d: &Decorator| slice(d.expression.range()))
            .collect(),
        parameters: parameters.take(count).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str =
        "import triton\n\n@triton.jit\ndef k(x_ptr, n: \"i64\", B: tl.constexpr = 8):\n    pid = f(0)\n";

    #[test]
    fn the_signature_is_read() {
        let found = functions(CODE);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].decorators, ["triton.jit"]);
        let parameters: Vec<_> = (found[0].parameters.iter())
            .map(|p| (p.name.as_str(), p.annotation.as_deref(), p.default.as_deref()))
            .collect();
        assert_eq!(
            parameters,
            [("x_ptr", None, None), ("n", Some("i64"), None), ("B", Some("tl.constexpr"), Some("8"))]
        );
        assert!(functions("def (").is_empty());
    }
}
