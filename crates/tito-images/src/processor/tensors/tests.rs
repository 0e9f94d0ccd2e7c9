use serde_json::json;

use crate::{
    DecodedImage, ImageProcessor, ImageTensor, PIXEL_VALUES, PreparedImage, TensorError, TensorType, golden::read,
};

/// The small models of each family.
const FAMILIES: [&str; 6] =
    ["qwen2_5_vl_small", "qwen3_vl_small", "gemma3_small", "mistral3_small", "internvl_small", "glm4v_small"];

fn processor(family: &str) -> ImageProcessor {
    let golden = read(&format!("{family}.json"));
    ImageProcessor::of_model(&golden["config"], &golden["preprocessor"]).unwrap()
}

fn image(processor: &ImageProcessor, width: u32, height: u32) -> PreparedImage {
    let bytes = 3 * width * height;
    let pixels = (0..bytes).map(|index| (index.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
    processor.prepare(processor.identity(b"a file"), &DecodedImage::new(width, height, pixels)).unwrap()
}

#[test]
fn an_image_of_tensors_is_the_one_that_they_were_made_of() {
    for family in FAMILIES {
        let processor = processor(family);
        for (width, height) in [(90, 60), (31, 200), (64, 64)] {
            let image = image(&processor, width, height);
            let tensors = processor.tensors(&image);
            assert_eq!(tensors[0].bytes.len() as u64, processor.tensor_bytes(&image), "{family}");
            assert!(tensors.iter().all(ImageTensor::is_whole), "{family}: {tensors:?}");
            let again = processor.prepare_tensors(&tensors).unwrap();
            assert!(again.shows_the_same_as(&image), "{family}");
            // Another file may show the same.
            assert_ne!(again.identity(), image.identity());
            assert_eq!(again.identity(), processor.prepare_tensors(&tensors).unwrap().identity());
        }
    }
}

#[test]
fn pixels_before_they_are_normalised_are_taken_too() {
    for family in FAMILIES {
        let processor = processor(family);
        let image = image(&processor, 90, 60);
        let mut tensors = processor.tensors(&image);
        let numbers = tensors[0].bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        // The colour of a number is found by what it is: each value of a pixel becomes another one for each colour.
        let plane = match tensors[0].shape.as_slice() {
            [_, numbers] => numbers / 3,
            shape => shape[shape.len() - 2] * shape[shape.len() - 1],
        };
        let of = |index: usize, number: f32| {
            let channel = index / plane % 3;
            (0..=u8::MAX)
                .find(|&pixel| processor.normalisation.apply(channel, pixel).to_bits() == number.to_bits())
                .unwrap()
        };
        tensors[0].bytes = numbers.enumerate().map(|(index, number)| of(index, number)).collect();
        tensors[0].kind = TensorType::Uint8;
        assert!(processor.prepare_tensors(&tensors).unwrap().shows_the_same_as(&image), "{family}");
    }
}

#[test]
fn each_number_has_to_be_what_a_pixel_becomes() {
    let processor = processor("qwen3_vl_small");
    let tensors = processor.tensors(&image(&processor, 90, 60));
    let with = |index: usize, number: f32| {
        let mut tensors = tensors.clone();
        tensors[0].bytes[4 * index..][..4].copy_from_slice(&number.to_le_bytes());
        processor.prepare_tensors(&tensors).unwrap_err()
    };
    for number in [f32::NAN, f32::INFINITY, -2.0, 1e30, 0.003] {
        assert_eq!(with(7, number), TensorError::NoPixel { index: 7, value: number.to_string() });
    }
    // The next number in float32 is not that of a pixel.
    let first = f32::from_le_bytes(tensors[0].bytes.as_chunks().0[0]);
    assert!(matches!(with(0, f32::from_bits(first.to_bits() + 1)), TensorError::NoPixel { index: 0, .. }));
    // The second frame of a patch begins after one plane.
    let plane = processor.shape.side * processor.shape.side;
    let black = processor.normalisation.apply(0, 0);
    let other = processor.normalisation.apply(0, u8::from(first.to_bits() == black.to_bits()));
    assert_eq!(with(plane, other), TensorError::Frames);
}

/// The error for the tensors of an image of this family after a change.
fn refused(family: &str, change: impl Fn(&mut Vec<ImageTensor>)) -> String {
    let processor = processor(family);
    let mut tensors = processor.tensors(&image(&processor, 64, 64));
    change(&mut tensors);
    processor.prepare_tensors(&tensors).unwrap_err().to_string()
}

#[test]
fn tensors_that_do_not_fit_are_refused_by_name() {
    for family in FAMILIES {
        assert_eq!(refused(family, |tensors| drop(tensors.remove(0))), "there is no `pixel_values`");
        let other = |tensors: &mut Vec<ImageTensor>| tensors[0].name = "pixel_values_videos".to_owned();
        assert!(refused(family, other).contains("no `pixel_values`"));
        let more = |tensors: &mut Vec<ImageTensor>| tensors.push(ImageTensor::of_counts("second", vec![1], &[1]));
        assert_eq!(refused(family, more), "`second` is none of the tensors of this model's images");
        let counts = |tensors: &mut Vec<ImageTensor>| {
            tensors[0] = ImageTensor { name: PIXEL_VALUES.to_owned(), ..ImageTensor::of_counts("", vec![2], &[1, 2]) };
        };
        let words = refused(family, counts);
        assert!(words.contains("`pixel_values` has the shape [2]"), "{words}");
        let short = |tensors: &mut Vec<ImageTensor>| tensors[0].bytes.truncate(7);
        assert!(refused(family, short).contains("bytes fill"));
        let huge = |tensors: &mut Vec<ImageTensor>| tensors[0].shape = vec![usize::MAX; 4];
        assert!(refused(family, huge).contains("has the shape"));
        let empty = |tensors: &mut Vec<ImageTensor>| {
            tensors[0].bytes.clear();
            tensors[0].shape[0] = 0;
        };
        assert!(refused(family, empty).contains("is expected"));
    }
}

#[test]
fn counts_have_to_be_those_of_the_pixels() {
    for (family, name) in [
        ("qwen2_5_vl_small", "image_grid_thw"),
        ("gemma3_small", "num_patches"),
        ("internvl_small", "image_num_patches"),
    ] {
        assert_eq!(refused(family, |tensors| drop(tensors.pop())), format!("there is no `{name}`"));
        let wrong = |tensors: &mut Vec<ImageTensor>| tensors[1] = ImageTensor::of_counts(name, vec![1], &[7]);
        assert!(refused(family, wrong).starts_with(&format!("`{name}` is [7], and ")));
        let kind = |tensors: &mut Vec<ImageTensor>| tensors[1].kind = TensorType::Uint8;
        assert_eq!(refused(family, kind), format!("`{name}` must be of int64"));
        let longer = |tensors: &mut Vec<ImageTensor>| tensors[1].bytes.push(0);
        assert!(refused(family, longer).contains("bytes fill"), "{name}");
    }
    let turned = |tensors: &mut Vec<ImageTensor>| {
        let counts = tensors[1].counts("image_grid_thw").unwrap();
        let [_, rows, columns] = counts.try_into().unwrap();
        tensors[1] = ImageTensor {
            bytes: [-1, -rows, columns].iter().flat_map(|count| count.to_le_bytes()).collect(),
            ..tensors[1].clone()
        };
    };
    assert!(refused("glm4v_small", turned).contains("one frame of rows and columns"));
}

#[test]
fn more_patches_than_the_server_would_make_are_refused() {
    let settings =
        json!({"min_pixels": 3136, "max_pixels": 50176, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2});
    let small = ImageProcessor::of_model(&json!({"model_type": "qwen2_5_vl"}), &settings);
    let settings = json!({"min_pixels": 3136, "max_pixels": 12_845_056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2});
    let large = ImageProcessor::of_model(&json!({"model_type": "qwen2_5_vl"}), &settings).unwrap();
    let tensors = large.tensors(&image(&large, 1400, 1400));
    let words = small.unwrap().prepare_tensors(&tensors).unwrap_err().to_string();
    assert!(words.contains("as the settings of this server's processor allow"), "{words}");
    assert!(large.prepare_tensors(&tensors).is_ok());
}

#[test]
fn fewer_pixels_than_the_server_would_make_are_refused() {
    let of = |fewest: u32| {
        let settings = json!({
            "min_pixels": fewest, "max_pixels": 12_845_056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
        });
        ImageProcessor::of_model(&json!({"model_type": "qwen2_5_vl"}), &settings).unwrap()
    };
    let (low, high) = (of(3136), of(56 * 84));
    let tensors = low.tensors(&image(&low, 56, 56));
    assert!(low.prepare_tensors(&tensors).is_ok());
    let words = high.prepare_tensors(&tensors).unwrap_err().to_string();
    assert!(words.contains("at least 4704 pixels"), "{words}");
    assert!(high.prepare_tensors(&low.tensors(&image(&low, 56, 84))).is_ok());
}

/// An image becomes one square, or several and one for the whole.
#[test]
fn two_squares_are_no_image() {
    let two = |tensors: &mut Vec<ImageTensor>| {
        assert_eq!(tensors[0].shape[0], 5);
        tensors[0].shape[0] = 2;
        let square = tensors[0].bytes.len() / 5;
        tensors[0].bytes.truncate(2 * square);
        tensors[1] = ImageTensor::of_counts("image_num_patches", vec![], &[2]);
    };
    let words = refused("internvl_small", two);
    assert!(words.contains("a number of squares that an image becomes"), "{words}");
}
