//! jinja2's tests: what `x is …` asks, with Python's answers.

use std::cmp::Ordering;

use super::arguments::Arguments;
use super::bounds;
use super::error::Error;
use super::operators::{compare, contains, equal};
use super::print;
use super::value::{Value, ValueKind, as_float, as_integer, error, is_big, is_generator, is_view, type_name};

/// What answers whether a value passes a test.
pub(super) type Predicate = fn(&Value, &Arguments<'_>) -> Result<bool, Error>;

/// The test whether a name is that of a filter, which is asked where the filters are: `filters::predicate` knows it besides
/// those of this table.
pub(super) const OF_FILTERS: &str = "filter";

const PREDICATES: [(&str, Predicate); 38] = [
    ("defined", |value, given| plain(given, !value.is_undefined())),
    ("undefined", |value, given| plain(given, value.is_undefined())),
    ("none", |value, given| plain(given, value.is_none())),
    ("boolean", |value, given| plain(given, value.kind() == ValueKind::Bool)),
    ("true", |value, given| plain(given, value.kind() == ValueKind::Bool && value.is_true())),
    ("false", |value, given| plain(given, value.kind() == ValueKind::Bool && !value.is_true())),
    ("integer", |value, given| plain(given, value.kind() != ValueKind::Bool && type_name(value) == "int")),
    ("float", |value, given| plain(given, as_float(value).is_some())),
    // A bool is an int in Python.
    ("number", |value, given| {
        plain(given, matches!(value.kind(), ValueKind::Bool | ValueKind::Number) || is_big(value))
    }),
    ("string", |value, given| plain(given, value.kind() == ValueKind::String)),
    ("mapping", |value, given| plain(given, value.kind() == ValueKind::Map)),
    // Whatever has a length and subscripts: strings and dicts too, and even what is undefined.
    ("sequence", |value, given| plain(given, !is_generator(value) && !is_view(value) && is_iterable(value))),
    ("iterable", |value, given| plain(given, is_iterable(value))),
    ("callable", |value, given| plain(given, is_callable(value))),
    ("escaped", |_, given| plain(given, false)),
    ("lower", |value, given| plain(given, is_cased(&print::to_str(value)?, str::to_lowercase))),
    ("upper", |value, given| plain(given, is_cased(&print::to_str(value)?, str::to_uppercase))),
    ("odd", |value, given| plain(given, remainder(value, 2)? == 1)),
    ("even", |value, given| plain(given, remainder(value, 2)? == 0)),
    ("divisibleby", |value, given| {
        let by = given.integer(0, "num")?.ok_or_else(|| error("divisibleby() missing required argument 'num'"))?;
        Ok(remainder(value, by)? == 0)
    }),
    ("sameas", |value, given| same(value, &given.require(0, "other")?)),
    ("in", |value, given| contains(&given.require(0, "seq")?, value)),
    ("test", |value, given| {
        plain(given, value.as_str().is_some_and(|name| name == OF_FILTERS || find(name).is_some()))
    }),
    ("eq", is_equal),
    ("equalto", is_equal),
    ("==", is_equal),
    ("ne", |value, given| is_equal(value, given).map(|equal| !equal)),
    ("!=", |value, given| is_equal(value, given).map(|equal| !equal)),
    ("lt", |value, given| ordered(value, given, Ordering::is_lt)),
    ("lessthan", |value, given| ordered(value, given, Ordering::is_lt)),
    ("<", |value, given| ordered(value, given, Ordering::is_lt)),
    ("le", |value, given| ordered(value, given, Ordering::is_le)),
    ("<=", |value, given| ordered(value, given, Ordering::is_le)),
    ("gt", |value, given| ordered(value, given, Ordering::is_gt)),
    ("greaterthan", |value, given| ordered(value, given, Ordering::is_gt)),
    (">", |value, given| ordered(value, given, Ordering::is_gt)),
    ("ge", |value, given| ordered(value, given, Ordering::is_ge)),
    (">=", |value, given| ordered(value, given, Ordering::is_ge)),
];

/// Returns the test of a name, but for that of filters.
pub(super) fn find(name: &str) -> Option<&'static Predicate> {
    PREDICATES.iter().find(|(known, _)| *known == name).map(|(_, predicate)| predicate)
}

/// Whether a value passes a test.
pub(super) fn ask(
    name: &str,
    predicate: Option<&Predicate>,
    value: &Value,
    arguments: &Arguments<'_>,
) -> Result<bool, Error> {
    let predicate = predicate.ok_or_else(|| error(format!("No test named '{name}'.")))?;
    if matches!(name, "lower" | "upper") {
        bounds::look_through(value.size())?;
        bounds::reserve(value.size().saturating_mul(2))?;
    }
    predicate(value, arguments)
}

// The answer of a test without arguments.
pub(super) fn plain(given: &Arguments<'_>, answer: bool) -> Result<bool, Error> {
    given.end(0).map(|()| answer)
}

fn is_equal(value: &Value, given: &Arguments<'_>) -> Result<bool, Error> {
    let other = given.require(0, "other")?;
    given.end(1)?;
    equal(value, &other)
}

fn ordered(value: &Value, given: &Arguments<'_>, holds: fn(Ordering) -> bool) -> Result<bool, Error> {
    let other = given.require(0, "other")?;
    given.end(1)?;
    Ok(compare(value, &other)?.is_some_and(holds))
}

fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Undefined | ValueKind::String | ValueKind::Map | ValueKind::Seq | ValueKind::Iterable
    )
}

// `str.islower` and `str.isupper`: all letters that have a case have this one, and there are some.
fn is_cased(text: &str, cased: fn(&str) -> String) -> bool {
    cased(text) == text && text.to_lowercase() != text.to_uppercase()
}

// What is undefined is an object that says so when it is called.
fn is_callable(value: &Value) -> bool {
    value.is_undefined()
        || value.kind() == ValueKind::Plain && !matches!(value, Value::Big(_) | Value::Namespace(_) | Value::Cycler(_))
}

fn remainder(value: &Value, by: i64) -> Result<i128, Error> {
    let integer = as_integer(value)
        .ok_or_else(|| error(format!("unsupported operand type(s) for %: '{}' and 'int'", type_name(value))))?;
    integer.checked_rem_euclid(i128::from(by).abs()).ok_or_else(|| error("integer modulo by zero"))
}

// Python compares identities here, which for anything but these is a matter of its memory.
fn same(left: &Value, right: &Value) -> Result<bool, Error> {
    match (left.kind(), right.kind()) {
        (ValueKind::None | ValueKind::Bool, _) | (_, ValueKind::None | ValueKind::Bool) => {
            Ok(left.kind() == right.kind() && left.is_true() == right.is_true())
        }
        _ => Err(error("sameas compares True, False and None only")),
    }
}
