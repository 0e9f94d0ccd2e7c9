//! What a control plane should be in, written down anew as a state machine: which weights are there, what they are called,
//! which call is done, and which requests go on; and which adapters are there. It knows nothing of the real one.

mod adapters;
mod updating;

use std::collections::BTreeSet;

use tito::control::{ControlPolicy, Newcomers, PauseMode, SleepLevel, SleepTag};

pub(super) use self::adapters::Adapter;
use self::adapters::Adapters;
use super::calls::{Call, Label, Tensor};

/// What a tensor, or all others, hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Content {
    /// What the checkpoint has.
    Loaded,
    /// One of the test's numbers.
    Filled(usize),
    /// Nothing that was sent.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Weights {
    pub(super) norm: Content,
    pub(super) first: Content,
    pub(super) others: Content,
}

impl Weights {
    const LOADED: Self = Self { norm: Content::Loaded, first: Content::Loaded, others: Content::Loaded };
    const GONE: Self = Self { norm: Content::Gone, first: Content::Gone, others: Content::Gone };

    fn of(&mut self, tensor: Tensor) -> &mut Content {
        match tensor {
            Tensor::Norm => &mut self.norm,
            Tensor::First => &mut self.first,
        }
    }
}

/// Why a call is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    State,
    OutOfOrder,
    Refused,
    Lost,
    /// Requests are awaited that nothing computes.
    WithoutWeights,
    /// An adapter is compared with weights that are away, or are being replaced.
    NotNow,
    /// It ended an update in phases of which it was no part.
    EndsUpdate,
    /// An adapter has this name.
    Taken,
    /// No adapter has this name.
    Unknown,
}

/// What a call says that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Wrote {
        tensors: usize,
    },
    Updated {
        label: String,
        number: u64,
        tensors: usize,
    },
    Awake {
        awake: bool,
        lacking: usize,
    },
    /// The body was a part of an update.
    WasPart,
    /// An adapter took the place of this one.
    Loaded {
        before: Option<String>,
    },
    /// So many requests end with what they have.
    Aborts(usize),
}

pub(super) type Outcome = Result<Said, Fault>;

/// What is to be done of a call that has begun; each is done while no other one is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Call(Call),
    /// After all requests have ended.
    EndPause(Paused, Option<Paused>),
    EndSleep(u64, SleepLevel),
}

/// What comes after a step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    Done(Outcome),
    /// The step that comes when no request is left.
    WhenSettled(Step),
}

/// A pause, and for one that waits the pause before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Paused {
    call: u64,
    mode: PauseMode,
    newcomers: Newcomers,
    draining: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Asleep {
    weights: bool,
    kv_cache: bool,
}

/// An update, as the engine knows it.
#[derive(Debug, Clone, Copy)]
struct Begun {
    kept: Option<Weights>,
    touched: bool,
    /// How many tensors had no weights before it.
    lacking: usize,
}

/// An update of more than one call.
#[derive(Debug, Clone)]
struct Phase {
    call: u64,
    in_phases: bool,
    coming: usize,
    tensors: usize,
    trained: Option<u64>,
    proven: bool,
    label: Label,
    /// All names that its parts have for the weights.
    names: BTreeSet<&'static str>,
}

/// Whether a request may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Open,
    Refusing,
    Queueing,
}

#[derive(Debug)]
pub(super) struct Model {
    policy: ControlPolicy,
    /// Tensors of the model beside those that the test writes.
    others: usize,
    pub(super) weights: Weights,
    pub(super) label: String,
    /// What weights were called, ever.
    labels: BTreeSet<String>,
    pub(super) number: u64,
    paused: Option<Paused>,
    /// The last pause that waited for nobody.
    settled_pause: Option<Paused>,
    /// Whether requests are in the engine.
    pub(super) has_requests: bool,
    asleep: Option<Asleep>,
    draining: bool,
    calls: u64,
    updates: u64,
    update: Option<Phase>,
    begun: Option<Begun>,
    trained: Option<u64>,
    pulled: Option<u64>,
    pub(super) adapters: Adapters,
    /// How often the weights changed under requests, and how often their keys and values were given back.
    pub(super) changes: u64,
    pub(super) given_back: u64,
}

/// The versions that are published: 1 and 2, each of which overwrites the norm of the one before.
const PUBLISHED: std::ops::RangeInclusive<u64> = 1..=2;

impl Model {
    pub(super) fn new(policy: ControlPolicy, tensors: usize) -> Self {
        Self {
            policy,
            others: tensors - 2,
            weights: Weights::LOADED,
            label: "default".to_owned(),
            labels: BTreeSet::new(),
            number: 0,
            paused: None,
            settled_pause: None,
            has_requests: false,
            asleep: None,
            draining: false,
            calls: 0,
            updates: 0,
            update: None,
            begun: None,
            trained: Some(0),
            pulled: None,
            adapters: Adapters::default(),
            changes: 0,
            given_back: 0,
        }
    }

    pub(super) fn lacking(&self) -> usize {
        let Weights { norm, first, others } = self.weights;
        let gone = |content| usize::from(content == Content::Gone);
        gone(norm) + gone(first) + self.others * gone(others)
    }

    pub(super) fn is_updating(&self) -> bool {
        self.begun.is_some()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.is_some()
    }

    /// Whether nothing is computed because the server is paused or asleep.
    pub(super) fn is_held(&self) -> bool {
        !self.draining && (self.paused.is_some_and(|paused| !paused.draining) || self.asleep.is_some())
    }

    pub(super) fn computes(&self) -> bool {
        let without_cache = self.asleep.is_some_and(|asleep| asleep.kv_cache);
        !self.is_held() && !without_cache && !self.is_updating() && self.lacking() == 0
    }

    pub(super) fn door(&self) -> Door {
        match self.paused {
            Some(Paused { mode: PauseMode::Abort | PauseMode::Wait, newcomers, .. }) => {
                let queues = newcomers == Newcomers::Queued || self.policy.queue_while_paused;
                if queues { Door::Queueing } else { Door::Refusing }
            }
            _ if self.draining => Door::Queueing,
            _ => Door::Open,
        }
    }

    /// The number of the newest update in phases or of a body.
    pub(super) fn newest(&self) -> u64 {
        self.updates
    }

    fn begin_call(&mut self) -> u64 {
        self.draining = false;
        self.calls += 1;
        self.calls
    }

    pub(super) fn step(&mut self, step: Step) -> Next {
        match step {
            Step::Call(call) => self.call(call),
            Step::EndPause(pause, _) if self.is_awaited(step) => {
                self.paused = Some(Paused { draining: false, ..pause });
                self.settled_pause = self.paused;
                Next::Done(Ok(Said::Nothing))
            }
            Step::EndSleep(call, _) if self.calls == call && self.update.is_some() => {
                self.begin_call();
                Next::Done(Err(Fault::State))
            }
            Step::EndSleep(call, level) if self.calls == call => self.fall_asleep(level),
            Step::EndPause(..) | Step::EndSleep(..) => Next::Done(Err(Fault::State)),
        }
    }

    /// Whether no other call took the place of the one whose end this is.
    fn is_awaited(&self, step: Step) -> bool {
        match step {
            Step::Call(_) => true,
            Step::EndPause(pause, _) => self.paused.is_some_and(|paused| paused.call == pause.call),
            Step::EndSleep(call, _) => self.calls == call,
        }
    }

    /// A look at the state amid a wait for requests.
    pub(super) fn look(&mut self, step: Step) -> Next {
        if !self.is_awaited(step) {
            return Next::Done(Err(Fault::State));
        }
        if self.lacking() == 0 {
            return Next::WhenSettled(step);
        }
        match step {
            Step::EndPause(_, before) => self.paused = before,
            Step::Call(_) | Step::EndSleep(..) => _ = self.begin_call(),
        }
        Next::Done(Err(Fault::WithoutWeights))
    }

    fn call(&mut self, call: Call) -> Next {
        match call {
            Call::Pause(mode, newcomers) => {
                let call = self.begin_call();
                if mode == PauseMode::Wait && self.asleep.is_some() && self.has_requests {
                    self.paused = self.settled_pause;
                    return Next::Done(Err(Fault::State));
                }
                let pause = Paused { call, mode, newcomers, draining: mode == PauseMode::Wait };
                self.paused = Some(pause);
                if mode == PauseMode::Wait {
                    return Next::WhenSettled(Step::EndPause(pause, self.settled_pause));
                }
                self.settled_pause = self.paused;
            }
            Call::Sleep(..) if self.update.is_some() => return Next::Done(Err(Fault::State)),
            Call::Sleep(level, PauseMode::Wait) if self.asleep.is_none() => {
                let number = self.begin_call();
                self.draining = true;
                return Next::WhenSettled(Step::EndSleep(number, level));
            }
            Call::Sleep(_, PauseMode::Wait) if self.has_requests => return Next::Done(Err(Fault::State)),
            Call::Sleep(level, _) => return self.fall_asleep(level),
            Call::Resume => {
                (self.paused, self.settled_pause) = (None, None);
                self.begin_call();
            }
            Call::ResetCache(running) => self.given_back += u64::from(running),
            Call::Relabel(label) => match &mut self.update {
                Some(phase) => (phase.label, phase.names) = (Some(label), BTreeSet::from([label])),
                None => self.named(label.to_owned()),
            },
            Call::AbortAll | Call::Abort(_) => {}
            Call::Load(name, lora, replacing) => {
                let is_settled = !self.is_updating() && self.lacking() == 0;
                return Next::Done(self.adapters.load(name, lora, replacing, is_settled));
            }
            Call::Unload(name) => return Next::Done(self.adapters.unload(name)),
            other => return Next::Done(self.weights_call(other)),
        }
        Next::Done(Ok(Said::Nothing))
    }

    fn weights_call(&mut self, call: Call) -> Outcome {
        match call {
            Call::Wake(tag) => return Ok(self.wake(tag)),
            Call::Start => _ = self.idle().and_then(|()| self.begin(true))?,
            Call::Write(part) => return self.write_in_phases(part),
            Call::Finish(label) => return self.finish_phases(label),
            Call::Cancel(which) => {
                let is_meant = self.update.as_ref().is_some_and(|phase| match which {
                    None => phase.in_phases,
                    Some(call) => phase.call == call,
                });
                if is_meant {
                    self.cancel()?;
                }
            }
            Call::Update(place, label) => return self.update(place, label),
            Call::Pull(version) => {
                self.chain(version)?;
                self.pulled = Some(version);
            }
            Call::CheckVersion(version) => _ = self.chain(version)?,
            Call::ResetWeights => {
                if self.update.is_some() {
                    return Err(Fault::State);
                }
                self.weights = Weights::GONE;
            }
            _ => unreachable!("{call:?}"),
        }
        Ok(Said::Nothing)
    }

    fn fall_asleep(&mut self, level: SleepLevel) -> Next {
        self.begin_call();
        let before = self.asleep.unwrap_or_default();
        let now = Asleep {
            weights: before.weights || level >= SleepLevel::Weights,
            kv_cache: before.kv_cache || level >= SleepLevel::KvCache,
        };
        if now.kv_cache && !before.kv_cache {
            self.given_back += 1;
        }
        if now.weights && !before.weights {
            self.weights = Weights::GONE;
        }
        self.asleep = Some(now);
        Next::Done(Ok(Said::Nothing))
    }

    fn wake(&mut self, tag: Option<SleepTag>) -> Said {
        if let Some(asleep) = &mut self.asleep {
            let wanted = |part| tag.is_none_or(|tag| tag == part);
            asleep.weights &= !wanted(SleepTag::Weights);
            asleep.kv_cache &= !wanted(SleepTag::KvCache);
            if !asleep.weights && !asleep.kv_cache {
                self.asleep = None;
            }
        } else if self.draining {
            // The sleep that waits does not come any more.
            self.begin_call();
        }
        Said::Awake { awake: self.asleep.is_none(), lacking: self.lacking() }
    }
}
