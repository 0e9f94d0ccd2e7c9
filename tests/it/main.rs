//! The server as a client meets it: one binary, the scripted engine, no network beyond the loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Dropped requests and streams, graceful shutdown.
mod abort;
/// A server to talk to without a socket; every other module starts here.
mod app;
/// Keys on everything but health, metrics and docs.
mod auth;
/// The command line, by running the binary.
mod cli;
/// TLS and Unix sockets, by running the binary.
mod connections;
/// Known ids and the rest of the conversation: exact, or a clear error.
mod continuity;
/// Bad requests: status, shape, and the words that no ordinary error may contain.
mod errors;
/// Recordings of Python with real templates and tokenizers.
mod fidelity;
/// Random bodies: no 5xx, no panic, no word that means overflow.
mod fuzz;
/// The seeds of the fuzz targets.
mod fuzz_seeds;
/// Which module may use which, and the rules that rustc does not check.
mod layering;
/// `/metrics`.
mod metrics;
/// openapi/openapi.json is current and true.
mod openapi;
/// One file for each endpoint.
mod routes;
/// What surrounds the API: browsers, limits, proxies, docs.
mod server;
/// What the disk's store keeps when processes are killed and disks are full or read-only.
mod store;
/// A stream adds up to the JSON answer.
mod streaming;
/// Errors as vLLM words them.
mod vllm_errors;
