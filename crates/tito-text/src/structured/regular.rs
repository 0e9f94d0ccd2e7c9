//! Parts of structural tags that a regular expression can say.
//!
//! The lexer takes as much text for an expression as it can, and leaves nothing of it to what follows. So an expression and the
//! regular parts after it become one expression, which knows where it may end.

use super::{
    format::{Ends, Format, Tag},
    groups,
    lark::{ANYTHING, escaped, without_anchors},
};

/// What is joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joining {
    /// An expression and the regular parts right after it.
    Expressions,
    /// The same, but nothing with a tag in it.
    OutsideOfTags,
    /// Whatever has an expression in it, with the beginning of the tag that follows it, or with free text at the end.
    All,
}

/// The parts with sequences within them written out, and with each expression joined with what follows it. Text in which
/// `is_special` finds a special token is no regular part. `at_end` says that nothing has to follow.
pub(super) fn joined(
    elements: &[Format],
    is_special: &impl Fn(&str) -> bool,
    joining: Joining,
    at_end: bool,
) -> Vec<Format> {
    let mut parts: Vec<Format> = Vec::new();
    let mut open: Option<String> = None;
    let elements = flat(elements);
    for (index, &element) in elements.iter().enumerate() {
        let regular = match (element, joining) {
            (Format::Tag(_) | Format::TagsWithSeparator { .. }, Joining::Expressions) => None,
            (element, Joining::OutsideOfTags) if has_tag(element) => None,
            _ => expression(element, is_special),
        };
        if joining == Joining::All && regular.is_none() {
            let is_last = at_end && index + 1 == elements.len();
            if let Some(before) = open.take() {
                match element {
                    Format::AnyText { excludes } if is_last && excludes.is_empty() => {
                        parts.push(of_expression(format!("{before}{ANYTHING}")));
                    }
                    Format::Tag(Tag { begin, content, end: Ends::One(end), .. }) if !is_special(begin) => {
                        parts.push(of_expression(before + &escaped(begin)));
                        parts.push((**content).clone());
                        parts.push(Format::text(end.clone()));
                    }
                    _ => parts.extend([of_expression(before), element.clone()]),
                }
                continue;
            }
        }
        open = match (open, regular) {
            (Some(before), Some(next)) => Some(before + &next),
            (None, Some(next)) if has_expression(element) => Some(next),
            (before, _) => {
                parts.extend(before.map(of_expression));
                parts.push(element.clone());
                None
            }
        };
    }
    parts.extend(open.map(of_expression));
    parts
}

fn of_expression(pattern: String) -> Format {
    Format::Regex { pattern, excludes: Vec::new() }
}

fn flat(elements: &[Format]) -> Vec<&Format> {
    let parts = elements.iter().map(|element| match element {
        Format::Sequence { elements } => flat(elements),
        other => vec![other],
    });
    parts.flatten().collect()
}

/// What a part is as an expression, where it is regular.
pub(super) fn expression(format: &Format, is_special: &impl Fn(&str) -> bool) -> Option<String> {
    let each = |elements: &[Format]| {
        elements.iter().map(|element| expression(element, is_special)).collect::<Option<Vec<String>>>()
    };
    let repeated = |content: &Format, operator: &str| Some(expression(content, is_special)? + operator);
    match format {
        Format::ConstString { value } if !is_special(value) => Some(format!("(?:{})", escaped(value))),
        Format::Regex { pattern, excludes } if excludes.is_empty() => {
            Some(format!("(?:{})", groups::without_names(without_anchors(pattern))))
        }
        Format::Sequence { elements } => Some(format!("(?:{})", each(elements)?.concat())),
        Format::Or { elements } if !elements.is_empty() => Some(format!("(?:{})", each(elements)?.join("|"))),
        Format::Optional { content } => repeated(content, "?"),
        Format::Star { content } => repeated(content, "*"),
        Format::Plus { content } => repeated(content, "+"),
        Format::Tag(tag) => of_tag(tag, is_special),
        Format::TagsWithSeparator { tags, separator, at_least_one, stop_after_first }
            if !tags.is_empty() && !is_special(separator) =>
        {
            let tags = tags.iter().map(|tag| of_tag(tag, is_special)).collect::<Option<Vec<_>>>()?.join("|");
            let optional = if *at_least_one { "" } else { "?" };
            Some(match stop_after_first {
                true => format!("(?:{tags}){optional}"),
                false => format!("(?:(?:{tags})(?:{}(?:{tags}))*){optional}", escaped(separator)),
            })
        }
        _ => None,
    }
}

fn of_tag(tag: &Tag, is_special: &impl Fn(&str) -> bool) -> Option<String> {
    let ends = tag.end.all();
    if is_special(&tag.begin) || ends.is_empty() || ends.iter().any(|end| is_special(end)) {
        return None;
    }
    let content = expression(&tag.content, is_special)?;
    let ends: Vec<String> = ends.iter().map(|end| escaped(end)).collect();
    Some(format!("(?:{}{content}(?:{}))", escaped(&tag.begin), ends.join("|")))
}

/// Whether there is a tag among the parts.
fn has_tag(format: &Format) -> bool {
    match format {
        Format::Tag(_) | Format::TagsWithSeparator { .. } => true,
        Format::Sequence { elements } | Format::Or { elements } => elements.iter().any(has_tag),
        Format::Optional { content } | Format::Star { content } | Format::Plus { content } => has_tag(content),
        _ => false,
    }
}

/// Whether an expression is among the regular parts: fixed text alone needs none.
pub(super) fn has_expression(format: &Format) -> bool {
    match format {
        Format::Regex { .. } => true,
        Format::Sequence { elements } | Format::Or { elements } => elements.iter().any(has_expression),
        Format::Optional { content } | Format::Star { content } | Format::Plus { content } => has_expression(content),
        Format::Tag(tag) => has_expression(&tag.content),
        Format::TagsWithSeparator { tags, .. } => tags.iter().any(|tag| has_expression(&tag.content)),
        _ => false,
    }
}
