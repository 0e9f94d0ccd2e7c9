//! Arrays as clients of vLLM read and write them: the file format of `numpy` in base64.
//!
//! See <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use base64::{Engine, prelude::BASE64_STANDARD};

/// What is before the version of the format.
const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The numbers begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// Encodes a matrix of f32 with `columns` columns, given row by row, as an `.npy` file in base64.
pub(crate) fn encode(numbers: &[f32], columns: usize) -> String {
    let rows = numbers.len() / columns.max(1);
    file("<f4", &[rows, columns], numbers.iter().flat_map(|number| number.to_le_bytes()))
}

/// Encodes an array of these sizes as an `.npy` file in base64; `dtype` is the type of its numbers, the bytes of which
/// are little-endian.
pub(crate) fn file(dtype: &str, shape: &[usize], bytes: impl Iterator<Item = u8>) -> String {
    let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({}), }}", sizes.join(", "));
    // The version is 1.0; its header has a length of two bytes, and ends with a line feed.
    let before = MAGIC.len() + 2 + size_of::<u16>();
    let end = (before + header.len() + 1).next_multiple_of(ALIGNMENT);
    header.push_str(&" ".repeat(end - before - header.len() - 1));
    header.push('\n');
    let length = u16::try_from(header.len()).expect("a header of some hundred bytes");
    let mut file = Vec::with_capacity(end);
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&[1, 0]);
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend(bytes);
    BASE64_STANDARD.encode(file)
}

/// What an `.npy` file holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Array<'a> {
    /// The type of its numbers, as the file names it.
    pub dtype: &'a str,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub bytes: &'a [u8],
}

/// Reads an `.npy` file whose numbers are in C order; `None` if it is none.
pub(crate) fn read(file: &[u8]) -> Option<Array<'_>> {
    let rest = file.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (length, rest) = match version[0] {
        1 => rest.split_first_chunk::<2>().map(|(length, rest)| (u32::from(u16::from_le_bytes(*length)), rest))?,
        2 | 3 => rest.split_first_chunk::<4>().map(|(length, rest)| (u32::from_le_bytes(*length), rest))?,
        _ => return None,
    };
    let (header, bytes) = rest.split_at_checked(length as usize)?;
    let header = std::str::from_utf8(header).ok()?;
    let after = |key: &str| header.split_once(key).map(|(_, value)| value.trim_start());
    let dtype = after("'descr':")?.strip_prefix('\'')?.split_once('\'')?.0;
    if !after("'fortran_order':")?.starts_with("False") {
        return None;
    }
    let sizes = after("'shape':")?.strip_prefix('(')?.split_once(')')?.0;
    let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
    Some(Array { dtype, shape: sizes.map(|size| size.parse().ok()).collect::<Option<_>>()?, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numpy_reads_the_same_matrix() {
        // np.save of np.array([[-0.5, -np.inf], [-1.25, -2]], dtype=np.float32), NumPy 2.3.
        let saved = "k05VTVBZAQB2AHsnZGVzY3InOiAnPGY0JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsIDIpLCB9ICAgICAgICAgICAg\
                     ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAC/AACA/wAAoL8AAADA";
        assert_eq!(encode(&[-0.5, f32::NEG_INFINITY, -1.25, -2.0], 2), saved);
    }

    #[test]
    fn what_was_written_is_read() {
        let written = BASE64_STANDARD.decode(file("<u2", &[1, 3, 1], [1, 0, 2, 0, 3, 1].into_iter())).unwrap();
        let array = Array { dtype: "<u2", shape: vec![1, 3, 1], bytes: &[1, 0, 2, 0, 3, 1] };
        assert_eq!(read(&written), Some(array));
        for cut in 0..written.len() - 6 {
            assert_eq!(read(&written[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn arrays_in_fortran_order_are_not_read() {
        let file = |order| {
            let header = format!("{{'descr': '|u1', 'fortran_order': {order}, 'shape': (1,), }}\n");
            let length = u16::try_from(header.len()).unwrap().to_le_bytes();
            [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), &[7]].concat()
        };
        assert_eq!(read(&file("False")).unwrap().shape, [1]);
        assert_eq!(read(&file("True")), None);
    }
}
