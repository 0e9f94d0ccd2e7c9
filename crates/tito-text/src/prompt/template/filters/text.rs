//! Filters that make text.

use super::super::arguments::Arguments;
use super::super::bounds;
use super::super::error::Error;
use super::super::print;
use super::super::text::{self as python, Ends};
use super::super::value::{Value, as_float, as_integer, error, type_name};
use super::{indentation, to_str};

pub(super) fn string(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    to_str(value).map(Value::from)
}

pub(super) fn upper(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    Ok(Value::from(to_str(value)?.to_uppercase()))
}

pub(super) fn lower(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    Ok(Value::from(to_str(value)?.to_lowercase()))
}

pub(super) fn capitalize(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    Ok(Value::from(python::capitalize(&to_str(value)?)))
}

/// A capital after each space, hyphen or opening bracket; unlike Python's own `str.title`.
pub(super) fn title(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    let mut titled = String::new();
    let mut starts = true;
    for c in to_str(value)?.chars() {
        if starts {
            titled.extend(c.to_uppercase());
        } else {
            titled.extend(c.to_lowercase());
        }
        starts = python::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    }
    Ok(Value::from(titled))
}

pub(super) fn trim(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let chars = arguments.string(0, "chars")?;
    arguments.end(1)?;
    Ok(Value::from(python::strip(&to_str(value)?, chars.as_deref(), Ends::Both)))
}

pub(super) fn replace(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let old = to_str(&arguments.require(0, "old")?)?;
    let new = to_str(&arguments.require(1, "new")?)?;
    let limit = arguments.integer(2, "count")?.and_then(|count| usize::try_from(count).ok());
    arguments.end(3)?;
    python::replace(&to_str(value)?, &old, &new, limit).map(Value::from)
}

pub(super) fn indent(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let width = arguments.get(0, "width")?.unwrap_or_else(|| Value::Int(4));
    let first = arguments.flag(1, "first")?;
    let blank = arguments.flag(2, "blank")?;
    arguments.end(3)?;
    let indentation = indentation(&width)?;
    let Some(text) = value.as_str() else {
        return Err(error(format!("indent() takes a str, not {}", type_name(value))));
    };
    // The line end added here and dropped by the split is what keeps a final one.
    let text = [text, "\n"].concat();
    let mut indented = String::with_capacity(text.len());
    for (index, line) in python::split_lines(&text, false).into_iter().enumerate() {
        if index > 0 {
            indented.push('\n');
        }
        let indents = if index == 0 { first } else { blank || !line.is_empty() };
        if indents {
            indented.push_str(&indentation);
        }
        indented.push_str(line);
        bounds::reserve(indented.len())?;
    }
    Ok(Value::from(indented))
}

pub(super) fn center(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let width = arguments.integer(0, "width")?.unwrap_or(80).min(MAX_WIDTH);
    arguments.end(1)?;
    let text = to_str(value)?;
    let width = usize::try_from(width).unwrap_or(0);
    let missing = width.saturating_sub(text.chars().count());
    let left = missing / 2 + (missing & width & 1);
    Ok(Value::from(format!("{}{text}{}", " ".repeat(left), " ".repeat(missing - left))))
}

const MAX_WIDTH: i64 = 10_000;

pub(super) fn escape(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    let mut escaped = String::new();
    for c in to_str(value)?.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            _ => escaped.push(c),
        }
    }
    Ok(Value::from(escaped))
}

/// `"…" % arguments` for `%s`, `%r`, `%d` and `%%`.
pub(super) fn format(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let template = to_str(value)?;
    let mut formatted = String::new();
    let mut taken = 0;
    let mut chars = template.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            formatted.push(c);
            continue;
        }
        let directive = chars.next();
        if directive == Some('%') {
            formatted.push('%');
            continue;
        }
        let argument = arguments.get(taken, "")?.ok_or_else(|| error("not enough arguments for format string"))?;
        taken += 1;
        match directive {
            Some('s') => formatted.push_str(&to_str(&argument)?),
            Some('r') => formatted.push_str(&print::repr(&argument)?),
            Some('d') => {
                let integer = as_integer(&argument).or_else(|| truncated(&argument));
                let integer = integer.ok_or_else(|| error("%d format: a real number is required"))?;
                formatted.push_str(&integer.to_string());
            }
            _ => return Err(error("format() knows %s, %r, %d and %% only")),
        }
        bounds::reserve(formatted.len())?;
    }
    if arguments.get(taken, "")?.is_some() {
        return Err(error("not all arguments converted during string formatting"));
    }
    arguments.end(taken)?;
    Ok(Value::from(formatted))
}

fn truncated(value: &Value) -> Option<i128> {
    as_float(value).and_then(super::number::truncate)
}
