//! Rolling fingerprints of ids: one pass over a sequence gives those of all its prefixes.
//!
//! They find turns, and prove nothing: whoever finds a turn by one compares the ids themselves.

use super::ImageUsed;
use crate::TokenId;

/// A Mersenne prime, so that a product is reduced by a shift.
const PRIME: u64 = (1 << 61) - 1;

/// The fingerprint of a sequence, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Fingerprint {
    hash: u64,
    pub(super) len: usize,
}

/// What the fingerprints of one index are made with. It differs from process to process, so that nobody can make
/// sequences that meet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base(u64);

impl Base {
    pub(super) fn random() -> Self {
        let bits = uuid::Uuid::new_v4().as_u128();
        Self(u64::try_from(bits % u128::from(PRIME - 1)).expect("less than the prime") + 1)
    }

    /// The fingerprint of a sequence that goes on with `ids`, and with these images among them.
    pub(super) fn after(self, begun: Fingerprint, ids: &[TokenId], images: &[ImageUsed]) -> Fingerprint {
        self.each(begun, ids, images).last().unwrap_or(begun)
    }

    /// The fingerprints of all prefixes, from the empty one to the whole.
    pub(super) fn prefixes(self, ids: &[TokenId], images: &[ImageUsed]) -> Vec<Fingerprint> {
        let begun = Fingerprint::default();
        [begun].into_iter().chain(self.each(begun, ids, images)).collect()
    }

    /// The fingerprints after each id. The first placeholder of an image is one of its image: where other images stand, turns
    /// are not the same.
    fn each(self, begun: Fingerprint, ids: &[TokenId], images: &[ImageUsed]) -> impl Iterator<Item = Fingerprint> {
        let mut images = images.iter().skip_while(move |image| image.offset < begun.len).peekable();
        ids.iter().scan(begun, move |fingerprint, id| {
            let image = images.next_if(|image| image.offset == fingerprint.len);
            *fingerprint = self.next(*fingerprint, *id, image.map_or(0, mark));
            Some(*fingerprint)
        })
    }

    fn next(self, Fingerprint { hash, len }: Fingerprint, id: TokenId, mark: u64) -> Fingerprint {
        let product = u128::from(hash) * u128::from(self.0) + u128::from(id) + u128::from(mark) + 1;
        let low = u64::try_from(product & u128::from(PRIME)).expect("61 bits");
        let high = u64::try_from(product >> 61).expect("the factors have 61 bits");
        let sum = low + high;
        Fingerprint { hash: if sum >= PRIME { sum - PRIME } else { sum }, len: len + 1 }
    }
}

/// What stands for an image besides the id of its placeholders.
fn mark(image: &ImageUsed) -> u64 {
    let digits = image.identity.get(..15).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sequence_has_one_fingerprint_however_it_is_cut(
            ids in proptest::collection::vec(any::<TokenId>(), 0..50), cut in 0..51_usize,
        ) {
            let base = Base::random();
            let cut = cut.min(ids.len());
            let begun = base.after(Fingerprint::default(), &ids[..cut], &[]);
            let whole = base.after(begun, &ids[cut..], &[]);
            let prefixes = base.prefixes(&ids, &[]);
            prop_assert_eq!((prefixes[cut], prefixes[ids.len()]), (begun, whole));
            // The definition, without tricks.
            let slow = ids.iter().fold(0_u128, |hash, id| (hash * u128::from(base.0) + u128::from(*id) + 1) % u128::from(PRIME));
            prop_assert_eq!((u128::from(whole.hash), whole.len), (slow, ids.len()));
        }
    }

    #[test]
    fn zeros_count() {
        let base = Base::random();
        assert_ne!(
            base.after(Fingerprint::default(), &[0], &[]).hash,
            base.after(Fingerprint::default(), &[0, 0], &[]).hash
        );
    }
}
