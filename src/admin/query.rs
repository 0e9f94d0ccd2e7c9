//! Queries of the control plane.

use axum::{
    extract::{FromRequestParts, Query, Request, State},
    http::{Uri, request::Parts},
    middleware::Next,
    response::Response,
};

use super::{AdminError, Shared, labels::check_label};
use crate::control::{PauseMode, SleepLevel, SleepTag};

/// What the query of a call for an adapter may have.
const OF_ADAPTERS: &[&str] = &["lora_name", "load_inplace", "on_replace"];

/// The parameters of each path that has some. Those of `/sleep` that vLLM's call ignores too are without effect: SkyRL's
/// client sends `tags` there.
const PARAMETERS: [(&str, &[&str]); 12] = [
    ("/pause", &["mode", "clear_cache"]),
    ("/sleep", &["level", "mode", "tags"]),
    ("/wake_up", &["tags"]),
    ("/reset_prefix_cache", &["reset_running_requests", "reset_external"]),
    ("/update_weights", &["weight_version"]),
    ("/flush_cache", &["timeout"]),
    ("/get_world_size", &["include_dp"]),
    ("/server_info", &["config_format"]),
    ("/v1/loads", &["include"]),
    ("/v1/load_lora_adapter", OF_ADAPTERS),
    ("/load_lora_adapter", OF_ADAPTERS),
    ("/skyrl/v1/load_lora_adapter", OF_ADAPTERS),
];

/// The calls that are a part of an update in parts once one was begun.
const OF_PARTS: [&str; 6] = [
    "/update_weights",
    "/update_weights_from_disk",
    "/update_weights_from_tensor",
    "/update_weights_from_distributed",
    "/update_weights_from_ipc",
    "/areal_update_weights_xccl",
];

/// Returns the parameters that the query of a call may have.
pub(super) fn parameters_of(path: &str) -> &'static [&'static str] {
    PARAMETERS.iter().find(|(of, _)| *of == path).map_or(&[], |(_, names)| names)
}

/// Refuses parameters that a call does not have: nobody would see that they are without effect. A part of an update that is
/// refused for them ends it, as one with a field that it does not have.
pub(super) async fn only_known(
    State(admin): State<Shared>,
    request: Request,
    next: Next,
) -> Result<Response, AdminError> {
    let path = request.uri().path();
    let known = Parameters::of(request.uri()).and_then(|query| query.only(parameters_of(path)));
    if OF_PARTS.contains(&path) {
        admin.or_end_update(known).await?;
    } else {
        known?;
    }
    Ok(next.run(request).await)
}

/// The parameters of a query, in their order.
pub(super) struct Parameters(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for Parameters {
    type Rejection = AdminError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AdminError> {
        Self::of(&parts.uri)
    }
}

fn refused(name: &str, kind: &str, said: &str, input: &str, context: &str) -> AdminError {
    let path = format!("query.{name}");
    let input = input.replace('\\', "\\\\").replace('\'', "\\'");
    let context = if context.is_empty() { String::new() } else { format!(", 'ctx': {{{context}}}") };
    let message = format!(
        "1 validation error:\n  {{'type': '{kind}', 'loc': '{path}', 'msg': {}, 'input': '{input}'{context}}}",
        quoted(said)
    );
    AdminError::field(&path, message)
}

/// A text as Python prints it within a dict.
fn quoted(text: &str) -> String {
    if text.contains('\'') { format!("\"{text}\"") } else { format!("'{text}'") }
}

impl Parameters {
    fn of(uri: &Uri) -> Result<Self, AdminError> {
        match Query::try_from_uri(uri) {
            Ok(Query(parameters)) => Ok(Self(parameters)),
            Err(error) => Err(AdminError::bad(error.body_text())),
        }
    }

    fn only(&self, known: &[&str]) -> Result<(), AdminError> {
        let Some((name, _)) = self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) else {
            return self.once();
        };
        check_label("query", Some(name))?;
        let has = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = format!("this call has no parameter `{name}` in its query; it has {has}");
        Err(AdminError::field(&format!("query.{name}"), message))
    }

    /// Refuses a parameter that is there twice, of which only one would count. Tags are a list.
    fn once(&self) -> Result<(), AdminError> {
        let is_repeated = |name: &str| name != "tags" && self.all(name).len() > 1;
        let Some((name, _)) = self.0.iter().find(|(name, _)| is_repeated(name)) else { return Ok(()) };
        let message = format!("`{name}` is there more than once in the query, and only one could count");
        Err(AdminError::field(&format!("query.{name}"), message))
    }

    /// Refuses parameters that say what is in a body of bytes, beside a body that says so itself.
    pub(super) fn none_of(&self, names: &[&str]) -> Result<(), AdminError> {
        match names.iter().find(|name| self.get(name).is_some()) {
            None => Ok(()),
            Some(name) => {
                let message = format!(
                    "beside a JSON body, `{name}` stands in that body: in the query, it belongs to a body of the media type \
                     application/octet-stream"
                );
                Err(AdminError::field(&format!("query.{name}"), message))
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns a truth, in the words that pydantic takes for one.
    pub(super) fn truth(&self, name: &str, default: bool) -> Result<bool, AdminError> {
        let Some(value) = self.get(name) else { return Ok(default) };
        match value.to_ascii_lowercase().as_str() {
            "true" | "1" | "t" | "yes" | "y" | "on" => Ok(true),
            "false" | "0" | "f" | "no" | "n" | "off" => Ok(false),
            _ => {
                let said = "Input should be a valid boolean, unable to interpret input";
                Err(refused(name, "bool_parsing", said, value, ""))
            }
        }
    }

    /// Returns one of some words.
    pub(super) fn one_of<'a>(&self, name: &str, words: &[&'a str], default: &'a str) -> Result<&'a str, AdminError> {
        let Some(value) = self.get(name) else { return Ok(default) };
        if let Some(word) = words.iter().find(|word| **word == value) {
            return Ok(word);
        }
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let expected = match &quoted[..] {
            [words @ .., last] if !words.is_empty() => format!("{} or {last}", words.join(", ")),
            words => words.concat(),
        };
        let context = format!("'expected': \"{expected}\"");
        Err(refused(name, "literal_error", &format!("Input should be {expected}"), value, &context))
    }

    pub(super) fn mode(&self) -> Result<PauseMode, AdminError> {
        Ok(match self.one_of("mode", &["abort", "wait", "keep"], "abort")? {
            "wait" => PauseMode::Wait,
            "keep" => PauseMode::Keep,
            _ => PauseMode::Abort,
        })
    }

    pub(super) fn level(&self) -> Result<SleepLevel, AdminError> {
        let Some(value) = self.get("level") else { return Ok(SleepLevel::KvCache) };
        match value.trim().parse::<i64>() {
            Ok(0) => Ok(SleepLevel::Scheduling),
            Ok(1) => Ok(SleepLevel::KvCache),
            Ok(2) => Ok(SleepLevel::Weights),
            Ok(below @ ..0) => {
                let said = "Input should be greater than or equal to 0";
                Err(refused("level", "greater_than_equal", said, &below.to_string(), "'ge': 0"))
            }
            Ok(above) => {
                let said = "Input should be less than or equal to 2";
                Err(refused("level", "less_than_equal", said, &above.to_string(), "'le': 2"))
            }
            Err(_) => {
                let said = "Input should be a valid integer, unable to parse string as an integer";
                Err(refused("level", "int_parsing", said, value, ""))
            }
        }
    }
}

/// Reads tags of what sleeps or wakes up; `place` is where they stand.
pub(super) fn tags<S: AsRef<str>>(place: &str, names: &[S]) -> Result<Vec<SleepTag>, AdminError> {
    let tag = |name: &S| match name.as_ref() {
        "weights" => Ok(SleepTag::Weights),
        "kv_cache" => Ok(SleepTag::KvCache),
        // Graphs of a GPU are not kept here.
        "scheduling" | "cuda_graph" => Ok(SleepTag::Scheduling),
        other => {
            let message = format!("unknown tag `{other}`; tags are `weights`, `kv_cache` and `scheduling`");
            Err(AdminError::field(place, message))
        }
    };
    names.iter().map(tag).collect()
}
