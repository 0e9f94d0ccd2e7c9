//! Ids of traces and of spans.

use uuid::Uuid;

/// The id of a trace.
pub(super) type TraceId = [u8; 16];
/// The id of a span.
pub(super) type SpanId = [u8; 8];

/// A trace that nobody else has.
pub(super) fn new_trace() -> TraceId {
    let mut id = TraceId::default();
    id[..8].copy_from_slice(&new_span());
    id[8..].copy_from_slice(&new_span());
    id
}

/// A span that nobody else has: 8 bytes, all of them random, and not all of them 0.
pub(super) fn new_span() -> SpanId {
    loop {
        // Of a random UUID, bytes 6 and 8 are not random throughout.
        let bytes = Uuid::new_v4().into_bytes();
        let id = [0, 1, 2, 3, 4, 5, 7, 9].map(|index: usize| bytes[index]);
        if id != SpanId::default() {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_an_id_varies() {
        let (mut ones, mut zeros) = (TraceId::default(), TraceId::default());
        for _ in 0..200 {
            for (index, byte) in new_trace().into_iter().enumerate() {
                ones[index] |= byte;
                zeros[index] |= !byte;
            }
        }
        assert_eq!((ones, zeros), ([0xff; 16], [0xff; 16]));
    }
}
