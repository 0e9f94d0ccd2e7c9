//! Messages to prompt ids with a proof, and the text that a model wrote back to reasoning, content and tool calls.
//!
//! The crate knows no engine and no HTTP. Other programs can rely on the module [`prompting`]. The other modules are
//! public for the program `tito`, and may change with each version.
//!
//! # Messages and known ids to prompt ids
//!
//! A conversation is rendered by the model's chat template and encoded. If ids of earlier turns are known, the prompt
//! starts with exactly these, whatever a tokenizer would make of their text. If that cannot be proven, the call is
//! refused with the reason.
//!
//! ```
//! use std::{path::Path, sync::Arc};
//! use tito_text::prompting::{ChatPrompt, KnownPrefix, Message, ModelFiles, OnUnprovable, PromptRenderer, Provenance, Templates};
//!
//! let model = ModelFiles::open(Path::new("../../tests/fixtures/tiny-model"))?;
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
//! `examples/prompt_ids.rs` runs this over a model's directory or GGUF file.
//!
//! # The modules
//!
//! | module | owns | refuses |
//! |---|---|---|
//! | `chat` | messages, tools, calls, and the ids that messages carry | templates |
//! | `prompt` | chat template or Harmony, the splice and its proof: the only way from messages to ids | which ids are known |
//! | `continuity` | which ids are known for a conversation, and what has been remembered of earlier ones | rendering |
//! | `structured` | what an output must be, as a grammar over tokens; the only one that uses `llguidance` | what it could only approximate |
//! | `parser` | how models write reasoning and tool calls, and what forces calls | ids |

#![cfg_attr(feature = "internals", warn(unreachable_pub))]

pub mod chat;
pub mod continuity;
pub mod parser;
pub mod prompt;
pub mod prompting;
pub mod structured;

use tito_model::{json, model, tokenizer};
use tito_sampling::{self as sampling, TokenId};

// Reading tokenizers is half allocation; the program has this allocator, too.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
