//! Prints the ids of a conversation whose first answer is known by its ids, for the model of a directory or GGUF file:
//!
//!     cargo run --no-default-features --example prompt_ids -- tests/fixtures/tiny-model
//!
//! This is what a trainer needs to make the prompt of a second turn itself: it has kept what the model saw and sampled, and
//! the prompt of the next turn must start with exactly that, whatever a tokenizer would make of the text.

use std::{error::Error, path::Path, sync::Arc};

use tito_text::prompting::{
    ChatPrompt, KnownPrefix, Message, ModelFiles, OnUnprovable, PromptRenderer, Provenance, Templates,
};

#[expect(clippy::print_stdout, reason = "that is what it is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("pass a model: a directory or a GGUF file")?;

    // The tokenizer, the chat template and the tokens that end an answer are read from the model's files.
    let model = ModelFiles::open(Path::new(&path))?;
    let tokenizer = Arc::new(model.tokenizer()?);
    let templates = Templates::of_model(&model.tokenizer_config)?;
    let eos = model.eos(&tokenizer)?;
    let renderer = PromptRenderer::new(templates, Arc::clone(&tokenizer), &eos, OnUnprovable::Error);

    // The first turn. Nothing is known yet, so what the template writes is encoded.
    let question = Message::text("user", "hi");
    let first = renderer.render(&ChatPrompt::new(vec![question.clone()]))?;
    println!("first prompt:  {:?}", first.token_ids);

    // The model's answer, letter by letter: these ids say "hello", but they are not how the tokenizer writes the word.
    let letters = ["h", "e", "l", "l", "o"].map(|letter| tokenizer.encode(letter, false));
    let sampled = letters.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    println!("sampled:       {sampled:?}");
    println!("encoded again: {:?}", tokenizer.encode("hello", false)?);

    // The second turn: the conversation with the answer's text, and what is known of it. `anchor` is the message that the
    // known ids end with.
    let known = [&first.token_ids[..], &sampled].concat();
    let messages = vec![question, Message::text("assistant", "hello"), Message::text("user", "more")];
    let prefix = KnownPrefix { token_ids: known.clone(), anchor: Some(1), sampled: sampled.len(), on_unprovable: None };
    let second = renderer.render(&ChatPrompt { known: Some(prefix), ..ChatPrompt::new(messages) })?;
    println!("second prompt: {:?}", second.token_ids);

    // `OnUnprovable::Error` makes what cannot be proven an error, so there is no third case.
    let Provenance::Spliced { reused, .. } = second.provenance else { return Err("nothing was reused".into()) };
    println!("proven: the first {reused} ids are those that were seen and sampled");
    assert!(second.token_ids.starts_with(&known));
    Ok(())
}
