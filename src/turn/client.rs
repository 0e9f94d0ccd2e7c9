//! The client that sent a request: it is known by the API key that opened the request, if the server asks for keys.
//!
//! Clients with different keys share nothing that the server remembers: not the continuity cache, not the prefixes of
//! the KV cache, not stored responses; and neither of them can end the other's requests. This module decides that;
//! every other module only compares what it gets from here. Requests without a key, on a server that asks for none,
//! belong to one client.

use std::{fmt, sync::Arc};

use crate::engine::Party;

/// The identity that an API key stands for: a hash that does not lead back to the key. It is compared and hashed again,
/// never logged.
///
/// Whoever checks the key puts it into the request's extensions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity([u8; 32]);

impl Identity {
    /// Returns the identity of whoever has `key`; it is the same after a restart.
    pub fn of_key(key: &str) -> Self {
        Self(blake3::derive_key("tito 2026-11-22 identity of an API key, version 1", key.as_bytes()))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity")
    }
}

/// The client that sent a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Client {
    /// `None` where all clients are one.
    identity: Option<Identity>,
}

impl Client {
    /// Makes the client with this identity; without an identity, all clients are one.
    pub fn new(identity: Option<Identity>) -> Self {
        Self { identity }
    }

    /// Returns the owner of the request, for things that are kept by owner; `None` where all clients are one.
    pub fn owner(self) -> Option<Arc<str>> {
        self.identity.map(|Identity(hash)| Arc::from(blake3::Hash::from_bytes(hash).to_hex().as_str()))
    }

    /// Returns the salt that separates this request from those of other keys and, among those of its own key, from
    /// those that `asked` for another salt. Without keys it is exactly the salt that was asked for.
    pub fn salt(self, asked: Option<&Arc<str>>) -> Option<Arc<str>> {
        let Some(Identity(hash)) = self.identity else { return asked.cloned() };
        let mut hasher = blake3::Hasher::new_derive_key("tito 2026-11-22 salt of an API key, version 1");
        hasher.update(&hash);
        if let Some(asked) = asked {
            // A request without a salt differs from one with an empty salt.
            hasher.update(&[1]).update(asked.as_bytes());
        }
        Some(Arc::from(hasher.finalize().to_hex().as_str()))
    }
}

/// Returns the party that shares the engine evenly with others: all requests of the client, where it has a key of its
/// own; else all requests of the session; else, with `None`, only the request itself.
pub(super) fn party(owner: Option<Arc<str>>, session: Option<&str>) -> Option<Party> {
    owner.map(Party::Client).or_else(|| session.map(|session| Party::Session(session.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(key: Option<&str>) -> Client {
        Client::new(key.map(Identity::of_key))
    }

    #[test]
    fn no_two_keys_and_no_two_salts_of_a_key_are_the_same() {
        let asked = [None, Some(Arc::from("")), Some(Arc::from("a")), Some(Arc::from("b"))];
        let clients = [client(Some("a")), client(Some("b")), client(Some(""))];
        let salts: Vec<_> = clients.iter().flat_map(|one| asked.iter().map(|salt| one.salt(salt.as_ref()))).collect();
        for (place, salt) in salts.iter().enumerate() {
            assert!(salt.is_some() && !salts[..place].contains(salt), "{place}");
        }
        assert_eq!(client(Some("a")).salt(None), client(Some("a")).salt(None));
        assert_ne!(client(Some("a")).owner(), client(Some("b")).owner());
    }

    #[test]
    fn without_keys_a_salt_is_what_was_asked_for() {
        let one = client(None);
        assert_eq!((one.owner(), one.salt(None)), (None, None));
        assert_eq!(one.salt(Some(&Arc::from("a"))).as_deref(), Some("a"));
    }

    #[test]
    fn an_identity_shows_nothing_of_its_key() {
        let identity = Identity::of_key("secret");
        assert_eq!(format!("{identity:?}"), "Identity");
        assert_ne!(&identity.0, blake3::hash(b"secret").as_bytes());
    }

    #[test]
    fn a_client_comes_before_its_session_and_nobody_is_nobody() {
        assert_eq!(party(Some("key".into()), Some("s")), Some(Party::Client("key".into())));
        assert_eq!(party(None, Some("s")), Some(Party::Session("s".into())));
        assert_eq!(party(None, None), None);
    }
}
