//! Which requests are traced: `OTEL_TRACES_SAMPLER`, as the SDKs of OpenTelemetry have it.

use super::{context::Parent, ids::TraceId};

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sampler {
    /// A request with a parent is traced if that one is.
    pub(super) asks_parent: bool,
    /// How many of 2^64 traces, by the last 8 bytes of their ids.
    pub(super) of_all: u128,
}

/// All traces.
const ALL: u128 = 1 << 64;

impl Default for Sampler {
    fn default() -> Self {
        Self { asks_parent: true, of_all: ALL }
    }
}

impl Sampler {
    /// Reads the two variables; the error is one line.
    pub(super) fn new(name: Option<&str>, argument: Option<&str>) -> Result<Self, String> {
        let name = name.unwrap_or("parentbased_always_on");
        let (asks_parent, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name),
        };
        let of_all = match root {
            "always_on" => ALL,
            "always_off" => 0,
            "traceidratio" => part(argument)?,
            _ => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER={name} is not supported; always_on, always_off and traceidratio are, and each with \
                     parentbased_ in front"
                ));
            }
        };
        Ok(Self { asks_parent, of_all })
    }

    /// Whether a request is traced that belongs to a trace.
    pub(super) fn traces(self, trace_id: TraceId, parent: Option<&Parent>) -> bool {
        if let Some(parent) = parent.filter(|_| self.asks_parent) {
            return parent.sampled;
        }
        u128::from_be_bytes(trace_id) % ALL < self.of_all
    }
}

fn part(argument: Option<&str>) -> Result<u128, String> {
    let text = argument.unwrap_or("1");
    let ratio = text.trim().parse().ok().filter(|ratio: &f64| (0.0..=1.0).contains(ratio));
    let ratio = ratio.ok_or_else(|| format!("OTEL_TRACES_SAMPLER_ARG={text} is not a number from 0 to 1"))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to 2^64, which is exact in both"
    )]
    let part = (ratio * 2_f64.powi(64)).round() as u128;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(low: u64) -> TraceId {
        (0x0102_0304_0506_0708_u128 << 64 | u128::from(low)).to_be_bytes()
    }

    fn parent(sampled: bool) -> Parent {
        Parent { trace_id: trace(9), span_id: [1; 8], sampled, state: String::new() }
    }

    #[test]
    fn names_and_their_arguments_are_those_of_the_sdks() {
        let traced = |name, argument, low, parent: Option<&Parent>| {
            Sampler::new(name, argument).unwrap().traces(trace(low), parent)
        };
        let (yes, no) = (parent(true), parent(false));
        assert_eq!(Sampler::new(None, None), Ok(Sampler::default()));
        assert!(traced(None, None, u64::MAX, None));
        assert!(traced(None, None, 0, Some(&yes)) && !traced(None, None, 0, Some(&no)));
        assert!(traced(Some("always_on"), None, u64::MAX, Some(&no)));
        assert!(!traced(Some("always_off"), None, 0, Some(&yes)));
        assert!(traced(Some("parentbased_always_off"), None, 0, Some(&yes)));
        assert!(!traced(Some("parentbased_always_off"), None, 0, None));
        let half = |low| traced(Some("traceidratio"), Some("0.5"), low, None);
        assert!(half((1 << 63) - 1) && !half(1 << 63));
        assert!(traced(Some("parentbased_traceidratio"), Some("0"), 0, Some(&yes)));
        assert!(!traced(Some("traceidratio"), Some("0"), 0, Some(&yes)));
        assert!(traced(Some("traceidratio"), None, u64::MAX, None));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        for (name, argument, word) in [
            ("xray", None, "OTEL_TRACES_SAMPLER=xray"),
            ("parentbased_jaeger_remote", None, "parentbased_jaeger_remote"),
            ("traceidratio", Some("2"), "OTEL_TRACES_SAMPLER_ARG=2"),
            ("traceidratio", Some("NaN"), "OTEL_TRACES_SAMPLER_ARG=NaN"),
            ("traceidratio", Some("a"), "OTEL_TRACES_SAMPLER_ARG=a"),
        ] {
            let refused = Sampler::new(Some(name), argument).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }
}
