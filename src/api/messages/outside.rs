//! What every answer on the paths of Anthropic's dialect has, also one that is given before a route is reached.
//!
//! The guard of keys, the limit of bodies and the routing know no dialect. What they answer is put into Anthropic's shape
//! around them.

use axum::{
    Json,
    body::{Body, to_bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde_json::Value;
use uuid::Uuid;

use super::{
    REQUEST_ID,
    error::{InShape, MessagesErrorBody},
};

/// The longest error that these layers answer, with room to spare.
const MOST_BYTES: usize = 1 << 16;

/// Whether a path is one that clients of Anthropic ask.
pub(crate) fn is_messages_path(path: &str) -> bool {
    path.strip_prefix("/v1/messages").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Puts an error that is in another shape into Anthropic's, and names the request where the answer does not.
pub(crate) async fn in_dialect(mut response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if is_error && response.extensions().get::<InShape>().is_none() {
        response = in_shape(response).await;
    }
    if !response.headers().contains_key(REQUEST_ID) {
        let name = format!("req_{}", Uuid::new_v4().simple());
        response.headers_mut().insert(REQUEST_ID, HeaderValue::from_str(&name).expect("hex digits are a header value"));
    }
    response
}

async fn in_shape(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let given = to_bytes(body, MOST_BYTES).await.unwrap_or_default();
    let message = message(&given).unwrap_or_else(|| parts.status.canonical_reason().unwrap_or("error").to_owned());
    let body = MessagesErrorBody::of_status(parts.status.as_u16(), message);
    let (said, body) = Json(body).into_response().into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(said.headers);
    Response::from_parts(parts, Body::new(body))
}

/// The sentence of an error in one of the shapes of vLLM and FastAPI.
fn message(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let places = [body.pointer("/error/message"), body.get("error"), body.get("detail")];
    places.into_iter().flatten().find_map(Value::as_str).map(str::to_owned)
}
