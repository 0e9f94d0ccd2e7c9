//! jinja2's tests: what `x is …` asks, with Python's answers.

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, State, Value};

use super::filters::compare;
use super::value::{as_float, as_integer, error, is_big, is_generator, is_view, items, type_name};

type Predicate = fn(&Value) -> bool;

/// Adds all tests.
pub(super) fn register(environment: &mut Environment<'_>) {
    let unary: [(&'static str, Predicate); 16] = [
        ("defined", |value| !value.is_undefined()),
        ("undefined", Value::is_undefined),
        ("none", Value::is_none),
        ("boolean", |value| value.kind() == ValueKind::Bool),
        ("true", |value| value.kind() == ValueKind::Bool && value.is_true()),
        ("false", |value| value.kind() == ValueKind::Bool && !value.is_true()),
        ("integer", |value| value.kind() != ValueKind::Bool && type_name(value) == "int"),
        ("float", |value| as_float(value).is_some()),
        // A bool is an int in Python.
        ("number", |value| matches!(value.kind(), ValueKind::Bool | ValueKind::Number) || is_big(value)),
        ("string", |value| value.kind() == ValueKind::String),
        ("mapping", |value| value.kind() == ValueKind::Map),
        // Whatever has a length and subscripts: strings and dicts too, and even what is undefined.
        ("sequence", |value| !is_generator(value) && !is_view(value) && is_iterable(value)),
        ("iterable", is_iterable),
        ("callable", is_callable),
        ("escaped", |_| false),
        ("lower", |value| {
            value.as_str().is_some_and(|text| text.to_lowercase() == text && text.chars().any(char::is_lowercase))
        }),
    ];
    for (name, test) in unary {
        environment.add_test(name, move |value: &Value| test(value));
    }
    environment.add_test("upper", |value: &Value| {
        value.as_str().is_some_and(|text| text.to_uppercase() == text && text.chars().any(char::is_uppercase))
    });
    environment.add_test("odd", |value: &Value| remainder(value, 2).map(|rest| rest == 1));
    environment.add_test("even", |value: &Value| remainder(value, 2).map(|rest| rest == 0));
    environment.add_test("divisibleby", |value: &Value, by: i64| remainder(value, by).map(|rest| rest == 0));
    environment.add_test("sameas", same);
    environment.add_test("in", |value: &Value, container: &Value| contains(container, value));
    environment.add_test("filter", |state: &State<'_, '_>, name: &str| {
        state.apply_filter(name, &[]).err().is_none_or(|error| error.kind() != minijinja::ErrorKind::UnknownFilter)
    });
    environment.add_test("test", |state: &State<'_, '_>, name: &str| {
        state.perform_test(name, &[]).err().is_none_or(|error| error.kind() != minijinja::ErrorKind::UnknownTest)
    });
    register_comparisons(environment);
}

fn register_comparisons(environment: &mut Environment<'_>) {
    for name in ["eq", "equalto", "=="] {
        environment.add_test(name, |left: &Value, right: &Value| left == right);
    }
    for name in ["ne", "!="] {
        environment.add_test(name, |left: &Value, right: &Value| left != right);
    }
    for name in ["lt", "lessthan", "<"] {
        environment.add_test(name, |left: &Value, right: &Value| compare(left, right).map(std::cmp::Ordering::is_lt));
    }
    for name in ["le", "<="] {
        environment.add_test(name, |left: &Value, right: &Value| compare(left, right).map(std::cmp::Ordering::is_le));
    }
    for name in ["gt", "greaterthan", ">"] {
        environment.add_test(name, |left: &Value, right: &Value| compare(left, right).map(std::cmp::Ordering::is_gt));
    }
    for name in ["ge", ">="] {
        environment.add_test(name, |left: &Value, right: &Value| compare(left, right).map(std::cmp::Ordering::is_ge));
    }
}

fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Undefined | ValueKind::String | ValueKind::Map | ValueKind::Seq | ValueKind::Iterable
    )
}

fn is_callable(value: &Value) -> bool {
    value.kind() == ValueKind::Plain && !is_big(value)
}

fn remainder(value: &Value, by: i64) -> Result<i128, Error> {
    let integer = as_integer(value)
        .ok_or_else(|| error(format!("unsupported operand type(s) for %: '{}' and 'int'", type_name(value))))?;
    integer.checked_rem_euclid(i128::from(by).abs()).ok_or_else(|| error("integer modulo by zero"))
}

// Python compares identities here, which for anything but these is a matter of its memory.
fn same(left: &Value, Rest(right): Rest<Value>) -> Result<bool, Error> {
    let [right] = &right[..] else { return Err(error("sameas takes one argument")) };
    match (left.kind(), right.kind()) {
        (ValueKind::None | ValueKind::Bool, _) | (_, ValueKind::None | ValueKind::Bool) => {
            Ok(left.kind() == right.kind() && left == right)
        }
        _ => Err(error("sameas compares True, False and None only")),
    }
}

fn contains(container: &Value, value: &Value) -> Result<bool, Error> {
    match (container.as_str(), value.as_str()) {
        (Some(text), Some(part)) => Ok(text.contains(part)),
        (Some(_), None) => {
            Err(error(format!("'in <string>' requires string as left operand, not {}", type_name(value))))
        }
        _ => Ok(items(container)?.contains(value)),
    }
}
