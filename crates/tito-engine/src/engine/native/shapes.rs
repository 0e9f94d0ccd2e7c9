//! The shapes of operations: attention, norms, rotations, heads and logits.

/// The shape of the keys and values of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheShape {
    /// Heads of keys and values.
    pub(crate) heads: usize,
    /// How many numbers a head has.
    pub(crate) head_dim: usize,
}

/// Attention of one layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AttentionShape {
    /// Heads of queries.
    pub(crate) heads: usize,
    /// The factor of the scores.
    pub(crate) scale: f32,
    /// To which tokens a query attends.
    pub(crate) reach: Reach,
    /// A scaled score becomes `cap * tanh(score / cap)`; `None` for no cap.
    pub(crate) cap: Option<f32>,
}

/// To which tokens a query attends, of those up to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reach {
    /// All of them.
    All,
    /// The last so many, itself included.
    Window(usize),
    /// Those from the last position on that is a multiple of so many.
    Chunk(usize),
}

impl Reach {
    /// A window, if there is one.
    pub(crate) fn within(window: Option<usize>) -> Self {
        window.map_or(Self::All, Self::Window)
    }

    /// The first position to which the query at this one attends.
    pub(crate) fn first_key(self, position: usize) -> usize {
        match self {
            Self::All => 0,
            Self::Window(window) => (position + 1).saturating_sub(window),
            Self::Chunk(chunk) => position / chunk * chunk,
        }
    }
}

/// A norm of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NormShape {
    /// What is added to the mean of the squares.
    pub(crate) epsilon: f32,
    /// What is added to each weight: 1 where a checkpoint holds weights less one, and 0 elsewhere.
    pub(crate) offset: f32,
    /// Whether numbers are taken less their mean first. Otherwise it is a root-mean-square norm.
    pub(crate) centred: bool,
}

/// Some heads of a row, all of them as wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadRange {
    /// How many heads there are before them.
    pub(crate) first: usize,
    /// How many there are.
    pub(crate) count: usize,
    /// Numbers of a head.
    pub(crate) width: usize,
}

impl HeadRange {
    /// A row of so many numbers as one head.
    pub(crate) fn whole(width: usize) -> Self {
        Self { first: 0, count: 1, width }
    }
}

/// Which numbers of a row are rotated, against which others, and by which angles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// The first of the heads that are rotated.
    pub(crate) first: usize,
    /// How many there are.
    pub(crate) heads: usize,
    /// Numbers of a head. It begins with those that are rotated, two for each angle; the others stay.
    pub(crate) head_dim: usize,
    /// Whether a pair are neighbours. Otherwise its second number is in the second half of what is rotated.
    pub(crate) neighbours: bool,
    /// Which of the step's angles.
    pub(crate) angles: usize,
}

/// Heads that attend within segments of rows, in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SegmentHeads {
    /// How many there are, of queries, of keys and of values.
    pub(crate) heads: usize,
    /// Numbers of a head.
    pub(crate) head_dim: usize,
    /// The factor of the scores.
    pub(crate) scale: f32,
}

/// What becomes of logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LogitShape {
    /// Their factor.
    pub(crate) factor: f32,
    /// A logit becomes `cap * tanh(logit / cap)` after that; `None` for no cap.
    pub(crate) cap: Option<f32>,
}
