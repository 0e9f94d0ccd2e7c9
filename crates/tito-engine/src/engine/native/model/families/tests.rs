//! What families read of config.json, and what they refuse.

use serde_json::json;

use super::*;
use crate::engine::native::{
    backend::Reach,
    model::shape::{Axis, ImagesShape, LayerShape},
};

fn read(architecture: &str, settings: &Value) -> Result<ModelShape, ConfigError> {
    let mut config = json!({
        "architectures": [architecture], "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 9, "intermediate_size": 16, "rope_theta": 10000.0,
    });
    config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    ModelShape::read(config.as_object().unwrap())
}

fn window(layer: &LayerShape) -> Option<usize> {
    match layer.attention.as_ref().unwrap().shape.reach {
        Reach::All => None,
        Reach::Window(window) => Some(window),
        Reach::Chunk(_) => panic!("a chunk is no window"),
    }
}

fn is_rotated(layer: &LayerShape) -> bool {
    layer.attention.as_ref().unwrap().rotation.is_some()
}

fn windows_of(architecture: &str, settings: &Value) -> Vec<Option<usize>> {
    read(architecture, settings).unwrap().layers.iter().map(window).collect()
}

#[test]
fn windows_are_used_where_transformers_uses_them() {
    assert_eq!(windows_of("LlamaForCausalLM", &json!({"sliding_window": 3})), [None; 4]);
    assert_eq!(windows_of("MistralForCausalLM", &json!({"sliding_window": 3})), [Some(3); 4]);
    assert_eq!(windows_of("MistralForCausalLM", &json!({"sliding_window": null})), [None; 4]);
    let unused = json!({"sliding_window": 3, "use_sliding_window": false, "max_window_layers": 0});
    assert_eq!(windows_of("Qwen2ForCausalLM", &unused), [None; 4]);
    let used = json!({"sliding_window": 3, "use_sliding_window": true, "max_window_layers": 3});
    assert_eq!(windows_of("Qwen2ForCausalLM", &used), [None, None, None, Some(3)]);
    let all = json!({"sliding_window": 3, "use_sliding_window": true, "max_window_layers": 0});
    assert_eq!(windows_of("Qwen3ForCausalLM", &all), [Some(3); 4]);
}

#[test]
fn a_window_that_is_left_out_is_that_of_transformers() {
    assert_eq!(windows_of("MistralForCausalLM", &json!({})), [Some(4096); 4]);
    let used = json!({"use_sliding_window": true, "max_window_layers": 2});
    assert_eq!(windows_of("Qwen2ForCausalLM", &used), [None, None, Some(4096), Some(4096)]);
    assert_eq!(windows_of("Qwen2ForCausalLM", &json!({})), [None; 4]);
    assert_eq!(windows_of("SmolLM3ForCausalLM", &json!({"use_sliding_window": true})), [None; 4]);
}

#[test]
fn kinds_of_layers_that_not_everyone_heeds_are_refused() {
    let mixed = json!(["full_attention", "sliding_attention", "full_attention", "full_attention"]);
    for (architecture, more) in [
        ("LlamaForCausalLM", json!({"sliding_window": 3, "layer_types": mixed})),
        ("MistralForCausalLM", json!({"sliding_window": 3, "layer_types": mixed})),
        ("SmolLM3ForCausalLM", json!({"sliding_window": 3, "layer_types": mixed})),
        ("Qwen3ForCausalLM", json!({"layer_types": ["linear_attention", "", "", ""]})),
        ("Qwen3ForCausalLM", json!({"layer_types": ["full_attention"]})),
    ] {
        let error = read(architecture, &more).unwrap_err().to_string();
        assert!(error.contains("`layer_types`"), "{error}");
    }
    let full = json!({"layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]});
    assert_eq!(windows_of("LlamaForCausalLM", &full), [None; 4]);
    let unused = json!({"layer_types": mixed, "sliding_window": 3, "use_sliding_window": false});
    assert_eq!(windows_of("Qwen3ForCausalLM", &unused), [None; 4]);
}

#[test]
fn smollm3_leaves_every_fourth_layer_unrotated_unless_listed() {
    let rotary = |settings| -> Vec<bool> {
        read("SmolLM3ForCausalLM", &settings).unwrap().layers.iter().map(is_rotated).collect()
    };
    assert_eq!(rotary(json!({})), [true, true, true, false]);
    assert_eq!(rotary(json!({"no_rope_layers": [0, 1, 1, 1]})), [false, true, true, true]);
}

#[test]
fn what_would_change_the_result_is_refused_by_name() {
    for (key, value) in [
        ("quantization_config", json!({"bits": 4})),
        ("hidden_act", json!("relu")),
        ("partial_rotary_factor", json!(0.5)),
        ("logit_scale", json!(0.5)),
        ("is_causal", json!(false)),
        ("head_dim", json!(3)),
        ("num_key_value_heads", json!(3)),
        ("hidden_size", json!("wide")),
        ("vocab_size", json!(0)),
    ] {
        let error = read("LlamaForCausalLM", &json!({key: value})).unwrap_err();
        assert!(matches!(&error, ConfigError::Setting { key: named, .. } if named == key), "{error}");
    }
    assert_eq!(
        read("BertForMaskedLM", &json!({})).unwrap_err(),
        ConfigError::Architecture("BertForMaskedLM".to_owned())
    );
}

#[test]
fn the_epsilon_of_bamba_that_is_left_out_is_that_of_transformers() {
    let sizes = json!({ "hidden_size": 16, "attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_state": 4 });
    let shape = read("BambaForCausalLM", &sizes).unwrap();
    assert_eq!(shape.norm.epsilon.to_bits(), 1e-5_f32.to_bits());
}

#[test]
fn bases_of_frequencies_come_from_where_transformers_looks_for_them() {
    let thetas = |architecture: &str, settings: Value| -> Vec<f32> {
        let mut all = json!({ "head_dim": 4, "rope_theta": null });
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let ropes = read(architecture, &all).unwrap().ropes;
        ropes.iter().map(|rope| (rope.frequencies[1].powi(-2)).round()).collect()
    };
    let kinds =
        json!({ "sliding_attention": { "rope_type": "default" }, "full_attention": { "rope_type": "default" } });
    let nested = |more: Value| {
        let mut settings = json!({ "rope_parameters": kinds });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        settings
    };
    assert_eq!(thetas("Gemma3ForCausalLM", nested(json!({}))), [10_000.0, 1e6]);
    let top = json!({ "rope_theta": 250_000.0, "rope_local_base_freq": 40_000.0 });
    assert_eq!(thetas("Gemma3ForCausalLM", nested(top)), [40_000.0, 250_000.0]);
    assert!(refusal("Olmo3ForCausalLM", &nested(json!({ "rope_theta": 250_000.0 }))).contains("`rope_theta`"));
    let grown = json!({ "rope_type": "default", "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 64 });
    assert_eq!(thetas("Ministral3ForCausalLM", json!({ "rope_parameters": grown })), [10_000.0; 2]);
}

#[test]
fn borders_of_yarn_that_are_not_rounded_are_refused_where_transformers_rounds_them() {
    let yarn = json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": false });
    let nested = json!({ "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 }, "full_attention": yarn });
    let mut beside = nested.clone();
    beside["truncate"] = json!(false);
    for parameters in [nested, beside] {
        for architecture in ["Gemma3ForCausalLM", "Gemma4ForCausalLM", "Olmo3ForCausalLM"] {
            let settings = json!({ "head_dim": 4, "global_head_dim": 4, "hidden_size_per_layer_input": 0,
                "rope_theta": null, "rope_parameters": parameters });
            let error = refusal(architecture, &settings);
            assert!(error.contains("`truncate`"), "{architecture}: {error}");
        }
    }
}

#[test]
fn the_gelu_of_gemma_that_is_left_out_is_that_of_transformers() {
    let gelu = |settings: Value| read("GemmaForCausalLM", &settings).unwrap().layers[0].mlp.clone();
    let named = gelu(json!({ "hidden_act": "gelu_pytorch_tanh" }));
    assert_eq!(gelu(json!({ "head_dim": null })), named);
    assert_ne!(gelu(json!({ "hidden_act": "silu" })), named);
}

#[test]
fn attention_in_chunks_is_plain_within_one() {
    let with = |chunks: Value| read("Qwen2ForCausalLM", &json!({ "dual_chunk_attention_config": chunks }));
    let shape = with(json!({ "chunk_size": 262_144, "local_size": 8192, "original_max_position_embeddings": 262_144 }))
        .unwrap();
    shape.check_length(253_952).unwrap();
    let error = shape.check_length(253_953).unwrap_err().to_string();
    assert!(
        error.contains("`dual_chunk_attention_config` has attention in chunks")
            && error.contains("--max-model-len 253952")
    );
    with(json!(null)).unwrap().check_length(usize::MAX).unwrap();
    for unclear in
        [json!({}), json!({ "chunk_size": 8, "local_size": 8 }), json!({ "chunk_size": "8", "local_size": 4 })]
    {
        let error = with(unclear).unwrap_err().to_string();
        assert!(error.contains("`dual_chunk_attention_config`"), "{error}");
    }
}

#[test]
fn sizes_that_no_model_has_are_refused_before_anything_is_made_of_them() {
    for (key, value) in [
        ("num_hidden_layers", 1_u64 << 60),
        ("num_hidden_layers", 10_000),
        ("num_attention_heads", 1 << 62),
        ("head_dim", 1 << 62),
        ("hidden_size", 1 << 62),
        ("vocab_size", 1 << 62),
        ("intermediate_size", u64::MAX),
    ] {
        let error = read("LlamaForCausalLM", &json!({key: value})).unwrap_err().to_string();
        assert_eq!(error, format!("config.json: `{key}` is {value}, more than any model has"));
    }
    let many = json!({
        "num_attention_heads": 65_536, "num_key_value_heads": 65_536, "num_hidden_layers": 4_000, "kv_lora_rank": 8,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
    });
    let error = read("DeepseekV3ForCausalLM", &many).unwrap_err().to_string();
    assert!(error.starts_with("config.json: `num_attention_heads` is 65536, more than"), "{error}");
    for (experts, layers) in [(1_u64 << 60, 4_u64), (1 << 16, 1 << 12)] {
        let sparse = json!({
            "num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "num_hidden_layers": layers,
        });
        let error = read("Qwen3MoeForCausalLM", &sparse).unwrap_err().to_string();
        assert!(error.starts_with(&format!("config.json: `num_experts` is {experts}, more than")), "{error}");
    }
}

#[test]
fn sequences_beyond_the_short_factors_of_longrope_are_refused() {
    let longrope = |kind: &str, factors: usize| {
        let ones = vec![1.5; factors];
        let scaling = json!({"type": kind, "short_factor": ones, "long_factor": ones});
        let config = json!({
            "max_position_embeddings": 4096, "original_max_position_embeddings": 64, "rope_scaling": scaling,
        });
        read("Phi3ForCausalLM", &config)
    };
    // What older checkpoints call it is the same.
    for kind in ["longrope", "su", "yarn"] {
        let shape = longrope(kind, 1).unwrap();
        assert!((f64::from(shape.ropes[0].factor) - 2_f64.sqrt()).abs() < 1e-6);
        shape.check_length(64).unwrap();
        assert_eq!(
            shape.check_length(65).unwrap_err().to_string(),
            "config.json: `rope_scaling` has factors for longer sequences, and keys change their meaning where these begin: \
             --max-model-len 64 is the longest that is computed, and 65 is asked for"
        );
    }
    assert_eq!(
        longrope("longrope", 2).unwrap_err().to_string(),
        "config.json: `short_factor` is not a list of 1, each over 0"
    );
    read("LlamaForCausalLM", &json!({})).unwrap().check_length(usize::MAX).unwrap();
}

/// Why an architecture is refused with these settings.
fn refusal(architecture: &str, settings: &Value) -> String {
    read(architecture, settings).unwrap_err().to_string()
}

#[test]
fn settings_of_later_families_that_would_change_the_result_are_refused_by_name() {
    let gemma4 = json!({"head_dim": 8, "global_head_dim": 8, "hidden_size_per_layer_input": 0, "rope_theta": null});
    let listed = json!({"head_dim": 8, "hidden_size_per_layer_input": 0, "rope_theta": null});
    let with = |base: &Value, key: &str, value: Value| {
        let mut settings = base.clone();
        settings[key] = value;
        settings
    };
    let plain = json!({});
    for (architecture, base, key, value) in [
        ("ArceeForCausalLM", &plain, "hidden_act", json!("silu")),
        ("ApertusForCausalLM", &plain, "hidden_act", json!("silu")),
        ("MinistralForCausalLM", &plain, "head_dim", Value::Null),
        ("CohereForCausalLM", &plain, "logit_scale", Value::Null),
        ("Cohere2ForCausalLM", &plain, "use_parallel_block", json!(false)),
        ("Cohere2ForCausalLM", &plain, "head_dim", json!(4)),
        ("Cohere2ForCausalLM", &plain, "sliding_window", Value::Null),
        ("Gemma4ForCausalLM", &gemma4, "use_bidirectional_attention", json!("all")),
        ("Gemma4ForCausalLM", &gemma4, "num_kv_shared_layers", json!(2)),
        ("Gemma4ForCausalLM", &gemma4, "rope_theta", json!(10_000.0)),
        ("Gemma4ForCausalLM", &listed, "per_layer_config", json!({"1": {"sliding_window": 3}})),
        ("LlamaForCausalLM", &plain, "use_bidirectional_attention", json!("vision")),
        ("LlamaForCausalLM", &plain, "logit_scale", json!(0.5)),
        ("GptOssForCausalLM", &plain, "per_layer_config", json!({"3": {"sliding_window": 4096}})),
    ] {
        let error = refusal(architecture, &with(base, key, value));
        assert!(error.contains(&format!("`{key}`")), "{architecture}: {error}");
    }
    let pictures = with(&gemma4, "use_bidirectional_attention", json!("vision"));
    assert_eq!(read("Gemma4ForCausalLM", &pictures).unwrap().layers.len(), 4);
}

#[test]
fn layers_of_llama_4_without_positions_are_those_that_are_not_listed() {
    let settings = |more: Value| {
        let mut settings = json!({
            "num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size_mlp": 16, "head_dim": 4,
            // As in checkpoints that are older than the release.
            "attn_temperature_tuning": 4, "no_rope_layers": [],
        });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        settings
    };
    let shape = read("Llama4ForCausalLM", &settings(json!({"no_rope_layer_interval": 2}))).unwrap();
    let attentions: Vec<_> = shape.layers.iter().map(|layer| layer.attention.as_ref().unwrap()).collect();
    assert_eq!(attentions.iter().map(|own| own.rotation.is_some()).collect::<Vec<_>>(), [true, false, true, false]);
    assert_eq!(attentions.iter().map(|own| own.growth.is_some()).collect::<Vec<_>>(), [false, true, false, true]);
    let chunk = Reach::Chunk(8192);
    assert_eq!(
        attentions.iter().map(|own| own.shape.reach).collect::<Vec<_>>(),
        [chunk, Reach::All, chunk, Reach::All]
    );
    let error = refusal("Llama4ForCausalLM", &settings(json!({"attention_chunk_size": null})));
    assert!(error.contains("`attention_chunk_size`"), "{error}");
}

#[test]
fn sequences_that_attention_would_have_to_choose_from_are_refused() {
    let settings = json!({
        "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
        "v_head_dim": 4, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_group": 1,
        "topk_group": 1, "routed_scaling_factor": 1.0, "index_topk": 16,
    });
    for architecture in ["DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"] {
        let shape = read(architecture, &settings).unwrap();
        shape.check_length(16).unwrap();
        let error = shape.check_length(17).unwrap_err().to_string();
        let refused = "`index_topk` is how many tokens of a longer sequence are attended to, and these are not chosen here: \
             --max-model-len 16 is the longest that is computed, and 17 is asked for";
        assert_eq!(error, format!("config.json: {refused}"));
    }
}

/// As Qwen2.5-VL 7B is published: the text beside the tower.
fn qwen2_5_vl() -> Value {
    json!({
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 151_643,
        "eos_token_id": 151_645, "vision_start_token_id": 151_652, "vision_end_token_id": 151_653,
        "vision_token_id": 151_654, "image_token_id": 151_655, "video_token_id": 151_656, "hidden_act": "silu",
        "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18_944, "max_position_embeddings": 128_000,
        "max_window_layers": 28, "model_type": "qwen2_5_vl", "num_attention_heads": 28, "num_hidden_layers": 28,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0, "sliding_window": 32_768,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false,
        "vision_config": {
            "depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
            "in_chans": 3, "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14,
            "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2,
            "temporal_patch_size": 2,
        },
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vocab_size": 152_064,
    })
}

/// As Qwen3-VL 4B is published.
fn qwen3_vl() -> Value {
    json!({
        "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151_655, "model_type": "qwen3_vl",
        "text_config": {
            "attention_bias": false, "attention_dropout": 0.0, "dtype": "bfloat16", "head_dim": 128, "hidden_act": "silu",
            "hidden_size": 2560, "intermediate_size": 9728, "max_position_embeddings": 262_144,
            "model_type": "qwen3_vl_text", "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-6, "rope_theta": 5_000_000, "tie_word_embeddings": true, "use_cache": true,
            "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
            "vocab_size": 151_936,
        },
        "tie_word_embeddings": true, "video_token_id": 151_656, "vision_end_token_id": 151_653,
        "vision_start_token_id": 151_652,
        "vision_config": {
            "deepstack_visual_indexes": [5, 11, 17], "depth": 24, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1024,
            "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 4096, "model_type": "qwen3_vl",
            "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 2560, "patch_size": 16,
            "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
    })
}

/// As Qwen3-VL 30B-A3B is published.
fn qwen3_vl_moe() -> Value {
    json!({
        "architectures": ["Qwen3VLMoeForConditionalGeneration"], "image_token_id": 151_655, "model_type": "qwen3_vl_moe",
        "text_config": {
            "attention_bias": false, "attention_dropout": 0.0, "decoder_sparse_step": 1, "dtype": "bfloat16",
            "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144,
            "max_position_embeddings": 262_144, "mlp_only_layers": [], "model_type": "qwen3_vl_moe_text",
            "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
            "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
            "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
            "rope_theta": 5_000_000, "use_cache": true, "vocab_size": 151_936,
        },
        "tie_word_embeddings": false, "video_token_id": 151_656, "vision_end_token_id": 151_653,
        "vision_start_token_id": 151_652,
        "vision_config": {
            "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152,
            "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 4304, "model_type": "qwen3_vl_moe",
            "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 2048, "patch_size": 16,
            "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
    })
}

/// As models of Qwen 3.5 are published, with the sizes of the release's defaults.
fn qwen3_5() -> Value {
    json!({
        "architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": 248_056, "model_type": "qwen3_5",
        "text_config": {
            "attention_bias": false, "attn_output_gate": true, "full_attention_interval": 4, "head_dim": 256,
            "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 12_288, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
            "linear_value_head_dim": 128, "max_position_embeddings": 262_144, "model_type": "qwen3_5_text",
            "num_attention_heads": 16, "num_hidden_layers": 32, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "mrope_interleaved": true, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
                "rope_theta": 10_000_000, "rope_type": "default",
            },
            "vocab_size": 248_320,
        },
        "tie_word_embeddings": false, "video_token_id": 248_057, "vision_end_token_id": 248_054,
        "vision_start_token_id": 248_053,
        "vision_config": {
            "deepstack_visual_indexes": [], "depth": 27, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152,
            "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 4304, "model_type": "qwen3_5",
            "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 4096, "patch_size": 16,
            "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
    })
}

#[test]
fn published_models_that_read_images_are_read() {
    let images = |config: &Value| ModelShape::read(config.as_object().unwrap()).unwrap().images.unwrap();
    let (older, newer) = (images(&qwen2_5_vl()), images(&qwen3_vl()));
    assert_eq!((older.placeholder, newer.placeholder), (151_655, 151_655));
    assert_eq!((older.tower.window, older.tower.layers.iter().filter(|whole| **whole).count()), (4, 4));
    let count = |images: &ImagesShape, axis| images.axes.iter().filter(|own| **own == axis).count();
    for (images, counts) in [(&older, [16, 24, 24]), (&newer, [24, 20, 20])] {
        assert_eq!([Axis::Time, Axis::Row, Axis::Column].map(|axis| count(images, axis)), counts);
    }
    assert_eq!(older.axes[15..17], [Axis::Time, Axis::Row]);
    assert_eq!(newer.axes[..4], [Axis::Time, Axis::Row, Axis::Column, Axis::Time]);
    assert_eq!(newer.axes[58..62], [Axis::Row, Axis::Column, Axis::Time, Axis::Time]);
    assert_eq!((newer.tower.deepstack, newer.tower.positions), (vec![5, 11, 17], Some(2304)));
    let (mixture, hybrid) = (images(&qwen3_vl_moe()), images(&qwen3_5()));
    assert_eq!((mixture.placeholder, hybrid.placeholder), (151_655, 248_056));
    assert_eq!((mixture.axes, mixture.tower.deepstack), (newer.axes, vec![8, 16, 24]));
    assert_eq!([Axis::Time, Axis::Row, Axis::Column].map(|axis| count(&hybrid, axis)), [11, 11, 10]);
    assert_eq!(hybrid.axes[29..], [Axis::Column, Axis::Time, Axis::Row]);
    assert!(hybrid.tower.deepstack.is_empty());
}

#[test]
fn qwen_3_5_without_a_tower_reads_text_alone() {
    let mut config = qwen3_5();
    let whole = ModelShape::read(config.as_object().unwrap()).unwrap().of_text_alone();
    config["vision_config"] = Value::Null;
    let alone = ModelShape::read(config.as_object().unwrap()).unwrap();
    assert!(alone.images.is_none() && alone.layers == whole.layers && alone.ropes == whole.ropes);
}

#[test]
fn what_is_not_computed_of_models_that_read_images_is_refused_by_name() {
    let (older, newer, mixture, hybrid) = (qwen2_5_vl(), qwen3_vl(), qwen3_vl_moe(), qwen3_5());
    for (config, place, value, named) in [
        (&older, "/rope_scaling/type", json!("yarn"), "`type` is \"yarn\""),
        (&older, "/rope_scaling/mrope_section", json!([16, 24, 25]), "`mrope_section` is about 65 pairs"),
        (&older, "/rope_scaling/mrope_section", json!([-1, 24, 25]), "`mrope_section` cannot be read"),
        (&older, "/rope_scaling/mrope_section", json!([usize::MAX, 24, 25]), "`mrope_section` is about more"),
        (&older, "/use_sliding_window", json!(true), "`use_sliding_window`"),
        (&older, "/image_token_id", json!(152_064), "`image_token_id` is out of vocabulary"),
        (&older, "/vision_config", Value::Null, "`vision_config` is missing"),
        (&older, "/vision_config/hidden_act", json!("gelu"), "`hidden_act`"),
        (&older, "/vision_config/in_chans", json!(1), "`in_chans` is 1"),
        (&older, "/vision_config/window_size", json!(27), "`window_size`"),
        (&older, "/vision_config/out_hidden_size", json!(2048), "`out_hidden_size` of `vision_config` is 2048"),
        (&older, "/vision_config/num_heads", json!(7), "`num_heads`"),
        (&older, "/vision_config/depth", json!(1_u64 << 60), "`depth`"),
        (&older, "/vision_config/patch_size", json!([14, 14]), "`patch_size` cannot be read"),
        (&newer, "/text_config/rope_scaling/mrope_interleaved", json!(false), "`mrope_interleaved`"),
        (&newer, "/text_config", Value::Null, "`text_config` is missing"),
        (&newer, "/vision_config/hidden_act", json!("silu"), "`hidden_act`"),
        (&newer, "/vision_config/deepstack_visual_indexes", json!([5, 24]), "`deepstack_visual_indexes`"),
        (&newer, "/vision_config/deepstack_visual_indexes", json!([5, 5]), "`deepstack_visual_indexes`"),
        (&newer, "/vision_config/num_position_embeddings", json!(0), "`num_position_embeddings` is 0"),
        (&newer, "/vision_config/num_position_embeddings", json!(1_u64 << 40), "`num_position_embeddings`"),
        (&mixture, "/text_config/norm_topk_prob", json!(false), "`norm_topk_prob` is false"),
        (&mixture, "/text_config/num_experts", json!(0), "`num_experts`"),
        (&mixture, "/vision_config/deepstack_visual_indexes", json!([27]), "`deepstack_visual_indexes`"),
        (&hybrid, "/text_config/rope_parameters/mrope_interleaved", json!(false), "`mrope_interleaved`"),
        (&hybrid, "/text_config/rope_parameters/mrope_section", json!([11, -1, 10]), "`mrope_section` cannot be read"),
        (&hybrid, "/vision_config/deepstack_visual_indexes", json!([5]), "`deepstack_visual_indexes` is [5]"),
        (&hybrid, "/vision_config/out_hidden_size", json!(8), "`out_hidden_size` of `vision_config` is 8"),
        (&hybrid, "/image_token_id", json!(248_320), "`image_token_id` is out of vocabulary"),
        (&newer, "/architectures", json!(["Qwen2VLForConditionalGeneration"]), "Qwen2VLForConditionalGeneration"),
    ] {
        let mut config = config.clone();
        *config.pointer_mut(place).unwrap() = value;
        let error = ModelShape::read(config.as_object().unwrap()).unwrap_err().to_string();
        assert!(error.contains(named), "{place}: {error}");
    }
}
