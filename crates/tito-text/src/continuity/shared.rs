//! What several servers share of what they remember, as keys and bytes: a store keeps them, outside of this crate.
//!
//! The store is a second memory behind the first. What it knows of a conversation goes into the first one before that is
//! asked, so that one set of rules decides which ids are known. There are two kinds of entries. Under the key of a turn is
//! the fingerprint of its ids, or that there were several. Under a key made of that fingerprint is the record of the ids,
//! once, however many keys lead to it.
//!
//! Whoever can write to the store is a stranger. So a record is read strictly and ends with a code that only servers of its
//! namespace can make, which a secret may be a part of. Its ids have to have the fingerprint that led to it, the prompt
//! checks that they say what the messages say, and the splice has its proof as with any ids. A record that fails one of
//! these is no record. All keys contain the namespace: what makes ids of one server those of another.

use std::sync::Arc;

use super::{fingerprint::Fingerprint, turn::Turn};
use crate::TokenId;

/// The longest record, in bytes: two million ids.
pub const MOST_RECORD_BYTES: usize = 8 << 20;
/// What is kept under the key of a turn that was answered with several lists of ids.
pub const SEVERAL: &[u8] = b"*";
/// The longest answer that is read under the key of a turn.
pub const MOST_ANSWER_BYTES: usize = 32;
/// The first bytes of a record.
const FORMAT: &[u8; 8] = b"tito\0\0\0\x01";
/// The code at the end of a record.
const SEAL_BYTES: usize = 32;
/// The longest name of weights in a record.
const MOST_NAME: usize = 256;
/// The most assistant messages whose thoughts a record has.
const MOST_THOUGHTS: usize = 1 << 16;

/// A key of the store.
pub type SharedKey = [u8; 32];

/// What has to be the same for the ids of one server to be those of another: its parts are the tokenizer, the template and
/// whatever else makes ids of messages. With a secret among them, nobody else can make records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace(Fingerprint);

/// Why the store was not asked to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// It cannot be reached, or does not do what it is asked.
    Unavailable,
    /// It did not answer in time.
    TimedOut,
}

/// A turn for the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedTurn {
    /// The keys that lead to it.
    pub keys: Vec<SharedKey>,
    /// What is kept under each of them, unless something else is there already: then it is [`SEVERAL`].
    pub answer: [u8; 32],
    /// The key of the record.
    pub record_key: SharedKey,
    /// The ids, and what belongs to them.
    pub record: Vec<u8>,
}

impl Namespace {
    /// The namespace of these parts, in their order.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self(Fingerprint::of_parts(b"namespace", parts))
    }

    /// The key of what is known of a turn, by its key in the memory.
    pub(super) fn answer_key(self, turn: Fingerprint) -> SharedKey {
        Fingerprint::joined(b"shared answer", &[self.0, turn]).bytes()
    }

    /// The key of a record, by its ids under their salt.
    pub(super) fn record_key(self, ids: Fingerprint) -> SharedKey {
        Fingerprint::joined(b"shared record", &[self.0, ids]).bytes()
    }

    /// A record with the code that shows where it belongs and who made it.
    fn sealed(self, key: SharedKey, mut record: Vec<u8>) -> Vec<u8> {
        let code = Fingerprint::keyed(self.0, &[&key, &record]);
        record.extend_from_slice(&code.bytes());
        record
    }

    /// The turn of a record that is whole, was made under this key and has ids that the model knows.
    pub(super) fn read(self, key: SharedKey, sealed: &[u8], vocab_size: usize) -> Option<Turn> {
        read(self.opened(key, sealed)?, vocab_size)
    }

    /// The record without its code, if that is right.
    fn opened(self, key: SharedKey, sealed: &[u8]) -> Option<&[u8]> {
        let (record, code) = sealed.split_at_checked(sealed.len().checked_sub(SEAL_BYTES)?)?;
        (Fingerprint::from_bytes(code)? == Fingerprint::keyed(self.0, &[&key, record])).then_some(record)
    }

    /// The turn as the store keeps it under the keys of the memory, with its ids under their salt; `None` where it is too long for a record.
    pub(super) fn turn(self, keys: &[Fingerprint], ids: Fingerprint, turn: &Turn) -> Option<SharedTurn> {
        Some(SharedTurn {
            keys: keys.iter().map(|key| self.answer_key(*key)).collect(),
            answer: turn.ids.bytes(),
            record_key: self.record_key(ids),
            record: self.sealed(self.record_key(ids), written(turn)?),
        })
    }
}

/// Writes a turn: format, whether its ids are a server's own, the name of the weights, thoughts, ids; numbers are
/// little-endian.
fn written(turn: &Turn) -> Option<Vec<u8>> {
    let token_ids = turn.token_ids();
    let name = turn.weights.as_deref().filter(|name| name.len() <= MOST_NAME).unwrap_or_default();
    let thoughts = turn.thoughts();
    let length = FORMAT.len() + 15 + name.len() + thoughts.len() * 33 + token_ids.len() * 4;
    if length + SEAL_BYTES > MOST_RECORD_BYTES || thoughts.len() > MOST_THOUGHTS {
        return None;
    }
    let mut record = Vec::with_capacity(length);
    record.extend_from_slice(FORMAT);
    record.push(u8::from(turn.own));
    record.extend_from_slice(&u16::try_from(name.len()).ok()?.to_le_bytes());
    record.extend_from_slice(name.as_bytes());
    for count in [thoughts.len(), turn.sampled, token_ids.len()] {
        record.extend_from_slice(&u32::try_from(count).ok()?.to_le_bytes());
    }
    for thought in thoughts {
        record.push(u8::from(thought.is_some()));
        record.extend_from_slice(&thought.map_or([0; 32], Fingerprint::bytes));
    }
    record.extend(token_ids.iter().flat_map(|id| id.to_le_bytes()));
    Some(record)
}

/// The bytes of a record that are still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.array::<1>()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(self.array()?)).ok()
    }
}

/// Reads a record; `None` if it is not exactly one, or has ids that the model does not know.
fn read(record: &[u8], vocab_size: usize) -> Option<Turn> {
    let mut rest = Rest(record);
    if record.len() > MOST_RECORD_BYTES || rest.bytes(FORMAT.len())? != FORMAT {
        return None;
    }
    let own = rest.flag()?;
    let name = usize::from(u16::from_le_bytes(rest.array()?));
    let name = std::str::from_utf8(rest.bytes(name).filter(|name| name.len() <= MOST_NAME)?).ok()?;
    let weights = (!name.is_empty()).then(|| Arc::from(name));
    let (thoughts, sampled, count) = (rest.count()?, rest.count()?, rest.count()?);
    if thoughts > MOST_THOUGHTS
        || sampled > count
        || rest.0.len() != thoughts.checked_mul(33)?.checked_add(count.checked_mul(4)?)?
    {
        return None;
    }
    let mut read_thoughts = Vec::with_capacity(thoughts);
    for _ in 0..thoughts {
        let is_some = rest.flag()?;
        let thought = Fingerprint::from_bytes(rest.bytes(32)?)?;
        read_thoughts.push(is_some.then_some(thought));
    }
    let ids = rest.0.chunks_exact(4).map(|id| TokenId::from_le_bytes([id[0], id[1], id[2], id[3]]));
    let token_ids: Vec<TokenId> = ids.collect();
    let is_known = |id: &TokenId| usize::try_from(*id).is_ok_and(|id| id < vocab_size);
    if token_ids.is_empty() || !token_ids.iter().all(is_known) {
        return None;
    }
    let (prompt, sampled) = token_ids.split_at(count - sampled);
    Some(
        Turn::new(None, prompt.into(), sampled.into(), read_thoughts, own).sampled_by(weights).brought_from_elsewhere(),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn turn() -> Turn {
        let thought = Some(Fingerprint::of_text(b"thought", "hm"));
        let turn = Turn::new(None, [1, 2, 3].into(), [4, 5].into(), vec![None, thought], true);
        turn.sampled_by(Some("step-7".into()))
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let (turn, read) = (turn(), read(&written(&turn()).unwrap(), 6).unwrap());
        assert_eq!((read.token_ids(), read.sampled, read.ids), (vec![1, 2, 3, 4, 5], 2, turn.ids));
        assert_eq!((read.thoughts(), read.own), (turn.thoughts(), true));
        assert_eq!(read.weights.as_deref(), Some("step-7"));
        assert!(read.is_from_elsewhere());
    }

    #[test]
    fn a_record_that_was_cut_or_goes_on_or_has_unknown_ids_is_none() {
        let record = written(&turn()).unwrap();
        for length in 0..record.len() {
            assert!(read(&record[..length], 6).is_none(), "{length}");
        }
        assert!(read(&[&record[..], &[0]].concat(), 6).is_none());
        assert!(read(&record, 5).is_none());
    }

    #[test]
    fn a_turn_that_is_too_long_for_a_record_is_not_written() {
        let ids = vec![1; MOST_RECORD_BYTES / 4];
        assert!(written(&Turn::new(None, ids.into(), [2].into(), Vec::new(), true)).is_none());
    }

    #[test]
    fn a_record_is_opened_by_its_namespace_and_under_its_key_alone() {
        let namespace = |secret: &'static [u8]| Namespace::of([&b"model"[..], secret]);
        let (key, other) = ([1; 32], [2; 32]);
        let sealed = namespace(b"secret").sealed(key, written(&turn()).unwrap());
        assert!(namespace(b"secret").opened(key, &sealed).is_some());
        assert!(namespace(b"secret").opened(other, &sealed).is_none());
        assert!(namespace(b"").opened(key, &sealed).is_none());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(namespace(b"secret").opened(key, &changed).is_none(), "{at}");
        }
        assert!(namespace(b"secret").opened(key, b"short").is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200), keeps_format: bool) {
            let bytes = if keeps_format { [&FORMAT[..], &bytes].concat() } else { bytes };
            if let Some(turn) = read(&bytes, 300) {
                prop_assert!(turn.token_ids().iter().all(|id| *id < 300) && turn.sampled <= turn.len());
            }
        }

        #[test]
        fn a_record_with_one_other_byte_has_other_ids_or_is_none(at in 0..200_usize, other: u8) {
            let turn = turn();
            let mut record = written(&turn).unwrap();
            let at = at % record.len();
            prop_assume!(record[at] != other);
            record[at] = other;
            // The name of the weights and what is known of thoughts are not part of the ids.
            if let Some(read) = read(&record, 6).filter(|read| read.ids == turn.ids) {
                prop_assert_eq!(read.token_ids(), turn.token_ids());
            }
        }
    }
}
