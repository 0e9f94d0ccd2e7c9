//! The order of Python's numbers, exact whatever their types.

use std::cmp::Ordering;

use super::value::{Value, as_float, as_integer};
use crate::json::Integer;

/// Compares two numbers exactly; none if they cannot be ordered.
pub(super) fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (as_integer(left), as_integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(left), None) => compare_mixed(left, as_float(right)?),
        (None, Some(right)) => compare_mixed(right, as_float(left)?).map(Ordering::reverse),
        (None, None) => as_float(left)?.partial_cmp(&as_float(right)?),
    }
}

/// Compares an integer of more than 128 bits with any number.
pub(super) fn compare_big(left: &Integer, right: &Value) -> Option<Ordering> {
    let digits = left.to_string();
    let own = if digits.starts_with('-') { Ordering::Less } else { Ordering::Greater };
    match right {
        Value::Big(right) => {
            let other = right.to_string();
            if digits.starts_with('-') != other.starts_with('-') {
                return Some(own);
            }
            let larger = digits.len().cmp(&other.len()).then_with(|| digits.cmp(&other));
            Some(if own == Ordering::Less { larger.reverse() } else { larger })
        }
        Value::Float(float) => digits.parse::<f64>().ok()?.partial_cmp(float),
        _ => Some(own),
    }
}

fn compare_mixed(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float.abs() >= 2_f64.powi(127) {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    #[expect(clippy::cast_possible_truncation, reason = "the fraction is compared besides")]
    let whole = float.trunc() as i128;
    Some(integer.cmp(&whole).then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)))
}
