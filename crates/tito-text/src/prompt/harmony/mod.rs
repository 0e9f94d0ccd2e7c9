//! Prompts of gpt-oss, as vLLM 0.33 renders them: by Harmony, OpenAI's format, and not by the model's chat template.
//!
//! Special tokens are put in by name, and everything else is encoded as plain text, so that no text of a client becomes
//! a special token. The format says where a message ends, so the end of known ids needs no proof by renders.

mod marks;
mod preamble;
mod render;
mod settings;
mod splice;
mod spoken;
mod typescript;

use aho_corasick::AhoCorasick;

use crate::{
    TokenId,
    tokenizer::{Extent, Tokenizer, TokenizerError},
};
use marks::Mark;
pub(super) use render::House;
pub use settings::HarmonySettings;
use spoken::Spoken;

/// Makes prompts of Harmony.
#[derive(Debug)]
pub struct Harmony {
    settings: HarmonySettings,
    marks: [TokenId; 5],
    added_tokens: AhoCorasick,
}

impl Harmony {
    /// Harmony in the ids of this tokenizer; `None` if the tokenizer lacks one of the special tokens.
    ///
    /// # Panics
    ///
    /// If the added tokens of the tokenizer are too many for an automaton, which no vocabulary has.
    pub fn new(tokenizer: &Tokenizer, settings: HarmonySettings) -> Option<Self> {
        let added = tokenizer.added_tokens();
        let id = |mark: Mark| added.iter().find(|token| token.content == mark.token()).map(|token| token.id);
        let marks: Vec<TokenId> = Mark::ALL.into_iter().map(id).collect::<Option<_>>()?;
        let added_tokens = AhoCorasick::new(added.iter().map(|token| &token.content).filter(|text| !text.is_empty()))
            .expect("a few thousand short patterns fit an automaton");
        Some(Self { settings, marks: marks.try_into().ok()?, added_tokens })
    }

    fn id(&self, mark: Mark) -> TokenId {
        self.marks[mark as usize]
    }

    /// The ids of messages; some of the last may be missing if there are more than `extent` lets through.
    fn ids(&self, spoken: &[Spoken], tokenizer: &Tokenizer, extent: Extent) -> Result<Vec<TokenId>, TokenizerError> {
        let most = if let Extent::AtMost(most) = extent { most } else { usize::MAX };
        let mut ids = Vec::new();
        for message in spoken {
            self.add_message(&mut ids, message, tokenizer)?;
            if ids.len() > most {
                break;
            }
        }
        Ok(ids)
    }

    fn add_message(
        &self,
        ids: &mut Vec<TokenId>,
        message: &Spoken,
        tokenizer: &Tokenizer,
    ) -> Result<(), TokenizerError> {
        ids.push(self.id(Mark::Start));
        ids.extend(self.plain(&message.author, tokenizer)?);
        if let Some(channel) = message.channel {
            ids.push(self.id(Mark::Channel));
            ids.extend(self.plain(channel, tokenizer)?);
        }
        ids.push(self.id(Mark::Message));
        for text in &message.texts {
            ids.extend(self.plain(text, tokenizer)?);
        }
        ids.push(self.id(message.close));
        Ok(())
    }

    /// The start of the answer.
    fn opening(&self, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, TokenizerError> {
        Ok([vec![self.id(Mark::Start)], self.plain("assistant", tokenizer)?].concat())
    }

    /// The ids of a text, none of which is an added token.
    fn plain(&self, text: &str, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, TokenizerError> {
        if self.added_tokens.is_match(text) {
            tokenizer.encode_without_added_tokens(text)
        } else {
            tokenizer.encode(text, false)
        }
    }
}

/// Messages as they would be read, special tokens and all.
fn text_of(spoken: &[Spoken]) -> String {
    let shown = spoken.iter().map(|message| {
        let Spoken { author, texts, close, .. } = message;
        let channel = message.channel.map(|channel| format!("{}{channel}", Mark::Channel.token())).unwrap_or_default();
        let [start, middle, end] = [Mark::Start, Mark::Message, *close].map(Mark::token);
        format!("{start}{author}{channel}{middle}{}{end}", texts.concat())
    });
    shown.collect::<Vec<_>>().concat()
}
