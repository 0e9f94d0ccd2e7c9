//! Multi-head latent attention: keys and values of all heads are kept as one compressed vector.
//!
//! As `modeling_deepseek_v3.py` of transformers defines it, but that heads of queries are brought into the space of what is
//! kept (their numbers that are not rotated times the transposed key matrix), and values out of it after attention: the
//! same products in another order, without the keys and values of every head of every token.

use super::{
    adapters::Weight,
    destinations::{InLatent, InLayer},
    shape::LatentShape,
    workspace::Workspace,
};
use crate::engine::native::backend::{Backend, HeadRange, NoRoom, NormShape};

/// What such a layer has learnt.
pub(super) struct Latent<B: Backend> {
    shape: LatentShape,
    pub(super) query_down: Option<Weight<B>>,
    pub(super) query_down_bias: Option<B::Vector>,
    pub(super) query_norm: Option<B::Vector>,
    pub(super) query: Weight<B>,
    pub(super) down: Weight<B>,
    pub(super) down_bias: Option<B::Vector>,
    pub(super) norm: B::Vector,
    /// For each head what brings a query into the space of what is kept.
    pub(super) keys: Vec<Weight<B>>,
    /// For each head what brings a value out of it.
    pub(super) values: Vec<Weight<B>>,
}

impl<B: Backend> Latent<B> {
    pub(super) fn zeros(backend: &B, hidden: usize, shape: LatentShape, heads: usize) -> Result<Self, NoRoom> {
        let LatentShape { query_rank, rank, apart, rotated, value, bias, .. } = shape;
        let weight = |place, outputs, inputs| Weight::zeros(backend, InLayer::Latent(place), outputs, inputs);
        let down = query_rank.map(|rank| weight(InLatent::QueryDown, rank, hidden)).transpose()?;
        Ok(Self {
            shape,
            query_down: down,
            query_down_bias: query_rank.filter(|_| bias).map(|rank| backend.vector(rank)).transpose()?,
            query_norm: query_rank.map(|rank| backend.vector(rank)).transpose()?,
            query: weight(InLatent::Query, heads * (apart + rotated), query_rank.unwrap_or(hidden))?,
            down: weight(InLatent::Down, rank + rotated, hidden)?,
            down_bias: bias.then(|| backend.vector(rank + rotated)).transpose()?,
            norm: backend.vector(rank)?,
            keys: (0..heads).map(|head| weight(InLatent::Key(head), rank, apart)).collect::<Result<_, _>>()?,
            values: (0..heads).map(|head| weight(InLatent::Value(head), value, rank)).collect::<Result<_, _>>()?,
        })
    }

    /// Makes of the input what attends: in each head the numbers that are rotated, then those in the space of what is
    /// kept. The key and the value come after all queries.
    pub(super) fn project(&self, backend: &mut B, workspace: &mut Workspace<B>) {
        let LatentShape { rank, apart, rotated, epsilon, .. } = self.shape;
        let norm = NormShape { epsilon, offset: 0.0, centred: false };
        let Workspace { wide, out, sum: queries, head: part, input, picked, gated, adapters, .. } = workspace;
        match (&self.query_down, &self.query_norm) {
            (Some(down), Some(weight)) => {
                adapters.linear(backend, input, down, self.query_down_bias.as_ref(), out);
                backend.norm(out, weight, norm, picked);
                adapters.linear(backend, picked, &self.query, None, queries);
            }
            _ => adapters.linear(backend, input, &self.query, None, queries),
        }
        adapters.linear(backend, input, &self.down, self.down_bias.as_ref(), out);
        backend.head_norm(out, HeadRange::whole(rank), &self.norm, norm);
        let (width, heads) = (rotated + rank, self.keys.len());
        backend.zeros(out, (heads + 2) * width, wide);
        for (head, key) in self.keys.iter().enumerate() {
            let (first, to) = (head * (apart + rotated), head * width);
            backend.round(queries, first..first + apart, gated);
            adapters.linear(backend, gated, key, None, part);
            backend.place(queries, first + apart..first + apart + rotated, wide, to);
            backend.place(part, 0..rank, wide, to + rotated);
        }
        for to in [heads * width, (heads + 1) * width] {
            backend.place(out, rank..rank + rotated, wide, to);
            backend.place(out, 0..rank, wide, to + rotated);
        }
    }

    /// Makes of what the heads attended to, which is in the space of what is kept, the values of the heads.
    pub(super) fn widen(&self, backend: &mut B, workspace: &mut Workspace<B>) {
        let LatentShape { rank, rotated, value, .. } = self.shape;
        let Workspace { hidden, sum: values, head: part, picked, attended, adapters, .. } = workspace;
        backend.zeros(hidden, self.values.len() * value, values);
        for (head, weight) in self.values.iter().enumerate() {
            let first = head * (rotated + rank) + rotated;
            backend.pick(attended, first..first + rank, picked);
            adapters.linear(backend, picked, weight, None, part);
            backend.place(part, 0..value, values, head * value);
        }
        backend.round(values, 0..self.values.len() * value, attended);
    }
}
