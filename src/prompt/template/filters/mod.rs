//! jinja2's filters. Those whose result depends on Python's own tables or on HTML are left out: a template that uses
//! one fails.

mod number;
mod order;
mod select;
mod sequence;
mod text;

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, State, Value};

use super::arguments::Arguments;
use super::value::{error, is_generator, items, iterable, to_json};
use super::{print, rewrite};
use crate::json;

pub(super) use order::compare;

type Filter = fn(&Value, &Arguments<'_>) -> Result<Value, Error>;
type StateFilter = fn(&State<'_, '_>, &Value, &[Value]) -> Result<Value, Error>;

const FILTERS: [(&str, Filter); 36] = [
    ("abs", number::abs),
    ("capitalize", text::capitalize),
    ("count", sequence::length),
    ("d", default),
    ("default", default),
    ("dictsort", order::dictsort),
    ("e", text::escape),
    ("escape", text::escape),
    ("first", sequence::first),
    ("float", number::float),
    ("format", text::format),
    ("indent", text::indent),
    ("int", number::int),
    ("items", sequence::entries),
    ("join", sequence::join),
    ("last", sequence::last),
    ("length", sequence::length),
    ("list", sequence::to_list),
    ("lower", text::lower),
    ("max", order::max),
    ("min", order::min),
    ("replace", text::replace),
    ("reverse", sequence::reverse),
    ("round", number::round),
    ("safe", text::string),
    ("sort", order::sort),
    ("string", text::string),
    ("sum", number::sum),
    ("title", text::title),
    ("tojson", tojson),
    ("trim", text::trim),
    ("unique", order::unique),
    ("upper", text::upper),
    ("center", text::center),
    ("attr", sequence::attribute),
    (rewrite::ITERABLE, iterated),
];

const STATE_FILTERS: [(&str, StateFilter); 5] = [
    ("map", select::map),
    ("reject", select::reject),
    ("rejectattr", select::rejectattr),
    ("select", select::select),
    ("selectattr", select::selectattr),
];

/// Adds all filters.
pub(super) fn register(environment: &mut Environment<'_>) {
    for (name, filter) in FILTERS {
        environment.add_filter(name, move |value: &Value, Rest(args): Rest<Value>| {
            filter(value, &Arguments::new(name, &args)?)
        });
    }
    for (name, filter) in STATE_FILTERS {
        environment.add_filter(name, move |state: &State<'_, '_>, value: &Value, Rest(args): Rest<Value>| {
            filter(state, value, &args)
        });
    }
}

// Follows a path of keys and indices, as the `attribute` argument of filters names one.
fn lookup(value: &Value, path: &Value) -> Result<Value, Error> {
    let Some(path) = path.as_str() else { return value.get_item(path) };
    path.split('.').try_fold(value.clone(), |value, part| {
        let index = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<i64>().ok()).flatten();
        value.get_item(&index.map_or_else(|| Value::from(part), Value::from))
    })
}

fn iterated(value: &Value, _arguments: &Arguments<'_>) -> Result<Value, Error> {
    iterable(value)?;
    Ok(value.clone())
}

fn default(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let replacement = arguments.get(0, "default_value")?.unwrap_or_else(|| Value::from(""));
    let boolean = arguments.flag(1, "boolean")?;
    arguments.end(2)?;
    let replaces = value.is_undefined() || (boolean && !value.is_true());
    Ok(if replaces { replacement } else { value.clone() })
}

// As transformers defines it: `json.dumps` without HTML escapes.
fn tojson(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let ensure_ascii = arguments.flag(0, "ensure_ascii")?;
    let indent = arguments.some(1, "indent")?;
    let separators = arguments.some(2, "separators")?;
    let sort_keys = arguments.flag(3, "sort_keys")?;
    arguments.end(4)?;

    let mut format = json::Format { sort_keys, ensure_ascii, ..json::Format::default() };
    if let Some(indent) = indent {
        format.item_separator = String::from(",");
        format.indent = Some(indentation(&indent)?);
    }
    if let Some(separators) = separators {
        let pair = items(&separators)?;
        let [item, key] = &pair[..] else { return Err(error("separators must be a pair")) };
        let (Some(item), Some(key)) = (item.as_str(), key.as_str()) else {
            return Err(error("separators must be strings"));
        };
        (format.item_separator, format.key_separator) = (item.to_owned(), key.to_owned());
    }
    Ok(Value::from(to_json(value)?.to_json_string_with(&format)))
}

// What an `indent` or `width` argument means: so many spaces, or the string itself.
fn indentation(width: &Value) -> Result<String, Error> {
    const MAX_WIDTH: i64 = 1000;

    if let Some(text) = width.as_str() {
        return Ok(text.to_owned());
    }
    let width = width.as_i64().filter(|&width| width <= MAX_WIDTH);
    let width = width.ok_or_else(|| error("an indentation must be a string or an integer up to 1000"))?;
    Ok(" ".repeat(usize::try_from(width).unwrap_or(0)))
}

fn has_length(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Map | ValueKind::Seq | ValueKind::Iterable)
        && !is_generator(value)
}

fn to_str(value: &Value) -> Result<String, Error> {
    print::to_str(value)
}
