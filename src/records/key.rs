//! The key by which a response is found: its id and its owner.

use std::sync::Arc;

use crate::{turn::Client, wire::error::ApiError};

/// A response's id among those of its owner. For everybody else the response does not exist, and an id that another
/// owner has is free.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResponseKey {
    owner: Option<Arc<str>>,
    id: String,
}

impl ResponseKey {
    fn new(owner: Option<Arc<str>>, id: String) -> Self {
        Self { owner, id }
    }

    /// Makes the key of the response that a client knows by `id`.
    pub fn of(client: Client, id: impl Into<String>) -> Self {
        Self::new(client.owner(), id.into())
    }

    /// Returns the id as its owner knows it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the owner; `None` where all clients are one.
    pub fn owner(&self) -> Option<&Arc<str>> {
        self.owner.as_ref()
    }

    /// Returns the name under which the store knows the response. No two keys have the same name, whatever ids clients
    /// choose. Without an owner the name is the id, as it was before there were owners.
    pub fn stored(&self) -> String {
        /// Names with an owner begin with this mark. An id that begins with it too differs from them in what follows.
        const MARK: char = '\u{1}';
        match &self.owner {
            None if self.id.starts_with(MARK) => format!("{MARK}/{}", self.id),
            None => self.id.clone(),
            Some(owner) => format!("{MARK}{owner}/{}", self.id),
        }
    }

    pub fn not_found(&self) -> ApiError {
        ApiError::response_not_found(&self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_choice_of_ids_makes_two_owners_meet_in_the_store() {
        let owners = [None, Some(Arc::from("0a")), Some(Arc::from("0b"))];
        let ids =
            ["resp_1", "", "/resp_1", "0a/resp_1", "\u{1}0a/resp_1", "\u{1}/resp_1", "\u{1}\u{1}0a/resp_1", "\u{1}"];
        let mut seen = std::collections::HashSet::new();
        for owner in &owners {
            for id in ids {
                assert!(seen.insert(ResponseKey::new(owner.clone(), id.to_owned()).stored()), "{owner:?} {id:?}");
            }
        }
        assert_eq!(ResponseKey::new(None, "resp_1".to_owned()).stored(), "resp_1");
    }
}
