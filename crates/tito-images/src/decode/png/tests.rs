//! What Pillow 12.3 and 13.0 make of each file was looked up by running them.

use super::{super::decode, from_digits};
use crate::decoded::ImageLimits;

/// The name of a chunk and what it holds.
type Chunk<'a> = (&'a [u8; 4], &'a [u8]);

/// An image of two pixels of eight bits or fewer, with chunks before its pixels and behind them.
fn png(colour: u8, bits: u8, before: &[Chunk<'_>], behind: &[Chunk<'_>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 2, 1);
    let (colour, samples) = match colour {
        0 => (png::ColorType::Grayscale, vec![0b0100_0000; 1 + usize::from(bits == 8)]),
        2 => (png::ColorType::Rgb, vec![1, 2, 3, 4, 5, 6]),
        _ => (png::ColorType::Indexed, vec![0, 1]),
    };
    encoder.set_color(colour);
    encoder.set_depth(if bits == 1 { png::BitDepth::One } else { png::BitDepth::Eight });
    if colour == png::ColorType::Indexed {
        // It is wanted, but the file gets its own.
        encoder.set_palette(vec![0; 6]);
    }
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&samples).unwrap();
    drop(writer);
    let place = |name: &[u8]| file.windows(4).position(|window| window == name).unwrap() - 4;
    let (head, pixels, end) = (&file[..33], &file[place(b"IDAT")..place(b"IEND")], &file[place(b"IEND")..]);
    [head, &written(before), pixels, &written(behind), end].concat()
}

fn written(chunks: &[Chunk<'_>]) -> Vec<u8> {
    let mut file = Vec::new();
    for &(name, content) in chunks {
        let named = [&name[..], content].concat();
        file.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
        file.extend(&named);
        file.extend(super::super::tests::crc32(&named).to_be_bytes());
    }
    file
}

fn pixels(encoded: &[u8]) -> Result<Vec<u8>, String> {
    let image = decode(encoded, &ImageLimits::default()).map_err(|error| error.to_string())?;
    Ok(image.pixels().to_vec())
}

#[track_caller]
fn refused(encoded: &[u8], what: &str) {
    assert_eq!(pixels(encoded), Err(format!("PNG file not supported: {what}")));
}

const PALETTE: Chunk<'_> = (b"PLTE", &[1, 2, 3, 4, 5, 6]);
const AS_IT_IS: [u8; 6] = [1, 2, 3, 4, 5, 6];
const MIRRORED: [u8; 6] = [4, 5, 6, 1, 2, 3];
const EXIF_2: &[u8] = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x02\0\0\0\0\0\0\0";
const XMP_2: &[u8] = b"XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation=\"2\"/>";
const EXIF: Chunk<'_> = (b"eXIf", EXIF_2);
const XMP: Chunk<'_> = (b"iTXt", XMP_2);

fn profile() -> Vec<u8> {
    let digits = EXIF_2.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    format!("Raw profile type exif\0\nexif\n      26\n{digits}\n").into_bytes()
}

#[test]
fn transparent_colours_that_are_out_of_place_or_doubled_are_refused() {
    let indexed = |before: &[Chunk<'_>], behind: &[Chunk<'_>]| png(3, 8, before, behind);
    let clear: Chunk<'_> = (b"tRNS", &[255, 0]);
    assert_eq!(pixels(&indexed(&[PALETTE, clear], &[])), Ok(vec![1, 2, 3, 255, 255, 255]));
    let place = "its transparent colours are in the wrong place";
    refused(&indexed(&[clear, PALETTE], &[]), place);
    refused(&indexed(&[PALETTE], &[clear]), place);
    refused(&indexed(&[PALETTE, clear, clear], &[]), "it has transparent colours more than once");
    refused(&indexed(&[PALETTE, PALETTE], &[]), "it has palettes more than once");
    refused(&png(0, 8, &[], &[(b"tRNS", &[0, 64])]), place);
    refused(&png(2, 8, &[], &[(b"tRNS", &[0, 1, 0, 2, 0, 3])]), place);
    refused(&indexed(&[PALETTE, (b"tRNS", b"\0\xff\n")], &[]), "Pillow reads its transparent colours as one");
    refused(&png(0, 8, &[(b"tRNS", &[0, 64, 0])], &[]), "its transparent colours have a wrong length");
}

#[test]
fn the_transparent_colour_of_black_and_white_is_one_of_them() {
    let of = |number: [u8; 2]| png(0, 1, &[(b"tRNS", &number)], &[]);
    let (black, white) = ([0; 3], [255; 3]);
    assert_eq!(pixels(&png(0, 1, &[], &[])), Ok([black, white].concat()));
    assert_eq!(pixels(&of([0, 0])), Ok([white, white].concat()));
    assert_eq!(pixels(&of([1, 1])), Ok([black, white].concat()));
    refused(&of([1, 0]), "its transparent colour is neither black nor white");
}

#[test]
fn exif_and_xmp_data_turn_an_image_wherever_they_are() {
    let profile = profile();
    let profile: Chunk<'_> = (b"tEXt", &profile);
    assert_eq!(pixels(&png(2, 8, &[], &[])), Ok(AS_IT_IS.to_vec()));
    for chunk in [EXIF, XMP, profile] {
        assert_eq!(pixels(&png(2, 8, &[chunk], &[])), Ok(MIRRORED.to_vec()), "{:?}", chunk.0);
        assert_eq!(pixels(&png(2, 8, &[], &[chunk])), Ok(MIRRORED.to_vec()), "{:?}", chunk.0);
    }
    // The chunk counts before the text, and XMP data last.
    let upright: Chunk<'_> = (b"eXIf", b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x01\0\0\0\0\0\0\0");
    assert_eq!(pixels(&png(2, 8, &[profile, XMP], &[upright])), Ok(AS_IT_IS.to_vec()));
    let none: Chunk<'_> = (b"eXIf", b"");
    assert_eq!(pixels(&png(2, 8, &[profile, XMP, none], &[])), Ok(MIRRORED.to_vec()));
    assert_eq!(pixels(&png(2, 8, &[profile, none], &[])), Ok(AS_IT_IS.to_vec()));
    // Pillow puts one prefix before those of the chunk, and drops two.
    let prefixed = [b"Exif\0\0", EXIF_2].concat();
    assert_eq!(pixels(&png(2, 8, &[(b"eXIf", &prefixed)], &[])), Ok(MIRRORED.to_vec()));
}

#[test]
fn doubled_metadata_and_those_in_other_texts_are_refused() {
    let profile = profile();
    let profile: Chunk<'_> = (b"tEXt", &profile);
    refused(&png(2, 8, &[EXIF], &[EXIF]), "it has EXIF data more than once");
    refused(&png(2, 8, &[XMP, XMP], &[]), "it has XMP data more than once");
    refused(&png(2, 8, &[profile], &[profile]), "it has EXIF data in a text more than once");
    refused(&png(2, 8, &[(b"tEXt", XMP_2)], &[]), "it has XML:com.adobe.xmp in a text of another kind");
    refused(&png(2, 8, &[(b"iTXt", profile.1)], &[]), "it has Raw profile type exif in a text of another kind");
    for keyword in ["exif", "xmp", "interlace", "transparency", "bbox"] {
        let what = format!("it has a text {keyword:?}, which Pillow confuses with something else");
        refused(&png(2, 8, &[(b"tEXt", &[keyword.as_bytes(), b"\x001"].concat())], &[]), &what);
    }
    assert!(pixels(&png(2, 8, &[(b"tEXt", b"Comment\x001")], &[])).is_ok());
    // Pillow reads it, as it does not decode what it looks for.
    let no_text: Chunk<'_> = (b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0\xff<x tiff:Orientation=\"2\"/>");
    let error = pixels(&png(2, 8, &[no_text], &[])).unwrap_err();
    assert_eq!(error, "broken PNG file: it has metadata in a text that cannot be read");
}

/// An animation's frame of so many pixels.
fn frame(number: u8, width: u8) -> Vec<u8> {
    [&[0, 0, 0, number, 0, 0, 0, width, 0, 0, 0, 1][..], &[0; 8], &[0, 1, 0, 1, 0, 0]].concat()
}

#[test]
fn pillow_reads_an_animation_up_to_its_second_frame() {
    let (first, second) = (frame(0, 2), frame(1, 2));
    let animation: [Chunk<'_>; 2] = [(b"acTL", &[0, 0, 0, 2, 0, 0, 0, 0]), (b"fcTL", &first)];
    assert_eq!(pixels(&png(2, 8, &animation, &[EXIF])), Ok(MIRRORED.to_vec()));
    refused(&png(2, 8, &animation, &[(b"fcTL", &second), EXIF]), "it has EXIF data behind its first frame");
    // Also where nothing says that it is one.
    refused(&png(2, 8, &[(b"fcTL", &frame(0, 1))], &[]), "its first frame is smaller than the image");
}

#[test]
fn digits_are_read_as_python_reads_them() {
    let of = |digits: &str| from_digits(&format!("\nexif\n2\n{digits}"));
    assert_eq!(of("4a4B"), Some(b"JK".to_vec()));
    assert_eq!(of(" 4a \t\u{b}\r4b\n"), Some(b"JK".to_vec()));
    assert_eq!(of("4\na"), Some(b"J".to_vec()));
    for wrong in ["4 a", "4", "4g", "\u{a0}4a", "\u{1f}4a"] {
        assert_eq!(of(wrong), None, "{wrong:?}");
    }
    assert_eq!(from_digits("exif\n4a"), Some(Vec::new()));
}
