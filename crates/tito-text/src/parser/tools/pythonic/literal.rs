//! Python's literals as JSON values, as vLLM's `get_parameter_value` takes them: numbers with signs, strings, lists,
//! tuples, sets, dicts with constant keys, and JSON's `null`, `true` and `false` beside Python's. A number that JSON writes
//! alike keeps its text.

use std::cmp::Ordering;

use super::{
    source::Source,
    string::{is_string, strings},
};
use crate::json::{Integer, Object, Value, float_repr};

/// How many digits Python reads.
const MAX_DIGITS: usize = 4300;

/// The value that comes next; `None` where Python or vLLM refuses it.
pub(super) fn value(source: &mut Source<'_>) -> Option<Value> {
    match source.peek()? {
        '[' => {
            source.take('[');
            Some(Value::Array(values(source, ']')?.0))
        }
        '(' => tuple(source),
        '{' => set_or_dict(source),
        '+' | '-' => signed(source),
        c if c.is_ascii_digit() || c == '.' => number(source),
        _ => word_or_string(source),
    }
}

/// The values up to the closing bracket, and whether the last one had a comma.
fn values(source: &mut Source<'_>, close: char) -> Option<(Vec<Value>, bool)> {
    let mut values = Vec::new();
    let comma = source.items(close, |source| {
        values.push(value(source)?);
        Some(())
    })?;
    Some((values, comma))
}

/// A tuple, or a value in parentheses.
fn tuple(source: &mut Source<'_>) -> Option<Value> {
    source.take('(');
    let (mut values, comma) = values(source, ')')?;
    if values.len() == 1 && !comma { values.pop() } else { Some(Value::Array(values)) }
}

/// A set, which becomes an array, or a dict.
fn set_or_dict(source: &mut Source<'_>) -> Option<Value> {
    source.take('{');
    let mut dict = Dict::default();
    let mut items = Vec::new();
    let comma = source.items('}', |source| {
        let constant = !matches!(source.peek()?, '[' | '(' | '{' | '+' | '-');
        let first = value(source)?;
        if !source.take(':') {
            items.push(first);
            return Some(());
        }
        constant.then_some(())?;
        let second = value(source)?;
        dict.insert(first, second)
    })?;
    match (items.is_empty(), dict.0.is_empty()) {
        // Python has no comma on its own.
        (true, true) => (!comma).then(|| Value::from(Object::default())),
        (true, false) => dict.object(),
        (false, true) => Some(Value::Array(items)),
        (false, false) => None,
    }
}

/// The pairs of a dict. Python takes numbers and booleans of one worth for one key.
#[derive(Default)]
struct Dict(Vec<(Value, Value)>);

impl Dict {
    /// Adds a pair; `None` where the key is there already, so that one of two values would be lost.
    fn insert(&mut self, key: Value, value: Value) -> Option<()> {
        if self.0.iter().any(|(known, _)| same_key(known, &key)) {
            return None;
        }
        self.0.push((key, value));
        Some(())
    }

    /// The dict with its keys spelt as in JSON; `None` where two would be spelt alike.
    fn object(self) -> Option<Value> {
        let mut object = Object::default();
        for (key, value) in self.0 {
            let taken = object.insert(spelled(key)?, value);
            if taken.is_some() {
                return None;
            }
        }
        Some(Value::from(object))
    }
}

fn same_key(one: &Value, other: &Value) -> bool {
    if let (Value::Int(one), Value::Int(other)) = (one, other) {
        return one == other;
    }
    match (worth(one), worth(other)) {
        (Some(one), Some(other)) => one.partial_cmp(&other).is_some_and(Ordering::is_eq),
        _ => one == other,
    }
}

/// What a key is worth as a number.
fn worth(key: &Value) -> Option<f64> {
    match key {
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::Int(number) => number.to_string().parse().ok(),
        Value::Float(number) => Some(*number),
        Value::Literal(text) => text.parse().ok(),
        _ => None,
    }
}

/// A key as `json.dumps` writes it.
fn spelled(key: Value) -> Option<String> {
    match key {
        Value::String(text) => Some(text),
        Value::Float(number) if number.is_finite() => Some(float_repr(number)),
        Value::Literal(text) => spelled(Value::Float(text.parse().ok()?)),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => Some(key.to_json_string()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

fn signed(source: &mut Source<'_>) -> Option<Value> {
    let mut negative = false;
    loop {
        match source.peek()? {
            '+' => source.take('+'),
            '-' => {
                negative = !negative;
                source.take('-')
            }
            _ => break,
        };
    }
    match value(source)? {
        Value::Int(number) if negative => negated(&number).map(Value::Int),
        Value::Float(number) if negative => Some(Value::Float(-number)),
        Value::Literal(text) if negative => {
            let opposite = text.strip_prefix('-').map_or_else(|| format!("-{text}"), str::to_owned);
            Some(Value::Literal(opposite.into()))
        }
        number @ (Value::Int(_) | Value::Float(_) | Value::Literal(_)) => Some(number),
        _ => None,
    }
}

fn negated(number: &Integer) -> Option<Integer> {
    let digits = number.to_string();
    match digits.strip_prefix('-') {
        Some(digits) => Integer::from_decimal(digits),
        None if digits == "0" => Some(number.clone()),
        None => Integer::from_decimal(&format!("-{digits}")),
    }
}

fn number(source: &mut Source<'_>) -> Option<Value> {
    let rest = source.rest();
    let mut end = 0;
    // A sign belongs to the number after an exponent only; hexadecimal digits include `e`.
    let based = rest.len() > 1 && rest.starts_with('0') && rest[1..].starts_with(['x', 'X', 'o', 'O', 'b', 'B']);
    for (at, c) in rest.char_indices() {
        let exponent = !based && matches!(rest[..at].chars().next_back(), Some('e' | 'E'));
        if !(c.is_alphanumeric() || matches!(c, '.' | '_') || (exponent && matches!(c, '+' | '-'))) {
            break;
        }
        end = at + c.len_utf8();
    }
    let value = if based { based_integer(&rest[..end]) } else { decimal(&rest[..end]) };
    source.advance(end);
    value
}

fn based_integer(text: &str) -> Option<Value> {
    let radix = match text.as_bytes()[1].to_ascii_lowercase() {
        b'x' => 16,
        b'o' => 8,
        _ => 2,
    };
    let digits = &text[2..];
    let digits = without_underscores(digits.strip_prefix('_').unwrap_or(digits), radix)?;
    i128::from_str_radix(&digits, radix).ok().map(|number| Value::Int(number.into()))
}

fn decimal(text: &str) -> Option<Value> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let part = |digits: &str| if digits.is_empty() { Some(String::new()) } else { without_underscores(digits, 10) };
    let whole = part(whole)?;
    if fraction.is_none() && exponent.is_none() {
        return integer(&whole);
    }
    let fraction = part(fraction.unwrap_or(""))?;
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let exponent = match exponent {
        Some(exponent) => {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let sign = if exponent.starts_with('-') { "-" } else { "" };
            format!("e{sign}{}", without_underscores(digits, 10)?)
        }
        None => String::new(),
    };
    let value: f64 = format!("{whole}.{fraction}{exponent}").parse().ok()?;
    // JSON has this number in the same letters.
    let literal = Value::parse_literally(text).ok().filter(|_| value.is_finite());
    Some(literal.unwrap_or(Value::Float(value)))
}

/// An integer of ten digits; zeros in front stand only before zero.
fn integer(digits: &str) -> Option<Value> {
    let zero = !digits.is_empty() && digits.bytes().all(|digit| digit == b'0');
    let digits = if zero { "0" } else { digits };
    if digits.len() > MAX_DIGITS {
        return None;
    }
    Integer::from_decimal(digits).map(Value::Int)
}

/// Digits with single underscores between them, without these.
fn without_underscores(text: &str, radix: u32) -> Option<String> {
    let well = text.split('_').all(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix)));
    well.then(|| text.replace('_', ""))
}

fn word_or_string(source: &mut Source<'_>) -> Option<Value> {
    if is_string(source.rest()) {
        return strings(source).map(Value::from);
    }
    let word = source.word()?;
    let value = match word {
        "None" | "null" => Value::Null,
        "True" | "true" => Value::Bool(true),
        "False" | "false" => Value::Bool(false),
        _ => return None,
    };
    source.advance(word.len());
    Some(value)
}
