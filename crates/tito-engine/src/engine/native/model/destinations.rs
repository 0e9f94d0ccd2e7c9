//! Where each tensor of a checkpoint goes in a model.

/// Where a tensor goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Destination {
    Embedding,
    /// What makes the inputs of layers.
    InputEmbedding,
    InputProjection,
    InputNorm,
    Norm,
    Head,
    Layer(usize, InLayer),
    Tower(InTower),
}

/// Where a tensor of the tower for images goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InTower {
    Patch,
    PatchBias,
    /// Positions that are learnt.
    Positions,
    /// The same with that of the token that is learnt, and that token.
    ClassPositions,
    ClassToken,
    FirstNorm,
    Layer(usize, InTowerLayer),
    LastNorm,
    LastNormBias,
    /// What makes embeddings: of the last layer, and of those of the deepstack after it.
    Merger(usize, InMerger),
    /// The same where states are pooled.
    PooledNorm,
    Projection,
    /// The same where states are projected.
    Projector(InProjector),
    /// The same where a convolution joins states.
    Downsampling(InDownsampling),
}

/// Where a tensor of a tower's layer goes. A number says from which row or number on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InTowerLayer {
    AttentionNorm,
    AttentionNormBias,
    Qkv(usize),
    QkvBias(usize),
    QueryNorm,
    KeyNorm,
    Output,
    OutputBias,
    AttentionScale,
    MlpScale,
    MlpNorm,
    MlpNormBias,
    Up(usize),
    UpBias(usize),
    Down,
    DownBias,
}

/// Where a tensor of what makes embeddings goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InMerger {
    Norm,
    NormBias,
    Up,
    UpBias,
    Down,
    DownBias,
}

/// Where a tensor of a layer goes. Where several share a matrix or vector, the number says from which row or number on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InLayer {
    AttentionNorm,
    AfterAttentionNorm,
    Qkv(usize),
    QkvBias(usize),
    QueryNorm,
    KeyNorm,
    Latent(InLatent),
    /// Gates of what heads give.
    Gate(usize),
    GateBias(usize),
    Recurrent(InRecurrent),
    Sinks,
    Output,
    OutputBias,
    MlpNorm,
    AfterMlpNorm,
    Router,
    RouterBias,
    RouterNorm,
    ExpertFactors,
    ChoiceBias,
    /// Norms of a feed-forward part and a mixture that are side by side.
    AfterDenseNorm,
    BeforeSparseNorm,
    AfterSparseNorm,
    /// What a layer makes of its own input.
    InputGate,
    InputProjection,
    AfterInputNorm,
    Scalar,
    Dense(InDense),
    Expert(usize, InDense),
    Shared(InDense),
    SharedGate,
    LatentDown,
    LatentDownBias,
    LatentUp,
    LatentUpBias,
}

/// Where a tensor of compressed attention goes; the number is that of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InLatent {
    QueryDown,
    QueryDownBias,
    QueryNorm,
    Query,
    Down,
    DownBias,
    Norm,
    Key(usize),
    Value(usize),
}

/// Where a tensor of what projects states goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InProjector {
    Norm,
    Join,
    Up,
    UpBias,
    Down,
    DownBias,
}

/// Where a tensor of what downsamples states goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InDownsampling {
    Join,
    JoinBias,
    Projection,
    Norm,
    NormBias,
    /// Of gates and ups, from which row on.
    Up(usize),
    Down,
}

/// Where a tensor of a part with a recurrent state goes. The number of a pair of matrices is 0 for steps and 1 for gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InRecurrent {
    Input(usize),
    InputBias(usize),
    Down(usize),
    Up(usize),
    Convolution(usize),
    ConvolutionBias(usize),
    Decay,
    StepBias,
    Skip,
    Norm,
    Output,
    OutputBias,
}

/// Where a tensor of a feed-forward part goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InDense {
    GateUp(usize),
    GateUpBias(usize),
    Down,
    DownBias,
    /// Numbers of a gate that is learnt.
    Activation(usize),
}

impl Destination {
    /// The whole matrix or vector that the tensor is a part of.
    pub(super) fn whole(self) -> Self {
        match self {
            Self::Layer(layer, place) => Self::Layer(layer, place.whole()),
            Self::Tower(place) => Self::Tower(place.whole()),
            whole => whole,
        }
    }

    /// The row or number from which on the tensor's are, in the whole matrix or vector.
    pub(super) fn first(self) -> usize {
        match self {
            Self::Layer(_, place) => place.first(),
            Self::Tower(InTower::Layer(_, place)) => place.first(),
            Self::Tower(InTower::Downsampling(InDownsampling::Up(first))) => first,
            _ => 0,
        }
    }

    /// Whether it is numbers of a vector, which every backend holds in f32.
    pub(super) fn is_vector(self) -> bool {
        match self {
            Self::Norm | Self::InputNorm => true,
            Self::Embedding | Self::InputEmbedding | Self::InputProjection | Self::Head => false,
            Self::Layer(_, place) => place.is_vector(),
            Self::Tower(place) => place.is_vector(),
        }
    }
}

impl InTower {
    fn whole(self) -> Self {
        match self {
            Self::Layer(layer, place) => Self::Layer(layer, place.whole()),
            Self::Downsampling(InDownsampling::Up(_)) => Self::Downsampling(InDownsampling::Up(0)),
            whole => whole,
        }
    }

    fn is_vector(self) -> bool {
        match self {
            Self::Patch | Self::Positions | Self::Projection => false,
            Self::PatchBias
            | Self::ClassPositions
            | Self::ClassToken
            | Self::FirstNorm
            | Self::LastNorm
            | Self::LastNormBias
            | Self::PooledNorm => true,
            Self::Layer(_, place) => {
                !matches!(place, InTowerLayer::Qkv(_) | InTowerLayer::Output | InTowerLayer::Up(_) | InTowerLayer::Down)
            }
            Self::Merger(_, place) => !matches!(place, InMerger::Up | InMerger::Down),
            Self::Projector(place) => !matches!(place, InProjector::Join | InProjector::Up | InProjector::Down),
            Self::Downsampling(place) => {
                matches!(place, InDownsampling::JoinBias | InDownsampling::Norm | InDownsampling::NormBias)
            }
        }
    }
}

impl InTowerLayer {
    fn whole(self) -> Self {
        match self {
            Self::Qkv(_) => Self::Qkv(0),
            Self::QkvBias(_) => Self::QkvBias(0),
            Self::Up(_) => Self::Up(0),
            Self::UpBias(_) => Self::UpBias(0),
            whole => whole,
        }
    }

    fn first(self) -> usize {
        match self {
            Self::Qkv(first) | Self::QkvBias(first) | Self::Up(first) | Self::UpBias(first) => first,
            _ => 0,
        }
    }
}

impl InLayer {
    fn whole(self) -> Self {
        match self {
            Self::Qkv(_) => Self::Qkv(0),
            Self::QkvBias(_) => Self::QkvBias(0),
            Self::Gate(_) => Self::Gate(0),
            Self::GateBias(_) => Self::GateBias(0),
            Self::Recurrent(place) => Self::Recurrent(place.whole()),
            Self::Dense(place) => Self::Dense(place.whole()),
            Self::Expert(expert, place) => Self::Expert(expert, place.whole()),
            Self::Shared(place) => Self::Shared(place.whole()),
            whole => whole,
        }
    }

    fn first(self) -> usize {
        match self {
            Self::Qkv(first)
            | Self::QkvBias(first)
            | Self::Gate(first)
            | Self::GateBias(first)
            | Self::Recurrent(
                InRecurrent::Input(first)
                | InRecurrent::InputBias(first)
                | InRecurrent::Convolution(first)
                | InRecurrent::ConvolutionBias(first),
            ) => first,
            Self::Dense(place) | Self::Expert(_, place) | Self::Shared(place) => match place {
                InDense::GateUp(first) | InDense::GateUpBias(first) | InDense::Activation(first) => first,
                InDense::Down | InDense::DownBias => 0,
            },
            _ => 0,
        }
    }

    fn is_vector(self) -> bool {
        match self {
            Self::Qkv(_)
            | Self::Gate(_)
            | Self::Output
            | Self::Router
            | Self::SharedGate
            | Self::LatentDown
            | Self::InputGate
            | Self::InputProjection
            | Self::LatentUp => false,
            Self::Recurrent(place) => place.is_vector(),
            Self::Dense(place) | Self::Expert(_, place) | Self::Shared(place) => place.is_vector(),
            Self::Latent(place) => {
                matches!(place, InLatent::QueryDownBias | InLatent::QueryNorm | InLatent::DownBias | InLatent::Norm)
            }
            Self::AttentionNorm
            | Self::AfterAttentionNorm
            | Self::QkvBias(_)
            | Self::GateBias(_)
            | Self::QueryNorm
            | Self::KeyNorm
            | Self::Sinks
            | Self::OutputBias
            | Self::MlpNorm
            | Self::AfterMlpNorm
            | Self::RouterBias
            | Self::RouterNorm
            | Self::ExpertFactors
            | Self::AfterDenseNorm
            | Self::BeforeSparseNorm
            | Self::AfterSparseNorm
            | Self::AfterInputNorm
            | Self::Scalar
            | Self::ChoiceBias
            | Self::LatentDownBias
            | Self::LatentUpBias => true,
        }
    }
}

impl InRecurrent {
    fn whole(self) -> Self {
        match self {
            Self::Input(_) => Self::Input(0),
            Self::InputBias(_) => Self::InputBias(0),
            Self::Convolution(_) => Self::Convolution(0),
            Self::ConvolutionBias(_) => Self::ConvolutionBias(0),
            whole => whole,
        }
    }

    fn is_vector(self) -> bool {
        !matches!(self, Self::Input(_) | Self::Down(_) | Self::Up(_) | Self::Output)
    }
}

impl InDense {
    fn whole(self) -> Self {
        match self {
            Self::GateUp(_) => Self::GateUp(0),
            Self::GateUpBias(_) => Self::GateUpBias(0),
            Self::Activation(_) => Self::Activation(0),
            whole => whole,
        }
    }

    fn is_vector(self) -> bool {
        matches!(self, Self::GateUpBias(_) | Self::DownBias | Self::Activation(_))
    }
}
