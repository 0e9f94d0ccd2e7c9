//! Who asks: the headers of a request, and the API key that opened it.
//!
//! Clients with different keys share nothing that the server remembers: not the continuity cache, not the prefixes of the
//! KV cache, not stored responses, and neither can end the other's requests. This is where that is decided; all else
//! compares what it is given here. Requests that came without a key, on a server that asks for none, are one client.

use std::{convert::Infallible, fmt, sync::Arc};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};

use super::responses::ResponseKey;

/// Whom an API key stands for: a hash that does not lead back to the key. It is compared and hashed again, never logged.
///
/// Whoever checks the key puts it into the request's extensions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity([u8; 32]);

impl Identity {
    /// Of whoever has `key`; the same after a restart.
    pub fn of_key(key: &str) -> Self {
        Self(blake3::derive_key("tito 2026-11-22 identity of an API key, version 1", key.as_bytes()))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity")
    }
}

/// What a request says besides its body.
#[derive(Clone, Default)]
pub(super) struct Caller {
    pub(super) headers: HeaderMap,
    /// Absent where all clients are one.
    identity: Option<Identity>,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self { headers: parts.headers.clone(), identity: parts.extensions.get().copied() })
    }
}

impl Caller {
    /// Whose the request is, for what is kept by owner; absent where all clients are one.
    pub(super) fn owner(&self) -> Option<Arc<str>> {
        self.identity.map(|Identity(hash)| Arc::from(blake3::Hash::from_bytes(hash).to_hex().as_str()))
    }

    /// The salt that separates the request from those of other keys and, among those of its own, from those that were
    /// `asked` to have another one. Without keys it is the one that was asked for, letter for letter.
    pub(super) fn salt(&self, asked: Option<&Arc<str>>) -> Option<Arc<str>> {
        let Some(Identity(hash)) = self.identity else { return asked.cloned() };
        let mut hasher = blake3::Hasher::new_derive_key("tito 2026-11-22 salt of an API key, version 1");
        hasher.update(&hash);
        if let Some(asked) = asked {
            // No salt is not the empty salt.
            hasher.update(&[1]).update(asked.as_bytes());
        }
        Some(Arc::from(hasher.finalize().to_hex().as_str()))
    }

    /// The response that this client knows by `id`.
    pub(super) fn response(&self, id: impl Into<String>) -> ResponseKey {
        ResponseKey::new(self.owner(), id.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(key: Option<&str>) -> Caller {
        Caller { headers: HeaderMap::new(), identity: key.map(Identity::of_key) }
    }

    #[test]
    fn no_two_keys_and_no_two_salts_of_a_key_are_the_same() {
        let asked = [None, Some(Arc::from("")), Some(Arc::from("a")), Some(Arc::from("b"))];
        let callers = [caller(Some("a")), caller(Some("b")), caller(Some(""))];
        let salts: Vec<_> = callers.iter().flat_map(|one| asked.iter().map(|salt| one.salt(salt.as_ref()))).collect();
        for (place, salt) in salts.iter().enumerate() {
            assert!(salt.is_some() && !salts[..place].contains(salt), "{place}");
        }
        assert_eq!(caller(Some("a")).salt(None), caller(Some("a")).salt(None));
        assert_ne!(caller(Some("a")).owner(), caller(Some("b")).owner());
    }

    #[test]
    fn without_keys_a_salt_is_what_was_asked_for() {
        let one = caller(None);
        assert_eq!((one.owner(), one.salt(None)), (None, None));
        assert_eq!(one.salt(Some(&Arc::from("a"))).as_deref(), Some("a"));
    }

    #[test]
    fn an_identity_shows_nothing_of_its_key() {
        let identity = Identity::of_key("secret");
        assert_eq!(format!("{identity:?}"), "Identity");
        assert_ne!(&identity.0, blake3::hash(b"secret").as_bytes());
    }
}
