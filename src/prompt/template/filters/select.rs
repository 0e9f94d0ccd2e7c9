//! Filters that apply other filters and tests to each item.

use minijinja::value::{Kwargs, Rest, from_args};
use minijinja::{Error, State, Value};

use super::super::value::{error, generator, items};
use super::lookup;

pub(super) fn map(state: &State<'_, '_>, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let (Rest(positional), named) = from_args::<(Rest<Value>, Kwargs)>(args)?;
    let items = truthy_items(value)?.into_iter();
    if positional.is_empty() && named.has("attribute") {
        let path: Value = named.get("attribute")?;
        let default: Option<Value> = if named.has("default") { Some(named.get("default")?) } else { None };
        named.assert_all_used()?;
        let mapped = items.map(|item| {
            let found = lookup(&item, &path)?;
            Ok(match &default {
                Some(default) if found.is_undefined() => default.clone(),
                _ => found,
            })
        });
        return mapped.collect::<Result<_, Error>>().map(generator);
    }
    let name = positional.first().and_then(Value::as_str);
    let name = name.ok_or_else(|| error("map requires a filter argument"))?;
    let mapped = items.map(|item| state.apply_filter(name, &[&[item], &args[1..]].concat()));
    mapped.collect::<Result<_, _>>().map(generator)
}

pub(super) fn select(state: &State<'_, '_>, value: &Value, args: &[Value]) -> Result<Value, Error> {
    filtered(state, value, args, |item| Ok(item.clone()), true)
}

pub(super) fn reject(state: &State<'_, '_>, value: &Value, args: &[Value]) -> Result<Value, Error> {
    filtered(state, value, args, |item| Ok(item.clone()), false)
}

pub(super) fn selectattr(state: &State<'_, '_>, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let (path, args) = args.split_first().ok_or_else(|| error("Missing parameter for attribute name"))?;
    filtered(state, value, args, |item| lookup(item, path), true)
}

pub(super) fn rejectattr(state: &State<'_, '_>, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let (path, args) = args.split_first().ok_or_else(|| error("Missing parameter for attribute name"))?;
    filtered(state, value, args, |item| lookup(item, path), false)
}

// Of anything false jinja2 makes nothing, before it asks whether it could be iterated over.
fn truthy_items(value: &Value) -> Result<Vec<Value>, Error> {
    if value.is_true() { items(value) } else { Ok(Vec::new()) }
}

fn filtered(
    state: &State<'_, '_>,
    value: &Value,
    test: &[Value],
    subject: impl Fn(&Value) -> Result<Value, Error>,
    keeps: bool,
) -> Result<Value, Error> {
    let test = test.split_first().map(|(name, args)| (name.as_str().unwrap_or_default(), args));
    let mut kept = Vec::new();
    for item in truthy_items(value)? {
        let subject = subject(&item)?;
        let holds = match test {
            Some((name, args)) => state.perform_test(name, &[&[subject], args].concat())?,
            None => subject.is_true(),
        };
        if holds == keeps {
            kept.push(item);
        }
    }
    Ok(generator(kept))
}
