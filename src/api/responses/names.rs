//! The names of tools in calls: a group of functions is a namespace for the client, and a part of each name for the
//! model (vLLM 0.33 `tool_parsers/utils.py`).

use std::collections::HashMap;

/// The names that the tools of a request have in calls.
#[derive(Debug, Clone, Default)]
pub(super) struct CallNames {
    /// The tools whose input is a text, by the names that the model knows.
    custom: Vec<String>,
    /// Group and name of each tool in a group, by the name that the model knows.
    grouped: HashMap<String, (String, String)>,
}

/// The name in a call, as the client knows it.
pub(super) struct SpokenName {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// Whether the call's input is a text.
    pub(super) is_custom: bool,
}

/// Returns the name by which the model knows a tool of a group.
pub(super) fn name_in_group(group: &str, name: &str) -> String {
    format!("{group}__{name}")
}

impl CallNames {
    /// Notes a tool whose input is a text.
    pub(super) fn add_custom(&mut self, name: &str) {
        self.custom.push(name.to_owned());
    }

    /// Notes a tool of a group.
    pub(super) fn add_grouped(&mut self, group: &str, name: &str) {
        self.grouped.insert(name_in_group(group, name), (group.to_owned(), name.to_owned()));
    }

    /// Whether the model knows a tool with a text for its input by this name.
    pub(super) fn is_custom(&self, name: &str) -> bool {
        self.custom.iter().any(|custom| custom == name)
    }

    /// Returns the client's name for what the model calls.
    pub(super) fn spoken(&self, name: &str) -> SpokenName {
        let is_custom = self.is_custom(name);
        let (namespace, name) = match self.grouped.get(name) {
            Some((group, name)) => (Some(group.clone()), name.clone()),
            None => (None, name.to_owned()),
        };
        SpokenName { namespace, name, is_custom }
    }

    /// Returns the model's names of all grouped tools that a client calls so, in the order of the alphabet.
    pub(super) fn called(&self, name: &str) -> Vec<&str> {
        let called = self.grouped.iter().filter(|(_, (_, local))| local == name);
        let mut called: Vec<&str> = called.map(|(flat, _)| flat.as_str()).collect();
        called.sort_unstable();
        called
    }
}
