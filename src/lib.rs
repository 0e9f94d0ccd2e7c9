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
//! | [`tito_engine`] | ids to sampled tokens: tito's own engine, and a scripted one for tests |
//! | [`tito_images`] | encoded bytes of an image to the patches that a model sees |
//! | `tito_mistralrs` | mistral.rs as such an engine, behind the feature `mistralrs` |
//! | `tito` | the program: requests, answers, the control plane, start-up |
//!
//! Other programs, such as trainers, can rely on two modules, without HTTP: [`tito_text::prompting`] and
//! [`tito_engine::inference`]. The page of each crate begins with an example. The changelog names each change of these
//! two. Nothing else is promised. Of this crate, only [`main`] is public: it is the whole program.
//!
//! # The way of a request
//!
//! ```text
//! HTTP body ─ wire/<endpoint> ─────▶ wire request        exactly the public shape, by the rules beside it
//!           ─ api/<endpoint>/request ▶ turn                messages, tools, template options, known ids
//!           ─ continuity ────────────▶ known ids, anchor   which ids are known, and which message they end at
//!           ─ prompt ────────────────▶ prompt ids, proof   template, encode, splice: the only way to ids
//!           ─ engine ────────────────▶ sampled tokens      ids in, ids out; dropping the stream aborts
//!           ─ generation ────────────▶ events              text is derived from ids, never the reverse
//!           ─ api/<endpoint>/response ▶ JSON or SSE        both are folds of the same events
//! ```
//!
//! ARCHITECTURE.md has the map of modules, with what each refuses to do, and the invariants. docs/decisions/ gives the
//! reasons.

#![cfg_attr(feature = "internals", warn(unreachable_pub))]

mod adapters;
mod admin;
mod api;
mod asked_for;
mod config;
mod continuity_store;
mod control;
mod foreign_fields;
mod fresh_uuid;
mod generation;
mod http;
mod inspect;
#[cfg(any(test, feature = "internals"))]
#[doc(hidden)]
pub mod internals;
#[cfg(test)]
#[path = "../tests/it/mod.rs"]
mod it;
mod kv_events;
mod launch;
mod media;
mod npy;
mod otlp;
mod program;
mod pydantic;
mod reader;
mod records;
mod replay;
mod request_fields;
mod request_trace;
mod retry;
mod server;
mod sglang;
mod state;
mod store;
mod telemetry;
mod tinker;
mod tinker_sessions;
mod trajectory;
mod turn;
mod wire;

pub use program::main;
use tito_engine::{engine, memory, weights};
use tito_images as images;
use tito_model::{files, gguf, json, model, tokenizer};
use tito_sampling as sampling;
pub use tito_sampling::TokenId;
use tito_text::{chat, continuity, parser, prompt, structured};

// Tests and fuzz targets name the crate as whoever uses it does.
#[cfg(test)]
extern crate self as tito;

// As the program has it: what is bounded in bytes is compared with what this one takes.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
