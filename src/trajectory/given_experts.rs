//! The experts that a request gave for the first tokens of its prompt, as they are kept.

/// Experts token by token, in a token mixture by mixture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenExperts {
    /// How many mixtures of experts the model has.
    pub mixtures: u32,
    /// How many experts a token goes through in each of them.
    pub per_token: u32,
    /// The numbers of the experts: `mixtures * per_token` for each token, or [`Self::CHOSEN_BY_THE_MODEL`].
    pub experts: Vec<u16>,
}

impl GivenExperts {
    /// Stands for an expert that the request left to the model.
    pub const CHOSEN_BY_THE_MODEL: u16 = u16::MAX;

    /// Whether no token has any.
    pub fn is_empty(&self) -> bool {
        self.experts.is_empty()
    }

    /// How many tokens have experts; `None` if they have not as many as the sizes say.
    pub fn tokens(&self) -> Option<usize> {
        let width = (self.mixtures as usize).checked_mul(self.per_token as usize)?;
        let length = self.experts.len();
        if length == 0 { Some(0) } else { length.is_multiple_of(width).then(|| length / width) }
    }
}
