//! Products in pieces whose B lies anywhere.

use super::{
    super::{Along, Piece},
    BLOCK, Bf16Gemm, Guarded, NAN, Random, STEP, Tiles, bits, emulate_unless_available, ptr,
};

/// Rows, blocks of a piece, the depth of one, and pieces.
const SHAPES: [(usize, usize, usize, usize); 8] = [
    (1, 1, 32, 1),
    (3, 4, 32, 4),
    (16, 7, 32, 2),
    (17, 1, 32, 4),
    (30, 2, 64, 3),
    (32, 5, 32, 3),
    (96, 4, 32, 4),
    (91, 2, 96, 4),
];

/// A product whose pieces of B lie in another order than they are taken in, each at the end of what may be read.
struct InPieces {
    a: Vec<u16>,
    a_stride: usize,
    pieces: Vec<Guarded<u16>>,
    c: Vec<f32>,
    c_stride: usize,
    work: Bf16Gemm,
}

impl InPieces {
    fn random((rows, blocks, k, count): (usize, usize, usize, usize), along: Along) -> Self {
        let mut random = Random((rows * 1000 + blocks * 100 + k * 10 + count) as u64);
        let (depth, width) = match along {
            Along::Columns => (k, blocks * count),
            Along::Depth => (k * count, blocks),
        };
        let (a_stride, c_stride) = (depth, width * BLOCK);
        let a: Vec<u16> = (0..rows * a_stride).map(|_| random.bf16()).collect();
        let c: Vec<f32> = (0..rows * c_stride).map(|_| random.f32()).collect();
        let mut pieces: Vec<_> = (0..count).map(|_| Guarded::filled(blocks * BLOCK * k, NAN)).collect();
        for piece in &mut pieces {
            piece.fill_with(|| random.bf16());
        }
        pieces.reverse();
        let work = Bf16Gemm {
            a: ptr::null(),
            a_stride,
            rows,
            b: ptr::null(),
            b_block_stride: BLOCK * k,
            blocks,
            following: 0,
            next: (ptr::null(), 0),
            soon: 0,
            k,
            c: ptr::null_mut(),
            c_stride,
            accumulate: along == Along::Depth,
        };
        Self { a, a_stride, pieces, c, c_stride, work }
    }

    /// What C holds afterwards.
    fn computed(&self, compute: impl FnOnce(&Bf16Gemm, &[Piece<u16>])) -> Vec<u32> {
        let mut c = self.c.clone();
        let pieces: Vec<_> = self.pieces.iter().map(|piece| Piece { b: piece.as_ptr(), soon: 0 }).collect();
        compute(&Bf16Gemm { a: self.a.as_ptr(), b: pieces[0].b, c: c.as_mut_ptr(), ..self.work }, &pieces);
        assert_eq!((self.a.len(), c.len()), (self.work.rows * self.a_stride, self.work.rows * self.c_stride));
        bits(&c)
    }
}

#[test]
fn pieces_have_the_bits_that_they_have_one_by_one() {
    emulate_unless_available();
    for shape in SHAPES {
        for along in [Along::Columns, Along::Depth] {
            let product = InPieces::random(shape, along);
            if !Tiles::takes_pieces(&product.work, along) {
                assert!(along == Along::Depth && shape.2 > STEP, "{shape:?}");
                continue;
            }
            let mut tiles = Tiles::new();
            // SAFETY: the matrices are as large as the work says, for each of the pieces, and AMX works, be it emulated.
            let together = product.computed(|work, pieces| unsafe { tiles.multiply_pieces(work, along, pieces) });
            let one_by_one = product.computed(|work, pieces| {
                for (index, piece) in pieces.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { tiles.multiply(&work.piece(along, index, piece)) };
                }
            });
            assert!(together == one_by_one, "{shape:?}, {along:?}");
            assert!(together != bits(&product.c), "{shape:?}, {along:?}: something was computed");
        }
    }
}
