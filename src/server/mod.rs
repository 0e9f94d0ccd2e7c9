//! The process around the API: listening, keys, CORS, metrics and logs of requests, draining.
//!
//! Refuses endpoints of its own, except `/metrics`, which is about the process.

mod auth;
mod connection;
mod cors;
mod in_flight;
mod keep_alive;
mod large_bodies;
mod limit;
mod listener;
mod local;
mod method;
mod observe;
mod open_files;
mod ports;
mod request_id;
mod root_path;
mod scheme;
mod slow_body;
mod stop_signal;
mod tls;
mod traces;
mod unread;
mod unsent;

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Request},
    http::header,
    middleware::{self, Next, from_fn, from_fn_with_state, map_response},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::Value;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    admin::{self, Admin},
    api,
    engine::{EngineControl, WeightVersion},
    http::{docs::Docs, error},
    inspect,
    otlp::Tracer,
    state::Api,
    telemetry::{self, Metrics},
    turn::in_flight::BytesInFlight,
    wire::error::ApiError,
};
pub use auth::ApiKeys;
use auth::Doors;
pub use cors::Cors;
use limit::Limits;
pub use listener::Endpoint;
pub use local::AllowedHosts;
pub use observe::AccessLog;
pub use open_files::raise_open_files;
pub use ports::{Port, Ports, Work, serve};
pub use stop_signal::{stop_signal, survive_full_files};
pub use tls::{ClientCertificates, Tls, TlsFiles};

/// How the process serves.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Keys that open the API; none leaves it open.
    pub api_keys: ApiKeys,
    /// Which pages may ask.
    pub cors: Cors,
    /// What a proxy puts in front of paths.
    pub root_path: String,
    /// Whether the API describes itself.
    pub docs: bool,
    /// Whether responses carry `X-Request-Id`.
    pub request_id_headers: bool,
    /// The longest body of a request.
    pub max_request_bytes: usize,
    /// Bytes of requests that are read, rendered and put into ids at the same time.
    pub max_bytes_in_flight: usize,
    /// After how long a silence a stream gets a comment.
    pub stream_comments: Option<Duration>,
    /// Which responses are logged.
    pub access_log: AccessLog,
    /// Whether log lines of a request name it.
    pub request_spans: bool,
    /// For how long nothing may come of a request that has begun, be it of its body or of the rest of its head.
    pub request_patience: Duration,
    /// How long a client may leave unread what is sent to it.
    pub stream_stall_timeout: Option<Duration>,
    /// For how long requests are still taken once the server was asked to stop, so that routers find out that it will.
    pub shutdown_delay: Duration,
    /// How long requests may go on after that.
    pub shutdown_timeout: Duration,
    /// Traces requests.
    pub tracer: Option<Tracer>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            api_keys: ApiKeys::default(),
            cors: Cors::default(),
            root_path: String::new(),
            docs: true,
            request_id_headers: false,
            // This is so much because requests carry the ids of whole conversations.
            max_request_bytes: 1 << 29,
            max_bytes_in_flight: 1 << 30,
            stream_comments: None,
            access_log: AccessLog::default(),
            request_spans: false,
            request_patience: Duration::from_mins(1),
            stream_stall_timeout: Some(Duration::from_mins(5)),
            shutdown_delay: Duration::ZERO,
            shutdown_timeout: Duration::from_secs(30),
            tracer: None,
        }
    }
}

/// All routes with everything around them, so that tests need no socket. The order is vLLM's: whoever has no key learns
/// nothing else, and is not counted.
pub fn app(api: Arc<Api>, control: ControlPlane, config: &ServerConfig, metrics: Metrics) -> Router {
    let engine_api = Arc::clone(&api);
    let scrape = move || {
        let (metrics, api) = (metrics.clone(), Arc::clone(&engine_api));
        api.turns.continuity.measure();
        let engine = api.turns.generator.engine();
        let version = engine.control().map_or_else(WeightVersion::first, EngineControl::weights);
        let adapters = engine.adapters().map(|adapters| (adapters.limits(), adapters.asked_for()));
        let adapters = adapters.as_ref().map(|(limits, load)| (*limits, load));
        let text = metrics.render(engine.load(), &version.label, adapters);
        async move { ([(header::CONTENT_TYPE, telemetry::CONTENT_TYPE)], text) }
    };
    let limits = Limits { most: config.max_request_bytes, in_flight: BytesInFlight::new(config.max_bytes_in_flight) };
    let blocks = api.kv_events.as_ref().map(|source| admin::of_blocks(api.models.name(), source.block_size));
    let app = api::router(api, &Docs { shown: config.docs, root_path: config.root_path.clone() })
        .route("/metrics", get(scrape.clone()))
        .route("/metrics/", get(scrape));
    // Each call of `Router::layer` puts all that is within it into a box, which every request copies: one call has them all.
    let app = app.layer(
        ServiceBuilder::new()
            .layer(from_fn(observe::measure))
            // This stands outside of the layer that holds a body's bytes for as long as a task works on it, and where the
            // length is still known.
            .layer(from_fn(large_bodies::apply))
            .layer(from_fn_with_state(config.request_patience, slow_body::apply))
            .layer(from_fn_with_state(limits, limit::apply))
            .layer(DefaultBodyLimit::disable())
            // Within the layers that move a request to other threads: its notes belong to its task.
            .option_layer(config.tracer.clone().map(|tracer| from_fn_with_state(tracer, traces::follow)))
            .map_response(IntoResponse::into_response)
            .layer(CatchPanicLayer::custom(answer_panic)),
    );
    let doors = Arc::new(control.doors(&config.api_keys));
    let control = match control {
        ControlPlane::Open { admin, keys, hosts } => guarded(admin, &keys, hosts),
        ControlPlane::AdaptersOnly { admin, hosts } => {
            told_to_routers(adapters_only(admin, &config.api_keys, hosts), blocks)
        }
        ControlPlane::Closed => told_to_routers(admin::closed(&API_PATHS), blocks),
    };
    let request_ids = config.request_id_headers.then(|| from_fn(request_id::add));
    let app = measured(control).fallback_service(app).layer(
        ServiceBuilder::new()
            .option_layer(request_ids)
            .layer(from_fn_with_state(doors, auth::require_key))
            .layer(from_fn_with_state(Arc::new(config.cors.clone()), cors::apply))
            .option_layer(config.request_spans.then(|| from_fn(observe::span)))
            .option_layer(config.stream_comments.map(|interval| from_fn_with_state(interval, keep_alive::apply)))
            .layer(from_fn(scheme::mark)),
    );
    under_root(&config.root_path, surrounded(app, &config.access_log, config.stream_stall_timeout))
}

/// Where events of the cache are published and the control plane does not answer, what routers have to know of blocks.
fn told_to_routers(control: Router, blocks: Option<Value>) -> Router {
    let Some(blocks) = blocks else { return control };
    let answer = move || std::future::ready(Json(blocks.clone()));
    control.route("/get_server_info", get(answer))
}

/// Routes with what is around those of every port: a line of the log for each request, and what its connection is told of
/// it.
fn surrounded(app: Router, log: &AccessLog, stall: Option<Duration>) -> Router {
    let lines = log.enabled.then(|| from_fn_with_state(Arc::new(log.clone()), observe::log));
    app.layer(
        ServiceBuilder::new()
            .layer(from_fn(in_flight::count))
            .layer(from_fn(unread::read_out))
            .option_layer(stall.map(|patience| from_fn_with_state(patience, unsent::apply)))
            .option_layer(lines)
            .layer(map_response(async |response| error::say_retry_by_status(response)))
            .layer(from_fn(method::bounded)),
    )
}

/// A line for every request, on ports that few use.
fn every_line() -> AccessLog {
    AccessLog { enabled: true, silent_paths: Vec::new() }
}

/// Paths that are the API's where the control plane is not open, or that routers ask for and take 404 for no.
const API_PATHS: [&str; 3] = ["/abort_requests", "/server_info", "/get_server_info"];

/// The control plane on the port of the API.
pub enum ControlPlane {
    /// Its paths say how they are opened.
    Closed,
    /// vLLM's calls that load and unload adapters are served, and opened by what opens the API; the other paths say how
    /// they are opened.
    AdaptersOnly {
        /// What is served.
        admin: Arc<Admin>,
        /// The names by which it may be asked where the API needs no key.
        hosts: AllowedHosts,
    },
    /// It is served.
    Open {
        /// What is served.
        admin: Arc<Admin>,
        /// What opens it; none opens it to everybody but pages of other origins.
        keys: ApiKeys,
        /// The names by which it may be asked without a key.
        hosts: AllowedHosts,
    },
}

impl ControlPlane {
    fn doors(&self, api_keys: &ApiKeys) -> Doors {
        let admin = match self {
            Self::Closed | Self::AdaptersOnly { .. } => None,
            Self::Open { keys, .. } => Some(keys.clone()),
        };
        Doors { api: api_keys.clone(), admin, admin_paths: admin::paths().into() }
    }
}

/// The control plane on a port of its own, which one of `keys` opens; without any, it is asked by one of `hosts`, or by
/// address.
pub fn admin_app(admin: &Arc<Admin>, keys: ApiKeys, hosts: AllowedHosts, config: &ServerConfig) -> Router {
    let routes = guarded(Arc::clone(admin), &keys, hosts);
    let doors = Doors { api: keys, admin: None, admin_paths: [].into() };
    let alive = Arc::clone(admin);
    let health = move || std::future::ready(error::health(alive.control.engine().health().is_ok()));
    let routes = routes.route("/health", get(health));
    let app = measured(routes.fallback(|| async { error::not_found() }))
        .layer(from_fn_with_state(Arc::new(doors), auth::require_key));
    surrounded(app, &every_line(), config.stream_stall_timeout)
}

/// The paths of the control plane, to which no page may send anything where no key guards them.
fn guarded(admin: Arc<Admin>, keys: &ApiKeys, hosts: AllowedHosts) -> Router {
    without_pages(admin::router(admin), keys, hosts)
}

/// vLLM's calls about adapters, and how the other paths of the control plane are opened.
fn adapters_only(admin: Arc<Admin>, keys: &ApiKeys, hosts: AllowedHosts) -> Router {
    let open = [&API_PATHS[..], &admin::ADAPTER_PATHS].concat();
    without_pages(admin::adapters_router(admin), keys, hosts).merge(admin::closed(&open))
}

/// Where no key guards these paths, no page may send anything to them.
fn without_pages(routes: Router, keys: &ApiKeys, hosts: AllowedHosts) -> Router {
    if keys.is_empty() { routes.route_layer(from_fn_with_state(hosts, local::from_no_page)) } else { routes }
}

/// The control plane with what surrounds it on every port. Weights are longer than any request, and take no place among
/// requests.
fn measured(control: Router) -> Router {
    control.method_not_allowed_fallback(error::method_not_allowed).layer(
        ServiceBuilder::new()
            .layer(from_fn(observe::measure))
            .layer(from_fn_with_state(WEIGHTS_PATIENCE, slow_body::apply))
            .layer(DefaultBodyLimit::disable())
            .layer(CatchPanicLayer::custom(answer_panic)),
    )
}

/// For how long nothing may come of a body of the control plane: trainers gather weights while they send them.
const WEIGHTS_PATIENCE: Duration = Duration::from_mins(5);

/// The page that shows a capture file, and the paths that it asks. There are no keys: whoever reaches it may read the file.
pub fn inspect_app(captured: inspect::Captured) -> Router {
    let app = inspect::read_only(captured)
        .layer(CatchPanicLayer::custom(answer_panic))
        .layer(from_fn(local::only_by_address));
    surrounded(app, &every_line(), ServerConfig::default().stream_stall_timeout)
}

/// The same routes, with `root` in front of their paths or without it.
fn under_root(root: &str, app: Router) -> Router {
    let root = root.trim_end_matches('/').to_owned();
    if root.is_empty() {
        return app;
    }
    let strip = move |request: Request, next: Next| next.run(root_path::strip(&root, request));
    Router::new().fallback_service(app).layer(middleware::from_fn(strip))
}

#[expect(clippy::needless_pass_by_value, reason = "the layer's signature")]
fn answer_panic(panic: Box<dyn std::any::Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let response = ApiError::internal(format_args!("handler panicked: {}", text.unwrap_or("no message")));
    response.into_response()
}
