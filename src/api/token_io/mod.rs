//! Endpoints of ids: a chat or a completion is put into ids (`render`), ids are continued (`generate`) and ended by their
//! names, and what came of them is put into the words of a chat or a completion (`derender`).
//!
//! Uses the endpoints of chats and completions, which know nothing of this.

mod derender;
mod generate;
mod render;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;

use super::Api;

/// Of chats.
pub(super) fn chats() -> OpenApiRouter<Arc<Api>> {
    render::chat::router().merge(derender::chat::router())
}

/// Of text completions.
pub(super) fn completions() -> OpenApiRouter<Arc<Api>> {
    render::completion::router().merge(derender::completion::router())
}

/// Of ids.
pub(super) fn router() -> OpenApiRouter<Arc<Api>> {
    generate::router()
}
