//! The methods of strings.

use super::super::arguments::Arguments;
use super::super::bounds;
use super::super::error::Error;
use super::super::slice;
use super::super::text::{self, Ends};
use super::super::value::{Value, ValueKind, as_integer, error, items, list, tuple, type_name};

pub(super) fn call(receiver: &str, name: &str, arguments: &Arguments<'_>) -> Result<Option<Value>, Error> {
    if let Some(result) = plain(receiver, name) {
        arguments.end(0)?;
        return Ok(Some(result));
    }
    let result = match name {
        "strip" | "lstrip" | "rstrip" => {
            let ends = match name {
                "lstrip" => Ends::Left,
                "rstrip" => Ends::Right,
                _ => Ends::Both,
            };
            let chars = arguments.string(0, "chars")?;
            arguments.end(1)?;
            Value::from(text::strip(receiver, chars.as_deref(), ends))
        }
        "split" | "rsplit" => split(receiver, name == "rsplit", arguments)?,
        "splitlines" => {
            let keep_ends = arguments.flag(0, "keepends")?;
            arguments.end(1)?;
            reserve_parts(receiver.matches(['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']).count())?;
            strings(&text::split_lines(receiver, keep_ends))?
        }
        "partition" | "rpartition" => partition(receiver, name == "rpartition", arguments)?,
        "startswith" | "endswith" => Value::from(affix(receiver, name == "startswith", arguments)?),
        "removeprefix" | "removesuffix" => {
            let affix = arguments.require_string(0, "affix")?;
            arguments.end(1)?;
            let rest =
                if name == "removeprefix" { receiver.strip_prefix(&*affix) } else { receiver.strip_suffix(&*affix) };
            Value::from(rest.unwrap_or(receiver))
        }
        "replace" => {
            let old = arguments.require_string(0, "old")?;
            let new = arguments.require_string(1, "new")?;
            let limit = arguments.integer(2, "count")?.and_then(|count| usize::try_from(count).ok());
            arguments.end(3)?;
            Value::from(text::replace(receiver, &old, &new, limit)?)
        }
        "join" => {
            let parts = items(&arguments.require(0, "iterable")?)?;
            arguments.end(1)?;
            join(receiver, &parts)?
        }
        "count" | "find" | "rfind" | "index" | "rindex" => search(receiver, name, arguments)?,
        "ljust" | "rjust" | "center" | "zfill" => pad(receiver, name, arguments)?,
        "format" => fill_in(receiver, arguments)?,
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// `str.format` for `{}`, `{{` and `}}`, with strings and integers. As in Python, more arguments than places are ignored.
fn fill_in(receiver: &str, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let mut filled = String::new();
    let mut taken = 0;
    let mut rest = receiver;
    while let Some(at) = rest.find(['{', '}']) {
        filled.push_str(&rest[..at]);
        let field = rest.get(at..at + 2).unwrap_or_default();
        match field {
            "{{" | "}}" => filled.push_str(&field[..1]),
            "{}" => {
                let argument = arguments.positional().get(taken);
                let argument = argument.ok_or_else(|| error("not enough arguments for str.format()"))?;
                taken += 1;
                match (argument.as_str(), as_integer(argument)) {
                    (Some(text), _) => filled.push_str(text),
                    (None, Some(integer)) if type_name(argument) == "int" => filled.push_str(&integer.to_string()),
                    _ => return Err(error("str.format() takes only strings and integers here")),
                }
            }
            _ => return Err(error("str.format() knows only {}, {{ and }} here")),
        }
        bounds::reserve(filled.len())?;
        rest = &rest[at + 2..];
    }
    filled.push_str(rest);
    bounds::reserve(filled.len())?;
    Ok(Value::from(filled))
}

fn plain(receiver: &str, name: &str) -> Option<Value> {
    let any_and_all = |accepts: fn(char) -> bool| !receiver.is_empty() && receiver.chars().all(accepts);
    Some(match name {
        "upper" => Value::from(receiver.to_uppercase()),
        "lower" => Value::from(receiver.to_lowercase()),
        "capitalize" => Value::from(text::capitalize(receiver)),
        "title" => Value::from(text::title(receiver)),
        "isspace" => Value::from(any_and_all(text::is_space)),
        "isascii" => Value::from(receiver.is_ascii()),
        "isupper" => Value::from(receiver.chars().any(char::is_uppercase) && !receiver.chars().any(char::is_lowercase)),
        "islower" => Value::from(receiver.chars().any(char::is_lowercase) && !receiver.chars().any(char::is_uppercase)),
        // Which of the other scripts' letters and digits count is a matter of tables that std lacks.
        "isdigit" | "isdecimal" | "isnumeric" if receiver.is_ascii() => {
            Value::from(any_and_all(|c| c.is_ascii_digit()))
        }
        "isalnum" if receiver.is_ascii() => Value::from(any_and_all(|c| c.is_ascii_alphanumeric())),
        "isalpha" if receiver.is_ascii() => Value::from(any_and_all(|c| c.is_ascii_alphabetic())),
        _ => return None,
    })
}

// Each part becomes a value of its own, which takes more than its text.
// The parts are held as slices of the text before each becomes a value.
fn reserve_parts(count: usize) -> Result<(), Error> {
    bounds::reserve(count.saturating_mul(size_of::<&str>() * 2 + 3 * size_of::<Value>()))
}

fn strings(parts: &[&str]) -> Result<Value, Error> {
    bounds::look_through(parts.len().saturating_mul(size_of::<Value>()))?;
    bounds::reserve(parts.iter().map(|part| part.len() + 3 * size_of::<Value>()).sum())?;
    Ok(list(parts.iter().copied().map(Value::from).collect()))
}

fn split(receiver: &str, from_right: bool, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let separator = arguments.string(0, "sep")?;
    let limit = arguments.integer(1, "maxsplit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    arguments.end(2)?;
    let Some(separator) = separator else {
        reserve_parts(receiver.split(text::is_space).take(limit).filter(|word| !word.is_empty()).count())?;
        return strings(&if from_right {
            text::rsplit_spaces(receiver, limit)
        } else {
            text::split_spaces(receiver, limit)
        });
    };
    if separator.is_empty() {
        return Err(error("empty separator"));
    }
    let pieces = limit.saturating_add(1);
    reserve_parts(receiver.matches(&*separator).take(limit).count())?;
    strings(&if from_right {
        let mut parts: Vec<&str> = receiver.rsplitn(pieces, &*separator).collect();
        parts.reverse();
        parts
    } else {
        receiver.splitn(pieces, &*separator).collect()
    })
}

fn partition(receiver: &str, from_right: bool, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let separator = arguments.require_string(0, "sep")?;
    arguments.end(1)?;
    if separator.is_empty() {
        return Err(error("empty separator"));
    }
    let found = if from_right { receiver.rsplit_once(&*separator) } else { receiver.split_once(&*separator) };
    let parts = match found {
        Some((before, after)) => [before, &separator, after],
        None if from_right => ["", "", receiver],
        None => [receiver, "", ""],
    };
    Ok(tuple(parts.into_iter().map(Value::from).collect()))
}

fn affix(receiver: &str, at_start: bool, arguments: &Arguments<'_>) -> Result<bool, Error> {
    let wanted = arguments.require(0, "affix")?;
    let part = slice::part(receiver, arguments.integer(1, "start")?, arguments.integer(2, "end")?);
    arguments.end(3)?;
    let candidates = match wanted.kind() {
        ValueKind::String => vec![wanted],
        ValueKind::Seq if type_name(&wanted) == "tuple" => items(&wanted)?,
        _ => return Err(error(format!("affix must be str or a tuple of str, not {}", type_name(&wanted)))),
    };
    for candidate in &candidates {
        let Some(affix) = candidate.as_str() else {
            return Err(error(format!("affix must be str, not {}", type_name(candidate))));
        };
        // An empty affix is not found where the range itself is out of bounds.
        if part.is_some_and(|part| if at_start { part.starts_with(affix) } else { part.ends_with(affix) }) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn join(separator: &str, parts: &[Value]) -> Result<Value, Error> {
    let mut texts = Vec::with_capacity(parts.len());
    let mut length = 0_usize;
    for (index, part) in parts.iter().enumerate() {
        let text = part
            .as_str()
            .ok_or_else(|| error(format!("sequence item {index}: expected str instance, {} found", type_name(part))))?;
        length = length.saturating_add(text.len() + separator.len());
        texts.push(text);
    }
    bounds::look_through(length)?;
    bounds::reserve(length)?;
    Ok(Value::from(texts.join(separator)))
}

fn search(receiver: &str, name: &str, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let wanted = arguments.require_string(0, "sub")?;
    let (start, end) = (arguments.integer(1, "start")?, arguments.integer(2, "end")?);
    arguments.end(3)?;
    let part = slice::part(receiver, start, end);
    if name == "count" {
        return Ok(Value::from(part.map_or(0, |part| part.matches(&*wanted).count())));
    }
    let found = part.and_then(|part| {
        let offset = if name.starts_with('r') { part.rfind(&*wanted) } else { part.find(&*wanted) }?;
        // As a position in the whole string, counted in characters.
        let before = receiver.len() - slice::part(receiver, start, None)?.len();
        Some(receiver[..before + offset].chars().count())
    });
    match found {
        Some(position) => Ok(Value::from(position)),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => Err(error("substring not found")),
    }
}

fn pad(receiver: &str, name: &str, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let width = usize::try_from(arguments.integer(0, "width")?.unwrap_or(0)).unwrap_or(0);
    let fill = if name == "zfill" { None } else { arguments.string(1, "fillchar")? };
    arguments.end(if name == "zfill" { 1 } else { 2 })?;
    let default = if name == "zfill" { "0" } else { " " };
    let fill = fill.as_deref().unwrap_or(default);
    if fill.chars().count() != 1 {
        return Err(error("the fill character must be exactly one character long"));
    }
    let length = receiver.chars().count();
    let missing = width.saturating_sub(length);
    bounds::reserve(missing.saturating_mul(fill.len()))?;
    let (left, right) = match name {
        "ljust" => (0, missing),
        // CPython puts the odd space on the left where the width is odd.
        "center" => {
            let left = missing / 2 + (missing & width & 1);
            (left, missing - left)
        }
        _ => (missing, 0),
    };
    if name == "zfill" {
        let (sign, digits) = receiver.split_at(usize::from(receiver.starts_with(['+', '-'])));
        return Ok(Value::from(format!("{sign}{}{digits}", "0".repeat(missing))));
    }
    Ok(Value::from(format!("{}{receiver}{}", fill.repeat(left), fill.repeat(right))))
}
