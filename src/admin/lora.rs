//! Adapters that come and go, in vLLM's words, prime-rl's and SkyRL's.

use axum::{
    body::{Body, to_bytes},
    extract::{FromRequest, Request, State},
    http::header::CONTENT_TYPE,
    response::IntoResponse,
    routing::MethodRouter,
};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    AdminError, Answered, Shared,
    body::{RequiredFields, label_of, text_of, truth_of},
    json as answer, posted,
    query::Parameters,
};
use crate::adapters::{AdapterSource, Load};

/// The media type of an adapter that comes in the body.
const BYTES: &str = "application/octet-stream";
/// No adapter in a body is longer.
const MOST_BYTES: usize = 16 << 30;

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/v1/load_lora_adapter", posted(load)),
        ("/v1/unload_lora_adapter", posted(unload)),
        ("/load_lora_adapter", posted(load_for_prime_rl)),
        ("/load_lora_adapter_from_tensors", posted(super::lora_tensors::load_from_tensors)),
        ("/unload_lora_adapter", posted(unload)),
        ("/skyrl/v1/load_lora_adapter", posted(load_in_place)),
    ]
}

/// `POST /v1/load_lora_adapter`: a directory that the server can read, or an adapter in the body.
async fn load(State(admin): State<Shared>, query: Parameters, request: Request) -> Answered {
    let asked = read_request(&query, request, false).await?;
    load_adapter(&admin, &query, asked).await.map(IntoResponse::into_response)
}

/// `POST /skyrl/v1/load_lora_adapter`: the same, and always in the place of the one that has the name.
async fn load_in_place(State(admin): State<Shared>, query: Parameters, request: Request) -> Answered {
    let asked = read_request(&query, request, true).await?;
    load_adapter(&admin, &query, asked).await.map(IntoResponse::into_response)
}

/// `POST /load_lora_adapter`, where prime-rl loads every policy under one name.
async fn load_for_prime_rl(State(admin): State<Shared>, query: Parameters, request: Request) -> Answered {
    let asked = read_request(&query, request, true).await?;
    load_adapter(&admin, &query, asked).await?;
    Ok(answer(json!({ "status": "ok" })))
}

/// `POST /v1/unload_lora_adapter`.
async fn unload(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    let name = text_of(&fields, "lora_name")?.unwrap_or_default();
    if name.is_empty() {
        return Err(AdminError::user_input("'lora_name' needs to be provided to unload a LoRA adapter."));
    }
    admin.adapters.unload(&name).await?;
    Ok(format!("Success: LoRA adapter '{name}' removed successfully.").into_response())
}

/// Reads what is to be loaded.
async fn read_request(query: &Parameters, request: Request, replaces: bool) -> Result<Load, AdminError> {
    let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if media_type.is_some_and(|media_type| media_type.starts_with(BYTES)) {
        return in_body(query, request.into_body(), replaces).await;
    }
    let RequiredFields(fields) = RequiredFields::from_request(request, &()).await?;
    let text = |name| text_of(&fields, name).map(Option::unwrap_or_default);
    Ok(Load {
        name: text("lora_name")?,
        source: AdapterSource::Directory(text("lora_path")?),
        replaces: truth_of(&fields, "load_inplace", replaces)? || replaces,
        base_model: base_model(&fields)?,
        stays: false,
    })
}

fn base_model(fields: &Map<String, Value>) -> Result<Option<String>, AdminError> {
    label_of(fields, "base_model_name")
}

/// Reads an adapter that is the body: its name stands in the query.
async fn in_body(query: &Parameters, body: Body, replaces: bool) -> Result<Load, AdminError> {
    let name = query.get("lora_name").unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(AdminError::field("query.lora_name", "the query has to name the adapter, as lora_name"));
    }
    let bytes: Bytes = to_bytes(body, MOST_BYTES)
        .await
        .map_err(|error| AdminError::bad(format!("the body cannot be read: {error}")))?;
    let replaces = replaces || query.truth("load_inplace", false)?;
    Ok(Load { name, source: AdapterSource::Memory(bytes), replaces, base_model: None, stays: false })
}

/// Loads an adapter, and has requests that run with the one before it go on or end, as the query says.
async fn load_adapter(admin: &Shared, query: &Parameters, asked: Load) -> Result<String, AdminError> {
    let aborts = query.one_of("on_replace", &["finish", "abort"], "finish")? == "abort";
    let (name, adapters) = (asked.name.clone(), std::sync::Arc::clone(&admin.adapters));
    // Loaded to its end, even if the client goes away.
    let loading = tokio::spawn(async move { adapters.load(asked).await });
    let loaded = loading.await;
    let before = loaded.map_err(|error| AdminError::internal(format!("the call failed: {error}")))??;
    if let Some(before) = before.filter(|_| aborts) {
        admin.control.abort_adapter(before.id());
    }
    Ok(format!("Success: LoRA adapter '{name}' added successfully."))
}
