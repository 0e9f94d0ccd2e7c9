//! How writers of quantised checkpoints spell their settings, and where they put them.

use super::{made::changed, *};

fn read(settings: &Value) -> Result<Option<Quantization>, String> {
    Quantization::read(json!({ "quantization_config": settings }).as_object().unwrap())
}

#[test]
fn settings_are_read_as_their_writers_spell_them() {
    let weights = |more: Value| {
        let mut weights = json!({"num_bits": 8, "type": "float", "symmetric": true});
        weights.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}})
    };
    for settings in [
        // GPTQModel 7.7.
        json!({
            "bits": 4, "group_size": 16, "desc_act": false, "lm_head": false, "method": "gptq", "quant_method": "gptq",
            "format": "gptq", "checkpoint_format": "gptq", "pack_dtype": "int32", "meta": {"a": 1}, "sym": true,
        }),
        json!({
            "bits": 4, "group_size": 16, "desc_act": false, "lm_head": true, "method": "awq", "quant_method": "awq",
            "format": "gemm", "checkpoint_format": "gemm", "pack_dtype": "int32", "meta": {"a": 1}, "sym": true,
            "zero_point": true,
        }),
        // transformers 5.19.
        json!({
            "quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm", "format": "gemm",
            "act_group_aware": true, "sym": true, "batch_size": 1, "cache_block_outputs": true, "damp_percent": 0.1,
            "true_sequential": true, "backend": "auto",
        }),
        // AutoAWQ.
        json!({"quant_method": "awq", "w_bit": 4, "q_group_size": 128, "zero_point": true, "version": "GEMM"}),
        json!({"quant_method": "awq", "w_bit": 4, "bits": 4}),
        weights(json!({"strategy": "block", "block_structure": "32x16"})),
        weights(json!({"strategy": "CHANNEL"})),
        json!({"quant_method": "fp8", "kv_cache_scheme": "static"}),
        json!({"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8}}),
    ] {
        assert!(read(&settings).unwrap().is_some(), "{settings}");
    }
    for (settings, expected) in [
        (json!({"quant_method": "gptq", "bits": 4, "method": "qqq"}), "has `method` \"qqq\", which is not supported"),
        (json!({"quant_method": "awq", "method": "gptq"}), "has `method` \"gptq\", which is not supported; awq is"),
        (json!({"quant_method": "awq", "checkpoint_format": "gemv"}), "has `checkpoint_format` \"gemv\""),
        (json!({"quant_method": "awq", "pack_dtype": "int16"}), "has `pack_dtype` \"int16\""),
        (json!({"quant_method": "awq", "desc_act": true}), "has `desc_act` true, which is not understood"),
        (json!({"quant_method": "awq", "w_bit": 8}), "has `w_bit` 8, which is not supported; 4 is"),
        (
            json!({"quant_method": "awq", "w_bit": 4, "bits": 8}),
            "has `w_bit` 4, which is another value than that of `bits`",
        ),
        (json!({"quant_method": "awq", "q_group_size": 0}), "has `q_group_size` 0, which is not the size of a group"),
        (
            weights(json!({"strategy": "block", "block_structure": "32"})),
            "has `config_groups.group_0.weights.block_structure` \"32\", which is not the size of a block",
        ),
        (
            weights(json!({"strategy": "block", "block_structure": "32x0"})),
            "has `config_groups.group_0.weights.block_structure` \"32x0\", which has a side of no length",
        ),
        (
            json!({
                "quant_method": "compressed-tensors", "config_groups": {}, "sparsity_config": {"sparsity_structure": "2:4"},
            }),
            "lacks `sparsity_config.format`",
        ),
    ] {
        let found = read(&settings).err().unwrap_or_else(|| panic!("{settings} is read"));
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn the_settings_are_found_where_checkpoints_have_them() {
    let case = golden().join("fp8_blocks");
    let settings = &config(&case)["quantization_config"];
    let name = "model.layers.0.mlp.up_proj.weight";
    let expected = all_of(&widened(&case), name);
    for places in [
        json!({"quantization_config": null, "compression_config": settings}),
        json!({"quantization_config": null, "text_config": {"quantization_config": settings}}),
        json!({"quantization_config": settings, "compression_config": {}, "text_config": {"quantization_config": {}}}),
        json!({"quantization_config": null, "text_config": null, "compression_config": settings}),
    ] {
        let (directory, config) = changed("fp8_blocks", &places, &[]);
        let weights = open_directory(directory.path(), &config).unwrap();
        assert_same(&all_of(&*weights, name), &expected, &places.to_string());
        assert_eq!(method(directory.path(), &config).as_deref(), Some("fp8"));
    }
}

#[test]
fn a_file_of_whoever_quantised_counts_beside_weights_in_words_alone() {
    let name = "model.layers.0.mlp.up_proj.weight";
    for (case, file, settings, found) in [
        ("gptq", "quantize_config.json", json!({"bits": 4, "group_size": 16, "desc_act": false, "sym": true}), "gptq"),
        (
            "awq",
            "quant_config.json",
            json!({"w_bit": 4, "q_group_size": 16, "zero_point": true, "version": "GEMM"}),
            "awq",
        ),
        ("awq", "quantize_config.json", json!({"quant_method": "awq", "bits": 4, "group_size": 16}), "awq"),
    ] {
        let (directory, config) = changed(case, &json!({"quantization_config": null}), &[]);
        assert_eq!(method(directory.path(), &config), None);
        let shape = ModelShape::read(&config).unwrap();
        let plain = open_directory(directory.path(), &config).unwrap();
        let refusal = check_weights(&shape, &*plain).unwrap_err().to_string();
        let says = "looks like a part of quantised weights, which no `quantization_config` here describes";
        assert!(refusal.ends_with(says), "{refusal}");
        fs::write(directory.path().join(file), settings.to_string()).unwrap();
        let weights = open_directory(directory.path(), &config).unwrap();
        assert_same(&all_of(&*weights, name), &all_of(&widened(&golden().join(case)), name), case);
        assert_eq!(method(directory.path(), &config).as_deref(), Some(found));
        fs::write(directory.path().join(file), r#"{"quant_method": "hqq"}"#).unwrap();
        let refusal = open_directory(directory.path(), &config).err().unwrap().to_string();
        assert!(refusal.contains(file) && refusal.contains("a value of `quant_method` which is not read"), "{refusal}");
        // It may be here before the weights are.
        fs::remove_file(directory.path().join("model.safetensors")).unwrap();
        assert_eq!(method(directory.path(), &config).as_deref(), Some("hqq"));
        // A file that was left beside other weights is none of theirs.
        let (plain, config) = changed("fp8_blocks", &json!({"quantization_config": null}), &[]);
        fs::write(plain.path().join(file), r#"{"quant_method": "hqq"}"#).unwrap();
        open_directory(plain.path(), &config).unwrap();
        assert_eq!(method(plain.path(), &config), None);
    }
}
