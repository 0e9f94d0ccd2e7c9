//! tito: token in, token out. A drop-in for `vllm serve` whose prompts keep, id for id, what the model sampled.
//!
//! Most people run the program; see the README. This page is for those who build on the crate, or change it.
//!
//! # Two doors
//!
//! A program of its own, a trainer's above all, can use two things without HTTP. `examples/` has a runnable file for each.
//!
//! [`prompting`]: **messages and known ids to prompt ids, with a proof.** A conversation is rendered by the model's chat
//! template and encoded. Where ids of earlier turns are known, the prompt starts with exactly these, whatever a tokenizer
//! would make of their text.
//!
//! ```
//! use std::{path::Path, sync::Arc};
//! use tito::prompting::{ChatPrompt, KnownPrefix, Message, ModelFiles, OnUnprovable, PromptRenderer, Provenance, Templates};
//!
//! let model = ModelFiles::open(Path::new("tests/fixtures/tiny-model"))?;
//! let tokenizer = Arc::new(model.tokenizer()?);
//! let templates = Templates::of_model(&model.tokenizer_config)?;
//! let eos = model.eos(&tokenizer)?;
//! let renderer = PromptRenderer::new(templates, Arc::clone(&tokenizer), &eos, OnUnprovable::Error);
//!
//! // Nothing is known of the first turn: what the template writes is encoded.
//! let question = Message::text("user", "hi");
//! let first = renderer.render(&ChatPrompt::new(vec![question.clone()]))?;
//!
//! // The model samples "hello" in two pieces, which is not how the tokenizer writes the word.
//! let sampled = [tokenizer.encode("he", false)?, tokenizer.encode("llo", false)?].concat();
//! let answer = Message::text("assistant", "hello");
//!
//! // The second turn starts with what the model saw and sampled, to the id.
//! let known = [&first.token_ids[..], &sampled].concat();
//! let prefix = KnownPrefix { token_ids: known.clone(), anchor: Some(1), sampled: sampled.len(), on_unprovable: None };
//! let messages = vec![question, answer, Message::text("user", "more")];
//! let second = renderer.render(&ChatPrompt { known: Some(prefix), ..ChatPrompt::new(messages) })?;
//! assert!(second.token_ids.starts_with(&known));
//! assert!(matches!(second.provenance, Provenance::Spliced { anchor: 1, .. }));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! [`inference`]: **ids to sampled tokens.** tito's own engine computes a model of a directory or of a GGUF file. Ids go in
//! and come out; nothing in between knows text.
//!
//! ```
//! use futures::{StreamExt, executor::block_on};
//! use tito::inference::{Engine, EngineOutput, SequenceRequest, NativeEngine, NativeSettings, SamplingParams, WeightsSource};
//!
//! let directory = std::path::PathBuf::from("tests/golden/native/llama");
//! let config = serde_json::from_str(&std::fs::read_to_string(directory.join("config.json"))?)?;
//! let settings = NativeSettings {
//!     max_model_len: 256,
//!     kv_cache_bytes: 1 << 20,
//!     ..NativeSettings::new(WeightsSource::Directory(directory), config)
//! };
//! let engine = NativeEngine::load(&settings, &mut |_loaded, _of| ())?;
//!
//! let sampling = SamplingParams { temperature: 0.7, seed: Some(1), max_tokens: 8, ..SamplingParams::default() };
//! let request = SequenceRequest::new([1, 5, 17], sampling.validated(engine.info().vocab_size)?);
//! let outputs: Vec<_> = block_on(engine.generate(request).collect());
//! for output in outputs {
//!     if let EngineOutput::Token(token) = output? {
//!         println!("{} with log-prob {}", token.id, token.logprob);
//!     }
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing else is promised: [`main`] is the whole program, and all other modules are private. A change of what these two
//! modules show is named in the changelog.
//!
//! # The way of a request
//!
//! ```text
//! HTTP body ─ wire/<endpoint> ─────▶ wire request        exactly the public shape, by the rules beside it
//!           ─ api/<endpoint>/request ▶ turn                messages, tools, template options, known ids
//!           ─ continuity ────────────▶ known ids, anchor   which ids are known, and which message they end at
//!           ─ prompt ────────────────▶ prompt ids, proof   template, encode, splice: the only road to ids
//!           ─ engine ────────────────▶ sampled tokens      ids in, ids out; dropping the stream aborts
//!           ─ generation ────────────▶ events              text is derived from ids, never the reverse
//!           ─ api/<endpoint>/response ▶ JSON or SSE        both are folds of the same events
//! ```
//!
//! # The map of rooms
//!
//! From the ground up; no module uses one that is listed after it (`tests/it/layering.rs`).
//!
//! | module | what it owns |
//! |---|---|
//! | `json`, `files` | JSON as Python spells it; files that may say anything |
//! | `tokenizer`, `gguf`, `model` | text to ids and back; GGUF files; the files of a model and what they say |
//! | `pydantic` | which values pass for which types, as vLLM's requests have it |
//! | `chat` | messages, tools, calls, and the ids that messages carry |
//! | `sampling`, `structured`, `parser` | logits to token; grammars over tokens; how models write reasoning and tool calls |
//! | `weights` | weights as trainers hand them over: streams, deltas, adapters, checksums |
//! | `prompt` | chat templates and the splice: the one road from messages to ids |
//! | `engine` | ids to sampled tokens: tito's own engine, mistral.rs, and one that plays scripts |
//! | `continuity`, `generation` | which ids are known for a conversation; tokens to text and events |
//! | `adapters` | the adapters that are loaded, by name |
//! | `store` | records that are found again by their id |
//! | `trajectory` | captured turns, joined by their ids; sequences for training |
//! | `wire` | the public shapes of requests and answers, and the rules that bodies must keep |
//! | `turn` | the application: a turn of any dialect to its prompt, its verdict and its events |
//! | `records` | what is kept of a response, whose it is, and which are being generated |
//! | `api`, `server` | the dialects of HTTP; connections, keys and limits around them |
//! | `telemetry`, `config`, `launch`, `program` | logs and metrics; flags; start-up; the command line |
//!
//! ARCHITECTURE.md says what each refuses to do and which invariants hold; docs/decisions/ says why.

#![cfg_attr(feature = "internals", warn(unreachable_pub))]

mod adapters;
mod admin;
mod api;
mod chat;
mod config;
mod continuity;
mod control;
mod engine;
mod files;
mod generation;
mod gguf;
pub mod inference;
#[cfg(any(test, feature = "internals"))]
#[doc(hidden)]
pub mod internals;
#[cfg(test)]
#[path = "../tests/it/mod.rs"]
mod it;
mod json;
mod launch;
mod memory;
mod model;
mod parser;
mod program;
mod prompt;
pub mod prompting;
mod pydantic;
mod records;
mod replay;
mod sampling;
mod server;
mod store;
mod structured;
mod telemetry;
mod tokenizer;
mod trajectory;
mod turn;
mod weights;
mod wire;

pub use program::main;

// Tests and fuzz targets name the crate as whoever uses it does.
#[cfg(test)]
extern crate self as tito;

/// The id of a token in the model's vocabulary.
pub type TokenId = u32;
