//! The rules of the bodies that have the request of a chat or a completion in them: it keeps the rules of its own endpoint,
//! so that what was rendered is also taken back.

use crate::{
    json::{Node, NodeKind},
    pydantic::{
        Schema::{Nullable, Object},
        Shape::Model,
        optional,
    },
    wire::{
        body::Rules,
        chat_completions::{self, rules::CHAT},
        completions::{self, rules::COMPLETION},
        error::ApiError,
    },
};

/// The rules of `POST /v1/chat/completions/derender`.
pub(super) static DERENDER_CHAT: Rules = Rules {
    before: Some(|body| check_within(body, "chat_request", &chat_completions::rules::RULES)),
    ..Rules::new(&Object(Model, &[optional("chat_request", Nullable(&CHAT))]))
};

/// The rules of `POST /v1/completions/derender`.
pub(super) static DERENDER_COMPLETION: Rules = Rules {
    before: Some(|body| check_within(body, "completion_request", &completions::rules::RULES)),
    ..Rules::new(&Object(Model, &[optional("completion_request", Nullable(&COMPLETION))]))
};

/// Runs the check that comes before that of types on the request in a body.
fn check_within(body: &mut Node<'_>, field: &str, rules: &Rules) -> Result<(), ApiError> {
    let NodeKind::Object(members) = &mut body.kind else { return Ok(()) };
    let request = members.get_mut(field).filter(|request| matches!(request.kind, NodeKind::Object(_)));
    match (request, rules.before) {
        (Some(request), Some(before)) => before(request),
        _ => Ok(()),
    }
}
