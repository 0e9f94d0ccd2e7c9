//! Conversations with sampled ids made from any bytes: the prompt starts with the ids and ends as the honest render
//! ends, or it is refused.
//!
//! Shared by the fuzz target and by the test that replays its seeds.

use std::{collections::HashMap, sync::Arc};

use tito::internals::{
    TokenId,
    chat::Message,
    model::EosTokens,
    prompt::template::ChatTemplate,
    prompt::{ChatPrompt, Checks, KnownPrefix, OnUnprovable, PromptRenderer, Provenance, Templates},
    tokenizer::Tokenizer,
};

const TOKENIZER: &[u8] = include_bytes!("../../tests/fixtures/tiny-model/tokenizer.json");
const TEMPLATES: [&str; 3] = [
    include_str!("../../tests/golden/template/default.jinja"),
    include_str!("../../tests/golden/template/hermes.jinja"),
    include_str!("../../tests/golden/template/think.jinja"),
];
/// What messages are made of.
const TEXTS: [&str; 16] = [
    "hello",
    "",
    " ",
    "\n",
    "ok",
    "the weather",
    "<|im_end|>",
    "<|im_start|>",
    "assistant",
    "<think>",
    "</think>",
    "é",
    "🙂",
    "<tool_call>",
    "\u{0}",
    "{{ x }}",
];
const IM_END: TokenId = 2;
const ENDOFTEXT: TokenId = 0;

/// Bytes, one after the other; then zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, count: usize) -> usize {
        usize::from(self.next()) % count
    }

    fn text(&mut self) -> String {
        (0..self.below(4)).map(|_| TEXTS[self.below(TEXTS.len())]).collect()
    }
}

struct Model {
    renderer: PromptRenderer,
    tokenizer: Arc<Tokenizer>,
}

impl Model {
    fn new(template: &str) -> Self {
        let tokenizer = Arc::new(Tokenizer::from_bytes(TOKENIZER).expect("the tiny tokenizer"));
        let special: HashMap<_, _> = [("bos_token", "<|im_start|>"), ("eos_token", "<|im_end|>")].into();
        let special = special.into_iter().map(|(name, token)| (name.to_owned(), token.to_owned())).collect();
        let template = ChatTemplate::new(template, special).expect("a template");
        let templates = Templates { default: Some(template), tool_use: None };
        let eos = EosTokens { primary: Some(IM_END), others: vec![ENDOFTEXT] };
        let renderer = PromptRenderer::new(templates, Arc::clone(&tokenizer), &eos, OnUnprovable::Error);
        Self { renderer, tokenizer }
    }

    /// What the model samples for a text: letter by letter, as the tokenizer writes it, or anything; then an end or none.
    fn generation(&self, text: &str, bytes: &mut Bytes<'_>) -> Vec<TokenId> {
        let encode = |text: &str| self.tokenizer.encode(text, false).expect("ids");
        let mut ids = match bytes.below(3) {
            0 => encode(text),
            1 => text.chars().flat_map(|letter| encode(&letter.to_string())).collect(),
            _ => (0..bytes.below(6)).map(|_| TokenId::from(bytes.next()) % 326).collect(),
        };
        ids.extend([None, Some(IM_END), Some(ENDOFTEXT), Some(IM_END)][bytes.below(4)]);
        ids
    }

    fn text(&self, ids: &[TokenId]) -> String {
        self.tokenizer.decode(ids, false).expect("a text")
    }
}

fn prompt(messages: &[Message], known: Option<KnownPrefix>) -> ChatPrompt {
    ChatPrompt {
        known,
        now: time::OffsetDateTime::UNIX_EPOCH,
        checks: Checks { drift: true, message: true, history: true },
        ..ChatPrompt::new(messages.to_vec())
    }
}

/// Makes a conversation, splices it and checks the result; whether there was one.
pub(crate) fn check(data: &[u8]) -> bool {
    thread_local!(static MODELS: [Model; 3] = TEMPLATES.map(Model::new));
    MODELS.with(|models| {
        let mut bytes = Bytes(data);
        let model = &models[bytes.below(models.len())];
        let mut messages: Vec<Message> = Vec::new();
        let mut known: Option<KnownPrefix> = None;
        for _ in 0..bytes.below(9) {
            let text = bytes.text();
            match bytes.below(5) {
                0 => messages.push(Message::text("assistant", text)),
                1 if !messages.is_empty() => {
                    let Ok(before) = model.renderer.render(&prompt(&messages, known.clone())) else { return false };
                    let generation = model.generation(&text, &mut bytes);
                    let said = if bytes.below(2) == 0 { model.text(&generation) } else { text };
                    messages.push(Message::text("assistant", said));
                    known = Some(KnownPrefix {
                        token_ids: [&*before.token_ids, &generation].concat(),
                        anchor: (bytes.below(4) > 0).then_some(messages.len() - 1),
                        sampled: generation.len(),
                        on_unprovable: None,
                    });
                }
                2 => messages.push(Message::text("tool", text)),
                3 => messages.push(Message::text("system", text)),
                _ => messages.push(Message::text("user", text)),
            }
        }
        let Some(known) = known else { return false };
        let Ok(rendered) = model.renderer.render(&prompt(&messages, Some(known.clone()))) else { return false };
        let Provenance::Spliced { reused, .. } = rendered.provenance else { panic!("{:?}", rendered.provenance) };
        assert_eq!(reused, known.token_ids.len());
        assert!(rendered.token_ids.starts_with(&known.token_ids), "the known ids are not kept");
        let honest = model.renderer.render(&prompt(&messages, None)).expect("a render that worked before");
        let (honest, tail) = (model.text(&honest.token_ids), model.text(&rendered.token_ids[reused..]));
        assert!(honest.ends_with(&tail), "{honest:?} does not end with {tail:?}");
        true
    })
}
