//! Who may ask a server without keys: no page of another origin, by whatever name it comes.
//!
//! A page can have its own name point to this machine once it is loaded, and would then ask as if it came from here. Such a
//! request names that page's host; one that a person typed names an address, or this machine. And a page may send what
//! forms send to any server, without asking first: its browser says where it comes from, and gives it no media type but
//! theirs.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::HttpBody,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, Uri, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    admin::{self, Refusal},
    http::error::not_found,
};

/// Where a browser says that a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Media types that a page may only send once it was allowed to.
const MEDIA_TYPES: [&str; 2] = ["application/json", "application/octet-stream"];

/// The names, besides addresses and `localhost`, by which a control plane without a key may be asked.
#[derive(Debug, Clone, Default)]
pub struct AllowedHosts(Arc<[String]>);

impl AllowedHosts {
    /// Names of hosts; `*.` stands for anything before the rest.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    fn allow(&self, host: &Authority) -> bool {
        let name = host.host().to_ascii_lowercase();
        let is_named = |allowed: &String| match allowed.strip_prefix('*') {
            Some(end) if end.starts_with('.') => name.ends_with(end),
            _ => name == *allowed,
        };
        is_here(host) || self.0.iter().any(is_named)
    }
}

/// Lets requests through that name an address or `localhost`, or no host at all; for all others nothing is here.
pub(super) async fn only_by_address(request: Request, next: Next) -> Response {
    let is_here = hosts(request.uri(), request.headers()).all(|host| host.is_some_and(|host| is_here(&host)));
    if is_here { next.run(request).await } else { not_found().into_response() }
}

/// Lets requests to a control plane without a key through, unless a page of another origin may have sent them.
pub(super) async fn from_no_page(State(allowed): State<AllowedHosts>, request: Request, next: Next) -> Response {
    match refusal(&allowed, &request) {
        Some(refusal) => admin::refused(refusal),
        None => next.run(request).await,
    }
}

fn refusal(allowed: &AllowedHosts, request: &Request) -> Option<Refusal> {
    let headers = request.headers();
    let hosts: Vec<_> = hosts(request.uri(), headers).collect();
    if !hosts.iter().all(|host| host.as_ref().is_some_and(|host| allowed.allow(host))) {
        return Some(Refusal::Host);
    }
    let is_own = |origin: &str| {
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        hosts.iter().flatten().any(|own| own.as_str().eq_ignore_ascii_case(host))
    };
    let all = |name: &HeaderName, fit: &dyn Fn(&str) -> bool| {
        headers.get_all(name).iter().all(|value| value.to_str().is_ok_and(fit))
    };
    if !all(&header::ORIGIN, &is_own) || !all(&FETCH_SITE, &|site| ["same-origin", "none"].contains(&site)) {
        return Some(Refusal::Page);
    }
    let has_type = headers.contains_key(header::CONTENT_TYPE) && all(&header::CONTENT_TYPE, &needs_leave);
    (!request.body().is_end_stream() && !has_type).then_some(Refusal::MediaType)
}

/// Whether a page may send this media type only once it was allowed to.
fn needs_leave(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    MEDIA_TYPES.iter().any(|known| known.eq_ignore_ascii_case(essence))
}

/// The hosts that a request names, in its head and, on HTTP/2, in `:authority`; `None` for what is no host. A request that
/// names none comes from no browser.
fn hosts(uri: &Uri, headers: &HeaderMap) -> impl Iterator<Item = Option<Authority>> {
    let in_headers = headers.get_all(header::HOST).iter();
    let in_headers = in_headers.map(|host| host.to_str().ok()?.parse().ok()).collect::<Vec<_>>();
    uri.authority().cloned().map(Some).into_iter().chain(in_headers)
}

/// Whether a name needs nobody to say what it stands for.
fn is_here(host: &Authority) -> bool {
    let name = host.host();
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let has_user = host.as_str().contains('@');
    !has_user && (bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(uri: &str, headers: &[(&str, &str)], body: &'static str) -> Request {
        let request = headers.iter().fold(Request::post(uri), |request, (name, value)| request.header(*name, *value));
        request.body(Body::from(body)).unwrap()
    }

    fn all_are_here(uri: &str, headers: &[(&str, &str)]) -> bool {
        let request = request(uri, headers, "");
        hosts(request.uri(), request.headers()).all(|host| host.is_some_and(|host| is_here(&host)))
    }

    #[test]
    fn names_of_other_hosts_are_refused() {
        for host in ["localhost", "LOCALHOST:8010", "127.0.0.1:8010", "[::1]:8010", "[::1]", "10.0.0.7"] {
            assert!(all_are_here("/", &[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8010",
            "localhost.evil.example:8010",
            "",
            "127.0.0.1.evil.example",
            "evil@127.0.0.1",
            "[[::1]]",
        ] {
            assert!(!all_are_here("/", &[("host", host)]), "{host}");
        }
        assert!(all_are_here("/", &[]));
        // As HTTP/2 says it.
        assert!(all_are_here("http://127.0.0.1:8010/", &[]));
        assert!(!all_are_here("http://evil.example/", &[]));
        assert!(!all_are_here("http://evil.example/", &[("host", "localhost")]));
        assert!(!all_are_here("http://localhost/", &[("host", "evil.example")]));
        assert!(!all_are_here("/", &[("host", "localhost"), ("host", "evil.example")]));
    }

    #[test]
    fn a_control_plane_without_a_key_is_asked_by_no_page() {
        let allowed = AllowedHosts::new(["Tito-0.svc".to_owned(), "*.tito.local".to_owned()]);
        let refused = |headers: &[(&str, &str)], body| refusal(&allowed, &request("/pause", headers, body));
        let json = ("content-type", "application/json; charset=utf-8");
        let host = ("host", "localhost:9000");
        for headers in [
            &[host][..],
            &[host, json],
            &[("host", "tito-0.SVC:9000"), json],
            &[("host", "a.tito.local")],
            &[host, ("origin", "http://localhost:9000"), ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
        ] {
            assert_eq!(refused(headers, ""), None, "{headers:?}");
        }
        assert_eq!(refused(&[host, json], "{}"), None);
        assert_eq!(refused(&[host, ("content-type", "application/octet-stream")], "{}"), None);
        for name in ["tito-1.svc", "tito.local", "evil.tito.local.example", "eviltito.local"] {
            assert_eq!(refused(&[("host", name), json], "{}"), Some(Refusal::Host), "{name}");
        }
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost:9001"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(refused(&[host, json, (name, value)], "{}"), Some(Refusal::Page), "{name}: {value}");
            assert_eq!(refused(&[host, (name, value)], ""), Some(Refusal::Page), "{name}: {value}");
        }
        for media_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", ""] {
            assert_eq!(refused(&[host, ("content-type", media_type)], "{}"), Some(Refusal::MediaType), "{media_type}");
        }
        assert_eq!(refused(&[host], "{}"), Some(Refusal::MediaType));
        assert_eq!(refused(&[host, json, ("content-type", "text/plain")], "{}"), Some(Refusal::MediaType));
    }
}
