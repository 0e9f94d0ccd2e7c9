//! Whether a request that got an error may be sent again, and where: one table for every error of the program.
//!
//! Owns the causes of errors, as far as they decide that, the table, and the words of clients and routers: the header
//! `X-Retry` of answers, and the fields `retry` and `done` of errors inside streams. Refuses HTTP, and the kinds of errors
//! of the API and of the control plane. Each of those names its cause, in a match that a new kind does not compile without.

use std::fmt;

/// The header of every answer that is an error.
pub(crate) const HEADER: &str = "x-retry";

/// Why an answer is an error, as far as it decides whether the request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(strum::VariantArray))]
pub(crate) enum Cause {
    /// The request itself: every replica with the same flags says the same.
    Request,
    /// The request names something that this replica does not have, and another may: a stored response, an adapter.
    NotHere,
    /// There is no room beside other requests.
    Busy,
    /// Something that this replica waits for: a trainer that paused it or took its weights, or its own end.
    Closed,
    /// Another call has to end first, on this replica.
    OutOfTurn,
    /// The client did not send its body, or the host of an image did not answer.
    Outside,
    /// The client did not read its stream.
    Unread,
    /// The server failed.
    Fault,
    /// A call of the control plane failed half-way on this replica.
    HalfDone,
}

/// Where the same request may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendTo {
    /// Nowhere: it is to be changed first.
    Never,
    /// To the same replica, later. Another one would not do what was asked of this one.
    Here,
    /// To another replica. This one would most likely say the same.
    Elsewhere,
    /// To another replica, or later to the same one.
    Anywhere,
}

/// What may have happened before the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// Nothing was sampled, stored or changed.
    Nothing,
    /// Something may have been sampled, stored or changed.
    Maybe,
}

/// What a client or a router is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retry {
    /// Where the same request may be sent.
    pub(crate) to: SendTo,
    /// What may have happened.
    pub(crate) done: Done,
}

impl Cause {
    /// The table.
    pub(crate) fn retry(self) -> Retry {
        let (to, done) = match self {
            Self::Request => (SendTo::Never, Done::Nothing),
            Self::NotHere => (SendTo::Elsewhere, Done::Nothing),
            Self::Busy | Self::Closed | Self::Outside => (SendTo::Anywhere, Done::Nothing),
            Self::OutOfTurn => (SendTo::Here, Done::Nothing),
            Self::Unread => (SendTo::Anywhere, Done::Maybe),
            Self::Fault => (SendTo::Elsewhere, Done::Maybe),
            Self::HalfDone => (SendTo::Here, Done::Maybe),
        };
        Retry { to, done }
    }

    /// The cause of an answer of which only the status is known: those of routing, of keys and of probes. `None` for a
    /// status that is no error.
    pub(crate) fn of_status(status: u16) -> Option<Self> {
        match status {
            ..400 => None,
            408 => Some(Self::Outside),
            409 => Some(Self::OutOfTurn),
            429 => Some(Self::Busy),
            503 => Some(Self::Closed),
            400..=499 | 501 => Some(Self::Request),
            _ => Some(Self::Fault),
        }
    }
}

impl SendTo {
    /// Its name in headers and in streams.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Here => "here",
            Self::Elsewhere => "elsewhere",
            Self::Anywhere => "anywhere",
        }
    }
}

impl Done {
    /// Its name in headers and in streams.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Maybe => "maybe",
        }
    }
}

/// The value of the header: `elsewhere; done=nothing`.
impl fmt::Display for Retry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}; done={}", self.to.name(), self.done.name())
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn only_a_request_at_fault_is_never_sent_again() {
        for cause in Cause::VARIANTS {
            let is_never = cause.retry().to == SendTo::Never;
            assert_eq!(is_never, *cause == Cause::Request, "{cause:?}");
        }
    }

    #[test]
    fn every_status_of_an_error_has_a_cause_and_no_other_has() {
        for status in 100..600 {
            assert_eq!(Cause::of_status(status).is_some(), status >= 400, "{status}");
        }
        let said = |status| Cause::of_status(status).unwrap().retry().to_string();
        assert_eq!(said(401), "never; done=nothing");
        assert_eq!(said(503), "anywhere; done=nothing");
        assert_eq!(said(500), "elsewhere; done=maybe");
    }
}
