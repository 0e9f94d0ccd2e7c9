//! Files of images as others read them.

use base64::{Engine, prelude::BASE64_STANDARD};

/// The media type of a file that was read as an image: by its first bytes, and always that of an image.
pub(crate) fn media_type(file: &[u8]) -> &'static str {
    match file {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => "image/jpeg",
    }
}

/// The `data:` URL of a file.
pub(super) fn data_url(file: &[u8]) -> String {
    format!("data:{};base64,{}", media_type(file), BASE64_STANDARD.encode(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_that_of_the_first_bytes() {
        let types = [
            (&b"\x89PNG\r\n"[..], "image/png"),
            (b"GIF89a", "image/gif"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
            (b"\xff\xd8\xff", "image/jpeg"),
            (b"<svg>", "image/jpeg"),
            (b"", "image/jpeg"),
        ];
        for (file, expected) in types {
            assert_eq!(media_type(file), expected);
        }
        assert_eq!(data_url(b"GIF8"), "data:image/gif;base64,R0lGOA==");
    }
}
