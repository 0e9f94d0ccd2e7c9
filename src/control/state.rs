//! The state that the server is in, and the update that is a part of it.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{asleep::Asleep, error::ControlError, paused::Paused, pulled::Pulled};
use crate::engine::{UpdateError, Written};

pub(super) const OF_A_BODY: ControlError = ControlError::State(
    "a weight update is already active whose weights come in the body of another call; it ends with that call, and has no \
     other parts",
);
pub(super) const OVER: ControlError = ControlError::State(
    "the weight update that these weights are for has ended: it was finished, or no call of it came for too long; send all \
     weights of the update again",
);

/// The state that the server is in.
#[derive(Debug)]
pub(super) struct State {
    pub(super) paused: Option<Paused>,
    /// The last pause that did not wait for requests any more; where one that waits is refused, this one goes on.
    pub(super) settled_pause: Option<Paused>,
    pub(super) asleep: Option<Asleep>,
    pub(super) update: Option<Phase>,
    /// The number that a trainer gives to the weights that are there; 0 for those that were loaded, `None` where nobody
    /// knows.
    pub(super) trained: Option<u64>,
    /// The update that brought the weights that the server was started with; 0 where none did.
    pub(super) loaded: u64,
    /// Directories that a trainer had brought up to a version.
    pub(super) pulled: Pulled,
    /// Whether requests that run are awaited before the server falls asleep.
    pub(super) draining: bool,
    /// Counts pauses, sleeps and their ends, so that a sleep that waited knows whether another one came.
    pub(super) calls: u64,
    /// Counts updates in phases, so that one that is forgotten is told from its successor.
    pub(super) updates: u64,
}

impl Default for State {
    fn default() -> Self {
        let pulled = Pulled::default();
        Self {
            paused: None,
            settled_pause: None,
            asleep: None,
            update: None,
            trained: Some(0),
            loaded: 0,
            pulled,
            draining: false,
            calls: 0,
            updates: 0,
        }
    }
}

impl State {
    /// Begins a call that takes the place of a sleep that waits for requests to end; returns its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.draining = false;
        self.calls += 1;
        self.calls
    }

    /// Takes note of an update from the files that the server was started with, and whether they are those of then.
    pub(super) fn note_loaded(&mut self, are_unchanged: bool, update: u64) {
        if are_unchanged {
            self.trained = Some(0);
            self.loaded = update;
        }
    }

    /// Whether the pause of this number is the one that there is.
    pub(super) fn is_paused_by(&self, call: u64) -> bool {
        self.paused.is_some_and(|paused| paused.call == call)
    }

    /// The update that a call is about; `none` is the error where there is no update at all.
    pub(super) fn phase(&mut self, whose: Whose, none: ControlError) -> Result<&mut Phase, ControlError> {
        let Some(phase) = &mut self.update else { return Err(if whose == Whose::Started { none } else { OVER }) };
        match whose {
            Whose::Started if phase.in_phases => Ok(phase),
            Whose::Started => Err(OF_A_BODY),
            Whose::Of(call) if phase.call == call => Ok(phase),
            Whose::Of(_) => Err(OVER),
        }
    }
}

/// An update that was begun and is not finished.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(super) struct Phase {
    /// Its number among the updates.
    pub(super) call: u64,
    /// Whether `start_update` began it. Another one is that of a body, and nobody else has a part in it.
    pub(super) in_phases: bool,
    /// Bodies that are parts of it and have not ended.
    pub(super) coming: usize,
    pub(super) begun: Instant,
    /// How many tensors had no weights when it was begun.
    pub(super) lacking: usize,
    /// When something of it came last: a call, or a piece of a body.
    pub(super) heard: Heard,
    pub(super) written: Written,
    /// The number that the trainer gives to what was written, where all parts say the same one.
    pub(super) trained: Option<u64>,
    /// Whether what is there was proven to be what was to be written.
    pub(super) proven: bool,
    /// What its last part calls the weights, or who named them since.
    pub(super) label: Option<Arc<str>>,
    /// All names that its parts have for them, from the last time on that somebody named them anew.
    pub(super) names: BTreeSet<Arc<str>>,
    /// Whether an update from a directory is a part of it, as in SGLang's words.
    pub(super) takes_directories: bool,
    /// Whether one of its parts ends the requests that run, once the weights are there.
    pub(super) aborts: bool,
}

impl Phase {
    /// Takes note of a part that was written: how much it was, and the number that the trainer gives to it. Where it
    /// `builds_on` what was there, that is the number of all; else all parts have to say the same one.
    pub(super) fn wrote(&mut self, written: Written, number: Option<u64>, builds_on: bool) {
        let is_first = self.written.tensors == 0;
        self.trained = number.filter(|_| builds_on || is_first || self.trained == number);
        self.written += written;
    }

    /// Takes note of the name that a part has for the weights.
    pub(super) fn part_is_named(&mut self, name: Option<Arc<str>>) {
        self.names.extend(name.clone());
        self.label = name.or_else(|| self.label.take());
    }

    /// Takes note of a name that takes the place of those that parts have for the weights. Parts to come, and the end, have
    /// no other one.
    pub(super) fn is_renamed(&mut self, name: Arc<str>) {
        self.names = BTreeSet::from([Arc::clone(&name)]);
        self.label = Some(name);
    }

    /// What the weights are called: by who ends the update, who named them amid it, or by the number of what was written.
    /// Parts of two names, or an end that calls them something else than its parts, are those of two trainers.
    pub(super) fn name(&self, at_end: Option<Arc<str>>) -> Result<Option<Arc<str>>, UpdateError> {
        let names: BTreeSet<&str> = self.names.iter().chain(&at_end).map(|name| &**name).collect();
        if !self.names.is_empty() && names.len() > 1 {
            let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
            return Err(UpdateError::Refused(format!(
                "parts of this update, its end or /update_weight_version call the weights {}, so that they are of more than \
                 one update; the old weights were put back",
                names.join(" and ")
            )));
        }
        let number = || self.trained.map(|number| number.to_string().into());
        Ok(at_end.or_else(|| self.label.clone()).or_else(number))
    }
}

/// When something of an update came last. Whoever takes a body says so for each piece, which waits for no call.
#[derive(Debug, Clone)]
pub(super) struct Heard(Arc<Mutex<Instant>>);

impl Heard {
    pub(super) fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(super) fn again(&self) {
        *self.0.lock() = Instant::now();
    }

    pub(super) fn when(&self) -> Instant {
        *self.0.lock()
    }
}

/// Whose update a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The one that `start_update` began; its calls say nothing more.
    Started,
    /// That of a number, and no later one.
    Of(u64),
}
