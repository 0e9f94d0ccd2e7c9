use std::path::{Path, PathBuf};

use candle_core::quantized::{GgmlDType, gguf_file::Value};
use half::bf16;

use super::*;
use crate::{
    engine::native::{
        backend::Reach,
        model::ModelShape,
        weights::{SafetensorsFiles, SomeRows},
    },
    gguf::{
        GgufError, convert,
        fixture::{Gguf, HuggingFace},
    },
};

const MODELS: [&str; 12] = [
    "llama",
    "llama_linear_rope",
    "llama_sharded",
    "llama_tied_bias",
    "mistral",
    "qwen2",
    "qwen2_yarn",
    "qwen3",
    "qwen3_moe",
    "qwen3_moe_plain",
    "qwen3_yarn",
    "smollm3",
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/native").join(name)
}

/// Written to a place that goes away with the first of the two.
fn opened(gguf: &Gguf) -> (tempfile::TempDir, GgufFile) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    gguf.write(&path);
    let file = GgufFile::open(path).unwrap();
    (directory, file)
}

fn all_rows(weights: &dyn Weights, name: &str) -> Vec<f32> {
    let rows = weights.rows(name).unwrap();
    let mut values = Vec::new();
    rows.read(0..rows.rows(), &mut values).unwrap();
    values
}

fn shape_of(file: &GgufFile) -> ModelShape {
    ModelShape::read(&file.model_config().unwrap()).unwrap()
}

#[test]
fn a_gguf_file_of_every_architecture_has_the_numbers_of_its_source() {
    for name in MODELS {
        let source = SafetensorsFiles::open(&golden(name)).unwrap();
        let (_directory, file) = opened(&HuggingFace::read(&golden(name)).to_gguf(GgmlDType::F32, GgmlDType::F32));
        let weights = GgufWeights::open(&file).unwrap();
        assert_eq!(weights.tensors(), source.tensors(), "{name}");
        for (tensor, shape) in source.tensors() {
            let expected = all_rows(&source, tensor);
            assert_eq!(all_rows(&weights, tensor), expected, "{name}: {tensor}");
            let (rows, columns) = as_rows(shape);
            let mut last = Vec::new();
            weights.rows(tensor).unwrap().read(rows - 1..rows, &mut last).unwrap();
            assert_eq!(last, expected[(rows - 1) * columns..], "{name}: {tensor}");
        }
    }
}

#[test]
fn experts_in_mxfp4_have_the_numbers_of_the_checkpoint_that_the_file_was_made_of() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/gguf_mxfp4");
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(directory.join("config.json")).unwrap()).unwrap();
    let config = config.as_object().unwrap();
    let source = crate::engine::native::weights::open_directory(&directory, config).unwrap();
    let file = GgufFile::open(directory.join("model.gguf")).unwrap();
    let weights = GgufWeights::open(&file).unwrap();
    assert_eq!(weights.tensors(), source.tensors());
    for (tensor, shape) in source.tensors() {
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
        let expected = all_rows(&*source, tensor);
        assert_eq!(bits(all_rows(&weights, tensor)), bits(expected.clone()), "{tensor}");
        let (rows, columns) = as_rows(shape);
        let mut last = Vec::new();
        weights.rows(tensor).unwrap().read(rows - 1..rows, &mut last).unwrap();
        assert_eq!(bits(last), bits(expected[(rows - 1) * columns..].to_vec()), "{tensor}");
    }
    let shape = ModelShape::read(config).unwrap();
    assert_eq!(shape_of(&file).layers, shape.layers);
}

#[test]
fn codes_of_mxfp4_stand_for_the_numbers_of_their_tensor() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/gguf_mxfp4");
    let file = GgufFile::open(directory.join("model.gguf")).unwrap();
    let weights = GgufWeights::open(&file).unwrap().giving_codes();
    let mut found = 0;
    for (tensor, shape) in weights.tensors() {
        let rows = weights.rows(tensor).unwrap();
        let Some(coded) = rows.coded() else { continue };
        let [experts, inputs, outputs] = *shape else { panic!("{tensor} has tables of experts") };
        let (mut numbers, mut plain) = (Vec::new(), Vec::new());
        // In pieces that end within an expert.
        for first in (0..coded.rows()).step_by(7) {
            let piece = SomeRows::new(coded, first..coded.rows().min(first + 7));
            Rows::read(&piece, 0..Rows::rows(&piece), &mut numbers).unwrap();
        }
        rows.read(0..experts, &mut plain).unwrap();
        for (place, number) in plain.into_iter().enumerate() {
            let (expert, input, output) = (place / (inputs * outputs), place / outputs % inputs, place % outputs);
            let coded = numbers[(expert * outputs + output) * inputs + input];
            assert_eq!(number.to_bits(), coded.to_bits(), "{tensor}");
        }
        found += 1;
    }
    assert_eq!(found, 2);
}

#[test]
fn a_power_of_mxfp4_that_f32_does_not_hold_is_refused_where_codes_are_kept() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/gguf_mxfp4");
    let path = directory.join("model.gguf");
    let mut bytes = std::fs::read(&path).unwrap();
    let name = "model.layers.0.mlp.experts.down_proj";
    let tensors = GgufTensors::open(&GgufFile::open(path).unwrap()).unwrap();
    let (codes, powers) = tensors.get(name).unwrap().read_codes(0..1).unwrap();
    let packed = (0..16).map(|place| codes[place] | codes[place + 16] << 4);
    let block: Vec<u8> = std::iter::once(powers[0]).chain(packed).collect();
    let at = bytes.windows(block.len()).position(|window| window == block).unwrap();
    bytes[at] = u8::MAX;
    let copied = tempfile::tempdir().unwrap();
    std::fs::write(copied.path().join("model.gguf"), bytes).unwrap();
    let file = GgufFile::open(copied.path().join("model.gguf")).unwrap();
    let weights = GgufWeights::open(&file).unwrap();
    assert!(weights.rows(name).unwrap().read(0..1, &mut Vec::new()).is_ok());
    let weights = weights.giving_codes();
    let error = weights.rows(name).unwrap().coded().unwrap().read(0..1).err().unwrap().to_string();
    assert!(error.contains(name) && error.contains("--gguf-weights widened"), "{error}");
}

#[test]
fn numbers_of_two_bytes_come_back_exactly() {
    for (name, dtype) in [("qwen3", GgmlDType::BF16), ("smollm3", GgmlDType::BF16), ("qwen3_yarn", GgmlDType::F16)] {
        let source = SafetensorsFiles::open(&golden(name)).unwrap();
        let (_directory, file) = opened(&HuggingFace::read(&golden(name)).to_gguf(dtype, dtype));
        let weights = GgufWeights::open(&file).unwrap();
        for (tensor, _) in source.tensors() {
            assert_eq!(all_rows(&weights, tensor), all_rows(&source, tensor), "{name}: {tensor}");
        }
    }
}

#[test]
fn a_gguf_file_of_every_architecture_has_the_arithmetic_of_its_source() {
    for name in MODELS {
        let mut model = HuggingFace::read(&golden(name));
        // No key of a GGUF file says this.
        if let Some(scaling) = model.config["rope_scaling"].as_object_mut() {
            scaling.remove("truncate");
        }
        let (_directory, file) = opened(&model.to_gguf(GgmlDType::F32, GgmlDType::F32));
        let expected = ModelShape::read(model.config.as_object().unwrap()).unwrap();
        assert_eq!(shape_of(&file), expected, "{name}");
    }
}

#[test]
fn the_frequencies_of_llama_3_are_recovered_and_others_refused() {
    let mut model = HuggingFace::read(&golden("llama_llama3_rope"));
    let (_directory, file) = opened(&model.to_gguf(GgmlDType::F32, GgmlDType::F32));
    assert!(file.model_config().unwrap_err().to_string().contains("rope_freqs.weight"));
    model.config["rope_theta"] = 500_000.into();
    model.config["rope_scaling"]["original_max_position_embeddings"] = 8192.into();
    for factor in [8, 32] {
        model.config["rope_scaling"]["factor"] = factor.into();
        let (_directory, file) = opened(&model.to_gguf(GgmlDType::F32, GgmlDType::F32));
        assert_eq!(shape_of(&file), ModelShape::read(model.config.as_object().unwrap()).unwrap());
    }
}

#[test]
fn a_window_of_a_llama_makes_it_a_mistral() {
    let model = HuggingFace::read(&golden("qwen2"));
    let mut gguf = model.to_gguf(GgmlDType::F32, GgmlDType::F32);
    gguf.set("qwen2.attention.sliding_window", Value::U32(16));
    let windows: Vec<_> =
        shape_of(&opened(&gguf).1).layers.iter().map(|layer| layer.attention.as_ref().unwrap().shape.reach).collect();
    assert_eq!(windows, [Reach::Window(16); 2]);
    let mistral = opened(&HuggingFace::read(&golden("mistral")).to_gguf(GgmlDType::F32, GgmlDType::F32));
    assert_eq!(mistral.1.model_config().unwrap()["architectures"][0], "MistralForCausalLM");
    for name in ["smollm3", "llama_tied_bias"] {
        let mut gguf = HuggingFace::read(&golden(name)).to_gguf(GgmlDType::F32, GgmlDType::F32);
        let architecture = if name == "smollm3" { "smollm3" } else { "llama" };
        gguf.set(&format!("{architecture}.attention.sliding_window"), Value::U32(16));
        assert!(opened(&gguf).1.model_config().unwrap_err().to_string().contains("attention.sliding_window"));
    }
}

#[test]
fn quantised_weights_are_those_of_the_converted_directory_in_every_type() {
    // Of numbers between -1 and 1 (the matrices hold a sixteenth of such), about the distance between two that the type can hold.
    let steps = [
        (GgmlDType::BF16, 0.002),
        (GgmlDType::F16, 0.00025),
        (GgmlDType::Q4_0, 0.13),
        (GgmlDType::Q4_1, 0.07),
        (GgmlDType::Q5_0, 0.07),
        (GgmlDType::Q5_1, 0.035),
        (GgmlDType::Q8_0, 0.005),
        (GgmlDType::Q2K, 0.5),
        (GgmlDType::Q3K, 0.28),
        (GgmlDType::Q4K, 0.11),
        (GgmlDType::Q5K, 0.06),
        (GgmlDType::Q6K, 0.04),
        (GgmlDType::Q8K, 0.008),
    ];
    for class in ["LlamaForCausalLM", "Qwen3MoeForCausalLM"] {
        let model = HuggingFace::wide(class);
        for (dtype, step) in steps {
            let (directory, file) = opened(&model.to_gguf(dtype, GgmlDType::F32));
            let weights = GgufWeights::open(&file).unwrap();
            let out = directory.path().join("converted");
            convert::to_hugging_face(&file, &out, &mut |_, _| ()).unwrap();
            let converted = SafetensorsFiles::open(&out).unwrap();
            assert_eq!(weights.tensors(), converted.tensors());
            for (tensor, _) in converted.tensors() {
                let values = all_rows(&weights, tensor);
                let rounded: Vec<f32> = values.iter().map(|value| bf16::from_f32(*value).to_f32()).collect();
                assert_eq!(rounded, all_rows(&converted, tensor), "{dtype:?}: {tensor}");
                let source = model.tensors[tensor].flatten_all().unwrap().to_vec1::<f32>().unwrap();
                let worst = values.iter().zip(source).map(|(value, source)| (value - source).abs()).fold(0.0, f32::max);
                assert!(worst <= step / 16.0, "{dtype:?}: {tensor} is {worst} away");
            }
        }
    }
}

#[test]
fn what_the_table_of_names_does_not_have_is_refused_by_name() {
    let refusal = |name: &str, change: &dyn Fn(&mut Gguf)| {
        let mut gguf = HuggingFace::read(&golden(name)).to_gguf(GgmlDType::F32, GgmlDType::F32);
        change(&mut gguf);
        let (_directory, file) = opened(&gguf);
        GgufWeights::open(&file).unwrap_err().to_string()
    };
    let refused = refusal("qwen2", &|gguf| drop(gguf.tensors.remove("blk.1.attn_k.bias")));
    assert!(refused.contains("blk.1.attn_k.bias"), "{refused}");
    let refused = refusal("qwen3", &|gguf| gguf.add_tensor("blk.0.attn_sinks.weight", &[4], GgmlDType::F32));
    assert!(refused.contains("blk.0.attn_sinks.weight"), "{refused}");
    let refused = refusal("qwen3_moe", &|gguf| {
        gguf.add_tensor("blk.1.ffn_up_exps.weight", &[7, 24, 48], GgmlDType::F32);
    });
    assert!(refused.contains("[7, 24, 48], not [8, 24, 48]"), "{refused}");
    let refused = refusal("qwen3_moe", &|gguf| gguf.set("qwen3moe.expert_count", Value::U64(1 << 60)));
    assert!(refused.contains("too many experts"), "{refused}");
    let refused = refusal("llama", &|gguf| gguf.set("general.architecture", Value::String("gemma3n".to_owned())));
    assert!(refused.contains("`gemma3n`"), "{refused}");
    let weights = GgufWeights::open(&opened(&Gguf::tiny()).1).unwrap();
    assert!(matches!(weights.rows("lm_head.weight"), Err(WeightsError::Missing(_))));
}

#[test]
fn a_file_that_shrinks_after_it_was_opened_is_an_error() {
    let (directory, file) = opened(&Gguf::tiny());
    let weights = GgufWeights::open(&file).unwrap();
    std::fs::write(directory.path().join("model.gguf"), b"GGUF").unwrap();
    let rows = weights.rows("model.norm.weight").unwrap();
    let error = rows.read(0..1, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, WeightsError::Gguf(GgufError::Read { .. })), "{error}");
}
