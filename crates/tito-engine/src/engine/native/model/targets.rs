//! The place of each destination in the parts of a model.

use super::{
    attention::{Attention, Projection},
    both::Both,
    dense::Dense,
    destinations::{Destination, InDense, InLatent, InLayer, InRecurrent},
    latent::Latent,
    layer::{Layer, Mlp},
    memory::Parameters,
    mixture::Sparse,
    recurrent::Recurrent,
    target::{Target, numbers},
};
use crate::engine::native::backend::Backend;

impl<B: Backend> Parameters<B> {
    /// The bytes that a tensor, or a whole matrix, takes.
    pub(super) fn bytes(&mut self, backend: &B, place: Destination) -> u64 {
        match self.target(place) {
            Some(Target::Rows(matrix, _)) => backend.matrix_bytes(matrix),
            Some(Target::Numbers(vector, _)) => backend.vector_bytes(vector),
            None => 0,
        }
    }

    pub(super) fn target(&mut self, place: Destination) -> Option<Target<'_, B>> {
        match place {
            Destination::Embedding => Some(Target::Rows(&mut self.embedding, 0)),
            Destination::InputEmbedding => Some(Target::Rows(&mut self.inputs.as_mut()?.embedding, 0)),
            Destination::InputProjection => Some(Target::Rows(&mut self.inputs.as_mut()?.projection, 0)),
            Destination::InputNorm => Some(Target::Numbers(&mut self.inputs.as_mut()?.projection_norm, 0)),
            Destination::Norm => Some(Target::Numbers(&mut self.norm, 0)),
            Destination::Head => self.head.as_mut().map(|head| Target::Rows(head, 0)),
            Destination::Layer(layer, place) => self.layers.get_mut(layer)?.target(place),
            Destination::Tower(place) => self.tower.as_mut()?.target(place),
        }
    }
}

impl<B: Backend> Layer<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match place {
            InLayer::AttentionNorm => numbers(&mut self.attention_norm, 0),
            InLayer::AfterAttentionNorm => numbers(&mut self.after_attention_norm, 0),
            InLayer::MlpNorm => numbers(&mut self.mlp_norm, 0),
            InLayer::AfterMlpNorm => numbers(&mut self.after_mlp_norm, 0),
            InLayer::Recurrent(place) => self.recurrent.as_mut()?.target(place),
            InLayer::InputGate => Some(Target::Rows(&mut self.input.as_mut()?.gate.matrix, 0)),
            InLayer::InputProjection => Some(Target::Rows(&mut self.input.as_mut()?.projection.matrix, 0)),
            InLayer::AfterInputNorm => Some(Target::Numbers(&mut self.input.as_mut()?.after, 0)),
            InLayer::Scalar => numbers(&mut self.scalar, 0),
            InLayer::Router
            | InLayer::RouterBias
            | InLayer::RouterNorm
            | InLayer::ExpertFactors
            | InLayer::AfterDenseNorm
            | InLayer::BeforeSparseNorm
            | InLayer::AfterSparseNorm
            | InLayer::ChoiceBias
            | InLayer::Dense(_)
            | InLayer::Expert(..)
            | InLayer::Shared(_)
            | InLayer::SharedGate
            | InLayer::LatentDown
            | InLayer::LatentDownBias
            | InLayer::LatentUp
            | InLayer::LatentUpBias => self.mlp.as_mut()?.target(place),
            place => self.attention.as_mut()?.target(place),
        }
    }
}

impl<B: Backend> Attention<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match place {
            InLayer::Gate(first) => self.gate.as_mut().map(|gate| Target::Rows(&mut gate.matrix, first)),
            InLayer::GateBias(first) => numbers(&mut self.gate_bias, first),
            InLayer::Sinks => numbers(&mut self.sinks, 0),
            InLayer::Output => Some(Target::Rows(&mut self.output.matrix, 0)),
            InLayer::OutputBias => numbers(&mut self.output_bias, 0),
            place => self.projection.target(place),
        }
    }
}

impl<B: Backend> Recurrent<B> {
    fn target(&mut self, place: InRecurrent) -> Option<Target<'_, B>> {
        match place {
            InRecurrent::Input(first) => Some(Target::Rows(&mut self.input.matrix, first)),
            InRecurrent::InputBias(first) => numbers(&mut self.input_bias, first),
            InRecurrent::Down(index) => Some(Target::Rows(&mut self.low_rank.as_mut()?.get_mut(index)?.down.matrix, 0)),
            InRecurrent::Up(index) => Some(Target::Rows(&mut self.low_rank.as_mut()?.get_mut(index)?.up.matrix, 0)),
            InRecurrent::Convolution(first) => Some(Target::Numbers(&mut self.convolution, first)),
            InRecurrent::ConvolutionBias(first) => numbers(&mut self.convolution_bias, first),
            InRecurrent::Decay => Some(Target::Numbers(&mut self.tables.as_mut()?.decay, 0)),
            InRecurrent::StepBias => Some(Target::Numbers(&mut self.tables.as_mut()?.step_bias, 0)),
            InRecurrent::Skip => numbers(&mut self.tables.as_mut()?.skip, 0),
            InRecurrent::Norm => numbers(&mut self.tables.as_mut()?.norm, 0),
            InRecurrent::Output => Some(Target::Rows(&mut self.output.matrix, 0)),
            InRecurrent::OutputBias => numbers(&mut self.output_bias, 0),
        }
    }
}

impl<B: Backend> Projection<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match (place, self) {
            (InLayer::Qkv(first), Self::Heads(heads)) => Some(Target::Rows(&mut heads.qkv.matrix, first)),
            (InLayer::QkvBias(first), Self::Heads(heads)) => numbers(&mut heads.qkv_bias, first),
            (InLayer::QueryNorm, Self::Heads(heads)) => numbers(&mut heads.query_norm, 0),
            (InLayer::KeyNorm, Self::Heads(heads)) => numbers(&mut heads.key_norm, 0),
            (InLayer::Latent(place), Self::Latent(latent)) => latent.target(place),
            _ => None,
        }
    }
}

impl<B: Backend> Latent<B> {
    fn target(&mut self, place: InLatent) -> Option<Target<'_, B>> {
        match place {
            InLatent::QueryDown => self.query_down.as_mut().map(|down| Target::Rows(&mut down.matrix, 0)),
            InLatent::QueryDownBias => numbers(&mut self.query_down_bias, 0),
            InLatent::QueryNorm => numbers(&mut self.query_norm, 0),
            InLatent::Query => Some(Target::Rows(&mut self.query.matrix, 0)),
            InLatent::Down => Some(Target::Rows(&mut self.down.matrix, 0)),
            InLatent::DownBias => numbers(&mut self.down_bias, 0),
            InLatent::Norm => Some(Target::Numbers(&mut self.norm, 0)),
            InLatent::Key(head) => self.keys.get_mut(head).map(|key| Target::Rows(&mut key.matrix, 0)),
            InLatent::Value(head) => self.values.get_mut(head).map(|value| Target::Rows(&mut value.matrix, 0)),
        }
    }
}

impl<B: Backend> Mlp<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match (place, self) {
            (InLayer::Dense(place), Self::Dense(dense)) => dense.target(place),
            (_, Self::Dense(_)) => None,
            (place, Self::Sparse(sparse)) => sparse.target(place),
            (place, Self::Both(both)) => both.target(place),
        }
    }
}

impl<B: Backend> Both<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match place {
            InLayer::Dense(place) => self.dense.target(place),
            InLayer::AfterDenseNorm => Some(Target::Numbers(&mut self.after_dense, 0)),
            InLayer::BeforeSparseNorm => Some(Target::Numbers(&mut self.before_sparse, 0)),
            InLayer::AfterSparseNorm => Some(Target::Numbers(&mut self.after_sparse, 0)),
            place => self.sparse.target(place),
        }
    }
}

impl<B: Backend> Sparse<B> {
    fn target(&mut self, place: InLayer) -> Option<Target<'_, B>> {
        match place {
            InLayer::Router => Some(Target::Rows(&mut self.router.matrix, 0)),
            InLayer::RouterBias => numbers(&mut self.router_bias, 0),
            InLayer::RouterNorm => numbers(&mut self.router_norm, 0),
            InLayer::ExpertFactors => numbers(&mut self.expert_factors, 0),
            InLayer::ChoiceBias => numbers(&mut self.choice_bias, 0),
            InLayer::Expert(expert, place) => self.experts.get_mut(expert)?.target(place),
            InLayer::Shared(place) => self.shared.as_mut()?.target(place),
            InLayer::SharedGate => self.shared_gate.as_mut().map(|gate| Target::Rows(&mut gate.matrix, 0)),
            InLayer::LatentDown => Some(Target::Rows(&mut self.latent.as_mut()?.down.matrix, 0)),
            InLayer::LatentDownBias => numbers(&mut self.latent.as_mut()?.down_bias, 0),
            InLayer::LatentUp => Some(Target::Rows(&mut self.latent.as_mut()?.up.matrix, 0)),
            InLayer::LatentUpBias => numbers(&mut self.latent.as_mut()?.up_bias, 0),
            _ => None,
        }
    }
}

impl<B: Backend> Dense<B> {
    fn target(&mut self, place: InDense) -> Option<Target<'_, B>> {
        match place {
            InDense::GateUp(first) => Some(Target::Rows(&mut self.gate_up.matrix, first)),
            InDense::GateUpBias(first) => numbers(&mut self.gate_up_bias, first),
            InDense::Down => Some(Target::Rows(&mut self.down.matrix, 0)),
            InDense::DownBias => numbers(&mut self.down_bias, 0),
            InDense::Activation(first) => numbers(&mut self.activation, first),
        }
    }
}
