//! The rules by which vLLM 0.32 declares constraints on an answer, and its checks of them before those of types.

use serde_json::Value;

use crate::{
    json::Node,
    pydantic::{
        Schema::{self, Any, Bool, Dict, List, Literal, Nullable, Object, Str, Union},
        Shape::{Dataclass, Model},
        Walk, branch, optional, required,
        scalars::{NULLABLE_BOOL, NULLABLE_DICT, NULLABLE_STR},
    },
    wire::{
        error::ApiError,
        fields::untyped::{Checked, non_null, refuse},
    },
};

/// The schema of `response_format`.
pub(crate) static RESPONSE_FORMAT: Schema = Union(&[
    branch(Object(
        Model,
        &[
            required("type", Literal(&["text", "json_object", "json_schema"])),
            optional(
                "json_schema",
                Nullable(&Object(
                    Model,
                    &[
                        required("name", Str),
                        optional("description", NULLABLE_STR),
                        optional("schema", NULLABLE_DICT),
                        optional("strict", NULLABLE_BOOL),
                    ],
                )),
            ),
        ],
    )),
    branch(Object(Model, &[required("type", Literal(&["structural_tag"])), required("format", Any)])),
    branch(Object(
        Model,
        &[
            required("type", Literal(&["structural_tag"])),
            required(
                "structures",
                List(&Object(
                    Model,
                    &[required("begin", Str), optional("schema", NULLABLE_DICT), required("end", Str)],
                )),
            ),
            required("triggers", List(&Str)),
        ],
    )),
]);

/// The schema of `structured_outputs`, vLLM's own field for the same.
pub(crate) const STRUCTURED_OUTPUTS: Schema = Nullable(&Object(
    Dataclass("StructuredOutputsParams"),
    &[
        optional("json", Nullable(&Union(&[branch(Str), branch(Dict(&Any))]))),
        optional("regex", NULLABLE_STR),
        optional("choice", Nullable(&List(&Str))),
        optional("grammar", NULLABLE_STR),
        optional("json_object", NULLABLE_BOOL),
        optional("disable_any_whitespace", Bool),
        optional("disable_additional_properties", Bool),
        optional("whitespace_pattern", NULLABLE_STR),
        optional("structural_tag", NULLABLE_STR),
    ],
));

/// The refusal of several constraints.
pub(crate) const ONE_KIND: &str =
    "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').";

/// Allows one constraint, and none together with a tool that is named; some endpoints name the `field` at fault.
pub(crate) fn structured_outputs(body: &Node<'_>, field: Option<&'static str>) -> Checked {
    let Some(outputs) = non_null(body, "structured_outputs") else { return Ok(()) };
    let kinds = ["json", "regex", "choice"].into_iter().filter(|kind| non_null(outputs, kind).is_some()).count();
    if kinds > 1 {
        return match field {
            Some(field) => refuse(field, ONE_KIND),
            None => Err(ApiError::invalid_request(ONE_KIND)),
        };
    }
    let named =
        body.get("tool_choice").is_some_and(|choice| !matches!(choice.as_str(), Some("none" | "auto" | "required")));
    if kinds > 0 && field.is_none() && named {
        let message = "You can only either use constraints for structured outputs or tools, not both.";
        return Err(ApiError::invalid_request(message));
    }
    Ok(())
}

/// Refuses a form of the answer that lacks what it needs.
pub(crate) fn response_format(body: &Node<'_>) -> Checked {
    let is_schema = |format: &Node<'_>| format.get("type").and_then(Node::as_str) == Some("json_schema");
    let is_tag = |format: &Node<'_>| format.get("type").and_then(Node::as_str) == Some("structural_tag");
    match non_null(body, "response_format") {
        Some(format) if is_tag(format) && !Walk::new(body.text).fits(&RESPONSE_FORMAT, format) => {
            refuse("response_format", "Invalid response_format structural_tag specification.")
        }
        Some(format) if is_schema(format) && non_null(format, "json_schema").is_none() => Err(no_schema()),
        _ => Ok(()),
    }
}

/// Makes the refusal of a form that has no schema.
pub(crate) fn no_schema() -> ApiError {
    let message = "When response_format type is 'json_schema', the 'json_schema' field must be provided.";
    ApiError::refused("response_format", message, None)
}

/// Refuses a schema beside `json_object`, which is any object: the answer would not keep to it. An empty one asks for nothing.
pub(crate) fn no_schema_of_objects(field: &'static str, schema: Option<&Value>) -> Checked {
    match schema {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(entries)) if entries.is_empty() => Ok(()),
        Some(_) => {
            let message =
                "`json_object` takes no schema, it is any JSON object. Send the schema with the type `json_schema`";
            Err(ApiError::invalid(field, message))
        }
    }
}
