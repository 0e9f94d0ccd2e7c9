//! The program as a person runs it: the binary, its flags, and the lines that it ends with.
//!
//! Nothing here knows the library. What needs no process is tested faster within it, see `tests/it`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Activations in float32 beside weights in bfloat16.
mod activations;
/// Adapters, and who may load them.
mod adapters;
/// The command line.
mod cli;
/// Models that mistral.rs has not been shown to compute right.
mod compared;
/// TLS and Unix sockets.
mod connections;
/// Damaged files, and what there is no room for.
mod damage;
#[path = "../it/damaged.rs"]
mod damaged;
/// What `tito doctor` says.
mod doctor;
mod draft_model;
/// Adapters that requests find by their names.
mod found_adapters;
mod gpt_oss;
/// Files that are not what they are said to be, or lie elsewhere.
mod hostile_files;
/// HTTP/2, as clients ask who know it before.
mod http2;
/// Models of the hub, while they are fetched and before.
mod hub;
/// Clients that only sit there.
mod idle_clients;
/// A capture file, looked at.
mod inspect;
/// What `/metrics` counts.
mod metrics;
/// What every port refuses, bounds and ends, whatever it serves.
mod ports;
/// The binary; every other module starts here.
mod program;
/// Quantised checkpoints.
mod quantized;
/// A capture, sampled again.
mod replay;
#[path = "../../fuzz/src/specimen.rs"]
mod specimen;
/// Starts that fail: one sentence, and the next step.
mod starts;
/// Stores that cannot be used.
mod store;
/// Templates of models that are made to stop the server.
mod templates;
/// The text of models that read images.
mod text_alone;
