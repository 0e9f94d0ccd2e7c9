//! Where notes are taken, by all that work for a request at the same time.

use std::{
    mem,
    sync::Arc,
    time::{Instant, SystemTime},
};

use parking_lot::Mutex;

use super::record::{Answer, Asked, MOST_NOTED, PromptRecord, PromptVerdict, RequestRecord, SequenceRecord, Totals};

/// Takes the notes of one request; they are given away when its last holder drops it.
pub(crate) struct RequestTrace {
    route: Arc<str>,
    began: SystemTime,
    started: Instant,
    notes: Mutex<Notes>,
    give: Mutex<Option<Give>>,
}

/// Takes complete notes.
type Give = Box<dyn FnOnce(RequestRecord) + Send>;

#[derive(Default)]
struct Notes {
    /// Whether the request is one of those that generate: others are not told of.
    generates: bool,
    prompts: Vec<PromptRecord>,
    asked: Option<Asked>,
    sequences: Vec<SequenceRecord>,
    totals: Totals,
    answer: Option<Answer>,
}

impl RequestTrace {
    /// A request to `route` that comes now; `give` gets its notes, unless it turns out to generate nothing.
    pub(crate) fn new(route: Arc<str>, give: impl FnOnce(RequestRecord) + Send + 'static) -> Arc<Self> {
        let give: Give = Box::new(give);
        Arc::new(Self {
            route,
            began: SystemTime::now(),
            started: Instant::now(),
            notes: Mutex::default(),
            give: Mutex::new(Some(give)),
        })
    }

    /// The request is one of those that generate, even if it should be refused.
    pub(crate) fn generates(&self) {
        self.notes.lock().generates = true;
    }

    /// A prompt is in ids, or is refused.
    pub(super) fn prompt(&self, started: Instant, verdict: Option<PromptVerdict>) {
        let prompts = &mut self.notes.lock().prompts;
        if prompts.len() < MOST_NOTED {
            prompts.push(PromptRecord { started, ended: Instant::now(), verdict });
        }
    }

    /// The request asks the engine for sequences; what it asks for in several calls adds up.
    pub(crate) fn asks(&self, asked: Asked) {
        let mut notes = self.notes.lock();
        notes.generates = true;
        match &mut notes.asked {
            Some(all) => {
                all.prompt_tokens += asked.prompt_tokens;
                all.sequences += asked.sequences;
            }
            none => *none = Some(asked),
        }
    }

    /// A sequence has ended.
    pub(crate) fn sequence(&self, sequence: SequenceRecord) {
        let mut notes = self.notes.lock();
        notes.totals.sequences += 1;
        notes.totals.sampled += sequence.sampled;
        notes.totals.failure = notes.totals.failure.or(sequence.failure);
        if notes.sequences.len() < MOST_NOTED {
            notes.sequences.push(sequence);
        }
    }

    /// The answer begins.
    pub(crate) fn answered(&self, answer: Answer) {
        self.notes.lock().answer = Some(answer);
    }
}

/// Nobody works for the request any more.
impl Drop for RequestTrace {
    fn drop(&mut self) {
        let notes = mem::take(self.notes.get_mut());
        let Some(give) = self.give.get_mut().take().filter(|_| notes.generates) else { return };
        let Notes { prompts, asked, sequences, totals, answer, .. } = notes;
        give(RequestRecord {
            route: Arc::clone(&self.route),
            began: self.began,
            started: self.started,
            ended: Instant::now(),
            prompts,
            asked,
            sequences,
            totals,
            answer,
        });
    }
}
