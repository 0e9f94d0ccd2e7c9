//! Paths behind a proxy that puts its own in front: both spellings reach the same route.

use axum::{
    extract::Request,
    http::{Uri, uri::PathAndQuery},
};

/// Takes `root` off a request's path, if it is there as whole segments.
pub(super) fn strip(root: &str, mut request: Request) -> Request {
    let uri = request.uri();
    let rest = uri.path().strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let Some(rest) = rest.filter(|_| !root.is_empty()) else { return request };
    let path = if rest.is_empty() { "/" } else { rest };
    let path = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(path).ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn only_whole_segments_are_taken_off() {
        for (path, expected) in [
            ("/root/v1/models?a=b", "/v1/models?a=b"),
            ("/root", "/"),
            ("/rooted/v1", "/rooted/v1"),
            ("/v1/models", "/v1/models"),
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            assert_eq!(strip("/root", request).uri().to_string(), expected);
        }
    }
}
