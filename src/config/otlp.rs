//! `--otlp-traces-endpoint`, and the variables that say how traces are sent.

use std::collections::BTreeMap;

use super::http::LogArgs;

impl LogArgs {
    /// The collector of traces; `None` also where a command line spells out that there is none.
    pub fn collector_of_traces(&self) -> Option<&str> {
        self.otlp_traces_endpoint.as_deref().filter(|endpoint| !matches!(*endpoint, "" | "None" | "none" | "null"))
    }
}

/// OpenTelemetry's variables of the process.
///
/// # Errors
///
/// If one of them is not text; the error names it.
pub(crate) fn otel_variables() -> Result<BTreeMap<String, String>, String> {
    let mut variables = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("OTEL_")) else { continue };
        let value = value.into_string().map_err(|_| format!("{name} is not text"))?;
        variables.insert(name.to_owned(), value);
    }
    Ok(variables)
}
