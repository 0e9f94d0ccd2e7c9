//! Checkpoints whose text is in FP8 beside a tower in bf16, as Ministral 3 and Qwen 3 VL are published.

use safetensors::{Dtype, tensor::TensorView};
use tempfile::TempDir;

use super::*;
use crate::engine::{
    Engine, SequenceRequest, WeightDtype, WeightTensor,
    native::{
        NativeEngine, NativeSettings, WeightsSource,
        model::tests::{
            families::Golden,
            images::{ImagePrompt, golden, prompts},
        },
        tests::{bits as bits_of, collected, params, request, settings},
        weights::{E4M3, GivenTensors},
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

/// A tensor of the checkpoint.
type Stored = (String, (Dtype, Vec<usize>, Vec<u8>));

fn bf16_bytes(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| bf16::from_f32(number).to_le_bytes()).collect()
}

/// A matrix in FP8, with its scales, and what both make.
fn in_fp8(name: &str, shape: &[usize], numbers: &[f32], side: Option<usize>) -> (Vec<Stored>, Vec<f32>) {
    let [rows, columns] = shape[..] else { panic!("{name} is no matrix") };
    let [down, across] = side.map_or([rows, columns], |side| [side; 2]);
    let grid = [rows.div_ceil(down), columns.div_ceil(across)];
    let block = |place: usize| place / columns / down * grid[1] + place % columns / across;
    let mut scales = vec![0.0_f32; grid[0] * grid[1]];
    for (place, number) in numbers.iter().enumerate() {
        scales[block(place)] = scales[block(place)].max(number.abs() / 448.0);
    }
    let scales: Vec<f32> = scales.into_iter().map(|scale| bf16::from_f32(scale).to_f32()).collect();
    let nearest = |(place, number): (usize, &f32)| {
        let off = |code: &u8| (E4M3[usize::from(*code)] * scales[block(place)] - number).abs();
        (0..=u8::MAX).filter(|code| !off(code).is_nan()).min_by(|one, other| off(one).total_cmp(&off(other))).unwrap()
    };
    let codes: Vec<u8> = numbers.iter().enumerate().map(nearest).collect();
    let wide = codes.iter().enumerate().map(|(place, code)| E4M3[usize::from(*code)] * scales[block(place)]);
    let wide = wide.collect();
    let module = name.strip_suffix(".weight").unwrap();
    let of_scales = if side.is_some() { grid.to_vec() } else { Vec::new() };
    let mut stored = vec![
        (name.to_owned(), (Dtype::F8_E4M3, shape.to_vec(), codes)),
        (format!("{module}.weight_scale_inv"), (Dtype::BF16, of_scales, bf16_bytes(scales))),
    ];
    if side.is_none() {
        stored.push((format!("{module}.activation_scale"), (Dtype::BF16, Vec::new(), bf16_bytes([0.5]))));
    }
    (stored, wide)
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
    let views = stored
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    fs::write(directory.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    fs::write(directory.path().join("config.json"), Value::from(config.clone()).to_string()).unwrap();
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
