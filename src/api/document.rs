//! The OpenAPI document: its frame, and what holds for all operations, which routes need not repeat.

use utoipa::{
    OpenApi, ToSchema,
    openapi::{Content, OpenApi as Whole, Ref, RefOr, Response, path::Operation},
};

use super::error::ErrorBody;

/// The body of a 400: FastAPI answers bodies that are no text before vLLM sees them.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "a schema that no macro writes")]
enum BadRequestBody {
    Error(ErrorBody),
    Unreadable { detail: String },
}

/// The document's frame; routes add themselves.
#[derive(OpenApi)]
#[openapi(
    info(title = "tito", description = "Token in, token out: an OpenAI and vLLM compatible rollout server."),
    components(schemas(BadRequestBody)),
    tags(
        (name = "generation", description = "Sampling from the model"),
        (name = "tokens", description = "Text and conversations to ids and back"),
        (name = "server", description = "What is served, and how it is"),
    )
)]
pub(super) struct Document;

/// What statuses mean wherever nothing else is said.
const MEANINGS: [(&str, &str); 9] = [
    ("200", "The answer"),
    ("400", "The request cannot be served as asked"),
    ("401", "The key is missing or wrong"),
    ("403", "The server does not serve this"),
    ("404", "What is asked for is not here"),
    ("413", "The body is too long"),
    ("500", "The server failed"),
    ("501", "The engine cannot do what is asked"),
    ("503", "The server cannot serve now"),
];
/// What any operation with a body may answer; the schema is that of all errors.
const BAD_REQUEST: &str = "400";
const OF_BODIES: [&str; 3] = [BAD_REQUEST, "413", "500"];

/// Says of every response what it means, and adds those that every operation may give.
pub(super) fn complete(document: &mut Whole) {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.post, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            add_common(operation);
            describe(operation);
        }
    }
}

fn add_common(operation: &mut Operation) {
    let responses = &mut operation.responses.responses;
    // A key is asked for by servers that were started with one; its answer has a shape of its own.
    responses.entry("401".to_owned()).or_insert_with(|| RefOr::T(Response::default()));
    if operation.request_body.is_some() {
        for status in OF_BODIES {
            let response = responses.entry(status.to_owned()).or_insert_with(|| RefOr::T(error()));
            // Endpoints with errors of their own answer all bodies with them.
            if let (BAD_REQUEST, RefOr::T(response)) = (status, response)
                && response.content.get("application/json") == Some(&body("ErrorBody"))
            {
                response.content.insert("application/json".to_owned(), body("BadRequestBody"));
            }
        }
    }
}

fn error() -> Response {
    let mut response = Response::default();
    response.content.insert("application/json".to_owned(), body("ErrorBody"));
    response
}

fn body(schema: &str) -> RefOr<Content> {
    RefOr::T(Content::new(Some(Ref::from_schema_name(schema))))
}

fn describe(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        if response.description.is_empty() {
            let meaning = MEANINGS.iter().find(|(known, _)| known == status);
            meaning.expect("every status has a meaning").1.clone_into(&mut response.description);
        }
    }
}
