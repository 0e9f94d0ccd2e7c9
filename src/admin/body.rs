//! Bodies of the control plane: JSON objects, whatever their media type says, or nothing.

use axum::{
    body::{Body, to_bytes},
    extract::{FromRequest, Request},
};
use serde_json::{Map, Value};

use super::{
    AdminError,
    labels::{check_label, check_weight_name},
    query::{parameters_of, tags},
};
use crate::{asked_for::is_truthy, control::SleepTag};

/// No call of the control plane has a longer body, but weights themselves.
const MOST_BYTES: usize = 64 << 20;

/// The fields of a body; none where there is no body.
pub(super) struct Fields(pub(super) Map<String, Value>);

/// The body of a call that has no fields: nothing, or an object without any.
pub(super) struct NoFields;

/// A body that has to be there.
pub(super) struct RequiredFields(pub(super) Map<String, Value>);

async fn text(body: Body) -> Result<Vec<u8>, AdminError> {
    match to_bytes(body, MOST_BYTES).await {
        Ok(bytes) => Ok(bytes.to_vec()),
        Err(error) => Err(AdminError::bad(format!("the body cannot be read: {error}"))),
    }
}

/// Returns the fields of a body, which a text that is no JSON makes an error with this sentence.
pub(super) async fn fields_or(body: Body, no_json: &str) -> Result<Map<String, Value>, AdminError> {
    let text = text(body).await?;
    if serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_err() {
        return Err(AdminError::bad(no_json));
    }
    object(&text)
}

fn object(text: &[u8]) -> Result<Map<String, Value>, AdminError> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(AdminError::bad("Request body must be a JSON object")),
        Err(_) => Err(AdminError::bad("Invalid JSON format")),
    }
}

impl<S: Sync> FromRequest<S> for Fields {
    type Rejection = AdminError;

    async fn from_request(request: Request, _: &S) -> Result<Self, AdminError> {
        let text = text(request.into_body()).await?;
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self(Map::new()));
        }
        match serde_json::from_slice(&text) {
            Ok(Value::Null) => Ok(Self(Map::new())),
            _ => object(&text).map(Self),
        }
    }
}

impl<S: Sync> FromRequest<S> for RequiredFields {
    type Rejection = AdminError;

    async fn from_request(request: Request, _: &S) -> Result<Self, AdminError> {
        object(&text(request.into_body()).await?).map(Self)
    }
}

impl<S: Sync> FromRequest<S> for NoFields {
    type Rejection = AdminError;

    async fn from_request(request: Request, state: &S) -> Result<Self, AdminError> {
        let path = request.uri().path().to_owned();
        let Fields(fields) = Fields::from_request(request, state).await?;
        // vLLM reads these from the query alone, which is easily missed.
        let in_query =
            parameters_of(&path).iter().find(|name| fields.get(**name).is_some_and(|value| !value.is_null()));
        if let Some(name) = in_query {
            let message = format!("`{name}` stands in the query of this call, as in POST {path}?{name}=...");
            return Err(AdminError::field(&format!("body.{name}"), message));
        }
        only(&fields, &[]).map(|()| Self)
    }
}

/// Refuses fields that a call does not have: nobody would see that they are without effect.
pub(super) fn only(fields: &Map<String, Value>, known: &[&str]) -> Result<(), AdminError> {
    only_at("body", "call", fields, known)
}

/// The same for the object at `place`, which is a part of a body, or the arguments of `what`.
pub(super) fn only_at(place: &str, what: &str, fields: &Map<String, Value>, known: &[&str]) -> Result<(), AdminError> {
    let Some((name, _)) = fields.iter().find(|(name, value)| !value.is_null() && !known.contains(&name.as_str()))
    else {
        return Ok(());
    };
    check_label(place, Some(name))?;
    let has = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(AdminError::field(&format!("{place}.{name}"), format!("this {what} has no field `{name}`; it has {has}")))
}

/// Refuses weights that are named otherwise than in a checkpoint.
pub(super) fn check_checkpoint_format(place: &str, fields: &Map<String, Value>) -> Result<(), AdminError> {
    let name = "is_checkpoint_format";
    match fields.get(name) {
        None | Some(Value::Null | Value::Bool(true)) => Ok(()),
        Some(Value::Bool(false)) => {
            let message =
                "`is_checkpoint_format`: false is not served: send tensors as a checkpoint of the model has them";
            Err(AdminError::field(&format!("{place}.{name}"), message))
        }
        Some(_) => Err(AdminError::field(&format!("{place}.{name}"), format!("`{name}` must be true or false"))),
    }
}

/// Refuses fields that ask for something that is not done here: all but null, false, 0 and what is empty.
pub(super) fn without(fields: &Map<String, Value>, unserved: &[(&str, &str)]) -> Result<(), AdminError> {
    match unserved.iter().find(|(name, _)| fields.get(*name).is_some_and(is_truthy)) {
        None => Ok(()),
        Some((name, why)) => Err(AdminError::field(&format!("body.{name}"), format!("`{name}` is not served: {why}"))),
    }
}

/// Returns a field that is text; `None` where it is not there or null.
pub(super) fn text_of(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, AdminError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        // Versions are often numbers. Others than these were read as the nearest number of 64 bits.
        Some(Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(Some(number.to_string())),
        Some(Value::Number(_)) => {
            let message = format!("`{name}` must be a string, or an integer of at most 64 bits: write it in quotes");
            Err(AdminError::field(&format!("body.{name}"), message))
        }
        Some(_) => Err(AdminError::field(&format!("body.{name}"), format!("`{name}` must be a string"))),
    }
}

/// Returns a field that is text and has to be there.
pub(super) fn required_text(fields: &Map<String, Value>, name: &str) -> Result<String, AdminError> {
    text_of(fields, name)?.ok_or_else(|| missing(fields, name))
}

/// Returns a field by which something is called from then on, in answers, logs and metrics; `None` where it is not there or
/// null.
pub(super) fn label_of(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, AdminError> {
    let label = text_of(fields, name)?;
    check_label(&format!("body.{name}"), label.as_deref())?;
    Ok(label)
}

/// Returns the name that a field has for weights; `None` where it is not there or null.
pub(super) fn weight_name_of(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, AdminError> {
    let label = text_of(fields, name)?;
    check_weight_name(&format!("body.{name}"), label.as_deref())?;
    Ok(label)
}

/// Refuses a body without a field, in pydantic's words as vLLM 0.33 prints them.
pub(super) fn missing(fields: &Map<String, Value>, name: &str) -> AdminError {
    let path = format!("body.{name}");
    let message = format!(
        "1 validation error:\n  {{'type': 'missing', 'loc': '{path}', 'msg': 'Field required', 'input': '<dict of {} \
         items>'}}",
        fields.len()
    );
    AdminError::field(&path, message)
}

/// Returns a field that is true or false.
pub(super) fn truth_of(fields: &Map<String, Value>, name: &str, default: bool) -> Result<bool, AdminError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(truth)) => Ok(*truth),
        Some(_) => Err(AdminError::field(&format!("body.{name}"), format!("`{name}` must be true or false"))),
    }
}

/// Returns the field `tags`, a list of what sleeps or wakes up; `None` for all of it: where it is not there, null or empty.
pub(super) fn tags_of(fields: &Map<String, Value>) -> Result<Option<Vec<SleepTag>>, AdminError> {
    let names: Vec<String> = match fields.get("tags") {
        None | Some(Value::Null) => return Ok(None),
        Some(names) => serde_json::from_value(names.clone())
            .map_err(|_| AdminError::field("body.tags", "`tags` must be a list of strings"))?,
    };
    if names.is_empty() { Ok(None) } else { tags("body.tags", &names).map(Some) }
}
