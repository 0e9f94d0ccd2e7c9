//! The special tokens of Harmony.

/// A token that no text has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Start,
    Channel,
    Message,
    End,
    Call,
}

impl Mark {
    pub(super) const ALL: [Self; 5] = [Self::Start, Self::Channel, Self::Message, Self::End, Self::Call];

    pub(super) fn token(self) -> &'static str {
        match self {
            Self::Start => "<|start|>",
            Self::Channel => "<|channel|>",
            Self::Message => "<|message|>",
            Self::End => "<|end|>",
            Self::Call => "<|call|>",
        }
    }
}
