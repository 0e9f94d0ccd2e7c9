//! Parts of structural tags that a regular expression can say.
//!
//! The lexer takes as much text for an expression as it can, and leaves nothing of it to what follows. So an expression and the
//! regular parts after it become one expression, which knows where it may end.

use super::{
    format::Format,
    lark::{escaped, without_anchors},
};

/// The parts with sequences within them written out, and with each expression joined with what follows it. Text in which
/// `is_special` finds a special token is no regular part.
pub(super) fn joined(elements: &[Format], is_special: &impl Fn(&str) -> bool) -> Vec<Format> {
    let mut parts: Vec<Format> = Vec::new();
    let mut open: Option<String> = None;
    for element in flat(elements) {
        let regular = expression(element, is_special);
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
fn expression(format: &Format, is_special: &impl Fn(&str) -> bool) -> Option<String> {
    let each = |elements: &[Format]| {
        elements.iter().map(|element| expression(element, is_special)).collect::<Option<Vec<String>>>()
    };
    let repeated = |content: &Format, operator: &str| Some(expression(content, is_special)? + operator);
    match format {
        Format::ConstString { value } if !is_special(value) => Some(format!("(?:{})", escaped(value))),
        Format::Regex { pattern, excludes } if excludes.is_empty() => Some(format!("(?:{})", without_anchors(pattern))),
        Format::Sequence { elements } => Some(format!("(?:{})", each(elements)?.concat())),
        Format::Or { elements } if !elements.is_empty() => Some(format!("(?:{})", each(elements)?.join("|"))),
        Format::Optional { content } => repeated(content, "?"),
        Format::Star { content } => repeated(content, "*"),
        Format::Plus { content } => repeated(content, "+"),
        _ => None,
    }
}

/// Whether an expression is among the regular parts: fixed text alone needs none.
fn has_expression(format: &Format) -> bool {
    match format {
        Format::Regex { .. } => true,
        Format::Sequence { elements } | Format::Or { elements } => elements.iter().any(has_expression),
        Format::Optional { content } | Format::Star { content } | Format::Plus { content } => has_expression(content),
        _ => false,
    }
}
