//! What steps ask of a GPU, counted on the emulated one and compared with `tests/golden/gpu-work`.
//!
//! No GPU and no clock is needed to see that a change launches another kernel, waits once more, or reads keys twice. Models
//! have few layers of small widths. Two depths tell what a step takes once from what each layer takes, which is nearly all
//! of it in a real model.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use expect_test::expect_file;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    DeviceBackend,
    kernels::{Counts, counted},
    tests::{processor, test_device},
};
use crate::{
    engine::native::{
        backend::{BLOCK_TOKENS, Batch, Span},
        jobs::{Job, Jobs},
        model::{Model, Room, tests::made_up::made_up},
    },
    sampling::{SamplingParams, SequenceSampler},
};

/// Layers of the two models of which each layer's work is the difference.
const DEPTHS: [usize; 2] = [2, 3];

/// A step: its sequences' first position, how many tokens of each are computed, and how many sequences there are.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) position: usize,
    pub(super) tokens: usize,
    pub(super) sequences: usize,
}

const STEPS: [Step; 5] = [
    Step { name: "1 sequence after 1000 tokens", position: 1000, tokens: 1, sequences: 1 },
    Step { name: "64 sequences after 1000 tokens", position: 1000, tokens: 1, sequences: 64 },
    Step { name: "256 sequences after 200 tokens", position: 200, tokens: 1, sequences: 256 },
    Step { name: "4 sequences after 8000 tokens", position: 8000, tokens: 1, sequences: 4 },
    Step { name: "a prompt of 512 tokens", position: 0, tokens: 512, sequences: 1 },
];

/// A step whose rows are edited before tokens are drawn from them, twice as many as are edited at once.
const EDITED: [Step; 1] =
    [Step { name: "64 sequences after 1000 tokens, with masks and biases", position: 1000, tokens: 1, sequences: 64 }];

/// Draws from all that the model gives.
fn plain() -> SamplingParams {
    SamplingParams::default()
}

/// Draws from some tokens only, and rather one of them.
fn edited() -> SamplingParams {
    let allowed_token_ids = Some((0..1024).filter(|id| id % 3 > 0).collect());
    SamplingParams { allowed_token_ids, logit_bias: vec![(5, 1.5)], ..SamplingParams::default() }
}

/// Windows and all tokens in turn.
fn kind_of_layer(layer: usize) -> &'static str {
    if layer.is_multiple_of(2) { "sliding_attention" } else { "full_attention" }
}

pub(super) fn config(kind: &str, layers: usize) -> Value {
    let mut config = json!({
        "hidden_size": 256, "intermediate_size": 448, "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 128, "vocab_size": 1024, "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu",
    });
    let own = match kind {
        "llama" => json!({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}),
        "qwen2" => json!({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}),
        "qwen3" => json!({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}),
        "qwen3_moe" => json!({
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 16,
            "num_experts_per_tok": 4, "moe_intermediate_size": 64, "norm_topk_prob": true, "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }),
        // Not counted, but recorded: norms after parts, windows and two rotations; and factors of what parts add.
        "gemma3" => json!({
            "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "rope_local_base_freq": 10000.0,
            "sliding_window": 16, "layer_types": (0..layers).map(kind_of_layer).collect::<Vec<_>>(),
            "query_pre_attn_scalar": 128, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
        }),
        "granite" => json!({
            "architectures": ["GraniteForCausalLM"], "model_type": "granite", "embedding_multiplier": 2.0,
            "residual_multiplier": 0.22, "attention_multiplier": 0.1, "logits_scaling": 3.0,
        }),
        other => panic!("no config of {other}"),
    };
    config.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    config
}

impl Step {
    /// How many blocks of the cache each sequence has.
    fn blocks(&self) -> usize {
        (self.position + self.tokens).div_ceil(BLOCK_TOKENS)
    }

    pub(super) fn batch(&self) -> Batch {
        let Self { position, tokens, sequences, .. } = *self;
        let span = |sequence: usize| {
            let first = u32::try_from(sequence * self.blocks()).unwrap();
            let blocks = (first..).take(self.blocks()).collect();
            let (slot, adapter, snapshots) = (0, None, Vec::new());
            Span { first_row: sequence * tokens, tokens, first_position: position, blocks, slot, adapter, snapshots }
        };
        Batch {
            token_ids: (0..tokens * sequences).map(|row| u32::try_from(row * 37 % 1024).unwrap()).collect(),
            spans: (0..sequences).map(span).collect(),
            logit_rows: (1..=sequences).map(|sequence| sequence * tokens - 1).collect(),
            images: Vec::new(),
        }
    }

    /// Computes the step, and draws a token of each sequence.
    fn run(&self, model: &mut Model<DeviceBackend>, params: fn() -> SamplingParams) {
        let sampler = |seed: usize| {
            let params = SamplingParams { max_tokens: 9, seed: Some(seed as u64), ..params() };
            Mutex::new(SequenceSampler::new(params.valid(), Arc::new([])))
        };
        let samplers: Vec<_> = (0..self.sequences).map(sampler).collect();
        let jobs = Jobs::new(samplers.iter().map(Job::Sample));
        assert!(model.forward(&self.batch(), &jobs).into_iter().all(|finite| finite));
        assert!(jobs.made().into_iter().all(|made| made.is_ok()));
    }

    /// What it asks of the GPU where it is not the first of its shape.
    fn counts(&self, kind: &str, layers: usize, params: fn() -> SamplingParams) -> Option<Counts> {
        let backend = DeviceBackend::new(test_device(), candle_core::DType::BF16, processor(1));
        let room = Room { blocks: self.sequences * self.blocks(), slots: 0 };
        let mut model = made_up(&config(kind, layers), backend, room);
        self.run(&mut model, params);
        counted(|| self.run(&mut model, params))
    }
}

/// What a step takes once, and what it takes for each layer.
fn divided([few, many]: &[Counts; 2]) -> [Counts; 2] {
    let [mut once, mut each] = [Counts::new(), Counts::new()];
    for name in few.keys().chain(many.keys()).collect::<BTreeSet<_>>() {
        for what in many.get(name).or(few.get(name)).unwrap().keys() {
            let number = |counts: &Counts| counts.get(name).and_then(|counts| counts.get(what)).copied().unwrap_or(0);
            let of_layer = (number(many) - number(few)) / (DEPTHS[1] - DEPTHS[0]) as u64;
            let others = number(few) - of_layer * DEPTHS[0] as u64;
            for (part, number) in [(&mut once, others), (&mut each, of_layer)] {
                part.entry(name.clone()).or_default().insert(what.clone(), number);
            }
        }
    }
    for part in [&mut once, &mut each] {
        part.retain(|_, counts| counts.values().any(|count| *count > 0));
    }
    [once, each]
}

/// A table of some counts.
fn table(counts: &Counts) -> String {
    const COLUMNS: [&str; 5] = ["blocks", "loaded", "stored", "lines", "multiplications"];
    let mut text = String::new();
    let total = |what: &str| counts.values().filter_map(|counts| counts.get(what)).sum::<u64>();
    writeln!(text, "  {} launches, {} other calls", total("launches"), total("calls")).unwrap();
    for (name, counts) in counts {
        if let Some(calls) = counts.get("calls") {
            writeln!(text, "  {calls:>4} {name}, {} bytes", counts["bytes"]).unwrap();
            continue;
        }
        write!(text, "  {:>4} {name}:", counts["launches"]).unwrap();
        for what in COLUMNS.into_iter().filter(|what| counts[*what] > 0) {
            write!(text, " {what} {}", counts[what]).unwrap();
        }
        text.push('\n');
    }
    text
}

fn compare(kind: &str) {
    compare_steps(kind, kind, &STEPS, plain);
}

/// Compares what steps take with the file of this name.
fn compare_steps(file: &str, kind: &str, steps: &[Step], params: fn() -> SamplingParams) {
    let mut text = String::new();
    for step in steps {
        let [Some(few), Some(many)] = DEPTHS.map(|layers| step.counts(kind, layers, params)) else {
            eprintln!("SKIPPED: what a step takes is counted on the emulated GPU only; tests/emulated-gpu/run has it");
            return;
        };
        let [once, each] = divided(&[few, many]);
        writeln!(text, "{}\n once\n{} each layer\n{}", step.name, table(&once), table(&each)).unwrap();
    }
    let path = format!("{}/../../tests/golden/gpu-work/{file}.txt", env!("CARGO_MANIFEST_DIR"));
    expect_file![path].assert_eq(&text);
}

#[test]
fn steps_of_llama_take_what_is_written_down() {
    compare("llama");
}

#[test]
fn steps_whose_rows_are_edited_take_what_is_written_down() {
    compare_steps("llama-edited", "llama", &EDITED, edited);
}

#[test]
fn steps_with_biases_take_what_is_written_down() {
    compare("qwen2");
}

#[test]
fn steps_with_head_norms_take_what_is_written_down() {
    compare("qwen3");
}

#[test]
fn steps_of_a_mixture_take_what_is_written_down() {
    compare("qwen3_moe");
}
