//! What a message says: nothing, a text, or a list of parts.

use serde::{Deserialize, Deserializer, de};

use crate::json::Value;

/// The `content` of a message.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Content {
    /// `null` or absent.
    #[default]
    Empty,
    /// A plain string.
    Text(String),
    /// A list of parts, in order.
    Parts(Vec<ContentPart>),
}

/// One part of a message's content.
#[derive(Debug, Clone, PartialEq)]
pub enum ContentPart {
    /// A bare string in the list.
    Text(String),
    /// An object with a `type`; kept whole, since templates may read any of its keys.
    Object {
        /// The value of `type`.
        kind: String,
        /// The object as sent, `type` included.
        fields: crate::json::Object,
    },
    /// An image. No body has it: whoever fetches and reads images puts it in the place of the object that names one.
    Image(Image),
}

/// An image in a conversation, as far as its prompt has to know it.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// What tells it from all other images, however it was sent.
    pub identity: [u8; 32],
    /// How many placeholders stand for it in a prompt.
    pub size: ImageSize,
    /// Further keys of the part, which templates may read.
    pub extras: crate::json::Object,
}

/// How many placeholders stand for an image in a prompt, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSize {
    /// Rows of them.
    pub rows: usize,
    /// How many a row has.
    pub columns: usize,
}

impl Content {
    /// Its images, by their places among its parts.
    pub fn images(&self) -> impl Iterator<Item = (usize, &Image)> {
        let parts = match self {
            Self::Parts(parts) => parts.as_slice(),
            Self::Empty | Self::Text(_) => &[],
        };
        parts.iter().enumerate().filter_map(|(place, part)| match part {
            ContentPart::Image(image) => Some((place, image)),
            ContentPart::Text(_) | ContentPart::Object { .. } => None,
        })
    }

    /// Its texts, one after the other.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let (whole, parts) = match self {
            Self::Empty => (None, [].as_slice()),
            Self::Text(text) => (Some(text.as_str()), [].as_slice()),
            Self::Parts(parts) => (None, parts.as_slice()),
        };
        whole.into_iter().chain(parts.iter().filter_map(ContentPart::text))
    }

    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::Null => Ok(Self::Empty),
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(parts) => {
                let parts = parts.into_iter().map(ContentPart::from_value).collect::<Result<_, _>>()?;
                Ok(Self::Parts(parts))
            }
            _ => Err("expected a string, a list of content parts, or null".to_owned()),
        }
    }
}

impl ContentPart {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Object { fields, .. } => fields.get("text").and_then(Value::as_str),
            Self::Image(_) => None,
        }
    }

    fn from_value(value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Object(fields) => match fields.get("type") {
                Some(Value::String(kind)) => Ok(Self::Object { kind: kind.clone(), fields }),
                _ => Err("a content part needs a `type` that is a string".to_owned()),
            },
            _ => Err("a content part is a string or an object with a `type`".to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_value(Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}
