//! Lowers expressions.

use ruff_python_ast::{
    BoolOp, CmpOp, Expr, ExprBinOp, ExprBoolOp, ExprCompare, ExprIf, ExprListComp, ExprNamed, ExprSubscript,
    Operator, UnaryOp,
};
use tilewright_base::{Code, Diagnostic, Span};

use super::known::compare_constants;
use super::lowerer::{Lower, Lowerer, Reported};
use super::scope::Binding;
use super::template::{self, IrOperand, constant_truth};
use crate::constexpr::{self, Evaluated};
use crate::semantic::{self, BinaryOperator, BooleanOperator, CompareOperator, Index, UnaryOperator};
use crate::tuple::Tuple;
use crate::value::{Constant, Operand};

pub(crate) fn binary_operator(operator: Operator) -> BinaryOperator {
    match operator {
        Operator::Add => BinaryOperator::Add,
        Operator::Sub => BinaryOperator::Sub,
        Operator::Mult => BinaryOperator::Mul,
        Operator::MatMult => BinaryOperator::MatMul,
        Operator::Div => BinaryOperator::Div,
        Operator::Mod => BinaryOperator::Mod,
        Operator::Pow => BinaryOperator::Pow,
        Operator::LShift => BinaryOperator::Shl,
        Operator::RShift => BinaryOperator::Shr,
        Operator::BitOr => BinaryOperator::Or,
        Operator::BitXor => BinaryOperator::Xor,
        Operator::BitAnd => BinaryOperator::And,
        Operator::FloorDiv => BinaryOperator::FloorDiv,
    }
}

impl<'a> Lowerer<'a, '_, '_> {
    pub(crate) fn expression(&mut self, expression: &'a Expr) -> Lower<IrOperand> {
        let span = self.span_of(expression);
        self.deeper(span, |this| {
            this.at(span);
            let value = this.evaluate(expression, span)?;
            this.pay_for(&value, span)?;
            Ok(value)
        })
    }

    fn evaluate(&mut self, expression: &'a Expr, span: Span) -> Lower<IrOperand> {
        match expression {
            Expr::Name(name) => self.name(name),
            Expr::NumberLiteral(literal) => self.number_literal(literal),
            Expr::BooleanLiteral(literal) => Ok(Constant::Bool(literal.value).into()),
            Expr::NoneLiteral(_) => Ok(Constant::None.into()),
            Expr::StringLiteral(literal) => Ok(Constant::Str(literal.value.to_str().into()).into()),
            Expr::FString(string) => self.f_string(string),
            Expr::BinOp(binary) => self.binary_chain(binary),
            Expr::UnaryOp(unary) => self.unary(unary.op, &unary.operand, span),
            Expr::Compare(compare) => self.comparison(compare, span),
            Expr::BoolOp(boolean) => self.boolean(boolean, span),
            Expr::If(ternary) => self.ternary(ternary, span),
            Expr::Call(call) => self.call_expression(call),
            Expr::Attribute(attribute) => self.attribute(attribute),
            Expr::Subscript(subscript) => self.subscript(subscript, span),
            Expr::Tuple(tuple) => self.sequence(&tuple.elts).map(template::tuple),
            Expr::List(list) => self.sequence(&list.elts).map(template::tuple),
            Expr::ListComp(list) => self.list_comprehension(list, span),
            Expr::Named(named) => self.walrus(named),
            Expr::Starred(_) => Err(self.unsupported(span, "'*' here", "unpack in a call or a tuple only")),
            _ => Err(self.unsupported_expression(expression, span)),
        }
    }

    fn unsupported_expression(&mut self, expression: &Expr, span: Span) -> Reported {
        let (construct, hint) = match expression {
            Expr::Lambda(_) => ("a lambda", "define the function outside of the kernel, with @triton.jit"),
            Expr::Dict(_) | Expr::DictComp(_) => ("a dict", "use a tuple"),
            Expr::Set(_) | Expr::SetComp(_) => ("a set", "use a tuple"),
            Expr::Generator(_) => {
                ("a generator expression", "use a list comprehension over compile-time values")
            }
            Expr::Await(_) => ("'await'", ""),
            Expr::Yield(_) | Expr::YieldFrom(_) => ("'yield'", "return a tuple of values"),
            Expr::BytesLiteral(_) => ("a bytes literal", ""),
            Expr::TString(_) => ("a t-string", "use an f-string"),
            Expr::EllipsisLiteral(_) => ("'...'", ""),
            Expr::Slice(_) => ("a slice", ""),
            _ => ("this syntax", ""),
        };
        self.unsupported(span, construct, hint)
    }

    /// Evaluates expressions, and replaces starred ones by their items. Continues after an error to
    /// report the others, except after too many items.
    pub(crate) fn sequence(&mut self, expressions: &'a [Expr]) -> Lower<Vec<IrOperand>> {
        let mut values = Vec::with_capacity(expressions.len());
        let mut failed = None;
        let mut size = 0_usize;
        for expression in expressions {
            let result = match expression {
                Expr::Starred(starred) => self.starred(&starred.value),
                other => self.expression(other).map(|value| vec![value]),
            };
            match result {
                Ok(items) => {
                    size += items.iter().map(Operand::size).sum::<usize>();
                    self.check_size(size, self.span_of(expression))?;
                    values.extend(items);
                }
                Err(reported) => failed = Some(reported),
            }
        }
        failed.map_or(Ok(values), Err)
    }

    /// Evaluates `*expression` to the items of the tuple.
    pub(crate) fn starred(&mut self, expression: &'a Expr) -> Lower<Vec<IrOperand>> {
        let value = self.expression(expression)?;
        template::items(&value).map(Tuple::into_vec).ok_or_else(|| {
            let what = self.describe(&value);
            self.error(
                Code::TypeMismatch,
                self.span_of(expression),
                format!("'*' unpacks a tuple, found {what}"),
            )
        })
    }

    /// Reports a compile-time value that exceeds the maximum size.
    pub(crate) fn check_size(&mut self, size: usize, span: Span) -> Lower<()> {
        let limited = constexpr::limited(size, || ());
        limited.map_err(|message| self.error(Code::ConstexprError, span, message))
    }

    /// Returns the result of a compile-time evaluation, or reports its exception.
    pub(crate) fn evaluated(&mut self, result: Evaluated, span: Span) -> Lower<IrOperand> {
        result.map(Operand::Constant).map_err(|message| self.error(Code::ConstexprError, span, message))
    }

    /// Evaluates a chain such as `a + b - c` in a loop. Its tree is as deep as the chain is long.
    fn binary_chain(&mut self, last: &'a ExprBinOp) -> Lower<IrOperand> {
        let mut chain = vec![last];
        while let Some(Expr::BinOp(inner)) = chain.last().map(|node| &*node.left) {
            chain.push(inner);
        }
        let mut value = match chain.last() {
            Some(first) => self.expression(&first.left),
            None => return Err(Reported),
        };
        for node in chain.into_iter().rev() {
            let right = self.expression(&node.right);
            value = match (value, right) {
                (Ok(left), Ok(right)) => self.binary_node(node, &left, &right),
                _ => Err(Reported),
            };
        }
        value
    }

    fn binary_node(&mut self, node: &'a ExprBinOp, left: &IrOperand, right: &IrOperand) -> Lower<IrOperand> {
        let span = self.span_of(node);
        self.binary(binary_operator(node.op), (left, Some(&node.left)), (right, Some(&node.right)), span)
    }

    /// Evaluates `left op right`. Errors point at the operands, if the source has them.
    pub(crate) fn binary(
        &mut self,
        operator: BinaryOperator,
        (left, left_at): (&IrOperand, Option<&'a Expr>),
        (right, right_at): (&IrOperand, Option<&'a Expr>),
        span: Span,
    ) -> Lower<IrOperand> {
        self.at(span);
        if let Some(result) = self.object_binary(operator, left, right, span) {
            return result;
        }
        if let (Operand::Constant(one), Operand::Constant(other)) = (left, right) {
            return constexpr::binary(operator, one, other).map(Operand::Constant).map_err(|message| {
                let nones = [(one, left_at), (other, right_at)].into_iter();
                let nones: Vec<&'a Expr> =
                    nones.filter(|(value, _)| **value == Constant::None).filter_map(|(_, at)| at).collect();
                let diagnostic = Diagnostic::at(Code::ConstexprError, span, message);
                let diagnostic = self.explain_none(diagnostic, &nones);
                self.report(diagnostic)
            });
        }
        if let (Some(items), Some(more)) = (template::items(left), template::items(right))
            && operator == BinaryOperator::Add
        {
            self.check_size(left.size() + right.size(), span)?;
            return Ok(template::tuple(items.into_iter().chain(more).collect()));
        }
        if operator == BinaryOperator::Mul
            && let (Operand::Tuple(items), count) | (count, Operand::Tuple(items)) = (left, right)
            && let Some(Constant::Int(count)) = self.as_constant(count)
        {
            let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
            let size = items.iter().map(Operand::size).sum::<usize>();
            self.check_size(size.saturating_mul(count), span)?;
            return Ok(template::tuple(std::iter::repeat_n(items, count).flatten().cloned().collect()));
        }
        let result = semantic::binary(self, operator, left, right);
        result.map_err(|error| {
            let place = self.operator_place(span, (left_at, right_at), operator.symbol());
            self.semantic_error(error, place, &[left_at, right_at])
        })
    }

    fn unary(&mut self, operator: UnaryOp, operand: &'a Expr, span: Span) -> Lower<IrOperand> {
        let value = self.expression(operand)?;
        self.unary_value(operator, &value, Some(operand), span)
    }

    /// Evaluates `op value`. Errors point at the expression of the operand, if the source has it.
    pub(crate) fn unary_value(
        &mut self,
        operator: UnaryOp,
        value: &IrOperand,
        operand: Option<&'a Expr>,
        span: Span,
    ) -> Lower<IrOperand> {
        self.at(span);
        let operator = match operator {
            UnaryOp::Invert => UnaryOperator::Invert,
            UnaryOp::Not => UnaryOperator::Not,
            UnaryOp::UAdd => UnaryOperator::Plus,
            UnaryOp::USub => UnaryOperator::Neg,
        };
        if let Some(result) = self.object_unary(operator, value, span) {
            return result;
        }
        match value {
            Operand::Constant(constant) => self.evaluated(constexpr::unary(operator, constant), span),
            Operand::Tuple(items) if operator == UnaryOperator::Not => {
                Ok(Constant::Bool(items.is_empty()).into())
            }
            _ => {
                let result = semantic::unary(self, operator, value);
                result.map_err(|error| self.semantic_error(error, span, &[operand]))
            }
        }
    }

    /// Evaluates a comparison. `a < b < c` evaluates each operand once.
    fn comparison(&mut self, compare: &'a ExprCompare, span: Span) -> Lower<IrOperand> {
        self.warn_of_chain(compare, span);
        let mut left = self.expression(&compare.left);
        let mut left_at = &*compare.left;
        let mut all: Option<Lower<IrOperand>> = None;
        for (&operator, right_at) in compare.ops.iter().zip(&compare.comparators[..]) {
            let right = self.expression(right_at);
            let part = match (&left, &right) {
                (Ok(left), Ok(right)) => {
                    self.compare(operator, (left, Some(left_at)), (right, Some(right_at)), span)
                }
                _ => Err(Reported),
            };
            all = Some(match (all, part) {
                (None, part) => part,
                (Some(Ok(all)), Ok(part)) => self.boolean_pair(BoolOp::And, &all, &part, span, &[]),
                _ => Err(Reported),
            });
            (left, left_at) = (right, right_at);
        }
        all.unwrap_or(Err(Reported))
    }

    /// Warns about `i < n & i > 3`, because `&` binds tighter than comparisons.
    fn warn_of_chain(&mut self, compare: &'a ExprCompare, span: Span) {
        let operands = std::iter::once(&*compare.left).chain(&compare.comparators);
        let is_bitwise = |operand: &&Expr| match operand {
            Expr::BinOp(binary) => matches!(binary.op, Operator::BitAnd | Operator::BitOr),
            _ => false,
        };
        let Some(operand) = operands.into_iter().find(is_bitwise).filter(|_| compare.ops.len() > 1) else {
            return;
        };
        let at = self.span_of(operand);
        let before = self.session.sources.text(Span { end: at.start, ..span }).trim_end();
        if before.ends_with('(') {
            return;
        }
        let text = self.session.sources.text(at).to_owned();
        let message = format!("`{text}` is one operand of a chained comparison");
        let diagnostic = Diagnostic::at(Code::ChainedComparison, span, message)
            .secondary(at, "this is computed first")
            .note("`&` and `|` bind closer than `<`, `>` and `==`; `a < b > c` is `(a < b) and (b > c)`")
            .hint("put each comparison in parentheses: `(i < n) & (i > 3)`");
        self.session.warn(diagnostic);
    }

    /// Compares two values. Errors point at the operands, if the source has them.
    pub(crate) fn compare(
        &mut self,
        operator: CmpOp,
        (left, left_at): (&IrOperand, Option<&'a Expr>),
        (right, right_at): (&IrOperand, Option<&'a Expr>),
        span: Span,
    ) -> Lower<IrOperand> {
        self.at(span);
        let operator = match operator {
            CmpOp::Is | CmpOp::IsNot => {
                let is_same = template::same(left, right, &|left, right| left == right);
                return Ok(Constant::Bool(is_same == (operator == CmpOp::Is)).into());
            }
            CmpOp::In | CmpOp::NotIn => {
                if let Some(found) = self.object_contains(left, right, span) {
                    return found.map(|found| Constant::Bool(found == (operator == CmpOp::In)).into());
                }
                let (Some(item), Some(container)) = (self.as_constant(left), self.as_constant(right)) else {
                    let message = "'in' compares compile-time values only";
                    let diagnostic = Diagnostic::at(Code::ConstexprError, span, message)
                        .hint("compare with each: `(x == 1) | (x == 2)`");
                    return Err(self.report(diagnostic));
                };
                let found = constexpr::contains(&container, &item);
                let found = found.map(|found| Constant::Bool(found == (operator == CmpOp::In)));
                return self.evaluated(found, span);
            }
            CmpOp::Eq => CompareOperator::Eq,
            CmpOp::NotEq => CompareOperator::Ne,
            CmpOp::Lt => CompareOperator::Lt,
            CmpOp::LtE => CompareOperator::Le,
            CmpOp::Gt => CompareOperator::Gt,
            CmpOp::GtE => CompareOperator::Ge,
        };
        if let Some(result) = self.object_compare(operator, left, right, span) {
            return result;
        }
        if let (Operand::Constant(left), Operand::Constant(right)) = (left, right) {
            return self.evaluated(constexpr::compare(operator, left, right), span);
        }
        if let (Operand::Tuple(_), Operand::Tuple(_) | Operand::Constant(Constant::Tuple(_)))
        | (Operand::Constant(Constant::Tuple(_)), Operand::Tuple(_)) = (left, right)
            && let (Some(left), Some(right)) = (self.as_constant(left), self.as_constant(right))
        {
            return self.evaluated(constexpr::compare(operator, &left, &right), span);
        }
        if matches!(operator, CompareOperator::Eq | CompareOperator::Ne)
            && let Some(is_equal) = self.are_equal_tuples(left, right)
        {
            return Ok(Constant::Bool(is_equal == (operator == CompareOperator::Eq)).into());
        }
        // A run-time value is not None. Functions and modules are compared by identity.
        let is_none = |operand: &IrOperand| matches!(operand, Operand::Constant(Constant::None));
        let is_value = |operand: &IrOperand| {
            matches!(operand, Operand::Tensor(_) | Operand::Constant(_) | Operand::Tuple(_))
        };
        if is_none(left) || is_none(right) || !is_value(left) || !is_value(right) {
            let is_same = template::same(left, right, &|left, right| left == right);
            match operator {
                CompareOperator::Eq => return Ok(Constant::Bool(is_same).into()),
                CompareOperator::Ne => return Ok(Constant::Bool(!is_same).into()),
                _ => {}
            }
        }
        let result = semantic::compare(self, operator, left, right);
        result.map_err(|error| {
            let place = self.operator_place(span, (left_at, right_at), operator.symbol());
            self.semantic_error(error, place, &[left_at, right_at])
        })
    }

    /// Returns whether two tuples are equal, or `None` if this is only known at run time.
    ///
    /// A run-time value equals itself. The comparison stops at the first pair of items that differ.
    fn are_equal_tuples(&self, left: &IrOperand, right: &IrOperand) -> Option<bool> {
        let (left, right) = (template::items(left)?, template::items(right)?);
        if left.len() != right.len() {
            return Some(false);
        }
        for (left, right) in left.iter().zip(right.iter()) {
            if template::same(left, right, &|left, right| left == right) {
                continue;
            }
            let is_none = |operand: &IrOperand| matches!(operand, Operand::Constant(Constant::None));
            let is_equal = match (self.as_constant(left), self.as_constant(right)) {
                (Some(left), Some(right)) => compare_constants(CmpOp::Eq, &left, &right)?,
                _ if is_none(left) || is_none(right) => false,
                _ => self.are_equal_tuples(left, right)?,
            };
            if !is_equal {
                return Some(false);
            }
        }
        Some(true)
    }
    /// Evaluates `and` and `or` as Triton does:
    ///
    /// - A compile-time operand that decides (false for `and`, true for `or`) is the result. Later
    ///   operands are not evaluated.
    /// - Otherwise, run-time operands are combined, and compile-time operands have no effect.
    /// - If all operands are compile-time values, the last one is the result.
    fn boolean(&mut self, boolean: &'a ExprBoolOp, span: Span) -> Lower<IrOperand> {
        let stops_at = boolean.op == BoolOp::Or;
        let mut result: Option<(IrOperand, &'a Expr)> = None;
        let mut last = None;
        for expression in &boolean.values {
            let value = self.expression(expression)?;
            let truth = match &value {
                Operand::Constant(constant) => Some(constant.is_true()),
                Operand::Tensor(_) => None,
                Operand::Tuple(items) => Some(!items.is_empty()),
                _ => Some(true),
            };
            match truth {
                Some(truth) if truth == stops_at => return Ok(value),
                Some(_) => last = Some(value),
                None => {
                    result = Some(match result {
                        None => (value, expression),
                        Some((left, at)) => {
                            let parts = [Some(at), Some(expression)];
                            (self.boolean_pair(boolean.op, &left, &value, span, &parts)?, expression)
                        }
                    });
                }
            }
        }
        result.map(|(value, _)| value).or(last).ok_or(Reported)
    }

    fn boolean_pair(
        &mut self,
        operator: BoolOp,
        left: &IrOperand,
        right: &IrOperand,
        span: Span,
        parts: &[Option<&'a Expr>],
    ) -> Lower<IrOperand> {
        self.at(span);
        let stops_at = operator == BoolOp::Or;
        match (left, right) {
            (Operand::Constant(constant), other) | (other, Operand::Constant(constant)) => {
                let decided = constant.is_true() == stops_at;
                return Ok(if decided { constant.clone().into() } else { other.clone() });
            }
            _ => {}
        }
        if let (Operand::Tensor(one), Operand::Tensor(other), [Some(_), Some(right_at)]) =
            (left, right, parts)
        {
            let shape = |value| self.builder.function.ty(value).clone();
            let (one, other) = (shape(*one), shape(*other));
            if !one.is_scalar() || !other.is_scalar() {
                let (word, sign) = if stops_at { ("or", '|') } else { ("and", '&') };
                let diagnostic =
                    Diagnostic::at(Code::AndOfTiles, span, format!("'{word}' of tiles evaluates both"))
                        .secondary(self.span_of(*right_at), format!("this is {other}, and evaluated in any case"))
                        .note(format!("'{word}' of tiles is computed element by element, like `{sign}`; Python's '{word}' would choose one of the two operands"))
                        .hint(format!("write `(a) {sign} (b)`, each comparison in parentheses"));
                self.session.warn(diagnostic);
            }
        }
        let operator = if stops_at { BooleanOperator::Or } else { BooleanOperator::And };
        let result = semantic::boolean(self, operator, left, right);
        result.map_err(|error| self.semantic_error(error, span, parts))
    }

    /// Evaluates `a if condition else b`. Only the selected operand is evaluated, during lowering
    /// or in the kernel.
    fn ternary(&mut self, mut ternary: &'a ExprIf, mut span: Span) -> Lower<IrOperand> {
        loop {
            let condition = self.expression(&ternary.test)?;
            let Some(truth) = constant_truth(&condition) else {
                let condition = self.truth(&condition, &ternary.test)?;
                return self.conditional_value(condition, ternary, span);
            };
            let taken = if truth { &*ternary.body } else { &*ternary.orelse };
            // The tree of a chain is as deep as the chain is long, so this is a loop.
            let Expr::If(next) = taken else { return self.expression(taken) };
            (ternary, span) = (next, self.span_of(next));
        }
    }

    /// Converts a run-time condition to a scalar int1.
    pub(crate) fn truth(
        &mut self,
        condition: &IrOperand,
        expression: &'a Expr,
    ) -> Lower<tilewright_ir::Value> {
        let span = self.span_of(expression);
        self.at(span);
        let result = semantic::truth(self, condition);
        result.map_err(|error| self.semantic_error(error, span, &[Some(expression)]))
    }

    fn walrus(&mut self, named: &'a ExprNamed) -> Lower<IrOperand> {
        let value = self.expression(&named.value);
        if let Expr::Name(target) = &*named.target {
            let span = self.span_of(target);
            let binding = match &value {
                Ok(value) => Binding::value(value.clone(), span),
                Err(_) => Binding::poisoned(span),
            };
            self.bind(target.id.as_str(), binding);
        }
        value
    }

    /// Evaluates a list comprehension over compile-time items.
    fn list_comprehension(&mut self, list: &'a ExprListComp, span: Span) -> Lower<IrOperand> {
        let [generator] = &list.generators[..] else {
            return Err(self.unsupported(span, "a list comprehension with several 'for'", ""));
        };
        let iterated = self.expression(&generator.iter)?;
        let items = self.unrolled_items(&iterated, &generator.iter)?;
        let mut names = super::scope::assigned_in(&generator.target);
        names.sort_unstable();
        let before: Vec<_> = names.iter().map(|name| (*name, self.scope.get(name).cloned())).collect();
        let mut values = Vec::new();
        let mut failed = None;
        let mut size = 0;
        for item in items {
            self.assign_target(&generator.target, Ok(item), span);
            let value = self.comprehension_item(list, &generator.ifs).and_then(|value| {
                size += value.as_ref().map_or(0, Operand::size);
                self.check_size(size, span).map(|()| value)
            });
            match value {
                Ok(value) => values.extend(value),
                Err(reported) => {
                    failed = Some(reported);
                    break;
                }
            }
        }
        for (name, binding) in before {
            match binding {
                Some(binding) => self.scope.insert(name, binding),
                None => self.scope.remove(name),
            };
        }
        failed.map_or_else(|| Ok(template::tuple(values)), Err)
    }

    fn comprehension_item(&mut self, list: &'a ExprListComp, ifs: &'a [Expr]) -> Lower<Option<IrOperand>> {
        for condition in ifs {
            let value = self.expression(condition)?;
            match constant_truth(&value) {
                Some(true) => {}
                Some(false) => return Ok(None),
                None => {
                    let at = self.span_of(condition);
                    return Err(self.not_constant(
                        at,
                        condition,
                        &value,
                        "the condition of a list comprehension",
                    ));
                }
            }
        }
        self.expression(&list.elt).map(Some)
    }

    fn subscript(&mut self, subscript: &'a ExprSubscript, span: Span) -> Lower<IrOperand> {
        let value = self.expression(&subscript.value)?;
        let parts: &'a [Expr] = match &*subscript.slice {
            Expr::Tuple(tuple) if !tuple.elts.is_empty() => &tuple.elts,
            one => std::slice::from_ref(one),
        };
        if let Operand::Tensor(_) = value {
            let mut indices = Vec::with_capacity(parts.len());
            for part in parts {
                self.push_indices(part, &mut indices)?;
            }
            self.at(span);
            let result = semantic::subscript(self, &value, &indices);
            let places: Vec<_> = std::iter::once(&*subscript.value).chain(parts).map(Some).collect();
            return result.map_err(|error| self.semantic_error(error, span, &places));
        }
        if let Some(result) = self.object_subscript(&value, &subscript.slice, span) {
            return result;
        }
        let [part] = parts else {
            return Err(self.error(Code::InvalidIndex, span, "a tuple takes one index"));
        };
        self.tuple_subscript(&value, part, span)
    }

    /// Appends the index in a part of a subscript, or one for each item of a tuple.
    fn push_indices(&mut self, part: &'a Expr, indices: &mut Vec<Index<tilewright_ir::Value>>) -> Lower<()> {
        indices.push(match part {
            Expr::NoneLiteral(_) => Index::NewAxis,
            Expr::EllipsisLiteral(_) => Index::Ellipsis,
            Expr::Slice(slice) => {
                let mut bound = |bound: &'a Option<Box<Expr>>| match bound {
                    Some(expression) => match self.expression(expression)? {
                        Operand::Constant(Constant::None) => Ok(None),
                        value => Ok(Some(value)),
                    },
                    None => Ok(None),
                };
                let (first, end, by) = (bound(&slice.lower)?, bound(&slice.upper)?, bound(&slice.step)?);
                if first.is_none() && end.is_none() && by.is_none() {
                    Index::All
                } else {
                    Index::Slice { start: first, stop: end, step: by }
                }
            }
            other => {
                indices.extend(super::dunder::indices_of(&self.expression(other)?));
                return Ok(());
            }
        });
        Ok(())
    }

    /// Evaluates `sequence[index]` for a tuple or a compile-time value.
    fn tuple_subscript(&mut self, value: &IrOperand, part: &'a Expr, span: Span) -> Lower<IrOperand> {
        if let Expr::Slice(slice) = part {
            let mut bound = |bound: &'a Option<Box<Expr>>| match bound {
                Some(expression) => self.constant_int(expression, "a bound of a slice").map(Some),
                None => Ok(None),
            };
            let (first, end, by) = (bound(&slice.lower)?, bound(&slice.upper)?, bound(&slice.step)?);
            let Some(items) = template::items(value) else { return Err(self.no_items(value, span)) };
            return match constexpr::slice_indices(items.len(), first, end, by) {
                Ok(places) => {
                    Ok(template::tuple(places.into_iter().map(|place| items[place].clone()).collect()))
                }
                Err(message) => Err(self.error(Code::ConstexprError, span, message)),
            };
        }
        let index_value = self.expression(part)?;
        if self.as_constant(&index_value).is_none() {
            return Err(self.not_constant(self.span_of(part), part, &index_value, "the index of a tuple"));
        }
        self.tuple_item(value, &index_value, self.span_of(part), span)
    }

    /// Evaluates `sequence[index]` for an evaluated index, which is a number or a slice.
    pub(crate) fn tuple_item(
        &mut self,
        value: &IrOperand,
        index: &IrOperand,
        at: Span,
        span: Span,
    ) -> Lower<IrOperand> {
        let Some(index_value) = self.as_constant(index) else {
            let found = self.describe(index);
            let message = "the index of a tuple must be known when the kernel is compiled";
            let diagnostic = Diagnostic::new(Code::NotConstexpr, message)
                .primary(at, format!("this is {found}, known at run time only"));
            return Err(self.report(diagnostic));
        };
        if let Some(parts) = semantic::slice_parts(index) {
            return self.tuple_slice(value, &parts, span);
        }
        let index = index_value;
        match value {
            Operand::Constant(Constant::Tuple(items)) if items.is_empty() => {
                let message = format!("index {index} is out of range for 0 items");
                let diagnostic = Diagnostic::at(Code::ConstexprError, span, message);
                Err(self.report(match self.session.sources.text(span).split_once(".shape") {
                    Some((owner, _)) => diagnostic
                        .note(format!("'{owner}' is a scalar or a pointer, whose shape is ()"))
                        .note("a kernel gets the address of a tensor's first element, and nothing else of the tensor")
                        .hint(format!("pass the extent as an argument of the launch: `{owner}.shape[{index}]`")),
                    None => diagnostic,
                }))
            }
            Operand::Constant(constant) => self.evaluated(constexpr::subscript(constant, &index), span),
            Operand::Tuple(items) => {
                let places =
                    Constant::Tuple((0..items.len()).map(|place| Constant::Int(place as i128)).collect());
                match constexpr::subscript(&places, &index) {
                    Ok(Constant::Int(place)) => Ok(items[place as usize].clone()),
                    Ok(_) => Err(Reported),
                    Err(message) => Err(self.error(Code::ConstexprError, span, message)),
                }
            }
            other => Err(self.no_items(other, span)),
        }
    }

    /// Evaluates `sequence[start:stop:step]` for evaluated bounds.
    fn tuple_slice(&mut self, value: &IrOperand, bounds: &[IrOperand; 3], span: Span) -> Lower<IrOperand> {
        let mut found = [None; 3];
        for (bound, place) in bounds.iter().zip(&mut found) {
            match self.as_constant(bound) {
                Some(Constant::None) => {}
                Some(Constant::Int(bound)) => *place = Some(bound),
                _ => return Err(self.error(Code::TypeMismatch, span, "a bound of a slice must be an int")),
            }
        }
        let Some(items) = template::items(value) else { return Err(self.no_items(value, span)) };
        let places = constexpr::slice_indices(items.len(), found[0], found[1], found[2]);
        match places {
            Ok(places) => Ok(template::tuple(places.into_iter().map(|place| items[place].clone()).collect())),
            Err(message) => Err(self.error(Code::ConstexprError, span, message)),
        }
    }

    pub(crate) fn no_items(&mut self, value: &IrOperand, span: Span) -> Reported {
        let what = self.describe(value);
        let diagnostic = Diagnostic::at(Code::InvalidIndex, span, format!("{what} has no items"));
        self.report(match value {
            Operand::Function(_) => diagnostic.hint(
                "a kernel launches no kernels: call the function, `f(x, y)`, which then runs in this program",
            ),
            _ => diagnostic,
        })
    }

    /// Evaluates an expression that must be a compile-time integer.
    pub(crate) fn constant_int(&mut self, expression: &'a Expr, what: &str) -> Lower<i128> {
        let value = self.expression(expression)?;
        let span = self.span_of(expression);
        match self.as_constant(&value) {
            Some(Constant::Int(value)) => Ok(value),
            Some(Constant::Bool(value)) => Ok(i128::from(value)),
            Some(other) => {
                let message = format!("{what} must be an int, found {} {other}", other.type_name());
                Err(self.error(Code::TypeMismatch, span, message))
            }
            None => Err(self.not_constant(span, expression, &value, what)),
        }
    }

    /// Reports a run-time value where a compile-time value is required.
    pub(crate) fn not_constant(
        &mut self,
        span: Span,
        expression: &'a Expr,
        value: &IrOperand,
        what: &str,
    ) -> Reported {
        let diagnostic = self.describe_not_constant(span, expression, value, what);
        self.report(diagnostic)
    }

    /// Describes a run-time value where a compile-time value is required.
    pub(crate) fn describe_not_constant(
        &mut self,
        span: Span,
        expression: &'a Expr,
        value: &IrOperand,
        what: &str,
    ) -> Diagnostic {
        let found = self.describe(value);
        let message = format!("{what} must be known when the kernel is compiled");
        let diagnostic = Diagnostic::new(Code::NotConstexpr, message)
            .primary(span, format!("this is {found}, known at run time only"));
        self.explain_run_time(diagnostic, &[expression])
    }

    /// Returns the compile-time value of an operand: of a tuple whose items all have one, or of a
    /// constant of the IR, such as `n` after `n = 16`.
    pub(crate) fn as_constant(&self, operand: &IrOperand) -> Option<Constant> {
        match operand {
            Operand::Constant(constant) => Some(constant.clone()),
            Operand::Tensor(value) => {
                let function = &self.builder.function;
                let Some(tilewright_ir::Op::Constant { value: literal }) = function.defining_op(*value)
                else {
                    return None;
                };
                if literal.dtype.is_bool() {
                    return literal.as_int().map(|value| Constant::Bool(value != 0));
                }
                literal.as_int().map(Constant::Int).or_else(|| literal.as_float().map(Constant::Float))
            }
            Operand::Object(object) | Operand::ConstexprFunction(object) | Operand::Callable(object) => {
                Some(Constant::Object(*object))
            }
            // A tuple with a class is an object, whose tensors remain run-time values.
            Operand::Tuple(items) if items.class().is_some() => None,
            Operand::Tuple(items) => {
                let constants = items.iter().map(|item| self.as_constant(item)).collect::<Option<_>>();
                constants.map(|constants| Constant::Tuple(items.with_items(constants)))
            }
            _ => None,
        }
    }
}
