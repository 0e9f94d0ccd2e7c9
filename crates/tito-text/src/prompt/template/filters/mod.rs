//! jinja2's filters. Those whose result depends on Python's own tables or on HTML are left out: a template that uses
//! one fails.

mod number;
mod order;
mod select;
mod sequence;
mod text;
mod values;

use super::arguments::Arguments;
use super::bounds;
use super::error::Error;
use super::predicates::{self, Predicate};
use super::print;
use super::value::{Value, error, items};
use crate::json;
use values::{indentation, lookup, to_str};

/// A filter, or one of the methods of strings, that makes a value of another and of arguments.
pub(super) type Filter = fn(&Value, &Arguments<'_>) -> Result<Value, Error>;

const FILTERS: [(&str, Filter); 40] = [
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
    ("map", select::map),
    ("reject", select::reject),
    ("rejectattr", select::rejectattr),
    ("select", select::select),
    ("selectattr", select::selectattr),
];

/// Returns the filter of a name.
pub(super) fn find(name: &str) -> Option<&'static Filter> {
    FILTERS.iter().find(|(known, _)| *known == name).map(|(_, filter)| filter)
}

/// Returns the test of a name.
pub(super) fn predicate(name: &str) -> Option<&'static Predicate> {
    const IS_FILTER: Predicate =
        |value, given| predicates::plain(given, value.as_str().is_some_and(|name| find(name).is_some()));
    if name == predicates::OF_FILTERS { Some(&IS_FILTER) } else { predicates::find(name) }
}

/// Applies a filter, and counts what there is to look through.
pub(super) fn apply(
    name: &str,
    filter: Option<&Filter>,
    value: &Value,
    arguments: &Arguments<'_>,
) -> Result<Value, Error> {
    let filter = filter.ok_or_else(|| error(format!("No filter named '{name}'.")))?;
    let _level = bounds::descend()?;
    if value.as_str().is_some() {
        bounds::look_through(value.size())?;
        bounds::reserve(value.size().saturating_mul(2))?;
    }
    filter(value, arguments)
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
        format.item_separator = ",".into();
        format.indent = Some(indentation(&indent)?);
    }
    if let Some(separators) = separators {
        let pair = items(&separators)?;
        let [item, key] = &pair[..] else { return Err(error("separators must be a pair")) };
        let (Some(item), Some(key)) = (item.as_str(), key.as_str()) else {
            return Err(error("separators must be strings"));
        };
        (format.item_separator, format.key_separator) = (item.to_owned().into(), key.to_owned().into());
    }
    print::to_json(value, &format).map(Value::from)
}
