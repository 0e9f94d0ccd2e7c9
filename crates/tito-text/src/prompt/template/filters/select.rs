//! Filters that apply other filters and tests to each item.

use super::super::arguments::{Arguments, CallArguments};
use super::super::bounds;
use super::super::error::Error;
use super::super::predicates;
use super::super::value::{Value, error, generator, items};
use super::lookup;

pub(super) fn map(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let items = truthy_items(value)?.into_iter();
    let Some((name, given)) = arguments.positional().split_first() else {
        let path = arguments.get(0, "attribute")?.ok_or_else(|| error("map requires a filter argument"))?;
        let default = arguments.get(1, "default")?;
        arguments.end(0)?;
        let mapped = items.map(|item| {
            let found = lookup(&item, &path)?;
            Ok(match &default {
                Some(default) if found.is_undefined() => default.clone(),
                _ => found,
            })
        });
        return mapped.collect::<Result<_, Error>>().map(generator);
    };
    let name = name.as_str().ok_or_else(|| error("map requires a filter argument"))?;
    let filter = super::find(name);
    let mapped = items.map(|item| {
        let given =
            CallArguments { positional: given.to_vec(), named: arguments.named().to_vec(), ..CallArguments::default() };
        super::apply(name, filter, &item, &Arguments::new(name, given))
    });
    mapped.collect::<Result<_, _>>().map(generator)
}

pub(super) fn select(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    filtered(value, arguments, None, true)
}

pub(super) fn reject(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    filtered(value, arguments, None, false)
}

pub(super) fn selectattr(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    filtered(value, arguments, Some(attribute(arguments)?), true)
}

pub(super) fn rejectattr(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    filtered(value, arguments, Some(attribute(arguments)?), false)
}

fn attribute<'a>(arguments: &'a Arguments<'_>) -> Result<&'a Value, Error> {
    arguments.positional().first().ok_or_else(|| error("Missing parameter for attribute name"))
}

// jinja2 makes no items of anything false, before it asks whether it could be iterated over.
fn truthy_items(value: &Value) -> Result<Vec<Value>, Error> {
    if value.is_true() { items(value) } else { Ok(Vec::new()) }
}

// Keeps the items whose attribute, or that themselves, pass the test that the arguments name, or are true.
fn filtered(value: &Value, arguments: &Arguments<'_>, attribute: Option<&Value>, keeps: bool) -> Result<Value, Error> {
    let test = arguments.positional().get(usize::from(attribute.is_some())..).and_then(<[Value]>::split_first);
    let test = test.map(|(name, given)| (name.as_str().unwrap_or_default(), given));
    let predicate = test.and_then(|(name, _)| super::predicate(name));
    let mut kept = Vec::new();
    for item in truthy_items(value)? {
        bounds::step()?;
        let subject = attribute.map_or_else(|| Ok(item.clone()), |path| lookup(&item, path))?;
        let holds = match test {
            Some((name, given)) => {
                let given = CallArguments {
                    positional: given.to_vec(),
                    named: arguments.named().to_vec(),
                    ..CallArguments::default()
                };
                predicates::ask(name, predicate, &subject, &Arguments::new(name, given))?
            }
            None => subject.is_true(),
        };
        if holds == keeps {
            kept.push(item);
        }
    }
    Ok(generator(kept))
}
