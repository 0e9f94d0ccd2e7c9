//! Resizing as torchvision does it on x86 processors with AVX2: bicubic (a = -0.5) or bilinear, antialiased, from bytes to
//! bytes.
//!
//! Each direction by itself, first across, then down, with the result of the first rounded to bytes. The weights are those of
//! Pillow in f64, rounded to 16 bits with as many digits as the greatest of them leaves room for
//! (torch, aten/src/ATen/native/cpu/UpSampleKernelAVXAntialias.h). `fast_image_resize` rounds them in the same way. It would
//! go down first if it did both in one call, which gives other bytes.

use fast_image_resize::{
    FilterType, ResizeAlg, ResizeOptions, Resizer,
    images::{TypedImage, TypedImageRef},
    pixels::U8x3,
};

use crate::error::ImageError;

/// A side that becomes so many times as short, or more, is refused. torch gives weights up to 22 binary digits after the
/// point, `fast_image_resize` 21. The greatest weight is one part in as many as a side shrinks, so up to 128 = 2^(22 - 15)
/// times 21 digits are all that there is room for in either.
const TOO_SMALL: u32 = 128;

/// Refuses a size that would not come out as torch's.
pub(crate) fn check(from: (u32, u32), to: (u32, u32)) -> Result<(), ImageError> {
    let too_small = |from: u32, to: u32| u64::from(from) >= u64::from(TOO_SMALL) * u64::from(to);
    if too_small(from.0, to.0) || too_small(from.1, to.1) {
        return Err(ImageError::TooLarge { width: from.0, height: from.1, to, times: TOO_SMALL });
    }
    Ok(())
}

/// How pixels are weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Cubic, with a = -0.5.
    Bicubic,
    /// A triangle.
    Bilinear,
}

/// The `pixels` of an image of `from` = (width, height), three bytes each, as one of the size `to`. No side is zero.
pub(crate) fn resize(pixels: &[u8], from: (u32, u32), to: (u32, u32), filter: Filter) -> Vec<u8> {
    let mut resizer = Resizer::new();
    let between = (to.0, from.1);
    let across = (between != from).then(|| one_direction(&mut resizer, pixels, (from, between), filter));
    let pixels = across.as_deref().unwrap_or(pixels);
    if to == between { pixels.to_vec() } else { one_direction(&mut resizer, pixels, (between, to), filter) }
}

/// The kind of pixel is a type here: where it is a value, kernels for all kinds are compiled, which takes a minute.
fn one_direction(
    resizer: &mut Resizer,
    pixels: &[u8],
    (from, to): ((u32, u32), (u32, u32)),
    filter: Filter,
) -> Vec<u8> {
    let source = TypedImageRef::<U8x3>::from_buffer(from.0, from.1, pixels).expect("three bytes a pixel");
    let mut output = vec![0; to.0 as usize * to.1 as usize * 3];
    let mut image = TypedImage::<U8x3>::from_buffer(to.0, to.1, &mut output).expect("three bytes a pixel");
    let filter = match filter {
        Filter::Bicubic => FilterType::CatmullRom,
        Filter::Bilinear => FilterType::Bilinear,
    };
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter)).use_alpha(false);
    resizer.resize_typed(&source, &mut image, &options).expect("all of both images is used");
    output
}

#[cfg(test)]
mod tests {
    use super::{Filter, check, resize};

    fn noise(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index * index % 251).to_le_bytes()[0]).collect()
    }

    #[test]
    fn the_same_size_changes_nothing() {
        let pixels = noise(3 * 56 * 28);
        for filter in [Filter::Bicubic, Filter::Bilinear] {
            assert_eq!(resize(&pixels, (56, 28), (56, 28), filter), pixels);
        }
    }

    #[test]
    fn one_direction_alone_is_left_as_it_is() {
        let row = [10, 20, 30].repeat(40);
        for filter in [Filter::Bicubic, Filter::Bilinear] {
            assert_eq!(resize(&row, (40, 1), (80, 1), filter), [10, 20, 30].repeat(80));
            assert_eq!(resize(&row, (1, 40), (1, 20), filter), [10, 20, 30].repeat(20));
        }
    }

    #[test]
    fn a_side_that_becomes_128_times_as_short_is_refused() {
        assert_eq!(check((127 * 28 + 27, 4), (28, 4)), Ok(()));
        assert_eq!(check((4, 128 * 28 - 1), (4, 28)), Ok(()));
        for (from, to) in [((128 * 28, 4), (28, 4)), ((4, 5000), (56, 28)), ((u32::MAX, u32::MAX), (28, 28))] {
            let error = check(from, to).unwrap_err().to_string();
            let sizes = [from, to].map(|(width, height)| format!("{width}x{height}"));
            assert!(sizes.iter().all(|size| error.contains(size)), "{error}");
        }
    }
}
