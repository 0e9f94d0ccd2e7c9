//! The arithmetic of the CPU backend, and its only `unsafe` code.
//!
//! Owns instruction sets, threads and memory layouts. Its functions check what they are given (shapes, lengths) and
//! are safe to call; refuses to know models, sequences or files.
//!
//! # Bitwise reproducible
//! Every result depends only on the numbers that it is computed from and on the [`KernelSet`]. It does not depend on the
//! position of a row in a batch, on the number of rows, or on the number of threads. One thread accumulates each output
//! element, in one order, and no result mixes rows.

#![expect(unsafe_code, reason = "vector instructions, and threads that write disjoint parts of one buffer")]
#![expect(clippy::inline_always, reason = "only what is inlined into a kernel uses the kernel's instructions")]

mod ahead;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
mod attention;
mod blocked;
mod coded;
mod elementwise;
mod exp;
mod few;
mod gates;
mod gemm;
mod instructions;
mod kv;
mod kv_writes;
mod multiplier;
mod packed;
mod pages;
mod panels;
mod parts;
mod pool;
mod precision;
mod raw;
mod recurrent;
mod rows;
mod scratch;
mod segments;
mod states;
#[cfg(test)]
mod tests;
mod trial;
mod units;
mod vector;
mod walk;

pub(crate) use attention::{Attention, BothWays, attend};
pub(crate) use blocked::Blocked;
pub(crate) use coded::Coded;
pub(crate) use elementwise::{add, add_scaled, head_norm, norm, rotate, round, scale};
pub(crate) use gates::{gate, shape_logits};
pub(crate) use gemm::multiply;
pub use instructions::{KernelName, KernelSet};
pub(crate) use kv::{BLOCK_TOKENS, KvLayout, KvStore};
pub(crate) use kv_writes::CacheWrites;
pub(crate) use packed::{Operand, Packed};
pub(crate) use pool::Pool;
pub(crate) use precision::Precision;
pub(crate) use recurrent::{RecurrentStore, Taps, convolve, gated_norm, multiply_columns, open, recur};
pub(crate) use segments::attend_within;
pub(crate) use states::{Processor, States};
pub use trial::Mismatch;
pub(crate) use trial::compare_with_portable;
#[cfg(target_os = "linux")]
pub(crate) use trial::try_under_signals;

/// Columns of a packed block, and lanes of the widest vector.
const LANES: usize = 16;
