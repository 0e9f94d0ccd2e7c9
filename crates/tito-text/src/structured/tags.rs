//! Structural tags as a grammar.
//!
//! Free text ends where what must follow it begins, at its first occurrence. A special token among fixed text is
//! demanded as that token: special tokens are no text. Refuses free text whose end is not fixed text.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    error::StructuredError,
    format::{Format, Tag},
    json_schema::{JsonOptions, prepared},
    lark::{ANYTHING, escaped, literal, pattern},
    regular,
};
use crate::tokenizer::Tokenizer;

/// Writes rules.
pub(super) struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    options: &'a JsonOptions,
    rules: String,
    count: usize,
}

/// The texts of which one must come right after a part; an empty list stands for the end of the output.
type Then<'t> = &'t [String];

type Written = Result<String, StructuredError>;

/// The grammar of an output.
pub(super) fn grammar(format: &Format, tokenizer: &Tokenizer, options: &JsonOptions) -> Written {
    let mut writer = Writer { tokenizer, options, rules: String::new(), count: 0 };
    let start = writer.part(format, &[])?;
    Ok(format!("start: {start}\n{}", writer.rules))
}

fn refused<T>(why: &str) -> Result<T, StructuredError> {
    Err(StructuredError::new(format!("Failed to transform structural tag into a grammar: {why}")))
}

impl Writer<'_> {
    /// An expression for `format` and then one of `then`.
    fn part(&mut self, format: &Format, then: Then<'_>) -> Written {
        match format {
            Format::AnyText { excludes } => self.free(excludes, then),
            Format::Sequence { elements } => self.sequence(elements, then),
            Format::Or { elements } => {
                if elements.is_empty() {
                    return refused("an `or` has no elements");
                }
                let choices = elements.iter().map(|element| self.part(element, then)).collect::<Result<Vec<_>, _>>()?;
                Ok(format!("({})", choices.join(" | ")))
            }
            Format::Optional { content } => self.repeated(content, "?", then),
            Format::Star { content } => self.repeated(content, "*", then),
            Format::Plus { content } => self.repeated(content, "+", then),
            Format::Tag(tag) => {
                let tag = self.tag(tag, "")?;
                Ok(self.followed(&tag, then))
            }
            Format::TriggeredTags { .. } => self.triggered(format, then),
            Format::TagsWithSeparator { .. } => self.separated(format, then),
            Format::ConstString { value } => {
                let text = self.fixed(value);
                Ok(self.followed(&text, then))
            }
            Format::JsonSchema { json_schema, style } => self.json(json_schema, style.as_deref(), then),
            Format::Regex { pattern: regex, excludes } => self.regex(regex, excludes, then),
        }
    }

    fn followed(&self, expression: &str, then: Then<'_>) -> String {
        match then {
            [] => expression.to_owned(),
            _ => format!("{expression} {}", self.one_of(then)),
        }
    }

    fn one_of(&self, texts: &[String]) -> String {
        let texts: Vec<String> = texts.iter().map(|text| self.fixed(text)).collect();
        format!("({})", texts.join(" | "))
    }

    /// Fixed text; special tokens in it are tokens.
    fn fixed(&self, text: &str) -> String {
        let mut written = Vec::new();
        let mut rest = text;
        while let Some((at, id, length)) = self.first_special(rest) {
            if at > 0 {
                written.push(literal(&rest[..at]));
            }
            written.push(format!("<[{id}]>"));
            rest = &rest[at + length..];
        }
        if !rest.is_empty() || written.is_empty() {
            written.push(literal(rest));
        }
        format!("({})", written.join(" "))
    }

    /// The first special token in a text, the longest where several begin: place, id and length.
    fn first_special(&self, text: &str) -> Option<(usize, u32, usize)> {
        let special = self.tokenizer.added_tokens().iter().filter(|token| self.tokenizer.is_special(token.id));
        let found = special
            .filter(|token| !token.content.is_empty())
            .filter_map(|token| text.find(&token.content).map(|at| (at, token.id, token.content.len())));
        found.min_by_key(|&(at, _, length)| (at, usize::MAX - length))
    }

    fn rule(&mut self, attributes: &str, body: &str) -> String {
        let name = format!("r{}", self.count);
        self.count += 1;
        let _ = writeln!(self.rules, "{name}{attributes}: {body}");
        name
    }

    fn terminal(&mut self, body: &str) -> String {
        let name = format!("T{}", self.count);
        self.count += 1;
        let _ = writeln!(self.rules, "{name}: {body}");
        name
    }

    /// Any text, up to `then` and with it.
    fn free(&mut self, excludes: &[String], then: Then<'_>) -> Written {
        if then.is_empty() {
            return Ok(self.text_without(excludes));
        }
        let mut ends = Vec::new();
        for end in then {
            ends.push(match self.first_special(end) {
                // No text holds a special token, so the text cannot run over it.
                Some((0, ..)) => format!("{} {}", self.text_without(excludes), self.fixed(end)),
                Some(_) => return refused("free text that ends with text and then a special token is not known"),
                None if end.is_empty() => return refused("free text needs an end"),
                None => self.text_until(end, excludes),
            });
        }
        Ok(format!("({})", ends.join(" | ")))
    }

    /// Any text, or none.
    fn text_without(&mut self, excludes: &[String]) -> String {
        let body = format!("/(.|\\n)+/{}", without(excludes));
        format!("{}?", self.terminal(&body))
    }

    /// Any text that ends with the first `end`.
    fn text_until(&mut self, end: &str, excludes: &[String]) -> String {
        let attributes = format!("[suffix={}]", literal(end));
        let body = format!("/{ANYTHING}/{}", without(excludes));
        self.rule(&attributes, &body)
    }

    fn regex(&mut self, regex: &str, excludes: &[String], then: Then<'_>) -> Written {
        if !excludes.is_empty() {
            return refused("`excludes` of a regex is not known");
        }
        let special = then.iter().any(|text| self.first_special(text).is_some());
        if then.is_empty() || special {
            let text = self.terminal(&format!("/{}/", pattern(regex)));
            return Ok(self.followed(&text, then));
        }
        // The ends are written as one expression, so that what follows may be told from them by more than its first
        // character.
        let ends: Vec<String> = then.iter().map(|end| escaped(end)).collect();
        Ok(self.terminal(&format!("/({})({})/", pattern(regex), ends.join("|"))))
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
        let json = format!("%json {}", prepared(schema, self.options)?);
        Ok(self.followed(&json, then))
    }

    fn sequence(&mut self, elements: &[Format], then: Then<'_>) -> Written {
        let elements = &regular::joined(elements, &|text| self.first_special(text).is_some());
        let Some((last, before)) = elements.split_last() else { return Ok(self.followed(&literal(""), then)) };
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
                        return Ok(format!("({})", written.join(" ")));
                    }
                    at += 1;
                    written.push(self.part(element, std::slice::from_ref(value))?);
                }
                (false, _) => written.push(self.part(element, &[])?),
                (true, _) => return refused("only fixed text can follow free text in a sequence"),
            }
        }
        written.push(self.part(last, then)?);
        Ok(format!("({})", written.join(" ")))
    }

    fn repeated(&mut self, content: &Format, operator: &str, then: Then<'_>) -> Written {
        if ends_freely(content) {
            return refused("free text cannot be repeated");
        }
        let content = self.part(content, &[])?;
        let name = self.rule("", &content);
        Ok(self.followed(&format!("{name}{operator}"), then))
    }

    /// Writes a tag without the part of its beginning that is there already.
    fn tag(&mut self, tag: &Tag, begun: &str) -> Written {
        let rest = &tag.begin[begun.len()..];
        let content = self.part(&tag.content, tag.end.all())?;
        if rest.is_empty() { Ok(content) } else { Ok(format!("{} {content}", self.fixed(rest))) }
    }

    fn tags(&mut self, tags: &[Tag]) -> Written {
        if tags.is_empty() {
            return refused("there are no tags");
        }
        let tags = tags.iter().map(|tag| self.tag(tag, "")).collect::<Result<Vec<_>, _>>()?;
        Ok(self.rule("", &tags.join(" | ")))
    }

    fn separated(&mut self, format: &Format, then: Then<'_>) -> Written {
        let Format::TagsWithSeparator { tags, separator, at_least_one, stop_after_first } = format else {
            return refused("there are no tags");
        };
        let tag = self.tags(tags)?;
        let tags = match (stop_after_first, separator.as_str()) {
            (true, _) => tag,
            (false, "") => format!("{tag}+"),
            (false, separator) => format!("{tag} ({} {tag})*", self.fixed(separator)),
        };
        let tags = if *at_least_one { tags } else { format!("({tags})?") };
        Ok(self.followed(&tags, then))
    }

    fn triggered(&mut self, format: &Format, then: Then<'_>) -> Written {
        let Format::TriggeredTags { triggers, tags, at_least_one, stop_after_first, excludes } = format else {
            return refused("there are no tags");
        };
        let first = if *at_least_one { Some(self.tags(tags)?) } else { None };
        if let (Some(first), true) = (&first, stop_after_first) {
            return Ok(self.followed(first, then));
        }
        let mut begun = Vec::new();
        for trigger in triggers {
            begun.push(self.after_trigger(trigger, triggers, tags, excludes)?);
        }
        if begun.is_empty() || tags.iter().any(|tag| !triggers.iter().any(|trigger| tag.begin.starts_with(trigger))) {
            return refused("every tag must begin with a trigger");
        }
        let tag = self.rule("", &begun.join(" | "));
        let untriggered: Vec<String> = excludes.iter().chain(triggers).cloned().collect();
        let text = self.free(&untriggered, then)?;
        let tags = if *stop_after_first { self.followed(&tag, then) } else { format!("{tag}* {text}") };
        let written = if *stop_after_first { format!("({tags} | {text})") } else { tags };
        Ok(match first {
            Some(first) => format!("{first} {written}"),
            None => written,
        })
    }

    /// Text up to a trigger, and the rest of a tag that begins with it.
    fn after_trigger(&mut self, trigger: &str, triggers: &[String], tags: &[Tag], excludes: &[String]) -> Written {
        let others: Vec<String> = excludes.iter().chain(triggers.iter().filter(|t| *t != trigger)).cloned().collect();
        let lead = self.free(&others, &[trigger.to_owned()])?;
        let of_trigger = tags.iter().filter(|tag| tag.begin.starts_with(trigger));
        let rests = of_trigger.map(|tag| self.tag(tag, trigger)).collect::<Result<Vec<_>, _>>()?;
        if rests.is_empty() {
            return refused(&format!("no tag begins with the trigger {trigger:?}"));
        }
        Ok(format!("{lead} ({})", rests.join(" | ")))
    }
}

/// `value` before each of `then`.
fn joined(value: &str, then: Then<'_>) -> Vec<String> {
    match then {
        [] => vec![value.to_owned()],
        _ => then.iter().map(|end| format!("{value}{end}")).collect(),
    }
}

/// The complement of texts that contain one of these, to be joined to a terminal.
fn without(excludes: &[String]) -> String {
    if excludes.is_empty() {
        return String::new();
    }
    let excludes: Vec<String> = excludes.iter().map(|text| escaped(text)).collect();
    format!(" & ~/{ANYTHING}({}){ANYTHING}/", excludes.join("|"))
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
