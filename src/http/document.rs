//! The OpenAPI document: its frame, and the parts that all operations have, so that routes need not repeat them.

use utoipa::{
    OpenApi, ToSchema,
    openapi::{Content, Header, OpenApi as Whole, Ref, RefOr, Response, header::HeaderBuilder, path::Operation},
};

use crate::{retry, wire::error::ErrorBody};

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
        (name = "tinker", description = "Sampling for the Python package `tinker`, with `--tinker-api`"),
        (name = "tokens", description = "Text and conversations to ids and back"),
        (name = "trajectories", description = "Captured turns, for training"),
        (name = "server", description = "What is served, and how it is"),
    )
)]
pub(crate) struct Document;

/// The descriptions of statuses that routes do not describe themselves.
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
const BAD_REQUEST: &str = "400";

/// A status, its description, and the schema of its body.
type Answer = (&'static str, &'static str, &'static str);

/// What any operation with parameters may answer.
const OF_PARAMETERS: [Answer; 1] = [(BAD_REQUEST, "", "ErrorBody")];
/// What any operation with a body may answer.
const OF_BODIES: [Answer; 3] =
    [(BAD_REQUEST, "", "BadRequestBody"), ("413", "", "ErrorBody"), ("500", "", "ErrorBody")];
/// What operations with a body may answer besides, by their tags.
const OF_TAGS: [(&str, &[Answer]); 2] =
    [("generation", &[NO_MODEL, ("501", "", "ErrorBody"), FULL]), ("tokens", &[NO_MODEL])];
const NO_MODEL: Answer = ("404", "The model is not served here", "ErrorBody");
const FULL: Answer = ("503", "Too many requests wait already", "ErrorBody");
const JSON: &str = "application/json";

/// Describes every response, and adds those that every operation may give.
pub(crate) fn complete(document: &mut Whole) {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.post, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            add_common(operation);
            describe(operation);
        }
    }
}

fn add_common(operation: &mut Operation) {
    let tags = operation.tags.clone().unwrap_or_default();
    let of_tags = OF_TAGS.iter().filter(|(tag, _)| tags.iter().any(|other| other == tag));
    let responses = &mut operation.responses.responses;
    // Servers that were started with a key ask for it; that answer has a shape of its own.
    responses.entry("401".to_owned()).or_insert_with(|| RefOr::T(Response::default()));
    let common: Vec<_> = match (&operation.request_body, &operation.parameters) {
        (Some(_), _) => OF_BODIES.iter().chain(of_tags.flat_map(|(_, answers)| *answers)).collect(),
        (None, Some(_)) => OF_PARAMETERS.iter().collect(),
        (None, None) => return,
    };
    // Endpoints with errors of their own declare them at their 400.
    let own = match responses.get(BAD_REQUEST) {
        Some(RefOr::T(response)) => response.content.get(JSON).cloned(),
        _ => None,
    };
    for (status, description, schema) in common {
        let error = || {
            let mut response = Response::new(*description);
            response.content.insert(JSON.to_owned(), own.clone().unwrap_or_else(|| body(schema)));
            RefOr::T(response)
        };
        responses.entry((*status).to_owned()).or_insert_with(error);
    }
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
        if status.starts_with(['4', '5']) {
            response.headers.insert(retry::HEADER.to_owned(), RefOr::T(retry_header()));
        }
    }
}

/// The header that every error has.
fn retry_header() -> Header {
    const MEANING: &str = "Where the same request may be sent: `never`, `here`, `elsewhere` or `anywhere`; then \
                           `done=nothing`, or `done=maybe` if something may have been sampled, stored or changed";
    HeaderBuilder::new().description(Some(MEANING)).build()
}
