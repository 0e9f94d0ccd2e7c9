//! `--kv-events-config`, as vLLM's `KVEventsConfig` has it.

use serde::Deserialize;

/// Where events of the cache of prefixes are published, and how many are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEventsConfig {
    /// Where subscribers find events.
    pub endpoint: String,
    /// Where they ask again for events that they missed.
    pub replay_endpoint: Option<String>,
    /// How many batches of events are kept for them.
    pub buffer_steps: usize,
    /// How many batches may wait for one subscriber.
    pub hwm: usize,
    /// How many batches may wait to be published.
    pub max_queue_size: usize,
    /// What each message begins with.
    pub topic: String,
}

/// The value of the flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEventsArg(pub Option<KvEventsConfig>);

/// What is written.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: String,
    replay_endpoint: Option<String>,
    buffer_steps: usize,
    hwm: usize,
    max_queue_size: usize,
    topic: String,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            enable_kv_cache_events: false,
            publisher: None,
            endpoint: "tcp://*:5557".to_owned(),
            replay_endpoint: None,
            buffer_steps: 10_000,
            hwm: 100_000,
            max_queue_size: 100_000,
            topic: String::new(),
        }
    }
}

/// More than that is a mistake, and no queue.
const MOST: usize = 10_000_000;

/// Reads the value of the flag.
pub(super) fn parse(text: &str) -> Result<KvEventsArg, String> {
    if matches!(text, "" | "None" | "null") {
        return Ok(KvEventsArg(None));
    }
    let written: Written =
        serde_json::from_str(text).map_err(|error| format!("expected vLLM's KVEventsConfig as JSON: {error}"))?;
    let publishes = match written.publisher.as_deref() {
        None | Some("zmq") => written.enable_kv_cache_events,
        Some("null") => false,
        Some(other) => return Err(format!("the publisher {other} is not supported; zmq and null are")),
    };
    if !publishes {
        return Ok(KvEventsArg(None));
    }
    let Written { endpoint, replay_endpoint, buffer_steps, hwm, max_queue_size, topic, .. } = written;
    for (name, value) in [("hwm", hwm), ("max_queue_size", max_queue_size)] {
        if value == 0 {
            return Err(format!("{name}=0 would let what waits grow without bound; pass how many batches may wait"));
        }
    }
    for (name, value) in [("buffer_steps", buffer_steps), ("hwm", hwm), ("max_queue_size", max_queue_size)] {
        if value > MOST {
            return Err(format!("{name}={value} must be <= {MOST}"));
        }
    }
    for (name, value) in [("endpoint", Some(&endpoint)), ("replay_endpoint", replay_endpoint.as_ref())] {
        let port = value.and_then(|value| value.rsplit(':').next()?.parse::<u16>().ok());
        if port == Some(0) {
            return Err(format!(
                "{name}: the system would choose a port for 0, and no subscriber would know it; name one"
            ));
        }
    }
    Ok(KvEventsArg(Some(KvEventsConfig { endpoint, replay_endpoint, buffer_steps, hwm, max_queue_size, topic })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_off_unless_they_are_asked_for() {
        for off in [
            "",
            "None",
            "null",
            "{}",
            r#"{"publisher":"zmq"}"#,
            r#"{"enable_kv_cache_events":true,"publisher":"null"}"#,
            r#"{"endpoint":"tcp://*:1"}"#,
        ] {
            assert_eq!(parse(off), Ok(KvEventsArg(None)), "{off}");
        }
    }

    #[test]
    fn defaults_are_vllms() {
        let read = parse(r#"{"enable_kv_cache_events":true}"#).unwrap().0.unwrap();
        let expected = KvEventsConfig {
            endpoint: "tcp://*:5557".to_owned(),
            replay_endpoint: None,
            buffer_steps: 10_000,
            hwm: 100_000,
            max_queue_size: 100_000,
            topic: String::new(),
        };
        assert_eq!(read, expected);
        let text = r#"{"enable_kv_cache_events":true,"publisher":"zmq","replay_endpoint":"tcp://*:5558","topic":"kv@a@b","hwm":5}"#;
        let read = parse(text).unwrap().0.unwrap();
        let topic = "kv@a@b".to_owned();
        assert_eq!(
            read,
            KvEventsConfig { replay_endpoint: Some("tcp://*:5558".to_owned()), topic, hwm: 5, ..expected }
        );
    }

    #[test]
    fn what_is_not_served_is_refused_by_name() {
        for (field, reason) in [
            (r#""backlog":1"#, "unknown field `backlog`"),
            (r#""publisher":"kafka""#, "the publisher kafka"),
            (r#""hwm":0"#, "hwm=0"),
            (r#""max_queue_size":0"#, "max_queue_size=0"),
            (r#""max_queue_size":-1"#, "-1"),
            (r#""buffer_steps":10000001"#, "buffer_steps=10000001"),
            (r#""endpoint":"tcp://*:0""#, "endpoint: the system would choose a port"),
            (r#""endpoint":"tcp://*:00""#, "endpoint: the system would choose a port"),
            (r#""replay_endpoint":"tcp://[::]:0""#, "replay_endpoint: the system would choose a port"),
        ] {
            let refused = parse(&format!(r#"{{"enable_kv_cache_events":true,{field}}}"#)).unwrap_err();
            assert!(refused.contains(reason), "{field}: {refused}");
        }
    }
}
