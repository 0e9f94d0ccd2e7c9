//! An output that is one of two things: calls, or text of the form that a request demands (vLLM
//! `parser/abstract_parser.py`).
//!
//! Refuses two forms whose JSON is not written alike, and grammars, which cannot stand within tags.

use serde_json::json;

use super::{Constraint, Format, JsonOptions, lark::escaped};

impl Constraint {
    /// An output that is either these calls or has the other form; `None` where no grammar says so exactly.
    pub fn or_form(self, form: &Self) -> Option<Self> {
        let Self::Tags(calls, options) = self else { return None };
        let (form, form_options) = within_tags(form)?;
        let options = form_options.map_or(Some(options.clone()), |form_options| both(&options, form_options))?;
        // Calls that begin with a bracket are JSON, whatever of it is fixed.
        let options = JsonOptions { brackets_are_json: true, ..options };
        Some(Self::Tags(Format::Or { elements: vec![calls, form] }, options))
    }
}

/// The form as a part of an output, and how its JSON is written, if it has any.
fn within_tags(form: &Constraint) -> Option<(Format, Option<&JsonOptions>)> {
    let regex = |pattern: String| (Format::Regex { pattern, excludes: Vec::new() }, None);
    match form {
        Constraint::JsonObject(options) => Some((Format::json(json!({"type": "object"})), Some(options))),
        Constraint::Json(schema, options) => Some((Format::json(schema.clone()), Some(options))),
        // Others say nothing, or are refused where they stand alone.
        Constraint::Regex(pattern) => {
            let is_plain = !pattern.is_empty() && !pattern.contains('\0') && !pattern.ends_with('\\');
            is_plain.then(|| regex(pattern.clone()))
        }
        // As an expression: a special token's name in a choice is text here, and is no token.
        Constraint::Choice(choices) => {
            let choices: Vec<String> = choices.iter().map(|choice| escaped(choice)).collect();
            let is_plain = !choices.is_empty() && choices.iter().all(|choice| !choice.is_empty());
            is_plain.then(|| regex(format!("({})", choices.join("|"))))
        }
        Constraint::Tags(format, options) => Some((format.clone(), Some(options))),
        Constraint::Grammar(_) => None,
    }
}

/// The options that hold for calls and form alike.
fn both(calls: &JsonOptions, form: &JsonOptions) -> Option<JsonOptions> {
    // Arguments that may be any JSON would lose all their properties.
    if form.closed && !calls.closed {
        return None;
    }
    let whitespace = match (&calls.whitespace, &form.whitespace) {
        (Some(calls), Some(form)) if calls != form => return None,
        (calls, form) => calls.clone().or_else(|| form.clone()),
    };
    Some(JsonOptions {
        compact: calls.compact || form.compact,
        closed: calls.closed,
        whitespace,
        brackets_are_json: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structured::Tag;

    fn calls(options: JsonOptions) -> Constraint {
        Constraint::Tags(Format::Tag(Tag::new("<call>", Format::json(json!(true)), "</call>")), options)
    }

    fn options(either: Option<Constraint>) -> Option<JsonOptions> {
        match either {
            Some(Constraint::Tags(Format::Or { elements }, options)) if elements.len() == 2 => {
                assert!(options.brackets_are_json);
                Some(JsonOptions { brackets_are_json: false, ..options })
            }
            None => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn forms_that_cannot_stand_beside_calls_are_told() {
        let plain = JsonOptions::default;
        for form in [
            Constraint::JsonObject(plain()),
            Constraint::Json(json!({"type": "array"}), plain()),
            Constraint::Regex("a+".to_owned()),
            Constraint::Choice(vec!["a|b".to_owned(), "<|im_end|>".to_owned()]),
            Constraint::Tags(Format::text("x"), plain()),
        ] {
            assert_eq!(options(calls(plain()).or_form(&form)), Some(plain()), "{form:?}");
        }
        for form in [
            Constraint::Grammar("root ::= \"a\"".to_owned()),
            Constraint::Regex(String::new()),
            Constraint::Choice(Vec::new()),
            Constraint::Choice(vec![String::new()]),
            Constraint::JsonObject(JsonOptions { closed: true, ..plain() }),
        ] {
            assert_eq!(options(calls(plain()).or_form(&form)), None, "{form:?}");
        }
    }

    #[test]
    fn json_is_written_as_both_demand_it() {
        let spaced =
            |whitespace: &str| JsonOptions { whitespace: Some(whitespace.to_owned()), ..JsonOptions::default() };
        let form = |options| Constraint::JsonObject(options);
        assert_eq!(options(calls(spaced(" ")).or_form(&form(JsonOptions::default()))), Some(spaced(" ")));
        assert_eq!(options(calls(JsonOptions::default()).or_form(&form(spaced("\n")))), Some(spaced("\n")));
        assert_eq!(options(calls(spaced(" ")).or_form(&form(spaced("\n")))), None);
        let compact = JsonOptions { compact: true, ..JsonOptions::default() };
        assert_eq!(options(calls(JsonOptions::default()).or_form(&form(compact.clone()))), Some(compact));
    }
}
