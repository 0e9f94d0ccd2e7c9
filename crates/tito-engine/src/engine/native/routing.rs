//! Mixtures of experts as backends read them: how experts are chosen, and what they are.
//!
//! Owns the choice as the processor makes it, which is what a device's has to be.

use super::gates::Gate;

/// How experts are chosen, and what weight each of the chosen has.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "what a router has and has not is independent of each other")]
pub(crate) struct RouterShape {
    /// What makes weights of scores.
    pub(crate) scores: Scores,
    /// Whether the scores have a bias.
    pub(crate) bias: bool,
    /// Whether the choice, but not the weights, has a bias.
    pub(crate) choice_bias: bool,
    /// Groups of experts, of which some are chosen first.
    pub(crate) groups: Option<Groups>,
    /// Whether the weights of the chosen are divided by their sum, which counts as at least this much.
    pub(crate) normalize: Option<f32>,
    /// What is added to that sum.
    pub(crate) added: f32,
    /// The factor of all weights.
    pub(crate) factor: f32,
    /// Whether weights are factors of what experts read, rather than of what they give.
    pub(crate) on_inputs: bool,
    /// Whether scores are made of a state that is normalised with weights of its own, and divided by the root of its width,
    /// and the weight of each expert has a learnt factor.
    pub(crate) normed: bool,
}

/// Experts with the greatest softmax, whose weights sum to 1.
pub(crate) const SOFTMAX: RouterShape = RouterShape {
    scores: Scores::Softmax,
    bias: false,
    choice_bias: false,
    groups: None,
    normalize: Some(0.0),
    added: 0.0,
    factor: 1.0,
    on_inputs: false,
    normed: false,
};

/// What makes weights of scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scores {
    /// A softmax over all experts.
    Softmax,
    /// A sigmoid of each.
    Sigmoid,
}

/// Groups of experts, of which some are chosen before experts are chosen from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Groups {
    /// How many groups of the same size there are.
    pub(crate) count: usize,
    /// How many of them are chosen.
    pub(crate) chosen: usize,
    /// A group counts as much as so many of its best experts do together.
    pub(crate) best: usize,
}

/// The experts that rows are sent to, and how they are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Routing {
    /// How many experts there are.
    pub(crate) experts: usize,
    /// How many of them a row goes through.
    pub(crate) per_token: usize,
    /// How they are chosen.
    pub(crate) router: RouterShape,
}

/// What all experts of a mixture have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ExpertShape {
    /// Numbers that each reads, and gives.
    pub(crate) width: usize,
    /// Its inner width.
    pub(crate) intermediate: usize,
    /// Its gate.
    pub(crate) gate: Gate,
}

/// All experts of a mixture.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU takes a mixture"))]
pub(crate) struct Experts<'a, M, V> {
    /// What they have in common.
    pub(crate) shape: ExpertShape,
    /// What each has learnt.
    pub(crate) all: Vec<ExpertWeights<'a, M, V>>,
}

/// What decides between experts besides their scores.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU takes a mixture"))]
pub(crate) struct Leaning<'a, V> {
    /// What is added to the chances of each.
    pub(crate) bias: Option<&'a V>,
    /// A factor of each one's weights.
    pub(crate) factors: Option<&'a V>,
    /// The experts of rows to which some are given: as many for each row as it goes through. The first is [`NOT_GIVEN`] for a
    /// row whose experts are chosen.
    pub(crate) given: Option<Vec<u32>>,
}

/// See [`Leaning::given`].
pub(crate) const NOT_GIVEN: u32 = u32::MAX;

/// What an expert has learnt, in matrices and vectors of the backend.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU takes a mixture"))]
pub(crate) struct ExpertWeights<'a, M, V> {
    /// The matrix of its gates and ups.
    pub(crate) gate_up: &'a M,
    /// Its bias.
    pub(crate) gate_up_bias: Option<&'a V>,
    /// The matrix of the way back.
    pub(crate) down: &'a M,
    /// Its bias.
    pub(crate) down_bias: Option<&'a V>,
}

/// The experts of one token, with their weights, from the best to the worst: those that are `given`, or the best ones,
/// the first among equal ones. The order does not depend on that of the given ones, and so no bit of a weight does.
///
/// Where a chance is not a number, nobody knows who would have been chosen: the weights are none either then.
pub(crate) fn choose(
    scores: &[f32],
    bias: Option<&[f32]>,
    Routing { experts, per_token, router }: Routing,
    given: Option<&[u16]>,
) -> Vec<(usize, f32)> {
    let RouterShape { scores: kind, groups, normalize, added, factor, .. } = router;
    let (weights, total) = weights(scores, kind);
    let chances: Vec<f32> = match bias {
        None => weights.clone(),
        // The bias is added to what the weights are once they are divided.
        Some(bias) => weights.iter().zip(bias).map(|(weight, bias)| weight / total + bias).collect(),
    };
    let mut order = match (given, groups) {
        (Some(given), _) => given.iter().copied().map(usize::from).collect(),
        (None, Some(groups)) => experts_of_best(groups, &chances),
        (None, None) => (0..experts).collect::<Vec<_>>(),
    };
    // Where chances are too close to 0 or 1 to differ, scores do.
    let by_score = |left: &usize, right: &usize| scores[*right].total_cmp(&scores[*left]).then(left.cmp(right));
    order.sort_by(|left, right| chances[*right].total_cmp(&chances[*left]).then_with(|| by_score(left, right)));
    order.truncate(per_token);
    let chosen: f32 = order.iter().map(|expert| weights[*expert]).sum();
    let divisor = normalize.map_or(total, |least| chosen.max(least * total) + added * total);
    // Its sign would decide whether it is sorted before all others or behind them.
    let factor = if chances.iter().any(|chance| chance.is_nan()) { f32::NAN } else { factor };
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

pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: RouterShape = RouterShape { scores: Scores::Sigmoid, normalize: None, ..SOFTMAX };

    fn routing(experts: usize, per_token: usize, router: RouterShape) -> Routing {
        Routing { experts, per_token, router }
    }

    fn chosen(scores: &[f32], bias: Option<&[f32]>, routing: Routing) -> Vec<usize> {
        choose(scores, bias, routing, None).into_iter().map(|(expert, _)| expert).collect()
    }

    #[test]
    fn among_equal_experts_the_first_are_chosen() {
        assert_eq!(chosen(&[0.0, 1.0, 1.0, 1.0], None, routing(4, 2, PLAIN)), [1, 2]);
    }

    #[test]
    fn given_experts_have_the_weights_of_their_scores_in_whatever_order_they_are_given() {
        let shape = routing(4, 2, RouterShape { normalize: Some(0.0), ..PLAIN });
        let scores = [0.5, 2.0, -1.0, 1.0];
        let own = choose(&scores, None, shape, None);
        assert_eq!(own.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(choose(&scores, None, shape, Some(&[1, 3])), own);
        assert_eq!(choose(&scores, None, shape, Some(&[3, 1])), own);
        let other = choose(&scores, None, shape, Some(&[2, 0]));
        assert_eq!(other.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [0, 2]);
        let weight = sigmoid(0.5) / (sigmoid(0.5) + sigmoid(-1.0));
        assert_eq!(other[0].1.to_bits(), weight.to_bits());
    }

    #[test]
    fn a_bias_changes_the_choice_and_not_the_weights() {
        let shape = routing(3, 1, PLAIN);
        let [(expert, weight)] = choose(&[0.0, 1.0, 2.0], Some(&[1.0, 0.0, 0.0]), shape, None)[..] else {
            panic!("one")
        };
        assert_eq!((expert, weight), (0, 0.5));
    }

    #[test]
    fn a_chance_that_is_no_number_spoils_all_weights() {
        let spoils = |scores: &[f32], bias: Option<&[f32]>, router, given: Option<&[u16]>| {
            let chosen = choose(scores, bias, routing(4, 2, router), given);
            assert_eq!(chosen.len(), 2);
            chosen.iter().all(|(_, weight)| weight.is_nan())
        };
        let normalized = RouterShape { normalize: Some(1e-20), ..PLAIN };
        let in_groups = RouterShape { groups: Some(Groups { count: 2, chosen: 1, best: 2 }), ..PLAIN };
        let softmax = RouterShape { scores: Scores::Softmax, normalize: Some(0.0), ..PLAIN };
        for router in [PLAIN, normalized, in_groups, softmax] {
            let well = [0.5, 0.25, 1.0, 2.0];
            assert!(!spoils(&well, Some(&[0.0; 4]), router, None));
            for nan in [f32::NAN, -f32::NAN] {
                for place in 0..4 {
                    let mut broken = well;
                    broken[place] = nan;
                    assert!(spoils(&broken, None, router, None), "{router:?}");
                    assert!(spoils(&broken, Some(&[0.0; 4]), router, Some(&[0, 1])), "{router:?}");
                    let mut bias = [0.0; 4];
                    bias[place] = nan;
                    assert!(spoils(&well, Some(&bias), router, None), "{router:?}");
                }
            }
        }
    }

    #[test]
    fn groups_are_chosen_by_their_best_experts() {
        let groups = |best| routing(4, 1, RouterShape { groups: Some(Groups { count: 2, chosen: 1, best }), ..PLAIN });
        let scores = [2.0, -9.0, 1.0, 1.0];
        assert_eq!(chosen(&scores, None, groups(1)), [0]);
        assert_eq!(chosen(&scores, None, groups(2)), [2]);
    }

    #[test]
    fn weights_are_normalised_and_multiplied_as_they_are_told() {
        let weights = |router| -> Vec<f32> {
            choose(&[0.0, 0.0, -99.0], None, routing(3, 2, router), None)
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
