//! Bearer keys on everything but health, metrics, docs and the page that shows trajectories, which holds none; `x-api-key` on `/v1/messages` and
//! below `/api/v1` too.
//!
//! Says to the API, with each request, whom its key stands for.
//!
//! Deliberate deviation from vLLM, which guards only what is under `/v1`, `/v2`, `/inference` and `/cohere`:
//! `/tokenize` and `/invocations` do the same work.

use std::sync::Arc;

use axum::{
    Json,
    extract::Request,
    http::{HeaderName, Method, StatusCode, header},
    response::IntoResponse,
};
use futures::future::{Either, ready};
use subtle::ConstantTimeEq;

use super::next::{Answering, Next};
use crate::{api::is_messages_path, turn::Identity};

/// The keys that open the API; none leaves it open.
#[derive(Clone, Default)]
pub struct ApiKeys {
    hashes: Arc<[blake3::Hash]>,
    /// Whether all keys stand for one client.
    shared: bool,
}

impl ApiKeys {
    /// Any of `keys` opens the server, but an empty one, which is none.
    pub fn new(keys: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let hash = |key: &str| (!key.is_empty()).then(|| blake3::hash(key.as_bytes()));
        Self { hashes: keys.into_iter().filter_map(|key| hash(key.as_ref())).collect(), shared: false }
    }

    /// Whether all keys stand for one client, to whom everything belongs, or each for one of its own.
    #[must_use]
    pub fn shared(self, shared: bool) -> Self {
        Self { shared, ..self }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Compares with every key, so that time tells nothing of any; hashes, so that it tells nothing of their lengths.
    fn admit(&self, offered: &str) -> bool {
        let offered = blake3::hash(offered.as_bytes());
        let matches = |key: &blake3::Hash| key.as_bytes().ct_eq(offered.as_bytes());
        self.hashes.iter().map(matches).fold(subtle::Choice::from(0), |any, one| any | one).into()
    }
}

impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ApiKeys({} keys)", self.hashes.len())
    }
}

/// The paths that need no key, with everything below them.
const OPEN: [&str; 9] =
    ["/health", "/livez", "/readyz", "/ping", "/metrics", "/docs", "/redoc", "/openapi.json", "/inspect"];

fn is_open(path: &str) -> bool {
    OPEN.iter().any(|open| is_below(path, open))
}

/// Whether a path is `root`, or below it.
fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path below which clients of Tinker ask; like those of Anthropic, they have a header of their own for the key.
const OF_TINKER: &str = "/api/v1";
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The key in the header of these clients, on the paths that they ask.
fn key_in_own_header(request: &Request) -> Option<&str> {
    let path = request.uri().path();
    if !is_messages_path(path) && !is_below(path, OF_TINKER) {
        return None;
    }
    request.headers().get(API_KEY)?.to_str().ok()
}

/// What opens which paths.
#[derive(Debug, Clone)]
pub(super) struct Doors {
    pub(super) api: ApiKeys,
    /// The keys of the control plane, where it has others than the API.
    pub(super) admin: Option<ApiKeys>,
    /// The paths of the control plane.
    pub(super) admin_paths: Arc<[&'static str]>,
}

impl Doors {
    /// The keys of which one opens a path; `None` where it needs none.
    fn keys(&self, path: &str) -> Option<&ApiKeys> {
        let keys = match &self.admin {
            // A control plane without keys opens nothing below the API's root, whose keys count as in vLLM.
            Some(keys) if keys.is_empty() && is_below(path, "/v1") => &self.api,
            Some(keys) if self.admin_paths.contains(&path) => keys,
            _ if is_open(path) => return None,
            _ => &self.api,
        };
        (!keys.is_empty()).then_some(keys)
    }
}

/// The first key of a request that opens the API.
fn admitted<'a>(keys: &ApiKeys, request: &'a Request) -> Option<&'a str> {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let offered = header.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| {
        // The scheme's case does not matter (RFC 9110).
        scheme.eq_ignore_ascii_case("bearer")
    });
    let offered = [offered.map(|(_, key)| key), key_in_own_header(request)];
    offered.into_iter().flatten().map(str::trim).find(|key| keys.admit(key))
}

/// Answers `{"error": "Unauthorized"}` with a 401 without a key; preflight requests need none.
pub(super) fn require_key<N: Next>(doors: &Doors, mut request: Request, next: N) -> impl Answering + use<N> {
    if let Some(keys) = doors.keys(request.uri().path())
        && request.method() != Method::OPTIONS
        && admitted(keys, &request).is_none()
    {
        let refusal = (StatusCode::UNAUTHORIZED, Json(serde_json::json!({ "error": "Unauthorized" })));
        return Either::Left(ready(refusal.into_response()));
    }
    let identity = admitted(&doors.api, &request).map(Identity::of_key);
    if let Some(identity) = identity.filter(|_| !doors.api.shared) {
        request.extensions_mut().insert(identity);
    }
    Either::Right(next(request))
}
