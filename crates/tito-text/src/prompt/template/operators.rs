//! Python's operators.

use std::cmp::Ordering;

use super::bounds;
use super::error::Error;
use super::key::plainly_equal;
use super::numbers;
use super::value::{
    Key, SequenceKind, Value, as_float, as_integer, error, is_big, is_generator, is_list_or_tuple, is_view, items,
    list, to_float, tuple, type_name,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
}

/// Calculates; a string or list may be repeated.
pub(super) fn calculate(left: &Value, operator: Operator, right: &Value) -> Result<Value, Error> {
    let calculated = match (as_integer(left), as_integer(right)) {
        (Some(left), Some(right)) => integers(left, operator, right)?,
        _ if is_number(left) && is_number(right) => match (to_float(left), to_float(right)) {
            (Some(left), Some(right)) => Some(floats(left, operator, right)?),
            _ => None,
        },
        _ => match operator {
            Operator::Add => joined(left, right)?,
            Operator::Multiply => match (as_integer(left), as_integer(right)) {
                (None, Some(count)) => repeated(left, count)?,
                (Some(count), None) => repeated(right, count)?,
                _ => None,
            },
            _ => None,
        },
    };
    calculated.ok_or_else(|| {
        let sign = sign(operator);
        error(format!("unsupported operand type(s) for {sign}: '{}' and '{}'", type_name(left), type_name(right)))
    })
}

fn sign(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::FloorDivide => "//",
        Operator::Modulo => "%",
        Operator::Power => "**",
    }
}

fn is_number(value: &Value) -> bool {
    as_float(value).is_some() || as_integer(value).is_some()
}

fn integers(left: i128, operator: Operator, right: i128) -> Result<Option<Value>, Error> {
    #[expect(clippy::cast_precision_loss, reason = "a quotient of integers is a float in Python, too")]
    let (left_float, right_float) = (left as f64, right as f64);
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Modulo);
    if divides && right == 0 {
        return Err(error("division by zero"));
    }
    let result = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => return Ok(Some(Value::Float(left_float / right_float))),
        Operator::FloorDivide => left.checked_div_euclid(right).map(|quotient| {
            // Euclid's remainder is never negative, Python's has the divisor's sign.
            if right < 0 && left.wrapping_rem_euclid(right) != 0 { quotient - 1 } else { quotient }
        }),
        Operator::Modulo => {
            left.checked_rem_euclid(right).map(|rest| if right < 0 && rest != 0 { rest + right } else { rest })
        }
        Operator::Power if right < 0 => return floats(left_float, operator, right_float).map(Some),
        Operator::Power => u32::try_from(right).ok().and_then(|right| left.checked_pow(right)),
    };
    result.map(|result| Some(Value::Int(result))).ok_or_else(|| error("the result is an integer of more than 128 bits"))
}

fn floats(left: f64, operator: Operator, right: f64) -> Result<Value, Error> {
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Modulo);
    if divides && right == 0.0 {
        return Err(error("float division by zero"));
    }
    let result = match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::FloorDivide => divided(left, right).0,
        Operator::Modulo => divided(left, right).1,
        Operator::Power => {
            if left == 0.0 && right < 0.0 {
                return Err(error("0.0 cannot be raised to a negative power"));
            }
            let power = left.powf(right);
            if power.is_nan() && !left.is_nan() && !right.is_nan() {
                return Err(error("the result is a complex number"));
            }
            if power.is_infinite() && left.is_finite() && right.is_finite() {
                return Err(error("the result is too large"));
            }
            power
        }
    };
    Ok(Value::Float(result))
}

// CPython's `float_divmod`.
fn divided(left: f64, right: f64) -> (f64, f64) {
    let mut rest = left % right;
    let mut quotient = (left - rest) / right;
    if rest == 0.0 {
        rest = 0.0_f64.copysign(right);
    } else if (right < 0.0) != (rest < 0.0) {
        rest += right;
        quotient -= 1.0;
    }
    let floor = if quotient == 0.0 {
        0.0_f64.copysign(left / right)
    } else {
        let floor = quotient.floor();
        if quotient - floor > 0.5 { floor + 1.0 } else { floor }
    };
    (floor, rest)
}

fn joined(left: &Value, right: &Value) -> Result<Option<Value>, Error> {
    bounds::reserve(left.size().saturating_add(right.size()))?;
    match (left, right) {
        (Value::String(_), Value::String(_)) => {
            Ok(Some(Value::from([left.as_str().unwrap_or_default(), right.as_str().unwrap_or_default()].concat())))
        }
        (Value::Sequence(a), Value::Sequence(b)) if a.kind == b.kind && is_list_or_tuple(left) => {
            let items = [&a.items[..], &b.items[..]].concat();
            Ok(Some(if a.kind == SequenceKind::Tuple { tuple(items) } else { list(items) }))
        }
        _ => Ok(None),
    }
}

fn repeated(value: &Value, count: i128) -> Result<Option<Value>, Error> {
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    let count = if value.size() == 0 { 0 } else { count };
    bounds::reserve(value.size().saturating_mul(count))?;
    match value {
        Value::String(_) => Ok(Some(Value::from(value.as_str().unwrap_or_default().repeat(count)))),
        Value::Sequence(sequence) if is_list_or_tuple(value) => {
            let items = sequence.items.iter().cycle().take(sequence.items.len() * count).cloned().collect();
            Ok(Some(if sequence.kind == SequenceKind::Tuple { tuple(items) } else { list(items) }))
        }
        _ => Ok(None),
    }
}

/// `-value`, or `+value`.
pub(super) fn signed(value: &Value, is_minus: bool) -> Result<Value, Error> {
    if let Some(float) = as_float(value) {
        return Ok(Value::Float(if is_minus { -float } else { float }));
    }
    let Some(integer) = as_integer(value) else {
        let sign = if is_minus { '-' } else { '+' };
        return Err(error(format!("bad operand type for unary {sign}: '{}'", type_name(value))));
    };
    let signed = if is_minus { integer.checked_neg() } else { Some(integer) };
    signed.map(Value::Int).ok_or_else(|| error("the result is an integer of more than 128 bits"))
}

/// `left == right`. Views equal nothing.
pub(super) fn equal(left: &Value, right: &Value) -> Result<bool, Error> {
    match (left, right) {
        (Value::String(_), Value::String(_)) => {
            bounds::look_through(left.size().min(right.size()))?;
            Ok(left.as_str() == right.as_str())
        }
        (Value::Sequence(a), Value::Sequence(b)) => {
            let ranges = [a.kind, b.kind].iter().filter(|kind| matches!(kind, SequenceKind::Range(..))).count();
            if (a.kind != b.kind && ranges != 2) || is_view(left) || a.items.len() != b.items.len() {
                return Ok(false);
            }
            let _level = bounds::descend()?;
            for (left, right) in a.items.iter().zip(&b.items) {
                if !equal(left, right)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Dict(a), Value::Dict(b)) => {
            if a.entries.len() != b.entries.len() {
                return Ok(false);
            }
            let _level = bounds::descend()?;
            for (key, left) in &a.entries {
                let Some(right) = b.entries.get(key) else { return Ok(false) };
                if !equal(left, right)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => {
            bounds::step()?;
            Ok(plainly_equal(left, right))
        }
    }
}

/// How Python orders two values, if it does; an error for values that it does not compare.
pub(super) fn compare(left: &Value, right: &Value) -> Result<Option<Ordering>, Error> {
    match (left, right) {
        (Value::String(_), Value::String(_)) => {
            bounds::look_through(left.size().min(right.size()))?;
            Ok(Some(left.as_str().cmp(&right.as_str())))
        }
        (Value::Sequence(a), Value::Sequence(b)) if a.kind == b.kind && is_list_or_tuple(left) => {
            let _level = bounds::descend()?;
            for (left, right) in a.items.iter().zip(&b.items) {
                if !equal(left, right)? {
                    return compare(left, right);
                }
            }
            Ok(Some(a.items.len().cmp(&b.items.len())))
        }
        _ if is_number(left) && is_number(right) => {
            bounds::step()?;
            Ok(numbers::compare(left, right))
        }
        (Value::Big(a), _) if is_number(right) || is_big(right) => {
            bounds::look_through(a.to_string().len())?;
            Ok(numbers::compare_big(a, right))
        }
        (_, Value::Big(b)) if is_number(left) => Ok(numbers::compare_big(b, left).map(Ordering::reverse)),
        _ => Err(error(format!(
            "'<' not supported between instances of '{}' and '{}'",
            type_name(left),
            type_name(right)
        ))),
    }
}

/// `value in container`.
pub(super) fn contains(container: &Value, value: &Value) -> Result<bool, Error> {
    match container {
        Value::String(_) => {
            let Some(part) = value.as_str() else {
                let name = type_name(value);
                return Err(error(format!("'in <string>' requires string as left operand, not {name}")));
            };
            bounds::look_through(container.size())?;
            Ok(container.as_str().is_some_and(|text| text.contains(part)))
        }
        Value::Dict(dict) => Ok(dict.entries.contains_key(&Key::new(value.clone())?)),
        Value::Sequence(sequence) => contains_any(&sequence.items, value),
        _ if is_generator(container) => contains_any(&items(container)?, value),
        Value::Undefined => Ok(false),
        _ => Err(error(format!("argument of type '{}' is not iterable", type_name(container)))),
    }
}

fn contains_any(items: &[Value], value: &Value) -> Result<bool, Error> {
    for item in items {
        if equal(item, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(left: impl Into<Value>, operator: Operator, right: impl Into<Value>) -> String {
        match calculate(&left.into(), operator, &right.into()).unwrap() {
            Value::Int(integer) => integer.to_string(),
            Value::Float(float) => format!("{float:?}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn division_rounds_down_as_in_python() {
        for (left, right, quotient, rest) in
            [(7, 2, "3", "1"), (-7, 2, "-4", "1"), (7, -2, "-4", "-1"), (-7, -2, "3", "-1")]
        {
            assert_eq!(result(i128::from(left), Operator::FloorDivide, i128::from(right)), quotient);
            assert_eq!(result(i128::from(left), Operator::Modulo, i128::from(right)), rest);
        }
        assert_eq!(result(-7.5, Operator::FloorDivide, 2.0), "-4.0");
        assert_eq!(result(-7.5, Operator::Modulo, 2.0), "0.5");
        assert_eq!(result(7.5, Operator::Modulo, -2.0), "-0.5");
        assert_eq!(result(-0.5, Operator::FloorDivide, 1.0), "-1.0");
        assert!(calculate(&Value::from(1.0), Operator::Divide, &Value::from(0_i64)).is_err());
        assert!(calculate(&Value::from(1_i64), Operator::Modulo, &Value::from(false)).is_err());
    }

    #[test]
    fn integers_and_floats_compare_exactly() {
        let big = (1_i128 << 53) + 1;
        assert_eq!(numbers::compare(&Value::Int(big), &Value::Float(9_007_199_254_740_992.0)), Some(Ordering::Greater));
        assert_eq!(numbers::compare(&Value::Int(-1), &Value::Float(-1.5)), Some(Ordering::Greater));
        assert_eq!(numbers::compare(&Value::Float(f64::INFINITY), &Value::Int(i128::MAX)), Some(Ordering::Greater));
        assert_eq!(numbers::compare(&Value::Int(1), &Value::Float(f64::NAN)), None);
        assert_eq!(numbers::compare(&Value::Bool(true), &Value::Float(1.0)), Some(Ordering::Equal));
    }
}
