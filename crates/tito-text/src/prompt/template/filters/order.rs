//! Filters that compare.

use std::cmp::Ordering;

use super::super::arguments::Arguments;
use super::super::bounds;
use super::super::error::Error;
use super::super::operators;
use super::super::value::{Key, Value, error, generator, items, list, tuple, type_name};
use super::lookup;

// Python asks for `<` only, and what cannot be ordered (not a number) is not less than anything.
fn compare(left: &Value, right: &Value) -> Result<Ordering, Error> {
    Ok(operators::compare(left, right)?.unwrap_or(Ordering::Equal))
}

struct Keyed {
    key: Vec<Value>,
    item: Value,
}

// The sorting keys of each item: the item itself or its attributes, in lower case unless case matters.
fn keyed(value: &Value, attribute: Option<&Value>, case_sensitive: bool) -> Result<Vec<Keyed>, Error> {
    let paths: Vec<Value> = match attribute.map(|path| (path, path.as_str())) {
        None => Vec::new(),
        Some((_, Some(path))) => path.split(',').map(Value::from).collect(),
        Some((path, None)) => vec![path.clone()],
    };
    let fold = |key: Value| match key.as_str() {
        Some(text) if !case_sensitive => {
            bounds::look_through(text.len())?;
            Ok(Value::from(text.to_lowercase()))
        }
        _ => Ok(key),
    };
    // Each gets a list of keys.
    bounds::reserve(value.size().saturating_mul(4))?;
    items(value)?
        .into_iter()
        .map(|item| {
            let key = if paths.is_empty() {
                vec![fold(item.clone())?]
            } else {
                paths.iter().map(|path| lookup(&item, path).and_then(fold)).collect::<Result<_, _>>()?
            };
            Ok(Keyed { key, item })
        })
        .collect()
}

fn sort_keyed(keyed: &mut [Keyed], reverse: bool) -> Result<(), Error> {
    let mut failure = None;
    keyed.sort_by(|left, right| {
        if failure.is_some() {
            return Ordering::Equal;
        }
        let order = left.key.iter().zip(&right.key).try_fold(Ordering::Equal, |order, (left, right)| {
            if order == Ordering::Equal { compare(left, right) } else { Ok(order) }
        });
        let order = order.unwrap_or_else(|error| {
            failure.get_or_insert(error);
            Ordering::Equal
        });
        if reverse { order.reverse() } else { order }
    });
    failure.map_or(Ok(()), Err)
}

pub(super) fn sort(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let reverse = arguments.flag(0, "reverse")?;
    let case_sensitive = arguments.flag(1, "case_sensitive")?;
    let attribute = arguments.some(2, "attribute")?;
    arguments.end(3)?;
    let mut keyed = keyed(value, attribute.as_ref(), case_sensitive)?;
    sort_keyed(&mut keyed, reverse)?;
    Ok(list(keyed.into_iter().map(|keyed| keyed.item).collect()))
}

pub(super) fn dictsort(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let case_sensitive = arguments.flag(0, "case_sensitive")?;
    let by = arguments.string(1, "by")?.unwrap_or_else(|| "key".to_owned());
    let reverse = arguments.flag(2, "reverse")?;
    arguments.end(3)?;
    let position = match by.as_str() {
        "key" => "0",
        "value" => "1",
        _ => return Err(error("You can only sort by either \"key\" or \"value\"")),
    };
    let Value::Dict(dict) = value else {
        return Err(error(format!("'{}' object has no attribute 'items'", type_name(value))));
    };
    bounds::look_through(value.size())?;
    bounds::reserve(value.size().saturating_mul(4))?;
    let pairs = dict.entries.iter().map(|(key, value)| tuple(vec![key.value().clone(), value.clone()]));
    let pairs = list(pairs.collect());
    let mut keyed = keyed(&pairs, Some(&Value::from(position)), case_sensitive)?;
    sort_keyed(&mut keyed, reverse)?;
    Ok(list(keyed.into_iter().map(|keyed| keyed.item).collect()))
}

#[expect(clippy::mutable_key_type, reason = "what a key is hashed and compared by never changes")]
pub(super) fn unique(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let case_sensitive = arguments.flag(0, "case_sensitive")?;
    let attribute = arguments.some(1, "attribute")?;
    arguments.end(2)?;
    let mut seen = std::collections::HashSet::new();
    let mut kept = Vec::new();
    for keyed in keyed(value, attribute.as_ref(), case_sensitive)? {
        let key: Vec<Key> = keyed.key.into_iter().map(Key::new).collect::<Result<_, _>>()?;
        if seen.insert(key) {
            kept.push(keyed.item);
        }
    }
    Ok(generator(kept))
}

pub(super) fn min(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    extreme(value, arguments, Ordering::Less)
}

pub(super) fn max(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    extreme(value, arguments, Ordering::Greater)
}

fn extreme(value: &Value, arguments: &Arguments<'_>, wanted: Ordering) -> Result<Value, Error> {
    let case_sensitive = arguments.flag(0, "case_sensitive")?;
    let attribute = arguments.some(1, "attribute")?;
    arguments.end(2)?;
    let mut best: Option<Keyed> = None;
    for candidate in keyed(value, attribute.as_ref(), case_sensitive)? {
        let wins = match &best {
            None => true,
            Some(best) => compare(&candidate.key[0], &best.key[0])? == wanted,
        };
        if wins {
            best = Some(candidate);
        }
    }
    Ok(best.map_or(Value::UNDEFINED, |best| best.item))
}
