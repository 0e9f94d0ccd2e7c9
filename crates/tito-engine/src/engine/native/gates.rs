//! Gates of feed-forward parts and experts, as data.

/// What a row of gates and ups becomes, or of numbers without gates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Gate {
    /// `silu(gate) * up`, of a row that holds all gates and then as many ups.
    Silu,
    /// `gelu(gate) * up` likewise, where gelu is approximated by tanh.
    GeluTanh,
    /// `gelu(gate) * up` likewise, where gelu is `x * (1 + erf(x / sqrt(2))) / 2`.
    Gelu,
    /// `gate * sigmoid(1.702 * gate) * (up + 1)`, of a row in which each gate has its up after it. Gates are at most the
    /// limit, ups are between it and its negative.
    Clamped {
        /// The limit.
        limit: f32,
    },
    /// The square of a number that is over 0, and 0 for others, of a row that holds nothing else.
    SquaredRelu,
    /// `gelu(x)` of each number of a row that holds nothing else, where gelu is approximated by tanh.
    GeluTanhAlone,
    /// `gelu(x)` likewise, where gelu is `x * (1 + erf(x / sqrt(2))) / 2`.
    GeluAlone,
    /// [`Xielu`] of each number of a row that holds nothing else.
    Xielu(Xielu),
}

impl Gate {
    /// Whether a row holds as many ups besides.
    pub(crate) fn has_ups(self) -> bool {
        !matches!(self, Self::SquaredRelu | Self::GeluTanhAlone | Self::GeluAlone | Self::Xielu(_))
    }

    /// How many numbers it reads for so many results.
    pub(crate) fn inputs(self, width: usize) -> usize {
        if self.has_ups() { 2 * width } else { width }
    }
}

/// `rising * x^2 + slope * x` of a number over 0, and `falling * (e^min(x, most) - 1 - x) + slope * x` of others.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Xielu {
    /// How fast the square rises.
    pub(crate) rising: f32,
    /// How fast it falls below 0.
    pub(crate) falling: f32,
    /// The slope at 0.
    pub(crate) slope: f32,
    /// The exponential is of no more than this.
    pub(crate) most: f32,
}
