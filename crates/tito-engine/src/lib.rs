//! Token ids to sampled tokens and their log-probs.
//!
//! Ids go in and come out; nothing in between knows text, chat or HTTP. Other programs can rely on the module
//! [`inference`]. The other modules are public for the program `tito`, and may change with each version.
//!
//! # A model of a directory or of a GGUF file
//!
//! ```
//! use futures::{StreamExt, executor::block_on};
//! use tito_engine::inference::{Engine, EngineOutput, SequenceRequest, NativeEngine, NativeSettings, SamplingParams, WeightsSource};
//!
//! let directory = std::path::PathBuf::from("../../tests/golden/native/llama");
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
//! `examples/sample.rs` draws several samples of a prompt at a time.
//!
//! # The modules
//!
//! | module | owns | refuses |
//! |---|---|---|
//! | `engine` | `trait Engine`, what all engines share, and two of them: `native` and `scripted` | text |
//! | `weights` | weights as trainers hand them over: streams, deltas, adapters, checksums; the only one that uses `zstd` | what a tensor is for |
//! | `memory` | how much memory the system could still give | |
//!
//! docs/native-engine.md goes through the native engine step by step.

#![cfg_attr(feature = "internals", warn(unreachable_pub))]

pub mod engine;
pub mod inference;
pub mod memory;
pub mod weights;

use tito_model::{files, gguf, json};
use tito_sampling as sampling;
pub use tito_sampling::TokenId;
