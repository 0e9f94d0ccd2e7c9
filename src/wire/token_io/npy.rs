//! Matrices as clients of vLLM read them: the file format of `numpy` in base64.

use base64::{Engine, prelude::BASE64_STANDARD};

/// What is before the length of the header: the magic, and the version 1.0.
const MAGIC: &[u8; 8] = b"\x93NUMPY\x01\x00";
/// The numbers begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// Encodes a matrix of f32 with `columns` columns, given row by row, as an `.npy` file in base64.
///
/// See <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
pub(crate) fn encode(numbers: &[f32], columns: usize) -> String {
    let rows = numbers.len() / columns.max(1);
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let before = MAGIC.len() + size_of::<u16>();
    // The header ends with a line feed.
    let end = (before + header.len() + 1).next_multiple_of(ALIGNMENT);
    header.push_str(&" ".repeat(end - before - header.len() - 1));
    header.push('\n');
    let length = u16::try_from(header.len()).expect("a header of some hundred bytes");
    let mut file = Vec::with_capacity(end + size_of_val(numbers));
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    BASE64_STANDARD.encode(file)
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
}
