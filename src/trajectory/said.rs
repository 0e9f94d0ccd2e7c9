//! What a client said in its request, in the JSON of its own dialect, beside what the chat template made of it.
//!
//! A turn keeps what its request adds to that of the turn before, as it does with ids. Ids that items carry are left out: they
//! are kept as ids, and each item would repeat all of those before it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What a request said.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Said {
    /// The endpoint whose JSON it is: `chat_completions`, `messages` or `responses`.
    pub dialect: Arc<str>,
    /// Its messages or input items; in a record, those after the first `before`.
    pub items: Vec<Arc<RawValue>>,
    /// In a record, how many of its items are the first ones of the turn before.
    pub before: usize,
    /// What it says besides as the system: `system` or `instructions`; in a record `None` where it is that of the turn before.
    pub system: Option<Arc<RawValue>>,
    /// Its tools; in a record `None` where they are those of the turn before.
    pub tools: Option<Arc<RawValue>>,
}

/// Says in a record that there is none where the turn before had some. No dialect takes it for either, and null would be read as
/// nothing.
const NONE_NOW: &str = "false";

fn none_now() -> Arc<RawValue> {
    RawValue::FALSE.to_owned().into()
}

impl Said {
    /// Returns it without what the turn before said too.
    pub(super) fn since(mut self, before: &Self) -> Self {
        if self.dialect != before.dialect {
            return self;
        }
        let shared = self.items.iter().zip(&before.items);
        self.before = shared.take_while(|(own, before)| own.get() == before.get()).count();
        self.items.drain(..self.before);
        let new = |own: Option<Arc<RawValue>>, before: &Option<Arc<RawValue>>| {
            let text = |said: &Option<Arc<RawValue>>| said.as_ref().map(|said| said.get().to_owned());
            if text(&own) == text(before) { None } else { Some(own.unwrap_or_else(none_now)) }
        };
        self.system = new(self.system, &before.system);
        self.tools = new(self.tools, &before.tools);
        self
    }

    /// Returns all of it, from that of the turn before and what a record adds.
    pub(super) fn after(before: Option<Self>, added: Self) -> Self {
        let Some(mut whole) = before.filter(|before| before.dialect == added.dialect) else { return added };
        whole.items.truncate(added.before);
        whole.items.extend(added.items);
        let now = |added: Option<Arc<RawValue>>, before| match added {
            None => before,
            Some(said) if said.get() == NONE_NOW => None,
            said => said,
        };
        whole.system = now(added.system, whole.system);
        whole.tools = now(added.tools, whole.tools);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Arc<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap().into()
    }

    fn said(dialect: &str, items: &[&str], system: Option<&str>, tools: Option<&str>) -> Said {
        Said {
            dialect: dialect.into(),
            items: items.iter().map(|item| raw(item)).collect(),
            before: 0,
            system: system.map(raw),
            tools: tools.map(raw),
        }
    }

    fn texts(said: &Said) -> (Vec<&str>, Option<&str>, Option<&str>) {
        (
            said.items.iter().map(|item| item.get()).collect(),
            said.system.as_deref().map(RawValue::get),
            said.tools.as_deref().map(RawValue::get),
        )
    }

    #[test]
    fn a_turn_keeps_what_it_adds_and_all_of_it_comes_back() {
        let turns = [
            said("messages", &["1"], Some("\"kind\""), Some("[1]")),
            said("messages", &["1", "2", "3"], Some("\"kind\""), Some("[1]")),
            said("messages", &["1", "2", "3", "4"], None, Some("[2]")),
            // It was compacted.
            said("messages", &["1", "5"], None, None),
            said("responses", &["1"], Some("\"kind\""), None),
            said("responses", &[], Some("\"kind\""), None),
        ];
        let (mut before, mut kept): (Option<Said>, Vec<usize>) = (None, Vec::new());
        for turn in turns {
            let record = match &before {
                Some(before) => turn.clone().since(before),
                None => turn.clone(),
            };
            kept.push(record.items.len());
            // As it is read out of a record.
            let record: Said = serde_json::from_slice(&serde_json::to_vec(&record).unwrap()).unwrap();
            let whole = Said::after(before, record);
            assert_eq!((&whole.dialect, texts(&whole)), (&turn.dialect, texts(&turn)));
            before = Some(whole);
        }
        assert_eq!(kept, [1, 2, 1, 1, 1, 0]);
    }
}
