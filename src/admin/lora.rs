//! Adapters that come and go, in vLLM's words, prime-rl's and SkyRL's.

use std::sync::Arc;

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
    body::{RequiredFields, label_of, only, text_of, truth_of, without},
    json as answer, posted,
    query::Parameters,
};
use crate::{
    adapters::{AdapterError, AdapterSource, Load},
    engine::Adapter,
};

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
        ("/unload_lora_adapter", posted(unload_for_sglang)),
        ("/skyrl/v1/load_lora_adapter", posted(load_in_place)),
    ]
}

/// `POST /v1/load_lora_adapter`: a directory that the server can read, or an adapter in the body.
async fn load(State(admin): State<Shared>, query: Parameters, request: Request) -> Answered {
    let asked = read_request(&query, request, false).await?;
    load_adapter(&admin, &query, asked).await.map(IntoResponse::into_response)
}

/// `POST /skyrl/v1/load_lora_adapter`: the same, and in the place of the one that has the name unless told otherwise.
async fn load_in_place(State(admin): State<Shared>, query: Parameters, request: Request) -> Answered {
    let asked = read_request(&query, request, true).await?;
    load_adapter(&admin, &query, asked).await.map(IntoResponse::into_response)
}

/// `POST /load_lora_adapter`, where prime-rl loads every policy under one name. SGLang's clients call it too.
async fn load_for_prime_rl(State(admin): State<Shared>, query: Parameters, request: Request) -> Answered {
    let asked = read_request(&query, request, true).await?;
    load_adapter(&admin, &query, asked).await?;
    Ok(answer(json!({ "status": "ok", "success": true, "error_message": "" })))
}

/// `POST /unload_lora_adapter`, whose clients read SGLang's `success`.
async fn unload_for_sglang(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    unload_adapter(&admin, &fields).await?;
    Ok(answer(json!({ "success": true, "error_message": "" })))
}

/// `POST /v1/unload_lora_adapter`.
async fn unload(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    let name = unload_adapter(&admin, &fields).await?;
    Ok(format!("Success: LoRA adapter '{name}' removed successfully.").into_response())
}

/// Takes the adapter that the fields name away. As in vLLM, `lora_int_id` is without effect: the name says which adapter is meant.
async fn unload_adapter(admin: &Shared, fields: &Map<String, Value>) -> Result<String, AdminError> {
    only(fields, &["lora_name", "lora_int_id"])?;
    let name = text_of(fields, "lora_name")?.unwrap_or_default();
    if name.is_empty() {
        return Err(AdminError::user_input("'lora_name' needs to be provided to unload a LoRA adapter."));
    }
    admin.adapters.unload(&name).await?;
    Ok(name)
}

/// The fields of an adapter. `is_3d_lora_weight` is about experts, whose adapters are refused in any case, and nothing here
/// depends on SGLang's `pinned`.
const FIELDS: [&str; 7] =
    ["lora_name", "lora_path", "load_inplace", "base_model_name", "is_3d_lora_weight", "pinned", "in_memory"];
/// Why an adapter does not come from SkyRL's trainer as its weights do.
const STAGED: &str = "no transfer of weights brings an adapter here: write it to a directory that the server can read and name \
                      it by `lora_path`, or send it as a body of the media type application/octet-stream";

/// Reads what is to be loaded. `replaces` is what `load_inplace` is where it is not there.
async fn read_request(query: &Parameters, request: Request, replaces: bool) -> Result<Load, AdminError> {
    let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if media_type.is_some_and(|media_type| media_type.starts_with(BYTES)) {
        return in_body(query, request.into_body(), replaces).await;
    }
    query.none_of(&["lora_name", "load_inplace"])?;
    let RequiredFields(fields) = RequiredFields::from_request(request, &()).await?;
    only(&fields, &FIELDS)?;
    without(&fields, &[("in_memory", STAGED)])?;
    let text = |name| text_of(&fields, name).map(Option::unwrap_or_default);
    Ok(Load {
        name: text("lora_name")?,
        source: AdapterSource::Directory(text("lora_path")?),
        replaces: truth_of(&fields, "load_inplace", replaces)?,
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
    let replaces = query.truth("load_inplace", replaces)?;
    Ok(Load { name, source: AdapterSource::Memory(bytes), replaces, base_model: None, stays: false })
}

/// Loads an adapter, and has requests that run with the one before it go on or end, as the query says.
async fn load_adapter(admin: &Shared, query: &Parameters, asked: Load) -> Result<String, AdminError> {
    let aborts = query.one_of("on_replace", &["finish", "abort"], "finish")? == "abort";
    let name = asked.name.clone();
    load_to_its_end(admin, asked, if aborts { Ends::OfReplaced } else { Ends::None }).await?;
    Ok(format!("Success: LoRA adapter '{name}' added successfully."))
}

/// Which requests end once an adapter is loaded; none where it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    None,
    /// Those with the adapter that had its name.
    OfReplaced,
    /// All that run.
    All,
}

/// Loads an adapter, even if the client goes away meanwhile. Returns the one that had its name.
pub(super) async fn load_to_its_end(
    admin: &Shared,
    asked: Load,
    ends: Ends,
) -> Result<Option<Arc<Adapter>>, AdminError> {
    let (adapters, control) = (Arc::clone(&admin.adapters), Arc::clone(&admin.control));
    let loading = tokio::spawn(async move {
        let before = adapters.load(asked).await?;
        match (ends, &before) {
            (Ends::All, _) => _ = control.abort_begun(),
            (Ends::OfReplaced, Some(before)) => _ = control.abort_adapter(before.id()),
            _ => {}
        }
        Ok::<_, AdapterError>(before)
    });
    let loaded = loading.await.map_err(|error| AdminError::internal(format!("the call failed: {error}")))?;
    Ok(loaded?)
}
