//! Regular expressions of an adapter's settings. PEFT gives them to Python's `re`.
//!
//! Only what Python and the crates that match here read alike is taken. The rest would be another pattern in silence:
//! `[a-z--q]` is a range in Python, and a difference of sets here.

use regex::Regex;
use regex_syntax::ast::{
    AssertionKind, Ast, ClassSetBinaryOp, ClassSetItem, GroupKind, Literal, LiteralKind, Span, Visitor, parse::Parser,
    visit,
};

/// What does not mean the same in the classes of both: differences, intersections and symmetric differences of sets.
const SET_OPERATIONS: [&str; 3] = ["--", "&&", "~~"];

/// A pattern that names match as a whole.
#[derive(Debug)]
pub(super) enum Pattern {
    Plain(Regex),
    /// With lookaheads, which frameworks write to leave the parts of a model out that read images.
    LookingAhead(Box<fancy_regex::Regex>),
}

impl Pattern {
    /// Reads a pattern; `None` for one that is not read here.
    pub(super) fn whole(text: &str) -> Option<Self> {
        let plain = without_lookaheads(text);
        is_read_alike(&plain).then_some(())?;
        let whole = format!(r"\A(?:{text})\z");
        if plain == text {
            return Regex::new(&whole).ok().map(Self::Plain);
        }
        fancy_regex::Regex::new(&whole).ok().map(|regex| Self::LookingAhead(Box::new(regex)))
    }

    /// Whether a name matches as a whole; `None` where that takes too long to find out.
    pub(super) fn is_match(&self, name: &str) -> Option<bool> {
        match self {
            Self::Plain(regex) => Some(regex.is_match(name)),
            Self::LookingAhead(regex) => regex.is_match(name).ok(),
        }
    }
}

/// Reads a pattern of the end of a name, from a dot on, or of all of it. Follows `get_pattern_key` of `peft/utils/other.py`.
pub(super) fn of_end(text: &str) -> Option<Regex> {
    is_read_alike(text).then(|| Regex::new(&format!(r"^(?:.*\.)?(?:{text})$")).ok())?
}

/// Reads a pattern of what stands before the number of a layer. Nothing groups the pattern, as in PEFT.
pub(super) fn of_layers(text: &str) -> Option<Regex> {
    is_read_alike(text).then(|| Regex::new(&format!(r"^(?:(?:^|.*?\.){text}\.(?P<idx>[0-9]+)\.)")).ok())?
}

/// Whether a pattern means the same in Python and here.
fn is_read_alike(text: &str) -> bool {
    Parser::new().parse(text).is_ok_and(|ast| visit(&ast, Alike { text }).is_ok())
}

/// Writes each lookahead as a group, so that what stands in it can be looked at.
fn without_lookaheads(text: &str) -> String {
    let (mut plain, mut rest, mut is_in_class) = (String::with_capacity(text.len()), text, false);
    while let Some(first) = rest.chars().next() {
        let looks_ahead = !is_in_class && (rest.starts_with("(?=") || rest.starts_with("(?!"));
        let length = match first {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '(' if looks_ahead => 3,
            '[' if !is_in_class => {
                is_in_class = true;
                // A bracket that stands first is one of the class.
                ["[^]", "[]", "[^"].iter().find(|start| rest.starts_with(**start)).map_or(1, |start| start.len())
            }
            ']' => {
                is_in_class = false;
                1
            }
            other => other.len_utf8(),
        };
        plain.push_str(if looks_ahead { "(?:" } else { &rest[..length] });
        rest = &rest[length..];
    }
    plain
}

/// Stops at what does not mean the same in Python.
struct Alike<'a> {
    text: &'a str,
}

impl Alike<'_> {
    fn text(&self, span: &Span) -> &str {
        &self.text[span.start.offset..span.end.offset]
    }
}

/// What is read alike goes on.
fn only_if(is_alike: bool) -> Result<(), ()> {
    is_alike.then_some(()).ok_or(())
}

impl Visitor for Alike<'_> {
    type Output = ();
    type Err = ();

    fn finish(self) -> Result<(), ()> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), ()> {
        only_if(match ast {
            // Python takes flags only at the beginning of all, and ours stand in a frame.
            Ast::Flags(_) | Ast::ClassUnicode(_) => false,
            Ast::Literal(literal) => is_literal(literal),
            Ast::Assertion(assertion) => matches!(
                assertion.kind,
                AssertionKind::StartLine
                    | AssertionKind::EndLine
                    | AssertionKind::StartText
                    | AssertionKind::WordBoundary
                    | AssertionKind::NotWordBoundary
            ),
            Ast::ClassBracketed(class) => {
                let text = self.text(&class.span);
                // In Python, `]-a` at the beginning is a range.
                let begins_with_range = ["[]-", "[^]-"].iter().any(|begin| text.starts_with(begin));
                !begins_with_range && !SET_OPERATIONS.iter().any(|operation| text.contains(operation))
            }
            // `a*+` takes all that it can in Python, and repeats a repetition here.
            Ast::Repetition(repetition) => {
                !matches!(*repetition.ast, Ast::Repetition(_) | Ast::Assertion(_))
                    && !self.text(&repetition.op.span).contains(char::is_whitespace)
            }
            Ast::Group(group) => match &group.kind {
                GroupKind::CaptureIndex(_) => true,
                GroupKind::CaptureName { starts_with_p, name } => {
                    *starts_with_p && name.name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
                }
                GroupKind::NonCapturing(flags) => flags.items.is_empty(),
            },
            Ast::Empty(_) | Ast::Dot(_) | Ast::ClassPerl(_) | Ast::Alternation(_) | Ast::Concat(_) => true,
        })
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), ()> {
        only_if(match item {
            ClassSetItem::Literal(literal) => is_literal(literal),
            ClassSetItem::Range(range) => is_literal(&range.start) && is_literal(&range.end),
            ClassSetItem::Perl(_) | ClassSetItem::Union(_) | ClassSetItem::Empty(_) => true,
            ClassSetItem::Ascii(_) | ClassSetItem::Unicode(_) | ClassSetItem::Bracketed(_) => false,
        })
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &ClassSetBinaryOp) -> Result<(), ()> {
        Err(())
    }
}

/// Whether Python reads a character like this: `\x{71}` is none to it.
fn is_literal(literal: &Literal) -> bool {
    !matches!(literal.kind, LiteralKind::HexBrace(_) | LiteralKind::Octal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_reads_otherwise_is_not_read() {
        for text in [
            "[a-z--q]_proj",
            "[--a]",
            "[a-z~~q]_proj",
            "[a-z&&q]_proj",
            "[a[q]]_proj",
            "[[:alpha:]]",
            r"\<q_proj\>",
            r"\b{start}q",
            "q_proj)|(k_proj",
            "(?i)q_proj",
            "(?x)q _proj",
            "(?i:q)",
            "(?<name>q)",
            r"\x{71}",
            r"\pL",
            r"[\pL]",
            r"q\z",
            "q*+",
            "q{2}{2}",
            "^*q",
            "q{ 2 }",
            "(?<=a)q",
            "(?>q)",
            r"(q)\1",
            "(?=q",
        ] {
            assert!(of_end(text).is_none() && Pattern::whole(text).is_none(), "{text}");
        }
    }

    #[test]
    fn what_both_read_alike_is_read() {
        for (text, matching, other) in [
            (r".*\.(q_proj|up_proj)", "a.q_proj", "a.k_proj"),
            (r"^a\.[0-3]\.[^.]+$", "a.2.q", "a.4.q"),
            (r"a\.\d{1,2}\.(?:q|k)_proj", "a.12.k_proj", "a.123.k_proj"),
            (r"[]a\-z]\x71", "]q", "bq"),
            ("(?P<part>q|k)_proj", "k_proj", "kk_proj"),
            // The whole name counts, whichever alternative comes first.
            ("q|q_proj", "q_proj", "q_pro"),
            ("^(?!.*(?:visual|lm_head)).*(?:q_proj|up_proj).*", "model.q_proj", "visual.q_proj"),
            (r"^(model(?=\.).*\.(q_proj|k_proj))$", "model.0.k_proj", "models.0.k_proj"),
            (r"(?![(?=]|\(?!)q", "q", "(q"),
        ] {
            let pattern = Pattern::whole(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((pattern.is_match(matching), pattern.is_match(other)), (Some(true), Some(false)), "{text}");
        }
        let slow = Pattern::whole(r"(?:(?!b)a*)*(?!a)c").unwrap();
        assert!(slow.is_match(&"a".repeat(40)) != Some(true));
    }
}
