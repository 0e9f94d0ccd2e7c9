//! The ids that clients are given: they say where a sampling session, or a request, is.

use std::fmt;

/// Where a sampling session is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SamplerId {
    pub(crate) session: String,
    pub(crate) number: u64,
}

impl SamplerId {
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let (session, number) = id.rsplit_once(":sample:")?;
        Some(Self { session: session.to_owned(), number: number.parse().ok()? })
    }
}

impl fmt::Display for SamplerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:sample:{}", self.session, self.number)
    }
}

/// Where a request is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RequestId {
    pub(crate) sampler: SamplerId,
    pub(crate) number: u64,
}

impl RequestId {
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let (sampler, number) = id.rsplit_once(':')?;
        Some(Self { sampler: SamplerId::parse(sampler)?, number: number.parse().ok()? })
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.sampler, self.number)
    }
}
