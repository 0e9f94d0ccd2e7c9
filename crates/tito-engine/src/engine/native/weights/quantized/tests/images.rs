//! Checkpoints whose text is in FP8 beside a tower in bf16, as Ministral 3 and Qwen 3 VL are published.

use safetensors::Dtype;
use tempfile::TempDir;

use super::{
    made::{bf16_bytes, in_fp8, write},
    *,
};
use crate::engine::{
    Engine, SequenceRequest, WeightDtype, WeightTensor,
    native::{
        NativeEngine, NativeSettings, WeightsSource,
        model::tests::{
            families::Golden,
            images::{ImagePrompt, golden, prompts},
        },
        tests::{bits as bits_of, collected, params, request, settings},
        weights::GivenTensors,
    },
};

/// Models, and the sides of the blocks that have a scale; `None` for a scale of a whole matrix, as Ministral 3 has them.
const MODELS: [(&str, Option<usize>); 5] = [
    ("gemma3_plain", Some(16)),
    ("internvl_plain", Some(16)),
    ("mistral3_ministral3", None),
    ("mistral3_plain", None),
    ("qwen3_vl_plain", Some(16)),
];

/// A checkpoint, and what it is when it is widened.
struct Checkpoint {
    directory: TempDir,
    config: Map<String, Value>,
    widened: GivenTensors,
}

fn checkpoint(golden: &Golden, side: Option<usize>) -> Checkpoint {
    let given = golden.weights();
    let (mut stored, mut widened) = (Vec::new(), Vec::new());
    for (name, shape) in given.tensors() {
        let numbers = all_of(&given, name);
        let reads_images =
            ["visual.", "vision_tower.", "multi_modal_projector."].iter().any(|part| name.contains(part));
        let wide = if name.ends_with("_proj.weight") && !reads_images {
            let (packed, wide) = in_fp8(name, shape, &numbers, side);
            stored.extend(packed);
            wide
        } else {
            stored.push((name.to_owned(), (Dtype::BF16, shape.to_vec(), bf16_bytes(numbers.iter().copied()))));
            numbers.into_iter().map(|number| bf16::from_f32(number).to_f32()).collect::<Vec<f32>>()
        };
        let bytes: Vec<u8> = wide.into_iter().flat_map(f32::to_le_bytes).collect();
        let (name, shape) = (name.to_owned(), shape.to_vec());
        widened.push(WeightTensor { name, dtype: WeightDtype::F32, shape, bytes: bytes.into() });
    }
    let mut config = golden.config().clone();
    let described = json!({
        "quant_method": "fp8", "activation_scheme": if side.is_some() { "dynamic" } else { "static" }, "dequantize": false,
        "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "model.visual", "lm_head"],
        "weight_block_size": side.map(|side| [side; 2]),
    });
    config.insert("quantization_config".to_owned(), described);
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &config, &stored);
    Checkpoint { directory, config, widened: GivenTensors::new(widened).unwrap() }
}

#[test]
fn text_in_fp8_and_a_tower_in_bf16_compute_what_their_widened_checkpoint_computes_to_the_bit() {
    for (name, side) in MODELS {
        let golden = golden(name);
        let Checkpoint { directory, config, widened } = checkpoint(&golden, side);
        assert!(holds_codes(directory.path(), &config).unwrap(), "{name}");
        let packed = open_directory(directory.path(), &config).unwrap();
        let coded = open_coded(directory.path(), &config).unwrap();
        for precision in [Precision::Bf16, Precision::F32] {
            let load = |weights: &dyn Weights, keep: bool| {
                let processor = Processor { set: KernelSet::available()[0], pool: Pool::new(2).unwrap() };
                let backend = CpuBackend::new(processor, precision);
                let backend = if keep { backend.keeping_quantized() } else { backend };
                let shape = ModelShape::read(&config).unwrap();
                let mut model = Model::load(backend, shape, weights, &mut |_, _| ()).unwrap();
                model.allocate_cache(Room { blocks: 6, slots: 0 }).unwrap();
                model
            };
            let mut models = [load(&widened, false), load(&*packed, false), load(&*coded, true)];
            for prompt in prompts(&golden) {
                let [expected, widened, kept] = models.each_mut().map(|model| prompt.bits(model, &[]));
                assert!(widened == expected, "{name}, {precision:?}: {}", prompt.name);
                assert!(kept == expected, "{name}, {precision:?}: {} of codes", prompt.name);
            }
        }
    }
}

#[tokio::test]
async fn an_engine_answers_prompts_with_images_alike_with_codes_that_are_widened_or_kept() {
    for (name, side) in MODELS {
        let golden = golden(name);
        let Checkpoint { directory, config, .. } = checkpoint(&golden, side);
        let sources =
            [WeightsSource::Directory, WeightsSource::Coded].map(|source| source(directory.path().to_owned()));
        let engines = sources.map(|source| {
            let settings = NativeSettings { source, config: config.clone(), ..settings("llama") };
            NativeEngine::load(&settings, &mut |_, _| ()).unwrap()
        });
        for ImagePrompt { name: prompt, token_ids, images, .. } in prompts(&golden) {
            let mut found = Vec::new();
            for engine in &engines {
                let asked = SequenceRequest { images: images.clone().into(), ..request(&token_ids, params(6)) };
                found.push(bits_of(&collected(engine.generate(asked)).await));
            }
            assert!(found[0] == found[1], "{name}: {prompt}");
        }
    }
}
