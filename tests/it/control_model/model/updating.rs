//! What updates do to the weights, and to what is known of them.

use std::collections::BTreeSet;

use tito::engine::{OnWeightsChange, UndoPolicy};

use super::{Begun, Content, Fault, Model, Outcome, PUBLISHED, Phase, Said, Weights};
use crate::it::control_model::calls::{Label, Part, Place, Tensor};

impl Model {
    pub(super) fn idle(&self) -> Result<(), Fault> {
        match &self.update {
            None => Ok(()),
            Some(phase) => Err(if phase.in_phases { Fault::OutOfOrder } else { Fault::State }),
        }
    }

    fn begin_engine(&mut self) -> Result<(), Fault> {
        if self.asleep.is_some_and(|asleep| asleep.weights) {
            return Err(Fault::State);
        }
        let keeps = self.policy.undo == UndoPolicy::Memory && self.lacking() == 0;
        self.begun = Some(Begun { kept: keeps.then_some(self.weights), touched: false, lacking: self.lacking() });
        Ok(())
    }

    pub(super) fn begin(&mut self, in_phases: bool) -> Result<u64, Fault> {
        self.begin_engine()?;
        self.updates += 1;
        let call = self.updates;
        let (coming, tensors, trained, proven, label, names) = (0, 0, None, false, None, BTreeSet::new());
        self.update = Some(Phase { call, in_phases, coming, tensors, trained, proven, label, names });
        Ok(call)
    }

    /// Ends an update with what was there before, if that was kept.
    pub(super) fn cancel(&mut self) -> Result<(), Fault> {
        self.update = None;
        match self.begun.take() {
            Some(Begun { kept: Some(kept), .. }) => self.weights = kept,
            Some(Begun { kept: None, touched: true, .. }) => {
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
    pub(super) fn chain(&self, to: u64) -> Result<u64, Fault> {
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
        // Lost weights are no base, whatever still lies there.
        if self.lacking() > 0 {
            return Err(Fault::Refused);
        }
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

    pub(super) fn update(&mut self, place: Place, label: Label) -> Outcome {
        match &self.update {
            None => {}
            Some(phase) if phase.in_phases => {
                self.cancel()?;
                return Err(Fault::EndsUpdate);
            }
            Some(_) => return Err(Fault::State),
        }
        let source = self.source(place)?;
        self.begin_engine()?;
        let Ok((tensors, version, _)) = self.write(place, source) else { return Err(self.fail()) };
        let trained = version.or_else(|| label?.parse().ok());
        let version = version.map(|version| version.to_string());
        let is_whole = tensors >= self.others + 2;
        Ok(self.finish(label.map(str::to_owned).or(version), (trained, is_whole), tensors))
    }

    fn finish(&mut self, label: Option<String>, (trained, is_whole): (Option<u64>, bool), tensors: usize) -> Said {
        self.update = None;
        let Begun { touched, lacking, .. } = self.begun.take().expect("an update");
        if touched {
            self.number += 1;
            match self.policy.on_weights_change {
                OnWeightsChange::Recompute => self.given_back += 1,
                OnWeightsChange::Reuse => {}
            }
            self.changes += 1;
            let label = label.unwrap_or_else(|| self.new_name());
            self.named(label);
        } else if let Some(label) = label {
            self.named(label);
        }
        // The rest of weights that were lost is of the number of what came before, or nobody knows it.
        let is_rest = (1..self.others + 2).contains(&lacking) && !is_whole;
        self.trained = trained.filter(|_| !is_rest || trained == self.trained);
        Said::Updated { label: self.label.clone(), number: self.number, tensors }
    }

    pub(super) fn named(&mut self, label: String) {
        self.labels.insert(label.clone());
        self.label = label;
    }

    /// A name that no weights had.
    fn new_name(&self) -> String {
        let suffixed = (1..).map(|suffix| format!("{}.{suffix}", self.number));
        let mut names = std::iter::once(self.number.to_string()).chain(suffixed);
        names.find(|name| !self.labels.contains(name)).expect("a name that no weights had")
    }

    pub(super) fn write_in_phases(&mut self, part: Part) -> Outcome {
        match &self.update {
            None => return Err(Fault::OutOfOrder),
            Some(phase) if !phase.in_phases => return Err(Fault::State),
            Some(_) => {}
        }
        let written = match part {
            Part::At(place) => {
                let source = self.source(place);
                source.and_then(|source| Ok((self.write(place, source)?, source.is_some())))
            }
            Part::Version(to) => {
                let as_loaded = self.held().1;
                let chain = self.chain(to);
                chain.and_then(|from| Ok(((self.write_deltas(from, to, as_loaded)?, Some(to), from == to), true)))
            }
            Part::Filled(tensor, number) => {
                self.fill(tensor, number);
                Ok(((1, None, false), false))
            }
            Part::Empty => Err(Fault::Refused),
        };
        let Ok(((tensors, version, proven), builds_on)) = written else { return Err(self.fail()) };
        self.wrote(tensors, version, builds_on, proven);
        Ok(Said::Wrote { tensors })
    }

    /// Deltas have a number whatever was there; what else is written has it where all of it is called so.
    fn wrote(&mut self, tensors: usize, version: Option<u64>, builds_on: bool, proven: bool) {
        let phase = self.update.as_mut().expect("an update");
        let is_one = builds_on || phase.tensors == 0 || phase.trained == version;
        phase.trained = if is_one { version } else { None };
        phase.tensors += tensors;
        phase.proven |= proven;
    }

    fn fill(&mut self, tensor: Tensor, number: usize) {
        self.touch();
        *self.weights.of(tensor) = Content::Filled(number);
    }

    pub(super) fn finish_phases(&mut self, label: Label) -> Outcome {
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
        if !phase.names.is_empty() && phase.names.iter().copied().chain(label).collect::<BTreeSet<_>>().len() > 1 {
            return Err(self.fail());
        }
        let label = label.or(phase.label);
        let trained = phase.trained.or_else(|| label?.parse().ok());
        let number = || phase.trained.map(|number| number.to_string());
        Ok(self.finish(label.map(str::to_owned).or_else(number), (trained, false), phase.tensors))
    }

    /// A body begins to come; returns the number of its update, and whether it is a part of it.
    pub(in super::super) fn join(&mut self, label: Label) -> Result<(u64, bool), Fault> {
        match &mut self.update {
            None => {
                let call = self.begin(false)?;
                self.update.as_mut().expect("an update").label = label;
                Ok((call, false))
            }
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
    pub(in super::super) fn write_piece(&mut self, call: u64, tensor: Tensor, number: usize) -> Result<(), Fault> {
        if !self.is_active(call) {
            return Err(Fault::State);
        }
        self.fill(tensor, number);
        self.wrote(1, None, false, false);
        Ok(())
    }

    /// A body breaks off, or cannot be used.
    pub(in super::super) fn break_body(&mut self, call: u64) -> Fault {
        if self.is_active(call) { self.fail() } else { Fault::Refused }
    }

    /// A body has come to its end.
    pub(in super::super) fn end_body(&mut self, call: u64, is_part: bool, label: Label) -> Outcome {
        if !self.is_active(call) {
            return Err(Fault::State);
        }
        if !is_part {
            return self.finish_phase(None);
        }
        let phase = self.update.as_mut().expect("an update");
        phase.coming -= 1;
        phase.label = label.or(phase.label);
        phase.names.extend(label);
        Ok(Said::WasPart)
    }
}
