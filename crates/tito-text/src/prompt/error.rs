//! Why there is no prompt, or none with the known ids.

use super::template::TemplateError;
use crate::{json::Path, tokenizer::TokenizerError};

/// Why known ids could not be joined with the rest of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
#[strum(serialize_all = "snake_case")]
pub enum UnprovableSplice {
    /// No render shows where the message ends.
    #[error("the chat template does not render the message that the known ids end with exactly once")]
    AnchorNotRendered,
    /// Something other than a special token follows the message.
    #[error("the chat template does not close the message that the known ids end with by a special token")]
    NoClose,
    /// The tail depends on what the message says.
    #[error("what the chat template writes after the known ids depends on the text of the message they end with")]
    TailDiffers,
    /// Later messages are shown before the known ids end.
    #[error("the chat template moves messages that follow the known ids in front of them")]
    MessagesMoved,
    /// The ids are those of no turn of this conversation, or of more than one.
    #[error(
        "no assistant message is provably the one that they end with: they are what the messages up to it say for none of \
         them, or for more than one; send them on that message instead"
    )]
    AnchorNotFound,
    /// The tokenizer does not isolate the token at the seam.
    #[error("the tokenizer does not keep the special token at which the known ids would be continued")]
    TokenizerMovesSeam,
    /// The tokenizer puts tokens after a text.
    #[error("the tokenizer ends texts with special tokens when `add_special_tokens` is set")]
    TokenizerEndsText,
    /// A message that ended with a stop token is to be continued.
    #[error("the final message ended with a stop token and cannot be continued after its ids")]
    ContinuesClosedMessage,
    /// A message that was changed is to be continued.
    #[error("the final message does not say what its ids say, so it cannot be continued after them")]
    ContinuesOtherText,
    /// The ids have other images than the messages that they stand for.
    #[error(
        "they do not have the placeholders of the images in the messages that they stand for, each as many times as its \
         image has parts and in the same order"
    )]
    OtherImages,
    /// End tokens cannot be counted, since the tokenizer has none.
    #[error("the tokenizer has no end-of-sequence token to count")]
    NoEosToken,
    /// The render has fewer end tokens than its own start.
    #[error("end-of-sequence token #{count} was not found in the template's ids")]
    EosNotFound {
        /// The number of the end token that was looked for.
        count: usize,
    },
}

/// Why a conversation has no prompt.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The model has no template.
    #[error(
        "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if \
         the tokenizer does not define one."
    )]
    NoTemplate,
    /// The template failed or refused.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A message says something that tito cannot show.
    #[error("{message}")]
    Content {
        /// Where it stands in the request.
        field: Path,
        /// What is wrong.
        message: String,
    },
    /// The template does not show each image once.
    #[error("the chat template shows {shown} of the {images} images of the messages")]
    ImagesNotShown {
        /// Placeholders that the template wrote.
        shown: usize,
        /// Images of the messages that it was to show.
        images: usize,
    },
    /// The final message cannot be continued, for this reason.
    #[error("{0}")]
    ContinueFinalMessage(&'static str),
    /// Known ids cannot be joined.
    #[error("the given token ids cannot be continued exactly: {0}")]
    Unprovable(UnprovableSplice),
    /// The tokenizer failed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}
