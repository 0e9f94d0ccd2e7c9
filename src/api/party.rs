//! Who shares the engine evenly with whom.

use std::sync::Arc;

use axum::http::HeaderMap;

use super::conversation::SESSION_HEADER;
use crate::engine::Party;

/// Whose turn a request takes: its client's, where that is known by a key of its own; else its session's; else, with
/// `None`, that of nobody but itself.
pub(super) fn party(client: Option<Arc<str>>, session: Option<&str>) -> Option<Party> {
    client.map(Party::Client).or_else(|| session.map(|session| Party::Session(session.into())))
}

/// The session of a request that has no conversation: it is named by its header only.
pub(super) fn session_of(headers: &HeaderMap) -> Option<&str> {
    let session = headers.get(SESSION_HEADER).and_then(|value| value.to_str().ok());
    session.filter(|session| !session.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_comes_before_its_session_and_nobody_is_nobody() {
        assert_eq!(party(Some("key".into()), Some("s")), Some(Party::Client("key".into())));
        assert_eq!(party(None, Some("s")), Some(Party::Session("s".into())));
        assert_eq!((party(None, None), session_of(&HeaderMap::new())), (None, None));
    }
}
