//! Writes the advice in error messages, such as replacements for names of other libraries.

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{Expr, Stmt};
use tilewright_base::{Diagnostic, Span};

use super::callee::Callee;
use super::lowerer::Lowerer;
use crate::parse::with_stack;
use crate::semantic::{self, LanguageItem};

/// The replacements for names of torch, numpy and C.
const INSTEAD: &[(&str, &str)] = &[
    ("all", "`tl.min(x.to(tl.int32), axis) != 0`"),
    ("any", "`tl.max(x.to(tl.int32), axis) != 0`"),
    ("bool", "`tl.int1`"),
    ("clip", "`tl.clamp(x, low, high)`"),
    ("concat", "`tl.cat(a, b)` or `tl.join(a, b)`"),
    ("concatenate", "`tl.cat(a, b)` or `tl.join(a, b)`"),
    ("double", "`tl.float64`"),
    ("empty", "`tl.zeros(shape, dtype)`"),
    ("float", "`tl.float32`"),
    ("float8", "`tl.float8e4nv` or `tl.float8e5`, or one of AMD's formats"),
    ("gelu", "`0.5 * x * (1 + tl.erf(x * 0.7071067811865476))`"),
    ("half", "`tl.float16`"),
    ("int", "`tl.int32`"),
    ("isinf", "`tl.abs(x) == float(\"inf\")`"),
    ("isnan", "`x != x`"),
    ("linspace", "`start + step * tl.arange(0, N)`"),
    ("long", "`tl.int64`"),
    ("matmul", "`tl.dot(a, b)`"),
    ("max", "`tl.maximum(x, y)` of two values, `tl.max(x, axis)` of a tile"),
    ("mean", "`tl.sum(x, axis) / n`"),
    ("min", "`tl.minimum(x, y)` of two values, `tl.min(x, axis)` of a tile"),
    ("mm", "`tl.dot(a, b)`"),
    ("norm", "`tl.sqrt(tl.sum(x * x, axis))`"),
    ("ones", "`tl.full(shape, 1, dtype)`"),
    ("ones_like", "`tl.full(x.shape, 1, x.dtype)`"),
    ("pow", "`x * x` for a square, or `libdevice.pow(x, y)`, from `triton.language.extra`"),
    ("power", "`x * x` for a square, or `libdevice.pow(x, y)`, from `triton.language.extra`"),
    ("print", "`tl.device_print(\"x\", x)`"),
    ("prod", "`tl.reduce(x, axis, function)` with a @triton.jit function of two values"),
    ("relu", "`tl.maximum(x, 0.0)`"),
    ("round", "`libdevice.rint(x)`, from `triton.language.extra`; or `tl.floor(x + 0.5)`"),
    ("sign", "`tl.where(x > 0, 1, tl.where(x < 0, -1, 0))`"),
    ("silu", "`x * tl.sigmoid(x)`"),
    ("square", "`x * x`"),
    ("stack", "`tl.join(a, b)`"),
    ("synchronize", "`tl.debug_barrier()`"),
    ("syncthreads", "`tl.debug_barrier()`"),
    (
        "thread_id",
        "nothing: a program works on tiles, and its threads are the compiler's; see `tl.program_id`",
    ),
    ("transpose", "`tl.trans(x)`"),
    ("var", "`tl.sum((x - mean) * (x - mean), axis) / n`"),
];

/// Returns the replacement for a name of another library.
pub(super) fn instead(name: &str) -> Option<String> {
    if let Some((_, instead)) = INSTEAD.iter().find(|(known, _)| *known == name) {
        return Some((*instead).to_owned());
    }
    let path = format!("extra.libdevice.{name}");
    match semantic::language(&path)? {
        LanguageItem::Builtin(_) | LanguageItem::Library(_) => {
            Some(format!("`libdevice.{name}`, from `triton.language.extra import libdevice`"))
        }
        LanguageItem::Module | LanguageItem::Constant(_) | LanguageItem::Special(_) => None,
    }
}

/// Returns advice on a keyword of older versions of the language.
pub(super) fn instead_of_keyword(keyword: &str) -> Option<&'static str> {
    match keyword {
        "trans_a" | "trans_b" => Some("transpose the operand: `tl.dot(a, tl.trans(b))`"),
        _ => None,
    }
}

/// Returns advice on an undefined name that exists in `triton.language`.
pub(super) fn forgotten_module(name: &str) -> Option<String> {
    match semantic::language(name)? {
        LanguageItem::Builtin(_)
        | LanguageItem::Library(_)
        | LanguageItem::Constant(_)
        | LanguageItem::Special(_) => Some(format!(
            "did you mean `tl.{name}`? the names of the language are in `import triton.language as tl`"
        )),
        LanguageItem::Module => Some(format!("did you mean `tl.{name}`?")),
    }
}

/// Returns advice on a builtin of Python that kernels cannot call.
pub(super) fn instead_of_builtin(name: &str) -> &'static str {
    match name {
        "breakpoint" => {
            "a kernel is compiled, and nothing stops in it: with TRITON_INTERPRET=1 in the environment, or \
             `@triton.jit(interpret=True)`, Python runs the kernel and stops here"
        }
        "input" | "exit" | "quit" => {
            "a kernel is compiled, and nothing stops in it: print with `tl.device_print(\"x\", x)` while it runs, with \
             `tl.static_print(x)` while it is compiled, or check with `tl.device_assert(x > 0)` and debug=True"
        }
        "all" => "of a tile, it is `tl.min(x.to(tl.int32), axis) != 0`; of compile-time values, write `and`",
        "any" => "of a tile, it is `tl.max(x.to(tl.int32), axis) != 0`; of compile-time values, write `or`",
        "sorted" => "a tile is sorted by `tl.sort(x)`",
        "type" => "the type of a tensor is `x.dtype`; test it with `x.dtype == tl.float32`",
        "dict" | "set" | "frozenset" => "use a tuple, or pass the object as a tl.constexpr",
        "map" | "filter" => "use a list comprehension over compile-time values",
        "id" | "hash" | "globals" | "locals" | "vars" | "dir" | "eval" | "exec" | "open" | "setattr" => {
            "a kernel has no objects of Python: compute the value outside, and pass it as an argument"
        }
        _ => {
            "compute the value outside of the kernel and pass it as an argument, or in a @triton.constexpr_function"
        }
    }
}

/// Returns advice on a builtin of Python that is called with a run-time value.
pub(super) fn of_run_time_number(name: &str, argument: &str) -> Option<String> {
    let tensor = if argument.chars().all(|c| c.is_alphanumeric() || "_.()".contains(c)) {
        argument.to_owned()
    } else {
        format!("({argument})")
    };
    match name {
        "int" => Some(format!("convert it: `{tensor}.to(tl.int32)`")),
        "float" => Some(format!("convert it: `{tensor}.to(tl.float32)`")),
        "bool" => Some(format!("compare it: `{tensor} != 0`")),
        "round" => Some(format!("write `libdevice.rint({argument})`, from `triton.language.extra`")),
        "divmod" => Some("write `x // y` and `x % y`".to_owned()),
        "pow" => Some(
            "write `x * x` for a square, or `libdevice.pow(x, y)`, from `triton.language.extra`".to_owned(),
        ),
        "str" | "repr" | "format" => Some(format!(
            "a text is made while the kernel is compiled; print with `tl.device_print(\"x\", {argument})`"
        )),
        _ => None,
    }
}

/// Returns advice on a method that changes a list in place. In a kernel, lists are immutable.
pub(super) fn list_method(name: &str) -> Option<&'static str> {
    match name {
        "append" | "extend" | "insert" => Some(
            "a list does not change in a kernel: make a new one, `acc = acc + [x]`, in a loop over tl.static_range; values \
             that a loop computes go into a tile, or into a tuple of as many items as before",
        ),
        "pop" | "remove" | "clear" | "reverse" | "sort" | "update" => Some(
            "a list does not change in a kernel: make a new one, for example of a slice: `acc = acc[1:]`",
        ),
        _ => None,
    }
}

impl<'a> Lowerer<'a, '_, '_> {
    /// Adds a label to an error about `None` if the value is that of a function without a result,
    /// or of an argument.
    pub(super) fn explain_none(
        &mut self,
        mut diagnostic: Diagnostic,
        expressions: &[&'a Expr],
    ) -> Diagnostic {
        for &expression in expressions {
            let assigned = match expression {
                Expr::Name(name) => self.assigned_from(name.id.as_str()),
                other => Some(other),
            };
            let Some(call) = assigned else {
                let name = expression.as_name_expr().map(|name| name.id.as_str());
                let parameter = name.and_then(|name| self.scope.get(name)).filter(|found| found.is_parameter);
                if let Some(parameter) = parameter {
                    diagnostic = diagnostic.secondary(parameter.span, "None is passed for this parameter");
                }
                continue;
            };
            if let Some((name, span)) = self.returns_nothing(call) {
                return diagnostic
                    .secondary(span, format!("'{name}' returns nothing, which is None"))
                    .hint(format!("end '{name}' with a `return` of its result"));
            }
        }
        diagnostic
    }

    /// Returns the last expression that is assigned to a name in this function.
    fn assigned_from(&self, name: &str) -> Option<&'a Expr> {
        let mut found = AssignedFrom { name, value: None };
        let body = self.body();
        with_stack(|| found.visit_body(body));
        found.value
    }

    /// Returns the name and the position of the called `@jit` function, if it has no `return` with
    /// a value.
    fn returns_nothing(&mut self, expression: &Expr) -> Option<(String, Span)> {
        let Expr::Call(call) = expression else { return None };
        let name = call.func.as_name_expr()?.id.as_str();
        let caller = self.callee.user()?;
        let Some(crate::HostValue::Function(function)) = self.session.host.name(caller, name) else {
            return None;
        };
        let loaded = self.session.load(Callee::User(function), None).ok()?;
        let definition = loaded.definition()?;
        let mut returns = Returns(false);
        with_stack(|| returns.visit_body(&definition.body));
        let range = crate::parse::bytes(definition.name.range);
        (!returns.0).then(|| (loaded.name.clone(), Span::new(loaded.file, range.start, range.end)))
    }
}

struct AssignedFrom<'a, 'n> {
    name: &'n str,
    value: Option<&'a Expr>,
}

impl<'a> Visitor<'a> for AssignedFrom<'a, '_> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        if let Stmt::Assign(assign) = statement {
            let is_it =
                |target: &Expr| target.as_name_expr().is_some_and(|name| name.id.as_str() == self.name);
            if assign.targets.iter().any(is_it) {
                self.value = Some(&assign.value);
            }
        }
        visitor::walk_stmt(self, statement);
    }
}

struct Returns(bool);

impl<'a> Visitor<'a> for Returns {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Return(found) => self.0 |= found.value.is_some(),
            Stmt::FunctionDef(_) | Stmt::ClassDef(_) => {}
            _ => visitor::walk_stmt(self, statement),
        }
    }
}
