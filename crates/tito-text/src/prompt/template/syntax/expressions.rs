//! Expressions, in jinja2's precedence. Functions call each other once for each bracket, never for each operator.

use super::super::error::source_excerpt;
use super::super::filters;
use super::super::literal;
use super::super::operators::Operator;
use super::super::tokens::{Token, TokenKind};
use super::super::value::Value;
use super::parser::{Parser, TokenResult};
use super::{Arguments, Arm, Comparison, Expression, Filtering, Step};

/// Operators of arithmetic by precedence; `~` stands between the first two.
const SUMS: [(&str, Operator); 2] = [("+", Operator::Add), ("-", Operator::Subtract)];
const PRODUCTS: [(&str, Operator); 4] =
    [("*", Operator::Multiply), ("/", Operator::Divide), ("//", Operator::FloorDivide), ("%", Operator::Modulo)];
const POWERS: [(&str, Operator); 1] = [("**", Operator::Power)];

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<", Comparison::Less),
    ("<=", Comparison::AtMost),
    (">", Comparison::Greater),
    (">=", Comparison::AtLeast),
];

type Parsed = TokenResult<Expression>;

impl<'s> Parser<'_, 's> {
    pub(super) fn expression(&mut self) -> Parsed {
        self.nested(Self::conditional)
    }

    fn conditional(&mut self) -> Parsed {
        let mut arms = Vec::new();
        loop {
            let value = self.or()?;
            let mut tests = Vec::new();
            let mut has_else = false;
            while !has_else && self.skip_name("if") {
                tests.push(self.or()?);
                has_else = self.skip_name("else");
            }
            if arms.is_empty() && tests.is_empty() {
                return Ok(value);
            }
            arms.push(Arm { value, tests });
            if !has_else {
                return Ok(Expression::Conditional(arms));
            }
        }
    }

    /// An expression without `if`.
    pub(super) fn or(&mut self) -> Parsed {
        let mut operands = vec![self.and()?];
        while self.skip_name("or") {
            operands.push(self.and()?);
        }
        Ok(only(&mut operands).unwrap_or(Expression::Or(operands)))
    }

    fn and(&mut self) -> Parsed {
        let mut operands = vec![self.not()?];
        while self.skip_name("and") {
            operands.push(self.not()?);
        }
        Ok(only(&mut operands).unwrap_or(Expression::And(operands)))
    }

    fn not(&mut self) -> Parsed {
        let mut count = 0;
        while self.skip_name("not") {
            count += 1;
        }
        let compared = self.comparison()?;
        Ok(if count == 0 { compared } else { Expression::Not(count, Box::new(compared)) })
    }

    fn comparison(&mut self) -> Parsed {
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(comparison) = self.comparison_operator() {
            rest.push((comparison, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expression::Comparison(Box::new(first), rest) })
    }

    fn comparison_operator(&mut self) -> Option<Comparison> {
        if self.skip_name("in") {
            return Some(Comparison::In);
        }
        if self.is_name("not") && self.peek_at(1).is_some_and(|token| token.is_name("in")) {
            self.skip(2);
            return Some(Comparison::NotIn);
        }
        self.skip_any(&COMPARISONS)
    }

    fn sum(&mut self) -> Parsed {
        self.arithmetic(&SUMS, Self::concatenation)
    }

    fn concatenation(&mut self) -> Parsed {
        let mut operands = vec![self.product()?];
        while self.skip_operator("~") {
            operands.push(self.product()?);
        }
        Ok(only(&mut operands).unwrap_or(Expression::Concatenation(operands)))
    }

    fn product(&mut self) -> Parsed {
        self.arithmetic(&PRODUCTS, Self::power)
    }

    fn power(&mut self) -> Parsed {
        self.arithmetic(&POWERS, Self::unary)
    }

    fn arithmetic(&mut self, operators: &[(&str, Operator)], operand: fn(&mut Self) -> Parsed) -> Parsed {
        let first = operand(self)?;
        let mut rest = Vec::new();
        while let Some(operator) = self.skip_any(operators) {
            rest.push((operator, operand(self)?));
        }
        Ok(if rest.is_empty() { first } else { Expression::Arithmetic(Box::new(first), rest) })
    }

    // Signs bind closer than filters and tests, and less close than attributes, items and calls.
    fn unary(&mut self) -> Parsed {
        let mut signs = Vec::new();
        while let Some(is_minus) = self.skip_any(&[("-", true), ("+", false)]) {
            signs.push(is_minus);
        }
        let mut value = self.primary()?;
        value = self.postfix(value)?;
        if !signs.is_empty() {
            value = Expression::Signed(signs, Box::new(value));
        }
        let mut steps = Vec::new();
        loop {
            if self.skip_operator("|") {
                steps.push(Step::Filter(self.filtering()?));
            } else if self.skip_name("is") {
                steps.push(self.test()?);
            } else if self.is_operator("(") {
                steps.push(Step::Call(self.arguments()?));
            } else {
                return Ok(with_steps(value, steps));
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let Some(token) = self.peek() else { return Err(self.unexpected("an expression")) };
        match token.kind {
            TokenKind::Name => {
                self.skip(1);
                Ok(match token.text {
                    "true" | "True" => Expression::Constant(Value::Bool(true)),
                    "false" | "False" => Expression::Constant(Value::Bool(false)),
                    "none" | "None" => Expression::Constant(Value::None),
                    "self" => {
                        return Err(self.error_at(&token, "'self' is not known here: there are no other templates"));
                    }
                    name => {
                        self.note_use(name);
                        Expression::Name(name.into())
                    }
                })
            }
            TokenKind::Number => {
                self.skip(1);
                number(token.text)
                    .map(Expression::Constant)
                    .ok_or_else(|| self.error_at(&token, format!("invalid number '{}'", source_excerpt(token.text))))
            }
            TokenKind::String => self.string(),
            TokenKind::Operator => self.bracket(&token),
        }
    }

    // Strings that stand next to each other are one.
    fn string(&mut self) -> Parsed {
        let mut text = String::new();
        while let Some(token) = self.peek().filter(|token| token.kind == TokenKind::String) {
            let part = literal::text(&token).ok_or_else(|| self.error_at(&token, "invalid escape in a string"))?;
            text.push_str(&part);
            self.skip(1);
        }
        Ok(Expression::Constant(Value::from(text)))
    }

    fn bracket(&mut self, open: &Token<'s>) -> Parsed {
        match open.text {
            "(" => {
                self.skip(1);
                let value = self.nested(|parser| parser.tuple_until(&[")"], Self::expression, true))?;
                self.expect_operator(")")?;
                Ok(value)
            }
            "[" => {
                self.skip(1);
                let items = self.separated("]", Self::expression)?;
                Ok(Expression::List(items))
            }
            "{" => {
                self.skip(1);
                let entries = self.separated("}", |parser| {
                    let key = parser.expression()?;
                    parser.expect_operator(":")?;
                    Ok((key, parser.expression()?))
                })?;
                Ok(Expression::Dict(entries))
            }
            _ => Err(self.unexpected("an expression")),
        }
    }

    // What stands between commas up to a bracket, which is skipped. The last one may have a comma after it.
    fn separated<T>(&mut self, close: &str, part: impl Fn(&mut Self) -> TokenResult<T>) -> TokenResult<Vec<T>> {
        let mut parts = Vec::new();
        while !self.is_operator(close) {
            if !parts.is_empty() {
                self.expect_operator(",")?;
                if self.is_operator(close) {
                    break;
                }
            }
            parts.push(part(self)?);
        }
        self.skip(1);
        Ok(parts)
    }

    /// An expression, or a tuple of several that needs no brackets, up to the end of the tag, an operator or a name.
    pub(super) fn tuple_until(&mut self, ends: &[&str], part: fn(&mut Self) -> Parsed, may_be_empty: bool) -> Parsed {
        let mut parts = Vec::new();
        let mut is_tuple = false;
        loop {
            if !parts.is_empty() {
                self.expect_operator(",")?;
            }
            if self.peek().is_none_or(|token| ends.contains(&token.text) && token.kind != TokenKind::String) {
                break;
            }
            parts.push(part(self)?);
            if !self.is_operator(",") {
                break;
            }
            is_tuple = true;
        }
        match only(&mut parts) {
            Some(value) if !is_tuple => Ok(value),
            Some(value) => Ok(Expression::Tuple(vec![value])),
            None if parts.is_empty() && !may_be_empty => Err(self.unexpected("an expression")),
            None => Ok(Expression::Tuple(parts)),
        }
    }

    fn postfix(&mut self, value: Expression) -> Parsed {
        let mut steps = Vec::new();
        loop {
            if self.skip_operator(".") {
                let Some(token) = self.peek() else { return Err(self.unexpected("a name or a number")) };
                self.skip(1);
                steps.push(match token.kind {
                    TokenKind::Name => Step::Attribute(token.text.into()),
                    TokenKind::Number => match number(token.text) {
                        Some(index @ Value::Int(_)) => Step::Item(Expression::Constant(index)),
                        _ => return Err(self.error_at(&token, format!("invalid index '{}'", source_excerpt(token.text)))),
                    },
                    _ => return Err(self.error_at(&token, format!("unexpected '{}'", token.text))),
                });
            } else if self.skip_operator("[") {
                steps.push(self.subscript()?);
            } else if self.is_operator("(") {
                steps.push(Step::Call(self.arguments()?));
            } else {
                return Ok(with_steps(value, steps));
            }
        }
    }

    fn subscript(&mut self) -> TokenResult<Step> {
        let mut bounds = [None, None, None];
        let mut place = 0;
        let mut colons = 0;
        let mut parts = Vec::new();
        while !self.is_operator("]") {
            if self.skip_operator(":") {
                colons += 1;
                place += 1;
                if place > 2 {
                    return Err(self.unexpected("']'"));
                }
            } else if colons == 0 && !parts.is_empty() {
                self.expect_operator(",")?;
                if !self.is_operator("]") {
                    parts.push(self.expression()?);
                }
            } else if colons > 0 && bounds[place].is_some() {
                return Err(self.unexpected("']'"));
            } else {
                let value = self.expression()?;
                if colons == 0 && !self.is_operator(":") {
                    parts.push(value);
                } else {
                    bounds[place] = Some(value);
                }
            }
        }
        self.skip(1);
        if colons > 0 && parts.is_empty() {
            return Ok(Step::Slice(Box::new(bounds)));
        }
        match only(&mut parts) {
            Some(value) if colons == 0 => Ok(Step::Item(value)),
            None if colons == 0 && !parts.is_empty() => Ok(Step::Item(Expression::Tuple(parts))),
            _ => Err(self.unexpected("a subscript")),
        }
    }

    /// The name of a filter, which stands here, and its arguments.
    pub(super) fn filtering(&mut self) -> TokenResult<Filtering> {
        let name = self.dotted_name()?;
        let arguments = if self.is_operator("(") { self.arguments()? } else { Arguments::default() };
        Ok(Filtering { filter: filters::find(&name), name, arguments })
    }

    fn dotted_name(&mut self) -> TokenResult<Box<str>> {
        let mut name = self.expect_name()?.to_owned();
        while self.skip_operator(".") {
            name.push('.');
            name.push_str(self.expect_name()?);
        }
        Ok(name.into())
    }

    fn test(&mut self) -> TokenResult<Step> {
        let is_negated = self.skip_name("not");
        let name = self.dotted_name()?;
        let takes_value = self.peek().is_some_and(|token| match token.kind {
            TokenKind::Name => !matches!(token.text, "else" | "or" | "and"),
            TokenKind::String | TokenKind::Number => true,
            TokenKind::Operator => matches!(token.text, "[" | "{"),
        });
        let arguments = if self.is_operator("(") {
            self.arguments()?
        } else if takes_value {
            if self.is_name("is") {
                return Err(self.error("tests cannot be chained with 'is'"));
            }
            let value = self.primary()?;
            Arguments { positional: vec![self.postfix(value)?], ..Arguments::default() }
        } else {
            Arguments::default()
        };
        Ok(Step::Test(name.clone(), filters::predicate(&name), arguments, is_negated))
    }

    pub(super) fn arguments(&mut self) -> TokenResult<Arguments> {
        self.expect_operator("(")?;
        let mut arguments = Arguments::default();
        let mut is_first = true;
        while !self.is_operator(")") {
            if !is_first {
                self.expect_operator(",")?;
                if self.is_operator(")") {
                    break;
                }
            }
            is_first = false;
            self.argument(&mut arguments)?;
        }
        self.skip(1);
        Ok(arguments)
    }

    fn argument(&mut self, arguments: &mut Arguments) -> TokenResult<()> {
        let Arguments { positional, named, items, entries } = arguments;
        let is_named = self.peek().is_some_and(|token| token.kind == TokenKind::Name)
            && self.peek_at(1).is_some_and(|token| token.is_operator("="));
        let is_in_order = if self.skip_operator("*") {
            let is_in_order = items.is_none() && entries.is_none();
            *items = Some(Box::new(self.expression()?));
            is_in_order
        } else if self.skip_operator("**") {
            let is_in_order = entries.is_none();
            *entries = Some(Box::new(self.expression()?));
            is_in_order
        } else if is_named {
            let name = self.expect_name()?;
            self.skip(1);
            named.push((name.into(), self.expression()?));
            entries.is_none()
        } else {
            positional.push(self.expression()?);
            items.is_none() && entries.is_none() && named.is_empty()
        };
        if is_in_order { Ok(()) } else { Err(self.error("invalid order of arguments")) }
    }
}

fn with_steps(value: Expression, steps: Vec<Step>) -> Expression {
    if steps.is_empty() { value } else { Expression::Postfix(Box::new(value), steps) }
}

fn only<T>(parts: &mut Vec<T>) -> Option<T> {
    if parts.len() == 1 { parts.pop() } else { None }
}

// A number as Python spells them; none where it is not one, or does not fit.
fn number(text: &str) -> Option<Value> {
    let is_misplaced = text.ends_with('_') || text.contains("__") || text.contains("_.") || text.contains("._");
    if is_misplaced {
        return None;
    }
    let digits = text.replace('_', "");
    let radix = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => 16,
        [b'0', b'o' | b'O', ..] => 8,
        [b'0', b'b' | b'B', ..] => 2,
        _ => 10,
    };
    if radix != 10 {
        return i128::from_str_radix(&digits[2..], radix).ok().map(Value::Int);
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let is_padded = digits.starts_with('0') && digits.bytes().any(|byte| byte != b'0');
        return if is_padded { None } else { digits.parse().ok().map(Value::Int) };
    }
    let is_float = digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    if is_float { digits.parse().ok().map(Value::Float) } else { None }
}
