//! The short conversation, on which a proof costs little: the honest one without most of what precedes the anchor. The
//! system prompt stays, and so does every message after the anchor; of those between them, the last ones stay and say a
//! random word each.
//!
//! Why its proof holds for the honest conversation. Call the honest render R and that of the short conversation S. The
//! splice proves of S, as it would of R, that S ends with the tail T and that T starts with the anchor's close. After
//! the last random word before the anchor, S has the end of an earlier message, the anchor's own start, what the anchor
//! says, and T. R must end with those very bytes. So T is how R ends, and what precedes it there is the anchor from its
//! start on, as the template writes it and with what it says, and not some text that T happens to follow.
//!
//! Could those bytes be something else in R than the anchor? The template then hides or repeats messages because of
//! those that the short conversation lacks: it counts them, or reads them. If R shows the anchor too, it has its bytes
//! twice; but they must stand in R only once. If it does not, then what it has there is another message, or other
//! messages. But a special token stands among those bytes that no message spells, so the template wrote it and the start
//! of a message; and no other message makes the same calls and ends with the same text.
//!
//! Templates that are sensitive to earlier messages, as to whether a tool was called before, show something else in S
//! than in R, and the whole conversation is rendered. Tests always do that as well, and compare.

use memchr::memmem;

use super::{
    PromptError, UnprovableSplice,
    conversation::Conversation,
    marks::MessagePart,
    splice_context::{Splice, fresh_word},
};

/// The short conversation of a splice, and its render.
pub(super) struct Short<'s> {
    splice: &'s Splice<'s>,
    conversation: Conversation<'s>,
    render: String,
    /// What the messages before the anchor say.
    word: String,
}

impl<'s> Short<'s> {
    /// The short conversation. `None` where little before the anchor can be left out, where the anchor says what
    /// another message says, or where the template does not take the short conversation.
    pub(super) fn new(splice: &'s Splice<'s>, anchor: usize) -> Option<Self> {
        let word = fresh_word();
        let conversation = splice.conversation.shortened(anchor, &word)?;
        if splice.conversation.repeats(anchor) {
            return None;
        }
        let render = conversation.text().ok()?;
        Some(Self { splice, conversation, render, word })
    }

    /// The length of the tail that starts with the anchor's close, proven by `part` of the anchor, or the reason why
    /// this part proves nothing.
    pub(super) fn tail_length(&self, anchor: usize, part: MessagePart) -> Result<usize, PromptError> {
        let splice = Splice { conversation: &self.conversation, render: &self.render, ..*self.splice };
        let tail = splice.tail(anchor, part)?;
        if self.after_earlier(&tail.before).is_some_and(|after| self.is_end(after, tail.length)) {
            Ok(tail.length)
        } else {
            Err(PromptError::Unprovable(UnprovableSplice::TailDiffers))
        }
    }

    /// What follows the last message before the anchor in the short render, where `before` is what precedes the anchor.
    /// `None` if the render shows something of those messages elsewhere too.
    fn after_earlier(&self, before: &str) -> Option<&str> {
        let start = before.rfind(&self.word)? + self.word.len();
        let (earlier, after) = self.render.split_at_checked(start)?;
        (before.starts_with(earlier) && !after.contains(&self.word)).then_some(after)
    }

    /// Whether the honest render ends with `after`, of which all but the tail is the anchor and nothing else.
    fn is_end(&self, after: &str, tail: usize) -> bool {
        let render = self.splice.render;
        let Some(anchor) = after.len().checked_sub(tail).and_then(|length| after.get(..length)) else { return false };
        let once = || {
            memmem::find(render.as_bytes(), anchor.as_bytes()) == memmem::rfind(render.as_bytes(), anchor.as_bytes())
        };
        let Some(seam) = self.splice.seams.find(anchor).next() else { return false };
        let spelled = || self.splice.conversation.spells(&anchor[seam.start..seam.end]);
        render.ends_with(after) && once() && !spelled()
    }
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;
    use time::OffsetDateTime;

    use super::*;
    use crate::{
        TokenId,
        chat::Message,
        prompt::{ChatPrompt, seams::Seams, template::ChatTemplate},
        tokenizer::Tokenizer,
    };

    /// ChatML, with `note` after the messages.
    fn template(note: &str) -> ChatTemplate {
        let source = format!(
            "{{% for message in messages %}}{{{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}}}\
             {{% endfor %}}{note}{{% if add_generation_prompt %}}{{{{ '<|im_start|>assistant\\n' }}}}{{% endif %}}"
        );
        ChatTemplate::new(&source, IndexMap::new()).unwrap()
    }

    /// What the short conversation of `answers` proves about the last of them, and the length of the honest tail.
    fn proven(template: &ChatTemplate, answers: &[&str]) -> (Option<Result<usize, UnprovableSplice>>, usize) {
        let mut messages = vec![Message::text("system", "be kind")];
        for (number, answer) in answers.iter().enumerate() {
            messages.extend([Message::text("user", format!("question {number}")), Message::text("assistant", *answer)]);
        }
        let tail = "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n";
        messages.push(Message::text("user", "more"));
        let prompt = ChatPrompt { now: OffsetDateTime::UNIX_EPOCH, ..ChatPrompt::new(messages) };
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tiny-model/tokenizer.json");
        let tokenizer = Tokenizer::from_file(path).unwrap();
        let stops: [TokenId; 1] = [2];
        let seams = Seams::new(tokenizer.added_tokens(), &stops);
        let (conversation, render) = Conversation::render(template, &prompt, None).unwrap();
        let splice = Splice {
            conversation: &conversation,
            tokenizer: &tokenizer,
            seams: &seams,
            stops: &stops,
            render: &render,
            known: &[5],
            sampled: 0,
        };
        let anchor = prompt.messages.len() - 2;
        let proven = Short::new(&splice, anchor).map(|short| match short.tail_length(anchor, MessagePart::Content) {
            Err(PromptError::Unprovable(reason)) => Err(reason),
            length => Ok(length.unwrap()),
        });
        (proven, tail.len())
    }

    #[test]
    fn the_end_of_a_long_conversation_is_proven() {
        for count in 2..7 {
            let answers: Vec<String> = (0..count).map(|number| format!("answer {number}")).collect();
            let (proven, tail) = proven(&template(""), &answers.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(proven, Some(Ok(tail)));
        }
    }

    #[test]
    fn what_is_short_already_is_not_tried() {
        assert_eq!(proven(&template(""), &["yes"]).0, None);
    }

    #[test]
    fn an_answer_that_could_be_another_is_not_proven() {
        assert_eq!(proven(&template(""), &["yes", "no", "yes"]).0, None);
        assert_eq!(proven(&template(""), &["yes", "no", "<think>so</think>yes"]).0, None);
        let spelled = ["<|im_end|>", "no", "yes"];
        assert_eq!(proven(&template(""), &spelled).0, Some(Err(UnprovableSplice::TailDiffers)));
    }

    #[test]
    fn a_tail_that_earlier_messages_decide_is_not_proven() {
        for note in ["{{ messages | length }}", "{{ messages[1].content }}", "{{ messages[2].content }}"] {
            let (proven, _) = proven(&template(note), &["yes", "no", "well"]);
            assert!(matches!(proven, Some(Err(_))), "{note}: {proven:?}");
        }
    }
}
