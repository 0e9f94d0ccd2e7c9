//! Rolling fingerprints of ids: one pass over a sequence gives those of all its prefixes.
//!
//! They find turns, and prove nothing: whoever finds a turn by one compares the ids themselves.

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

    /// The fingerprint of a sequence that goes on with `ids`.
    pub(super) fn after(self, begun: Fingerprint, ids: &[TokenId]) -> Fingerprint {
        ids.iter().fold(begun, |fingerprint, id| self.next(fingerprint, *id))
    }

    /// The fingerprints of all prefixes, from the empty one to the whole.
    pub(super) fn prefixes(self, ids: &[TokenId]) -> Vec<Fingerprint> {
        let mut all = Vec::with_capacity(ids.len() + 1);
        all.push(Fingerprint::default());
        for id in ids {
            all.push(self.next(all[all.len() - 1], *id));
        }
        all
    }

    fn next(self, Fingerprint { hash, len }: Fingerprint, id: TokenId) -> Fingerprint {
        let product = u128::from(hash) * u128::from(self.0) + u128::from(id) + 1;
        let low = u64::try_from(product & u128::from(PRIME)).expect("61 bits");
        let high = u64::try_from(product >> 61).expect("the factors have 61 bits");
        let sum = low + high;
        Fingerprint { hash: if sum >= PRIME { sum - PRIME } else { sum }, len: len + 1 }
    }
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
            let begun = base.after(Fingerprint::default(), &ids[..cut]);
            let whole = base.after(begun, &ids[cut..]);
            let prefixes = base.prefixes(&ids);
            prop_assert_eq!((prefixes[cut], prefixes[ids.len()]), (begun, whole));
            // The definition, without tricks.
            let slow = ids.iter().fold(0_u128, |hash, id| (hash * u128::from(base.0) + u128::from(*id) + 1) % u128::from(PRIME));
            prop_assert_eq!((u128::from(whole.hash), whole.len), (slow, ids.len()));
        }
    }

    #[test]
    fn zeros_count() {
        let base = Base::random();
        assert_ne!(base.after(Fingerprint::default(), &[0]).hash, base.after(Fingerprint::default(), &[0, 0]).hash);
    }
}
