//! Flags of `vllm serve` that tito does not have: known by name, so that command lines written for vLLM work.
//!
//! What changes neither ids nor answers is accepted and named in one warning. What would change them and cannot be
//! honoured is refused with the reason, unless its value is the one that changes nothing. The flags themselves are in
//! `vllm_flags.json`, which `tests/reference/record_vllm_flags.py` refreshes.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

/// What follows a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Takes {
    /// Nothing; there is also `--no-…`.
    Nothing,
    /// It takes one value.
    Value,
    /// It takes one value or more.
    Values,
}

/// What becomes of a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The flag has no effect here.
    NoEffect,
    /// vLLM itself has it no more.
    Removed,
    /// Only these values change nothing, and mean what tito does; no value at all stands for a bare flag. Those of `idle` have
    /// no effect here.
    Only { values: Vec<&'static str>, idle: Vec<&'static str>, reason: &'static str },
    /// It is a key of a flag that takes JSON.
    Key,
}

/// One flag.
#[derive(Debug, Clone)]
pub(super) struct Foreign {
    pub(super) name: &'static str,
    pub(super) takes: Takes,
    pub(super) meaning: Meaning,
}

/// The file.
#[derive(Deserialize)]
struct Flags {
    /// Spellings with one dash.
    #[serde(borrow)]
    short: BTreeMap<&'static str, &'static str>,
    /// Flags that are keys of others, with the others.
    #[serde(borrow)]
    keys: BTreeMap<&'static str, &'static str>,
    no_effect: BTreeMap<Takes, Vec<&'static str>>,
    removed: BTreeMap<Takes, Vec<&'static str>>,
    refused: Vec<Refused>,
}

/// Flags that are refused for the same reason.
#[derive(Deserialize)]
struct Refused {
    reason: &'static str,
    flags: Vec<RefusedFlag>,
}

#[derive(Deserialize)]
struct RefusedFlag {
    name: &'static str,
    takes: Takes,
    /// The values that change nothing.
    neutral: Vec<&'static str>,
    /// The values that ask for the same, done in another way.
    #[serde(default)]
    idle: Vec<&'static str>,
}

/// All of vLLM's flags that tito does not have.
pub(super) fn all() -> impl Iterator<Item = &'static Foreign> {
    TABLE.all.iter()
}

/// Returns the flag of which `name` is the spelling with one dash.
pub(super) fn long(name: &str) -> Option<&'static str> {
    TABLE.short.get(name).copied()
}

/// Returns the flag and the key in its JSON, without dashes, for which the flag `name` stands.
pub(super) fn key(name: &str) -> Option<&'static str> {
    TABLE.keys.get(name.strip_prefix("--")?).copied()
}

/// The file, as it is asked.
struct Table {
    short: BTreeMap<&'static str, &'static str>,
    keys: BTreeMap<&'static str, &'static str>,
    all: Vec<Foreign>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let flags: Flags = serde_json::from_str(include_str!("vllm_flags.json")).expect("the file is part of the program");
    let plain = |names: BTreeMap<Takes, Vec<&'static str>>, meaning: Meaning| {
        let each = |(takes, names): (Takes, Vec<&'static str>)| names.into_iter().map(move |name| (name, takes));
        let foreign = move |(name, takes)| Foreign { name, takes, meaning: meaning.clone() };
        names.into_iter().flat_map(each).map(foreign).collect::<Vec<_>>()
    };
    let mut all = plain(flags.no_effect, Meaning::NoEffect);
    all.extend(plain(flags.removed, Meaning::Removed));
    let refused = flags.refused.into_iter().flat_map(|Refused { reason, flags }| {
        let only = move |RefusedFlag { name, takes, neutral, idle }| {
            let meaning = Meaning::Only { values: neutral, idle, reason };
            Foreign { name, takes, meaning }
        };
        flags.into_iter().map(only)
    });
    all.extend(flags.keys.keys().map(|name| Foreign { name, takes: Takes::Value, meaning: Meaning::Key }));
    let mut refused: Vec<_> = refused.collect();
    // Switches first, and then by name: in this order they are told.
    refused.sort_by_key(|flag| (flag.takes != Takes::Nothing, flag.name));
    all.extend(refused);
    Table { short: flags.short, keys: flags.keys, all }
});
