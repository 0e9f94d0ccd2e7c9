//! Models of every family, in variants, and what transformers makes of them; `agreement` compares all.
//!
//! The models are those of `tests/golden/families` and `tests/golden/mistralrs`, whose weights are drawn from a seed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{drawn::drawn, *};
use crate::engine::native::{model::shape::Longest, recurrence::SlotId};
use crate::sampling::score_token;

/// How far a log-prob may be from that of transformers, both in f32.
pub(super) const FAR: f64 = 1e-4;

/// One model of every kind of arithmetic.
pub(in crate::engine::native) const KINDS: [&str; 34] = [
    "families/gemma4_everything",
    "families/gemma4_experts",
    "families/mistral4_grouped",
    "families/llama4_two_experts",
    "families/apertus_plain",
    "families/cohere_qk_norm",
    "families/cohere2_plain",
    "families/gemma3_gelu",
    "families/deepseek_v3_plain",
    "families/ernie4_5_moe_plain",
    "families/exaone4_plain",
    "families/falcon_h1_plain",
    "families/gemma3_published",
    "families/granitemoeshared_plain",
    "families/granitemoehybrid_experts",
    "families/hunyuan_v1_moe_plain",
    "families/kimi_linear_plain",
    "families/lfm2_plain",
    "families/minimax_m2_plain",
    "families/ministral3_plain",
    "families/nemotron_h_experts",
    "families/olmo2_plain",
    "families/olmo3_plain",
    "families/olmoe_plain",
    "families/qwen2_moe_plain",
    "families/qwen3_next_plain",
    "families/seed_oss_plain",
    "mistralrs/deepseek_v2_q_lora",
    "mistralrs/gemma2_published",
    "mistralrs/glm4",
    "mistralrs/glm4_moe_qk_norm",
    "mistralrs/gpt_oss",
    "mistralrs/mixtral_window",
    "mistralrs/phi3_partial_rotary",
];

/// A model, and what transformers makes of it.
pub(in crate::engine::native) struct Golden {
    /// The file, without its ending.
    pub(in crate::engine::native) name: String,
    content: Map<String, Value>,
}

impl Golden {
    /// The files of all of them, by name.
    fn paths() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
        let files = ["families", "mistralrs"].map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
        let mut paths: Vec<PathBuf> = files.into_iter().flatten().map(|file| file.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        paths.retain(|path| !path.ends_with("mistralrs/measured.json"));
        paths.sort();
        paths
    }

    /// All of them, by name.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::paths().into_iter().map(|path| Self::read(&path))
    }

    /// Those of an architecture, by name. Files that do not name it are not parsed.
    pub(super) fn of(architecture: &str) -> impl Iterator<Item = Self> {
        let names = move |path: &PathBuf| std::fs::read_to_string(path).unwrap().contains(architecture);
        let goldens = Self::paths().into_iter().filter(names).map(|path| Self::read(&path));
        goldens.filter(move |golden| golden.architecture() == architecture)
    }

    fn read(path: &Path) -> Self {
        let folder = path.parent().and_then(Path::file_name).unwrap().to_string_lossy();
        let name = format!("{folder}/{}", path.file_stem().unwrap().to_string_lossy());
        Self { name, content: object(path) }
    }

    /// The one of this name.
    pub(in crate::engine::native) fn named(name: &str) -> Self {
        Self::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(format!("{name}.json")))
    }

    /// The whole file.
    pub(super) fn content(&self) -> &Map<String, Value> {
        &self.content
    }

    pub(super) fn architecture(&self) -> String {
        self.config()["architectures"][0].as_str().unwrap().to_owned()
    }

    /// What is special about it: its name without what is said by the architecture.
    pub(super) fn variant(&self) -> String {
        let name = self.name.rsplit('/').next().unwrap();
        let family = self.config()["model_type"].as_str().unwrap().trim_end_matches("_text");
        let rest = name.strip_prefix(family).unwrap_or(name).trim_start_matches('_');
        if rest.is_empty() { "plain".to_owned() } else { rest.replace('_', " ") }
    }

    /// Its config.json.
    pub(in crate::engine::native) fn config(&self) -> &Map<String, Value> {
        self.content["config"].as_object().unwrap()
    }

    /// What its weights are drawn from, and the kind of model that config.json names.
    pub(super) fn seed_and_family(&self) -> (u64, &str) {
        (self.content["seed"].as_u64().unwrap(), self.config()["model_type"].as_str().unwrap())
    }

    /// Its weights, as they are drawn.
    pub(in crate::engine::native) fn weights(&self) -> GivenTensors {
        GivenTensors::new(self.tensors()).unwrap()
    }

    pub(super) fn tensors(&self) -> Vec<WeightTensor> {
        let tensor = |(name, shape): (&String, &Value)| {
            let shape: Vec<usize> = serde_json::from_value(shape.clone()).unwrap();
            let bytes: Vec<u8> = self.tensor(name).into_iter().flat_map(f32::to_le_bytes).collect();
            WeightTensor { name: name.clone(), dtype: WeightDtype::F32, shape, bytes: bytes.into() }
        };
        self.content["tensors"].as_object().unwrap().iter().map(tensor).collect()
    }

    /// The numbers of a tensor.
    pub(super) fn tensor(&self, name: &str) -> Vec<f32> {
        let (seed, family) = self.seed_and_family();
        let shape: Vec<usize> = serde_json::from_value(self.content["tensors"][name].clone()).unwrap();
        drawn(seed, name, &shape, family)
    }

    /// The numbers of a tensor if there is one of this name, which has to have this shape.
    pub(super) fn numbers_of(&self, name: &str, shape: &[usize]) -> Option<Vec<f32>> {
        let expected = self.content["tensors"].get(name)?;
        assert_eq!(*expected, json!(shape), "{}: {name}", self.name);
        Some(self.tensor(name))
    }

    /// All numbers, one tensor after the other in the order of their names.
    pub(super) fn numbers(&self) -> Vec<f32> {
        let mut names: Vec<&String> = self.content["tensors"].as_object().unwrap().keys().collect();
        names.sort();
        names.into_iter().flat_map(|name| self.tensor(name)).collect()
    }

    /// The model with room for its longest sequence, or why it is refused.
    pub(in crate::engine::native) fn model<B: Backend>(&self, backend: B) -> Result<Model<B>, ConfigError> {
        let shape = ModelShape::read(self.config())?;
        shape.check_length(self.longest())?;
        Ok(self.loaded(backend, shape))
    }

    pub(super) fn loaded<B: Backend>(&self, backend: B, shape: ModelShape) -> Model<B> {
        let mut model = Model::load(backend, shape, &self.weights(), &mut |_, _| ())
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        model.allocate_cache(self.room()).unwrap();
        model
    }

    /// The greatest difference of a log-prob of as many tokens as are computed, and the setting that says how many those
    /// are; `None` where it does not end there, or another setting is refused.
    pub(super) fn compare_beginning<B: Backend>(&self, backend: B) -> Option<(&'static str, f64)> {
        let shape = ModelShape::read(self.config()).ok()?;
        let Longest { tokens, key, .. } = shape.longest?;
        if key == "rope_scaling" {
            // The beginning of a longer sequence has other angles than the same sequence alone.
            return None;
        }
        Some((key, self.compare_first(&mut self.loaded(backend, shape), tokens)))
    }

    /// The greatest difference of a log-prob of the first tokens of its longest prompt.
    pub(super) fn compare_first<B: Backend>(&self, model: &mut Model<B>, tokens: usize) -> f64 {
        let all = self.token_ids();
        let rows = in_order(model, &all[..tokens], 0);
        let expected = floats(&self.content["next_log_probs"]);
        let scored = rows.iter().zip(&all[1..]).zip(expected);
        scored.map(|((row, next), expected)| off(row, *next, expected)).fold(0.0, f64::max)
    }

    /// Blocks for its longest sequence, and slots for a state at the end of each prompt besides the one in use.
    pub(super) fn room(&self) -> Room {
        let slots = 1 + self.content["prompts"].as_array().unwrap().len();
        Room { blocks: (self.token_ids().len() + 20).div_ceil(BLOCK_TOKENS), slots }
    }

    /// How many tokens its longest sequence has.
    pub(super) fn longest(&self) -> usize {
        let greedy =
            self.content["prompts"].as_array().unwrap().iter().map(|prompt| prompt["greedy"].as_array().unwrap());
        self.token_ids().len() + greedy.map(Vec::len).max().unwrap_or(0)
    }

    /// The ids of its longest prompt.
    pub(in crate::engine::native) fn token_ids(&self) -> Vec<TokenId> {
        ids(&self.content["token_ids"])
    }

    /// The greatest difference of a log-prob; all greedy tokens are the same.
    ///
    /// The longest prompt is computed once, and shorter ones go on from what is cached of it.
    pub(in crate::engine::native) fn compare<B: Backend>(&self, model: &mut Model<B>) -> f64 {
        let all = self.token_ids();
        let expected = floats(&self.content["next_log_probs"]);
        let prompts = self.content["prompts"].as_array().unwrap();
        let length = |prompt: &Value| usize::try_from(prompt["length"].as_u64().unwrap()).unwrap();
        let snapshots: Vec<(usize, SlotId)> = prompts.iter().map(length).zip(1..).collect();
        let whole = rows_of(model, Span { snapshots: snapshots.clone(), ..span(all.len(), 0) }, &all);
        let scored = whole.iter().zip(&all[1..]).zip(&expected);
        let mut worst = scored.map(|((row, next), expected)| off(row, *next, *expected)).fold(0.0, f64::max);
        for (prompt, (length, slot)) in prompts.iter().zip(snapshots).rev() {
            model.copy_slots(&[(slot, 0)]);
            let mut row = whole[length - 1].clone();
            let greedy = ids(&prompt["greedy"]).into_iter().zip(floats(&prompt["log_probs"]));
            for (position, (token, expected)) in (length..).zip(greedy) {
                let best = score_token(&row, 0, 1).unwrap().top_logprobs[0].id;
                assert_eq!(best, token, "{}: the token at {position} after {length}", self.name);
                worst = worst.max(off(&row, token, expected));
                row = in_order(model, &[token], position).remove(0);
            }
        }
        worst
    }
}

pub(super) fn off(row: &[f32], token: TokenId, expected: f64) -> f64 {
    (f64::from(score_token(row, token, 0).unwrap().logprob) - expected).abs()
}

/// Logits of all rows of one span, in blocks from the first on.
pub(in crate::engine::native) fn in_order<B: Backend>(
    model: &mut Model<B>,
    token_ids: &[TokenId],
    first: usize,
) -> Vec<Vec<f32>> {
    rows_of(model, span(token_ids.len(), first), token_ids)
}

/// A span of so many tokens from a position on, in blocks from the first on.
pub(super) fn span(tokens: usize, first_position: usize) -> Span {
    let blocks = (0..).take((first_position + tokens).div_ceil(BLOCK_TOKENS)).collect();
    Span { first_row: 0, tokens, first_position, blocks, slot: 0, adapter: None, snapshots: Vec::new() }
}

#[test]
fn the_text_of_a_model_of_several_parts_is_that_of_the_text_alone() {
    // As checkpoints have it, and as a trainer has it in memory.
    let inner = [("model.", "model.language_model."), ("lm_head.", "lm_head.")];
    let outer = [("model.", "language_model.model."), ("lm_head.", "language_model.lm_head.")];
    for (name, architecture, prefixes) in [
        ("families/qwen3_5_plain", "Qwen3_5ForConditionalGeneration", vec![inner]),
        ("families/qwen3_5_moe_plain", "Qwen3_5MoeForConditionalGeneration", vec![inner]),
        ("families/gemma3_untied", "Gemma3ForConditionalGeneration", vec![outer, inner]),
        ("families/gemma4_untied", "Gemma4ForConditionalGeneration", vec![inner]),
        ("mistralrs/mistral", "Mistral3ForConditionalGeneration", vec![outer, inner]),
        ("families/ministral3_plain", "Mistral3ForConditionalGeneration", vec![outer, inner]),
        ("families/mistral4_plain", "Mistral3ForConditionalGeneration", vec![outer, inner]),
        ("families/llama4_plain", "Llama4ForConditionalGeneration", vec![outer]),
    ] {
        for prefixes in prefixes {
            compare_nested(&Golden::named(name), architecture, prefixes);
        }
    }
}

/// The text of a model of several parts, whose names begin differently.
fn compare_nested(golden: &Golden, architecture: &str, prefixes: [(&str, &str); 2]) {
    let tied = golden.config()["tie_word_embeddings"].as_bool().unwrap();
    let vision = json!({
        "depth": 2, "hidden_size": 24, "intermediate_size": 28, "num_heads": 2, "num_attention_heads": 2,
        "out_hidden_size": golden.config()["hidden_size"],
    });
    let nested = json!({
        "architectures": [architecture], "vision_config": vision, "tie_word_embeddings": tied,
        "text_config": golden.config(), "image_token_id": 90, "mm_tokens_per_image": 196,
    });
    let shape = ModelShape::read(nested.as_object().unwrap()).unwrap().of_text_alone();
    let renamed = |tensor: &WeightTensor| {
        let begins = |(from, to): &(&str, &str)| tensor.name.strip_prefix(from).map(|rest| format!("{to}{rest}"));
        WeightTensor { name: prefixes.iter().find_map(begins).unwrap(), ..tensor.clone() }
    };
    let mut tensors: Vec<WeightTensor> = golden.tensors().iter().map(renamed).collect();
    for part in shape.names.other_parts {
        tensors.push(WeightTensor { name: format!("{part}patch_embed.proj.weight"), ..tensors[0].clone() });
    }
    let weights = GivenTensors::new(tensors).unwrap();
    let mut model = Model::load(cpu(KernelSet::PORTABLE, 2, Precision::F32), shape, &weights, &mut |_, _| ()).unwrap();
    model.allocate_cache(golden.room()).unwrap();
    assert!(golden.compare(&mut model) < FAR);
    let mut differing = nested.clone();
    differing["text_config"]["tie_word_embeddings"] = json!(!tied);
    let error = ModelShape::read(differing.as_object().unwrap()).unwrap_err().to_string();
    assert_eq!(error, format!("config.json: `tie_word_embeddings` is {tied}, and {} in `text_config`", !tied));
}

#[test]
fn numbers_that_are_not_finite_count_as_python_writes_them_or_are_refused_by_name() {
    let golden = Golden::named("families/nemotron_h_full");
    let written = Value::from(golden.config().clone()).to_string().replace(r#"{"__float__":"Infinity"}"#, "Infinity");
    assert!(written.contains("[0.0,Infinity]"));
    let shape = |text: &str| ModelShape::read(&crate::json::read_python(text).unwrap());
    assert_eq!(shape(&written).unwrap(), ModelShape::read(golden.config()).unwrap());
    for (key, value) in
        [("layer_norm_epsilon", "NaN"), ("time_step_limit", "[0.0,-Infinity]"), ("num_hidden_layers", "Infinity")]
    {
        let mut config = golden.config().clone();
        config.insert(key.to_owned(), "other".into());
        let error = shape(&Value::from(config).to_string().replace("\"other\"", value)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("config.json: `{key}` is ")), "{error}");
    }
}

/// The tensors with those of all experts of a layer as one: gates and then ups, and the ways back.
fn fused(golden: &Golden) -> Vec<WeightTensor> {
    let (mut apart, mut fused): (BTreeMap<String, WeightTensor>, Vec<WeightTensor>) = (BTreeMap::new(), Vec::new());
    for tensor in golden.tensors() {
        if tensor.name.contains(".mlp.experts.") {
            apart.insert(tensor.name.clone(), tensor);
        } else {
            fused.push(tensor);
        }
    }
    let layer = |name: &String| name[..name.find(".experts").unwrap() + ".experts".len()].to_owned();
    let layers: BTreeSet<String> = apart.keys().map(layer).collect();
    for layer in layers {
        for (name, parts) in [("gate_up_proj", &["gate_proj", "up_proj"][..]), ("down_proj", &["down_proj"])] {
            let named = |expert: usize, part: &str| apart.get(&format!("{layer}.{expert}.{part}.weight"));
            let experts = (0..1000).take_while(|expert| named(*expert, "up_proj").is_some()).count();
            let bytes: Vec<u8> = (0..experts)
                .flat_map(|expert| parts.iter().flat_map(move |part| named(expert, part).unwrap().bytes.to_vec()))
                .collect();
            let one = &named(0, parts[0]).unwrap().shape;
            let shape = vec![experts, one[0] * parts.len(), one[1]];
            let name = format!("{layer}.{name}");
            fused.push(WeightTensor { name, dtype: WeightDtype::F32, shape, bytes: bytes.into() });
        }
    }
    fused
}

#[test]
fn experts_that_are_one_tensor_are_those_that_have_tensors_of_their_own() {
    let load = |golden: &Golden, tensors: Vec<WeightTensor>| {
        let shape = ModelShape::read(golden.config()).unwrap();
        let backend = cpu(KernelSet::PORTABLE, 2, Precision::F32);
        Model::load(backend, shape, &GivenTensors::new(tensors).unwrap(), &mut |_, _| ())
    };
    for name in ["qwen3_5_moe_plain", "qwen3_next_plain"] {
        let golden = Golden::named(&format!("families/{name}"));
        let tensors = fused(&golden);
        assert!(tensors.len() < golden.tensors().len());
        let mut model = load(&golden, tensors.clone()).unwrap();
        model.allocate_cache(golden.room()).unwrap();
        assert!(golden.compare(&mut model) < FAR);
        let place = tensors.iter().position(|tensor| tensor.name.ends_with("experts.gate_up_proj")).unwrap();
        let mut lacking = tensors.clone();
        lacking.remove(place);
        let error = load(&golden, lacking).err().unwrap().to_string();
        assert!(error.contains("experts.0.gate_proj.weight"), "{error}");
        let mut turned = tensors.clone();
        turned[place].shape.swap(1, 2);
        let error = load(&golden, turned).err().unwrap().to_string();
        assert!(error.contains("experts.gate_up_proj has the shape"), "{error}");
        let twice = golden
            .tensors()
            .into_iter()
            .filter(|tensor| tensor.name.ends_with("layers.0.mlp.experts.0.up_proj.weight"));
        let error = load(&golden, tensors.into_iter().chain(twice).collect()).err().unwrap().to_string();
        assert!(error.contains("is given more than once"), "{error}");
    }
}

#[test]
fn a_kimi_linear_that_transformers_5_19_saved_is_the_same() {
    let golden = Golden::named("families/kimi_linear_plain");
    let mut tensors = golden.tensors();
    for tensor in &mut tensors {
        tensor.name = tensor.name.replace(".mlp.", ".block_sparse_moe.");
    }
    assert!(tensors.iter().any(|tensor| tensor.name.ends_with("layers.0.block_sparse_moe.up_proj.weight")));
    let shape = ModelShape::read(golden.config()).unwrap();
    let backend = cpu(KernelSet::PORTABLE, 2, Precision::F32);
    let mut model = Model::load(backend, shape, &GivenTensors::new(tensors).unwrap(), &mut |_, _| ()).unwrap();
    model.allocate_cache(golden.room()).unwrap();
    assert!(golden.compare(&mut model) < FAR);
}

#[test]
fn a_prompt_in_pieces_gives_the_same_bits_in_every_kind_of_arithmetic() {
    for (name, set) in KINDS.into_iter().zip(KernelSet::tested().into_iter().cycle()) {
        for precision in [Precision::F32, Precision::Bf16] {
            let golden = Golden::named(name);
            let token_ids = &golden.token_ids()[..72];
            let whole = in_order(&mut golden.model(cpu(set, 1, precision)).unwrap(), token_ids, 0);
            let mut model = golden.model(cpu(set, 3, precision)).unwrap();
            let mut first = 0;
            for length in [1, 15, 2, 33, 21] {
                let piece = in_order(&mut model, &token_ids[first..first + length], first);
                for (row, (piece, whole)) in piece.iter().zip(&whole[first..]).enumerate() {
                    let same = piece.iter().zip(whole).all(|(piece, whole)| piece.to_bits() == whole.to_bits());
                    assert!(same, "{name}, {set}, {precision:?}: position {}", first + row);
                }
                first += length;
            }
        }
    }
}
