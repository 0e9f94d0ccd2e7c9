//! Endpoints of ids. `render` puts what any dialect asks for into ids, `generate` continues ids and aborts requests by
//! their names, and `derender` turns the sampled ids into the answer of a chat or a completion.
//!
//! This module uses the endpoints of the dialects, which know nothing of it.

mod derender;
mod generate;
mod render;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;

use crate::state::Api;

/// Returns the routes of chats.
pub(super) fn chats() -> OpenApiRouter<Arc<Api>> {
    render::chat::router().merge(derender::chat::router())
}

/// Returns the routes of messages.
pub(super) fn messages() -> OpenApiRouter<Arc<Api>> {
    render::message::router()
}

/// Returns the routes of responses.
pub(super) fn responses() -> OpenApiRouter<Arc<Api>> {
    render::response::router()
}

/// Returns the routes of text completions.
pub(super) fn completions() -> OpenApiRouter<Arc<Api>> {
    render::completion::router().merge(derender::completion::router())
}

/// Returns the routes of ids.
pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    generate::router()
}
