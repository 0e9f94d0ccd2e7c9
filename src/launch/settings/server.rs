//! Where the API listens, and what surrounds it.

use std::{path::PathBuf, time::Duration};

use super::keys;
use crate::{
    config::{HttpArgs, ServeArgs},
    launch::memory,
    server::{AccessLog, ClientCertificates, Cors, ServerConfig, TlsFiles},
};

/// Where the API listens.
pub(in crate::launch) struct Listener {
    /// The socket's.
    pub(in crate::launch) address: Address,
    /// What HTTPS is spoken with; `None` for HTTP.
    pub(in crate::launch) tls: Option<TlsFiles>,
}

/// The address of a socket.
pub(in crate::launch) enum Address {
    /// TCP.
    Tcp {
        /// An address or a name; empty for all of this machine's.
        host: String,
        /// 0 has the system choose one.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// Where the API listens.
pub(super) fn listener(args: &HttpArgs) -> Listener {
    let address = match &args.uds {
        Some(path) => Address::Unix(path.clone()),
        None => Address::Tcp { host: args.host.clone(), port: args.port },
    };
    Listener { address, tls: tls(args) }
}

/// What HTTPS is spoken with, on every port.
pub(super) fn tls(args: &HttpArgs) -> Option<TlsFiles> {
    Some(TlsFiles {
        certificate: args.ssl_certfile.clone()?,
        key: args.ssl_keyfile.clone()?,
        client_authorities: args.ssl_ca_certs.clone(),
        clients: match args.ssl_cert_reqs {
            0 => ClientCertificates::Ignored,
            1 => ClientCertificates::Optional,
            _ => ClientCertificates::Required,
        },
        refresh: args.enable_ssl_refresh,
    })
}

/// Says that authorities are of no use where clients are not asked for certificates. vLLM takes them all the same.
pub(super) fn warn_of_idle_authorities(args: &HttpArgs) {
    if args.ssl_ca_certs.is_some() && args.ssl_cert_reqs == 0 {
        tracing::warn!(
            "--ssl-ca-certs has no effect without --ssl-cert-reqs 1 or 2: clients are not asked for certificates"
        );
    }
}

fn unless_zero(seconds: u64) -> Option<Duration> {
    Some(seconds).filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

/// What surrounds the API.
pub(super) fn config(args: &ServeArgs) -> anyhow::Result<ServerConfig> {
    let (http, logs) = (&args.http, &args.logs);
    Ok(ServerConfig {
        api_keys: keys::of_api(args)?.shared(http.share_between_api_keys),
        cors: Cors {
            origins: http.allowed_origins.0.clone(),
            methods: http.allowed_methods.0.clone(),
            headers: http.allowed_headers.0.clone(),
            credentials: http.allow_credentials,
        },
        root_path: http.root_path.clone(),
        docs: !http.disable_fastapi_docs,
        request_id_headers: http.enable_request_id_headers,
        max_request_bytes: http.max_request_bytes,
        max_bytes_in_flight: http.max_bytes_in_flight.unwrap_or_else(memory::for_bytes_in_flight),
        stream_comments: unless_zero(http.sse_keep_alive_interval),
        stream_stall_timeout: unless_zero(http.stream_stall_timeout),
        access_log: AccessLog { enabled: !logs.disable_uvicorn_access_log, silent_paths: logs.silent_paths() },
        request_spans: logs.enable_log_requests,
        request_patience: ServerConfig::default().request_patience,
        shutdown_delay: Duration::from_secs(http.shutdown_delay),
        shutdown_timeout: Duration::from_secs(http.shutdown_timeout),
        // Begun once the model has a name.
        tracer: None,
    })
}
