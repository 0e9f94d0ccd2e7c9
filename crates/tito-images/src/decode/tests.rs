use proptest::prelude::*;

use super::decode;
use crate::{
    decoded::{DecodedImage, ImageLimits},
    error::ImageError,
    golden::{bytes, read, sha256},
};

/// The recorded files, by name.
fn files() -> Vec<(String, Vec<u8>)> {
    let list = read("files.json");
    let names = list.as_array().unwrap().iter().map(|image| image["name"].as_str().unwrap().to_owned());
    names.map(|name| (name.clone(), bytes(&format!("files/{name}")))).collect()
}

fn file(name: &str) -> Vec<u8> {
    bytes(&format!("files/{name}"))
}

fn decoded(encoded: &[u8]) -> Result<DecodedImage, ImageError> {
    decode(encoded, &ImageLimits::default())
}

#[track_caller]
fn reason(encoded: &[u8]) -> String {
    decoded(encoded).unwrap_err().to_string()
}

#[test]
fn pixels_are_those_of_pillow() {
    for image in read("files.json").as_array().unwrap() {
        let name = image["name"].as_str().unwrap();
        let decoded = decoded(&file(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let size = (u64::from(decoded.width()), u64::from(decoded.height()));
        assert_eq!(size, (image["width"].as_u64().unwrap(), image["height"].as_u64().unwrap()), "{name}");
        assert_eq!(sha256(decoded.pixels()), image["pixels"].as_str().unwrap(), "{name}");
    }
}

#[test]
fn more_pixels_than_the_limit_are_refused() {
    let limits = ImageLimits { pixels: 2 };
    for (name, encoded) in files() {
        let error = decode(&encoded, &limits).unwrap_err();
        assert!(matches!(error, ImageError::TooManyPixels { limit: 2, .. }), "{name}: {error}");
    }
}

/// What a file says of its size, in place of what it has said.
fn with_size(mut encoded: Vec<u8>, place: usize, size: &[u8]) -> Vec<u8> {
    encoded[place..place + size.len()].copy_from_slice(size);
    encoded
}

fn place_of(encoded: &[u8], what: &[u8]) -> usize {
    encoded.windows(what.len()).position(|window| window == what).unwrap()
}

fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().unwrap();
    if u64::from(width) * u64::from(height) < 1 << 20 {
        writer.write_image_data(&vec![7; width as usize * height as usize]).unwrap();
    }
    drop(writer);
    file
}

#[test]
fn a_few_bytes_that_declare_a_huge_image_are_refused() {
    let too_many = "exceed the maximum of 178956970 pixels";
    assert!(reason(&png_of(30_000, 30_000)).starts_with("image dimensions 30000x30000 (900000000 pixels)"));
    let jpeg = file("420.jpg");
    let frame = place_of(&jpeg, b"\xff\xc0\0\x11\x08") + 5;
    assert!(reason(&with_size(jpeg, frame, &[0xff; 4])).contains(too_many));
    assert!(reason(&with_size(file("plain.gif"), 6, &[0xff; 4])).contains(too_many));
    let gif = file("plain.gif");
    let frame = place_of(&gif, b"\x2c\0\0\0\0") + 5;
    assert!(reason(&with_size(gif, frame, &[0xff; 4])).contains(too_many));
    let webp = file("rgba.webp");
    let canvas = place_of(&webp, b"VP8X") + 12;
    assert!(reason(&with_size(webp, canvas, &[0xff, 0xff, 0, 0xff, 0x3f, 0])).contains(too_many));
}

#[test]
fn a_webp_frame_that_is_larger_than_the_image_is_refused() {
    for name in ["rgb.webp", "rgba.webp", "rgb_animated.webp"] {
        let webp = file(name);
        let frame = place_of(&webp, b"VP8 ") + 8 + 6;
        let error = reason(&with_size(webp, frame, &[0xff, 0x3f, 0xff, 0x3f]));
        assert_eq!(error, "broken WebP file: a frame has another size than the image", "{name}");
    }
    let webp = file("rgb_animated.webp");
    let frame = place_of(&webp, b"ANMF") + 8 + 6;
    let error = reason(&with_size(webp, frame, &[3]));
    assert_eq!(error, "WebP file not supported: its first frame is smaller than the image");
}

#[test]
fn images_of_no_pixels_are_refused() {
    let jpeg = file("420.jpg");
    let frame = place_of(&jpeg, b"\xff\xc0\0\x11\x08") + 5;
    let error = reason(&with_size(jpeg, frame, &[0; 4]));
    assert_eq!(error, "image dimensions 0x0: the image has no pixels");
    assert_eq!(reason(&with_size(file("plain.gif"), 6, &[0; 4])), "image dimensions 0x0: the image has no pixels");
    assert!(decoded(&with_size(file("exif.png"), 16, &[0; 8])).is_err());
}

#[test]
fn a_long_thin_image_is_decoded() {
    let image = decoded(&png_of(1, 100_000)).unwrap();
    assert_eq!((image.width(), image.height()), (1, 100_000));
    assert!(image.pixels().iter().all(|&byte| byte == 7));
}

#[test]
fn bytes_that_are_no_image_are_refused() {
    for encoded in [&b""[..], b"\x89PNG", b"<svg/>", b"BM", b"RIFF\0\0\0\0WAVE", b"\xff\xd8"] {
        assert_eq!(decoded(encoded), Err(ImageError::NotAnImage));
    }
}

#[test]
fn png_files_whose_pixels_pillow_may_make_up_are_refused() {
    let encoded = file("colour2_8bits.png");
    let end = encoded.len() - 16;
    let mut wrong_sum = encoded.clone();
    // The checksum of the pixels lies before that of their chunk, and the last chunk.
    let data = place_of(&wrong_sum, b"IDAT");
    wrong_sum[end - 1] ^= 1;
    let sum = crc32(&wrong_sum[data..end]);
    wrong_sum[end..end + 4].copy_from_slice(&sum.to_be_bytes());
    let wrong = reason(&wrong_sum);
    assert!(wrong.starts_with("broken PNG file: ") && !wrong.contains("CRC"), "{wrong}");

    let indexed = file("colour3_2bits.png");
    let palette = place_of(&indexed, b"PLTE");
    let length = usize::from(indexed[palette - 1]);
    let without = [&indexed[..palette - 4], &indexed[palette + length + 8..]].concat();
    assert_eq!(reason(&without), "broken PNG file: its palette is missing");
}

/// As PNG files have it.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let digit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| digit(crc)))
}

/// Pillow may fill what is missing; this must not.
#[test]
fn a_file_that_is_cut_off_is_refused_unless_all_pixels_are_there() {
    for (name, encoded) in files() {
        let whole = decoded(&encoded).unwrap();
        for length in (0..encoded.len()).step_by(23).chain(encoded.len().saturating_sub(20)..encoded.len()) {
            if let Ok(cut) = decoded(&encoded[..length]) {
                assert_eq!(cut, whole, "{name}: {length} of {} bytes", encoded.len());
            }
        }
    }
}

#[test]
fn a_cut_off_file_is_said_to_be_truncated() {
    for name in ["exif.png", "420.jpg", "444_progressive.jpg"] {
        let encoded = file(name);
        assert_eq!(decoded(&encoded[..encoded.len() * 3 / 4]), Err(ImageError::Truncated), "{name}");
    }
}

#[test]
fn jpeg_files_that_would_not_come_out_as_in_libjpeg_are_refused() {
    let baseline = file("420.jpg");
    let frame = place_of(&baseline, b"\xff\xc0\0\x11\x08");
    let kind = |marker: u8| reason(&with_size(baseline.clone(), frame + 1, &[marker]));
    assert!(kind(0xc9).contains("neither baseline nor progressive"), "{}", kind(0xc9));
    assert!(kind(0xc3).contains("neither baseline nor progressive"));
    assert!(reason(&with_size(baseline.clone(), frame + 4, &[12])).contains("its samples have 12 bits"));

    // The last scan sharpens the brightness.
    let progressive = file("444_progressive.jpg");
    let scans = progressive.windows(2).enumerate().filter(|(_, bytes)| *bytes == b"\xff\xda");
    let last = scans.map(|(place, _)| place).next_back().unwrap();
    let unsharp = [&progressive[..last], b"\xff\xd9"].concat();
    assert!(reason(&unsharp).contains("scans are missing that would make it sharp"), "{}", reason(&unsharp));

    // libjpeg gives up at these, and Pillow shows what it has by then.
    let scan = place_of(&baseline, b"\xff\xda\0\x0c");
    assert_eq!(reason(&with_size(baseline.clone(), scan + 3, &[13])), "broken JPEG file: a scan is described wrongly");
    let more =
        [&baseline[..frame + 3], b"\x12", &baseline[frame + 4..frame + 19], b"\0", &baseline[frame + 19..]].concat();
    assert_eq!(reason(&more), "broken JPEG file: its components are described wrongly");

    let restarts = file("restarts.jpg");
    let second = place_of(&restarts, b"\xff\xd1");
    let without = [&restarts[..second], &restarts[second + 2..]].concat();
    assert_eq!(reason(&without), "broken JPEG file: a restart marker is missing");

    let separate = file("scan_by_scan.jpg");
    let scans = separate.windows(2).enumerate().filter(|(_, bytes)| *bytes == b"\xff\xda").map(|(place, _)| place);
    let last = scans.max().unwrap();
    assert_eq!(reason(&[&separate[..last], b"\xff\xd9"].concat()), "broken JPEG file: a component is missing");
}

/// Places of the beginnings of scans.
fn scans(jpeg: &[u8]) -> Vec<usize> {
    jpeg.windows(2).enumerate().filter(|(_, bytes)| *bytes == b"\xff\xda").map(|(place, _)| place).collect()
}

fn with_inserted(encoded: &[u8], place: usize, more: &[u8]) -> Vec<u8> {
    [&encoded[..place], more, &encoded[place..]].concat()
}

/// As Pillow 13 and its libjpeg-turbo do.
#[test]
fn segments_of_a_jpeg_file_count_up_to_its_first_scan() {
    let exif = b"\xff\xe1\0\x20Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0";
    let xmp = b"\xff\xe1\0\x37http://ns.adobe.com/xap/1.0/\0tiff:Orientation=\"3\"....";
    let adobe = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0";
    let jfif = |jpeg: &[u8]| place_of(jpeg, b"\xff\xe0\0\x10JFIF");
    for name in ["420.jpg", "444_progressive.jpg"] {
        let jpeg = file(name);
        // Without it, Adobe's segment counts.
        let jpeg = [&jpeg[..jfif(&jpeg)], &jpeg[jfif(&jpeg) + 18..]].concat();
        let plain = decoded(&jpeg).unwrap();
        for segment in [&exif[..], xmp, adobe] {
            let at = |place: usize| decoded(&with_inserted(&jpeg, place, segment)).unwrap();
            assert_ne!(at(scans(&jpeg)[0]), plain, "{name}");
            assert_eq!(at(jpeg.len() - 2), plain, "{name}");
            assert!(scans(&jpeg).get(1).is_none_or(|&second| at(second) == plain), "{name}");
        }
    }
}

/// A scan may stand behind a marker that nobody knows. libjpeg gives up at those, too.
#[test]
fn unknown_markers_of_a_jpeg_file_are_refused() {
    let unknown = "broken JPEG file: it has an unknown marker";
    let progressive = file("444_progressive.jpg");
    for scan in scans(&progressive) {
        assert_eq!(reason(&with_size(progressive.clone(), scan + 1, &[0xfa])), unknown);
    }
    for name in ["420.jpg", "444_progressive.jpg"] {
        let jpeg = file(name);
        let places = [2].into_iter().chain(scans(&jpeg)).chain([jpeg.len() - 2]);
        for place in places {
            for marker in (0x02..=0xbf).chain([0xde, 0xdf]).chain(0xf0..=0xfd) {
                assert_eq!(reason(&with_inserted(&jpeg, place, &[0xff, marker, 0, 4, 0, 0])), unknown, "{marker:x}");
            }
            for marker in [0xdc, 0xe2, 0xef, 0xfe] {
                assert_eq!(decoded(&with_inserted(&jpeg, place, &[0xff, marker, 0, 4, 0, 0])), decoded(&jpeg));
            }
        }
    }
}

#[test]
fn a_huffman_code_of_ones_is_refused_where_a_scan_uses_its_table() {
    let jpeg = file("grey.jpg");
    let scan = scans(&jpeg)[0];
    // Two codes, 0 and 1, of one bit each.
    let table = |head: u8| [&[0xff, 0xc4, 0, 21, head, 2][..], &[0; 15], &[0, 1]].concat();
    for head in [0x00, 0x10] {
        let error = reason(&with_inserted(&jpeg, scan, &table(head)));
        assert_eq!(error, "broken JPEG file: a Huffman code is all ones");
    }
    for head in [0x01, 0x11, 0x03, 0x13] {
        assert_eq!(decoded(&with_inserted(&jpeg, scan, &table(head))), decoded(&jpeg));
    }
    // The table is replaced before it is used.
    assert_eq!(decoded(&with_inserted(&jpeg, 2, &table(0x00))), decoded(&jpeg));
}

#[test]
fn a_jpeg_file_of_very_many_scans_is_refused() {
    let jpeg = file("grey.jpg");
    let (frame, scan) = (place_of(&jpeg, b"\xff\xc0"), place_of(&jpeg, b"\xff\xda"));
    let progressive = with_size(jpeg[..scan].to_vec(), frame + 1, &[0xc2]);
    // A scan of nothing: the digits that there are none of below the lowest.
    let empty = b"\xff\xda\0\x08\x01\x01\0\0\0\x0d\0".repeat(300);
    assert!(decoded(&[&progressive[..], &empty, b"\xff\xd9"].concat()).is_err());
}

fn small(encoded: &[u8]) -> Result<DecodedImage, ImageError> {
    decode(encoded, &ImageLimits { pixels: 1 << 14 })
}

proptest! {
    #[test]
    fn damaged_files_do_no_harm(index: prop::sample::Index, damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let files = files();
        let mut encoded = index.get(&files).1.clone();
        for (place, byte) in damage {
            let place = place.index(encoded.len());
            encoded[place] = byte;
        }
        if let Ok(image) = small(&encoded) {
            prop_assert!(image.width() * image.height() <= 1 << 14);
        }
    }

    #[test]
    fn any_bytes_after_the_first_ones_do_no_harm(kind in 0_usize..6, bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let start: &[u8] = [
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice(),
            b"\xff\xd8\xff",
            b"\xff\xd8\xff\xc2\0\x0b\x08\0\x10\0\x10\x01\x01\x22\0",
            b"RIFF\xff\xff\0\0WEBPVP8 \xff\xff\0\0",
            b"RIFF\xff\xff\0\0WEBPVP8L\xff\xff\0\0\x2f",
            b"GIF89a",
        ][kind];
        let _ = small(&[start, &bytes].concat());
    }
}
