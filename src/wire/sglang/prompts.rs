//! Fields that have one value for all prompts of a request, or one for each.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{
        MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use utoipa::ToSchema;

use super::sampling::SglangSamplingParams;
use crate::wire::error::ApiError;

/// One of something, or several.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a value of the field's type, or a list of them")]
pub(crate) enum OneOrMany<T> {
    /// One.
    One(T),
    /// Several.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// What holds for the prompt with this index.
    pub(crate) fn of_prompt(&self, index: usize) -> Option<&T> {
        match self {
            Self::One(one) => Some(one),
            Self::Many(several) => several.get(index),
        }
    }

    /// Returns whether there is one value for each of so many prompts; refuses a list of another length.
    pub(crate) fn is_of_each(&self, field: &'static str, prompts: usize) -> Result<bool, ApiError> {
        match self {
            Self::One(_) => Ok(false),
            Self::Many(several) if several.len() == prompts => Ok(true),
            Self::Many(several) => {
                let count = several.len();
                let message = format!(
                    "`{field}` is a list of {count}, and there are {prompts} prompts: one entry is needed for each"
                );
                Err(ApiError::invalid(field, message))
            }
        }
    }
}

/// Reads parameters by their shape, so that an error names the parameter at fault.
pub(super) fn params_of_prompts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<OneOrMany<SglangSamplingParams>>, D::Error> {
    struct ByShape;

    impl<'de> Visitor<'de> for ByShape {
        type Value = Option<OneOrMany<SglangSamplingParams>>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("sampling parameters, or a list of them")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
            Deserialize::deserialize(MapAccessDeserializer::new(fields)).map(|params| Some(OneOrMany::One(params)))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
            Deserialize::deserialize(SeqAccessDeserializer::new(items)).map(|params| Some(OneOrMany::Many(params)))
        }
    }

    deserializer.deserialize_any(ByShape)
}
