//! The token ids that a message or a request carries.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    TokenId,
    json::{Format, Value, read_ids},
};

/// A list of token ids as sent, parsed on demand: a request repeats the ids of every earlier turn, and only the
/// latest ones are needed.
#[derive(Debug, Clone)]
pub struct TokenIds(Box<RawValue>);

/// What is wrong with a list of token ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTokenIds {
    /// Not a list of non-negative integers below 2^32.
    #[error("must be a list of token ids (non-negative integers)")]
    NotTokenIds,
    /// An id that the model does not have.
    #[error("token id {id} is out of vocabulary ({vocab_size} tokens)")]
    OutOfVocabulary {
        /// The id.
        id: TokenId,
        /// Tokens in the vocabulary.
        vocab_size: usize,
    },
}

impl TokenIds {
    /// A list that is part of a value of its own.
    pub fn from_value(value: &Value) -> Self {
        let json = RawValue::from_string(value.to_json_string_with(&Format::compact()));
        // Python's JSON has values that JSON has not; none of them is a list of ids.
        Self(json.unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// A list of these.
    fn of(ids: &[TokenId]) -> Self {
        let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
        let json = RawValue::from_string(format!("[{}]", ids.join(",")));
        Self(json.unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// Parses the list and checks each id against the vocabulary.
    pub fn parse(&self, vocab_size: usize) -> Result<Vec<TokenId>, InvalidTokenIds> {
        let ids = read_ids(self.0.get()).ok_or(InvalidTokenIds::NotTokenIds)?;
        match ids.iter().find(|&&id| id as usize >= vocab_size) {
            Some(&id) => Err(InvalidTokenIds::OutOfVocabulary { id, vocab_size }),
            None => Ok(ids),
        }
    }

    /// Whether the list, which was parsed to `ids`, starts with the other lists, one after the other. Lists that one
    /// client wrote are spelt alike and compared as text; others are parsed. Time grows with the others only.
    pub fn starts_with(&self, ids: &[TokenId], others: &[&Self]) -> bool {
        self.spelt_like(others).unwrap_or_else(|| {
            let lists: Option<Vec<_>> = others.iter().map(|other| read_ids(other.0.get())).collect();
            lists.is_some_and(|lists| ids.starts_with(&lists.concat()))
        })
    }

    /// `Some(true)` if the list starts with the others to the letter.
    fn spelt_like(&self, others: &[&Self]) -> Option<bool> {
        let mut rest = self.spelling()?;
        for other in others {
            let other = other.spelling()?;
            if !other.is_empty() {
                let after = rest.strip_prefix(other)?;
                rest = if after.is_empty() { after } else { after.strip_prefix(',')?.trim_ascii_start() };
            }
        }
        Some(true)
    }

    /// What stands between the brackets.
    fn spelling(&self) -> Option<&str> {
        Some(self.0.get().trim_ascii().strip_prefix('[')?.strip_suffix(']')?.trim_ascii())
    }
}

impl PartialEq for TokenIds {
    /// Whether the lists are spelt alike.
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl<'de> Deserialize<'de> for TokenIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

/// The ids of a message, as NeMo Gym names and carries them; `null` is the same as absent.
///
/// `generation_log_probs` travels beside them on the wire and is never needed to build a prompt.
#[derive(Debug, Clone, Default, PartialEq, ToSchema)]
pub struct TokenBundle {
    /// What the model saw before it wrote the message.
    #[schema(value_type = Option<Vec<u32>>)]
    pub prompt_token_ids: Option<TokenIds>,
    /// What the model sampled, the stop token included.
    #[schema(value_type = Option<Vec<u32>>)]
    pub generation_token_ids: Option<TokenIds>,
}

impl TokenBundle {
    /// Whether the message has any of them.
    pub fn is_some(&self) -> bool {
        self.prompt_token_ids.is_some() || self.generation_token_ids.is_some()
    }

    /// Prompt and generation, where the message has both.
    pub fn both(&self) -> Option<(&TokenIds, &TokenIds)> {
        self.prompt_token_ids.as_ref().zip(self.generation_token_ids.as_ref())
    }

    /// The ids of prompt and generation, where the message has both and they are ids.
    pub fn ids(&self) -> Option<[Vec<TokenId>; 2]> {
        let (prompt, generation) = self.both()?;
        Some([read_ids(prompt.0.get())?, read_ids(generation.0.get())?])
    }

    /// Both as one, where `next` goes on behind the last id of this one: what was sampled for an answer that was cut off, and
    /// then continued.
    pub fn continued_by(&self, next: &Self) -> Option<Self> {
        let ([prompt, mut generation], [seen, sampled]) = (self.ids()?, next.ids()?);
        let goes_on = seen.strip_prefix(prompt.as_slice()).is_some_and(|rest| rest == generation);
        generation.extend(sampled);
        goes_on.then(|| Self {
            prompt_token_ids: self.prompt_token_ids.clone(),
            generation_token_ids: Some(TokenIds::of(&generation)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_ids(text: &str) -> TokenIds {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn parses_ids_within_the_vocabulary() {
        assert_eq!(token_ids("[1, 2,3]").parse(4), Ok(vec![1, 2, 3]));
        assert_eq!(token_ids(" [ 0\n,3\t] ").parse(4), Ok(vec![0, 3]));
        for empty in ["[]", "[ ]"] {
            assert_eq!(token_ids(empty).parse(4), Ok(vec![]));
        }
        let last = TokenId::MAX;
        assert_eq!(token_ids("[4294967295]").parse(usize::MAX), Ok(vec![last]));
    }

    #[test]
    fn ids_of_every_length_are_read_wherever_they_stand() {
        let ids: Vec<TokenId> = (0..10).flat_map(|digits| [10_u32.pow(digits) - 1, 10_u32.pow(digits)]).collect();
        for separator in [",", ", ", " ,\n"] {
            let text: Vec<String> = ids.iter().map(ToString::to_string).collect();
            assert_eq!(token_ids(&format!("[{}]", text.join(separator))).parse(usize::MAX), Ok(ids.clone()));
            for id in &ids {
                assert_eq!(token_ids(&format!("[{id}{separator}7]")).parse(usize::MAX), Ok(vec![*id, 7]));
                assert_eq!(token_ids(&format!("[7{separator}{id}]")).parse(usize::MAX), Ok(vec![7, *id]));
            }
        }
    }

    #[test]
    fn refuses_what_is_not_an_id() {
        let numbers = "[-1] [-0] [1.0] [1e2] [4294967296] [99999999999999999999]";
        let others = "[true] [null] [\"1\"] [\"1,2\"] [{}] [[1]] [[1],[2]] {} 7 null \"[1]\"";
        for text in numbers.split(' ').chain(others.split(' ')) {
            assert_eq!(token_ids(text).parse(9), Err(InvalidTokenIds::NotTokenIds), "{text}");
        }
        assert_eq!(token_ids("[3,4]").parse(4), Err(InvalidTokenIds::OutOfVocabulary { id: 4, vocab_size: 4 }));
    }

    #[test]
    fn a_list_starts_with_others_however_they_are_spelt() {
        let starts = |own: &str, others: &[&str]| {
            let others: Vec<_> = others.iter().map(|other| token_ids(other)).collect();
            let own = token_ids(own);
            own.starts_with(&own.parse(usize::MAX).unwrap(), &others.iter().collect::<Vec<_>>())
        };
        for own in ["[1,2,3,4]", "[1, 2, 3, 4]", "[ 1 ,2,3, 4]"] {
            assert!(starts(own, &["[1,2]", "[3]"]), "{own}");
            assert!(starts(own, &["[1, 2, 3, 4]", "[]"]), "{own}");
            assert!(starts(own, &["[]", "[]"]), "{own}");
            assert!(!starts(own, &["[1,2]", "[4]"]), "{own}");
            assert!(!starts(own, &["[1,2,3,4]", "[5]"]), "{own}");
        }
        assert!(!starts("[12,3]", &["[1]"]));
        assert!(!starts("[1,23]", &["[1,2]"]));
        assert!(!starts("[1]", &["7"]));
    }

    /// Whoever compares a long list with many others would otherwise read all of it each time.
    #[test]
    fn a_list_that_was_parsed_is_not_read_again_to_be_compared() {
        let parsed = [7, 7, 7];
        for text in ["[1, 2, 3]", "\"nothing that could be read\""] {
            assert!(token_ids(text).starts_with(&parsed, &[&token_ids("[7 ,7]"), &token_ids("[ ]")]), "{text}");
        }
    }
}
