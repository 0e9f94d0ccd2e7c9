//! A request as the cache looks it up, and whose turns it may be given.

use std::sync::Arc;

use super::{
    fingerprint::{Fingerprint, Fingerprints},
    memory::Memory,
    shared::Namespace,
    turn::Turn,
};

/// Whose turns a request may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The turns of everybody who names no session. Conversations under other salts are not among them, since they have
    /// other fingerprints.
    Open,
    /// The turns of one session.
    Session(Fingerprint),
}

/// A request as the cache looks it up.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) memory: Arc<Memory>,
    /// What a store keeps the answers under, where there is one.
    pub(super) namespace: Option<Namespace>,
    pub(super) scope: Scope,
    /// The fingerprint of the salt.
    pub(super) salt: Fingerprint,
    pub(super) fingerprints: Fingerprints,
    /// What the request's assistant messages thought.
    pub(super) thoughts: Vec<Option<Fingerprint>>,
    /// The remembered turn that the prompt continues.
    pub(super) parent: Option<Arc<Turn>>,
    /// Whether the ids are this server's own, so that others who send the same messages may be given them.
    pub(super) own: bool,
}

impl Scope {
    /// Sessions of two salts are two sessions, whatever their names.
    pub(super) fn of(session: Option<&str>, salt: Fingerprint) -> Self {
        let key = |name| Fingerprint::joined(b"session", &[Fingerprint::of_text(b"session", name), salt]);
        session.map_or(Self::Open, |name| Self::Session(key(name)))
    }

    pub(super) fn fingerprint(self) -> Fingerprint {
        match self {
            Self::Open => Fingerprint::of_text(b"scope", "open"),
            Self::Session(session) => session,
        }
    }

    /// The key under which something is kept once any turn of the session was remembered.
    pub(super) fn marker(self) -> Option<Fingerprint> {
        match self {
            Self::Open => None,
            Self::Session(session) => Some(Fingerprint::joined(b"known session", &[session])),
        }
    }
}
