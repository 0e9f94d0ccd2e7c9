//! What Pillow 13 (libwebp) makes of each file was looked up by running it.

use super::super::decode;
use crate::{
    decoded::{DecodedImage, ImageLimits},
    error::ImageError,
    golden::bytes,
};

/// Chunks by their names.
type Chunks = Vec<([u8; 4], Vec<u8>)>;

fn decoded(encoded: &[u8]) -> Result<DecodedImage, ImageError> {
    decode(encoded, &ImageLimits::default())
}

#[track_caller]
fn reason(encoded: &[u8]) -> String {
    decoded(encoded).unwrap_err().to_string()
}

fn chunks(mut rest: &[u8]) -> Chunks {
    let mut chunks = Chunks::new();
    while let Some((name, after)) = rest.split_first_chunk::<4>() {
        let (length, after) = after.split_first_chunk::<4>().unwrap();
        let length = u32::from_le_bytes(*length) as usize;
        chunks.push((*name, after[..length].to_vec()));
        rest = &after[length.next_multiple_of(2)..];
    }
    chunks
}

fn written(chunks: &Chunks) -> Vec<u8> {
    let chunk = |(name, content): &([u8; 4], Vec<u8>)| {
        let length = u32::try_from(content.len()).unwrap().to_le_bytes();
        [&name[..], &length, content, &vec![0; content.len() % 2]].concat()
    };
    chunks.iter().flat_map(chunk).collect()
}

fn file(chunks: &Chunks) -> Vec<u8> {
    let chunks = written(chunks);
    let length = u32::try_from(4 + chunks.len()).unwrap().to_le_bytes();
    [b"RIFF", &length[..], b"WEBP", &chunks].concat()
}

/// The chunks of a recorded file.
fn recorded(name: &str) -> Chunks {
    chunks(&bytes(&format!("files/{name}"))[12..])
}

fn content(chunks: &mut Chunks, name: [u8; 4]) -> &mut Vec<u8> {
    &mut chunks.iter_mut().find(|chunk| chunk.0 == name).unwrap().1
}

/// The chunks with other flags in `VP8X`.
fn with_flags(mut chunks: Chunks, change: impl Fn(u8) -> u8) -> Vec<u8> {
    let flags = &mut content(&mut chunks, *b"VP8X")[0];
    *flags = change(*flags);
    file(&chunks)
}

/// The chunks without those of this name.
fn without(mut chunks: Chunks, name: [u8; 4]) -> Chunks {
    chunks.retain(|chunk| chunk.0 != name);
    chunks
}

const EXIF_3: &[u8] = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0";

#[test]
fn a_first_frame_that_is_to_be_blended_is_blended_with_nothing() {
    for name in ["rgb_animated.webp", "rgba_animated.webp", "rgb_lossless_animated.webp", "rgba_lossless_animated.webp"]
    {
        let mut chunks = recorded(name);
        let whole = decoded(&file(&chunks)).unwrap();
        for flags in [0, 1, 2, 3] {
            content(&mut chunks, *b"ANMF")[15] = flags;
            assert_eq!(decoded(&file(&chunks)).as_ref(), Ok(&whole), "{name}: {flags}");
        }
    }
}

#[test]
fn metadata_count_where_they_are_announced_and_within_the_riff() {
    let turned = recorded("rgb_lossless.webp");
    let plain = without(turned.clone(), *b"EXIF");
    let upright = decoded(&with_flags(plain.clone(), |flags| flags & !8)).unwrap();
    assert_ne!(decoded(&file(&turned)).unwrap(), upright);
    assert_eq!(decoded(&with_flags(turned, |flags| flags & !8)).as_ref(), Ok(&upright));

    let exif = (*b"EXIF", EXIF_3.to_vec());
    let behind = [with_flags(plain.clone(), |flags| flags & !8), written(&vec![exif.clone()])].concat();
    assert_eq!(decoded(&behind).as_ref(), Ok(&upright));
    // Of several, the first counts.
    let several = [plain.clone(), vec![exif, (*b"EXIF", Vec::new())]].concat();
    assert_eq!(decoded(&file(&several)).unwrap().pixels()[..3], upright.pixels()[upright.pixels().len() - 3..]);

    let xmp = (*b"XMP ", b"<x tiff:Orientation=\"3\"/>".to_vec());
    let with_xmp = [plain, vec![xmp]].concat();
    assert_eq!(decoded(&with_flags(with_xmp.clone(), |flags| flags & !8)).as_ref(), Ok(&upright));
    assert_ne!(decoded(&with_flags(with_xmp, |flags| flags & !8 | 4)).as_ref(), Ok(&upright));
}

#[test]
fn the_picture_says_whether_a_still_image_has_alpha() {
    for name in ["rgb_lossless.webp", "rgba_lossless.webp"] {
        let chunks = recorded(name);
        let whole = decoded(&file(&chunks)).unwrap();
        assert_eq!(decoded(&with_flags(chunks, |flags| flags ^ 16)), Ok(whole), "{name}");
    }
    let mut opaque = recorded("rgba_lossless.webp");
    content(&mut opaque, *b"VP8L")[4] ^= 16;
    let opaque_in_both = with_flags(opaque.clone(), |flags| flags & !16);
    assert_eq!(decoded(&file(&opaque)), decoded(&opaque_in_both));
    assert_ne!(decoded(&file(&opaque)), decoded(&file(&recorded("rgba_lossless.webp"))));

    // Without alpha in the file, the flag means nothing.
    let lossy = recorded("rgb.webp");
    assert_eq!(decoded(&with_flags(lossy.clone(), |flags| flags | 16)), decoded(&file(&lossy)));
}

#[test]
fn what_libwebp_refuses_is_refused() {
    let pieces = "broken WebP file: its picture is in pieces, or it has two of them";
    let [head, alpha, picture, exif] = <[_; 4]>::try_from(recorded("rgba.webp")).unwrap();
    let unknown = (*b"ABCD", vec![1]);
    let of = |chunks: &[&([u8; 4], Vec<u8>)]| file(&chunks.iter().copied().cloned().collect());
    assert!(decoded(&of(&[&head, &unknown, &alpha, &picture, &unknown])).is_err(), "EXIF data are announced");
    assert!(decoded(&of(&[&head, &unknown, &alpha, &picture, &unknown, &exif])).is_ok());
    for order in [
        [&head, &picture, &alpha, &exif].as_slice(),
        &[&head, &alpha, &unknown, &picture, &exif],
        &[&head, &alpha, &alpha, &picture, &exif],
        &[&head, &alpha, &picture, &picture, &exif],
    ] {
        assert_eq!(reason(&of(order)), pieces);
    }

    let whole = file(&recorded("rgba.webp"));
    let of_length =
        |length: usize| [&whole[..4], &u32::try_from(length).unwrap().to_le_bytes(), &whole[8..], b"abc"].concat();
    assert!(decoded(&of_length(whole.len() - 8)).is_ok());
    assert_eq!(decoded(&of_length(whole.len())), Err(ImageError::Truncated));
    assert_eq!(decoded(&of_length(whole.len() - 9)), Err(ImageError::Truncated));
    assert_eq!(reason(&of_length(whole.len() - 5)), "broken WebP file: its chunks do not fill it");

    let animated = recorded("rgba_animated.webp");
    let none = "broken WebP file: it is said to be an animation and has none";
    assert_eq!(reason(&file(&without(animated.clone(), *b"ANIM"))), none);
    let beside = [animated.clone(), vec![picture]].concat();
    assert_eq!(reason(&file(&beside)), "broken WebP file: it is an animation and has a picture beside it");
    let mut reversed = animated;
    let frame = content(&mut reversed, *b"ANMF");
    let mut parts = chunks(&frame[16..]);
    parts.reverse();
    *frame = [&frame[..16], &written(&parts)].concat();
    let in_frame = "broken WebP file: the picture of its first frame is in pieces, or it has two of them";
    assert_eq!(reason(&file(&reversed)), in_frame);
}
