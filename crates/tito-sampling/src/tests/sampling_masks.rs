//! The tokens that could be sampled, against the textbook.

use super::*;

/// Edits and truncation of a position without a past, as their definitions read.
struct Textbook<'a> {
    params: &'a SamplingParams,
    logits: &'a [f32],
}

impl Textbook<'_> {
    /// The logits that masks and biases leave.
    fn edited(&self) -> Vec<f64> {
        let mut edited: Vec<f64> = self.logits.iter().copied().map(f64::from).collect();
        for &(id, bias) in &self.params.logit_bias {
            edited[id as usize] = f64::from(self.logits[id as usize] + bias);
        }
        for (id, logit) in (0..).zip(&mut edited) {
            let is_bad = self.params.bad_words.iter().any(|word| *word == [id]);
            let is_allowed = self.params.allowed_token_ids.as_ref().is_none_or(|allowed| allowed.contains(&id));
            if is_bad || !is_allowed {
                *logit = f64::NEG_INFINITY;
            }
        }
        edited
    }

    /// The ids that stay for certain, and those that stay unless a sum of weights is rounded otherwise.
    fn support(&self) -> (Vec<TokenId>, Vec<TokenId>) {
        let edited = self.edited();
        let max = edited.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weight = |id: &TokenId| ((edited[*id as usize] - max) / self.params.temperature).exp();
        let mut ids: Vec<TokenId> = (0..).take(edited.len()).filter(|id| edited[*id as usize].is_finite()).collect();
        // The best first, and of equals that with the lowest id.
        ids.sort_by(|a, b| edited[*b as usize].total_cmp(&edited[*a as usize]).then(a.cmp(b)));
        let near = |share: f64| if share > 0.0 { 1e-9 } else { 0.0 };
        let min_p = self.params.min_p;
        let sure = |id: &TokenId| weight(id) >= min_p + near(min_p);
        let maybe = |id: &TokenId| weight(id) >= min_p - near(min_p);
        let (mut certain, mut possible) = (ids.clone(), ids);
        certain.retain(sure);
        possible.retain(maybe);
        if let Some(last) = self.params.top_k.checked_sub(1) {
            let keep = |ids: &mut Vec<TokenId>| {
                let Some(edge) = ids.get(last).map(|id| edited[*id as usize]) else { return };
                ids.retain(|id| edited[*id as usize] >= edge);
            };
            keep(&mut certain);
            keep(&mut possible);
        }
        let total: f64 = certain.iter().map(weight).sum();
        let mass = self.params.top_p * total;
        // The best stays always; another one does where those before it do not reach the mass.
        let nucleus = |mut ids: Vec<TokenId>, slack: f64| {
            let mut before = 0.0;
            let reached = ids.iter().position(|id| {
                let reached = before > 0.0 && before >= mass + slack && self.params.top_p < 1.0;
                before += weight(id);
                reached
            });
            ids.truncate(reached.unwrap_or(ids.len()));
            ids
        };
        (nucleus(certain, -1e-9), nucleus(possible, 1e-9))
    }
}

fn any_mask_params() -> impl Strategy<Value = SamplingParams> {
    let numbers = (
        prop_oneof![Just(0.0), Just(1.0), 0.3_f64..2.0],
        prop_oneof![Just(1.0), 0.01_f64..1.0],
        prop_oneof![Just(0_usize), 1..20_usize],
        prop_oneof![Just(0.0), 0.001_f64..1.0],
        any::<u64>(),
    );
    let lists = (
        prop_oneof![Just(Vec::new()), prop::collection::vec((0_u32..20, -5.0_f32..5.0), 1..4)],
        prop_oneof![Just(None), prop::collection::vec(0_u32..20, 1..9).prop_map(Some)],
        prop_oneof![Just(Vec::new()), prop::collection::vec(20_u32..40, 1..3)],
    );
    (numbers, lists).prop_map(|((temperature, top_p, top_k, min_p, seed), (logit_bias, allowed_token_ids, bad))| {
        SamplingParams {
            temperature,
            top_p,
            top_k,
            min_p,
            seed: Some(seed),
            logit_bias,
            allowed_token_ids,
            bad_words: bad.into_iter().map(|id| vec![id]).collect(),
            sampling_mask: Some(4096),
            ..Default::default()
        }
    })
}

/// Logits with equal ones among them.
fn logits_with_ties() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(prop_oneof![-8.0_f32..8.0, (-8_i8..8).prop_map(|logit| f32::from(logit) / 2.0)], 40..90)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_row_is_what_the_textbook_leaves(logits in logits_with_ties(), params in any_mask_params()) {
        let params = SamplingParams { logprobs_mode: LogprobsMode::Processed, ..params };
        let token = sample(&params, &logits, 1).remove(0);
        let row = token.sampling_mask.unwrap().to_vec();
        prop_assert!(row.contains(&token.id), "{:?} {:?}", row, token.id);
        prop_assert!(row.is_sorted_by(|left, right| left < right), "{:?}", row);
        let valid = params.clone().valid();
        if valid.is_greedy() {
            prop_assert_eq!(&row, &[token.id]);
            prop_assert_eq!(token.logprob, 0.0);
            return Ok(());
        }
        let (certain, possible) = Textbook { params: &valid, logits: &logits }.support();
        prop_assert!(certain.iter().all(|id| row.contains(id)), "{:?} lacks some of {:?}", row, certain);
        prop_assert!(row.iter().all(|id| possible.contains(id)), "{:?} has more than {:?}", row, possible);
        // Log-probs are those over the row: together they are 1, and nothing else has any.
        let all = SamplingParams { logprobs: Some(Logprobs::All), ..params };
        let token = sample(&all, &logits, 1).remove(0);
        let of_row = token.top_logprobs.iter().filter(|top| row.contains(&top.id));
        let sum: f64 = of_row.map(|top| f64::from(top.logprob).exp()).sum();
        prop_assert!((sum - 1.0).abs() < 1e-5, "{}", sum);
        let others = token.top_logprobs.iter().filter(|top| !row.contains(&top.id));
        prop_assert!(others.into_iter().all(|top| top.logprob <= -9999.0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_mask_changes_no_token_and_no_raw_log_prob(logits in logits_with_ties(), params in any_mask_params()) {
        let without = SamplingParams { sampling_mask: None, ..params.clone() };
        let bare = |params: &SamplingParams| -> Vec<(TokenId, u32, u32)> {
            sample(params, &logits, 6).iter().map(|token| (token.id, token.logprob.to_bits(), token.rank)).collect()
        };
        prop_assert_eq!(bare(&params), bare(&without));
    }
}

#[test]
fn a_row_that_would_be_too_long_is_an_error_and_no_shorter_row() {
    let logits = [0.5_f32; 30];
    let params = |top_k| SamplingParams { top_k, sampling_mask: Some(12), ..Default::default() };
    let step = |params: SamplingParams| {
        SequenceSampler::new(params.valid(), Arc::new([])).step(&mut logits.to_vec()).map(|step| step.token)
    };
    // All are equal, and equals are all kept.
    for top_k in [0, 5] {
        let error = step(params(top_k)).unwrap_err();
        assert_eq!(error, SampleError::MaskTooLong { tokens: 30, most: 12 });
    }
    let allowed = SamplingParams { allowed_token_ids: Some((3..15).collect()), ..params(0) };
    assert_eq!(step(allowed).unwrap().sampling_mask.unwrap().to_vec(), (3..15).collect::<Vec<_>>());
}

#[test]
fn no_row_comes_unasked() {
    assert_eq!(sample(&SamplingParams::default(), &[0.0, 1.0], 1)[0].sampling_mask, None);
}
