//! Files of older or other converters, which leave out what their models have.

use super::*;

/// The tiny file under the name of another architecture, with more settings.
fn named(architecture: &str, settings: &[(&str, Value)]) -> GgufFile {
    let mut gguf = Gguf::tiny();
    let renamed =
        gguf.metadata.iter().map(|(key, value)| (key.replace("llama.", &format!("{architecture}.")), value.clone()));
    gguf.metadata = renamed.collect();
    gguf.set("general.architecture", Value::String(architecture.to_owned()));
    for (key, value) in settings {
        gguf.set(&format!("{architecture}.{key}"), value.clone());
    }
    open(&gguf).unwrap()
}

fn refusal(architecture: &str, settings: &[(&str, Value)]) -> String {
    named(architecture, settings).named_tensors().unwrap_err().to_string()
}

#[test]
fn groups_of_experts_that_a_file_does_not_say_are_not_taken_for_none() {
    let of = |experts: u32, groups: &[(&'static str, u32)]| {
        let mut settings = vec![
            ("attention.kv_lora_rank", 16),
            ("attention.key_length", 24),
            ("attention.value_length", 16),
            ("attention.head_count_kv", 1),
            ("attention.key_length_mla", 16),
            ("attention.value_length_mla", 8),
            ("expert_feed_forward_length", 8),
            ("leading_dense_block_count", 1),
            ("expert_shared_count", 1),
            ("expert_gating_func", 2),
            ("expert_count", experts),
            ("expert_used_count", 2),
        ];
        settings.extend(groups);
        let settings: Vec<_> = settings.into_iter().map(|(key, value)| (key, Value::U32(value))).collect();
        refusal("deepseek2", &settings)
    };
    let missing = "GGUF metadata has no `deepseek2.expert_group_count`";
    for experts in [160, 256] {
        assert_eq!(of(experts, &[]), missing);
        assert_eq!(of(experts, &[("expert_group_count", 8)]), missing);
        // All that is wrong then are the tensors.
        let whole = of(experts, &[("expert_group_count", 8), ("expert_group_used_count", 4)]);
        assert!(whole.contains("tensor"), "{whole}");
    }
    assert!(of(64, &[]).contains("tensor"));
}

#[test]
fn windows_of_phi_3_that_a_file_does_not_say_are_not_taken_for_none() {
    let missing = "GGUF metadata has no `phi3.attention.sliding_window`";
    assert_eq!(refusal("phi3", &[]), missing);
    for window in [0, 2047] {
        let said = refusal("phi3", &[("attention.sliding_window", Value::U32(window))]);
        assert!(said.contains("tensor"), "{said}");
    }
}

#[test]
fn a_granite_that_rotates_nothing_is_refused() {
    let key = "rope.scaling.finetuned";
    let factors = ["attention.scale", "embedding_scale", "residual_scale", "logit_scale"];
    let with = |rotates: bool| {
        let mut settings: Vec<_> = factors.iter().map(|name| (*name, Value::F32(1.0))).collect();
        settings.push((key, Value::Bool(rotates)));
        named("granite", &settings).named_tensors()
    };
    assert!(with(false).unwrap_err().to_string().contains("`granite.rope.scaling.finetuned` is 0"));
    assert!(with(true).is_ok());
}

/// Tokens of Phi-4 swallow white space, and no key says so.
#[test]
fn the_tokenizer_of_phi_4_is_refused() {
    let error = named("phi3", &[]).tokenizer().unwrap_err();
    assert!(matches!(error, GgufError::TokenizerRules(_)) && error.to_string().contains("--tokenizer"), "{error}");
    assert!(named("qwen2", &[]).tokenizer().is_ok());
}
