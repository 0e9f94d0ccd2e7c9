//! The server as a client meets it: the scripted engine, no network beyond the loopback.
//!
//! A module of the library itself, so that nothing is public for the tests' sake; `tests/program` runs the binary.

/// Dropped requests and streams, graceful shutdown.
mod abort;
/// Adapters that come and leave.
mod adapters;
/// The page that says how the answers of each family are read.
mod answer_formats;
/// A server to talk to without a socket; every other module starts here.
mod app;
/// Keys on everything but health, metrics and docs.
mod auth;
/// Files that import each other.
mod circles;
/// Known ids and the rest of the conversation: exact, or a clear error.
mod continuity;
/// The control plane: every pair of calls, and what becomes of requests.
mod control;
/// Deltas whose version is said to be there, and updates of nothing.
mod control_deltas;
/// openapi/control-plane.json says what the control plane has.
mod control_document;
/// docs/control-plane.md: what every path does, seen by asking it.
mod control_effects;
/// What calls of the control plane do not have, and what they have and do not serve.
mod control_fields;
/// The control plane against a model of it, in any order of calls.
mod control_model;
/// Calls of several trainers that come between each other's.
mod control_races;
mod control_refused;
/// SGLang's calls of the control plane: memory by tags, updates between a begin and an end, numbers of tensors.
mod control_sglang;
/// Files that were damaged, thousands of them: loaded, or refused with one line.
mod damage;
/// Ten ways of damaging a file.
mod damaged;
/// Bad requests: status, shape, and the words that no ordinary error may contain.
mod errors;
/// Requests take turns, and are bounded.
mod fairness;
/// Recordings of Python with real templates and tokenizers.
mod fidelity;
/// Random bodies: no 5xx, no panic, no word that means overflow.
mod fuzz;
/// The seeds of the fuzz targets.
mod fuzz_seeds;
/// Templates and variables that are made to stop the server.
mod hostile_templates;
mod inherent_methods;
/// What labels of metrics may say.
mod labels;
/// Which module may use which, and the rules that rustc does not check.
mod layering;
/// Long texts and large requests.
mod long_texts;
/// Sleeping, times and ports, by which a test passes or fails by chance.
mod luck;
/// `/metrics`.
mod metrics;
/// openapi/openapi.json is current and true.
mod openapi;
/// Waiting for what does not tell when it happens.
mod patience;
/// Ports that end together.
mod ports;
/// Who publishes is said in one place.
mod publisher;
/// Whether a request that got an error may be sent again, said in every error.
mod retry;
mod rooms;
/// One file for each endpoint.
mod routes;
/// docs/security.md: which path is open to whom.
mod security;
/// A server with a socket, in the test's own process.
mod served;
/// What surrounds the API: browsers, limits, proxies, docs.
mod server;
/// Several servers that share what they remember by a store.
mod shared_continuity;
/// Clients that do not read, do not go on, or only sit there.
mod slow_clients;
/// What the disk's store keeps when processes are killed and disks are full or read-only.
mod store;
/// A stream adds up to the JSON answer.
mod streaming;
/// Spans of requests, for collectors of traces.
mod traces;
/// Which files of a crate use which.
mod uses_of_files;
/// Errors as vLLM words them.
mod vllm_errors;
