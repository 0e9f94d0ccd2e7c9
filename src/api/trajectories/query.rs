//! The queries of lists and exports. A name or a value that is not known is refused, because a list without its filter
//! would look like the one that was asked for. The names that are known are those of the OpenAPI document.

use axum::extract::{Query, rejection::QueryRejection};
use utoipa::IntoParams;

use crate::{
    trajectory::{Filter, Unit},
    wire::{
        error::ApiError,
        trajectories::export::{FORMATS, Format},
    },
};

/// A query as it was sent.
pub(super) type Sent = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// Which trajectories are meant.
#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only the names are read")]
pub(super) struct FilterParams {
    /// The session that the requests named.
    session: Option<String>,
    /// A tag.
    tag: Option<String>,
    /// The model that sampled a turn.
    model: Option<String>,
    /// What the weights are called that sampled a turn.
    version: Option<String>,
    /// Those with a turn that ended then or later, in seconds since 1970.
    since: Option<f64>,
    /// Those without a turn that ended then or later.
    until: Option<f64>,
    /// Whether every leaf ended by itself: by an end, a stop token or a stop string.
    complete: Option<bool>,
    /// The id of a trajectory; those behind it.
    after: Option<String>,
    /// The id of a trajectory: only that one.
    trajectory: Option<String>,
}

/// How much of a list is asked for.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only the names are read")]
pub(super) struct ListParams {
    /// At most this many, 1 to 1000 (default 100).
    limit: Option<usize>,
    /// `asc` (the default): those that began first in front; `desc`: those that began last.
    order: Option<String>,
}

/// What an export looks like.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only the names are read")]
pub(super) struct ExportParams {
    /// `jsonl` (the default), `trl`, `nemo_rl`, `verl`, `prime_rl`, `verifiers`, `agent_lightning`, or `parquet`, a table
    /// with the columns of `jsonl`.
    format: Option<String>,
    /// `leaf` (the default): a sequence for each turn that no other one continues; `turn`: one for each turn.
    unit: Option<String>,
    /// With `true`, `rescored` in each line says how far the log-probs are from those that the present weights give; for
    /// `jsonl` only.
    rescore: Option<bool>,
    /// With `true`, sequences are exported to every format whose log-probs are the model's own (`raw_logprobs`) though the
    /// requests edited the distribution, by a temperature for example. Otherwise such a line is an error, but in `jsonl`, which
    /// says in `logprobs_mode` what they are.
    allow_raw: Option<bool>,
}

/// A query that was read.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) filter: Filter,
    pub(super) limit: usize,
    /// The shape of lines; `None` for a table.
    pub(super) format: Option<Format>,
    pub(super) unit: Unit,
    /// Whether log-probs are computed again.
    pub(super) rescore: bool,
    /// Whether log-probs may be those of another distribution than the one that was sampled from.
    pub(super) allow_raw: bool,
}

/// The names of some parameters.
fn names<P: IntoParams>() -> impl Iterator<Item = String> {
    P::into_params(|| None).into_iter().map(|parameter| parameter.name)
}

/// Reads a query with the names of filters and those of `P`.
pub(super) fn read<P: IntoParams>(sent: Sent) -> Result<Asked, ApiError> {
    let known: Vec<String> = names::<FilterParams>().chain(names::<P>()).collect();
    let Query(pairs) = sent.map_err(|error| ApiError::malformed(Some("query".into()), error.body_text()))?;
    let (filter, format, unit) = (Filter::default(), Some(Format::Jsonl), Unit::Leaf);
    let mut asked = Asked { filter, limit: 100, format, unit, rescore: false, allow_raw: false };
    let mut seen = Vec::new();
    for (name, value) in pairs {
        if !known.contains(&name) {
            let known = known.join(", ");
            return Err(ApiError::invalid(name.clone(), format!("`{name}` is not known here; known are {known}")));
        }
        if seen.contains(&name) {
            return Err(ApiError::invalid(name.clone(), format!("`{name}` stands in the query twice")));
        }
        asked.take(&name, value)?;
        seen.push(name);
    }
    if asked.rescore && asked.format != Some(Format::Jsonl) {
        return Err(ApiError::invalid(
            "rescore",
            "`rescore` is for `format=jsonl`; other formats have no place for it",
        ));
    }
    Ok(asked)
}

impl Asked {
    fn take(&mut self, name: &str, value: String) -> Result<(), ApiError> {
        let filter = &mut self.filter;
        match name {
            "session" => filter.session = Some(value),
            "tag" => filter.tag = Some(value),
            "model" => filter.model = Some(value),
            "version" => filter.version = Some(value),
            "after" => filter.after = Some(value),
            "trajectory" => filter.trajectory = Some(value),
            "order" => filter.newest_first = one_of(name, &value, &[("asc", false), ("desc", true)])?,
            "since" => filter.since = Some(seconds(name, &value)?),
            "until" => filter.until = Some(seconds(name, &value)?),
            "rescore" => self.rescore = one_of(name, &value, &[("true", true), ("false", false)])?,
            "allow_raw" => self.allow_raw = one_of(name, &value, &[("true", true), ("false", false)])?,
            "complete" => filter.complete = Some(one_of(name, &value, &[("true", true), ("false", false)])?),
            "format" => {
                let lines = FORMATS.map(|(name, format)| (name, Some(format)));
                self.format = one_of(name, &value, &[&lines[..], &[("parquet", None)]].concat())?;
            }
            "unit" => self.unit = one_of(name, &value, &[("leaf", Unit::Leaf), ("turn", Unit::Turn)])?,
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=1000).contains(limit));
                self.limit =
                    limit.ok_or_else(|| ApiError::invalid(name.to_owned(), "`limit` is a number from 1 to 1000"))?;
            }
            // A name of the document that is not read here.
            _ => return Err(ApiError::internal(format!("the parameter {name} has no meaning"))),
        }
        Ok(())
    }
}

fn seconds(name: &str, value: &str) -> Result<f64, ApiError> {
    let seconds = value.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    seconds.ok_or_else(|| ApiError::invalid(name.to_owned(), format!("`{name}` is a number of seconds since 1970")))
}

fn one_of<T: Copy>(name: &str, value: &str, known: &[(&str, T)]) -> Result<T, ApiError> {
    let found = known.iter().find(|(known, _)| *known == value).map(|(_, meant)| *meant);
    found.ok_or_else(|| {
        let known = known.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
        ApiError::invalid(name.to_owned(), format!("`{name}` is one of {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_document_is_read() {
        let names: Vec<String> =
            names::<FilterParams>().chain(names::<ListParams>()).chain(names::<ExportParams>()).collect();
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            // A value that fits one kind of parameter or the other.
            let values = ["1", "true", "leaf", "jsonl", "desc"];
            let mut asked = Asked {
                filter: Filter::default(),
                limit: 100,
                format: Some(Format::Jsonl),
                unit: Unit::Leaf,
                rescore: false,
                allow_raw: false,
            };
            assert!(values.iter().any(|value| asked.take(&name, (*value).to_owned()).is_ok()), "{name}");
        }
    }
}
