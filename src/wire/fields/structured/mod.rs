//! `response_format` and `structured_outputs`: the constraints on an answer, as a request writes them (vLLM
//! `chat_completion/protocol.py`, `sampling_params.py`).
//!
//! The `guided_*` fields of earlier versions are refused (`foreign_fields`); vLLM ignores them.

pub(crate) mod rules;

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    json::Path,
    structured::{Constraint, Format, JsonOptions},
    wire::error::ApiError,
};

/// What an answer must be; at most one of the two says so.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct StructuredFields {
    /// The form of the answer, as `OpenAI` has it.
    pub response_format: Option<ResponseFormat>,
    /// The form of the answer, as vLLM has it.
    pub structured_outputs: Option<StructuredOutputs>,
}

/// The form of an answer.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct ResponseFormat {
    /// `text`, `json_object`, `json_schema` or `structural_tag`.
    #[serde(rename = "type")]
    kind: String,
    /// With `json_schema`.
    json_schema: Option<JsonSchemaFormat>,
    /// Refused: the schema of other servers' `json_object`. It is sent with `json_schema`.
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
    /// With `structural_tag`: what the answer is made of.
    format: Option<Value>,
    /// With `structural_tag` in its earlier form: the tags.
    structures: Option<Value>,
    /// With `structural_tag` in its earlier form: what begins tags.
    triggers: Option<Value>,
}

/// JSON that a schema describes.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct JsonSchemaFormat {
    /// The schema.
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
    /// For people.
    #[serde(default, rename = "name")]
    _name: Option<String>,
    /// An answer always keeps to the schema, whatever this says.
    #[serde(default, rename = "strict")]
    _strict: Option<bool>,
}

/// The form of an answer: one of `json`, `regex`, `choice`, `grammar`, `json_object` and `structural_tag`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StructuredOutputs {
    /// A JSON schema, or its text.
    json: Option<Value>,
    /// A regular expression that matches all of the answer.
    regex: Option<String>,
    /// The answers to choose from.
    choice: Option<Vec<String>>,
    /// A grammar, in EBNF with the rule `root` or in Lark with the rule `start`.
    grammar: Option<String>,
    /// Any JSON object.
    json_object: Option<bool>,
    /// Text and JSON between tags; an object, or its text.
    structural_tag: Option<Value>,
    /// JSON without white space but one blank after `,` and `:`.
    #[serde(default)]
    disable_any_whitespace: Option<bool>,
    /// Objects have the properties that their schema names, and no others.
    #[serde(default)]
    disable_additional_properties: Option<bool>,
    /// A regular expression of what may stand between the tokens of JSON.
    #[serde(default)]
    whitespace_pattern: Option<String>,
    /// There is nothing to fall back to.
    #[serde(default, rename = "disable_fallback")]
    _disable_fallback: Option<bool>,
}

impl StructuredFields {
    /// Checks the fields; `None` if the answer may be anything.
    pub fn resolve(&self) -> Result<Option<Constraint>, ApiError> {
        let outputs = self.structured_outputs.as_ref().map(StructuredOutputs::resolve).transpose()?;
        let format = self.response_format.as_ref().map(ResponseFormat::resolve).transpose()?.flatten();
        if let (Some(outputs), Some(format)) = (&outputs, &format) {
            return Err(several([name(outputs), name(format)]));
        }
        Ok(outputs.or(format))
    }
}

fn several(names: impl IntoIterator<Item = &'static str>) -> ApiError {
    let names: Vec<_> = names.into_iter().collect();
    ApiError::invalid_request(format!(
        "You can only use one kind of structured outputs constraint but multiple are specified: {}",
        names.join(", ")
    ))
}

fn name(constraint: &Constraint) -> &'static str {
    match constraint {
        Constraint::JsonObject(_) => "json_object",
        Constraint::Json(..) => "json",
        Constraint::Regex(_) => "regex",
        Constraint::Choice(_) => "choice",
        Constraint::Grammar(_) => "grammar",
        Constraint::Tags(..) => "structural_tag",
    }
}

impl ResponseFormat {
    fn resolve(&self) -> Result<Option<Constraint>, ApiError> {
        let options = JsonOptions::default();
        match self.kind.as_str() {
            "text" => Ok(None),
            "json_object" => {
                let within = self.json_schema.as_ref().and_then(|format| format.schema.as_ref());
                rules::no_schema_of_objects("response_format.schema", self.schema.as_ref())?;
                rules::no_schema_of_objects("response_format.json_schema", within)?;
                Ok(Some(Constraint::JsonObject(options)))
            }
            "json_schema" => match &self.json_schema {
                None => Err(rules::no_schema()),
                Some(JsonSchemaFormat { schema: Some(schema), .. }) if !schema.is_null() => {
                    Ok(Some(Constraint::Json(schema.clone(), options)))
                }
                Some(_) => Err(none_is_specified()),
            },
            "structural_tag" => {
                let fields = [("format", &self.format), ("structures", &self.structures), ("triggers", &self.triggers)];
                let set = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
                Ok(Some(Constraint::Tags(Format::from_request(&Value::Object(set.collect()))?, options)))
            }
            kind => {
                let message = format!(
                    "Input should be 'text', 'json_object', 'json_schema' or 'structural_tag', got {kind:?} for \
                     `response_format.type`"
                );
                Err(ApiError::malformed(Some(Path::from("body").then("response_format").then("type")), message))
            }
        }
    }
}

fn none_is_specified() -> ApiError {
    ApiError::invalid_request("You must use one kind of structured outputs constraint but none are specified")
}

impl StructuredOutputs {
    fn resolve(&self) -> Result<Constraint, ApiError> {
        let given = [
            ("json", self.json.is_some()),
            ("regex", self.regex.is_some()),
            ("choice", self.choice.is_some()),
            ("grammar", self.grammar.is_some()),
            ("json_object", self.json_object.is_some()),
            ("structural_tag", self.structural_tag.is_some()),
        ];
        if given[..3].iter().filter(|(_, given)| *given).count() > 1 {
            return Err(ApiError::invalid_request(rules::ONE_KIND));
        }
        let names: Vec<_> = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
        if names.len() > 1 {
            return Err(several(names));
        }
        self.only_one()
    }

    fn options(&self) -> JsonOptions {
        JsonOptions {
            compact: self.disable_any_whitespace.unwrap_or(false),
            closed: self.disable_additional_properties.unwrap_or(false),
            whitespace: self.whitespace_pattern.clone(),
            ..JsonOptions::default()
        }
    }

    fn only_one(&self) -> Result<Constraint, ApiError> {
        if let Some(json) = &self.json {
            return Ok(Constraint::Json(schema(json)?, self.options()));
        }
        if let Some(regex) = &self.regex {
            return Ok(Constraint::Regex(regex.clone()));
        }
        if let Some(choice) = &self.choice {
            return Ok(Constraint::Choice(choice.clone()));
        }
        if let Some(grammar) = &self.grammar {
            if grammar.trim().is_empty() {
                return Err(ApiError::invalid_request("structured_outputs.grammar cannot be an empty string"));
            }
            return Ok(Constraint::Grammar(grammar.clone()));
        }
        if let Some(tag) = &self.structural_tag {
            let tag = parsed(tag, "structural_tag")?;
            return Ok(Constraint::Tags(Format::from_request(&tag)?, self.options()));
        }
        match self.json_object {
            Some(true) => Ok(Constraint::JsonObject(self.options())),
            Some(false) => Err(ApiError::invalid_request(
                "structured_outputs.json_object must be True if set; omit structured_outputs to disable structured \
                 outputs",
            )),
            None => Err(none_is_specified()),
        }
    }
}

fn schema(json: &Value) -> Result<Value, ApiError> {
    if json.as_str().is_some_and(|text| text.trim().is_empty()) {
        return Err(ApiError::invalid_request("structured_outputs.json cannot be an empty string"));
    }
    parsed(json, "json")
}

/// Returns an object, which may have been sent as its text.
fn parsed(value: &Value, field: &str) -> Result<Value, ApiError> {
    let Some(text) = value.as_str() else { return Ok(value.clone()) };
    serde_json::from_str(text).map_err(|error| match field {
        "json" => ApiError::invalid_request("Invalid JSON grammar specification."),
        _ => ApiError::invalid_request(format!("structured_outputs.{field} is not JSON: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolve(fields: Value) -> Result<Option<Constraint>, ApiError> {
        serde_json::from_value::<StructuredFields>(fields).unwrap().resolve()
    }

    fn message(fields: Value) -> String {
        resolve(fields).unwrap_err().message()
    }

    #[test]
    fn each_kind_is_read() {
        let plain = JsonOptions::default;
        let kinds = [
            (json!({}), None),
            (json!({"response_format": null, "structured_outputs": null}), None),
            (json!({"response_format": {"type": "text"}}), None),
            (json!({"response_format": {"type": "json_object"}}), Some(Constraint::JsonObject(plain()))),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": {"a": 1}}}}),
                Some(Constraint::Json(json!({"a": 1}), plain())),
            ),
            (json!({"structured_outputs": {"json": "{\"a\": 1}"}}), Some(Constraint::Json(json!({"a": 1}), plain()))),
            (json!({"structured_outputs": {"regex": "a", "json": null}}), Some(Constraint::Regex("a".to_owned()))),
            (json!({"structured_outputs": {"choice": ["a"]}}), Some(Constraint::Choice(vec!["a".to_owned()]))),
            (json!({"structured_outputs": {"grammar": "g"}}), Some(Constraint::Grammar("g".to_owned()))),
            (
                json!({"structured_outputs": {"json_object": true, "disable_any_whitespace": true}}),
                Some(Constraint::JsonObject(JsonOptions { compact: true, ..plain() })),
            ),
        ];
        for (fields, expected) in kinds {
            assert_eq!(resolve(fields.clone()), Ok(expected), "{fields}");
        }
        let tag = json!({"type": "structural_tag", "format": {"type": "any_text"}});
        let from_format = resolve(json!({"response_format": tag.clone()}));
        assert_eq!(from_format, resolve(json!({"structured_outputs": {"structural_tag": tag.to_string()}})));
        assert!(matches!(from_format, Ok(Some(Constraint::Tags(..)))));
    }

    #[test]
    fn what_contradicts_itself_is_refused_in_vllms_words() {
        let two = json!({"structured_outputs": {"regex": "a", "choice": ["b"]}});
        let said = "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').";
        assert_eq!(message(two), said);
        let mixed = json!({"structured_outputs": {"regex": "a", "grammar": "b"}});
        assert!(message(mixed).ends_with("multiple are specified: regex, grammar"));
        let both = json!({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}});
        assert!(message(both).ends_with("multiple are specified: regex, json_object"));
        assert!(message(json!({"structured_outputs": {}})).contains("none are specified"));
        let error = resolve(json!({"response_format": {"type": "json_schema"}})).unwrap_err();
        assert_eq!(error.param().as_deref(), Some("response_format"));
        let said = "When response_format type is 'json_schema', the 'json_schema' field must be provided. \
                    (parameter=response_format)";
        assert_eq!(error.message(), said);
        assert!(message(json!({"structured_outputs": {"json_object": false}})).contains("must be True if set"));
        assert!(message(json!({"structured_outputs": {"json": "{"}})).contains("Invalid JSON grammar specification."));
        assert!(message(json!({"response_format": {"type": "poem"}})).contains("poem"));
    }

    /// llama.cpp and others take the schema so. An answer that may be any object would pass for one of the schema.
    #[test]
    fn a_schema_beside_json_object_is_refused() {
        let of = |format: Value| {
            let mut format = format;
            format["type"] = json!("json_object");
            resolve(json!({"response_format": format}))
        };
        for nothing in [json!({"schema": null}), json!({"schema": {}}), json!({"json_schema": {"name": "n"}})] {
            assert!(matches!(of(nothing), Ok(Some(Constraint::JsonObject(_)))));
        }
        let schema = json!({"type": "object", "required": ["a"]});
        let fields =
            [("schema", json!({"schema": schema})), ("json_schema", json!({"json_schema": {"schema": schema}}))];
        for (field, format) in fields {
            let error = of(format).unwrap_err();
            assert_eq!(error.param(), Some(format!("response_format.{field}")));
            assert!(error.message().contains("json_schema"), "{}", error.message());
        }
    }
}
