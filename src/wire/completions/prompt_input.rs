//! The prompt of a text completion: texts or ids, alone or several.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, SeqAccess, Unexpected, Visitor},
};
use utoipa::ToSchema;

use crate::TokenId;

/// What to continue.
// Nothing writes it, but its schema has no tag for that reason.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum PromptInput {
    /// A text.
    Text(String),
    /// Token ids, taken verbatim; an empty list is no prompt.
    Ids(Vec<TokenId>),
    /// Several texts.
    Texts(Vec<String>),
    /// Several lists of token ids.
    IdLists(Vec<Vec<TokenId>>),
}

/// What is said where it is none of these.
const EXPECTED: &str = "expected a string, a list of strings, a list of token ids or a list of lists of token ids";

/// As serde reads an untagged enum, but without a copy of every id: the first item tells what the others have to be.
impl<'de> Deserialize<'de> for PromptInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Input).map_err(|_| D::Error::custom(EXPECTED))
    }
}

struct Input;

impl<'de> Visitor<'de> for Input {
    type Value = PromptInput;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PromptInput, E> {
        Ok(PromptInput::Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<PromptInput, E> {
        Ok(PromptInput::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PromptInput, A::Error> {
        Ok(match list.next_element()? {
            None => PromptInput::Ids(Vec::new()),
            Some(FirstItem::Id(id)) => PromptInput::Ids(all(id, list)?),
            Some(FirstItem::Text(text)) => PromptInput::Texts(all(text, list)?),
            Some(FirstItem::Ids(ids)) => PromptInput::IdLists(all(ids, list)?),
        })
    }
}

/// An item, and those after it.
fn all<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(first: T, mut list: A) -> Result<Vec<T>, A::Error> {
    /// A client may say any number of items.
    const MOST_ROOM: usize = 1 << 20;
    let mut items = Vec::with_capacity(list.size_hint().unwrap_or(0).min(MOST_ROOM) + 1);
    items.push(first);
    while let Some(item) = list.next_element()? {
        items.push(item);
    }
    Ok(items)
}

enum FirstItem {
    Id(TokenId),
    Text(String),
    Ids(Vec<TokenId>),
}

impl<'de> Deserialize<'de> for FirstItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemOfList)
    }
}

struct ItemOfList;

impl<'de> Visitor<'de> for ItemOfList {
    type Value = FirstItem;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string, a token id or a list of token ids")
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<FirstItem, E> {
        TokenId::try_from(id).map(FirstItem::Id).map_err(|_| E::invalid_value(Unexpected::Unsigned(id), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<FirstItem, E> {
        Ok(FirstItem::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FirstItem, A::Error> {
        Ok(FirstItem::Ids(match list.next_element()? {
            None => Vec::new(),
            Some(first) => all(first, list)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<PromptInput, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_item_tells_what_a_list_has() {
        assert_eq!(read("\"a\""), Ok(PromptInput::Text("a".to_owned())));
        assert_eq!(read("[]"), Ok(PromptInput::Ids(Vec::new())));
        assert_eq!(read("[1, 4294967295]"), Ok(PromptInput::Ids(vec![1, u32::MAX])));
        assert_eq!(read("[\"a\", \"\"]"), Ok(PromptInput::Texts(vec!["a".to_owned(), String::new()])));
        assert_eq!(read("[[1], []]"), Ok(PromptInput::IdLists(vec![vec![1], Vec::new()])));
    }

    #[test]
    fn whatever_else_is_refused_in_one_way() {
        let bad = [
            "1",
            "null",
            "true",
            "{}",
            "[-1]",
            "[1, -1]",
            "[1.5]",
            "[4294967296]",
            "[1, \"a\"]",
            "[\"a\", 1]",
            "[[1], 2]",
            "[[1], [\"a\"]]",
            "[null]",
            "[1, null]",
            "[{}]",
            "[[[1]]]",
        ];
        for json in bad {
            assert!(read(json).unwrap_err().starts_with(EXPECTED), "{json}");
        }
    }
}
