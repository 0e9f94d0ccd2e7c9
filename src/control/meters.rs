//! Whether the server sleeps, as metrics say it, under vLLM's name.

use metrics::gauge;

use super::asleep::Asleep;

/// Shows what sleeps.
pub(super) fn show(asleep: Option<Asleep>) {
    let state = asleep.map_or(Some("awake"), Asleep::vllms_name);
    for one in ["awake", "weights_offloaded", "discard_all"] {
        gauge!("vllm:engine_sleep_state", "sleep_state" => one).set(f64::from(u8::from(Some(one) == state)));
    }
}
