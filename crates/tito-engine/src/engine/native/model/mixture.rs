//! Mixtures of experts: which experts a token goes through, and with what weight.

use super::{
    adapters::Weight,
    dense::Dense,
    destinations::InLayer,
    routes::StepRoutes,
    shape::{Groups, LatentExperts, RouterShape, Scores, SparseShape},
    workspace::Workspace,
};
use crate::engine::native::backend::{Backend, NoRoom, NormShape};

/// The rows that go through an expert, with its weights.
type Picks = Vec<(usize, f32)>;

/// What a mixture has learnt.
pub(super) struct Sparse<B: Backend> {
    shape: SparseShape,
    pub(super) router: Weight<B>,
    pub(super) router_bias: Option<B::Vector>,
    /// What normalises states for the router, where it does not read what experts read.
    pub(super) router_norm: Option<B::Vector>,
    /// A factor of each expert's weights.
    pub(super) expert_factors: Option<B::Vector>,
    norm: NormShape,
    hidden: usize,
    pub(super) choice_bias: Option<B::Vector>,
    pub(super) experts: Vec<Dense<B>>,
    pub(super) shared: Option<Dense<B>>,
    pub(super) shared_gate: Option<Weight<B>>,
    pub(super) latent: Option<Compression<B>>,
}

/// What compresses states for experts, and what brings their sum back.
pub(super) struct Compression<B: Backend> {
    width: usize,
    pub(super) down: Weight<B>,
    pub(super) down_bias: Option<B::Vector>,
    pub(super) up: Weight<B>,
    pub(super) up_bias: Option<B::Vector>,
}

impl<B: Backend> Compression<B> {
    fn zeros(backend: &B, hidden: usize, LatentExperts { width, bias }: LatentExperts) -> Result<Self, NoRoom> {
        let vector = |len| bias.then(|| backend.vector(len)).transpose();
        Ok(Self {
            width,
            down: Weight::zeros(backend, InLayer::LatentDown, width, hidden)?,
            down_bias: vector(width)?,
            up: Weight::zeros(backend, InLayer::LatentUp, hidden, width)?,
            up_bias: vector(hidden)?,
        })
    }
}

impl<B: Backend> Sparse<B> {
    pub(super) fn zeros(backend: &B, (hidden, norm): (usize, NormShape), shape: &SparseShape) -> Result<Self, NoRoom> {
        let SparseShape { experts, expert, router, shared, latent, .. } = shape;
        let width = latent.map_or(hidden, |latent| latent.width);
        let vector = |given: bool| given.then(|| backend.vector(*experts)).transpose();
        let is_gated = shared.is_some_and(|shared| shared.gated);
        Ok(Self {
            shape: shape.clone(),
            router: Weight::zeros(backend, InLayer::Router, *experts, hidden)?,
            router_bias: vector(router.bias)?,
            router_norm: router.normed.then(|| backend.vector(hidden)).transpose()?,
            expert_factors: vector(router.normed)?,
            norm,
            hidden,
            choice_bias: vector(router.choice_bias)?,
            experts: (0..*experts)
                .map(|number| Dense::zeros(backend, |place| InLayer::Expert(number, place), width, *expert))
                .collect::<Result<_, _>>()?,
            shared: shared.map(|shared| Dense::zeros(backend, InLayer::Shared, hidden, shared.dense)).transpose()?,
            shared_gate: is_gated.then(|| Weight::zeros(backend, InLayer::SharedGate, 1, hidden)).transpose()?,
            latent: latent.map(|latent| Compression::zeros(backend, hidden, latent)).transpose()?,
        })
    }

    /// Adds what the experts make of the input, times `factor`, to `sum`.
    ///
    /// The experts are added in their order, so that the sum of a token's experts does not depend on other tokens.
    pub(super) fn add(&self, backend: &mut B, factor: f32, workspace: &mut Workspace<B>, sum: &mut B::States) {
        self.score(backend, workspace);
        let Workspace { wide, routes, .. } = workspace;
        let scores = backend.read(wide, self.experts.len());
        let vector = |vector: &Option<B::Vector>| vector.as_ref().map(|vector| backend.read_vector(vector));
        let (bias, factors) = (vector(&self.choice_bias), vector(&self.expert_factors));
        let mut picks = route(&scores, bias.as_deref(), &self.shape, routes);
        for (picks, factor) in picks.iter_mut().zip(factors.into_iter().flatten()) {
            for (_, weight) in picks {
                *weight *= factor;
            }
        }
        match &self.latent {
            None => self.add_chosen(backend, factor, picks, workspace, sum),
            Some(latent) => self.add_compressed(backend, factor, (picks, latent), workspace, sum),
        }
        self.add_shared(backend, factor, workspace, sum);
    }

    /// Makes scores of experts.
    fn score(&self, backend: &mut B, workspace: &mut Workspace<B>) {
        let Workspace { hidden, wide, input, picked, adapters, .. } = workspace;
        let bias = self.router_bias.as_ref();
        let Some(weight) = &self.router_norm else {
            return adapters.linear(backend, input, &self.router, bias, wide);
        };
        backend.norm(hidden, weight, self.norm, picked);
        adapters.linear(backend, picked, &self.router, bias, wide);
        #[expect(clippy::cast_precision_loss, reason = "states are narrow")]
        let factor = 1.0 / (self.hidden as f32).sqrt();
        backend.scale(wide, 0..self.experts.len(), factor);
    }

    /// Adds what the experts that were chosen make of compressed states.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn add_compressed(
        &self,
        backend: &mut B,
        factor: f32,
        (picks, latent): (Vec<Picks>, &Compression<B>),
        workspace: &mut Workspace<B>,
        sum: &mut B::States,
    ) {
        let Workspace { out, input, attended, adapters, .. } = workspace;
        adapters.linear(backend, input, &latent.down, latent.down_bias.as_ref(), out);
        backend.round(out, 0..latent.width, attended);
        let mut compressed = std::mem::take(&mut workspace.head);
        backend.zeros(out, latent.width, &mut compressed);
        std::mem::swap(&mut workspace.input, &mut workspace.attended);
        self.add_chosen(backend, 1.0, picks, workspace, &mut compressed);
        std::mem::swap(&mut workspace.input, &mut workspace.attended);
        let Workspace { out, attended, adapters, .. } = workspace;
        backend.round(&compressed, 0..latent.width, attended);
        adapters.linear(backend, attended, &latent.up, latent.up_bias.as_ref(), out);
        backend.add(out, factor, sum);
        workspace.head = compressed;
    }

    /// Adds what the experts that were chosen make of the input.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn add_chosen(
        &self,
        backend: &mut B,
        factor: f32,
        picks: Vec<Picks>,
        workspace: &mut Workspace<B>,
        sum: &mut B::States,
    ) {
        let Workspace { wide, out, input, picked, gated, adapters, .. } = workspace;
        for (expert, mut picks) in self.experts.iter().zip(picks) {
            if picks.is_empty() {
                continue;
            }
            let rows: Vec<usize> = picks.iter().map(|(row, _)| *row).collect();
            backend.gather(input, &rows, picked);
            if self.shape.router.on_inputs {
                let weights: Vec<(usize, f32)> = picks.iter().map(|(_, weight)| *weight).enumerate().collect();
                for (_, weight) in &mut picks {
                    *weight = 1.0;
                }
                expert.gate_weighed(backend, adapters, (picked, &weights), (out, wide), gated);
            } else {
                expert.gate(backend, adapters, (picked, 1.0), wide, gated);
            }
            for (_, weight) in &mut picks {
                *weight *= factor;
            }
            adapters.linear(backend, gated, &expert.down, expert.down_bias.as_ref(), out);
            backend.add_scaled(out, &picks, sum);
        }
    }

    /// Adds what every token goes through.
    fn add_shared(&self, backend: &mut B, factor: f32, workspace: &mut Workspace<B>, sum: &mut B::States) {
        let Workspace { wide, out, input, gated, adapters, .. } = workspace;
        let Some(shared) = &self.shared else { return };
        let gates = self.shared_gate.as_ref().map(|gate| {
            adapters.linear(backend, input, gate, None, wide);
            backend.read(wide, 1)
        });
        shared.gate(backend, adapters, (input, 1.0), wide, gated);
        adapters.linear(backend, gated, &shared.down, shared.down_bias.as_ref(), out);
        match gates {
            None => backend.add(out, factor, sum),
            Some(gates) => {
                let weights = gates.into_iter().map(|gate| factor * sigmoid(gate));
                backend.add_scaled(out, &weights.enumerate().collect::<Vec<_>>(), sum);
            }
        }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Lists for each expert the rows that go through it, with the expert's weight.
fn route(scores: &[f32], bias: Option<&[f32]>, shape: &SparseShape, routes: &mut StepRoutes) -> Vec<Picks> {
    let mut picks = vec![Vec::new(); shape.experts];
    for (row, scores) in scores.chunks_exact(shape.experts).enumerate() {
        let chosen = choose(scores, bias, shape, routes.given_experts(row));
        routes.keep(row, &chosen);
        for (expert, weight) in chosen {
            picks[expert].push((row, weight));
        }
    }
    routes.next();
    picks
}

/// The experts of one token, with their weights, from the best to the worst: those that are `given`, or the best ones,
/// the first among equal ones. The order does not depend on that of the given ones, and so no bit of a weight does.
fn choose(scores: &[f32], bias: Option<&[f32]>, shape: &SparseShape, given: Option<&[u16]>) -> Vec<(usize, f32)> {
    let RouterShape { scores: kind, groups, normalize, added, factor, .. } = shape.router;
    let (weights, total) = weights(scores, kind);
    let chances: Vec<f32> = match bias {
        None => weights.clone(),
        // The bias is added to what the weights are once they are divided.
        Some(bias) => weights.iter().zip(bias).map(|(weight, bias)| weight / total + bias).collect(),
    };
    let mut order = match (given, groups) {
        (Some(given), _) => given.iter().copied().map(usize::from).collect(),
        (None, Some(groups)) => experts_of_best(groups, &chances),
        (None, None) => (0..shape.experts).collect::<Vec<_>>(),
    };
    // Where chances are too close to 0 or 1 to differ, scores do.
    let by_score = |left: &usize, right: &usize| scores[*right].total_cmp(&scores[*left]).then(left.cmp(right));
    order.sort_by(|left, right| chances[*right].total_cmp(&chances[*left]).then_with(|| by_score(left, right)));
    order.truncate(shape.per_token);
    let chosen: f32 = order.iter().map(|expert| weights[*expert]).sum();
    let divisor = normalize.map_or(total, |least| chosen.max(least * total) + added * total);
    order.into_iter().map(|expert| (expert, weights[expert] / divisor * factor)).collect()
}

/// Weights of all experts, and what they are to be divided by.
fn weights(scores: &[f32], kind: Scores) -> (Vec<f32>, f32) {
    match kind {
        Scores::Sigmoid => (scores.iter().map(|score| sigmoid(*score)).collect(), 1.0),
        Scores::Softmax => {
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
            let total = weights.iter().sum();
            (weights, total)
        }
    }
}

/// The experts of the best groups.
fn experts_of_best(Groups { count, chosen, best }: Groups, chances: &[f32]) -> Vec<usize> {
    let size = chances.len() / count;
    let worth = |group: &[f32]| {
        let mut group = group.to_vec();
        group.sort_by(|left, right| right.total_cmp(left));
        group.iter().take(best).sum::<f32>()
    };
    let worths: Vec<f32> = chances.chunks_exact(size).map(worth).collect();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|left, right| worths[*right].total_cmp(&worths[*left]).then(left.cmp(right)));
    order.truncate(chosen);
    order.into_iter().flat_map(|group| group * size..(group + 1) * size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::native::{backend::Gate, model::shape::DenseShape};

    const PLAIN: RouterShape = RouterShape {
        scores: Scores::Sigmoid,
        bias: false,
        choice_bias: false,
        groups: None,
        normalize: None,
        added: 0.0,
        factor: 1.0,
        on_inputs: false,
        normed: false,
    };

    fn sparse(experts: usize, per_token: usize, router: RouterShape) -> SparseShape {
        let expert = DenseShape { intermediate: 1, bias: false, gate: Gate::Silu };
        SparseShape { experts, per_token, expert, router, shared: None, latent: None }
    }

    fn chosen(scores: &[f32], bias: Option<&[f32]>, shape: &SparseShape) -> Vec<usize> {
        choose(scores, bias, shape, None).into_iter().map(|(expert, _)| expert).collect()
    }

    #[test]
    fn among_equal_experts_the_first_are_chosen() {
        assert_eq!(chosen(&[0.0, 1.0, 1.0, 1.0], None, &sparse(4, 2, PLAIN)), [1, 2]);
    }

    #[test]
    fn given_experts_have_the_weights_of_their_scores_in_whatever_order_they_are_given() {
        let shape = sparse(4, 2, RouterShape { normalize: Some(0.0), ..PLAIN });
        let scores = [0.5, 2.0, -1.0, 1.0];
        let own = choose(&scores, None, &shape, None);
        assert_eq!(own.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(choose(&scores, None, &shape, Some(&[1, 3])), own);
        assert_eq!(choose(&scores, None, &shape, Some(&[3, 1])), own);
        let other = choose(&scores, None, &shape, Some(&[2, 0]));
        assert_eq!(other.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [0, 2]);
        let weight = sigmoid(0.5) / (sigmoid(0.5) + sigmoid(-1.0));
        assert_eq!(other[0].1.to_bits(), weight.to_bits());
    }

    #[test]
    fn a_bias_changes_the_choice_and_not_the_weights() {
        let shape = sparse(3, 1, PLAIN);
        let [(expert, weight)] = choose(&[0.0, 1.0, 2.0], Some(&[1.0, 0.0, 0.0]), &shape, None)[..] else {
            panic!("one")
        };
        assert_eq!((expert, weight), (0, 0.5));
    }

    #[test]
    fn groups_are_chosen_by_their_best_experts() {
        let groups = |best| sparse(4, 1, RouterShape { groups: Some(Groups { count: 2, chosen: 1, best }), ..PLAIN });
        let scores = [2.0, -9.0, 1.0, 1.0];
        assert_eq!(chosen(&scores, None, &groups(1)), [0]);
        assert_eq!(chosen(&scores, None, &groups(2)), [2]);
    }

    #[test]
    fn weights_are_normalised_and_multiplied_as_they_are_told() {
        let weights = |router| -> Vec<f32> {
            choose(&[0.0, 0.0, -99.0], None, &sparse(3, 2, router), None)
                .into_iter()
                .map(|(_, weight)| weight)
                .collect()
        };
        assert_eq!(weights(PLAIN), [0.5, 0.5]);
        assert_eq!(weights(RouterShape { factor: 3.0, ..PLAIN }), [1.5, 1.5]);
        assert_eq!(weights(RouterShape { normalize: Some(0.0), factor: 3.0, ..PLAIN }), [1.5, 1.5]);
        assert_eq!(weights(RouterShape { normalize: Some(4.0), ..PLAIN }), [0.125, 0.125]);
        assert_eq!(weights(RouterShape { scores: Scores::Softmax, ..PLAIN }), [0.5, 0.5]);
    }
}
