//! `/docs` and `/openapi.json`; the page is built in and needs no network.

use std::sync::Arc;

use axum::{Router, response::Redirect, routing::get};
use utoipa_swagger_ui::SwaggerUi;

use super::Api;

pub(super) fn router(document: utoipa::openapi::OpenApi) -> Router<Arc<Api>> {
    let page: Router<Arc<Api>> = SwaggerUi::new("/docs").url("/openapi.json", document).into();
    page.route("/redoc", get(|| async { Redirect::permanent("/docs") }))
}
