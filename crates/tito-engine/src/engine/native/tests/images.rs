//! Images in prompts: the same bits in any company, and what is refused.

use tito_images::{Layout, PatchShape};

use super::{
    super::*,
    recurrent::hybrid,
    speculation::{NGRAM, count, counted_by},
    *,
};
use crate::engine::{
    PromptImage,
    images::tests::{image, made},
    native::model::tests::{
        families::Golden,
        images::{golden, prompts},
    },
};

/// Attention in all layers, with mixtures too.
const MODELS: [&str; 3] = ["qwen2_5_vl_plain", "qwen3_vl_moe_plain", "qwen3_vl_plain"];
/// Rows of images with ends.
const ROWS: [&str; 2] = ["mistral3_ministral3", "mistral3_plain"];
/// Images of squares, between marks of their own.
const SQUARES: [&str; 2] = ["internvl_plain", "internvl_root_norms"];
/// Patches that are joined by a convolution.
const DOWNSAMPLED: [&str; 2] = ["glm4v_moe_plain", "glm4v_plain"];
/// Images that are seen both ways.
const BOTH_WAYS: [&str; 2] = ["gemma3_plain", "gemma3_short_window"];
/// Layers with recurrent states.
const HYBRIDS: [&str; 2] = ["qwen3_5_moe_plain", "qwen3_5_plain"];

/// All that have attention in all layers.
fn attending() -> impl Iterator<Item = &'static str> {
    MODELS.into_iter().chain(BOTH_WAYS).chain(ROWS).chain(SQUARES).chain(DOWNSAMPLED)
}

fn settings_of(golden: &Golden) -> NativeSettings {
    NativeSettings { config: golden.config().clone(), ..settings("llama") }
}

fn loaded(name: &str) -> NativeEngine {
    let golden = golden(name);
    hybrid(&golden, &settings_of(&golden))
}

/// Prompts that begin alike with different images, and go on differently, some of them scored.
pub(super) fn requests(golden: &Golden) -> Vec<SequenceRequest> {
    let mut requests = Vec::new();
    for (number, prompt) in prompts(golden).into_iter().enumerate() {
        for (seed, turn) in [(None, 0), (Some(9), 0), (None, 1), (None, 40)] {
            let mut images = prompt.images.clone();
            // Another image of the same size.
            if let (Some(seed), Some(PromptImage { image, .. })) = (seed, images.first_mut()) {
                let joined = image.joined();
                *image = made(seed, joined.rows, joined.columns, image.shape());
            }
            let mut ids = prompt.token_ids.clone();
            ids.extend((0..turn).map(|place| (place * 7 + 1) % 90));
            let sampling = SamplingParams { temperature: [0.0, 0.8][number % 2], ..params(6) };
            let prompt_logprobs = (turn == 1).then_some(2);
            requests.push(SequenceRequest { images: images.into(), prompt_logprobs, ..request(&ids, sampling) });
        }
    }
    requests
}

#[tokio::test]
async fn images_in_company_from_the_cache_in_pieces_and_after_preemption_change_no_bit() {
    for (name, places) in attending().map(|name| (name, [8, 0])).chain(HYBRIDS.map(|name| (name, [12, 6]))) {
        let golden = golden(name);
        let requests = requests(&golden);
        let base = settings_of(&golden);
        let few = recurrent::bytes(&golden, places[0], places[1]);
        let companies = [(64, 512, 1, 64 << 20), (8, 16, 2, 64 << 20), (3, 64, 3, few), (5, 33, 1, few)];
        compare_in(&companies, &base, &requests, |settings| hybrid(&golden, settings)).await;
    }
}

#[tokio::test]
async fn what_is_cached_of_a_prompt_is_found_up_to_another_image() {
    let others = ROWS.map(|name| (name, 36, 96)).into_iter().chain(SQUARES.map(|name| (name, 29, 64)));
    let plain = MODELS.into_iter().chain(DOWNSAMPLED).map(|name| (name, 30, 64));
    for (name, tokens, whole) in plain.chain(others) {
        let golden = golden(name);
        let engine = hybrid(&golden, &settings_of(&golden));
        // 40 tokens, and an image of 30 from the 42nd one on, of 36 with the ends of its rows, or of 29 with its marks.
        let prompt = prompts(&golden).into_iter().find(|prompt| prompt.token_ids.len() > 64).unwrap();
        let offset = prompt.images[0].offset;
        assert_eq!((offset, prompt.images[0].image.placeholders()), (41, tokens));
        let asked =
            |images: &[PromptImage]| SequenceRequest { images: images.into(), ..request(&prompt.token_ids, params(1)) };
        let joined = prompt.images[0].image.joined();
        let other = made(99, joined.rows, joined.columns, prompt.images[0].image.shape());
        let other = [PromptImage { offset, image: other }];
        for (images, cached) in
            [(&prompt.images[..], 0), (&prompt.images, whole), (&other, 32), (&[], 32), (&other, whole)]
        {
            let output = prompt_output(&engine, asked(images)).await;
            assert!((cached..cached + 31).contains(&output.cached_tokens), "{name}: {}", output.cached_tokens);
        }
        // Of a running sequence, the tokens up to another image are copied, and none of its placeholders.
        let long = |images: &[PromptImage]| SequenceRequest {
            images: images.into(),
            ..request(&prompt.token_ids, params(90))
        };
        assert!(engine.reset_prefix_cache(false).await.unwrap());
        let mut running = engine.generate(long(&prompt.images));
        running.next().await.unwrap().unwrap();
        running.next().await.unwrap().unwrap();
        let output = prompt_output(&engine, asked(&other)).await;
        assert!((32..=41).contains(&output.cached_tokens), "{name}: {}", output.cached_tokens);
    }
}

#[tokio::test]
async fn what_is_cached_of_a_prompt_ends_before_an_image_that_is_seen_both_ways() {
    for name in BOTH_WAYS {
        let golden = golden(name);
        let engine = hybrid(&golden, &settings_of(&golden));
        let image = prompts(&golden).into_iter().find_map(|prompt| prompt.images.first().cloned()).unwrap().image;
        let joined = image.joined();
        // 9 tokens over the border of two blocks, of which the first one alone is kept.
        let offset = 28;
        let mut ids: Vec<TokenId> = (0..42).collect();
        ids[offset..offset + 9].fill(90);
        let of = |seed: u8| [PromptImage { offset, image: made(seed, joined.rows, joined.columns, image.shape()) }];
        let (first, second) = (of(98), of(99));
        let mut found = Vec::new();
        for (images, cached) in [(&first[..], 0), (&first, 28), (&second, 0), (&second, 28), (&[], 0)] {
            let asked = || SequenceRequest { images: images.into(), ..request(&ids, params(6)) };
            let output = prompt_output(&engine, asked()).await;
            assert_eq!(output.cached_tokens, cached, "{name}");
            let cached = bits(&collected(engine.generate(asked())).await);
            assert!(engine.reset_prefix_cache(false).await.unwrap());
            let anew = bits(&collected(engine.generate(asked())).await);
            assert!(cached == anew, "{name}");
            found.push(anew);
        }
        assert!(found[0] != found[2] && found[0] != found[4]);
    }
}

#[tokio::test]
async fn no_sequence_goes_on_from_the_state_after_another_image() {
    for name in HYBRIDS {
        let golden = golden(name);
        let engine = hybrid(&golden, &settings_of(&golden));
        // As above; a state is left at 64 tokens, in the image, and at 32 once a sequence has parted there.
        let prompt = prompts(&golden).into_iter().find(|prompt| prompt.token_ids.len() > 64).unwrap();
        let PromptImage { offset, image } = &prompt.images[0];
        assert_eq!((*offset, image.placeholders()), (41, 30));
        let of = |seed: u8| {
            let image = made(seed, image.joined().rows, image.joined().columns, image.shape());
            [PromptImage { offset: *offset, image }]
        };
        let asked =
            |images: &[PromptImage]| SequenceRequest { images: images.into(), ..request(&prompt.token_ids, params(6)) };
        let (first, second) = (of(98), of(99));
        let mut found = Vec::new();
        for (images, cached) in [(&first[..], 0), (&first, 64), (&second, 0), (&[], 32), (&second, 64), (&first, 64)] {
            let output = prompt_output(&engine, asked(images)).await;
            assert_eq!(output.cached_tokens, cached, "{name}");
            found.push(bits(&collected(engine.generate(asked(images))).await));
        }
        assert!(found[0] != found[2] && found[0] != found[3] && found[2] != found[3]);
        for (images, found) in [(&first[..], [0, 1, 5]), (&second, [2, 4, 4]), (&[], [3; 3])]
            .map(|(images, numbers)| (images, numbers.map(|number| found[number].clone())))
        {
            assert!(engine.reset_prefix_cache(false).await.unwrap());
            let anew = bits(&collected(engine.generate(asked(images))).await);
            assert!(found.iter().all(|found| *found == anew), "{name}");
        }
    }
}

#[tokio::test]
async fn prompt_log_probs_of_a_sequence_with_images_are_those_of_the_generation_itself() {
    for name in attending().chain(HYBRIDS) {
        let golden = golden(name);
        let engine = hybrid(&golden, &settings_of(&golden));
        for prompt in prompts(&golden) {
            let images: Arc<[PromptImage]> = prompt.images.clone().into();
            let first = SequenceRequest { images: Arc::clone(&images), ..request(&prompt.token_ids, params(20)) };
            let (_, tokens, _) = collected(engine.generate(first)).await;
            let whole: Vec<TokenId> =
                prompt.token_ids.iter().copied().chain(tokens.iter().map(|token| token.id)).collect();
            let asked = SequenceRequest { images, prompt_logprobs: Some(3), ..request(&whole, params(1)) };
            let (scores, ..) = collected(engine.generate(asked)).await;
            assert_eq!(scores[prompt.token_ids.len() - 1..], tokens);
        }
    }
}

#[tokio::test]
async fn drafts_after_images_change_no_bit() {
    for name in attending() {
        let golden = golden(name);
        // Few tokens to choose from make what is sampled repeat itself, and drafts of it.
        let sampling = SamplingParams { ignore_eos: true, allowed_token_ids: Some(vec![3, 5, 90]), ..params(60) };
        let sampling = sampling.valid();
        let few = |request: SequenceRequest| SequenceRequest { sampling: Arc::clone(&sampling), ..request };
        let requests: Vec<SequenceRequest> = requests(&golden).into_iter().step_by(2).map(few).collect();
        let plain = hybrid(&golden, &settings_of(&golden));
        let (speculating, metrics) = counted_by(|| {
            let settings = NativeSettings {
                drafting: Drafting::Required(NGRAM),
                max_num_batched_tokens: 64,
                ..settings_of(&golden)
            };
            hybrid(&golden, &settings)
        });
        for (index, request) in requests.iter().enumerate() {
            let expected = bits(&collected(plain.generate(request.clone())).await);
            assert!(bits(&collected(speculating.generate(request.clone())).await) == expected, "{name}: {index}");
        }
        assert!(count(&metrics, "num_accepted_tokens") > 0);
    }
}

#[tokio::test]
async fn a_tower_is_updated_alone_and_so_is_the_text() {
    for name in attending().chain(HYBRIDS) {
        let golden = golden(name);
        let engine = hybrid(&golden, &settings_of(&golden));
        let prompt = prompts(&golden).remove(3);
        let asked =
            || SequenceRequest { images: prompt.images.clone().into(), ..request(&prompt.token_ids, params(4)) };
        let before = bits(&collected(engine.generate(asked())).await);
        let all: Vec<TensorInfo> = engine.tensors().to_vec();
        let norms = |tower: bool| -> Vec<WeightTensor> {
            let of_tower = |name: &str| name.contains("visual.") || name.starts_with("vision_tower.");
            let of = |tensor: &&TensorInfo| of_tower(&tensor.name) == tower && tensor.name.ends_with("norm.weight");
            let ends = |tensor: &&TensorInfo| {
                ["ln_q.weight", "layernorm_before.weight"].iter().any(|end| tensor.name.ends_with(end))
            };
            let chosen = all.iter().filter(|tensor| of(tensor) || (tower && ends(tensor)));
            let half = |tensor: &TensorInfo| WeightTensor {
                name: tensor.name.clone(),
                dtype: WeightDtype::F32,
                shape: tensor.shape.clone(),
                bytes: 0.5_f32.to_le_bytes().repeat(tensor.shape.iter().product()).into(),
            };
            chosen.map(half).collect()
        };
        let (tower, text) = (norms(true), norms(false));
        assert!(!tower.is_empty() && !text.is_empty(), "{name}");
        replace(&engine, tower).await.unwrap();
        let with_tower = bits(&collected(engine.generate(asked())).await);
        assert!(with_tower != before, "{name}");
        replace(&engine, text).await.unwrap();
        assert!(bits(&collected(engine.generate(asked())).await) != with_tower, "{name}");
    }
}

async fn error(engine: &NativeEngine, request: SequenceRequest) -> String {
    let mut outputs = engine.generate(request);
    outputs.next().await.unwrap().unwrap_err().to_string()
}

#[tokio::test]
async fn images_that_the_model_cannot_read_are_refused() {
    let engine = loaded("qwen3_vl_plain");
    assert_eq!(engine.images().map(|reading| reading.placeholder), Some(90));
    let asked = |image, ids: &[TokenId]| SequenceRequest {
        images: [PromptImage { offset: 1, image }].into(),
        ..request(ids, params(1))
    };
    let shape = prompts(&golden("qwen3_vl_plain"))[1].images[0].image.shape();
    assert!(collected(engine.generate(asked(made(1, 1, 2, shape), &[1, 90, 90, 2]))).await.1.len() == 1);
    let found = error(&engine, asked(image(1, 1, 2), &[1, 90, 90, 2])).await;
    assert!(found.starts_with("image 0 of the prompt was prepared as PatchShape { side: 1,"), "{found}");
    let found = error(&engine, asked(made(1, 1, 2, shape), &[1, 90, 91, 2])).await;
    assert!(found.contains("token 2 is 91 rather than its placeholder 90"), "{found}");
    let rows = loaded("mistral3_plain");
    let shape = prompts(&self::golden("mistral3_plain"))[1].images[0].image.shape();
    assert!(collected(rows.generate(asked(made(1, 2, 1, shape), &[1, 90, 92, 90, 93, 2]))).await.1.len() == 1);
    for (ids, words) in [
        (&[1, 90, 90, 90, 93, 2][..], "token 2 is 90 rather than the end of a row"),
        (&[1, 90, 92, 92, 93, 2], "token 3 is 92 rather than its placeholder 90"),
        (&[1, 90, 92, 90], "is at tokens 1 to 5, and the prompt has 4"),
    ] {
        let found = error(&rows, asked(made(1, 2, 1, shape), ids)).await;
        assert!(found.contains(words), "{found}");
    }
    let squares = loaded("internvl_plain");
    let of_squares = prompts(&self::golden("internvl_plain"))[1].images[0].image.shape();
    let ids = |first: TokenId, count: usize, last: TokenId| [vec![1, first], vec![90; count], vec![last, 2]].concat();
    assert!(collected(squares.generate(asked(made(1, 6, 3, of_squares), &ids(92, 18, 93)))).await.1.len() == 1);
    let found = error(&squares, asked(made(1, 6, 3, of_squares), &ids(90, 18, 93))).await;
    assert!(found.contains("token 1 is 90 rather than a mark of the image"), "{found}");
    let found = error(&squares, asked(made(1, 6, 3, of_squares), &ids(92, 17, 93))).await;
    assert!(found.contains("token 19 is 93 rather than its placeholder 90"), "{found}");
    // Squares that are smaller than the tower's, whose positions would be others.
    let smaller = PatchShape { layout: Layout::Tiles { side: 4 }, ..of_squares };
    let found = error(&squares, asked(made(1, 2, 2, smaller), &ids(92, 4, 93))).await;
    assert!(found.starts_with("image 0 of the prompt was prepared as PatchShape { side: 4,"), "{found}");
    let golden = golden("gemma3_plain");
    let few = hybrid(&golden, &NativeSettings { max_num_batched_tokens: 8, ..settings_of(&golden) });
    let square = prompts(&golden).into_iter().find(|prompt| prompt.name == "image_first").unwrap();
    let images = square.images.into();
    let found = error(&few, SequenceRequest { images, ..request(&square.token_ids, params(1)) }).await;
    assert!(found.contains("9 tokens, which are computed at once, and a step has 8; start the server with"), "{found}");
    let found = error(&super::engine(&settings("llama")), asked(made(1, 1, 2, shape), &[1, 90, 90, 2])).await;
    assert_eq!(found, "the native engine reads no images here");
}
