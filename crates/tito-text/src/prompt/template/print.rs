//! Python's `str` and `repr` of template values, for templates that print them, and their JSON.

use super::bounds;
use super::error::Error;
use super::value::{self, SequenceKind, Value, type_name};
use crate::json::{self, float_repr, string_repr};

/// Returns Python's `str` of a value; an error for those that print as an address.
pub(super) fn to_str(value: &Value) -> Result<String, Error> {
    match value {
        Value::Undefined => Ok(String::new()),
        Value::String(_) => {
            bounds::reserve(value.size())?;
            Ok(value.as_str().unwrap_or_default().to_owned())
        }
        _ => repr(value),
    }
}

/// Returns Python's `repr` of a value; an error for those that print as an address.
pub(super) fn repr(value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    write_repr(value, &mut text)?;
    Ok(text)
}

fn write_repr(value: &Value, out: &mut String) -> Result<(), Error> {
    match value {
        Value::Undefined => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(flag) => out.push_str(if *flag { "True" } else { "False" }),
        Value::Int(integer) => out.push_str(&integer.to_string()),
        Value::Big(integer) => out.push_str(&integer.to_string()),
        Value::Float(float) => out.push_str(&float_repr(*float)),
        Value::String(_) => {
            bounds::reserve(out.len().saturating_add(value.size().saturating_mul(2)))?;
            out.push_str(&string_repr(value.as_str().unwrap_or_default()));
        }
        Value::Sequence(sequence) => {
            let is_single = sequence.items.len() == 1;
            match sequence.kind {
                SequenceKind::List => write_items(&sequence.items, ["[", "]"], out)?,
                SequenceKind::Tuple => write_items(&sequence.items, ["(", if is_single { ",)" } else { ")" }], out)?,
                SequenceKind::Range(start, end, step) => {
                    let bounds = [start, end, step].map(|bound| bound.to_string());
                    let shown = if step == 1 { &bounds[..2] } else { &bounds[..] };
                    out.push_str(&["range(", &shown.join(", "), ")"].concat());
                }
                SequenceKind::View(name) => {
                    out.push_str(name);
                    write_items(&sequence.items, ["([", "])"], out)?;
                }
            }
        }
        Value::Dict(dict) => write_dict(dict, out)?,
        _ => return Err(value::error(format!("a value of type {} cannot be printed", type_name(value)))),
    }
    bounds::look_through(0)?;
    bounds::reserve(out.len())
}

fn write_items(items: &[Value], brackets: [&str; 2], out: &mut String) -> Result<(), Error> {
    let _level = bounds::descend()?;
    out.push_str(brackets[0]);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_repr(item, out)?;
    }
    out.push_str(brackets[1]);
    Ok(())
}

fn write_dict(dict: &value::Dict, out: &mut String) -> Result<(), Error> {
    let _level = bounds::descend()?;
    out.push('{');
    for (index, (key, value)) in dict.entries.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_repr(key.value(), out)?;
        out.push_str(": ");
        write_repr(value, out)?;
    }
    out.push('}');
    Ok(())
}

/// Writes what Python's `json.dumps` makes of a template's value.
pub(super) fn to_json(value: &Value, format: &json::Format) -> Result<String, Error> {
    let mut size = Size::default();
    let json = json_of(value, &mut size)?;
    // An upper bound of what is written: every character escaped, every value on a line of its own.
    let indent = format.indent.as_ref().map_or(0, |indent| indent.len().saturating_mul(value.depth()) + 1);
    let around = indent.saturating_add(format.item_separator.len() + format.key_separator.len() + 8);
    let escaped = size.text.saturating_mul(if format.ensure_ascii { 6 } else { 2 });
    bounds::reserve(size.nodes.saturating_mul(around).saturating_add(escaped))?;
    bounds::look_through(size.text)?;
    Ok(json.to_json_string_with(format))
}

// What a JSON tree has cost so far.
#[derive(Default)]
struct Size {
    nodes: usize,
    text: usize,
}

impl Size {
    fn add(&mut self, text: usize) -> Result<(), Error> {
        self.nodes += 1;
        self.text = self.text.saturating_add(text);
        bounds::step()?;
        bounds::reserve(self.nodes * 2 * size_of::<json::Value>() + self.text)
    }
}

fn json_of(value: &Value, size: &mut Size) -> Result<json::Value, Error> {
    size.add(if value.as_str().is_some() { value.size() } else { 32 })?;
    match value {
        Value::None => Ok(json::Value::Null),
        Value::Bool(flag) => Ok(json::Value::Bool(*flag)),
        Value::Int(integer) => Ok(json::Value::Int((*integer).into())),
        Value::Big(integer) => {
            size.add(integer.to_string().len())?;
            Ok(json::Value::Int(json::Integer::clone(integer)))
        }
        Value::Float(float) => Ok(json::Value::Float(*float)),
        Value::String(_) => Ok(json::Value::from(value.as_str().unwrap_or_default())),
        Value::Dict(dict) => {
            let _level = bounds::descend()?;
            let mut object = json::Object::default();
            for (key, value) in &dict.entries {
                let name = json_key(key.value())?;
                size.add(name.len())?;
                if object.contains_key(&name) {
                    return Err(value::error(format!("key '{name}' occurs twice")));
                }
                object.insert(name, json_of(value, size)?);
            }
            Ok(json::Value::Object(object))
        }
        Value::Sequence(sequence) if value::is_list_or_tuple(value) => {
            let _level = bounds::descend()?;
            let items: Result<_, Error> = sequence.items.iter().map(|item| json_of(item, size)).collect();
            items.map(json::Value::Array)
        }
        _ => Err(value::error(format!("Object of type {} is not JSON serializable", type_name(value)))),
    }
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key {
        Value::String(_) => Ok(key.as_str().unwrap_or_default().to_owned()),
        Value::None => Ok("null".to_owned()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Int(integer) => Ok(integer.to_string()),
        Value::Big(integer) => Ok(integer.to_string()),
        Value::Float(float) => Ok(json::Value::Float(*float).to_json_string()),
        _ => Err(value::error(format!("keys must be str, int, float, bool or None, not {}", type_name(key)))),
    }
}

#[cfg(test)]
mod tests {
    use super::value::{Key, dict, from_json, generator, tuple};
    use super::*;

    #[test]
    fn values_print_as_in_python() {
        let value = json::Value::parse(r#"{"a": [true, null, 1.0, 1e16, "it's", []], "b": {}}"#).unwrap();
        assert_eq!(to_str(&from_json(&value)).unwrap(), r#"{'a': [True, None, 1.0, 1e+16, "it's", []], 'b': {}}"#);
        assert_eq!(to_str(&Value::UNDEFINED).unwrap(), "");
        assert_eq!(to_str(&tuple(vec![Value::from(1_i64)])).unwrap(), "(1,)");
        assert!(to_str(&generator(vec![])).is_err());
    }

    #[test]
    fn json_survives_the_way_through_a_template() {
        let big = "123456789012345678901234567890123456789012345";
        let text = format!(r#"{{"b": [1, 1.0, 1e-05, true, null, {big}], "a": {{"é": "x", "items": NaN}}}}"#);
        let value = from_json(&json::Value::parse(&text).unwrap());
        assert_eq!(to_json(&value, &json::Format::default()).unwrap(), text);
    }

    #[test]
    fn what_json_cannot_hold_is_refused() {
        let key = Key::new(tuple(vec![])).unwrap();
        for value in [Value::UNDEFINED, generator(vec![]), dict([(key, Value::from(1_i64))].into_iter().collect())] {
            assert!(to_json(&value, &json::Format::default()).is_err());
        }
    }
}
