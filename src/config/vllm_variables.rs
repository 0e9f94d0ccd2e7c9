//! Environment variables of vLLM that tito does not read: known by name, so that nobody takes for set what is not.
//!
//! What would change answers, limits or what is served is named in one warning, and so is what vLLM does not know either. What
//! only steers vLLM's own kernels, processes, downloads and logs is passed over. The variables themselves are in
//! `vllm_variables.json`, which `tests/reference/record_vllm_variables.py` compares with vLLM.

use std::{collections::BTreeSet, sync::LazyLock};

use clap::Command;
use serde::Deserialize;

/// What begins the names of all of vLLM's variables.
const PREFIX: &str = "VLLM_";

/// The file.
#[derive(Deserialize)]
struct Variables {
    ignored: Vec<Ignored>,
    #[serde(borrow)]
    no_effect: BTreeSet<&'static str>,
}

/// Variables whose meaning is ignored for the same reason.
#[derive(Deserialize)]
struct Ignored {
    /// What holds instead.
    reason: &'static str,
    variables: Vec<Variable>,
}

#[derive(Deserialize)]
struct Variable {
    name: &'static str,
    /// The values that change nothing here.
    neutral: Vec<&'static str>,
}

static TABLE: LazyLock<Variables> = LazyLock::new(|| {
    serde_json::from_str(include_str!("vllm_variables.json")).expect("the file is part of the program")
});

/// The variables that a command reads itself.
pub(super) fn read_by(command: &Command) -> BTreeSet<String> {
    command.get_arguments().filter_map(|arg| Some(arg.get_env()?.to_str()?.to_owned())).collect()
}

/// What is to be said about an environment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// What is set and ignored, and why, in the order of their names.
    ignored: Vec<String>,
    /// What vLLM does not know either.
    pub(super) unknown: Vec<String>,
}

impl Judged {
    /// One sentence about all of it.
    pub(super) fn warning(&self) -> Option<String> {
        let ignored = (!self.ignored.is_empty()).then(|| format!("without effect here: {}", self.ignored.join(", ")));
        let unknown = (!self.unknown.is_empty()).then(|| format!("unknown: {}", self.unknown.join(", ")));
        let said: Vec<String> = ignored.into_iter().chain(unknown).collect();
        (!said.is_empty()).then(|| format!("ignored environment variables, {}", said.join("; ")))
    }
}

/// Judges the variables of an environment; those of `read` are read.
pub(super) fn judge(environment: impl IntoIterator<Item = (String, String)>, read: &BTreeSet<String>) -> Judged {
    let mut judged = Judged::default();
    for (name, value) in environment {
        if !name.starts_with(PREFIX) || read.contains(&name) || TABLE.no_effect.contains(name.as_str()) {
            continue;
        }
        match ignored(&name) {
            Some((variable, _)) if is_neutral(variable, &value) => {}
            Some((_, reason)) => judged.ignored.push(format!("{name} ({reason})")),
            None if is_of_kubernetes(&name, &value) => {}
            None => judged.unknown.push(name),
        }
    }
    judged.ignored.sort_unstable();
    judged.unknown.sort_unstable();
    judged
}

fn ignored(name: &str) -> Option<(&'static Variable, &'static str)> {
    let of = |group: &'static Ignored| group.variables.iter().map(|variable| (variable, group.reason));
    TABLE.ignored.iter().flat_map(of).find(|(variable, _)| variable.name == name)
}

fn is_neutral(variable: &Variable, value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    value.is_empty() || variable.neutral.contains(&value.as_str())
}

/// Whether Kubernetes set it, which tells every container the addresses of services: also of one whose name begins with `vllm`.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
        || ["_TCP_", "_UDP_", "_SCTP_"]
            .iter()
            .any(|protocol| ["ADDR", "PORT", "PROTO"].iter().any(|end| name.ends_with(&format!("{protocol}{end}"))))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn read() -> BTreeSet<String> {
        read_by(crate::config::Arguments::command().find_subcommand("serve").unwrap())
    }

    fn said(variables: &[(&str, &str)]) -> Option<String> {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        judge(environment, &read()).warning()
    }

    #[test]
    fn what_is_set_and_ignored_is_named_with_what_holds_instead() {
        let warning = said(&[
            ("VLLM_NOT_A_THING", "1"),
            ("VLLM_USE_MODELSCOPE", "True"),
            ("VLLM_MAX_STOP_STRINGS", "100"),
            ("VLLM_API_KEY", "secret"),
            ("PATH", "/bin"),
        ]);
        let expected = "ignored environment variables, without effect here: VLLM_MAX_STOP_STRINGS (a request may have four stop \
                        strings), VLLM_USE_MODELSCOPE (models come from the Hugging Face hub, or from the directory that is given \
                        as MODEL); unknown: VLLM_NOT_A_THING";
        assert_eq!(warning.as_deref(), Some(expected));
    }

    #[test]
    fn what_changes_nothing_is_not_named() {
        for (name, value) in [
            ("VLLM_MAX_STOP_STRINGS", "4"),
            ("VLLM_ENFORCE_STRICT_TOOL_CALLING", "True"),
            ("VLLM_MODEL_REDIRECT_PATH", ""),
            ("VLLM_USE_DEEP_GEMM", "0"),
            ("VLLM_LOGGING_CONFIG_PATH", "a.json"),
            ("VLLM_MAX_N_SEQUENCES", "3"),
            // A service of Kubernetes whose name is `vllm-router`.
            ("VLLM_ROUTER_SERVICE_HOST", "10.0.0.1"),
            ("VLLM_ROUTER_SERVICE_PORT_HTTP", "80"),
            ("VLLM_ROUTER_PORT", "tcp://10.0.0.1:80"),
            ("VLLM_ROUTER_PORT_80_TCP_ADDR", "10.0.0.1"),
        ] {
            assert_eq!(said(&[(name, value)]), None, "{name}={value}");
        }
    }

    #[test]
    fn no_variable_is_told_twice() {
        let ignored = TABLE.ignored.iter().flat_map(|group| &group.variables).map(|variable| variable.name);
        let mut names: Vec<String> = ignored.chain(TABLE.no_effect.iter().copied()).map(str::to_owned).collect();
        names.extend(read().into_iter().filter(|name| name.starts_with(PREFIX)));
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn what_a_reason_names_exists() {
        let command = crate::config::Arguments::command();
        let flags = crate::config::foreign::names(command.find_subcommand("serve").unwrap());
        for word in TABLE.ignored.iter().flat_map(|group| group.reason.split([' ', ',', ';'])) {
            assert!(!word.starts_with("--") || flags.contains(word), "{word}");
            assert!(!word.starts_with(PREFIX) || read().contains(word), "{word}");
        }
    }
}
