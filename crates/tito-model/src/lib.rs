//! The files of a model and what they say, and the formats in which they say it.
//!
//! A directory of Hugging Face and a GGUF file are read by the same code: what the one says in JSON files is derived from the
//! metadata of the other ([`gguf`]). Everything here may come from anybody, so that every file is read as it is or refused with
//! one line that names what is wrong. Refuses to compute with weights, to read the environment, and to guess what a file does
//! not say.
//!
//! | module | owns | refuses |
//! |---|---|---|
//! | `files` | files that may be anything: bounds, memory that may be refused, panics of libraries as errors, directories that appear at once | formats |
//! | `json` | JSON as Python reads and writes it, with key order and digits; documents that point into their text | |
//! | `tokenizer` | text to ids and back, long texts in pieces where that is exact; names the crate `tokenizers` | templates |
//! | `gguf` | GGUF metadata, tokenizer and tensors under the names of Hugging Face | guessing |
//! | `model` | the files of a model, whatever form they have; the hub | weights, the environment |
//!
//! The rooms are for the other crates of tito and may change with each version.

#![cfg_attr(feature = "internals", warn(unreachable_pub))]

pub mod files;
pub mod gguf;
pub mod json;
pub mod model;
pub mod tokenizer;

use tito_sampling::TokenId;
