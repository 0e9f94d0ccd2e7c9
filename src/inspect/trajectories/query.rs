//! The queries of lists and exports. A name or a value that is not known is refused, because a list without its filter
//! would look like the one that was asked for.

use std::{error::Error, iter};

use axum::{
    extract::{FromRequestParts, Query, rejection::QueryRejection},
    http::request::Parts,
};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned},
};
use utoipa::IntoParams;

use crate::{
    trajectory::{Filter, Unit},
    wire::{error::ApiError, trajectories::export::Format},
};

/// The query of a request, all of whose names and values are known.
pub(super) struct StrictQuery<Q>(pub(super) Q);

impl<Q: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for StrictQuery<Q> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Query::try_from_uri(&parts.uri).map(|Query(query)| Self(query)).map_err(|error| refusal(&error))
    }
}

/// Refuses a query by the parameter that is at fault; of one that stands there twice, serde tells the name in its message only.
fn refusal(error: &QueryRejection) -> ApiError {
    let mut causes = iter::successors(error.source(), |&cause| cause.source());
    let located = causes.find_map(|cause| cause.downcast_ref::<serde_path_to_error::Error<de::value::Error>>());
    match located.map(|located| (located.path().to_string(), located.inner())) {
        Some((name, message)) if name != "." => {
            ApiError::invalid(name.clone(), format!("`{name}` in the query: {message}"))
        }
        _ => ApiError::malformed(Some("query".into()), error.body_text()),
    }
}

/// Declares a query that has the names of a filter and some of its own: out of what `flatten` collects, serde reads neither
/// numbers nor names that nobody knows.
macro_rules! filtered_query {
    ($(#[$about:meta])* $name:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Debug, Deserialize, IntoParams)]
        #[into_params(parameter_in = Query)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            /// The session that the requests named.
            session: Option<String>,
            /// A tag.
            tag: Option<String>,
            /// What requests call the model or the adapter that sampled a turn: any of the served names, or the adapter's own.
            model: Option<String>,
            /// What the weights are called that sampled a turn, or those of the base under an adapter that did.
            version: Option<String>,
            /// Those with a turn that ended then or later, in seconds since 1970.
            #[serde(default, deserialize_with = "seconds")]
            since: Option<f64>,
            /// Those without a turn that ended then or later.
            #[serde(default, deserialize_with = "seconds")]
            until: Option<f64>,
            /// Whether every leaf ended by itself: by an end, a stop token or a stop string.
            complete: Option<bool>,
            /// The id of a trajectory; those behind it.
            after: Option<String>,
            /// The id of a trajectory: only that one.
            trajectory: Option<String>,
            $($own)*
        }

        impl $name {
            /// Takes out which trajectories are meant, in the order in which their first turns were captured; `names` are
            /// all names of the model that one names.
            fn take_filter(&mut self, names: impl FnOnce(String) -> Vec<String>) -> Filter {
                Filter {
                    session: self.session.take(),
                    tag: self.tag.take(),
                    models: self.model.take().map(names),
                    version: self.version.take(),
                    since: self.since,
                    until: self.until,
                    complete: self.complete,
                    after: self.after.take(),
                    trajectory: self.trajectory.take(),
                    newest_first: false,
                }
            }
        }
    };
}

filtered_query! {
    /// What of the captured trajectories a list shows.
    ListQuery {
        /// At most this many, 1 to 1000 (default 100).
        limit: Option<usize>,
        /// `asc` (the default): those whose first turn was captured first, that is when it ended, in front; `desc`: those whose
        /// first turn was captured last.
        #[param(value_type = Option<String>)]
        order: Option<Order>,
    }
}

filtered_query! {
    /// What an export consists of, and what it looks like.
    ExportQuery {
        /// `jsonl` (the default), `trl`, `nemo_rl`, `verl`, `prime_rl`, `verifiers`, `agent_lightning`, or `parquet`, a table
        /// with the columns of `jsonl`.
        #[param(value_type = Option<String>)]
        format: Option<Format>,
        /// `leaf` (the default): a sequence for each turn that no other one continues; `turn`: one for each turn.
        #[param(value_type = Option<String>)]
        unit: Option<Unit>,
        /// With `true`, `rescored` in each line says how far the log-probs are from those that the present weights give; for
        /// `jsonl` only.
        rescore: Option<bool>,
        /// With `true`, sequences are exported to every format whose log-probs are the model's own (`raw_logprobs`) though the
        /// requests edited the distribution, by a temperature for example. Otherwise such a line is an error, but in `jsonl`, which
        /// says in `logprobs_mode` what they are.
        allow_raw: Option<bool>,
        /// With `true`, sequences that were sampled with sampling masks are exported without them to formats that have no field
        /// for masks (`trl`, `verl`, `nemo_rl`, `agent_lightning`). Otherwise such a line is an error.
        allow_unmasked: Option<bool>,
    }
}

/// Which trajectories stand in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    Asc,
    Desc,
}

impl ListQuery {
    /// Returns which trajectories are listed, and how many at most; `names` are all names of the model that one names.
    pub(super) fn resolve(mut self, names: impl FnOnce(String) -> Vec<String>) -> Result<(Filter, usize), ApiError> {
        let limit = self.limit.unwrap_or(100);
        if !(1..=1000).contains(&limit) {
            return Err(ApiError::invalid("limit", "`limit` is a number from 1 to 1000"));
        }
        let newest_first = self.order == Some(Order::Desc);
        Ok((Filter { newest_first, ..self.take_filter(names) }, limit))
    }
}

/// What an export writes of its sequences.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    /// What was captured, in the shape of `format`, of which log-probs are only those of the distribution that was sampled
    /// from, unless `allow_raw` is set, and of which nothing has a mask that is not written, unless `allow_unmasked` is set.
    Captured { format: Format, allow_raw: bool, allow_unmasked: bool },
    /// Lines of tito's own shape, with how far their log-probs are from those of the present weights.
    Rescored,
}

impl ExportQuery {
    /// Returns which trajectories are exported, in what pieces, and what is written of them; `names` are all names of the model
    /// that one names.
    pub(super) fn resolve(
        mut self,
        names: impl FnOnce(String) -> Vec<String>,
    ) -> Result<(Filter, Unit, Content), ApiError> {
        let format = self.format.unwrap_or(Format::Jsonl);
        let content = match self.rescore {
            Some(true) if format == Format::Jsonl => Content::Rescored,
            Some(true) => {
                let message = "`rescore` is for `format=jsonl`; other formats have no place for it";
                return Err(ApiError::invalid("rescore", message));
            }
            _ => Content::Captured {
                format,
                // tito's own lines say which distribution their log-probs describe; trainers do not ask.
                allow_raw: format == Format::Jsonl || self.allow_raw == Some(true),
                allow_unmasked: format.has_masks() || self.allow_unmasked == Some(true),
            },
        };
        let unit = self.unit.unwrap_or_default();
        Ok((self.take_filter(names), unit, content))
    }
}

/// Reads a time that can be compared with others.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    if seconds.is_finite() { Ok(Some(seconds)) } else { Err(de::Error::custom("expected seconds since 1970")) }
}
