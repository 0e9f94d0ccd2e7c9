//! Mixtures of experts: which experts a token goes through, and with what weight.

use super::{
    adapters::Weight,
    dense::Dense,
    destinations::InLayer,
    routes::StepRoutes,
    shape::{LatentExperts, SparseShape},
    workspace::Workspace,
};
use crate::engine::native::{
    backend::{Backend, MixtureBuffers, NoRoom, NormShape},
    routing::{Experts, Leaning, choose, sigmoid},
};

/// The rows that go through an expert, with its weights.
type Picks = Vec<(usize, f32)>;

/// Which experts rows go through.
enum Chosen<B: Backend> {
    /// For each expert its rows.
    Here(Vec<Picks>),
    /// What the device chose.
    There(B::Chosen),
}

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
    /// Whether the backend chooses experts and computes all of them at once.
    is_taken: bool,
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
            is_taken: backend.takes_mixture(shape.routing(), shape.expert_shape(hidden)),
            choice_bias: vector(router.choice_bias)?,
            experts: (0..*experts)
                .map(|number| Dense::zeros(backend, |place| InLayer::Expert(number, place), width, *expert))
                .collect::<Result<_, _>>()?,
            shared: shared.map(|shared| Dense::zeros(backend, InLayer::Shared, hidden, shared.dense)).transpose()?,
            shared_gate: is_gated.then(|| Weight::zeros(backend, InLayer::SharedGate, 1, hidden)).transpose()?,
            latent: latent.map(|latent| Compression::zeros(backend, hidden, latent)).transpose()?,
        })
    }

    /// Whether the backend chooses experts and computes all of them at once, and nothing else is done by the host.
    pub(super) fn follows_from_shape(&self) -> bool {
        let shared = self.shared.as_ref().is_none_or(Dense::follows_from_shape) && self.shared_gate.is_none();
        self.is_taken && self.router_norm.is_none() && self.latent.is_none() && shared
    }

    /// Adds what the experts make of the input, times `factor`, to `sum`.
    ///
    /// The experts are added in their order, so that the sum of a token's experts does not depend on other tokens.
    pub(super) fn add(&self, backend: &mut B, factor: f32, workspace: &mut Workspace<B>, sum: &mut B::States) {
        self.score(backend, workspace);
        let chosen = if self.is_taken {
            Chosen::There(self.choose_there(backend, workspace))
        } else {
            Chosen::Here(self.choose_here(backend, workspace))
        };
        match &self.latent {
            None => self.add_chosen(backend, factor, chosen, workspace, sum),
            Some(latent) => self.add_compressed(backend, factor, (chosen, latent), workspace, sum),
        }
        self.add_shared(backend, factor, workspace, sum);
    }

    /// Has the backend choose experts by the scores.
    fn choose_there(&self, backend: &mut B, workspace: &mut Workspace<B>) -> B::Chosen {
        let Workspace { wide, routes, .. } = workspace;
        let per_token = self.shape.per_token;
        let given = routes.given_to_device(per_token);
        let leaning = Leaning { bias: self.choice_bias.as_ref(), factors: self.expert_factors.as_ref(), given };
        let chosen = backend.choose_experts(wide, self.shape.routing(), leaning);
        if routes.keeps() {
            routes.keep_all(per_token, &backend.read_chosen(&chosen));
        }
        routes.next();
        chosen
    }

    /// Chooses experts by the scores.
    fn choose_here(&self, backend: &mut B, workspace: &mut Workspace<B>) -> Vec<Picks> {
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
        picks
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
        (chosen, latent): (Chosen<B>, &Compression<B>),
        workspace: &mut Workspace<B>,
        sum: &mut B::States,
    ) {
        let Workspace { out, input, attended, adapters, .. } = workspace;
        adapters.linear(backend, input, &latent.down, latent.down_bias.as_ref(), out);
        backend.round(out, 0..latent.width, attended);
        let mut compressed = std::mem::take(&mut workspace.head);
        backend.zeros(out, latent.width, &mut compressed);
        std::mem::swap(&mut workspace.input, &mut workspace.attended);
        self.add_chosen(backend, 1.0, chosen, workspace, &mut compressed);
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
        chosen: Chosen<B>,
        workspace: &mut Workspace<B>,
        sum: &mut B::States,
    ) {
        match chosen {
            Chosen::Here(picks) => self.add_one_by_one(backend, factor, picks, workspace, sum),
            Chosen::There(chosen) => self.add_at_once(backend, factor, &chosen, workspace, sum),
        }
    }

    /// Has the backend compute all experts at once.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn add_at_once(
        &self,
        backend: &mut B,
        factor: f32,
        chosen: &B::Chosen,
        workspace: &mut Workspace<B>,
        sum: &mut B::States,
    ) {
        let Workspace { wide, out, input, gated, .. } = workspace;
        let all = self.experts.iter().map(Dense::weights).collect();
        let experts = Experts { shape: self.shape.expert_shape(self.hidden), all };
        backend.add_experts(input, chosen, &experts, factor, MixtureBuffers { wide, gated, out }, sum);
    }

    /// Computes one expert after the other.
    #[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
    fn add_one_by_one(
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

/// Lists for each expert the rows that go through it, with the expert's weight.
fn route(scores: &[f32], bias: Option<&[f32]>, shape: &SparseShape, routes: &mut StepRoutes) -> Vec<Picks> {
    let mut picks = vec![Vec::new(); shape.experts];
    for (row, scores) in scores.chunks_exact(shape.experts).enumerate() {
        let chosen = choose(scores, bias, shape.routing(), routes.given_experts(row));
        routes.keep(row, &chosen);
        for (expert, weight) in chosen {
            picks[expert].push((row, weight));
        }
    }
    routes.next();
    picks
}
