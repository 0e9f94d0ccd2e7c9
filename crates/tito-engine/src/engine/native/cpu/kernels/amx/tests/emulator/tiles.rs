//! The eight tiles and what the instructions do to them, as Intel's manual has it.
//!
//! Refuses whatever a processor would fault on.

use super::decode::{Address, Instruction, Registers};

const TILES: usize = 8;
const ROWS: usize = 16;
const ROW_BYTES: usize = 64;

/// Why a processor would raise #UD or #GP.
pub(super) type Fault = &'static str;

type Tile = [[u8; ROW_BYTES]; ROWS];

/// The state of one thread. A tile of no rows is not configured.
pub(super) struct Tiles {
    rows: [u8; TILES],
    row_bytes: [u8; TILES],
    data: [Tile; TILES],
}

impl Tiles {
    pub(super) const fn released() -> Self {
        Self { rows: [0; TILES], row_bytes: [0; TILES], data: [[[0; ROW_BYTES]; ROWS]; TILES] }
    }

    /// # Safety
    ///
    /// What the instruction reads and writes must be readable and writable.
    pub(super) unsafe fn execute(&mut self, instruction: &Instruction, registers: &Registers) -> Result<(), Fault> {
        match instruction {
            Instruction::LoadConfig(address) => {
                let config = address.plain(registers) as *const [u8; 64];
                // SAFETY: the caller's promise.
                self.configure(&unsafe { config.read() })
            }
            Instruction::Release => {
                *self = Self::released();
                Ok(())
            }
            Instruction::Zero { tile } => self.set(*tile, &[[0; ROW_BYTES]; ROWS]),
            // SAFETY: the caller's promise.
            Instruction::Load { tile, from } => unsafe { self.load(*tile, from, registers) },
            // SAFETY: the caller's promise.
            Instruction::Store { tile, to } => unsafe { self.store(*tile, to, registers) },
            Instruction::DotBf16 { c, a, b } => self.dot(*c, *a, *b),
        }
    }

    /// What `LDTILECFG` reads: the palette, the first row to load, then from byte 16 on the bytes a row of sixteen
    /// tiles, 16 bits each, from byte 48 on their rows, 8 bits each.
    pub(super) fn configure(&mut self, config: &[u8; 64]) -> Result<(), Fault> {
        *self = Self::released();
        match config[0] {
            0 => return Ok(()),
            1 => {}
            _ => return Err("there is no such palette"),
        }
        let unused = [&config[1..16], &config[32..48], &config[56..64]];
        if unused.iter().any(|bytes| bytes.iter().any(|byte| *byte != 0)) {
            return Err("a reserved byte of the tile configuration is in use, or loads do not start at row 0");
        }
        for tile in 0..TILES {
            let (row_bytes, rows) = (&config[16 + 2 * tile..][..2], config[48 + tile]);
            if row_bytes[1] != 0 || usize::from(row_bytes[0]) > ROW_BYTES || usize::from(rows) > ROWS {
                return Err("a tile is configured larger than it can be");
            }
            if (row_bytes[0] == 0) != (rows == 0) {
                return Err("a tile is configured with rows but no columns, or the other way round");
            }
            (self.rows[tile], self.row_bytes[tile]) = (rows, row_bytes[0]);
        }
        Ok(())
    }

    /// Rows and bytes a row of a tile.
    fn shape(&self, tile: u8) -> Result<(u8, u8), Fault> {
        let tile = usize::from(tile);
        let configured = self.rows[tile] != 0;
        configured.then_some((self.rows[tile], self.row_bytes[tile])).ok_or("a tile that is not configured is used")
    }

    fn set(&mut self, tile: u8, data: &Tile) -> Result<(), Fault> {
        self.shape(tile)?;
        self.data[usize::from(tile)] = *data;
        Ok(())
    }

    unsafe fn load(&mut self, tile: u8, from: &Address, registers: &Registers) -> Result<(), Fault> {
        let (rows, row_bytes) = self.shape(tile)?;
        let mut data = [[0; ROW_BYTES]; ROWS];
        for row in 0..rows {
            let source = from.of_row(row, registers) as *const u8;
            // SAFETY: the caller's promise.
            unsafe { source.copy_to_nonoverlapping(data[usize::from(row)].as_mut_ptr(), row_bytes.into()) };
        }
        self.set(tile, &data)
    }

    unsafe fn store(&self, tile: u8, to: &Address, registers: &Registers) -> Result<(), Fault> {
        let (rows, row_bytes) = self.shape(tile)?;
        for row in 0..rows {
            let target = to.of_row(row, registers) as *mut u8;
            let data = &self.data[usize::from(tile)][usize::from(row)];
            // SAFETY: the caller's promise.
            unsafe { target.copy_from_nonoverlapping(data.as_ptr(), row_bytes.into()) };
        }
        Ok(())
    }

    fn dot(&mut self, c: u8, a: u8, b: u8) -> Result<(), Fault> {
        if c == a || a == b || b == c {
            return Err("tdpbf16ps has one tile twice");
        }
        let (of_c, of_a, of_b) = (self.shape(c)?, self.shape(a)?, self.shape(b)?);
        if (of_c.1 | of_a.1 | of_b.1) & 3 != 0 {
            return Err("tdpbf16ps has a row that is not a whole number of pairs");
        }
        if of_c.0 != of_a.0 || of_a.1 / 4 != of_b.0 || of_c.1 != of_b.1 {
            return Err("tdpbf16ps has tiles whose shapes do not match");
        }
        let (row_of_a, columns) = (usize::from(of_a.1 / 2), usize::from(of_c.1 / 4));
        let b = columns_of_pairs(&self.data[usize::from(b)]);
        for row in 0..usize::from(of_c.0) {
            let a = widen_row(&self.data[usize::from(a)][row]);
            let c = &mut self.data[usize::from(c)][row];
            for (column, b) in b[..columns].iter().enumerate() {
                let place = &mut c[4 * column..][..4];
                let before = f32::from_le_bytes(place.try_into().expect("four bytes"));
                place.copy_from_slice(&step(before, &a[..row_of_a], b).to_le_bytes());
            }
        }
        Ok(())
    }
}

fn widen_row(row: &[u8; ROW_BYTES]) -> [f32; 32] {
    std::array::from_fn(|at| widen(u16::from_le_bytes([row[2 * at], row[2 * at + 1]])))
}

/// The columns of a tile whose rows hold pairs of numbers.
fn columns_of_pairs(tile: &Tile) -> [[f32; 32]; 16] {
    let mut columns = [[0.0; 32]; 16];
    for (pair, row) in tile.iter().enumerate() {
        for (at, number) in widen_row(row).into_iter().enumerate() {
            columns[at / 2][2 * pair + at % 2] = number;
        }
    }
    columns
}

/// What `TDPBF16PS` makes of one element of C: the even products of a step, and the odd ones, have a sum each.
pub(in super::super) fn step(c: f32, a: &[f32], b: &[f32]) -> f32 {
    let (mut even, mut odd) = (0.0, 0.0);
    let mut k = 0;
    // No iterator: unoptimised, they would take most of the tests' time.
    while k < a.len() {
        even = flush(a[k].mul_add(b[k], even));
        odd = flush(a[k + 1].mul_add(b[k + 1], odd));
        k += 2;
    }
    flush(flush(c) + flush(even + odd))
}

/// A bf16 number, zero if it is subnormal.
pub(in super::super) fn widen(bits: u16) -> f32 {
    flush(f32::from_bits(u32::from(bits) << 16))
}

fn flush(number: f32) -> f32 {
    if number.is_subnormal() { 0.0_f32.copysign(number) } else { number }
}

#[cfg(test)]
mod tests {
    use super::{Fault, Tiles, step, widen};

    fn config(shapes: &[(u8, u8)]) -> [u8; 64] {
        let mut config = [0; 64];
        config[0] = 1;
        for (tile, (rows, row_bytes)) in shapes.iter().enumerate() {
            (config[48 + tile], config[16 + 2 * tile]) = (*rows, *row_bytes);
        }
        config
    }

    fn configured(shapes: &[(u8, u8)]) -> Tiles {
        let mut tiles = Tiles::released();
        tiles.configure(&config(shapes)).unwrap();
        tiles
    }

    #[test]
    fn configurations_that_a_processor_refuses_are_refused() {
        let good = config(&[(16, 64), (1, 4)]);
        let refused = |at: usize, value: u8| {
            let mut bad = good;
            bad[at] = value;
            Tiles::released().configure(&bad).is_err()
        };
        assert!(Tiles::released().configure(&good).is_ok());
        // The palette; a start row; reserved bytes; too many columns and rows; half a tile.
        let bad = [(0, 2), (1, 1), (2, 1), (47, 1), (63, 1), (16, 68), (17, 1), (48, 17), (48, 0), (20, 4), (50, 4)];
        for (at, value) in bad {
            assert!(refused(at, value), "byte {at} is {value}");
        }
    }

    #[test]
    fn products_that_a_processor_refuses_are_refused() {
        let dot = |shapes: &[(u8, u8)], [c, a, b]: [u8; 3]| -> Result<(), Fault> { configured(shapes).dot(c, a, b) };
        assert_eq!(dot(&[(3, 8), (3, 12), (3, 8)], [0, 1, 2]), Ok(()));
        assert!(dot(&[(3, 8), (4, 12), (3, 8)], [0, 1, 2]).unwrap_err().contains("do not match"));
        assert!(dot(&[(3, 8), (3, 16), (3, 8)], [0, 1, 2]).unwrap_err().contains("do not match"));
        assert!(dot(&[(3, 8), (3, 12), (3, 12)], [0, 1, 2]).unwrap_err().contains("do not match"));
        assert!(dot(&[(3, 6), (3, 12), (3, 6)], [0, 1, 2]).unwrap_err().contains("pairs"));
        assert!(dot(&[(3, 8), (3, 12)], [0, 1, 2]).unwrap_err().contains("not configured"));
        for twice in [[0, 0, 1], [0, 1, 0], [1, 0, 0]] {
            assert!(dot(&[(16, 64), (16, 64)], twice).unwrap_err().contains("twice"));
        }
        assert!(Tiles::released().set(0, &[[0; 64]; 16]).unwrap_err().contains("not configured"));
    }

    #[test]
    fn a_product_pairs_columns_of_a_with_rows_of_b() {
        let mut tiles = configured(&[(1, 8), (1, 4), (1, 8)]);
        let bf16 =
            |numbers: &[f32]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()[2..].to_vec()).collect() };
        tiles.data[0][0][..4].copy_from_slice(&100.0_f32.to_le_bytes());
        tiles.data[1][0][..4].copy_from_slice(&bf16(&[2.0, 3.0]));
        tiles.data[2][0][..8].copy_from_slice(&bf16(&[5.0, 7.0, 11.0, 13.0]));
        tiles.dot(0, 1, 2).unwrap();
        assert_eq!(tiles.data[0][0][..4], 131.0_f32.to_le_bytes());
        assert_eq!(tiles.data[0][0][4..8], 61.0_f32.to_le_bytes());
    }

    #[test]
    fn subnormal_numbers_are_zero_wherever_they_arise() {
        assert_eq!(widen(0x807f).to_bits(), (-0.0_f32).to_bits());
        let smallest = f32::MIN_POSITIVE;
        // The last product is one that a fused multiply-add does not round on the way.
        let cases: [(f32, &[f32], &[f32], f32); 4] = [
            (1e-40, &[], &[], 0.0),
            (0.0, &[smallest, 0.0], &[0.5, 0.0], 0.0),
            (0.0, &[smallest, 0.0, smallest, 0.0], &[0.5, 0.0, 1.0, 0.0], smallest),
            (0.0, &[smallest, 0.0, smallest, 0.0], &[1.0, 0.0, 0.5, 0.0], smallest * 1.5),
        ];
        for (c, a, b, sum) in cases {
            assert_eq!(step(c, a, b).to_bits(), sum.to_bits(), "{c} and {a:?} times {b:?}");
        }
    }
}
