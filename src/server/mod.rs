//! The process around the API: listening, keys, CORS, metrics and logs of requests, draining.
//!
//! Refuses endpoints of its own, except `/metrics`, which is about the process.

mod around;
mod auth;
mod connection;
mod cors;
mod dialect;
mod in_flight;
mod keep_alive;
mod large_bodies;
mod limit;
mod listener;
mod local;
mod method;
mod next;
mod observe;
mod open_files;
mod ports;
mod reading;
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
    middleware::{self, Next, from_fn, from_fn_with_state},
    routing::get,
};
use serde_json::Value;
use tower::ServiceBuilder;

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
};
use around::{AroundApi, AroundKeyed, AroundPort, AroundRoute, Caught};
pub use auth::ApiKeys;
use auth::Doors;
pub use cors::Cors;
use limit::Limits;
pub use listener::Endpoint;
pub use local::AllowedHosts;
use next::AsLayer;
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
    let around_route =
        AroundRoute { request_patience: config.request_patience, limits: Some(limits), tracer: config.tracer.clone() };
    // Each call of `Router::layer` puts all that is within it into a box, which every request copies: one call has them all.
    let app = app.layer(ServiceBuilder::new().layer(AsLayer(around_route)).layer(DefaultBodyLimit::disable()));
    let doors = Arc::new(control.doors(&config.api_keys));
    let control = match control {
        ControlPlane::Open { admin, keys, hosts } => guarded(admin, &keys, hosts),
        ControlPlane::AdaptersOnly { admin, hosts } => {
            told_to_routers(adapters_only(admin, &config.api_keys, hosts), blocks)
        }
        ControlPlane::Closed => told_to_routers(admin::closed(&API_PATHS), blocks),
    };
    let around_api = AroundApi {
        port: around_port(config.access_log.clone(), config.stream_stall_timeout),
        request_ids: config.request_id_headers,
        doors,
        cors: Arc::new(config.cors.clone()),
        request_spans: config.request_spans,
        stream_comments: config.stream_comments,
    };
    let app = measured(control).fallback_service(app).layer(AsLayer(around_api));
    under_root(&config.root_path, app)
}

/// Where events of the cache are published and the control plane does not answer, what routers have to know of blocks.
fn told_to_routers(control: Router, blocks: Option<Value>) -> Router {
    let Some(blocks) = blocks else { return control };
    let answer = move || std::future::ready(Json(blocks.clone()));
    control.route("/get_server_info", get(answer))
}

fn around_port(access_log: AccessLog, stream_stall_timeout: Option<Duration>) -> AroundPort {
    AroundPort { access_log: Arc::new(access_log), stream_stall_timeout }
}

/// Routes of a port that few use: every request has its line of the log.
fn surrounded(app: Router, stream_stall_timeout: Option<Duration>) -> Router {
    let access_log = AccessLog { enabled: true, silent_paths: Vec::new() };
    app.layer(AsLayer(around_port(access_log, stream_stall_timeout)))
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
    let app = measured(routes.fallback(|| async { error::not_found() })).layer(AsLayer(AroundKeyed(Arc::new(doors))));
    surrounded(app, config.stream_stall_timeout)
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
    let around_route = AroundRoute { request_patience: WEIGHTS_PATIENCE, limits: None, tracer: None };
    control
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(ServiceBuilder::new().layer(AsLayer(around_route)).layer(DefaultBodyLimit::disable()))
}

/// For how long nothing may come of a body of the control plane: trainers gather weights while they send them.
const WEIGHTS_PATIENCE: Duration = Duration::from_mins(5);

/// The page that shows a capture file, and the paths that it asks. There are no keys: whoever reaches it may read the file.
pub fn inspect_app(captured: inspect::Captured) -> Router {
    let app = inspect::read_only(captured).layer(AsLayer(Caught)).layer(from_fn(local::only_by_address));
    surrounded(app, ServerConfig::default().stream_stall_timeout)
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
