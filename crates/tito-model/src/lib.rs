//! The files of a model, their content and their formats.
//!
//! The same code reads a Hugging Face directory and a GGUF file: what the directory says in JSON files is derived from
//! the metadata of the GGUF file ([`gguf`]). A file may come from anybody. It is read exactly, or refused with one line
//! that names what is wrong. Refuses to compute with weights, to read the environment, and to guess what a file does
//! not say.
//!
//! | module | owns | refuses |
//! |---|---|---|
//! | `files` | files with unknown content: size limits, failed allocations, panics of libraries as errors, directories written atomically | formats |
//! | `json` | JSON as Python reads and writes it, with key order and digits; documents that point into their text | |
//! | `tokenizer` | text to ids and back, long texts in pieces where that is exact; the only one that uses the crate `tokenizers` | templates |
//! | `gguf` | GGUF metadata, tokenizer and tensors under the names of Hugging Face | guessing |
//! | `model` | the files of a model, whatever form they have; the hub | weights, the environment |
//!
//! The modules are for the other crates of tito. They may change with each version.

#![cfg_attr(feature = "internals", warn(unreachable_pub))]

pub mod files;
pub mod gguf;
pub mod json;
pub mod model;
pub mod tokenizer;

use tito_sampling::TokenId;

// Reading tokenizers is half allocation; the program has this allocator, too.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
