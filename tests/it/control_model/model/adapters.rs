//! Which adapters are there, and what their tokens are said to be of.

use std::collections::BTreeMap;

use super::{Fault, Outcome, Said};
use crate::it::control_model::calls::{Lora, Replacing};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Adapter {
    /// The name, and how often it was given.
    pub(in super::super) label: String,
    pub(in super::super) lora: Lora,
}

#[derive(Debug, Default)]
pub(in super::super) struct Adapters {
    /// In the order in which the names came.
    named: Vec<(&'static str, Adapter)>,
    /// How often each name was given, those that are gone too.
    given: BTreeMap<&'static str, u64>,
}

impl Adapters {
    pub(in super::super) fn get(&self, name: &str) -> Option<&Adapter> {
        self.named.iter().find(|(named, _)| *named == name).map(|(_, adapter)| adapter)
    }

    pub(in super::super) fn labels(&self) -> Vec<&str> {
        self.named.iter().map(|(_, adapter)| adapter.label.as_str()).collect()
    }

    /// Loads an adapter; `is_settled` says whether all weights of the base are there, and no update writes them.
    pub(super) fn load(&mut self, name: &'static str, lora: Lora, replacing: Replacing, is_settled: bool) -> Outcome {
        if replacing == Replacing::Never && self.get(name).is_some() {
            return Err(Fault::Taken);
        }
        match lora {
            Lora::Attention(_) => {}
            // No update of the test writes another head.
            Lora::Head if is_settled => {}
            Lora::Head => return Err(Fault::NotNow),
            Lora::TooGreat | Lora::Missing => return Err(Fault::Refused),
        }
        let version = self.given.entry(name).or_default();
        *version += 1;
        let adapter = Adapter { label: format!("{name}@{version}"), lora };
        let before = if let Some((_, before)) = self.named.iter_mut().find(|(named, _)| *named == name) {
            Some(std::mem::replace(before, adapter).label)
        } else {
            self.named.push((name, adapter));
            None
        };
        Ok(Said::Loaded { before })
    }

    pub(super) fn unload(&mut self, name: &str) -> Outcome {
        let index = self.named.iter().position(|(named, _)| *named == name).ok_or(Fault::Unknown)?;
        self.named.remove(index);
        Ok(Said::Nothing)
    }
}
