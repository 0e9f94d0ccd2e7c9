use serde_json::{Value, json};

use super::ImageProcessor;
use crate::{
    decoded::DecodedImage,
    error::ImageError,
    golden::{read, sha256},
};

#[expect(clippy::needless_pass_by_value, reason = "callers write it down there")]
fn qwen3(settings: Value) -> Result<ImageProcessor, String> {
    ImageProcessor::of_model(&json!({"model_type": "qwen3_vl"}), &settings).map_err(|error| error.to_string())
}

/// The pixels that `drawn` of `tests/reference/record_images.py` draws.
#[expect(clippy::cast_possible_truncation, reason = "remainders are what is asked for")]
fn drawn(width: u32, height: u32, seed: u64) -> DecodedImage {
    let (wide, bytes) = (u64::from(width), 3 * u64::from(width) * u64::from(height));
    let byte = |index: u64| {
        let noise = ((((index + seed) * 2_654_435_761) as u32).wrapping_mul(40_503)) >> 20;
        (u64::from(noise) + index / 3 % wide * 255 / wide) as u8
    };
    DecodedImage::new(width, height, (0..bytes).map(byte).collect())
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

#[track_caller]
fn patches_are_those_of_transformers(family: &str) {
    let golden = read(&format!("{family}.json"));
    let processor = ImageProcessor::of_model(&golden["config"], &golden["preprocessor"]).unwrap();
    for image in golden["images"].as_array().unwrap() {
        let (width, height) = (number(&image["width"]), number(&image["height"]));
        let prepared =
            processor.prepare(processor.identity(b""), &drawn(width, height, number(&image["seed"]).into())).unwrap();
        let grid = prepared.grid();
        assert_eq!(json!([grid.rows, grid.columns]), image["grid"], "{width}x{height}");
        assert_eq!(grid, processor.grid(width, height).unwrap());
        let numbers = prepared.patches().iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(sha256(&numbers), image["patches"].as_str().unwrap(), "{width}x{height}");
    }
}

#[test]
fn qwen2_5_vl_reads_what_transformers_makes_for_it() {
    patches_are_those_of_transformers("qwen2_5_vl");
    patches_are_those_of_transformers("qwen2_5_vl_small");
}

#[test]
fn qwen3_vl_reads_what_transformers_makes_for_it() {
    patches_are_those_of_transformers("qwen3_vl");
    patches_are_those_of_transformers("qwen3_vl_small");
}

#[test]
fn gemma3_reads_what_transformers_makes_for_it() {
    patches_are_those_of_transformers("gemma3");
    patches_are_those_of_transformers("gemma3_small");
}

#[test]
fn mistral3_reads_what_transformers_makes_for_it() {
    patches_are_those_of_transformers("mistral3");
    patches_are_those_of_transformers("mistral3_small");
}

#[test]
fn internvl_reads_what_transformers_makes_for_it() {
    patches_are_those_of_transformers("internvl");
    patches_are_those_of_transformers("internvl_small");
}

#[test]
fn glm4v_reads_what_transformers_makes_for_it() {
    patches_are_those_of_transformers("glm4v");
    patches_are_those_of_transformers("glm4v_small");
}

#[test]
fn settings_of_glm4v_that_would_change_what_it_sees_are_refused_by_name() {
    let glm = |setting: &str, value: Value| {
        let config = json!({"model_type": "glm46v", "vision_config": {"patch_size": 14}});
        ImageProcessor::of_model(&config, &json!({ setting: value })).map_err(|error| error.to_string())
    };
    for (setting, value, words) in [
        ("image_processor_type", json!("Qwen2VLImageProcessor"), "only Glm4vImageProcessor and Glm46VImageProcessor"),
        ("resample", json!(2), "bicubic"),
        ("size", json!({"shortest_edge": 12_544}), "shortest_edge and for longest_edge"),
        ("size", json!({"shortest_edge": 0, "longest_edge": 12_544}), "shortest_edge and for longest_edge"),
        ("size", json!({"shortest_edge": 12_544, "longest_edge": 25_088, "max_pixels": 9000}), "and nothing else"),
        ("size", json!({"shortest_edge": 12_544, "longest_edge": 25_088, "height": null}), "and nothing else"),
        ("patch_size", json!(16), "but vision_config of config.json has 14"),
        ("max_pixels", json!(12_544), "nothing is known"),
    ] {
        let error = glm(setting, value).unwrap_err();
        assert!(error.contains(words), "{setting}: {error}");
    }
    let whole = glm("size", json!({"shortest_edge": 12_544, "longest_edge": 11_760_000})).unwrap();
    assert_eq!(glm("image_processor_type", json!("Glm46VImageProcessor")), Ok(whole.clone()));
    // The limit is that of the two images of a patch.
    assert_eq!(whole.most_patches(), 30_000);
    // The same sizes are others for Qwen.
    let qwen = qwen3(json!({"patch_size": 14, "size": {"shortest_edge": 12_544, "longest_edge": 11_760_000}})).unwrap();
    assert_ne!(whole.identity(b"file"), qwen.identity(b"file"));
}

#[expect(clippy::needless_pass_by_value, reason = "callers write it down there")]
fn gemma3(config: Value, settings: Value) -> Result<ImageProcessor, String> {
    let mut all = json!({"model_type": "gemma3", "vision_config": {"image_size": 896, "patch_size": 14}});
    all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    ImageProcessor::of_model(&all, &settings).map_err(|error| error.to_string())
}

fn published() -> Value {
    json!({"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 896, "width": 896}, "resample": 2})
}

/// The published settings with another one.
fn with(setting: &str, value: Value) -> Value {
    let mut settings = published();
    settings[setting] = value;
    settings
}

#[test]
fn every_image_of_gemma3_becomes_a_square_of_256_placeholders() {
    let processor = gemma3(json!({}), published()).unwrap();
    let identity = processor.identity(b"");
    for (width, height) in [(1, 1), (7, 900), (1000, 20)] {
        let image = processor.prepare(identity, &drawn(width, height, 1)).unwrap();
        assert_eq!((image.placeholders(), image.grid().patches()), (256, 4096));
    }
    assert_eq!(processor.most_patches(), 4096);
    assert_eq!(processor.grid(3, 0), Err(ImageError::NoPixels { width: 3, height: 0 }));
    // What lies between two directions would be as long.
    let error = processor.grid(1, 178_000_000).unwrap_err().to_string();
    assert_eq!(error, "image dimensions 1x178000000: the image is too high to be resized to 896x896");
    assert!(processor.grid(128 * 896 - 1, 1).is_ok());
    assert!(matches!(processor.grid(178_000_000, 1), Err(ImageError::TooLarge { .. })));
}

#[test]
fn settings_of_gemma3_that_would_change_what_it_sees_are_refused_by_name() {
    for (setting, value, words) in [
        ("do_pan_and_scan", json!(true), "pan and scan is not done"),
        ("resample", json!(3), "bilinear"),
        ("size", json!({"height": 896, "width": 448}), "the same"),
        ("size", json!({"height": 896}), "the same"),
        ("size", json!({"height": 896, "width": 896, "longest_edge": 3}), "the same"),
        ("size", json!({"height": 0, "width": 0}), "the same"),
        ("size", json!({"height": 448, "width": 448}), "but vision_config of config.json has 896"),
        ("image_processor_type", json!("SiglipImageProcessor"), "only Gemma3ImageProcessor"),
        ("image_seq_length", json!(64), "mm_tokens_per_image"),
        ("do_center_crop", json!(true), "nothing is known"),
    ] {
        let error = gemma3(json!({}), with(setting, value)).unwrap_err();
        assert!(error.contains(words), "{setting}: {error}");
    }
    for (setting, value) in [
        ("mm_tokens_per_image", json!(255)),
        ("mm_tokens_per_image", json!(0)),
        ("mm_tokens_per_image", json!(81)),
        ("vision_config", json!({"image_size": 896, "patch_size": 15})),
        ("vision_config", json!({"image_size": 896, "patch_size": 0})),
        ("vision_config", json!({"image_size": 896, "patch_size": 14, "num_channels": 1})),
    ] {
        assert!(gemma3(json!({ setting: value }), published()).is_err(), "{setting}");
    }
    // Off, or of no account while it is off.
    for (setting, value) in [("do_pan_and_scan", json!(false)), ("pan_and_scan_max_num_crops", json!(4))] {
        assert_eq!(gemma3(json!({}), with(setting, value)), gemma3(json!({}), published()));
    }
}

#[expect(clippy::needless_pass_by_value, reason = "callers write it down there")]
fn mistral3(config: Value, settings: Value) -> Result<ImageProcessor, String> {
    let mut all = json!({"model_type": "mistral3", "vision_config": {"patch_size": 14}});
    all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    ImageProcessor::of_model(&all, &settings).map_err(|error| error.to_string())
}

#[test]
fn rows_of_an_image_of_mistral3_have_one_id_more() {
    let processor = mistral3(json!({}), json!({"size": {"longest_edge": 1540}})).unwrap();
    assert_eq!(processor.most_patches(), 110 * 110);
    let image = processor.prepare(processor.identity(b""), &drawn(70, 40, 1)).unwrap();
    assert_eq!((image.grid().rows, image.grid().columns, image.placeholders()), (4, 6, 2 * (3 + 1)));
    let places: Vec<Option<usize>> = (0..10).map(|place| image.embedding_at(place)).collect();
    assert_eq!(places, [0, 1, 2, 9, 3, 4, 5, 9, 9, 9].map(|place| (place < 9).then_some(place)));
    assert!(matches!(processor.grid(1, 1541), Err(ImageError::Vanishing { .. })));
    // Enough for two directions.
    assert!(processor.grid(100, 1_789_569).is_err());
    assert!(processor.grid(1_540, 116_000).is_ok());
}

#[test]
fn settings_of_mistral3_that_would_change_what_it_sees_are_refused_by_name() {
    for (setting, value, words) in [
        ("resample", json!(2), "bicubic"),
        ("size", json!({"height": 1540, "width": 1540}), "longest_edge"),
        ("size", json!({"longest_edge": 1540, "shortest_edge": 3}), "longest_edge"),
        ("size", json!({"longest_edge": 0}), "longest_edge"),
        ("size", json!({"longest_edge": 8193}), "longest_edge"),
        ("size", json!({"longest_edge": 1540, "height": null}), "longest_edge"),
        ("size", json!(1540), "longest_edge"),
        ("patch_size", json!(16), "but vision_config of config.json has 14"),
        ("patch_size", json!({"height": 14, "width": 28}), "the same"),
        ("image_processor_type", json!("CLIPImageProcessor"), "only PixtralImageProcessor"),
        ("do_resize", json!(false), "always resized"),
        ("do_center_crop", json!(true), "nothing is known"),
    ] {
        let error = mistral3(json!({}), json!({ setting: value })).unwrap_err();
        assert!(error.contains(words), "{setting}: {error}");
    }
    for (setting, value) in [
        ("spatial_merge_size", json!(0)),
        ("spatial_merge_size", json!("2")),
        ("vision_config", json!({"patch_size": 0})),
        ("vision_config", json!({"patch_size": [14, 14]})),
        ("vision_config", json!({"patch_size": 14, "num_channels": 1})),
    ] {
        assert!(mistral3(json!({ setting: value }), json!({})).is_err(), "{setting}");
    }
    // What the processor of the whole model replaces, and what only images side by side need.
    for (setting, value) in [
        ("patch_size", json!(14)),
        ("patch_size", json!({"height": 28, "width": 28})),
        ("do_pad", json!(true)),
        ("size", json!({"longest_edge": 1024, "shortest_edge": null})),
    ] {
        assert_eq!(mistral3(json!({}), json!({ setting: value })), mistral3(json!({}), json!({})), "{setting}");
    }
}

fn internvl(config: &Value, settings: &Value) -> Result<ImageProcessor, String> {
    let mut all =
        json!({"model_type": "internvl", "vision_config": {"image_size": [448, 448], "patch_size": [14, 14]}});
    all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    let mut given = json!({"size": {"height": 448, "width": 448}});
    given.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    ImageProcessor::of_model(&all, &given).map_err(|error| error.to_string())
}

#[test]
fn squares_of_internvl_stand_between_two_ids() {
    let processor = internvl(&json!({}), &json!({})).unwrap();
    assert_eq!(processor.most_patches(), 13 * 32 * 32);
    let image = processor.prepare(processor.identity(b""), &drawn(70, 35, 1)).unwrap();
    assert_eq!((image.grid().rows, image.grid().columns, image.placeholders()), (3 * 32, 32, 1 + 3 * 256 + 1));
    assert_eq!((image.read_at_once().rows, image.read_at_once().columns), (32, 32));
    let places = [0, 1, 2, 768, 769, 770].map(|place| image.embedding_at(place));
    assert_eq!(places, [None, Some(0), Some(1), Some(767), None, None]);
    // What lies between two directions would be as long.
    let error = processor.grid(1, 178_000_000).unwrap_err().to_string();
    assert_eq!(error, "image dimensions 1x178000000: the image is too high to be resized to 448x5376");
    assert!(processor.grid(128 * 448 - 1, 1).is_ok());
    assert!(matches!(processor.grid(178_000_000, 1), Err(ImageError::TooLarge { .. })));
}

#[test]
fn settings_of_internvl_that_would_change_what_it_sees_are_refused_by_name() {
    for (setting, value, words) in [
        ("resample", json!(2), "bicubic"),
        ("size", json!({"height": 448, "width": 224}), "the same"),
        ("size", json!({"longest_edge": 448}), "the same"),
        ("size", json!({"height": 384, "width": 384}), "but vision_config of config.json has 448"),
        ("size", Value::Null, "size is null"),
        ("size", json!({"height": 448, "width": 448, "shortest_edge": null}), "the same"),
        ("min_patches", json!(0), "a number of squares"),
        ("max_patches", json!(335), "a number of squares"),
        ("max_patches", json!("12"), "a number of squares"),
        ("image_processor_type", json!("CLIPImageProcessor"), "only GotOcr2ImageProcessor"),
        ("min_pixels", json!(3136), "nothing is known"),
        ("do_center_crop", json!(true), "nothing is known"),
    ] {
        let error = internvl(&json!({}), &json!({ setting: value })).unwrap_err();
        assert!(error.contains(words), "{setting}: {error}");
    }
    for (setting, value) in [
        ("downsample_ratio", json!(0.3)),
        ("downsample_ratio", json!(0)),
        ("downsample_ratio", json!("0.5")),
        ("image_seq_length", json!(64)),
        ("image_seq_length", json!(-1)),
        ("vision_config", json!({"image_size": 448, "patch_size": 15})),
        ("vision_config", json!({"image_size": 448, "patch_size": [14, 28]})),
        ("vision_config", json!({"image_size": 448, "patch_size": 0})),
        ("vision_config", json!({"image_size": 448, "patch_size": 448})),
        ("vision_config", json!({"image_size": 448, "patch_size": 14, "num_channels": 1})),
    ] {
        assert!(internvl(&json!({ setting: value }), &json!({})).is_err(), "{setting}");
    }
    // What the processor of the whole model replaces, and what is so where nothing is said.
    let plain = internvl(&json!({}), &json!({}));
    for (setting, value) in [
        ("crop_to_patches", json!(true)),
        ("crop_to_patches", json!(false)),
        ("max_patches", json!(12)),
        ("min_patches", json!(1)),
    ] {
        assert_eq!(internvl(&json!({}), &json!({ setting: value })), plain, "{setting}");
    }
    assert_eq!(
        internvl(&json!({"downsample_ratio": 0.5, "image_seq_length": 256, "vision_config": null}), &json!({})),
        plain
    );
    assert_ne!(internvl(&json!({}), &json!({"max_patches": 6})), plain);
}

#[test]
fn an_image_of_no_pixels_or_too_long_a_side_has_no_grid() {
    let processor = qwen3(json!({})).unwrap();
    assert_eq!(processor.grid(0, 5), Err(ImageError::NoPixels { width: 0, height: 5 }));
    assert_eq!(processor.grid(1, 100_000), Err(ImageError::AspectRatio(100_000.0)));
    assert!(processor.grid(100_000, 100_000).is_ok());
    assert!(matches!(processor.grid(u32::MAX, u32::MAX), Err(ImageError::TooLarge { .. })));
}

#[test]
fn an_image_that_becomes_128_times_as_small_is_refused_by_all_processors() {
    let golden = |family: &str| {
        let golden = read(&format!("{family}.json"));
        ImageProcessor::of_model(&golden["config"], &golden["preprocessor"]).unwrap()
    };
    let limits =
        [("gemma3_small", (128 * 96, 96)), ("internvl_small", (128 * 96, 2000)), ("glm4v_small", (50_000, 50_000))];
    let others = [("qwen3_vl_small", (50_000, 50_000)), ("mistral3_small", (50_000, 50_000))];
    for (family, (width, height)) in limits.into_iter().chain(others) {
        let error = golden(family).grid(width, height).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{family}: {error}");
        assert!(error.to_string().contains(&format!("{width}x{height}")), "{error}");
    }
    assert!(golden("gemma3_small").grid(128 * 96 - 1, 96).is_ok());
    // The square that shows all of the image is smaller than the others are together.
    assert!(golden("internvl_small").grid(128 * 96 - 1, 2000).is_ok());
}

#[test]
fn settings_as_transformers_5_saves_them_are_read() {
    let settings = json!({
        "do_convert_rgb": true, "do_normalize": true, "do_rescale": true, "do_resize": true, "do_pad": false,
        "image_mean": [0.481_454_66, 0.457_827_5, 0.408_210_73], "image_processor_type": "Qwen2VLImageProcessor",
        "image_std": [0.268_629_54, 0.261_302_58, 0.275_777_11], "merge_size": 2, "patch_size": 14, "resample": 3,
        "rescale_factor": 0.003_921_568_627_450_98, "size": {"longest_edge": 1_003_520, "shortest_edge": 3136},
        "temporal_patch_size": 2, "crop_size": null, "data_format": "channels_first", "return_tensors": null,
    });
    assert_eq!(qwen3(settings), qwen3(json!({})));
}

#[test]
fn limits_by_themselves_take_precedence_over_the_size() {
    let size = json!({"longest_edge": 1, "shortest_edge": 1});
    let both = json!({"size": size, "min_pixels": 3136, "max_pixels": 1_003_520});
    assert_eq!(qwen3(both), qwen3(json!({})));
    // As older releases of transformers saved it.
    let twice = json!({
        "size": {"min_pixels": 3136, "max_pixels": 1_003_520}, "min_pixels": 3136, "max_pixels": 1_003_520,
    });
    assert_eq!(qwen3(twice), qwen3(json!({})));
    for size in [
        json!({"min_pixels": 3136, "max_pixels": 1_003_520}),
        json!({"longest_edge": 1_003_520, "shortest_edge": 3136, "height": 56}),
        json!({"longest_edge": 1_003_520, "shortest_edge": 3136, "height": null}),
    ] {
        let error = qwen3(json!({ "size": size })).unwrap_err();
        assert!(error.contains("and nothing else"), "{error}");
    }
}

/// transformers does not do a step whose setting is `null`, or fails; where it takes it for its own value, so does this.
#[test]
fn null_is_what_transformers_takes_it_for_or_refused() {
    let goldens = ["gemma3_small", "glm4v_small", "internvl_small", "mistral3_small", "qwen3_vl_small"].map(|family| {
        let golden = read(&format!("{family}.json"));
        (family, golden["config"].clone(), golden["preprocessor"].clone())
    });
    let steps = ["do_normalize", "do_rescale", "do_resize", "image_mean", "image_std", "resample", "rescale_factor"];
    let sides = ["merge_size", "patch_size", "size", "temporal_patch_size"];
    for (family, config, settings) in &goldens {
        let with = |key: &str| {
            let mut settings = settings.clone();
            settings[key] = Value::Null;
            ImageProcessor::of_model(config, &settings).map_err(|error| error.to_string())
        };
        let own = match *family {
            "gemma3_small" => &["size"][..],
            "glm4v_small" => &sides,
            "internvl_small" => &["max_patches", "min_patches", "size"],
            "mistral3_small" => &["size"],
            _ => &["merge_size", "patch_size", "temporal_patch_size"],
        };
        for key in steps.iter().chain(own) {
            let error = with(key).unwrap_err();
            assert!(error.contains(&format!("{key} is null, but transformers")), "{family}: {error}");
        }
        let plain = ImageProcessor::of_model(config, settings).map_err(|error| error.to_string());
        for key in ["crop_size", "data_format", "do_convert_rgb", "do_pad", "do_pan_and_scan", "return_tensors"] {
            assert_eq!(with(key), plain, "{family}: {key}");
        }
    }
    let (limits, plain) = (json!({"size": null, "min_pixels": null, "max_pixels": null}), json!({}));
    assert_eq!(qwen3(limits), qwen3(plain));
    assert_eq!(mistral3(json!({}), json!({"patch_size": null})), mistral3(json!({}), json!({})));
}

#[test]
fn settings_that_would_change_the_patches_are_refused_by_name() {
    let refused = [
        ("do_resize", json!(false)),
        ("do_rescale", json!(false)),
        ("do_normalize", json!(false)),
        ("do_convert_rgb", json!(false)),
        ("resample", json!(2)),
        ("rescale_factor", json!(1.0)),
        ("data_format", json!("channels_last")),
        ("device", json!("cuda")),
        ("do_center_crop", json!(true)),
        ("image_processor_type", json!("CLIPImageProcessor")),
        ("patch_size", json!(0)),
        ("merge_size", json!(100_000)),
        ("temporal_patch_size", json!("2")),
        ("size", json!({"height": 448, "width": 448})),
        ("size", json!(448)),
        ("min_pixels", json!(0)),
        ("min_pixels", json!(1_u64 << 40)),
        ("max_pixels", json!(-1)),
        ("image_mean", json!(0.5)),
        ("image_mean", json!([0.5, 0.5])),
        ("image_std", json!([0.5, 0.0, 0.5])),
        ("image_std", json!([0.5, 1e300, 0.5])),
    ];
    for (setting, value) in refused {
        let error = qwen3(json!({ setting: value })).unwrap_err();
        assert!(error.contains(setting) && error.contains(&value.to_string()), "{error}");
    }
    assert!(qwen3(json!([])).is_err());
}

#[test]
fn models_that_are_not_known_and_towers_of_another_shape_are_refused() {
    let of_model = |config: Value| ImageProcessor::of_model(&config, &json!({})).unwrap_err().to_string();
    assert!(of_model(json!({"model_type": "qwen2_vl"})).contains("qwen2_vl"));
    assert!(of_model(json!({})).contains("not supported"));
    let tower = json!({"model_type": "qwen2_5_vl", "vision_config": {"patch_size": 16}});
    assert_eq!(of_model(tower), "preprocessor_config.json has patch_size 14, but vision_config of config.json has 16");
}

#[test]
fn every_setting_and_every_byte_decide_the_identity() {
    let image = drawn(9, 9, 0);
    let identity = |settings: Value, encoded: &[u8]| {
        let processor = qwen3(settings).unwrap();
        processor.prepare(processor.identity(encoded), &image).unwrap().identity()
    };
    let plain = identity(json!({}), b"a");
    assert_eq!(identity(json!({"merge_size": 2}), b"a"), plain);
    assert_ne!(identity(json!({}), b"b"), plain);
    let others = [
        json!({"patch_size": 16}),
        json!({"merge_size": 1}),
        json!({"temporal_patch_size": 1}),
        json!({"min_pixels": 3137}),
        json!({"max_pixels": 3137}),
        json!({"image_mean": [0.5, 0.5, 0.5]}),
        json!({"image_std": [0.5, 0.5, 0.5]}),
    ];
    for settings in others {
        assert_ne!(identity(settings.clone(), b"a"), plain, "{settings}");
    }
}
