//! Golden checkpoints with other tensors and settings.

use safetensors::Dtype;

use super::{
    made::{Stored, changed, in_fp8, stored, write},
    *,
};

/// The biases of the attention of the golden model, all numbers the same.
fn biases(number: u16) -> Vec<Stored> {
    let bias = |(module, len): (&str, usize)| {
        let bytes = number.to_le_bytes().repeat(len);
        (format!("model.layers.0.self_attn.{module}.bias"), (Dtype::F16, vec![len], bytes))
    };
    [("q_proj", 32), ("k_proj", 16), ("v_proj", 16), ("o_proj", 32)].map(bias).to_vec()
}

#[test]
fn biases_of_zeros_are_those_of_a_model_that_has_them() {
    for case in ["gptq", "awq"] {
        let biased = |number: u16| changed(case, &json!({"attention_bias": true}), &biases(number));
        let [(some, config), (none, _)] = [biased(0x3800), biased(0)];
        let [some, none] = [&some, &none].map(|directory| open_any(directory.path()).unwrap());
        let expected = computed(&config, backend(Precision::F32), &*none);
        let mut model = loaded(&config, backend(Precision::F32), &*some);
        assert!(logits_now(&mut model) != expected, "{case}: the biases count");
        let checked = model.check(&*none).unwrap();
        assert_eq!(checked.count(), model.tensors().len(), "{case}");
        model.replace(&checked, None).unwrap();
        assert!(logits_now(&mut model) == expected, "{case}: the old biases are left");
        // A model without biases has no place for those of zeros, and misses others.
        let plain = json!({"attention_bias": false});
        let (directory, config) = changed(case, &plain, &biases(0));
        let weights = open_directory(directory.path(), &config).unwrap();
        assert!(computed(&config, backend(Precision::F32), &*weights) == expected, "{case}: zeros change something");
        let (directory, config) = changed(case, &plain, &biases(0x3800));
        let weights = open_directory(directory.path(), &config).unwrap();
        let refusal = check_weights(&ModelShape::read(&config).unwrap(), &*weights).unwrap_err().to_string();
        assert!(refusal.starts_with("the model does not have `model.layers.0.self_attn.k_proj.bias`"), "{refusal}");
    }
}

#[test]
fn embeddings_in_fp8_compute_what_widened_ones_compute_to_the_bit() {
    const EMBEDDINGS: &str = "model.embed_tokens.weight";
    let golden = golden().join("fp8_blocks");
    for (tied, side) in [(true, Some(16)), (false, Some(16)), (true, None), (false, None)] {
        let (directory, mut config) = changed("fp8_blocks", &json!({"tie_word_embeddings": tied}), &[]);
        config["quantization_config"]["weight_block_size"] = json!(side.map(|side| [side; 2]));
        let (mut packed, mut wide) = (Vec::new(), Vec::new());
        for (name, shape) in widened(&golden).tensors() {
            let numbers = all_of(&widened(&golden), name);
            let head = (name == EMBEDDINGS && !tied)
                .then(|| ("lm_head.weight", numbers.iter().rev().copied().collect::<Vec<_>>()));
            for (name, numbers) in [(name, numbers)].into_iter().chain(head) {
                let numbers = if name == EMBEDDINGS {
                    let (stored, wide) = in_fp8(name, shape, &numbers, side);
                    packed.extend(stored);
                    wide
                } else {
                    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                    packed.push((name.to_owned(), (Dtype::F32, shape.to_vec(), bytes)));
                    numbers
                };
                let bytes = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
                wide.push((name.to_owned(), (Dtype::F32, shape.to_vec(), bytes)));
            }
        }
        write(directory.path(), &config, &packed);
        assert!(holds_codes(directory.path(), &config).unwrap());
        let packed = open_directory(directory.path(), &config).unwrap();
        let of_wide = tempfile::tempdir().unwrap();
        write(of_wide.path(), &config, &wide);
        let wide = SafetensorsFiles::open(of_wide.path()).unwrap();
        assert_both_compute(&format!("tied: {tied}, blocks of {side:?}"), &config, &*packed, &wide);
    }
}

/// Settings of compressed-tensors with these weights, a group each.
fn groups(weights: &[Value]) -> Value {
    let group =
        |(number, weights): (usize, &Value)| (format!("group_{number}"), json!({"targets": [], "weights": weights}));
    let groups: Map<String, Value> = weights.iter().enumerate().map(group).collect();
    json!({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups}})
}

#[test]
fn tensors_tell_which_of_several_groups_they_are_of() {
    let int4 = |symmetric: bool| json!({"num_bits": 4, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": 16});
    let fp8 = |strategy: &str, more: Value| {
        let mut weights = json!({"num_bits": 8, "type": "float", "symmetric": true, "strategy": strategy});
        weights.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        weights
    };
    for (case, groups) in [
        ("compressed_int4_group", groups(&[int4(true), int4(false)])),
        ("compressed_int4_group", groups(&[int4(false), int4(true)])),
        // No matrix is as large as these groups and blocks.
        ("compressed_fp8_channel", groups(&[fp8("channel", json!({})), fp8("group", json!({"group_size": 128}))])),
        (
            "compressed_fp8_tensor",
            groups(&[fp8("tensor", json!({})), fp8("block", json!({"block_structure": [128, 128]}))]),
        ),
    ] {
        let (directory, config) = changed(case, &groups, &[]);
        let (weights, expected) = (open_directory(directory.path(), &config).unwrap(), widened(&golden().join(case)));
        for (name, _) in expected.tensors() {
            assert_same(&all_of(&*weights, name), &all_of(&expected, name), &format!("{case}: {name}"));
        }
    }
    // These would give other numbers.
    let other = json!({"num_bits": 4, "type": "int", "symmetric": true, "strategy": "channel"});
    let (directory, config) = changed("compressed_int4_group", &groups(&[other]), &[]);
    let weights = open_directory(directory.path(), &config).unwrap();
    let refusal = weights.rows("model.layers.0.mlp.up_proj.weight").err().unwrap().to_string();
    assert!(refusal.contains("no group of `config_groups` fits"), "{refusal}");
}

/// What a checkpoint asks for besides quantised weights.
fn besides(directory: &Path, config: &Map<String, Value>) -> Vec<&'static str> {
    let mut files = SafetensorsFiles::open(directory).unwrap();
    let Quantization { mut unheeded, format, .. } = described(&mut files, directory, config).unwrap().unwrap();
    QuantizedFiles::new(files, format, &mut unheeded).unwrap();
    unheeded.sort_unstable();
    unheeded
}

#[test]
fn scales_of_keys_and_values_are_passed_over_and_said_so() {
    let scale = |name: &&str| {
        (format!("model.layers.0.self_attn.{name}"), (Dtype::F32, vec![1], 0.5_f32.to_le_bytes().to_vec()))
    };
    let of_kv = [
        "kv_scale",
        "k_scale",
        "k_zero_point",
        "v_global_scale",
        "k_proj.k_scale",
        "k_proj.output_scale",
        "v_proj.output_scale",
        "k_proj.output_global_scale",
    ];
    for case in ["fp8_tensor", "compressed_fp8_channel", "modelopt_fp8"] {
        let expected = widened(&golden().join(case));
        let more: Vec<Stored> = of_kv.iter().map(scale).collect();
        let (directory, config) = changed(case, &json!({}), &more);
        let weights = open_directory(directory.path(), &config).unwrap();
        assert_eq!(weights.tensors(), expected.tensors(), "{case}");
        assert!(besides(directory.path(), &config).contains(&"keys and values"), "{case}");
        let (directory, config) = changed(case, &json!({}), &[scale(&"o_proj.output_scale")]);
        assert!(!besides(directory.path(), &config).contains(&"keys and values"), "{case}");
    }
    let alone = json!({"quantization_config": {
        "quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    }});
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(&golden().join("fp8_blocks"));
    config["quantization_config"] = alone["quantization_config"].clone();
    let wide = stored(&golden().join("fp8_blocks").join("widened.safetensors"));
    write(directory.path(), &config, &[wide, vec![scale(&"k_scale"), scale(&"v_scale")]].concat());
    assert_eq!(besides(directory.path(), &config), ["keys and values"]);
    let weights = open_directory(directory.path(), &config).unwrap();
    check_weights(&ModelShape::read(&config).unwrap(), &*weights).unwrap();
}
