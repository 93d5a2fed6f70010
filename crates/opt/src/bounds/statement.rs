//! Parses a user's statement of sizes: expressions of tensor and grid extents, and conditions.

use super::forms::Forms;
use super::logic::Formula;
use super::variables::Poly;

/// An expression over names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expression {
    /// An integer.
    Number(i128),
    /// The name of a parameter.
    Name(String),
    /// `+`, `-`, `*`, `//`, `%`, or a function of two numbers: `cdiv`, `min`, `max`.
    Binary(Operator, Box<Expression>, Box<Expression>),
}

/// An operator of two expressions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// The sum.
    Add,
    /// The difference.
    Sub,
    /// The product.
    Mul,
    /// The quotient, rounded down.
    Div,
    /// The remainder of that division.
    Rem,
    /// The quotient, rounded up.
    Cdiv,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
}

/// A comparison operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// `==`
    Equal,
    /// `!=`
    Different,
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

/// A conjunction of comparisons, such as `0 < n <= 10 and n % 2 == 0`.
pub type Condition = Vec<(Relation, Expression, Expression)>;

/// A statement of sizes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Statement {
    /// The number of elements of each tensor, with the name of its parameter.
    pub extents: Vec<(String, Expression)>,
    /// The extents of the grid; empty if they are not stated.
    pub grid: Vec<Expression>,
    /// The conditions on the arguments.
    pub conditions: Vec<Condition>,
    /// The names and values of the parameters that are known at compile time.
    pub constants: Vec<(String, i128)>,
}

impl Expression {
    /// Parses an expression; fails with a message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader::new(text)?;
        let found = reader.sum()?;
        reader.end()?;
        Ok(found)
    }

    /// Parses comparisons joined by `and`; fails with a message.
    pub fn parse_condition(text: &str) -> Result<Condition, String> {
        let mut reader = Reader::new(text)?;
        let mut condition = Condition::new();
        loop {
            let mut left = reader.sum()?;
            let mut count = 0;
            while let Some(relation) = reader.relation() {
                let right = reader.sum()?;
                condition.push((relation, left, right.clone()));
                left = right;
                count += 1;
            }
            if count == 0 {
                return Err(format!(
                    "'{text}' compares nothing: write a comparison, such as n >= 1 or stride == N"
                ));
            }
            if !reader.takes("and") {
                break;
            }
        }
        reader.end()?;
        Ok(condition)
    }

    /// Adds an expression.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Expression::Binary(Operator::Add, Box::new(self), Box::new(other))
    }

    /// Adds a number.
    #[must_use]
    pub fn plus_number(self, number: i128) -> Self {
        self.plus(Expression::Number(number))
    }

    /// Multiplies by an expression.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        Expression::Binary(Operator::Mul, Box::new(self), Box::new(other))
    }

    /// Evaluates the expression; `None` if a name has no value, a divisor is not positive, or the
    /// result overflows.
    pub fn value(&self, of: &impl Fn(&str) -> Option<i128>) -> Option<i128> {
        let (operator, x, y) = match self {
            Expression::Number(number) => return Some(*number),
            Expression::Name(name) => return of(name),
            Expression::Binary(operator, x, y) => (operator, x.value(of)?, y.value(of)?),
        };
        match operator {
            Operator::Add => x.checked_add(y),
            Operator::Sub => x.checked_sub(y),
            Operator::Mul => x.checked_mul(y),
            Operator::Min => Some(x.min(y)),
            Operator::Max => Some(x.max(y)),
            Operator::Div | Operator::Rem | Operator::Cdiv if y <= 0 => None,
            Operator::Div => Some(x.div_euclid(y)),
            Operator::Rem => Some(x.rem_euclid(y)),
            Operator::Cdiv => Some(x.checked_add(y - 1)?.div_euclid(y)),
        }
    }

    /// Converts the expression to a polynomial. Fails with a message for an unknown name, for a
    /// divisor that is not a positive constant, and on overflow.
    pub fn poly(&self, forms: &mut Forms<'_>, constants: &[(String, i128)]) -> Result<Poly, String> {
        let too_large = || "a number is too large".to_owned();
        match self {
            Expression::Number(number) => Ok(Poly::constant(*number)),
            Expression::Name(name) => {
                if let Some((_, number)) = constants.iter().find(|(own, _)| own == name) {
                    return Ok(Poly::constant(*number));
                }
                forms.named(name)
            }
            Expression::Binary(operator, x, y) => {
                let (x, y) = (x.poly(forms, constants)?, y.poly(forms, constants)?);
                let found = match operator {
                    Operator::Add => x.plus_times(&y, 1),
                    Operator::Sub => x.plus_times(&y, -1),
                    Operator::Mul => x.times(&y),
                    Operator::Min => Some(forms.extreme(&x, &y, 1)),
                    Operator::Max => Some(forms.extreme(&x, &y, -1)),
                    Operator::Div | Operator::Rem | Operator::Cdiv => {
                        let divisor = y.as_constant().filter(|&divisor| divisor > 0);
                        let divisor = divisor.ok_or("the divisor has to be a positive constant")?;
                        if *operator == Operator::Cdiv {
                            x.offset(divisor - 1).map(|x| forms.floored(&x, divisor).0)
                        } else {
                            let (quotient, rest) = forms.floored(&x, divisor);
                            Some(if *operator == Operator::Div { quotient } else { rest })
                        }
                    }
                };
                found.ok_or_else(too_large)
            }
        }
    }
}

/// Returns a formula that is true if all comparisons of the condition are true.
pub fn claim(
    condition: &Condition,
    forms: &mut Forms<'_>,
    constants: &[(String, i128)],
) -> Result<Formula, String> {
    let mut all = Vec::new();
    for (relation, x, y) in condition {
        let (x, y) = (x.poly(forms, constants)?, y.poly(forms, constants)?);
        all.push(match relation {
            Relation::Equal => Formula::equal(&x, &y),
            Relation::Different => Formula::equal(&x, &y).negated(),
            Relation::Below => Formula::below(&x, &y),
            Relation::AtMost => Formula::at_most(&x, &y),
            Relation::Above => Formula::below(&y, &x),
            Relation::AtLeast => Formula::at_most(&y, &x),
        });
    }
    Ok(Formula::All(all))
}

/// A parser of expressions.
struct Reader<'a> {
    text: &'a str,
    words: Vec<&'a str>,
    place: usize,
    depth: u32,
}

/// The maximum nesting of parentheses, calls and signs.
const MAX_EXPRESSION_DEPTH: u32 = 64;

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Result<Self, String> {
        let mut words = Vec::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            // A name may be a field, such as `d.shape[0]`.
            let is_word = |c: char| c.is_alphanumeric() || "_.[]".contains(c);
            let length = if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else if ["//", "<=", ">=", "==", "!="].iter().any(|two| rest.starts_with(two)) {
                2
            } else if "+-*%<>(),".contains(first) {
                1
            } else {
                return Err(format!(
                    "'{first}' in '{text}' is not part of an expression: use names, integers, + - * // % and comparisons"
                ));
            };
            words.push(&rest[..length]);
            rest = rest[length..].trim_start();
        }
        Ok(Self { text, words, place: 0, depth: 0 })
    }

    fn next(&self) -> Option<&'a str> {
        self.words.get(self.place).copied()
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.next() == Some(word);
        self.place += usize::from(found);
        found
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        if self.takes(word) { Ok(()) } else { Err(self.unexpected(&format!("'{word}'"))) }
    }

    fn end(&self) -> Result<(), String> {
        if self.next().is_none() { Ok(()) } else { Err(self.unexpected("the end")) }
    }

    fn unexpected(&self, expected: &str) -> String {
        let found = self.next().map_or_else(|| "the end".to_owned(), |word| format!("'{word}'"));
        format!("cannot parse '{}': found {found}, expected {expected}", self.text)
    }

    fn relation(&mut self) -> Option<Relation> {
        let relation = match self.next()? {
            "==" => Relation::Equal,
            "!=" => Relation::Different,
            "<" => Relation::Below,
            "<=" => Relation::AtMost,
            ">" => Relation::Above,
            ">=" => Relation::AtLeast,
            _ => return None,
        };
        self.place += 1;
        Some(relation)
    }

    fn sum(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        loop {
            let operator = match self.next() {
                Some("+") => Operator::Add,
                Some("-") => Operator::Sub,
                _ => return Ok(left),
            };
            self.place += 1;
            left = Expression::Binary(operator, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.atom()?;
        loop {
            let operator = match self.next() {
                Some("*") => Operator::Mul,
                Some("//") => Operator::Div,
                Some("%") => Operator::Rem,
                _ => return Ok(left),
            };
            self.place += 1;
            left = Expression::Binary(operator, Box::new(left), Box::new(self.atom()?));
        }
    }

    fn atom(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > MAX_EXPRESSION_DEPTH {
            return Err(format!("'{}' is nested too deeply", self.text));
        }
        let found = self.shallow_atom();
        self.depth -= 1;
        found
    }

    fn shallow_atom(&mut self) -> Result<Expression, String> {
        if self.takes("(") {
            let inner = self.sum()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.takes("-") {
            let zero = Box::new(Expression::Number(0));
            return Ok(Expression::Binary(Operator::Sub, zero, Box::new(self.atom()?)));
        }
        let expected = "a number or the name of a parameter";
        let word = self.next().ok_or_else(|| self.unexpected(expected))?;
        if !word.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            return Err(self.unexpected(expected));
        }
        self.place += 1;
        if let Ok(number) = word.parse::<i64>() {
            return Ok(Expression::Number(number.into()));
        }
        if self.takes("(") {
            let operator = match word.rsplit('.').next() {
                Some("cdiv") => Operator::Cdiv,
                Some("min") => Operator::Min,
                Some("max") => Operator::Max,
                _ => return Err(format!("unknown function '{word}': use cdiv, min or max")),
            };
            let x = self.sum()?;
            self.expect(",")?;
            let y = self.sum()?;
            self.expect(")")?;
            return Ok(Expression::Binary(operator, Box::new(x), Box::new(y)));
        }
        Ok(Expression::Name(word.to_owned()))
    }
}
