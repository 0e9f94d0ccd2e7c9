//! The experts of tokens, out of the engine and into it.

use std::collections::BTreeSet;

use super::{
    recurrent::{hybrid, settings_of},
    weights::replace,
    *,
};
use crate::engine::{
    GivenRoutes, NewWeights, OnWeightsChange, RouteArray, RouteShape, Routes, Routing, UndoPolicy, WeightTensor,
    native::model::tests::families::Golden,
};

const MODEL: &str = "qwen3_moe";

fn mixture() -> NativeSettings {
    NativeSettings { return_routed_experts: true, ..settings(MODEL) }
}

fn prompt(length: u32) -> Vec<TokenId> {
    (0..length).map(|place| (place * 7 + 3) % 96).collect()
}

fn asking(prompt: &[TokenId], tokens: usize) -> SequenceRequest {
    let sampling = SamplingParams { ignore_eos: true, ..params(tokens) };
    let routing = Routing { shown_from: Some(0), given: None };
    SequenceRequest { routing, ..request(prompt, sampling) }
}

/// Scores `tokens`, which go through these experts.
fn scoring(engine: &NativeEngine, tokens: &[TokenId], routes: &Routes) -> SequenceRequest {
    let routing = Routing { shown_from: Some(0), given: Some(given_routes(engine, routes, tokens.len())) };
    SequenceRequest { prompt_logprobs: Some(2), routing, ..request(tokens, params(1)) }
}

fn given_routes(engine: &NativeEngine, routes: &Routes, prompt: usize) -> Arc<GivenRoutes> {
    let shape = engine.route_shape().unwrap();
    let numbers: Vec<i32> = routes.0.iter().copied().map(i32::from).collect();
    let array = RouteArray { shape: [routes.0.len() / shape.width(), shape.mixtures.len(), shape.per_token], numbers };
    GivenRoutes::new(&array, shape, prompt).unwrap()
}

/// An answer, and its routes.
pub(super) async fn routed(stream: TokenStream) -> (Answer, Routes) {
    let outputs: Vec<_> = stream.collect().await;
    let mut routes = None;
    for output in &outputs {
        if let Ok(EngineOutput::Routes(next)) = output {
            Routes::join(&mut routes, Some(next.clone()));
        }
    }
    (collected(stream::iter(outputs).boxed()).await, routes.expect("they were asked for"))
}

fn sampled(answer: &Answer) -> Vec<TokenId> {
    answer.1.iter().map(|token| token.id).collect()
}

fn score_bits(answer: &Answer) -> Vec<Bits> {
    bits(&(answer.0.clone(), Vec::new(), answer.2))
}

/// Prompt and output, what is sampled with its log-probs, and the routes of a request alone on an engine of its own.
async fn alone(settings: &NativeSettings, request: SequenceRequest) -> (Vec<TokenId>, Answer, Routes) {
    let (answer, routes) = routed(engine(settings).generate(request.clone())).await;
    (request.prompt_token_ids.iter().copied().chain(sampled(&answer)).collect(), answer, routes)
}

#[tokio::test]
async fn all_tokens_but_the_last_have_routes_from_where_they_are_asked_for() {
    let engine = engine(&mixture());
    let RouteShape { layers, mixtures, experts, per_token } = engine.route_shape().unwrap().clone();
    assert!(mixtures.len() <= layers && per_token < experts);
    let width = mixtures.len() * per_token;
    let (_, whole) = routed(engine.generate(asking(&prompt(70), 9))).await;
    assert_eq!(whole.0.len(), (70 + 9 - 1) * width);
    for of_token in whole.0.chunks_exact(per_token) {
        assert!(of_token.iter().all(|expert| usize::from(*expert) < experts));
        assert_eq!(of_token.iter().collect::<BTreeSet<_>>().len(), per_token);
    }
    for from in [1, 33, 69, 70] {
        let routing = Routing { shown_from: Some(from), given: None };
        let (_, rest) = routed(engine.generate(SequenceRequest { routing, ..asking(&prompt(70), 9) })).await;
        assert_eq!(rest.0, whole.0[from * width..], "{from}");
    }
}

#[tokio::test]
async fn routes_are_the_same_in_company_in_pieces_cached_and_after_preemption() {
    let settings = mixture();
    let mut random = Random::seeded(3);
    let mut requests = Vec::new();
    for _ in 0..REQUESTS {
        let asked = random.request();
        let routing = Routing { shown_from: Some(0), given: None };
        requests.push(SequenceRequest { routing, ..asked });
    }
    let mut expected = Vec::new();
    for request in &requests {
        expected.push(routed(engine(&settings).generate(request.clone())).await);
    }
    let tight = blocks(MODEL, 9, Dtype::Bf16);
    for (max_num_batched_tokens, kv_cache_bytes) in [(512, 64 << 20), (7, 64 << 20), (64, tight)] {
        let engine = engine(&NativeSettings { max_num_batched_tokens, kv_cache_bytes, ..settings.clone() });
        for round in ["cold", "warm"] {
            let streams = in_company(&engine, &requests).into_iter().map(routed);
            for (index, (found, expected)) in join_all(streams).await.iter().zip(&expected).enumerate() {
                assert_eq!(bits(&found.0), bits(&expected.0), "{round} {max_num_batched_tokens} {index}");
                assert_eq!(found.1, expected.1, "{round} {max_num_batched_tokens} {index}");
            }
        }
    }
}

#[tokio::test]
async fn what_was_sampled_scores_to_the_same_bits_with_its_own_routes() {
    let settings = mixture();
    let (tokens, answer, routes) = alone(&settings, asking(&prompt(70), 40)).await;
    let engine = engine(&settings);
    // What others computed without routes is in the cache.
    let (plain, own) =
        routed(engine.generate(SequenceRequest { prompt_logprobs: Some(2), ..asking(&tokens, 1) })).await;
    assert_eq!(own.0[..routes.0.len()], routes.0);
    for round in ["cold", "warm"] {
        let (scored, taken) = routed(engine.generate(scoring(&engine, &tokens, &routes))).await;
        assert_eq!(taken.0[..routes.0.len()], routes.0, "{round}");
        assert_eq!(score_bits(&scored), score_bits(&plain), "{round}");
        let of_output = scored.0[69..].iter().map(|token| token.logprob.to_bits());
        assert!(of_output.eq(answer.1.iter().map(|token| token.logprob.to_bits())), "{round}");
    }
}

#[tokio::test]
async fn experts_beside_recurrent_states_are_reported_and_followed_too() {
    let golden = Golden::named("families/qwen3_next_plain");
    let settings = NativeSettings { return_routed_experts: true, ..settings_of(&golden) };
    let engine = hybrid(&golden, &settings);
    let (answer, routes) = routed(engine.generate(asking(&prompt(70), 20))).await;
    let width = engine.route_shape().unwrap().width();
    assert_eq!(routes.0.len(), (70 + 20 - 1) * width);
    let tokens: Vec<TokenId> = prompt(70).into_iter().chain(sampled(&answer)).collect();
    let own = SequenceRequest { prompt_logprobs: Some(2), ..asking(&tokens, 1) };
    let (plain, own) = routed(engine.generate(own)).await;
    assert_eq!(own.0[..routes.0.len()], routes.0, "from copies of states, and anew");
    let other = changed(&engine, &routes, 40 * width);
    for _ in 0..2 {
        let (scored, taken) = routed(engine.generate(scoring(&engine, &tokens, &routes))).await;
        assert_eq!((score_bits(&scored), &taken), (score_bits(&plain), &own));
        let (otherwise, _) = routed(engine.generate(scoring(&engine, &tokens, &other))).await;
        assert_eq!(score_bits(&otherwise)[..40], score_bits(&plain)[..40]);
        assert_ne!(score_bits(&otherwise)[40..], score_bits(&plain)[40..]);
    }
}

/// The same routes with one expert of one token exchanged for another one.
fn changed(engine: &NativeEngine, routes: &Routes, place: usize) -> Routes {
    let RouteShape { experts, per_token, .. } = *engine.route_shape().unwrap();
    let mut changed = routes.clone();
    let first = place - place % per_token;
    let of_token = &routes.0[first..first + per_token];
    let other = (0..u16::try_from(experts).unwrap()).find(|expert| !of_token.contains(expert)).unwrap();
    changed.0[place] = other;
    changed
}

#[tokio::test]
async fn other_routes_score_otherwise_and_share_nothing_with_others() {
    let settings = mixture();
    let engine = engine(&settings);
    let (tokens, _, routes) = alone(&settings, asking(&prompt(90), 8)).await;
    let width = engine.route_shape().unwrap().width();
    let scores = |routes: &Routes| {
        let stream = engine.generate(scoring(&engine, &tokens, routes));
        async { score_bits(&routed(stream).await.0) }
    };
    let own = scores(&routes).await;
    let other = changed(&engine, &routes, 40 * width);
    // The prompts are long enough to have whole blocks in the cache, before and after the changed token.
    for _ in 0..2 {
        let found = scores(&other).await;
        assert_eq!(found[..40], own[..40], "before the token nothing differs");
        assert_ne!(found[40..], own[40..]);
        assert_eq!(scores(&routes).await, own);
        let (plain, _) =
            routed(engine.generate(SequenceRequest { prompt_logprobs: Some(2), ..asking(&tokens, 1) })).await;
        assert_eq!(score_bits(&plain), own);
    }
    let cached = |request: SequenceRequest| async {
        let mut stream = engine.generate(request);
        let Some(Ok(EngineOutput::Prompt(output))) = stream.next().await else { panic!("the prompt comes first") };
        output.cached_tokens
    };
    let unscored = |routes| SequenceRequest { prompt_logprobs: None, ..scoring(&engine, &tokens, routes) };
    let third = changed(&engine, &routes, 70 * width);
    assert_eq!(cached(unscored(&third)).await, 0, "the first with these routes");
    assert!(cached(unscored(&third)).await >= 64, "the second with the same ones");
    assert!(cached(asking(&tokens, 1)).await >= 64, "none have a cache of their own");
}

#[tokio::test]
async fn given_routes_are_followed_in_company_in_pieces_and_after_preemption() {
    let settings = mixture();
    let reference = engine(&settings);
    let width = reference.route_shape().unwrap().width();
    let mut requests = Vec::new();
    let mut random = Random::seeded(5);
    for number in 0..8 {
        let (tokens, _, routes) = alone(&settings, asking(&prompt(20 + number * 9), 6)).await;
        let place = random.below(u32::try_from(routes.0.len() / width).unwrap()) as usize * width;
        let kept = width * (tokens.len() - 1 - number as usize % 3);
        let routes = changed(&reference, &routes, place);
        requests.push(scoring(&reference, &tokens, &Routes(routes.0[..kept].to_vec())));
    }
    let mut expected = Vec::new();
    for request in &requests {
        expected.push(routed(engine(&settings).generate(request.clone())).await);
    }
    for (request, (_, taken)) in requests.iter().zip(&expected) {
        let given = request.routing.given.as_ref().unwrap();
        let per_token = reference.route_shape().unwrap().per_token;
        for (position, row) in taken.0.chunks_exact(width).enumerate() {
            for (mixture, experts) in row.chunks_exact(per_token).enumerate() {
                let Some(given) = given.experts(position, mixture) else { continue };
                assert_eq!(experts.iter().collect::<BTreeSet<_>>(), given.iter().collect());
            }
        }
    }
    let tight = blocks(MODEL, 9, Dtype::Bf16);
    for (max_num_batched_tokens, kv_cache_bytes) in [(512, 64 << 20), (7, 64 << 20), (64, tight)] {
        let engine = engine(&NativeSettings { max_num_batched_tokens, kv_cache_bytes, ..settings.clone() });
        for _ in 0..2 {
            let streams = in_company(&engine, &requests).into_iter().map(routed);
            for (found, expected) in join_all(streams).await.iter().zip(&expected) {
                assert_eq!((bits(&found.0), &found.1), (bits(&expected.0), &expected.1));
            }
        }
    }
}

/// A router that makes other choices.
fn router(engine: &NativeEngine) -> Vec<WeightTensor> {
    let tensors = engine.tensors();
    let router = tensors.iter().find(|tensor| tensor.name.ends_with("mlp.gate.weight")).unwrap();
    let numbers = router.shape.iter().product::<usize>();
    let number = |place: usize| [2.0_f32, -1.5, 0.25, -4.0, 1.0][place * place % 5];
    let bytes: Vec<u8> = (0..numbers).flat_map(|place| number(place).to_le_bytes()).collect();
    vec![WeightTensor {
        bytes: bytes.into(),
        dtype: WeightDtype::F32,
        name: router.name.clone(),
        shape: router.shape.clone(),
    }]
}

#[tokio::test]
async fn routes_stay_those_of_the_weights_that_sampled_when_weights_change() {
    let settings = NativeSettings { dtype: Dtype::F32, ..mixture() };
    for change in [OnWeightsChange::Recompute, OnWeightsChange::Reuse] {
        let bounds = BacklogBounds { sequence: 900, ..BacklogBounds::default() };
        let engine = engine(&settings).with_backlog(bounds);
        let width = engine.route_shape().unwrap().width();
        let (_, old) = routed(engine.generate(asking(&prompt(40), 30))).await;
        let mut stream = engine.generate(asking(&prompt(40), 30));
        let (mut routes, mut tokens, mut switched) = (Routes::default(), 0, None);
        let mut take = |output, tokens: &mut usize| match output {
            EngineOutput::Routes(next) => routes.0.extend(next.0),
            EngineOutput::Token(_) => *tokens += 1,
            EngineOutput::Weights(_) => switched = Some(*tokens),
            _ => {}
        };
        while tokens < 4 {
            take(stream.next().await.unwrap().unwrap(), &mut tokens);
        }
        engine.hold().await.unwrap();
        engine.begin_update(UndoPolicy::Memory).await.unwrap();
        engine.write_weights(NewWeights::Tensors(router(&engine))).await.unwrap();
        engine.finish_update(None, change).await.unwrap();
        engine.release().await.unwrap();
        while let Some(output) = stream.next().await {
            take(output.unwrap(), &mut tokens);
        }
        let switched = switched.unwrap();
        assert_eq!((tokens, routes.0.len()), (30, (40 + 30 - 1) * width));
        assert!((1..30).contains(&switched), "{switched}");
        // What the tokens before the change came from is not touched by it.
        let settled = (40 + switched - 1) * width;
        assert_eq!(routes.0[..settled], old.0[..settled], "{change:?}");
        assert_ne!(routes.0[settled..], old.0[settled..], "{change:?}");
    }
}

#[tokio::test]
async fn new_weights_have_routes_of_their_own() {
    let settings = NativeSettings { dtype: Dtype::F32, ..mixture() };
    let engine = engine(&settings);
    let (before, old) = routed(engine.generate(asking(&prompt(70), 4))).await;
    replace(&engine, router(&engine)).await.unwrap();
    let (after, new) = routed(engine.generate(asking(&prompt(70), 4))).await;
    assert_ne!(old, new);
    assert_ne!(bits(&before), bits(&after));
}

#[tokio::test]
async fn what_cannot_be_shown_or_followed_is_refused() {
    let refused = |settings: NativeSettings, request: SequenceRequest| async move {
        match collected_error(engine(&settings).generate(request)).await {
            EngineError::Unsupported(reason) => reason,
            other => panic!("{other}"),
        }
    };
    let dense = refused(settings("llama"), asking(&prompt(4), 1)).await;
    assert_eq!(dense, "the native engine has no mixtures of experts here");
    let unkept = refused(settings(MODEL), asking(&prompt(4), 1)).await;
    assert_eq!(unkept, "the server was not started to report routed experts");
    let routing = Routing { shown_from: Some(5), given: None };
    let late = refused(mixture(), SequenceRequest { routing, ..asking(&prompt(4), 1) }).await;
    assert_eq!(late, "the routes of the prompt begin after its end");
    let other = RouteShape { layers: 1, mixtures: vec![0], experts: 4, per_token: 1 };
    let array = RouteArray { shape: [1, 1, 1], numbers: vec![0] };
    let routing = Routing { shown_from: None, given: Some(GivenRoutes::new(&array, &other, 4).unwrap()) };
    let foreign = refused(mixture(), SequenceRequest { routing, ..asking(&prompt(4), 1) }).await;
    assert_eq!(foreign, "the given routes are those of another model");
    let settings = NativeSettings { return_routed_experts: true, ..settings("llama") };
    let Err(error) = NativeEngine::load(&settings, &mut |_, _| ()) else { panic!("there are no experts") };
    assert_eq!(
        error.to_string(),
        "--enable-return-routed-experts is for models with mixtures of experts, and this one has none"
    );
}

async fn collected_error(mut stream: TokenStream) -> EngineError {
    stream.next().await.unwrap().unwrap_err()
}

#[tokio::test]
async fn routes_are_followed_by_a_server_that_does_not_report_any() {
    let (tokens, _, routes) = alone(&mixture(), asking(&prompt(50), 5)).await;
    let (reporting, silent) = (engine(&mixture()), engine(&settings(MODEL)));
    let other = changed(&reporting, &routes, 0);
    let (expected, _) = routed(reporting.generate(scoring(&reporting, &tokens, &other))).await;
    let asked = scoring(&silent, &tokens, &other);
    let routing = Routing { shown_from: None, ..asked.routing.clone() };
    let found = collected(silent.generate(SequenceRequest { routing, ..asked })).await;
    assert_eq!(bits(&found), bits(&expected));
}
