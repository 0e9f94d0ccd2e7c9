//! Every tensor that a checkpoint of a model has: its name, its shape, and where it goes.

mod inputs;
mod list;
mod recurrent;
mod tower;

use super::{
    destinations::{Destination, InDense, InLatent, InLayer},
    names::{DenseNames, ExpertNames, GateUpNames, StackedNames},
    shape::{
        AttentionLayer, DenseShape, HeadNormKind, HeadNorms, LatentExperts, LatentShape, LayerShape, MlpShape,
        ModelShape, SparseShape,
    },
    tensor::{Tensor, TensorSlice},
};
use crate::engine::native::backend::Gate;
use list::Expected;

/// Every tensor of a model, in the order of its layers.
pub(super) fn expected(shape: &ModelShape) -> Vec<Tensor> {
    let mut all = Expected { shape, tensors: Vec::new(), prefix: String::new(), layer: 0 };
    let names = &shape.names;
    all.table(names.embedding, shape.vocab_size, shape.hidden, Destination::Embedding);
    all.inputs_of_layers();
    for (index, layer) in shape.layers.iter().enumerate() {
        (all.prefix, all.layer) = (format!("{}{index}.", names.layers), index);
        all.layer(layer);
    }
    all.prefix.clear();
    all.vector(names.norm, shape.hidden, Destination::Norm);
    if !shape.tied {
        all.table(names.head, shape.vocab_size, shape.hidden, Destination::Head);
    }
    all.tensors.extend(shape.images.iter().flat_map(|images| tower::of_tower(&images.tower)));
    all.tensors
}

impl Expected<'_> {
    fn layer(&mut self, layer: &LayerShape) {
        let shape = self.shape;
        let (names, hidden) = (&shape.names, shape.hidden);
        let (before, after) = (layer.norms.before(), layer.norms.after());
        let (mixes, has_mlp) = (layer.mixes(), layer.mlp.is_some());
        let norms = [
            (mixes && before, names.attention_norm, InLayer::AttentionNorm),
            (mixes && after, names.after_attention_norm, InLayer::AfterAttentionNorm),
            (has_mlp && layer.norms.before_mlp(), names.mlp_norm, InLayer::MlpNorm),
            (has_mlp && after, names.after_mlp_norm, InLayer::AfterMlpNorm),
        ];
        for (_, name, place) in norms.into_iter().filter(|(is_there, ..)| *is_there) {
            self.vector(name, hidden, self.within(place));
        }
        if let Some(attention) = &layer.attention {
            self.attention(attention);
        }
        if let Some(recurrent) = &layer.recurrent {
            self.recurrent(recurrent);
        }
        match &layer.mlp {
            Some(MlpShape::Dense(dense)) => self.dense(("", hidden), names.dense, *dense, &InLayer::Dense),
            Some(MlpShape::Sparse(sparse)) => self.sparse(sparse),
            Some(MlpShape::Both(dense, sparse)) => {
                self.dense(("", hidden), names.dense, *dense, &InLayer::Dense);
                self.sparse(sparse);
                self.norms_of_both();
            }
            None => {}
        }
        self.end_of_layer(layer);
    }

    fn attention(&mut self, attention: &AttentionLayer) {
        let hidden = self.shape.hidden;
        match attention.latent {
            Some(latent) => self.latent(latent, attention.shape.heads),
            None => self.heads(attention),
        }
        let output = self.shape.names.attention_output;
        self.table(output, hidden, attention.output_width(), self.within(InLayer::Output));
        if attention.output_bias {
            self.one(&format!("{output}.bias"), &[hidden], self.within(InLayer::OutputBias));
        }
        if attention.sinks {
            self.one("self_attn.sinks", &[attention.shape.heads], self.within(InLayer::Sinks));
        }
    }

    /// Compressed queries, keys and values.
    fn latent(&mut self, latent: LatentShape, heads: usize) {
        let LatentShape { query_rank, rank, apart, rotated, value, bias, .. } = latent;
        let hidden = self.shape.hidden;
        let within = |place| Destination::Layer(self.layer, InLayer::Latent(place));
        let [down, down_bias, norm, query] =
            [InLatent::QueryDown, InLatent::QueryDownBias, InLatent::QueryNorm, InLatent::Query].map(within);
        let [kv_down, kv_down_bias, kv_norm] = [InLatent::Down, InLatent::DownBias, InLatent::Norm].map(within);
        let of_head = |head: usize| {
            let first = head * (apart + value);
            let key = TensorSlice { place: within(InLatent::Key(head)), rows: first..first + apart, transposed: true };
            let rows = first + apart..first + apart + value;
            [key, TensorSlice { place: within(InLatent::Value(head)), rows, transposed: false }]
        };
        let parts = (0..heads).flat_map(of_head).collect();
        if let Some(rank) = query_rank {
            self.table("self_attn.q_a_proj", rank, hidden, down);
            if bias {
                self.one("self_attn.q_a_proj.bias", &[rank], down_bias);
            }
            self.vector("self_attn.q_a_layernorm", rank, norm);
            self.table("self_attn.q_b_proj", heads * (apart + rotated), rank, query);
        } else {
            self.table("self_attn.q_proj", heads * (apart + rotated), hidden, query);
        }
        self.table("self_attn.kv_a_proj_with_mqa", rank + rotated, hidden, kv_down);
        if bias {
            self.one("self_attn.kv_a_proj_with_mqa.bias", &[rank + rotated], kv_down_bias);
        }
        self.vector("self_attn.kv_a_layernorm", rank, kv_norm);
        self.push("self_attn.kv_b_proj.weight", &[heads * (apart + value), rank], parts);
    }

    fn heads(&mut self, attention: &AttentionLayer) {
        let shape = self.shape;
        let (names, hidden) = (&shape.names, shape.hidden);
        let (q, kv) = (attention.query_width(), attention.key_width());
        let [query, key, value] = names.qkv;
        let apart = [(query, q, 0), (key, kv, q), (value, kv, q + kv)];
        let joined = names.joined_qkv.map(|name| (name, q + 2 * kv, 0));
        for (name, rows, first) in
            joined.map_or_else(|| apart[..attention.made_parts()].to_vec(), |joined| vec![joined])
        {
            if attention.gated && first == 0 {
                self.queries_with_gates(name, attention);
                continue;
            }
            self.table(name, rows, hidden, self.within(InLayer::Qkv(first)));
            if attention.qkv_bias {
                self.one(&format!("{name}.bias"), &[rows], self.within(InLayer::QkvBias(first)));
            }
        }
        if let Some(norms) = attention.head_norms {
            self.head_norms(attention, norms);
        }
    }

    fn head_norms(&mut self, attention: &AttentionLayer, norms: HeadNorms) {
        if norms.kind == HeadNormKind::Plain {
            return;
        }
        let (queries, keys) = attention.norm_widths(norms);
        let [query, key] = self.shape.names.head_norms;
        let own = usize::from(attention.shares.is_none());
        let norms_of = [(query, queries, InLayer::QueryNorm), (key, keys, InLayer::KeyNorm)];
        for (name, width, place) in norms_of.into_iter().take(1 + own) {
            let head_dim = attention.kept.head_dim;
            let table = [width / head_dim, head_dim];
            let shape = if norms.kind == HeadNormKind::Each { &table[..] } else { &[width] };
            self.one(&format!("{name}.weight"), shape, self.within(place));
        }
    }

    /// Queries, each with its gates after it.
    fn queries_with_gates(&mut self, name: &str, attention: &AttentionLayer) {
        let (heads, width, layer) = (attention.shape.heads, attention.kept.head_dim, self.layer);
        let parts = |query: fn(usize) -> InLayer, gate: fn(usize) -> InLayer| {
            let of_head = move |head: usize| [query(head * width), gate(head * width)];
            (0..heads).flat_map(of_head).map(move |place| (width, Destination::Layer(layer, place)))
        };
        let rows = 2 * heads * width;
        self.slices(&format!("{name}.weight"), &[rows, self.shape.hidden], parts(InLayer::Qkv, InLayer::Gate));
        if attention.qkv_bias {
            self.slices(&format!("{name}.bias"), &[rows], parts(InLayer::QkvBias, InLayer::GateBias));
        }
    }

    /// A feed-forward part of inputs of this width, the names of which have `number` after their prefix.
    fn dense(
        &mut self,
        (number, hidden): (&str, usize),
        names: DenseNames,
        dense: DenseShape,
        of: &dyn Fn(InDense) -> InLayer,
    ) {
        let inner = dense.intermediate;
        let gate_up = match names.gate_up {
            GateUpNames::Joined(name) => vec![(name, dense.inner_width(), 0)],
            GateUpNames::Apart([gate, up]) => vec![(gate, inner, 0), (up, inner, inner)],
        };
        let of_gate_up =
            |(name, rows, first)| (name, [rows, hidden], InDense::GateUp(first), InDense::GateUpBias(first));
        let down = (names.down, [hidden, inner], InDense::Down, InDense::DownBias);
        for (name, dims, weight, bias) in gate_up.into_iter().map(of_gate_up).chain([down]) {
            let name = format!("{}{number}.{name}", names.prefix);
            self.table(&name, dims[0], dims[1], self.within(of(weight)));
            if dense.bias {
                self.one(&format!("{name}.bias"), &dims[..1], self.within(of(bias)));
            }
        }
        if let Gate::Xielu(_) = dense.gate {
            let shapes: [&[usize]; 4] = [&[1], &[1], &[], &[]];
            for (place, (name, shape)) in ["alpha_p", "alpha_n", "beta", "eps"].into_iter().zip(shapes).enumerate() {
                let name = format!("{}{number}.act_fn.{name}", names.prefix);
                self.one(&name, shape, self.within(of(InDense::Activation(place))));
            }
        }
    }

    fn sparse(&mut self, sparse: &SparseShape) {
        let shape = self.shape;
        let (names, hidden, experts) = (&shape.names, shape.hidden, sparse.experts);
        let width = sparse.latent.map_or(hidden, |latent| latent.width);
        if let Some(LatentExperts { width, bias }) = sparse.latent {
            let [down, up] = names.latent_experts;
            for (name, dims, place, of_bias) in [
                (down, [width, hidden], InLayer::LatentDown, InLayer::LatentDownBias),
                (up, [hidden, width], InLayer::LatentUp, InLayer::LatentUpBias),
            ] {
                self.table(name, dims[0], dims[1], self.within(place));
                if bias {
                    self.one(&format!("{name}.bias"), &dims[..1], self.within(of_bias));
                }
            }
        }
        match names.experts {
            ExpertNames::Stacked(stacked) => self.stacked(stacked, sparse),
            ExpertNames::Each(each) => {
                for expert in 0..experts {
                    let of = |place| InLayer::Expert(expert, place);
                    self.dense((&format!(".{expert}"), width), each, sparse.expert, &of);
                }
            }
        }
        self.table(names.router, experts, hidden, self.within(InLayer::Router));
        if sparse.router.bias {
            self.one(&format!("{}.bias", names.router), &[experts], self.within(InLayer::RouterBias));
        }
        if sparse.router.normed {
            self.one("router.scale", &[hidden], self.within(InLayer::RouterNorm));
            self.one("router.per_expert_scale", &[experts], self.within(InLayer::ExpertFactors));
        }
        if sparse.router.choice_bias {
            let shape = if names.choice_bias.is_table { vec![1, experts] } else { vec![experts] };
            self.one(names.choice_bias.name, &shape, self.within(InLayer::ChoiceBias));
        }
        if let Some(shared) = sparse.shared {
            self.dense(("", hidden), names.shared, shared.dense, &InLayer::Shared);
            if shared.gated {
                let name = format!("{}_gate", names.shared.prefix);
                self.table(&name, 1, hidden, self.within(InLayer::SharedGate));
            }
        }
    }

    fn stacked(&mut self, names: StackedNames, sparse: &SparseShape) {
        let (inner, both, experts) = (sparse.expert.intermediate, sparse.expert.inner_width(), sparse.experts);
        let hidden = sparse.latent.map_or(self.shape.hidden, |latent| latent.width);
        for (name, dims, place) in
            [(names.gate_up, [both, hidden], InDense::GateUp(0)), (names.down, [hidden, inner], InDense::Down)]
        {
            let [rows, columns] = dims;
            let shape = if names.transposed { [experts, columns, rows] } else { [experts, rows, columns] };
            self.stack(name, &shape, place, names.transposed);
        }
        let biases = [(names.gate_up_bias, both, InDense::GateUpBias(0)), (names.down_bias, hidden, InDense::DownBias)];
        for (name, len, place) in biases.into_iter().filter(|_| sparse.expert.bias) {
            self.stack(name, &[experts, len], place, false);
        }
    }
}
