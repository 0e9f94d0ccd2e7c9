//! Filters that make numbers.

use super::super::arguments::Arguments;
use super::super::error::Error;
use super::super::operators::{self, Operator};
use super::super::text::{self, Ends};
use super::super::value::{Value, ValueKind, as_float, as_integer, error, items, to_float, type_name};
use super::lookup;

pub(super) fn abs(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    if let Some(float) = as_float(value) {
        return Ok(Value::from(float.abs()));
    }
    as_integer(value)
        .and_then(i128::checked_abs)
        .map(Value::Int)
        .ok_or_else(|| error(format!("bad operand type for abs(): '{}'", type_name(value))))
}

fn refuse_undefined(value: &Value) -> Result<(), Error> {
    if value.is_undefined() { Err(error("value is undefined")) } else { Ok(()) }
}

pub(super) fn int(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let default = arguments.get(0, "default")?.unwrap_or(Value::Int(0));
    let base = arguments.integer(1, "base")?.unwrap_or(10);
    arguments.end(2)?;
    if base != 10 {
        return Err(error("int() reads base 10 only"));
    }
    refuse_undefined(value)?;
    if let Some(exact) = as_integer(value) {
        return Ok(Value::Int(exact));
    }
    let digits = value.as_str().and_then(literal);
    if let Some(digits) = &digits
        && digits.trim_start_matches(['+', '-']).bytes().all(|byte| byte.is_ascii_digit())
        && !digits.trim_start_matches(['+', '-']).is_empty()
    {
        return digits.parse().map(Value::Int).map_err(|_| error(format!("integer {digits} is too large")));
    }
    let float = as_float(value).or_else(|| digits.and_then(|digits| digits.parse().ok()));
    match float {
        Some(float) if float.is_finite() => {
            truncate(float).map(Value::Int).ok_or_else(|| error(format!("integer {float} is too large")))
        }
        Some(float) if float.is_infinite() && value.as_str().is_none() => {
            Err(error("cannot convert float infinity to integer"))
        }
        _ => Ok(default),
    }
}

pub(super) fn float(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let default = arguments.get(0, "default")?.unwrap_or_else(|| Value::from(0.0));
    arguments.end(1)?;
    refuse_undefined(value)?;
    let float = match value.kind() {
        ValueKind::String => value.as_str().and_then(literal).and_then(|digits| digits.parse().ok()),
        _ => to_float(value),
    };
    Ok(float.map_or(default, Value::from))
}

pub(super) fn round(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let precision = arguments.integer(0, "precision")?.unwrap_or(0);
    let method = arguments.string(1, "method")?.unwrap_or_else(|| "common".to_owned());
    arguments.end(2)?;
    let precision = u8::try_from(precision).ok().filter(|&precision| precision <= 15);
    let precision = precision.ok_or_else(|| error("round() takes a precision from 0 to 15"))?;
    if let Some(integer) = as_integer(value).filter(|_| method == "common") {
        return Ok(Value::Int(integer));
    }
    let number =
        to_float(value).ok_or_else(|| error(format!("type {} doesn't define __round__ method", type_name(value))))?;
    let factor = 10_f64.powi(precision.into());
    let rounded = match method.as_str() {
        // Formatting rounds the exact binary value half to even, as Python does; multiplying first would not.
        "common" => format!("{number:.*}", precision.into()).parse().unwrap_or(number),
        "ceil" => (number * factor).ceil() / factor,
        "floor" => (number * factor).floor() / factor,
        _ => return Err(error("method must be common, ceil or floor")),
    };
    Ok(Value::from(rounded))
}

pub(super) fn sum(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let attribute = arguments.some(0, "attribute")?;
    let start = arguments.get(1, "start")?.unwrap_or(Value::Int(0));
    arguments.end(2)?;
    if start.as_str().is_some() {
        return Err(error("sum() can't sum strings [use ''.join(seq) instead]"));
    }
    items(value)?.into_iter().try_fold(start, |total, item| {
        let item = attribute.as_ref().map_or_else(|| Ok(item.clone()), |path| lookup(&item, path))?;
        operators::calculate(&total, Operator::Add, &item)
    })
}

/// Returns the integer part of a float that fits.
pub(super) fn truncate(float: f64) -> Option<i128> {
    // Beyond 2^126 every float is far from the edge of the type, so the comparison is safe.
    let limit = 2_f64.powi(126);
    #[expect(clippy::cast_possible_truncation, reason = "truncation is what is asked for, and the range is checked")]
    (float.abs() < limit).then_some(float as i128)
}

// What Python's number constructors strip from a literal: spaces around it, underscores between digits.
fn literal(text: &str) -> Option<String> {
    let text = text::strip(text, None, Ends::Both);
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let misplaced =
        (0..bytes.len()).any(|at| bytes[at] == b'_' && !(is_digit(at.checked_sub(1)) && is_digit(Some(at + 1))));
    (!misplaced).then(|| text.replace('_', ""))
}
