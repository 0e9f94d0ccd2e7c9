//! Models that read images, and what transformers makes of prompts with images: those of `tests/golden/images`.

use serde_json::json;
use tito_images::PatchShape;

use super::{
    super::families::seeing,
    adapters::Adapted,
    families::{Golden, off, span},
    *,
};
use crate::engine::{PromptImage, images::tests::made};

/// How far a log-prob may be from that of transformers, both in f32.
pub(super) const FAR: f64 = 2e-5;
/// Those of Qwen.
pub(in crate::engine::native) const MODELS: [&str; 17] = [
    "qwen2_5_vl_full",
    "qwen2_5_vl_plain",
    "qwen2_5_vl_tied",
    "qwen2_5_vl_whole",
    "qwen3_5_default_sections",
    "qwen3_5_full",
    "qwen3_5_moe_full",
    "qwen3_5_moe_plain",
    "qwen3_5_plain",
    "qwen3_5_yarn",
    "qwen3_vl_full",
    "qwen3_vl_moe_dense_layer",
    "qwen3_vl_moe_full",
    "qwen3_vl_moe_plain",
    "qwen3_vl_no_deepstack",
    "qwen3_vl_plain",
    "qwen3_vl_tied",
];
/// Models that see images both ways.
pub(in crate::engine::native) const BOTH_WAYS: [&str; 4] =
    ["gemma3_full", "gemma3_plain", "gemma3_short_window", "gemma3_untied"];
/// Models whose rows of an image have ends.
pub(in crate::engine::native) const ROWS: [&str; 5] =
    ["mistral3_full", "mistral3_ministral3", "mistral3_mistral4", "mistral3_plain", "mistral3_wide_blocks"];
/// Models whose images are squares between marks of their own.
pub(in crate::engine::native) const SQUARES: [&str; 7] = [
    "internvl_dynamic",
    "internvl_full",
    "internvl_last_norm",
    "internvl_llama",
    "internvl_plain",
    "internvl_qwen3_moe",
    "internvl_root_norms",
];
/// Models whose tower joins patches by a convolution.
pub(in crate::engine::native) const DOWNSAMPLED: [&str; 8] = [
    "glm46v_moe",
    "glm46v_plain",
    "glm4v_full",
    "glm4v_moe_full",
    "glm4v_moe_plain",
    "glm4v_plain",
    "glm4v_tied",
    "glm4v_wide_blocks",
];
/// One of each family of Qwen.
pub(in crate::engine::native) const FAMILIES: [&str; 5] =
    ["qwen2_5_vl_plain", "qwen3_5_moe_plain", "qwen3_5_plain", "qwen3_vl_moe_plain", "qwen3_vl_plain"];
/// Some of the others, of each family with and without what is odd in it.
pub(in crate::engine::native) const OTHER_FAMILIES: [&str; 8] = [
    "gemma3_short_window",
    "gemma3_plain",
    "mistral3_plain",
    "mistral3_ministral3",
    "internvl_plain",
    "internvl_root_norms",
    "glm4v_plain",
    "glm4v_moe_plain",
];

/// One of each other tower.
const OF_OTHER_TOWERS: [&str; 6] =
    ["gemma3_plain", "mistral3_full", "internvl_last_norm", "internvl_root_norms", "glm4v_tied", "glm4v_moe_plain"];

/// All of them.
pub(in crate::engine::native) fn all() -> impl Iterator<Item = &'static str> {
    MODELS.into_iter().chain(BOTH_WAYS).chain(ROWS).chain(SQUARES).chain(DOWNSAMPLED)
}

/// A prompt of a model that reads images, and what transformers makes of it.
pub(in crate::engine::native) struct ImagePrompt {
    pub(in crate::engine::native) name: String,
    pub(in crate::engine::native) token_ids: Vec<TokenId>,
    pub(in crate::engine::native) images: Vec<PromptImage>,
    next_log_probs: Vec<f64>,
    greedy: Vec<(TokenId, f64)>,
}

/// The model of this name.
pub(in crate::engine::native) fn golden(name: &str) -> Golden {
    Golden::named(&format!("images/{name}"))
}

/// The prompts of a model.
pub(in crate::engine::native) fn prompts(golden: &Golden) -> Vec<ImagePrompt> {
    let shape = ModelShape::read(golden.config()).unwrap().images.unwrap().tower.patch;
    let of = |(name, prompt): (&String, &Value)| ImagePrompt {
        name: name.clone(),
        token_ids: ids(&prompt["token_ids"]),
        images: prompt["images"].as_array().unwrap().iter().map(|image| placed(image, shape)).collect(),
        next_log_probs: floats(&prompt["next_log_probs"]),
        greedy: ids(&prompt["greedy"]).into_iter().zip(floats(&prompt["log_probs"])).collect(),
    };
    golden.content()["prompts"].as_object().unwrap().iter().map(of).collect()
}

fn placed(image: &Value, shape: PatchShape) -> PromptImage {
    let number = |key: &str| usize::try_from(image[key].as_u64().unwrap()).unwrap();
    let seed = u8::try_from(number("seed")).unwrap();
    PromptImage { offset: number("offset"), image: made(seed, number("rows"), number("columns"), shape) }
}

fn load(golden: &Golden, set: KernelSet, threads: usize, precision: Precision) -> Model<CpuBackend> {
    on(cpu(set, threads, precision), golden)
}

/// The model with its tower, on a device.
pub(in crate::engine::native) fn on<B: Backend>(backend: B, golden: &Golden) -> Model<B> {
    let shape = ModelShape::read(golden.config()).unwrap();
    let mut model = Model::load(backend, shape, &golden.weights(), &mut |_, _| ()).unwrap();
    model.allocate_cache(Room { blocks: BLOCKS, slots: 1 }).unwrap();
    model
}

impl ImagePrompt {
    /// The greatest difference of a log-prob; all greedy tokens are the same.
    pub(in crate::engine::native) fn compare<B: Backend>(&self, model: &mut Model<B>) -> f64 {
        let images = SequenceImages::attending(&self.images, model.sees_images_both_ways());
        let mut rows = |ids: &[TokenId], first| rows_seeing(model, span(ids.len(), first), ids, images.as_ref());
        let whole = rows(&self.token_ids, 0);
        let scored = whole.iter().zip(&self.token_ids[1..]).zip(&self.next_log_probs);
        let mut worst = scored.map(|((row, next), expected)| off(row, *next, *expected)).fold(0.0, f64::max);
        let mut row = whole.last().unwrap().clone();
        for (position, (token, expected)) in (self.token_ids.len()..).zip(&self.greedy) {
            let best = score_token(&row, 0, 3).unwrap().top_logprobs;
            let best = best.iter().find(|best| ![90, 91].contains(&best.id)).unwrap();
            assert_eq!(best.id, *token, "the token at {position} of {}", self.name);
            worst = worst.max(off(&row, *token, *expected));
            row = rows(&[*token], position).remove(0);
        }
        worst
    }

    /// The bits of all logits, in pieces of about these lengths and the rest.
    pub(in crate::engine::native) fn bits<B: Backend>(&self, model: &mut Model<B>, lengths: &[usize]) -> Vec<Vec<u32>> {
        let images = SequenceImages::attending(&self.images, model.sees_images_both_ways());
        let (mut first, mut all) = (0, Vec::new());
        for length in lengths.iter().copied().chain([self.token_ids.len()]) {
            let end = self.token_ids.len().min(first + length);
            let cut = images.as_ref().and_then(|images| images.cut_at(end));
            let end = cut.map_or(end, |image| image.end);
            if first < end {
                let ids = &self.token_ids[first..end];
                all.extend(rows_seeing(model, span(ids.len(), first), ids, images.as_ref()));
            }
            first = end;
        }
        all.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect()
    }
}

#[test]
fn log_probs_of_prompts_with_images_are_those_of_transformers() {
    for (name, set) in all().zip(KernelSet::tested().into_iter().cycle()) {
        let golden = golden(name);
        let mut model = load(&golden, set, 2, Precision::F32);
        for prompt in prompts(&golden) {
            let worst = prompt.compare(&mut model);
            assert!(worst < FAR, "{name}, {set}: {} is off by {worst:.1e}", prompt.name);
        }
    }
}

#[test]
fn a_prompt_with_images_in_pieces_gives_the_same_bits() {
    let names = FAMILIES.into_iter().chain(OTHER_FAMILIES);
    for (name, set) in names.zip(KernelSet::tested().into_iter().cycle()) {
        for precision in [Precision::F32, Precision::Bf16] {
            let golden = golden(name);
            let mut whole = load(&golden, set, 1, precision);
            let mut pieces = load(&golden, set, 3, precision);
            for prompt in prompts(&golden) {
                let expected = prompt.bits(&mut whole, &[]);
                assert!(prompt.bits(&mut pieces, &[1, 4, 2, 3, 21]) == expected, "{name}, {set}: {}", prompt.name);
                // With the images known or not.
                pieces.embeddings.clear();
                assert!(prompt.bits(&mut pieces, &[5, 5]) == expected, "{name}, {set}: {}", prompt.name);
            }
        }
    }
}

#[test]
fn without_images_a_model_computes_the_bits_of_its_text_alone() {
    let others = ["qwen3_vl_tied", "gemma3_plain", "mistral3_plain", "internvl_plain", "glm4v_plain", "glm46v_moe"];
    for name in FAMILIES.into_iter().chain(others) {
        let golden = golden(name);
        let set = KernelSet::available()[0];
        let shape = ModelShape::read(golden.config()).unwrap().of_text_alone();
        let mut alone = Model::load(cpu(set, 1, Precision::Bf16), shape, &golden.weights(), &mut |_, _| ()).unwrap();
        alone.allocate_cache(Room { blocks: BLOCKS, slots: 1 }).unwrap();
        let mut model = load(&golden, set, 1, Precision::Bf16);
        // Placeholders too are ordinary tokens then.
        let ids: Vec<TokenId> = (0..90).map(|index| (index * 37 + 11) % 96).collect();
        assert!(ids.contains(&90));
        assert!(logits(&mut model, &ids, 0) == logits(&mut alone, &ids, 0), "{name}");
    }
}

#[test]
fn of_a_text_alone_nothing_that_reads_images_is_judged() {
    let mut seen = BTreeSet::new();
    for name in all() {
        let golden = golden(name);
        seen.insert(golden.architecture());
        let expected = ModelShape::read(golden.config()).unwrap().of_text_alone();
        assert!(ModelShape::read_text(golden.config()).unwrap() == expected, "{name}");
        let strange = [
            ("vision_config", json!({ "model_type": "strange", "hidden_size": "many", "depth": 0 })),
            ("vision_config", json!([7])),
            ("image_token_id", json!(1 << 30)),
            ("image_token_index", json!(1 << 30)),
            ("mm_tokens_per_image", json!("some")),
            ("projector_hidden_act", json!("strange")),
            ("vision_feature_layer", json!([1, 2])),
            ("downsample_ratio", json!(3)),
        ];
        let mut refused = 0;
        for (key, value) in strange {
            let mut config = golden.config().clone();
            config.insert(key.to_owned(), value);
            refused += usize::from(ModelShape::read(&config).is_err());
            assert!(ModelShape::read_text(&config).unwrap() == expected, "{name}: {key}");
        }
        assert!(refused >= 3, "{name}: {refused}");
        // What is wrong with the text still counts.
        let mut config = golden.config().clone();
        let text = match config.get_mut("text_config") {
            Some(Value::Object(text)) => text,
            _ => &mut config,
        };
        text.insert("hidden_size".to_owned(), json!(0));
        assert!(ModelShape::read_text(&config).unwrap_err().to_string().contains("`hidden_size` is 0"), "{name}");
    }
    assert!(seeing().all(|architecture| seen.contains(architecture)), "{seen:?}");
}

#[test]
fn numbers_of_towers_that_are_changed_are_those_of_whole_tensors() {
    for name in FAMILIES.into_iter().chain(OF_OTHER_TOWERS) {
        for precision in [Precision::F32, Precision::Bf16] {
            compare_changes(&mut load(&golden(name), KernelSet::PORTABLE, 2, precision));
        }
    }
}

#[test]
fn embeddings_of_images_are_forgotten_when_weights_change() {
    for name in FAMILIES.into_iter().chain(OF_OTHER_TOWERS) {
        let golden = golden(name);
        let mut model = load(&golden, KernelSet::PORTABLE, 1, Precision::F32);
        let prompt = prompts(&golden).into_iter().find(|prompt| prompt.name == "one_image").unwrap();
        let before = prompt.bits(&mut model, &[]);
        // A bias of what makes embeddings, alone.
        let mut held = held_tensors(&mut model);
        let ends = ["visual.merger", "post_layernorm", "linear_1"];
        let is_last = |name: &str| ends.iter().any(|end| name.contains(end));
        held.retain(|tensor| is_last(&tensor.name) && tensor.name.ends_with("bias"));
        held.truncate(1);
        let (changes, other) = changed(&held[0], 1);
        let given =
            GivenTensors::new(vec![WeightTensor { bytes: vec![0; other.bytes.len()].into(), ..other }]).unwrap();
        let mut undo = Undo::default();
        let checked = model.check(&given).unwrap();
        model.replace(&checked, Some(&mut undo)).unwrap();
        let replaced = prompt.bits(&mut model, &[]);
        assert!(replaced != before, "{name}");
        model.undo(undo).unwrap();
        assert!(prompt.bits(&mut model, &[]) == before, "{name}");
        model.change(vec![changes], None).unwrap();
        assert!(prompt.bits(&mut model, &[]) != before, "{name}");
    }
}

#[test]
fn names_that_transformers_has_in_memory_are_those_of_checkpoints() {
    for (name, prefixes) in [
        ("qwen2_5_vl_plain", [("model.", "model.language_model."), ("visual.", "model.visual.")]),
        ("qwen3_vl_plain", [("model.visual.", "visual."), ("model.visual.", "visual.")]),
        ("qwen3_vl_moe_plain", [("model.visual.", "visual."), ("model.visual.", "visual.")]),
        ("qwen3_5_plain", [("model.visual.", "visual."), ("model.visual.", "visual.")]),
        ("qwen3_5_moe_plain", [("model.visual.", "visual."), ("model.visual.", "visual.")]),
        ("gemma3_plain", [("language_model.model.", "model.language_model."), ("multi_modal", "model.multi_modal")]),
        ("gemma3_plain", [("vision_tower.", "model.vision_tower."), ("multi_modal", "model.multi_modal")]),
        ("gemma3_plain", [("vision_tower.vision_model.", "model.vision_tower."), ("", "")]),
        ("gemma3_plain", [("vision_tower.vision_model.", "vision_tower."), ("", "")]),
        ("mistral3_plain", [("language_model.model.", "model.language_model."), ("multi_modal", "model.multi_modal")]),
        ("mistral3_plain", [("vision_tower.", "model.vision_tower."), ("multi_modal", "model.multi_modal")]),
        ("internvl_plain", [("language_model.model.", "model.language_model."), ("multi_modal", "model.multi_modal")]),
        ("internvl_root_norms", [("vision_tower.", "model.vision_tower."), ("multi_modal", "model.multi_modal")]),
        ("glm4v_plain", [("model.visual.", "visual."), ("model.visual.", "visual.")]),
        ("glm4v_moe_plain", [("model.visual.", "visual."), ("model.visual.", "visual.")]),
    ] {
        let golden = golden(name);
        let mut model = load(&golden, KernelSet::PORTABLE, 1, Precision::F32);
        let mut renamed = 0;
        for tensor in held_tensors(&mut model) {
            let begins = |(from, to): &(&str, &str)| tensor.name.strip_prefix(from).map(|rest| format!("{to}{rest}"));
            let Some(name) = prefixes.iter().find_map(begins) else { continue };
            renamed += 1;
            let given = GivenTensors::new(vec![WeightTensor { name, ..tensor }]).unwrap();
            assert_eq!(model.check(&given).unwrap().count(), 1);
        }
        assert!(renamed > 20);
    }
    // A tensor of no tower that there is.
    let model = load(&golden("qwen3_vl_plain"), KernelSet::PORTABLE, 1, Precision::F32);
    for name in ["model.visual.blocks.4.norm1.weight", "model.visual.merger.norm2.weight"] {
        let bytes = vec![0; 96].into();
        let tensor = WeightTensor { name: name.to_owned(), dtype: WeightDtype::F32, shape: vec![24], bytes };
        let given = GivenTensors::new(vec![tensor]).unwrap();
        assert!(matches!(model.check(&given), Err(WeightsError::Unknown(_))), "{name}");
    }
}

#[test]
fn bf16_stays_close_to_f32_with_images_too() {
    // A rounded score may choose another expert of a mixture.
    for name in [
        "gemma3_plain",
        "glm4v_plain",
        "internvl_full",
        "mistral3_full",
        "qwen2_5_vl_plain",
        "qwen3_5_plain",
        "qwen3_vl_plain",
    ] {
        let golden = golden(name);
        let [mut exact, mut rounded] =
            [Precision::F32, Precision::Bf16].map(|precision| load(&golden, KernelSet::available()[0], 2, precision));
        for prompt in prompts(&golden) {
            let [exact, rounded] = [&mut exact, &mut rounded].map(|model| prompt.bits(model, &[]));
            let both = exact.iter().flatten().zip(rounded.iter().flatten());
            let worst = both.map(|(a, b)| (f32::from_bits(*a) - f32::from_bits(*b)).abs()).fold(0.0, f32::max);
            assert!(worst > 0.0 && worst < 0.5, "{name}, {}: {worst}", prompt.name);
        }
    }
}

#[test]
fn adapters_of_a_tower_are_refused_by_name() {
    let any = Adapted::named("families/cohere_plain");
    let check = |model: &Model<CpuBackend>, name: &str, shape: [usize; 2]| {
        let modules = [(name.to_owned(), json!(shape))].into_iter().collect();
        model.adapter_sites().check(&any.of_modules(&modules, None))
    };
    for (name, text, tower) in [
        ("qwen2_5_vl_plain", "model.language_model.layers.0.self_attn.o_proj", "model.visual.blocks.0.attn.qkv"),
        ("qwen3_vl_plain", "model.language_model.layers.0.self_attn.o_proj", "model.visual.merger.linear_fc1"),
        ("qwen3_5_plain", "model.language_model.layers.1.self_attn.o_proj", "model.visual.merger.linear_fc1"),
        (
            "gemma3_plain",
            "model.language_model.layers.1.self_attn.o_proj",
            "model.vision_tower.vision_model.encoder.layers.0.self_attn.q_proj",
        ),
        (
            "mistral3_plain",
            "model.language_model.layers.1.self_attn.o_proj",
            "model.vision_tower.transformer.layers.0.attention.q_proj",
        ),
        (
            "internvl_plain",
            "model.language_model.layers.1.self_attn.o_proj",
            "model.vision_tower.encoder.layer.0.attention.q_proj",
        ),
        ("glm4v_plain", "model.language_model.layers.1.self_attn.o_proj", "model.visual.merger.gate_proj"),
    ] {
        let model = load(&golden(name), KernelSet::PORTABLE, 1, Precision::F32);
        let width = model.tensors.named(&format!("{text}.weight")).unwrap().shape.clone();
        assert_eq!(check(&model, text, [width[0], width[1]]).unwrap().len(), 1);
        let error = check(&model, tower, [72, 24]).unwrap_err();
        assert!(
            error.ends_with("adapters are served of what reads text, not of what reads images or sounds"),
            "{error}"
        );
    }
}

/// A tensor of all experts, inputs by outputs, as a tensor for each: this many after each other, outputs by inputs.
fn apart(tensor: &WeightTensor, names: &[&str]) -> Vec<WeightTensor> {
    let [experts, inputs, outputs] = tensor.shape[..] else { panic!("{} is no table of experts", tensor.name) };
    let (prefix, _) = tensor.name.rsplit_once('.').unwrap();
    let rows = outputs / names.len();
    let one = |expert: usize, number: usize| {
        let at = |row: usize, column: usize| {
            let place = size_of::<f32>() * ((expert * inputs + column) * outputs + number * rows + row);
            &tensor.bytes[place..place + size_of::<f32>()]
        };
        let bytes: Vec<u8> =
            (0..rows).flat_map(|row| (0..inputs).flat_map(move |column| at(row, column).to_vec())).collect();
        let name = format!("{prefix}.{expert}.{}.weight", names[number]);
        WeightTensor { name, dtype: WeightDtype::F32, shape: vec![rows, inputs], bytes: bytes.into() }
    };
    (0..experts)
        .flat_map(|expert| (0..names.len()).map(move |number| (expert, number)))
        .map(|(e, n)| one(e, n))
        .collect()
}

#[test]
fn published_experts_are_inputs_by_outputs_and_replace_those_that_have_tensors_of_their_own() {
    let golden = golden("qwen3_vl_moe_plain");
    let mut model = load(&golden, KernelSet::PORTABLE, 1, Precision::F32);
    let before = held_tensors(&mut model);
    let published: Vec<WeightTensor> = golden.tensors();
    let mut replaced = 0;
    for (name, parts) in [("gate_up_proj", &["gate_proj", "up_proj"][..]), ("down_proj", &["down_proj"])] {
        for tensor in published.iter().filter(|tensor| tensor.name.ends_with(&format!("experts.{name}"))) {
            for one in apart(tensor, parts) {
                assert!(before.contains(&one), "{}", one.name);
            }
            // An update by the published name, and back.
            let negated = tensor.bytes.chunks_exact(4).flat_map(|number| {
                let number: [u8; 4] = number.try_into().unwrap();
                (-f32::from_le_bytes(number)).to_le_bytes()
            });
            let other = WeightTensor { bytes: negated.collect::<Vec<u8>>().into(), ..tensor.clone() };
            let mut put = |tensor: &WeightTensor| {
                let given = GivenTensors::new(vec![tensor.clone()]).unwrap();
                let checked = model.check(&given).unwrap();
                model.replace(&checked, None).unwrap();
                held_tensors(&mut model)
            };
            let after = put(&other);
            let changed = after.iter().zip(&before).filter(|(after, before)| after != before).count();
            assert_eq!(changed, apart(tensor, parts).len());
            assert!(apart(&other, parts).iter().all(|one| after.contains(one)));
            assert!(put(tensor) == before);
            // As transformers has it in memory, under the same name.
            let mut turned = tensor.clone();
            turned.shape.swap(1, 2);
            let error = model.check(&GivenTensors::new(vec![turned]).unwrap()).err().unwrap().to_string();
            assert!(error.contains(&format!("experts.{name} has the shape")), "{error}");
            replaced += 1;
        }
    }
    assert_eq!(replaced, 6);
}
