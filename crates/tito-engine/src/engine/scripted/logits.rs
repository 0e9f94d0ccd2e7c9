//! Logits without a model: a rolling hash of the ids so far, with a script's next token on top where there is a script.

use std::sync::Arc;

use crate::TokenId;

/// The logit of a token that is no candidate.
const UNLIKELY: f32 = -30.0;
/// Candidates have logits in `[0, LIKELY)`.
const LIKELY: f32 = 5.0;
/// An end-of-sequence token beats every candidate where it is due.
const DUE: f32 = 9.0;
/// Leaves all other tokens a probability below 1e-13 at temperature 1.
const SCRIPTED: f32 = 40.0;
const CANDIDATES: u64 = 16;
/// An end-of-sequence token is due at one position in this many.
const END_PERIOD: u64 = 24;

/// Where the logits of an engine's sequences come from.
#[derive(Debug)]
pub(super) enum LogitSource {
    Hashed { eos: Arc<[TokenId]> },
    Playing { scripts: Vec<Arc<[TokenId]>> },
}

/// The logits of one sequence, position by position.
#[derive(Debug)]
pub(super) struct SequenceLogits {
    hash: u64,
    eos: Arc<[TokenId]>,
    /// What is left to play.
    script: Option<std::vec::IntoIter<TokenId>>,
}

impl LogitSource {
    pub(super) fn hashed(eos: Vec<TokenId>) -> Self {
        Self::Hashed { eos: eos.into() }
    }

    pub(super) fn playing(scripts: Vec<Vec<TokenId>>) -> Self {
        Self::Playing { scripts: scripts.into_iter().map(Into::into).collect() }
    }

    /// The logits of the engine's request `number`, before any id.
    pub(super) fn start(&self, number: u64) -> SequenceLogits {
        match self {
            Self::Hashed { eos } => SequenceLogits { hash: 0, eos: Arc::clone(eos), script: None },
            Self::Playing { scripts } => {
                let last = scripts.len().saturating_sub(1);
                let index = usize::try_from(number).map_or(last, |number| number.min(last));
                let script = scripts.get(index).map(|script| script.to_vec()).unwrap_or_default();
                SequenceLogits { hash: 0, eos: Arc::default(), script: Some(script.into_iter()) }
            }
        }
    }
}

impl SequenceLogits {
    /// Takes the next id of the sequence in.
    pub(super) fn push(&mut self, id: TokenId) {
        self.hash = mixed(self.hash ^ (u64::from(id) + 1));
    }

    /// Writes the logits that follow the ids so far, as a prompt has them: without the script.
    pub(super) fn write(&self, logits: &mut [f32]) {
        logits.fill(UNLIKELY);
        let vocab_size = logits.len() as u64;
        for candidate in 0..CANDIDATES.min(vocab_size) {
            let random = mixed(self.hash.wrapping_add(candidate));
            if let Some(logit) = at(logits, random % vocab_size) {
                *logit = LIKELY * fraction(random);
            }
        }
        for &id in &*self.eos {
            if let Some(logit) = at(logits, id.into()) {
                *logit = UNLIKELY;
            }
        }
        let random = mixed(!self.hash);
        if random.is_multiple_of(END_PERIOD) && !self.eos.is_empty() {
            let due = (random / END_PERIOD) % self.eos.len() as u64;
            let id = usize::try_from(due).ok().and_then(|due| self.eos.get(due));
            if let Some(logit) = id.and_then(|&id| at(logits, id.into())) {
                *logit = DUE;
            }
        }
    }

    /// Writes the logits of the next position to sample; `false` where the script has ended.
    pub(super) fn write_next(&mut self, logits: &mut [f32]) -> bool {
        self.write(logits);
        let Some(script) = &mut self.script else { return true };
        let Some(id) = script.next() else { return false };
        if let Some(logit) = at(logits, id.into()) {
            *logit = SCRIPTED;
        }
        true
    }
}

fn at(logits: &mut [f32], id: u64) -> Option<&mut f32> {
    usize::try_from(id).ok().and_then(|id| logits.get_mut(id))
}

/// One round of a 64-bit finaliser (the constants of `SplitMix64`).
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// In `[0, 1)`, from the upper bits: the lower ones choose the candidate.
fn fraction(random: u64) -> f32 {
    f32::from(u16::try_from(random >> 48).unwrap_or(u16::MAX)) / 65_536.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(sequence: &SequenceLogits, vocab_size: usize) -> Vec<f32> {
        let mut logits = vec![0.0; vocab_size];
        sequence.write(&mut logits);
        logits
    }

    #[test]
    fn logits_depend_on_every_id_and_its_place() {
        let source = LogitSource::hashed(vec![0]);
        let [mut ab, mut ba, mut again] = [0, 1, 2].map(|number| source.start(number));
        for (a, b) in [(1, 2), (2, 1)] {
            ab.push(a);
            ba.push(b);
            again.push(a);
        }
        assert_eq!(written(&ab, 500), written(&again, 500));
        assert_ne!(written(&ab, 500), written(&ba, 500));
    }

    #[test]
    fn an_end_token_is_due_once_in_a_while_and_is_no_candidate_else() {
        let mut sequence = LogitSource::hashed(vec![2, 7]).start(0);
        let mut due = [0, 0];
        for id in 0..2_400 {
            sequence.push(id);
            let logits = written(&sequence, 64);
            for (count, logit) in due.iter_mut().zip([logits[2], logits[7]]) {
                assert!([UNLIKELY, DUE].contains(&logit));
                *count += usize::from(logit == DUE);
            }
        }
        assert!(due.iter().all(|count| (25..100).contains(count)), "{due:?}");
    }

    #[test]
    fn a_script_is_played_to_its_end() {
        let source = LogitSource::playing(vec![vec![3, 4], vec![5]]);
        let mut played = Vec::new();
        for number in 0..3 {
            let (mut sequence, mut logits) = (source.start(number), vec![0.0; 16]);
            while sequence.write_next(&mut logits) {
                played.push((number, logits.iter().position(|logit| *logit == SCRIPTED).unwrap()));
            }
        }
        assert_eq!(played, [(0, 3), (0, 4), (1, 5), (2, 5)]);
    }
}
