//! Structural tags as a grammar.
//!
//! Free text ends where what must follow it begins, at its first occurrence. A special token among fixed text is
//! demanded as that token: special tokens are no text. Refuses free text whose end is not fixed text.

use serde_json::Value;

use super::{
    error::StructuredError,
    format::{Format, Tag},
    json_kinds::Kinds,
    json_schema::{JsonOptions, prepared},
    lark::{ANYTHING, escaped, pattern},
    pieces::{Expression, Json, Piece},
    regular::{self, Joining},
    told_apart,
};
use crate::tokenizer::Tokenizer;

/// Spells tags out.
struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    options: &'a JsonOptions,
    joining: Joining,
    /// How many free texts there are.
    texts: usize,
    /// Whether all JSON so far is single tokens.
    are_scalars: bool,
}

/// The texts of which one must come right after a part; an empty list stands for the end of the output.
type Then<'t> = &'t [String];

type Written = Result<Piece, StructuredError>;

/// The grammar of an output, which may yet turn out not to be exact.
pub(super) fn grammar(
    format: &Format,
    tokenizer: &Tokenizer,
    options: &JsonOptions,
) -> Result<String, StructuredError> {
    Ok(pieces(format, tokenizer, options, Joining::Expressions)?.lark())
}

/// The grammar of an output, of which every text can be sampled and no other.
pub(super) fn exact(format: &Format, tokenizer: &Tokenizer, options: &JsonOptions) -> Result<String, StructuredError> {
    let mut why = String::new();
    for joining in [Joining::Expressions, Joining::OutsideOfTags, Joining::All] {
        let written = pieces(format, tokenizer, options, joining)?;
        // Characters of fixed texts that begin alike are told apart one by one.
        for piece in [written.in_characters(), written].into_iter().rev() {
            match told_apart::check(&piece, options.brackets_are_json) {
                Ok(()) => return Ok(piece.lark()),
                Err(reason) => why = reason,
            }
        }
    }
    refused(&why)
}

fn pieces(format: &Format, tokenizer: &Tokenizer, options: &JsonOptions, joining: Joining) -> Written {
    let mut writer = Writer { tokenizer, options, joining, texts: 0, are_scalars: true };
    let written = writer.part(format, &[])?;
    if options.compact || !writer.are_scalars {
        return Ok(written);
    }
    // Within one token of JSON there is no white space, and so the compiler lets none in behind it. All JSON is written
    // alike: the compiler mistakes white space of several kinds.
    let compact = JsonOptions { compact: true, ..options.clone() };
    Writer { tokenizer, options: &compact, joining, texts: 0, are_scalars: true }.part(format, &[])
}

fn refused<T>(why: &str) -> Result<T, StructuredError> {
    Err(StructuredError::new(format!("Failed to transform structural tag into a grammar: {why}")))
}

impl Writer<'_> {
    /// What is written for `format` and then one of `then`.
    fn part(&mut self, format: &Format, then: Then<'_>) -> Written {
        if let Some(regex) = self.whole(format) {
            return self.regex(&regex, &[], then);
        }
        match format {
            Format::AnyText { excludes } => {
                let group = self.text();
                self.free(excludes, then, group)
            }
            Format::Sequence { elements } => self.sequence(elements, then),
            Format::Or { elements } => {
                if elements.is_empty() {
                    return refused("an `or` has no elements");
                }
                let choices = elements.iter().map(|element| self.part(element, then)).collect::<Result<_, _>>()?;
                Ok(Piece::Choice(choices))
            }
            Format::Optional { content } => self.repeated(content, '?', then),
            Format::Star { content } => self.repeated(content, '*', then),
            Format::Plus { content } => self.repeated(content, '+', then),
            Format::Tag(tag) => {
                let tag = self.tag(tag, "")?;
                Ok(self.followed(tag, then))
            }
            Format::TriggeredTags { .. } => self.triggered(format, then),
            Format::TagsWithSeparator { .. } => self.separated(format, then),
            Format::ConstString { value } => {
                let text = self.fixed(value);
                Ok(self.followed(text, then))
            }
            Format::JsonSchema { json_schema, style } => self.json(json_schema, style.as_deref(), then),
            Format::Regex { pattern: regex, excludes } => self.regex(regex, excludes, then),
        }
    }

    /// A part as one expression, where that tells its texts apart and parts of it would not.
    fn whole(&self, format: &Format) -> Option<String> {
        let is_part = !matches!(format, Format::Regex { .. } | Format::Sequence { .. });
        let joins = self.joining == Joining::All && is_part && regular::has_expression(format);
        joins.then(|| regular::expression(format, &|text| self.first_special(text).is_some())).flatten()
    }

    /// The number of another free text.
    fn text(&mut self) -> usize {
        self.texts += 1;
        self.texts
    }

    fn followed(&self, piece: Piece, then: Then<'_>) -> Piece {
        match then {
            [] => piece,
            _ => piece.then(Piece::Choice(then.iter().map(|text| self.fixed(text)).collect())),
        }
    }

    /// Fixed text; special tokens in it are tokens.
    fn fixed(&self, text: &str) -> Piece {
        let mut written = Vec::new();
        let mut rest = text;
        while let Some((at, id, length)) = self.first_special(rest) {
            if at > 0 {
                written.push(Piece::Text(rest[..at].to_owned()));
            }
            written.push(Piece::Special(id));
            rest = &rest[at + length..];
        }
        if !rest.is_empty() {
            written.push(Piece::Text(rest.to_owned()));
        }
        Piece::Sequence(written)
    }

    /// The first special token in a text, the longest where several begin: place, id and length.
    fn first_special(&self, text: &str) -> Option<(usize, u32, usize)> {
        let special = self.tokenizer.added_tokens().iter().filter(|token| self.tokenizer.is_special(token.id));
        let found = special
            .filter(|token| !token.content.is_empty())
            .filter_map(|token| text.find(&token.content).map(|at| (at, token.id, token.content.len())));
        found.min_by_key(|&(at, _, length)| (at, usize::MAX - length))
    }

    /// Any text, up to `then` and with it.
    fn free(&mut self, excludes: &[String], then: Then<'_>, group: usize) -> Written {
        if then.is_empty() {
            return Ok(text_without(excludes));
        }
        let mut ends = Vec::new();
        for end in then {
            ends.push(match self.first_special(end) {
                // No text holds a special token, so the text cannot run over it.
                Some((0, ..)) => text_without(excludes).then(self.fixed(end)),
                Some(_) => return refused("free text that ends with text and then a special token is not known"),
                None if end.is_empty() => return refused("free text needs an end"),
                None => Piece::Until { end: end.clone(), excludes: excludes.to_vec(), group },
            });
        }
        Ok(Piece::Choice(ends))
    }

    fn regex(&mut self, regex: &str, excludes: &[String], then: Then<'_>) -> Written {
        if !excludes.is_empty() {
            return refused("`excludes` of a regex is not known");
        }
        let expression = |pattern| Piece::Expression(Expression { pattern, excludes: Vec::new(), optional: false });
        let special = then.iter().any(|text| self.first_special(text).is_some());
        if then.is_empty() || special {
            return Ok(self.followed(expression(pattern(regex)), then));
        }
        // The ends are written as one expression, so that what follows may be told from them by more than its first
        // character.
        let ends: Vec<String> = then.iter().map(|end| escaped(end)).collect();
        Ok(expression(format!("({})({})", pattern(regex), ends.join("|"))))
    }

    fn json(&mut self, schema: &Value, style: Option<&str>, then: Then<'_>) -> Written {
        if let Some(style) = style.filter(|style| *style != "json") {
            return refused(&format!("the JSON schema style `{style}` is not known"));
        }
        // The lexer would take it for a part of the number, and forbid the number that ends there.
        let goes_on = |text: &&String| text.starts_with(|c: char| c.is_ascii_digit() || ".eE+-".contains(c));
        if let Some(text) = then.iter().find(goes_on).filter(|_| may_be_number(schema)) {
            return refused(&format!(
                "JSON that may be a number cannot be followed by {text:?}, which could go on with it"
            ));
        }
        let json = Piece::Json(self.prepared(schema)?);
        Ok(self.followed(json, then))
    }

    fn prepared(&mut self, schema: &Value) -> Result<Json, StructuredError> {
        self.are_scalars &= schema.get("x-guidance").is_none() && Kinds::of(schema).are_scalars();
        let is_spaced = !self.options.compact;
        Ok(Json { schema: prepared(schema, self.options)?, given: schema.clone(), is_spaced })
    }

    fn sequence(&mut self, elements: &[Format], then: Then<'_>) -> Written {
        let is_special = |text: &str| self.first_special(text).is_some();
        let elements = &regular::joined(elements, &is_special, self.joining, then.is_empty());
        let Some((last, before)) = elements.split_last() else { return Ok(self.followed(Piece::nothing(), then)) };
        let mut written = Vec::new();
        let mut at = 0;
        while let Some(element) = before.get(at) {
            at += 1;
            // Fixed text ends the free text before it, and the part before it must know where it may end.
            match (ends_freely(element), elements.get(at)) {
                (_, Some(Format::ConstString { value })) => {
                    if at == before.len() {
                        let ends: Vec<String> = joined(value, then);
                        written.push(self.part(element, &ends)?);
                        return Ok(Piece::Sequence(written));
                    }
                    at += 1;
                    written.push(self.part(element, std::slice::from_ref(value))?);
                }
                (false, _) => written.push(self.part(element, &[])?),
                (true, _) => return refused("only fixed text can follow free text in a sequence"),
            }
        }
        written.push(self.part(last, then)?);
        Ok(Piece::Sequence(written))
    }

    fn repeated(&mut self, content: &Format, operator: char, then: Then<'_>) -> Written {
        if ends_freely(content) {
            return refused("free text cannot be repeated");
        }
        let content = self.part(content, &[])?;
        Ok(self.followed(Piece::Repeated(Box::new(content), operator), then))
    }

    /// Writes a tag without the part of its beginning that is there already.
    fn tag(&mut self, tag: &Tag, begun: &str) -> Written {
        let rest = &tag.begin[begun.len()..];
        let content = self.part(&tag.content, tag.end.all())?;
        if rest.is_empty() { Ok(content) } else { Ok(self.fixed(rest).then(content)) }
    }

    fn tags(&mut self, tags: &[Tag]) -> Written {
        if tags.is_empty() {
            return refused("there are no tags");
        }
        Ok(Piece::Choice(tags.iter().map(|tag| self.tag(tag, "")).collect::<Result<_, _>>()?))
    }

    fn separated(&mut self, format: &Format, then: Then<'_>) -> Written {
        let Format::TagsWithSeparator { tags, separator, at_least_one, stop_after_first } = format else {
            return refused("there are no tags");
        };
        let tag = self.tags(tags)?;
        let repeated = |piece, operator| Piece::Repeated(Box::new(piece), operator);
        let tags = match (stop_after_first, separator.as_str()) {
            (true, _) => tag,
            (false, "") => repeated(tag, '+'),
            (false, separator) => Piece::Separated(Box::new(tag), Box::new(self.fixed(separator))),
        };
        let tags = if *at_least_one { tags } else { repeated(tags, '?') };
        Ok(self.followed(tags, then))
    }

    fn triggered(&mut self, format: &Format, then: Then<'_>) -> Written {
        let Format::TriggeredTags { triggers, tags, at_least_one, stop_after_first, excludes } = format else {
            return refused("there are no tags");
        };
        let first = if *at_least_one { Some(self.tags(tags)?) } else { None };
        if let (Some(first), true) = (&first, stop_after_first) {
            return Ok(self.followed(first.clone(), then));
        }
        let group = self.text();
        let mut begun = Vec::new();
        for trigger in triggers {
            let others = excludes.iter().chain(triggers.iter().filter(|other| *other != trigger)).cloned();
            let lead = self.free(&others.collect::<Vec<_>>(), std::slice::from_ref(trigger), group)?;
            begun.push(self.after_trigger(trigger, lead, tags)?);
        }
        if begun.is_empty() || tags.iter().any(|tag| !triggers.iter().any(|trigger| tag.begin.starts_with(trigger))) {
            return refused("every tag must begin with a trigger");
        }
        let tag = Piece::Choice(begun);
        let untriggered: Vec<String> = excludes.iter().chain(triggers).cloned().collect();
        let text = self.free(&untriggered, then, group)?;
        let written = if *stop_after_first {
            Piece::Choice(vec![self.followed(tag, then), text])
        } else {
            Piece::Sequence(vec![Piece::Repeated(Box::new(tag), '*'), text])
        };
        Ok(match first {
            Some(first) => Piece::Sequence(vec![first, written]),
            None => written,
        })
    }

    /// What leads to a trigger, and the rest of a tag that begins with it.
    fn after_trigger(&mut self, trigger: &str, lead: Piece, tags: &[Tag]) -> Written {
        let of_trigger = tags.iter().filter(|tag| tag.begin.starts_with(trigger));
        let rests = of_trigger.map(|tag| self.tag(tag, trigger)).collect::<Result<Vec<_>, _>>()?;
        if rests.is_empty() {
            return refused(&format!("no tag begins with the trigger {trigger:?}"));
        }
        Ok(Piece::Sequence(vec![lead, Piece::Choice(rests)]))
    }
}

/// Any text, or none.
fn text_without(excludes: &[String]) -> Piece {
    Piece::Expression(Expression {
        // Some text: a part that may be none is said to be so.
        pattern: ANYTHING.replace('*', "+"),
        excludes: excludes.to_vec(),
        optional: true,
    })
}

/// `value` before each of `then`.
fn joined(value: &str, then: Then<'_>) -> Vec<String> {
    match then {
        [] => vec![value.to_owned()],
        _ => then.iter().map(|end| format!("{value}{end}")).collect(),
    }
}

/// Whether a schema may be that of a number, as far as its type and values tell.
fn may_be_number(schema: &Value) -> bool {
    let Value::Object(entries) = schema else { return *schema != Value::Bool(false) };
    let is_number = |kind: &Value| kind == "number" || kind == "integer";
    match (entries.get("type"), entries.get("const"), entries.get("enum")) {
        (Some(Value::String(kind)), ..) => kind == "number" || kind == "integer",
        (Some(Value::Array(kinds)), ..) => kinds.iter().any(is_number),
        (_, Some(value), _) => value.is_number(),
        (.., Some(Value::Array(values))) => values.iter().any(Value::is_number),
        _ => true,
    }
}

/// Whether a part ends with text that would take in what follows.
fn ends_freely(format: &Format) -> bool {
    match format {
        Format::AnyText { .. } => true,
        Format::TriggeredTags { stop_after_first, at_least_one, .. } => !(*stop_after_first && *at_least_one),
        Format::Sequence { elements } => elements.last().is_some_and(ends_freely),
        Format::Or { elements } => elements.iter().any(ends_freely),
        Format::Optional { content } | Format::Star { content } | Format::Plus { content } => ends_freely(content),
        Format::ConstString { .. }
        | Format::JsonSchema { .. }
        | Format::Regex { .. }
        | Format::Tag(_)
        | Format::TagsWithSeparator { .. } => false,
    }
}
