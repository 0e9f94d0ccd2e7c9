//! How much memory there is for this process, whether a model can fit into it at all, and what of it requests may take.

use std::fs;

use anyhow::bail;

use crate::memory::{limit, stated};

/// One part in so many is for the bytes of requests: the work on them takes several times as much.
const SHARE_OF_REQUESTS: u64 = 32;
/// The least that lets long conversations in.
const LEAST_OF_REQUESTS: u64 = 1 << 26;
/// Where nothing says how much there is.
const ELSE_OF_REQUESTS: u64 = 1 << 29;

/// What to do about weights that are too large.
const SMALLER: &str =
    "serve a quantised .gguf file of the model, or a smaller model; --dtype bfloat16 takes half the memory of float32";

/// Refuses what the machine cannot hold whatever else gives way: the system would give addresses for it all the same,
/// and end the process when they are used. `cache` is what keys and values were said to take.
pub(super) fn check(weights: u64, cache: Option<u64>) -> anyhow::Result<()> {
    all().map_or(Ok(()), |all| compare(weights, cache, all))
}

/// The memory that this process could have at the most, if the system says so.
pub(super) fn all() -> Option<u64> {
    let stated = stated(&["MemTotal:", "SwapTotal:"])?;
    Some(limit().map_or(stated, |limit| limit.min(stated)))
}

fn compare(weights: u64, cache: Option<u64>, memory: u64) -> anyhow::Result<()> {
    let there = format!("more than the {} of memory that this machine or container has", megabytes(memory));
    if weights > memory {
        bail!("the model's weights take {}, {there}; {SMALLER}", megabytes(weights));
    }
    match cache {
        Some(cache) if weights.saturating_add(cache) > memory => {
            let (cache, weights) = (megabytes(cache), megabytes(weights));
            bail!(
                "the {cache} of --kv-cache-memory and the {weights} of the model's weights are {there}; lower --kv-cache-memory"
            )
        }
        _ => Ok(()),
    }
}

/// So many bytes, for people.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// The default of `--max-bytes-in-flight`.
pub(super) fn for_bytes_in_flight() -> usize {
    let memory = [stated(&["MemTotal:"]), limit(), address_space()].into_iter().flatten().min();
    let bytes = memory.map_or(ELSE_OF_REQUESTS, |memory| (memory / SHARE_OF_REQUESTS).max(LEAST_OF_REQUESTS));
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The memory for images that requests wait and run with: four times what their bodies may take, since an image is larger
/// without its encoding.
pub(super) fn for_images() -> u64 {
    4 * for_bytes_in_flight() as u64
}

/// The soft limit of `ulimit -v`, `None` where it is `unlimited`.
fn address_space() -> Option<u64> {
    address_space_in(&fs::read_to_string("/proc/self/limits").ok()?)
}

fn address_space_in(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_memory_holds_is_refused_with_the_numbers() {
        let refusal = |weights, cache| compare(weights, cache, 8_000_000_000).unwrap_err().to_string();
        let there = "more than the 8000 MB of memory that this machine or container has";
        assert_eq!(refusal(9_000_000_000, None), format!("the model's weights take 9000 MB, {there}; {SMALLER}"));
        let together = "the 7000 MB of --kv-cache-memory and the 2000 MB of the model's weights are";
        assert_eq!(refusal(2_000_000_000, Some(7_000_000_000)), format!("{together} {there}; lower --kv-cache-memory"));
        assert!(compare(u64::MAX, Some(u64::MAX), 8).is_err());
        assert!(compare(2_000_000_000, Some(6_000_000_000), 8_000_000_000).is_ok());
        assert!(compare(7_000_000_000, None, 8_000_000_000).is_ok());
    }
    #[test]
    fn limits_are_read_as_the_system_writes_them() {
        let limits =
            |soft: &str| format!("Limit  Soft Limit  Hard Limit  Units\nMax address space  {soft}  unlimited  bytes\n");
        assert_eq!(address_space_in(&limits("6442450944")), Some(6 << 30));
        assert_eq!(address_space_in(&limits("unlimited")), None);
    }

    #[test]
    fn there_is_always_room_for_a_long_conversation() {
        assert!(for_bytes_in_flight() >= 1 << 26);
    }
}
