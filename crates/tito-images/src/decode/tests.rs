use super::decode;
use crate::{
    decoded::ImageLimits,
    error::ImageError,
    golden::{bytes, read, sha256},
};

#[test]
fn pixels_are_those_of_pillow() {
    for image in read("files.json").as_array().unwrap() {
        let name = image["name"].as_str().unwrap();
        let decoded = decode(&bytes(&format!("files/{name}")), &ImageLimits::default()).unwrap();
        let size = (u64::from(decoded.width()), u64::from(decoded.height()));
        assert_eq!(size, (image["width"].as_u64().unwrap(), image["height"].as_u64().unwrap()), "{name}");
        assert_eq!(sha256(decoded.pixels()), image["pixels"].as_str().unwrap(), "{name}");
    }
}

/// The sizes of PNG, JPEG, WebP and GIF files come before anything is allocated for their pixels.
#[test]
fn more_pixels_than_the_limit_are_refused_at_once() {
    let limits = ImageLimits { pixels: 10 };
    for image in read("files.json").as_array().unwrap() {
        let encoded = bytes(&format!("files/{}", image["name"].as_str().unwrap()));
        let error = decode(&encoded, &limits).unwrap_err();
        assert!(matches!(error, ImageError::TooManyPixels { limit: 10, .. }), "{}: {error}", image["name"]);
    }
}
