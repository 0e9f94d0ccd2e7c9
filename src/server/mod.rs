//! The process around the API: listening, keys, request metrics, draining.
//!
//! Refuses endpoints of its own, except `/metrics`, which is about the process.

mod auth;
mod request_metrics;
mod stop_signal;

use std::{future::Future, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    response::{IntoResponse, Response},
    routing::get,
    serve::ListenerExt,
};
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    api::{self, Api, ApiError},
    engine::Engine,
    telemetry::Metrics,
};
pub use auth::ApiKeys;
pub use stop_signal::stop_signal;

/// How the process serves.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Keys that open `/v1`; none leaves it open.
    pub api_keys: ApiKeys,
    /// How long requests may go on once the server was asked to stop.
    pub shutdown_timeout: Duration,
}

/// All routes with everything around them, testable without a socket.
pub fn app(api: Arc<Api>, keys: ApiKeys, metrics: Metrics) -> Router {
    let engine_api = Arc::clone(&api);
    let scrape = move || {
        let (metrics, api) = (metrics.clone(), Arc::clone(&engine_api));
        api.continuity.measure();
        async move { metrics.render(api.generator.engine().load()) }
    };
    api::router(api)
        .route("/metrics", get(scrape))
        .layer(middleware::from_fn_with_state(keys, auth::require_key))
        .layer(middleware::from_fn(request_metrics::record))
        .layer(CatchPanicLayer::custom(answer_panic))
        // Requests carry the ids of whole conversations.
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

/// Far above any conversation, far below memory.
const MAX_BODY_BYTES: usize = 1 << 29;

#[expect(clippy::needless_pass_by_value, reason = "the layer's signature")]
fn answer_panic(panic: Box<dyn std::any::Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let response = ApiError::internal(format_args!("handler panicked: {}", text.unwrap_or("no message")));
    response.into_response()
}

/// Serves until `stop` resolves, then drains: running requests go on for the configured time, after which the engine
/// ends them with what they have.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    engine: Arc<dyn Engine>,
    config: &ServerConfig,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (stopping, mut stopped) = tokio::sync::watch::channel(false);
    let listener = listener.tap_io(|stream| {
        // Tokens are small and must not wait for company.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot disable Nagle's algorithm");
        }
    });
    let server = axum::serve(listener, app).with_graceful_shutdown(async move {
        stop.await;
        stopping.send_replace(true);
    });
    let drained = server.into_future();
    tokio::pin!(drained);
    tokio::select! {
        result = &mut drained => return result,
        _ = stopped.changed() => {}
    }
    tracing::info!(timeout_seconds = config.shutdown_timeout.as_secs(), "stopping: no new connections");
    if let Ok(result) = tokio::time::timeout(config.shutdown_timeout, &mut drained).await {
        engine.shutdown(GRACE).await;
        return result;
    }
    tracing::warn!("requests are still running: ending them with what they have");
    engine.shutdown(GRACE).await;
    match tokio::time::timeout(GRACE, drained).await {
        Ok(result) => result,
        Err(_) => Ok(()),
    }
}

/// How long the engine may take to become idle, and connections to send what is left.
const GRACE: Duration = Duration::from_secs(5);
