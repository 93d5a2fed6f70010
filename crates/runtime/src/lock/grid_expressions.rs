//! Parses the grid of a kernel as three expressions of its arguments: `cdiv(M, 64), N, 1`.
//!
//! Launchers without Python compute these expressions. The operations have the meaning of those on
//! Python's integers.

use std::fmt;

use tilewright_base::{Code, Diagnostic, SourceFile, SourceMap, Span};
use tilewright_frontend::{Argument, Constant, HostValue, suggest};

use crate::Error;

/// The maximum nesting of an expression.
const MAX_NESTING: usize = 64;

/// The meaning of a name in a grid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GridName {
    /// An integer that the launch passes.
    Argument,
    /// An integer that is known when the kernel is compiled.
    Value(i64),
    /// A parameter that is no integer; the text describes it.
    Other(String),
}

impl GridName {
    /// Adds the name of a parameter and the names of its items, such as `a.shape[0]`.
    pub(crate) fn add(name: &str, argument: &Argument, names: &mut Vec<(String, Self)>) {
        names.push((name.to_owned(), Self::of(argument)));
        if let Argument::Tuple(items) = argument {
            for (index, item) in items.iter().enumerate() {
                Self::add(&format!("{name}{}", items.accessor(index)), item, names);
            }
        }
    }

    fn of(argument: &Argument) -> Self {
        match argument {
            Argument::Scalar { dtype, .. } if dtype.is_int() && !dtype.is_bool() => Self::Argument,
            Argument::Scalar { dtype, .. } => Self::Other(format!("a number of type {dtype}")),
            Argument::Pointer { .. } => Self::Other("a tensor".to_owned()),
            Argument::Tuple(items) if items.descriptor().is_some() => {
                Self::Other("a tensor descriptor".to_owned())
            }
            Argument::Constexpr(HostValue::Constant(value) | HostValue::PlainGlobal(value)) => match value {
                Constant::Int(number) if i64::try_from(*number).is_ok() => Self::Value(*number as i64),
                Constant::Bool(value) => Self::Value((*value).into()),
                other => Self::Other(format!("{other}, a compile-time value")),
            },
            Argument::Constexpr(_) => Self::Other("a compile-time value".to_owned()),
            Argument::Tuple(_) => Self::Other("a tuple".to_owned()),
        }
    }
}

/// An operation on integers, as Python and Triton define it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    FloorDivide,
    Modulo,
    CeilDivide,
    Minimum,
    Maximum,
    NextPowerOf2,
}

use Operator::{Add, CeilDivide, FloorDivide, Maximum, Minimum, Modulo, Multiply, NextPowerOf2, Subtract};

const FUNCTIONS: [(&str, Operator, usize, usize); 4] = [
    ("cdiv", CeilDivide, 2, 2),
    ("max", Maximum, 2, usize::MAX),
    ("min", Minimum, 2, usize::MAX),
    ("next_power_of_2", NextPowerOf2, 1, 1),
];

impl Operator {
    /// Returns the infix text and the precedence; `None` for a function.
    fn infix(self) -> Option<(&'static str, u8)> {
        match self {
            Add => Some((" + ", 1)),
            Subtract => Some((" - ", 1)),
            Multiply => Some(("*", 2)),
            FloorDivide => Some(("//", 2)),
            Modulo => Some(("%", 2)),
            CeilDivide | Minimum | Maximum | NextPowerOf2 => None,
        }
    }

    fn name(self) -> &'static str {
        FUNCTIONS.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }

    fn divides(self) -> bool {
        matches!(self, FloorDivide | Modulo | CeilDivide)
    }

    /// Computes the operation. Returns `None` on overflow, or if the divisor is 0.
    fn compute(self, operands: &[i64]) -> Option<i64> {
        let floor = |a: i64, b: i64| {
            let quotient = a.checked_div(b)?;
            Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
        };
        match (self, operands) {
            (Add, &[a, b]) => a.checked_add(b),
            (Subtract, &[a, b]) => a.checked_sub(b),
            (Multiply, &[a, b]) => a.checked_mul(b),
            (FloorDivide, &[a, b]) => floor(a, b),
            (Modulo, &[a, b]) => a.checked_sub(floor(a, b)?.checked_mul(b)?),
            (CeilDivide, &[a, b]) => floor(a.checked_add(b)?.checked_sub(1)?, b),
            (Minimum, operands) => operands.iter().copied().min(),
            (Maximum, operands) => operands.iter().copied().max(),
            (NextPowerOf2, &[a]) if a <= 0 => Some(0),
            (NextPowerOf2, &[a]) => {
                a.unsigned_abs().checked_next_power_of_two().and_then(|power| i64::try_from(power).ok())
            }
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Expression {
    Integer(i64),
    Argument(String),
    Operation(Operator, Vec<Expression>),
}

impl Expression {
    fn precedence(&self) -> u8 {
        match self {
            Self::Operation(operator, _) => operator.infix().map_or(3, |(_, precedence)| precedence),
            Self::Integer(_) | Self::Argument(_) => 3,
        }
    }

    /// Returns the expression in C, of type `long long`. Operations are calls of functions such as
    /// `tw_add`, which check for overflow.
    fn in_c(&self) -> String {
        match self {
            Self::Integer(i64::MIN) => "(-9223372036854775807LL - 1)".to_owned(),
            Self::Integer(number) if *number < 0 => format!("({number}LL)"),
            Self::Integer(number) => format!("{number}LL"),
            Self::Argument(name) => format!("(long long){}", name.replace(['.', '['], "_").replace(']', "")),
            Self::Operation(operator, operands) => {
                let name = match operator {
                    Add => "add",
                    Subtract => "sub",
                    Multiply => "mul",
                    FloorDivide => "floordiv",
                    Modulo => "mod",
                    other => other.name(),
                };
                // A function of C has a fixed number of operands, so `min(a, b, c)` becomes nested
                // calls.
                let nested = operands.iter().map(Self::in_c);
                if matches!(operator, Minimum | Maximum) {
                    let nested = nested.reduce(|first, next| format!("tw_{name}({first}, {next})"));
                    return nested.unwrap_or_default();
                }
                format!("tw_{name}({})", nested.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operator, operands) = match self {
            Self::Integer(number) => return write!(f, "{number}"),
            Self::Argument(name) => return f.write_str(name),
            Self::Operation(operator, operands) => (operator, operands),
        };
        let Some((infix, precedence)) = operator.infix() else {
            let operands: Vec<_> = operands.iter().map(Self::to_string).collect();
            return write!(f, "{}({})", operator.name(), operands.join(", "));
        };
        for (index, operand) in operands.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { infix })?;
            // Operators of equal precedence are evaluated from left to right.
            if operand.precedence() < precedence + u8::from(index > 0) {
                write!(f, "({operand})")?;
            } else {
                write!(f, "{operand}")?;
            }
        }
        Ok(())
    }
}

/// The number of programs along each axis, as expressions of the integers that a launch passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridExpressions([Expression; 3]);

impl GridExpressions {
    /// Parses three expressions, separated by commas. Compile-time values replace their names.
    ///
    /// # Errors
    /// If the text is no grid, or if a name is no integer parameter of the kernel.
    pub fn parse(text: &str, names: &[(String, GridName)]) -> Result<Self, Error> {
        let mut sources = SourceMap::default();
        let file = sources.add(SourceFile::new("--grid", text));
        let mut parser = Parser { text, names, at: 0, depth: 0 };
        let found = parser.grid().map_err(|failure| {
            let span = Span::new(file, failure.start as u32, failure.end as u32);
            let primary = |diagnostic: Diagnostic| diagnostic.primary(span, failure.label);
            let diagnostic = primary(Diagnostic::new(Code::InvalidGrid, failure.message));
            let diagnostic = Diagnostic { notes: failure.notes, ..diagnostic };
            Error::new(diagnostic.hint(failure.hint), sources)
        })?;
        Ok(Self(found))
    }

    /// Returns the expressions in Python, as in `cdiv(M, 64)`.
    pub fn texts(&self) -> [String; 3] {
        self.0.each_ref().map(Expression::to_string)
    }

    /// Returns the expressions in C, of type `long long`, with calls of functions such as `tw_add`.
    /// The name of `a.shape[0]` is `a_shape_0`.
    pub fn in_c(&self) -> [String; 3] {
        self.0.each_ref().map(Expression::in_c)
    }
}

/// An error at the bytes from `start` to `end` of the text.
struct Failure {
    start: usize,
    end: usize,
    label: String,
    message: String,
    notes: Vec<String>,
    hint: String,
}

struct Parser<'a> {
    text: &'a str,
    names: &'a [(String, GridName)],
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn grid(&mut self) -> Result<[Expression; 3], Failure> {
        let mut found: Vec<Expression> = Vec::new();
        loop {
            self.skip_spaces();
            let start = self.at;
            let expression = self.sum()?;
            if let Expression::Integer(count) = expression
                && i32::try_from(count).map_or(true, |count| count < 0)
            {
                let message = format!("the grid has {count} programs along axis {}", found.len());
                return Err(self.failure(start, "", message));
            }
            found.push(expression);
            match self.peek() {
                "," => self.at += 1,
                "" => break,
                other => {
                    let message = format!("the grid has '{other}' after an expression");
                    let failure = self.failure(self.at, "expected an operator or a comma", message);
                    return Err(Failure { end: self.at + other.len(), ..failure });
                }
            }
        }
        let count = found.len();
        <[Expression; 3]>::try_from(found).map_err(|_| {
            let noun = if count == 1 { "expression" } else { "expressions" };
            self.failure(0, "", format!("the grid has {count} {noun}, expected 3"))
        })
    }

    fn sum(&mut self) -> Result<Expression, Failure> {
        self.operations(&[("+", Add), ("-", Subtract)], |this| {
            let products = &[("*", Multiply), ("//", FloorDivide), ("%", Modulo)];
            this.operations(products, Self::operand)
        })
    }

    fn operations(
        &mut self,
        operators: &[(&str, Operator)],
        operand: impl Fn(&mut Self) -> Result<Expression, Failure>,
    ) -> Result<Expression, Failure> {
        self.skip_spaces();
        let start = self.at;
        let mut left = operand(self)?;
        loop {
            let token = self.peek();
            let Some((_, operator)) = operators.iter().find(|(text, _)| *text == token) else {
                return Ok(left);
            };
            self.at += token.len();
            let right = operand(self)?;
            left = self.operation(start, *operator, vec![left, right])?;
        }
    }

    fn operand(&mut self) -> Result<Expression, Failure> {
        let token = self.peek();
        let start = self.at;
        let expected = "expected an integer, a name, a function or a parenthesis";
        if self.depth == MAX_NESTING {
            let message = format!("the grid is nested more than {MAX_NESTING} deep");
            return Err(self.failure(start, "", message));
        }
        self.at += token.len();
        let first = token.chars().next().unwrap_or(' ');
        if first.is_ascii_digit() {
            let number = token.replace('_', "").parse().ok();
            let message = format!("the grid has the number '{token}', expected an integer of 64 bits");
            return number.map(Expression::Integer).ok_or_else(|| self.failure(start, "", message));
        }
        self.depth += 1;
        let found = match token {
            "(" => {
                let inner = self.sum()?;
                self.close(start)?;
                inner
            }
            "-" => {
                let operand = self.operand()?;
                self.operation(start, Multiply, vec![Expression::Integer(-1), operand])?
            }
            name if is_name(first) && self.peek() == "(" => self.call(name, start)?,
            name if is_name(first) => self.name(name, start)?,
            _ => {
                let shown = if token.is_empty() { "ends".to_owned() } else { format!("has '{token}'") };
                let message = format!("the grid {shown} where an operand is missing");
                return Err(self.failure(start, expected, message));
            }
        };
        self.depth -= 1;
        Ok(found)
    }

    fn call(&mut self, name: &str, start: usize) -> Result<Expression, Failure> {
        let Some((_, operator, minimum, maximum)) = FUNCTIONS.iter().find(|row| row.0 == name) else {
            let known = FUNCTIONS.map(|row| row.0);
            let failure = self.failure(start, "", format!("the grid has the function '{name}'"));
            let notes = vec![format!("the functions are {}", known.join(", "))];
            let hint = suggest(name, known).map(|similar| format!("did you mean '{similar}'?"));
            return Err(Failure { notes, hint: hint.unwrap_or(failure.hint), ..failure });
        };
        let open = self.at;
        self.at += 1;
        let mut operands = vec![self.sum()?];
        while self.peek() == "," {
            self.at += 1;
            operands.push(self.sum()?);
        }
        self.close(open)?;
        if !(*minimum..=*maximum).contains(&operands.len()) {
            let count = operands.len();
            let more = if maximum > minimum { " or more" } else { "" };
            let message = format!("'{name}' has {count} operands, expected {minimum}{more}");
            return Err(self.failure(start, "", message));
        }
        self.operation(start, *operator, operands)
    }

    fn name(&self, name: &str, start: usize) -> Result<Expression, Failure> {
        let names = || self.names.iter().map(|(name, _)| name.as_str());
        match self.names.iter().find(|(known, _)| *known == name).map(|(_, meaning)| meaning) {
            Some(GridName::Argument) => Ok(Expression::Argument(name.to_owned())),
            Some(GridName::Value(number)) => Ok(Expression::Integer(*number)),
            Some(GridName::Other(what)) => {
                let message = format!("the grid has the parameter '{name}', which is no integer");
                Err(self.failure(start, &format!("this is {what}"), message))
            }
            None => {
                let message = format!("the grid has the name '{name}', which is no parameter");
                let failure = self.failure(start, "", message);
                let notes = vec![format!("the parameters are {}", names().collect::<Vec<_>>().join(", "))];
                let hint = suggest(name, names()).map(|similar| format!("did you mean '{similar}'?"));
                Err(Failure { notes, hint: hint.unwrap_or(failure.hint), ..failure })
            }
        }
    }

    /// Returns an operation, or its value if all operands are known.
    fn operation(
        &self,
        start: usize,
        operator: Operator,
        operands: Vec<Expression>,
    ) -> Result<Expression, Failure> {
        if operator.divides() && operands[1] == Expression::Integer(0) {
            return Err(self.failure(start, "", "the grid divides by 0".to_owned()));
        }
        let known = operands.iter().map(|operand| match operand {
            Expression::Integer(number) => Some(*number),
            Expression::Argument(_) | Expression::Operation(..) => None,
        });
        let Some(known) = known.collect::<Option<Vec<_>>>() else {
            return Ok(Expression::Operation(operator, operands));
        };
        let value = operator.compute(&known).map(Expression::Integer);
        value.ok_or_else(|| self.failure(start, "", "the grid exceeds integers of 64 bits".to_owned()))
    }

    fn close(&mut self, open: usize) -> Result<(), Failure> {
        if self.peek() != ")" {
            let failure = self.failure(open, "", "the grid has '(' without ')'".to_owned());
            return Err(Failure { end: open + 1, ..failure });
        }
        self.at += 1;
        Ok(())
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Skips spaces, and returns the next token, or an empty text at the end.
    fn peek(&mut self) -> &'a str {
        self.skip_spaces();
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else { return "" };
        let is_word = |c: char| is_name(c) || c.is_ascii_digit();
        let word = |text: &str| text.find(|c| !is_word(c)).unwrap_or(text.len());
        let length = if is_name(first) {
            let mut length = word(rest);
            while let Some(more) = accessor(&rest[length..], word) {
                length += more;
            }
            length
        } else if is_word(first) {
            word(rest)
        } else if rest.starts_with("//") {
            2
        } else {
            first.len_utf8()
        };
        &rest[..length]
    }

    /// Returns a failure at the text from `start` to the current position.
    fn failure(&self, start: usize, label: &str, message: String) -> Failure {
        let integer = self.names.iter().find(|(_, meaning)| *meaning == GridName::Argument);
        let example = integer.map_or("1024".to_owned(), |(name, _)| format!("cdiv({name}, 64)"));
        Failure {
            start,
            end: self.at.max(start),
            label: label.to_owned(),
            message,
            notes: Vec::new(),
            hint: format!("write the programs along three axes: --grid '{example}, 1, 1'"),
        }
    }
}

/// Returns the length of the `.name` or `[0]` at the start of a text.
fn accessor(text: &str, word: impl Fn(&str) -> usize) -> Option<usize> {
    let inner = text.get(1..)?;
    let length = word(inner);
    match text.as_bytes()[0] {
        b'.' if inner.starts_with(is_name) => Some(1 + length),
        b'[' if length > 0 && inner[length..].starts_with(']') => Some(length + 2),
        _ => None,
    }
}

fn is_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}
