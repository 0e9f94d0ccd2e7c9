//! The wire shapes of sessions, and of results that are waited for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::body::{ANY, Body, Rules};

/// Begins a session. What a client says of itself is ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TinkerSessionRequest {}

impl Body for TinkerSessionRequest {
    const RULES: &'static Rules = &ANY;
}

/// A session that has begun.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerSession {
    /// `create_session`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub session_id: String,
}

/// Begins a sampling session: says which model it samples.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TinkerSamplingSessionRequest {
    pub session_id: String,
    /// The client's number of the sampling session. The same number is the same sampling session.
    pub sampling_session_seq_id: u64,
    /// A served name of the model.
    pub base_model: Option<String>,
    /// `tinker://NAME`: the adapter of that name.
    pub model_path: Option<String>,
}

impl Body for TinkerSamplingSessionRequest {
    const RULES: &'static Rules = &ANY;
}

/// A sampling session that has begun.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerSamplingSession {
    /// `create_sampling_session`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub sampling_session_id: String,
}

/// What a sampling session samples.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerSampler {
    pub sampler_id: String,
    pub base_model: String,
    pub model_path: Option<String>,
}

/// Names a session.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TinkerHeartbeatRequest {
    pub session_id: String,
}

impl Body for TinkerHeartbeatRequest {
    const RULES: &'static Rules = &ANY;
}

/// The session goes on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerHeartbeat {
    /// `session_heartbeat`.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// Names a sampling request.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TinkerFutureRequest {
    pub request_id: String,
}

impl Body for TinkerFutureRequest {
    const RULES: &'static Rules = &ANY;
}

/// The sampling request is taken; its result is to be retrieved.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerFuture {
    pub request_id: String,
    /// What the sequences are called, in their order.
    pub sample_sequence_ids: Vec<String>,
}

/// The result is not there yet.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerTryAgain {
    /// `try_again`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub request_id: String,
    /// `active`.
    pub queue_state: &'static str,
}

/// The request failed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerFailure {
    /// Why.
    pub error: String,
    /// `user` or `server`: whose fault it is.
    pub category: &'static str,
}

/// Flags of the server that change what the client does. Those that are left out have the client's defaults.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerClientConfig {}

/// The same, asked for again and again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerDynamicConfig {
    /// True: a client that gives up a request says so.
    pub sample_cancel_enabled: bool,
}

/// What the server can do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerCapabilities {
    pub supported_models: Vec<TinkerModel>,
}

/// A name under which the model is served.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerModel {
    pub model_name: String,
    pub max_context_length: usize,
    /// False.
    pub trainable: bool,
    /// True.
    pub sampleable: bool,
}

/// A word about how it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TinkerStatus {
    pub status: &'static str,
}
