//! How long calls of the control plane take, under vLLM's names.

use std::time::Instant;

use metrics::{Gauge, gauge, histogram};

/// A call that is timed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation {
    /// A part of an update of weights, by its name.
    Update(&'static str),
    /// Falling asleep, or waking up.
    Sleep(&'static str),
}

/// A call that is under way.
struct InFlight(Gauge);

impl InFlight {
    fn new(gauge: Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl Operation {
    fn in_flight(self) -> InFlight {
        InFlight::new(match self {
            Self::Update(name) => gauge!("vllm:rl_weight_update_operations_in_flight", "operation" => name),
            Self::Sleep(name) => gauge!("vllm:sleep_mode_operations_in_flight", "operation" => name),
        })
    }

    fn took(self, seconds: f64) {
        match self {
            Self::Update(name) => {
                histogram!("vllm:rl_weight_update_operation_duration_seconds", "operation" => name).record(seconds);
            }
            Self::Sleep(name) => {
                histogram!("vllm:sleep_mode_operation_duration_seconds", "operation" => name).record(seconds);
            }
        }
    }

    /// Does a call, and takes note of how long it took, whatever came of it.
    pub(super) async fn timed<T>(self, call: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let in_flight = self.in_flight();
        let outcome = call.await;
        drop(in_flight);
        self.took(begun.elapsed().as_secs_f64());
        outcome
    }
}
