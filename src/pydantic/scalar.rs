//! Scalars as pydantic's lax mode reads them: which values pass for which type, and what a strict reader gets instead.

use super::issue::{Complaint, Context};
use crate::json::{Integer, Node, NodeKind};

/// What reading a value gives: `None` where the value passes as it stands, or the text that replaces it.
pub(super) type Lax = Result<Option<String>, Complaint>;

/// The first float that 64 bits cannot hold.
const BEYOND_INT64: f64 = 9_223_372_036_854_775_808.0;
/// pydantic reads at most this many digits.
const MOST_DIGITS: usize = 4300;

pub(super) fn string(node: &Node<'_>) -> Lax {
    match node.kind {
        NodeKind::String(_) => Ok(None),
        _ => Err(Complaint::new("string_type", "Input should be a valid string")),
    }
}

pub(super) fn text(node: &Node<'_>, least: usize, most: usize) -> Lax {
    string(node)?;
    let length = node.as_str().map_or(0, |text| text.chars().count());
    let complain = |kind, word, bound: usize, name| {
        let plural = if bound == 1 { "" } else { "s" };
        let message = format!("String should have at {word} {bound} character{plural}");
        Err(Complaint::new(kind, message).with(name, Context::Int(bound.into_i128())))
    };
    if length < least {
        return complain("string_too_short", "least", least, "min_length");
    }
    if length > most {
        return complain("string_too_long", "most", most, "max_length");
    }
    Ok(None)
}

trait IntoI128 {
    fn into_i128(self) -> i128;
}

impl IntoI128 for usize {
    fn into_i128(self) -> i128 {
        i128::try_from(self).unwrap_or(i128::MAX)
    }
}

/// Returns the truth that a text is a word for, if it is one.
pub(crate) fn truth(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
        "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
        _ => None,
    }
}

pub(super) fn boolean(node: &Node<'_>) -> Lax {
    let unclear = || Complaint::new("bool_parsing", "Input should be a valid boolean, unable to interpret input");
    let value = match &node.kind {
        NodeKind::Bool(_) => return Ok(None),
        NodeKind::String(text) => truth(text).ok_or_else(unclear)?,
        NodeKind::Int(value) if value.to_i128().is_some_and(|value| i64::try_from(value).is_ok()) => {
            match value.to_i128() {
                Some(0) => false,
                Some(1) => true,
                _ => return Err(unclear()),
            }
        }
        NodeKind::Float(1.0) => true,
        NodeKind::Float(0.0) => false,
        NodeKind::Float(value) if value.fract() == 0.0 && value.abs() < BEYOND_INT64 => return Err(unclear()),
        _ => return Err(Complaint::new("bool_type", "Input should be a valid boolean")),
    };
    Ok(Some(value.to_string()))
}

/// Reads an integer and checks it against `least` and `most`, where these are given.
pub(super) fn integer(node: &Node<'_>, least: Option<i64>, most: Option<i64>) -> Lax {
    let value = coerced(node)?;
    // serde reads "-0" as a float, so it has to be rewritten.
    let stays = matches!(node.kind, NodeKind::Int(_)) && node.text != "-0";
    let rewritten = (!stays).then(|| value.to_string());
    let beyond = |limit: Option<i64>, sign: i128| {
        limit.is_some_and(|limit| match value.to_i128() {
            Some(value) => value.saturating_mul(sign) > i128::from(limit) * sign,
            None => value.to_string().starts_with('-') == (sign < 0),
        })
    };
    let complain = |kind, word, name, limit: Option<i64>| {
        let limit = limit.unwrap_or_default();
        let message = format!("Input should be {word} than or equal to {limit}");
        Err(Complaint::new(kind, message).with(name, Context::Int(limit.into())))
    };
    if beyond(most, 1) {
        return complain("less_than_equal", "less", "le", most);
    }
    if beyond(least, -1) {
        return complain("greater_than_equal", "greater", "ge", least);
    }
    Ok(rewritten)
}

/// Returns the integer that a value stands for.
pub(crate) fn coerced(node: &Node<'_>) -> Result<Integer, Complaint> {
    let oversized =
        || Complaint::new("int_parsing_size", "Unable to parse input string as an integer, exceeded maximum size");
    match &node.kind {
        NodeKind::Int(value) => Ok(value.clone()),
        NodeKind::Bool(value) => Ok(Integer::from(i64::from(*value))),
        NodeKind::Float(value) if !value.is_finite() => {
            Err(Complaint::new("finite_number", "Input should be a finite number"))
        }
        NodeKind::Float(value) if value.fract() != 0.0 => {
            let message = "Input should be a valid integer, got a number with a fractional part";
            Err(Complaint::new("int_from_float", message))
        }
        #[expect(clippy::cast_possible_truncation, reason = "whole and within the range")]
        NodeKind::Float(value) if value.abs() < BEYOND_INT64 => Ok(Integer::from(*value as i64)),
        NodeKind::Float(_) => Err(oversized()),
        NodeKind::String(text) => {
            let digits = integer_digits(text).ok_or_else(|| {
                let message = "Input should be a valid integer, unable to parse string as an integer";
                Complaint::new("int_parsing", message)
            })?;
            if digits.len() > MOST_DIGITS {
                return Err(oversized());
            }
            Integer::from_decimal(&digits).ok_or_else(oversized)
        }
        _ => Err(Complaint::new("int_type", "Input should be a valid integer")),
    }
}

/// Returns the plain digits of an integer, without blanks around it, a plus, zeros in front, single underscores and
/// `.000`.
fn integer_digits(text: &str) -> Option<String> {
    let text = text.trim();
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => whole,
        Some(_) => return None,
        None => text,
    };
    let digits = without_underscores(whole)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match digits.trim_start_matches('0') {
        "" => Some("0".to_owned()),
        digits => Some(format!("{sign}{digits}")),
    }
}

/// Removes underscores; `None` if they are doubled, or lead or trail.
fn without_underscores(text: &str) -> Option<String> {
    let misplaced = text.starts_with('_') || text.ends_with('_') || text.contains("__");
    (!misplaced).then(|| text.replace('_', ""))
}

/// Returns the number that a value stands for, where it is not written as one.
pub(super) fn float(node: &Node<'_>) -> Result<Option<f64>, Complaint> {
    match &node.kind {
        NodeKind::Int(_) => Ok(None),
        NodeKind::Float(value) => Ok((!value.is_finite()).then_some(*value)),
        NodeKind::Bool(value) => Ok(Some(f64::from(u8::from(*value)))),
        NodeKind::String(text) => {
            let number = without_underscores(text.trim()).and_then(|text| text.parse().ok());
            number.map(Some).ok_or_else(|| {
                let message = "Input should be a valid number, unable to parse string as a number";
                Complaint::new("float_parsing", message)
            })
        }
        _ => Err(Complaint::new("float_type", "Input should be a valid number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Document;

    fn with<T>(text: &str, check: impl Fn(&Node<'_>) -> T) -> T {
        check(&Document::parse(text).unwrap().root)
    }

    fn as_integer(text: &str) -> Result<Option<String>, &'static str> {
        with(text, |node| integer(node, None, None)).map_err(|complaint| complaint.kind)
    }

    #[test]
    fn integers_are_read_from_what_looks_like_one() {
        for (text, value) in [
            ("\" 5 \"", "5"),
            ("\"+05\"", "5"),
            ("\"-0\"", "0"),
            ("\"1_0.0\"", "10"),
            ("\"-05\"", "-5"),
            ("5.0", "5"),
            ("-0", "0"),
            ("true", "1"),
            ("\"99999999999999999999999\"", "99999999999999999999999"),
        ] {
            assert_eq!(as_integer(text), Ok(Some(value.to_owned())), "{text}");
        }
        assert_eq!(as_integer("5"), Ok(None));
    }

    #[test]
    fn what_is_no_integer_is_refused_for_its_own_reason() {
        for text in ["5.", ".0", "+-5", "- 5", "1_", "_1", "1__0", "5.0_0", "1e3", "", "0x1", "５", "5_.0"] {
            assert_eq!(as_integer(&format!("\"{text}\"")), Err("int_parsing"), "{text}");
        }
        for (text, kind) in [
            ("5.5", "int_from_float"),
            ("1e20", "int_parsing_size"),
            ("NaN", "finite_number"),
            ("[1]", "int_type"),
            ("null", "int_type"),
        ] {
            assert_eq!(as_integer(text), Err(kind), "{text}");
        }
    }

    #[test]
    fn integers_of_any_size_are_compared_with_limits() {
        let kind = |text: &str| with(text, |node| integer(node, Some(0), Some(i64::MAX))).err().map(|c| c.kind);
        assert_eq!(kind("0"), None);
        assert_eq!(kind("-1"), Some("greater_than_equal"));
        assert_eq!(kind("9223372036854775808"), Some("less_than_equal"));
        assert_eq!(kind(&"9".repeat(60)), Some("less_than_equal"));
        assert_eq!(kind(&format!("-{}", "9".repeat(60))), Some("greater_than_equal"));
    }

    #[test]
    fn booleans_are_words_and_ones_and_zeros() {
        for (text, value) in [("\"tRuE\"", "true"), ("\"off\"", "false"), ("1", "true"), ("0.0", "false")] {
            assert_eq!(with(text, boolean).ok(), Some(Some(value.to_owned())), "{text}");
        }
        for (text, kind) in
            [("2", "bool_parsing"), ("\" true\"", "bool_parsing"), ("0.5", "bool_type"), ("2.0", "bool_parsing")]
        {
            assert_eq!(with(text, boolean).err().map(|c| c.kind), Some(kind), "{text}");
        }
    }

    #[test]
    fn numbers_are_read_from_strings() {
        for (text, value) in [("\"1_0.5\"", 10.5), ("\" .5\"", 0.5), ("\"1.\"", 1.0), ("true", 1.0)] {
            assert_eq!(with(text, float).ok(), Some(Some(value)), "{text}");
        }
        for text in ["\"1__0\"", "\"0x1\"", "\"\"", "\"+-5\"", "\"1e\""] {
            assert_eq!(with(text, float).err().map(|c| c.kind), Some("float_parsing"), "{text}");
        }
        assert!(with("\"inf\"", float).ok().flatten().is_some_and(f64::is_infinite));
    }
}
