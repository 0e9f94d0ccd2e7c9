//! Who may ask a server without keys: not pages of other origins that a name leads here.
//!
//! A page can have its own name point to this machine once it is loaded, and would then ask as if it came from here. Such a
//! request names that page's host; one that a person typed names an address, or this machine.

use std::net::IpAddr;

use axum::{
    extract::Request,
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::api::not_found;

/// Lets requests through that name an address or `localhost`, or no host at all; for all others nothing is here.
pub(super) async fn only_by_address(request: Request, next: Next) -> Response {
    if names_no_other(request.headers()) { next.run(request).await } else { not_found().into_response() }
}

fn names_no_other(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = without_port.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_hosts_are_refused() {
        let lets = |host: &str| names_no_other(&[(header::HOST, host.parse().unwrap())].into_iter().collect());
        for host in ["localhost", "LOCALHOST:8010", "127.0.0.1:8010", "[::1]:8010", "[::1]", "10.0.0.7"] {
            assert!(lets(host), "{host}");
        }
        for host in ["evil.example", "evil.example:8010", "localhost.evil.example:8010", "", "127.0.0.1.evil.example"] {
            assert!(!lets(host), "{host}");
        }
        assert!(names_no_other(&HeaderMap::new()));
    }
}
