//! How codes lie in a device's memory.

use crate::engine::native::weights::{Code, CodedRows};

/// How the numbers of a matrix are in codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packing {
    /// The type of the codes.
    pub(super) code: Code,
    /// Numbers of a row.
    pub(super) columns: usize,
    /// How many of them share a scale.
    pub(super) group: usize,
    /// Whether products with scales are rounded to bf16, in f32 too.
    pub(super) is_rounded: bool,
}

impl Packing {
    /// That of these rows.
    pub(super) fn of(rows: &dyn CodedRows) -> Self {
        let columns = rows.columns();
        let group = rows.group().min(columns.max(1));
        Self { code: rows.code(), columns, group, is_rounded: rows.is_rounded() }
    }

    /// How many codes a byte has.
    pub(super) fn per_byte(self) -> usize {
        match self.code {
            Code::E4m3 => 1,
            Code::E2m1 => 2,
        }
    }

    /// The bytes of a row.
    pub(super) fn row_bytes(self) -> usize {
        self.columns.div_ceil(self.per_byte())
    }

    /// The scales of a row.
    pub(super) fn groups(self) -> usize {
        self.columns.div_ceil(self.group)
    }

    /// The bytes of rows of codes. Of two in a byte, the first is in the lower half.
    pub(super) fn packed(self, codes: Vec<u8>) -> Vec<u8> {
        if self.per_byte() == 1 {
            return codes;
        }
        let rows = codes.chunks_exact(self.columns.max(1));
        let two = |two: &[u8]| two[0] & 0xf | two.get(1).map_or(0, |second| second << 4);
        rows.flat_map(|row| row.chunks(2).map(two)).collect()
    }
}
