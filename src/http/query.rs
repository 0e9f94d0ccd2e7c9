//! The parameters of a query, read as pydantic reads them. What is wrong with one is said of it by its name.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};

use crate::{
    json::Path,
    wire::{error::ApiError, truth},
};

/// Names and values in their order.
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for QueryParameters {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = Query::try_from_uri(&parts.uri);
        let Query(read) = query.map_err(|error| ApiError::malformed(Some("query".into()), error.body_text()))?;
        Ok(Self(read))
    }
}

impl QueryParameters {
    /// Returns the value of a parameter. Of several, only one could count.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<&str>, ApiError> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(wrong(name, "Input should be given once")),
        }
    }

    /// Returns the truth that a parameter is a word for.
    pub(crate) fn truth(&self, name: &'static str) -> Result<Option<bool>, ApiError> {
        let clear = |value| {
            truth(value).ok_or_else(|| wrong(name, "Input should be a valid boolean, unable to interpret input"))
        };
        self.text(name)?.map(clear).transpose()
    }

    /// Returns the number that a parameter is.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<usize>, ApiError> {
        let whole = |value: &str| {
            let not_whole = "Input should be a valid integer, unable to parse string as an integer";
            let number: i128 = value.trim().parse().map_err(|_| wrong(name, not_whole))?;
            if number < 0 {
                return Err(wrong(name, "Input should be greater than or equal to 0"));
            }
            // Beyond what can be counted, one number is like the other.
            Ok(usize::try_from(number).unwrap_or(usize::MAX))
        };
        self.text(name)?.map(whole).transpose()
    }

    /// Refuses values of a list that are none of `known`. Clients write the name of a list with brackets or without.
    pub(crate) fn only(&self, name: &'static str, known: &[&str]) -> Result<(), ApiError> {
        let bracketed = format!("{name}[]");
        let mut values = self.all(name).chain(self.all(&bracketed));
        if values.all(|value| known.contains(&value)) {
            return Ok(());
        }
        let known: Vec<_> = known.iter().map(|value| format!("'{value}'")).collect();
        Err(wrong(name, &format!("Input should be one of {}", known.join(", "))))
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn wrong(name: &'static str, what: &str) -> ApiError {
    let message = format!("1 validation error:\n  query.{name}: {what}");
    ApiError::malformed(Some(Path::from("query").then(name)), message)
}
