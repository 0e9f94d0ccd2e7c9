//! tito: token in, token out. A drop-in for `vllm serve` whose prompts keep, id for id, what the model sampled.
//!
//! ```text
//! HTTP body ─ api/<endpoint>/types ─▶ wire request        exactly the public shape
//!           ─ api/<endpoint>/request ▶ turn                messages, tools, template options, known ids
//!           ─ continuity ────────────▶ known ids, anchor   which ids are known, and which message they end at
//!           ─ prompt ────────────────▶ prompt ids, proof   template, encode, splice: the only road to ids
//!           ─ engine ────────────────▶ sampled tokens      ids in, ids out; dropping the stream aborts
//!           ─ generation ────────────▶ events              text is derived from ids, never the reverse
//!           ─ api/<endpoint>/response ▶ JSON or SSE        both are folds of the same events
//! ```

pub mod api;
pub mod chat;
pub mod config;
pub mod continuity;
pub mod engine;
pub mod files;
pub mod generation;
pub mod gguf;
pub mod json;
pub mod launch;
pub mod model;
pub mod parser;
pub mod prompt;
pub mod sampling;
pub mod server;
pub mod store;
pub mod structured;
pub mod telemetry;
pub mod tokenizer;
pub mod turn;

/// The id of a token in the model's vocabulary.
pub type TokenId = u32;
