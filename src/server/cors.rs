//! Which pages of other origins browsers may let ask, as Starlette's middleware answers them.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::{
    FutureExt,
    future::{Either, ready},
};

use super::next::{Answering, Next};

/// Methods that `*` stands for.
const ALL_METHODS: [&str; 8] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY"];
/// Headers that need no permission.
const SAFE_HEADERS: [&str; 4] = ["Accept", "Accept-Language", "Content-Language", "Content-Type"];
/// Seconds that a browser may remember a permission.
const MAX_AGE: &str = "600";
const PREFLIGHT_VARY: &str =
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network";
const REQUEST_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");

/// Who may ask, and how; `*` is everyone and everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cors {
    /// Origins.
    pub origins: Vec<String>,
    /// Methods.
    pub methods: Vec<String>,
    /// Headers.
    pub headers: Vec<String>,
    /// Cookies and keys too.
    pub credentials: bool,
}

/// No origin, as in vLLM.
impl Default for Cors {
    fn default() -> Self {
        let all = || vec!["*".to_owned()];
        Self { origins: Vec::new(), methods: all(), headers: all(), credentials: false }
    }
}

impl Cors {
    fn all_origins(&self) -> bool {
        self.origins.iter().any(|origin| origin == "*")
    }

    fn allows_origin(&self, origin: &str) -> bool {
        self.all_origins() || self.origins.iter().any(|allowed| allowed == origin)
    }

    fn methods(&self) -> Vec<&str> {
        if self.methods.iter().any(|method| method == "*") {
            return ALL_METHODS.to_vec();
        }
        self.methods.iter().map(String::as_str).collect()
    }

    fn all_headers(&self) -> bool {
        self.headers.iter().any(|header| header == "*")
    }

    fn preflight(&self, asked: &HeaderMap) -> Response {
        let text = |name: &HeaderName| asked.get(name).and_then(|value| value.to_str().ok());
        let origin = text(&header::ORIGIN).unwrap_or_default();
        let mut answer = Headers::default();
        let mut failures = Vec::new();
        answer.set(header::VARY, PREFLIGHT_VARY);
        if !self.allows_origin(origin) {
            failures.push("origin");
        } else if self.all_origins() && !self.credentials {
            answer.set(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        } else {
            answer.set(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        }
        let methods = self.methods();
        answer.set(header::ACCESS_CONTROL_ALLOW_METHODS, &methods.join(", "));
        answer.set(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        if !methods.contains(&text(&header::ACCESS_CONTROL_REQUEST_METHOD).unwrap_or_default()) {
            failures.push("method");
        }
        let headers: BTreeSet<&str> = SAFE_HEADERS.into_iter().chain(self.headers.iter().map(String::as_str)).collect();
        let wanted = text(&header::ACCESS_CONTROL_REQUEST_HEADERS);
        if !self.all_headers() {
            let allowed = headers.iter().copied().collect::<Vec<_>>().join(", ");
            answer.set(header::ACCESS_CONTROL_ALLOW_HEADERS, &allowed);
        } else if let Some(wanted) = wanted {
            answer.set(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
        }
        let is_allowed = |name: &str| headers.iter().any(|allowed| allowed.eq_ignore_ascii_case(name.trim()));
        if !self.all_headers() && wanted.is_some_and(|wanted| !wanted.split(',').all(is_allowed)) {
            failures.push("headers");
        }
        if asked.contains_key(REQUEST_PRIVATE_NETWORK) {
            failures.push("private-network");
        }
        if self.credentials {
            answer.set(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        }
        if failures.is_empty() {
            return (answer.0, "OK").into_response();
        }
        (StatusCode::BAD_REQUEST, answer.0, format!("Disallowed CORS {}", failures.join(", "))).into_response()
    }

    fn permit(&self, origin: Option<&str>, response: &mut Response) {
        let mut headers = Headers(std::mem::take(response.headers_mut()));
        let mut varies = true;
        if let Some(origin) = origin {
            if self.all_origins() {
                headers.set(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
            }
            if self.credentials {
                headers.set(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
            }
            let exact = if self.all_origins() { self.credentials } else { self.allows_origin(origin) };
            if exact {
                headers.set(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            }
            varies = exact || !self.all_origins() || !self.credentials;
        }
        if varies {
            let before = headers.0.get_all(header::VARY).iter().filter_map(|value| value.to_str().ok());
            let vary = before.chain(["Origin"]).collect::<Vec<_>>().join(", ");
            headers.set(header::VARY, &vary);
        }
        *response.headers_mut() = headers.0;
    }
}

#[derive(Default)]
struct Headers(HeaderMap);

impl Headers {
    /// What is no header value came from a flag or a header, and is left out.
    fn set(&mut self, name: HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.0.insert(name, value);
        }
    }
}

/// Answers preflight requests, and tells browsers what pages may read.
pub(super) fn apply(cors: Arc<Cors>, request: Request, next: impl Next) -> impl Answering {
    let headers = request.headers();
    let origin = headers.get(header::ORIGIN).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let asks = headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if origin.is_some() && request.method() == Method::OPTIONS && asks {
        return Either::Left(ready(cors.preflight(headers)));
    }
    Either::Right(next(request).map(move |mut response| {
        cors.permit(origin.as_deref(), &mut response);
        response
    }))
}
