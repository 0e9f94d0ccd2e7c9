//! Rows as they are stored, put into packed blocks and taken out of them, without a look at the numbers.
//!
//! A block of a matrix holds, for each place along its rows, four bytes of each of 16 rows: one number of f32, or two of
//! bf16. So packing turns rows of such units into columns, whatever the units are.

use super::LANES;

const _: () = assert!(cfg!(target_endian = "little"), "numbers lie in memory as safetensors files have them");

/// Four bytes of a row.
pub(super) type Unit = [u8; 4];

/// Units of a row that are turned at a time.
const TILE: usize = 16;

/// Writes whole rows into the lanes of a block, from `lane` on.
///
/// # Panics
/// If the rows are longer than the block, or more than it has lanes for.
pub(super) fn pack(block: &mut [Unit], lane: usize, row_bytes: usize, rows: &[u8]) {
    if row_bytes == 0 {
        return;
    }
    assert!(rows.len() / row_bytes <= LANES - lane, "more rows than lanes");
    let units = row_bytes / size_of::<Unit>();
    let places = block.as_chunks_mut::<LANES>().0;
    let begun = if rows.len() == LANES * row_bytes { pack_tiles(places, row_bytes, rows) } else { 0 };
    for (lane, row) in (lane..).zip(rows.chunks_exact(row_bytes)) {
        let (whole, half) = row.as_chunks::<4>();
        for (place, unit) in places[begun..units].iter_mut().zip(&whole[begun..]) {
            place[lane] = *unit;
        }
        if !half.is_empty() {
            places[units][lane][..half.len()].copy_from_slice(half);
        }
    }
}

/// Writes rows for all lanes, tile by tile; returns how many units of each row were written.
fn pack_tiles(places: &mut [[Unit; LANES]], row_bytes: usize, rows: &[u8]) -> usize {
    let tiles = row_bytes / size_of::<Unit>() / TILE;
    for (number, places) in places.as_chunks_mut::<TILE>().0[..tiles].iter_mut().enumerate() {
        let mut tile = [[Unit::default(); TILE]; LANES];
        for (row, tile) in rows.chunks_exact(row_bytes).zip(&mut tile) {
            *tile = row.as_chunks::<4>().0.as_chunks::<TILE>().0[number];
        }
        for (unit, place) in places.iter_mut().enumerate() {
            for (lane, to) in place.iter_mut().enumerate() {
                *to = tile[lane][unit];
            }
        }
    }
    tiles * TILE
}

/// Reads whole rows from the lanes of a block, from `lane` on; the counterpart of [`pack`].
///
/// # Panics
/// As [`pack`].
pub(super) fn unpack(block: &[Unit], lane: usize, row_bytes: usize, rows: &mut [u8]) {
    if row_bytes == 0 {
        return;
    }
    assert!(rows.len() / row_bytes <= LANES - lane, "more rows than lanes");
    let units = row_bytes / size_of::<Unit>();
    let places = block.as_chunks::<LANES>().0;
    let begun = if rows.len() == LANES * row_bytes { unpack_tiles(places, row_bytes, rows) } else { 0 };
    for (lane, row) in (lane..).zip(rows.chunks_exact_mut(row_bytes)) {
        let (whole, half) = row.as_chunks_mut::<4>();
        for (place, unit) in places[begun..units].iter().zip(&mut whole[begun..]) {
            *unit = place[lane];
        }
        if !half.is_empty() {
            half.copy_from_slice(&places[units][lane][..half.len()]);
        }
    }
}

fn unpack_tiles(places: &[[Unit; LANES]], row_bytes: usize, rows: &mut [u8]) -> usize {
    let tiles = row_bytes / size_of::<Unit>() / TILE;
    for (number, places) in places.as_chunks::<TILE>().0[..tiles].iter().enumerate() {
        let mut tile = [[Unit::default(); TILE]; LANES];
        for (unit, place) in places.iter().enumerate() {
            for (lane, from) in place.iter().enumerate() {
                tile[lane][unit] = *from;
            }
        }
        for (row, tile) in rows.chunks_exact_mut(row_bytes).zip(&tile) {
            row.as_chunks_mut::<4>().0.as_chunks_mut::<TILE>().0[number] = *tile;
        }
    }
    tiles * TILE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_taken_out_again_and_nothing_else_is_written() {
        for row_bytes in [0, 2, 4, 14, 64, 66, 68, 200] {
            for (lane, count) in [(0, LANES), (0, 3), (5, 11), (15, 1), (3, 0)] {
                let rows: Vec<u8> = (0..row_bytes * count).map(|byte| u8::try_from(byte % 251 + 1).unwrap()).collect();
                let mut block = vec![Unit::default(); (row_bytes.div_ceil(4) + 3) * LANES];
                pack(&mut block, lane, row_bytes, &rows);
                let mut read = vec![0; rows.len()];
                unpack(&block, lane, row_bytes, &mut read);
                assert_eq!(read, rows, "{row_bytes} bytes, lane {lane}");
                let written = block.as_flattened().iter().filter(|byte| **byte != 0).count();
                assert_eq!(written, rows.len());
                if let Some(first) = rows.first() {
                    assert_eq!(block[lane][0], *first);
                }
            }
        }
    }
}
