//! Any bytes as an image of a request: its pixels and patches are all there, or it is refused with a reason.
//!
//! Shared by the fuzz target and by the test that replays its seeds.

use serde_json::json;
use tito::internals::images::{DecodedImage, ImageError, ImageLimits, ImageProcessor, decode};

/// Few, so that an input takes milliseconds.
const LIMITS: ImageLimits = ImageLimits { pixels: 1 << 18 };

/// Returns the number of patches that a model would see, once for each family of processors.
pub(crate) fn check(data: &[u8]) -> Result<Vec<usize>, ImageError> {
    let decoded =
        decode(data, &LIMITS).inspect_err(|error| assert_ne!(error.to_string(), "", "a reason is missing"))?;
    let pixels = u64::from(decoded.width()) * u64::from(decoded.height());
    assert!((1..=LIMITS.pixels).contains(&pixels), "{pixels} pixels");
    assert_eq!(decoded.pixels().len() as u64, 3 * pixels);
    processors().iter().map(|processor| patches(processor, data, &decoded)).collect()
}

fn patches(processor: &ImageProcessor, data: &[u8], decoded: &DecodedImage) -> Result<usize, ImageError> {
    let image = processor.prepare(processor.identity(data), decoded)?;
    let numbers = image.patches();
    assert_eq!(image.grid(), processor.grid(decoded.width(), decoded.height())?);
    assert_eq!(image.grid().patches(), 4 * image.joined().patches());
    assert!(image.grid().patches().is_multiple_of(image.read_at_once().patches()), "a part of what is read at once");
    let embeddings = (0..image.placeholders()).filter_map(|place| image.embedding_at(place));
    assert!(embeddings.eq(0..image.joined().patches()), "a part of an image has no place among its ids");
    assert_eq!(numbers.len(), image.grid().patches() * image.shape().numbers());
    assert!(numbers.iter().all(|number| number.is_finite()), "a number that is none");
    Ok(image.grid().patches())
}

/// With sizes that make small patches of small images.
fn processors() -> Vec<ImageProcessor> {
    let qwen = [("qwen2_5_vl", 14), ("qwen3_vl", 16)].map(|(model_type, side)| {
        let config = json!({"model_type": model_type, "vision_config": {"patch_size": side, "spatial_merge_size": 2}});
        let unit = 4 * side * side;
        let size = json!({"shortest_edge": 4 * unit, "longest_edge": 16 * unit});
        (config, json!({"size": size, "patch_size": side}))
    });
    let vision = json!({"image_size": 56, "patch_size": 7});
    let config = json!({"model_type": "gemma3", "mm_tokens_per_image": 16, "vision_config": vision});
    let gemma = (config, json!({"size": {"height": 56, "width": 56}}));
    let vision = json!({"patch_size": 7});
    let config = json!({"model_type": "mistral3", "spatial_merge_size": 2, "vision_config": vision});
    let mistral = (config, json!({"size": {"longest_edge": 100}}));
    let vision = json!({"image_size": 28, "patch_size": 7});
    let config = json!({"model_type": "internvl", "image_seq_length": 4, "vision_config": vision});
    let internvl = (config, json!({"size": {"height": 28, "width": 28}, "max_patches": 6}));
    let vision = json!({"patch_size": 14, "spatial_merge_size": 2});
    let config = json!({"model_type": "glm4v", "vision_config": vision});
    let glm = (config, json!({"size": {"shortest_edge": 6272, "longest_edge": 25_088}}));
    let all = qwen.into_iter().chain([gemma, mistral, internvl, glm]);
    all.map(|(config, settings)| ImageProcessor::of_model(&config, &settings).expect("settings that are served"))
        .collect()
}
