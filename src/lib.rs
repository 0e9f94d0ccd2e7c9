//! tito: token in, token out. A drop-in for `vllm serve` whose prompts keep, id for id, what the model sampled.
//!
//! Most people run the program; see the README. This page is for those who build on the crate, or change it.
//!
//! # The crates
//!
//! | crate | what it owns |
//! |---|---|
//! | [`tito_sampling`] | logits to token and log-probs: pure, seeded, the same for every engine |
//! | [`tito_model`] | the files of a model and what they say: JSON, GGUF, tokenizers |
//! | [`tito_text`] | messages to prompt ids with a proof; text to reasoning, content and tool calls |
//! | [`tito_engine`] | ids to sampled tokens: tito's own engine, and one that plays scripts |
//! | `tito_mistralrs` | mistral.rs as such an engine, behind the feature `mistralrs` |
//! | `tito` | the program: requests, answers, the control plane, start-up |
//!
//! A program of its own, a trainer's above all, can use two doors without HTTP: [`tito_text::prompting`] and
//! [`tito_engine::inference`]. Their pages begin with an example each. Nothing else is promised: [`main`] is the whole
//! program, and all other modules are private. A change of what these two show is named in the changelog.
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
//! ARCHITECTURE.md has the map of rooms, with what each refuses to do, and the invariants; docs/decisions/ says why.

#![cfg_attr(feature = "internals", warn(unreachable_pub))]

mod adapters;
mod admin;
mod api;
mod config;
mod control;
mod generation;
#[cfg(any(test, feature = "internals"))]
#[doc(hidden)]
pub mod internals;
#[cfg(test)]
#[path = "../tests/it/mod.rs"]
mod it;
mod launch;
mod program;
mod pydantic;
mod records;
mod replay;
mod server;
mod store;
mod telemetry;
mod trajectory;
mod turn;
mod wire;

pub use program::main;
use tito_engine::{engine, memory, weights};
use tito_model::{files, gguf, json, model, tokenizer};
use tito_sampling as sampling;
pub use tito_sampling::TokenId;
use tito_text::{chat, continuity, parser, prompt, structured};

// Tests and fuzz targets name the crate as whoever uses it does.
#[cfg(test)]
extern crate self as tito;
