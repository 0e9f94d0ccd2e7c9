//! The tensors of a model under the names that checkpoints give them, and where each goes.

use std::collections::BTreeSet;

use super::{Dense, Layer, Mlp, Model, Parameters};
use crate::engine::native::{
    backend::Backend,
    model::config::{MlpShape, ModelShape},
    weights::{Weights, WeightsError},
};

/// Where a tensor goes.
enum Target<'a, B: Backend> {
    /// Rows of a matrix, from this one on.
    Rows(&'a mut B::Matrix, usize),
    /// Numbers of a vector, from this one on.
    Numbers(&'a mut B::Vector, usize),
}

/// Every tensor of the model with its shape, in the order of the layers.
pub(super) fn expected(shape: &ModelShape) -> Vec<(String, Vec<usize>)> {
    let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![shape.vocab_size, shape.hidden])];
    for (index, layer) in shape.layers.iter().enumerate() {
        let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        let mut add = |name: &str, dims: &[usize]| {
            tensors.push((format!("model.layers.{index}.{name}"), dims.to_vec()));
        };
        add("input_layernorm.weight", &[shape.hidden]);
        add("post_attention_layernorm.weight", &[shape.hidden]);
        for (name, rows) in [("q", q), ("k", kv), ("v", kv)] {
            add(&format!("self_attn.{name}_proj.weight"), &[rows, shape.hidden]);
            if shape.qkv_bias {
                add(&format!("self_attn.{name}_proj.bias"), &[rows]);
            }
        }
        add("self_attn.o_proj.weight", &[shape.hidden, q]);
        if shape.output_bias {
            add("self_attn.o_proj.bias", &[shape.hidden]);
        }
        if shape.head_norms {
            add("self_attn.q_norm.weight", &[shape.head_dim]);
            add("self_attn.k_norm.weight", &[shape.head_dim]);
        }
        let mut add_mlp = |prefix: &str, intermediate: usize| {
            for (name, dims) in [
                ("gate", [intermediate, shape.hidden]),
                ("up", [intermediate, shape.hidden]),
                ("down", [shape.hidden, intermediate]),
            ] {
                add(&format!("{prefix}.{name}_proj.weight"), &dims);
                if shape.mlp_bias {
                    add(&format!("{prefix}.{name}_proj.bias"), &dims[..1]);
                }
            }
        };
        match layer.mlp {
            MlpShape::Dense { intermediate } => add_mlp("mlp", intermediate),
            MlpShape::Sparse { experts, intermediate, .. } => {
                (0..experts).for_each(|expert| add_mlp(&format!("mlp.experts.{expert}"), intermediate));
                add("mlp.gate.weight", &[experts, shape.hidden]);
            }
        }
    }
    tensors.push(("model.norm.weight".to_owned(), vec![shape.hidden]));
    if !shape.tied {
        tensors.push(("lm_head.weight".to_owned(), vec![shape.vocab_size, shape.hidden]));
    }
    tensors
}

/// Tensors that some checkpoints hold and no model needs: they are computed, or tied to others.
fn is_redundant(name: &str, shape: &ModelShape) -> bool {
    name.ends_with("rotary_emb.inv_freq") || (shape.tied && name == "lm_head.weight")
}

/// Compares what is there with what the model has. `complete` asks for all of it.
pub(super) fn check(shape: &ModelShape, weights: &dyn Weights, complete: bool) -> Result<Vec<String>, WeightsError> {
    let expected = expected(shape);
    let found = weights.tensors();
    let known: BTreeSet<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
    let unknown: Vec<String> = found
        .iter()
        .filter(|(name, _)| !known.contains(name) && !is_redundant(name, shape))
        .map(|(name, _)| (*name).to_owned())
        .collect();
    if !unknown.is_empty() {
        return Err(WeightsError::Unknown(unknown));
    }
    let found: std::collections::BTreeMap<&str, &[usize]> = found.into_iter().collect();
    let mut present = Vec::new();
    let mut missing = Vec::new();
    for (name, expected) in expected {
        match found.get(name.as_str()) {
            None => missing.push(name),
            Some(shape) if **shape == *expected => present.push(name),
            Some(shape) => return Err(WeightsError::Shape { name, found: shape.to_vec(), expected }),
        }
    }
    if complete && !missing.is_empty() { Err(WeightsError::Missing(missing)) } else { Ok(present) }
}

impl<B: Backend> Model<B> {
    /// Overwrites one of the model's tensors; its shape was compared.
    pub(super) fn write(&mut self, name: &str, weights: &dyn Weights) -> Result<(), WeightsError> {
        let rows = weights.rows(name)?;
        match self.parameters.target(name, &self.shape) {
            None => Err(WeightsError::Unknown(vec![name.to_owned()])),
            Some(Target::Rows(matrix, first)) => self.backend.write_rows(matrix, first, &*rows),
            Some(Target::Numbers(vector, first)) => {
                let mut numbers = Vec::new();
                rows.read(0..rows.rows(), &mut numbers)?;
                self.backend.write_vector(vector, first, &numbers);
                Ok(())
            }
        }
    }
}

impl<B: Backend> Parameters<B> {
    fn target(&mut self, name: &str, shape: &ModelShape) -> Option<Target<'_, B>> {
        match name {
            "model.embed_tokens.weight" => Some(Target::Rows(&mut self.embedding, 0)),
            "model.norm.weight" => Some(Target::Numbers(&mut self.norm, 0)),
            "lm_head.weight" => self.head.as_mut().map(|head| Target::Rows(head, 0)),
            _ => {
                let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
                let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
                self.layers.get_mut(layer.parse::<usize>().ok()?)?.target(rest, q, kv)
            }
        }
    }
}

impl<B: Backend> Layer<B> {
    fn target(&mut self, name: &str, q: usize, kv: usize) -> Option<Target<'_, B>> {
        let (block, rest) = name.split_once('.')?;
        match (block, rest) {
            ("input_layernorm", "weight") => Some(Target::Numbers(&mut self.attention_norm, 0)),
            ("post_attention_layernorm", "weight") => Some(Target::Numbers(&mut self.mlp_norm, 0)),
            ("mlp", _) => self.mlp.target(rest),
            ("self_attn", _) => {
                let (part, kind) = rest.split_once('.')?;
                let first = match part {
                    "q_proj" => 0,
                    "k_proj" => q,
                    "v_proj" => q + kv,
                    "q_norm" => return self.query_norm.as_mut().map(|norm| Target::Numbers(norm, 0)),
                    "k_norm" => return self.key_norm.as_mut().map(|norm| Target::Numbers(norm, 0)),
                    "o_proj" if kind == "weight" => return Some(Target::Rows(&mut self.output, 0)),
                    "o_proj" => return self.output_bias.as_mut().map(|bias| Target::Numbers(bias, 0)),
                    _ => return None,
                };
                match kind {
                    "weight" => Some(Target::Rows(&mut self.qkv, first)),
                    _ => self.qkv_bias.as_mut().map(|bias| Target::Numbers(bias, first)),
                }
            }
            _ => None,
        }
    }
}

impl<B: Backend> Mlp<B> {
    fn target(&mut self, name: &str) -> Option<Target<'_, B>> {
        match self {
            Self::Dense(dense) => dense.target(name),
            Self::Sparse { router, .. } if name == "gate.weight" => Some(Target::Rows(router, 0)),
            Self::Sparse { experts, .. } => {
                let (expert, rest) = name.strip_prefix("experts.")?.split_once('.')?;
                experts.get_mut(expert.parse::<usize>().ok()?)?.target(rest)
            }
        }
    }
}

impl<B: Backend> Dense<B> {
    fn target(&mut self, name: &str) -> Option<Target<'_, B>> {
        let width = self.intermediate;
        match name {
            "gate_proj.weight" => Some(Target::Rows(&mut self.gate_up, 0)),
            "up_proj.weight" => Some(Target::Rows(&mut self.gate_up, width)),
            "down_proj.weight" => Some(Target::Rows(&mut self.down, 0)),
            "gate_proj.bias" => self.gate_up_bias.as_mut().map(|bias| Target::Numbers(bias, 0)),
            "up_proj.bias" => self.gate_up_bias.as_mut().map(|bias| Target::Numbers(bias, width)),
            "down_proj.bias" => self.down_bias.as_mut().map(|bias| Target::Numbers(bias, 0)),
            _ => None,
        }
    }
}
