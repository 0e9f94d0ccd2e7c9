//! What a control plane should be in, written down anew as a state machine: which weights are there, what they are called,
//! which call is done, and which requests go on. It knows nothing of the real one.

use tito::{
    control::{ControlPolicy, Newcomers, PauseMode, SleepLevel, SleepTag},
    engine::{OnWeightsChange, UndoPolicy},
};

use super::calls::{Call, Label, Part, Place, Tensor};

/// What a tensor, or all others, hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// What the checkpoint has.
    Loaded,
    /// One of the test's numbers.
    Filled(usize),
    /// Nothing that was sent.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

pub(super) type Outcome = Result<Said, Fault>;

/// What is to be done of a call that has begun; each is done while no other one is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Call(Call),
    /// After all requests have ended.
    EndPause(u64, PauseMode, Newcomers),
    EndSleep(u64, SleepLevel),
}

/// What comes after a step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    Done(Outcome),
    /// The step that comes when no request is left.
    WhenSettled(Step),
}

#[derive(Debug, Clone, Copy)]
struct Paused {
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
    pub(super) number: u64,
    paused: Option<Paused>,
    asleep: Option<Asleep>,
    draining: bool,
    calls: u64,
    updates: u64,
    update: Option<Phase>,
    begun: Option<Begun>,
    trained: Option<u64>,
    pulled: Option<u64>,
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
            number: 0,
            paused: None,
            asleep: None,
            draining: false,
            calls: 0,
            updates: 0,
            update: None,
            begun: None,
            trained: Some(0),
            pulled: None,
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
            Step::EndPause(call, mode, newcomers) if self.calls == call => {
                self.paused = Some(Paused { mode, newcomers, draining: false });
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

    fn call(&mut self, call: Call) -> Next {
        match call {
            Call::Pause(mode, newcomers) => {
                self.paused = Some(Paused { mode, newcomers, draining: mode == PauseMode::Wait });
                let number = self.begin_call();
                if mode == PauseMode::Wait {
                    return Next::WhenSettled(Step::EndPause(number, mode, newcomers));
                }
            }
            Call::Sleep(..) if self.update.is_some() => return Next::Done(Err(Fault::State)),
            Call::Sleep(level, PauseMode::Wait) if self.asleep.is_none() => {
                let number = self.begin_call();
                self.draining = true;
                return Next::WhenSettled(Step::EndSleep(number, level));
            }
            Call::Sleep(level, _) => return self.fall_asleep(level),
            Call::Resume => {
                self.paused = None;
                self.begin_call();
            }
            Call::ResetCache(running) => self.given_back += u64::from(running),
            Call::Relabel(label) => self.label = label.to_owned(),
            Call::AbortAll => {}
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
                self.idle()?;
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
        }
        Said::Awake { awake: self.asleep.is_none(), lacking: self.lacking() }
    }

    fn idle(&self) -> Result<(), Fault> {
        match &self.update {
            None => Ok(()),
            Some(phase) => Err(if phase.in_phases { Fault::OutOfOrder } else { Fault::State }),
        }
    }

    fn begin_engine(&mut self) -> Result<(), Fault> {
        if self.asleep.is_some_and(|asleep| asleep.weights) {
            return Err(Fault::OutOfOrder);
        }
        let keeps = self.policy.undo == UndoPolicy::Memory && self.lacking() == 0;
        self.begun = Some(Begun { kept: keeps.then_some(self.weights), touched: false });
        Ok(())
    }

    fn begin(&mut self, in_phases: bool) -> Result<u64, Fault> {
        self.begin_engine()?;
        self.updates += 1;
        let call = self.updates;
        let (coming, tensors, trained, proven, label) = (0, 0, None, false, None);
        self.update = Some(Phase { call, in_phases, coming, tensors, trained, proven, label });
        Ok(call)
    }

    /// Ends an update with what was there before, if that was kept.
    fn cancel(&mut self) -> Result<(), Fault> {
        self.update = None;
        match self.begun.take() {
            Some(Begun { kept: Some(kept), .. }) => self.weights = kept,
            Some(Begun { kept: None, touched: true }) => {
                self.weights = Weights::GONE;
                return Err(Fault::Lost);
            }
            _ => {}
        }
        Ok(())
    }

    /// The same after a fault.
    fn fail(&mut self) -> Fault {
        self.cancel().err().unwrap_or(Fault::Refused)
    }

    fn touch(&mut self) {
        self.begun.as_mut().expect("an update").touched = true;
    }

    /// The version that counts as being there amid an update, and whether that is what was loaded.
    fn held(&self) -> (Option<u64>, bool) {
        match self.update.as_ref().filter(|phase| phase.tensors > 0) {
            Some(phase) => (phase.trained, false),
            None => (self.trained, self.number == 0),
        }
    }

    /// The version from which deltas lead to `to`.
    fn chain(&self, to: u64) -> Result<u64, Fault> {
        let from = self.held().0.ok_or(Fault::Refused)?;
        let is_published = |version| version == 0 || PUBLISHED.contains(&version);
        let leads = from <= to && is_published(to) && (from == to || is_published(from));
        if leads { Ok(from) } else { Err(Fault::Refused) }
    }

    /// What a place stands for: a version that deltas lead to, and from where; or a checkpoint.
    fn source(&self, place: Place) -> Result<Option<(u64, u64)>, Fault> {
        let to = match place {
            Place::Local => self.pulled,
            Place::Delta(version) if PUBLISHED.contains(&version) => Some(version),
            _ => None,
        };
        to.map(|to| self.chain(to).map(|from| (from, to))).transpose()
    }

    /// What a version of deltas makes of the norm. Of version 0, nobody says it.
    fn norm_of(version: u64) -> Content {
        Content::Filled(usize::try_from(version).expect("a small number"))
    }

    fn write_deltas(&mut self, from: u64, to: u64, as_loaded: bool) -> Result<usize, Fault> {
        if from == to {
            let proven = if to == 0 { as_loaded } else { self.weights.norm == Self::norm_of(to) };
            return if proven { Ok(0) } else { Err(Fault::Refused) };
        }
        if self.weights.norm != Self::norm_of(from) {
            return Err(Fault::Refused);
        }
        self.touch();
        self.weights.norm = Self::norm_of(to);
        Ok(1)
    }

    fn write_checkpoint(&mut self, place: Place) -> Result<usize, Fault> {
        if !matches!(place, Place::Checkpoint | Place::Named | Place::Local) {
            return Err(Fault::Refused);
        }
        self.touch();
        self.weights = Weights::LOADED;
        Ok(self.others + 2)
    }

    /// Writes what is at a place; returns how many tensors that were, the version, and whether what is there was proven.
    fn write(&mut self, place: Place, deltas: Option<(u64, u64)>) -> Result<(usize, Option<u64>, bool), Fault> {
        if let Some((from, to)) = deltas {
            let as_loaded = self.held().1;
            return self.write_deltas(from, to, as_loaded).map(|tensors| (tensors, Some(to), from == to));
        }
        let version = (place == Place::Named).then_some(5);
        self.write_checkpoint(place).map(|tensors| (tensors, version, false))
    }

    fn update(&mut self, place: Place, label: Label) -> Outcome {
        self.idle()?;
        let source = self.source(place);
        let pulled = self.pulled.take_if(|_| place == Place::Local);
        let source = source?;
        if let Err(fault) = self.begin_engine() {
            // What was pulled is still to come.
            self.pulled = self.pulled.or(pulled);
            return Err(fault);
        }
        let Ok((tensors, version, _)) = self.write(place, source) else { return Err(self.fail()) };
        let trained = version.or_else(|| label?.parse().ok());
        let version = version.map(|version| version.to_string());
        self.finish(label.map(str::to_owned).or(version), trained, tensors)
    }

    fn finish(&mut self, label: Option<String>, trained: Option<u64>, tensors: usize) -> Outcome {
        if self.lacking() > 0 {
            return Err(self.fail());
        }
        self.update = None;
        if self.begun.take().expect("an update").touched {
            self.number += 1;
            match self.policy.on_weights_change {
                OnWeightsChange::Recompute => self.given_back += 1,
                OnWeightsChange::Reuse => {}
            }
            self.changes += 1;
            self.label = label.unwrap_or_else(|| self.number.to_string());
        } else if let Some(label) = label {
            self.label = label;
        }
        self.trained = trained;
        Ok(Said::Updated { label: self.label.clone(), number: self.number, tensors })
    }

    fn write_in_phases(&mut self, part: Part) -> Outcome {
        match &self.update {
            None => return Err(Fault::OutOfOrder),
            Some(phase) if !phase.in_phases => return Err(Fault::State),
            Some(_) => {}
        }
        let written = match part {
            Part::At(place) => {
                let source = self.source(place);
                self.pulled.take_if(|_| place == Place::Local);
                source.and_then(|source| self.write(place, source))
            }
            Part::Version(to) => {
                let as_loaded = self.held().1;
                let chain = self.chain(to);
                chain.and_then(|from| Ok((self.write_deltas(from, to, as_loaded)?, Some(to), from == to)))
            }
            Part::Filled(tensor, number) => {
                self.fill(tensor, number);
                Ok((1, None, false))
            }
            Part::Empty => Err(Fault::Refused),
        };
        let Ok((tensors, version, proven)) = written else { return Err(self.fail()) };
        self.wrote(tensors, version, proven);
        Ok(Said::Wrote { tensors })
    }

    fn wrote(&mut self, tensors: usize, version: Option<u64>, proven: bool) {
        let phase = self.update.as_mut().expect("an update");
        phase.tensors += tensors;
        phase.trained = version;
        phase.proven |= proven;
    }

    fn fill(&mut self, tensor: Tensor, number: usize) {
        self.touch();
        *self.weights.of(tensor) = Content::Filled(number);
    }

    fn finish_phases(&mut self, label: Label) -> Outcome {
        match &self.update {
            None => Err(Fault::OutOfOrder),
            Some(phase) if !phase.in_phases => Err(Fault::State),
            Some(_) => self.finish_phase(label),
        }
    }

    fn finish_phase(&mut self, label: Label) -> Outcome {
        let phase = self.update.clone().expect("an update");
        if phase.coming > 0 {
            return Err(Fault::State);
        }
        self.update = None;
        if phase.tensors == 0 && !phase.proven {
            return Err(self.fail());
        }
        let label = label.or(phase.label);
        let trained = phase.trained.or_else(|| label?.parse().ok());
        self.finish(label.map(str::to_owned), trained, phase.tensors)
    }

    /// A body begins to come; returns the number of its update, and whether it is a part of it.
    pub(super) fn join(&mut self) -> Result<(u64, bool), Fault> {
        match &mut self.update {
            None => Ok((self.begin(false)?, false)),
            Some(phase) if phase.in_phases => {
                phase.coming += 1;
                Ok((phase.call, true))
            }
            Some(_) => Err(Fault::State),
        }
    }

    fn is_active(&self, call: u64) -> bool {
        self.update.as_ref().is_some_and(|phase| phase.call == call)
    }

    /// A tensor of a body comes.
    pub(super) fn write_piece(&mut self, call: u64, tensor: Tensor, number: usize) -> Result<(), Fault> {
        if !self.is_active(call) {
            return Err(Fault::State);
        }
        self.fill(tensor, number);
        self.wrote(1, None, false);
        Ok(())
    }

    /// A body breaks off, or cannot be used.
    pub(super) fn break_body(&mut self, call: u64) -> Fault {
        if self.is_active(call) { self.fail() } else { Fault::Refused }
    }

    /// A body has come to its end.
    pub(super) fn end_body(&mut self, call: u64, is_part: bool, label: Label) -> Outcome {
        if !self.is_active(call) {
            return Err(Fault::State);
        }
        if !is_part {
            return self.finish_phase(label);
        }
        let phase = self.update.as_mut().expect("an update");
        phase.coming -= 1;
        phase.label = label.or(phase.label);
        Ok(Said::WasPart)
    }
}
