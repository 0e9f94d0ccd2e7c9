//! Text from ids, one id at a time, never a partial character.

use std::sync::Arc;

use super::{
    Tokenizer, TokenizerError,
    byte_run::{ByteRun, is_incomplete},
    decoding::{Decoding, TextDecoding, token_bytes},
};
use crate::TokenId;

/// Decodes ids as they come: the concatenated texts are those of [`Tokenizer::decode_as_streamed`] of all ids.
///
/// Text is held back while it ends with the U+FFFD of bytes that are no character, or with an incomplete one. Each id
/// costs constant time, amortised.
#[derive(Debug)]
pub struct IncrementalDecoder {
    tokenizer: Arc<Tokenizer>,
    skip_special_tokens: bool,
    state: DecodingState,
}

#[derive(Debug)]
enum DecodingState {
    Bytes(ByteStream),
    Text(TextStream),
}

impl Tokenizer {
    /// Starts decoding at the start of a text.
    pub fn incremental(self: &Arc<Self>, skip_special_tokens: bool) -> IncrementalDecoder {
        let state = match &self.decoding {
            Decoding::Bytes => DecodingState::Bytes(ByteStream::default()),
            Decoding::Text(text) => DecodingState::Text(TextStream::new(text.clone())),
        };
        IncrementalDecoder { tokenizer: Arc::clone(self), skip_special_tokens, state }
    }

    /// Starts decoding after a prompt, of which only the last few ids are looked at.
    ///
    /// A character that the prompt leaves incomplete is reported whole by the id that completes it, or as U+FFFD by the
    /// one that shows it to be broken. Other broken bytes of the prompt are no part of a run that goes on behind it.
    pub fn incremental_after(
        self: &Arc<Self>,
        prompt_token_ids: &[TokenId],
        skip_special_tokens: bool,
    ) -> Result<IncrementalDecoder, TokenizerError> {
        let mut decoder = self.incremental(skip_special_tokens);
        match &mut decoder.state {
            DecodingState::Bytes(stream) => {
                stream.tail = self.incomplete_tail(prompt_token_ids, skip_special_tokens)?;
            }
            DecodingState::Text(stream) => {
                stream.after_text = self.produces_text(prompt_token_ids, skip_special_tokens)?;
                let character = self.incomplete_tail(prompt_token_ids, skip_special_tokens)?;
                // Each byte token is one byte, so the incomplete bytes are as many of the last ids.
                let kept = prompt_token_ids.iter().rev().filter(|&&id| !(skip_special_tokens && self.is_special(id)));
                let mut ids: Vec<TokenId> = kept.take(character.len()).copied().collect();
                ids.reverse();
                stream.run = ByteRun::begun(ids, character);
            }
        }
        Ok(decoder)
    }

    /// Converts ids to text as [`Self::incremental`] does.
    ///
    /// This is [`Self::decode`], but for byte fallback: there, the characters that a run of byte tokens begins with stay
    /// what they are, also if the run goes on with bytes that are no character. `decode` makes U+FFFD of every byte of such
    /// a run. Text that was given out could not be taken back.
    pub fn decode_as_streamed(&self, ids: &[TokenId], skip_special_tokens: bool) -> Result<String, TokenizerError> {
        let text = self.decode(ids, skip_special_tokens)?;
        let Decoding::Text(decoding) = &self.decoding else { return Ok(text) };
        if !decoding.has_byte_fallback() || !text.contains(char::REPLACEMENT_CHARACTER) {
            return Ok(text);
        }
        let mut stream = TextStream::new(decoding.clone());
        let mut text = String::with_capacity(text.len());
        for &id in ids.iter().filter(|&&id| !(skip_special_tokens && self.is_special(id))) {
            let token = self.token(id).ok_or(TokenizerError::OutOfVocabulary(id))?;
            text.push_str(&stream.push(self, id, &token)?);
        }
        text.push_str(&stream.end_run());
        Ok(text)
    }

    /// Returns the bytes, three at most, of a character that the ids begin but do not complete.
    fn incomplete_tail(&self, ids: &[TokenId], skip_special_tokens: bool) -> Result<Vec<u8>, TokenizerError> {
        let mut bytes: Vec<u8> = Vec::new();
        for &id in ids.iter().rev().filter(|&&id| !(skip_special_tokens && self.is_special(id))) {
            if bytes.len() >= 3 {
                break;
            }
            let token = self.token(id).ok_or(TokenizerError::OutOfVocabulary(id))?;
            let mut front = match &self.decoding {
                Decoding::Bytes => token_bytes(&token),
                Decoding::Text(text) => match text.fallback_byte(&token) {
                    Some(byte) => vec![byte],
                    None => break,
                },
            };
            front.append(&mut bytes);
            bytes = front;
        }
        let start = (bytes.len().saturating_sub(3)..bytes.len()).find(|&start| {
            std::str::from_utf8(&bytes[start..]).is_err_and(|e| is_incomplete(e) && e.valid_up_to() == 0)
        });
        Ok(start.map_or_else(Vec::new, |start| bytes.split_off(start)))
    }

    /// Returns whether the ids decode to any text.
    fn produces_text(&self, ids: &[TokenId], skip_special_tokens: bool) -> Result<bool, TokenizerError> {
        for &id in ids.iter().rev().filter(|&&id| !(skip_special_tokens && self.is_special(id))) {
            if !self.token_bytes(id)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl IncrementalDecoder {
    /// Adds an id and returns the text that became certain, often empty. An id without a token is an error and is
    /// not added.
    pub fn push(&mut self, id: TokenId) -> Result<String, TokenizerError> {
        let token = self.tokenizer.token(id).ok_or(TokenizerError::OutOfVocabulary(id))?;
        if self.skip_special_tokens && self.tokenizer.is_special(id) {
            return Ok(String::new());
        }
        match &mut self.state {
            DecodingState::Bytes(stream) => Ok(stream.push(&token_bytes(&token))),
            DecodingState::Text(stream) => stream.push(&self.tokenizer, id, &token),
        }
    }

    /// Returns the text that was still held back; an incomplete character in it is U+FFFD, with byte fallback once for
    /// each of its bytes.
    pub fn finish(self) -> String {
        match self.state {
            DecodingState::Bytes(stream) => stream.finish(),
            DecodingState::Text(mut stream) => stream.end_run(),
        }
    }
}

/// Bytes on their way to text.
#[derive(Debug, Default)]
struct ByteStream {
    /// An incomplete character, three bytes at most.
    tail: Vec<u8>,
    /// Text that ended with U+FFFD, or with the incomplete character, when it was added.
    held: String,
}

impl ByteStream {
    fn push(&mut self, bytes: &[u8]) -> String {
        self.tail.extend_from_slice(bytes);
        let mut rest = self.tail.as_slice();
        let tail = loop {
            let Err(error) = std::str::from_utf8(rest) else {
                self.held.push_str(&String::from_utf8_lossy(rest));
                break Vec::new();
            };
            let (valid, invalid) = rest.split_at(error.valid_up_to());
            self.held.push_str(&String::from_utf8_lossy(valid));
            match error.error_len() {
                None => break invalid.to_vec(),
                Some(len) => {
                    self.held.push(char::REPLACEMENT_CHARACTER);
                    rest = &invalid[len..];
                }
            }
        };
        self.tail = tail;
        if self.tail.is_empty() && !self.held.ends_with(char::REPLACEMENT_CHARACTER) {
            std::mem::take(&mut self.held)
        } else {
            String::new()
        }
    }

    fn finish(mut self) -> String {
        self.held.push_str(&String::from_utf8_lossy(&self.tail));
        self.held
    }
}

/// Tokens on their way to text.
#[derive(Debug)]
struct TextStream {
    decoding: TextDecoding,
    /// Whether any text stands before `pending`.
    after_text: bool,
    /// Ids that have given no text yet: they stand at the start of a text, of which something is stripped.
    pending: Vec<TokenId>,
    /// The run of byte tokens that the last id is part of.
    run: ByteRun,
}

impl TextStream {
    fn new(decoding: TextDecoding) -> Self {
        Self { decoding, after_text: false, pending: Vec::new(), run: ByteRun::default() }
    }

    fn push(&mut self, tokenizer: &Tokenizer, id: TokenId, token: &str) -> Result<String, TokenizerError> {
        if let Some(byte) = self.decoding.fallback_byte(token) {
            let Some(ids) = self.run.push(id, byte) else { return Ok(String::new()) };
            self.pending.extend(ids);
            return self.flush(tokenizer);
        }
        let mut text = self.end_run();
        self.pending.push(id);
        text.push_str(&self.flush(tokenizer)?);
        Ok(text)
    }

    fn flush(&mut self, tokenizer: &Tokenizer) -> Result<String, TokenizerError> {
        let text = self.decoding.decode(&tokenizer.inner, &self.pending, self.after_text)?;
        // At the start of a text, a token without text may still decide how much of the next one is stripped.
        if self.after_text || !text.is_empty() {
            self.after_text = true;
            self.pending.clear();
        }
        Ok(text)
    }

    /// Ends the run of byte tokens: what of it is not text by now is U+FFFD, one for each byte.
    fn end_run(&mut self) -> String {
        let run = std::mem::take(&mut self.run);
        if run.unspoken() > 0 {
            // Ids without a text were stripped; nothing is stripped behind U+FFFD.
            self.pending.clear();
            self.after_text = true;
        }
        char::REPLACEMENT_CHARACTER.to_string().repeat(run.unspoken())
    }
}
