//! The flag and the variables of OpenTelemetry, as settings: what the SDK that vLLM uses reads of them.

mod endpoint;

use std::{collections::BTreeMap, path::PathBuf, str::FromStr, time::Duration};

use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::sampler::Sampler;
use endpoint::PROTOCOL;
pub(super) use endpoint::{Endpoint, Protocol};

/// The most spans that may wait: what a larger queue takes up is a mistake.
const MOST_WAITING: usize = 1_000_000;
/// The longest time for one batch, in seconds.
const MOST_SECONDS: f64 = 3600.0;

/// Where spans go, and which there are.
#[derive(Clone)]
pub(crate) struct OtlpSettings {
    pub(super) endpoint: Endpoint,
    /// What each request to the collector carries besides.
    pub(super) headers: HeaderMap,
    /// The time for one batch, all tries together.
    pub(super) timeout: Duration,
    /// The file of the certificates that are trusted besides those of the web.
    pub(super) certificate: Option<PathBuf>,
    pub(super) sampler: Sampler,
    pub(super) bounds: QueueBounds,
    /// What is said of the process.
    pub(super) resource: BTreeMap<String, String>,
}

/// How many spans wait, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueBounds {
    /// The most spans that wait.
    pub(super) waiting: usize,
    /// The most spans of a batch; a request's spans are never in two.
    pub(super) batch: usize,
    /// How long the first span of a batch waits for others.
    pub(super) delay: Duration,
}

impl OtlpSettings {
    /// Reads the address of the flag and the variables; `None` where OpenTelemetry is switched off by `OTEL_SDK_DISABLED`.
    ///
    /// # Errors
    ///
    /// If tito cannot do what one of them asks for; the error is one line, and has no values that may be secret.
    pub(crate) fn new(endpoint: &str, variables: &BTreeMap<String, String>) -> Result<Option<Self>, String> {
        let variables = Variables(variables);
        if variables.get("OTEL_SDK_DISABLED").is_some_and(|disabled| disabled.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        variables.refuse_client_certificates()?;
        Ok(Some(Self {
            endpoint: Endpoint::new(endpoint, variables.get(PROTOCOL))
                .map_err(|reason| format!("--otlp-traces-endpoint: {reason}"))?,
            headers: variables.headers()?,
            timeout: variables.timeout()?,
            certificate: variables.of_traces("CERTIFICATE").map(|(_, path)| path.into()),
            sampler: Sampler::new(variables.get("OTEL_TRACES_SAMPLER"), variables.get("OTEL_TRACES_SAMPLER_ARG"))?,
            bounds: variables.bounds()?,
            resource: variables.resource()?,
        }))
    }
}

/// The environment's variables, of which an empty one is not set.
struct Variables<'a>(&'a BTreeMap<String, String>);

impl<'a> Variables<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// A variable of exporters: the one about traces, or else the one about everything; with its name.
    fn of_traces(&self, name: &str) -> Option<(String, &'a str)> {
        let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        names.into_iter().find_map(|name| self.get(&name).map(|value| (name, value)))
    }

    fn refuse_client_certificates(&self) -> Result<(), String> {
        for name in ["CLIENT_CERTIFICATE", "CLIENT_KEY"] {
            if let Some((name, _)) = self.of_traces(name) {
                return Err(format!(
                    "{name} is not supported: tito shows collectors no certificate; use a collector beside it"
                ));
            }
        }
        Ok(())
    }

    fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        let Some((variable, text)) = self.of_traces("HEADERS") else { return Ok(headers) };
        let wrong = |number: usize| {
            format!("{variable}: entry {number} is not NAME=VALUE, with a value that a header can have")
        };
        for (number, (name, value)) in pairs(text, &variable)?.into_iter().enumerate() {
            let name = HeaderName::from_str(&name).map_err(|_| wrong(number + 1))?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| wrong(number + 1))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// In seconds, as the SDK that vLLM uses reads it; the specification says milliseconds.
    fn timeout(&self) -> Result<Duration, String> {
        let Some((variable, text)) = self.of_traces("TIMEOUT") else { return Ok(Duration::from_secs(10)) };
        let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= MOST_SECONDS);
        seconds
            .map(Duration::from_secs_f64)
            .ok_or_else(|| format!("{variable}={text} is not a number of seconds, above 0 and at most {MOST_SECONDS}"))
    }

    fn bounds(&self) -> Result<QueueBounds, String> {
        let waiting = self.count("OTEL_BSP_MAX_QUEUE_SIZE", 2048, MOST_WAITING)?;
        let batch = self.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", waiting.min(512), waiting)?;
        let delay = self.count("OTEL_BSP_SCHEDULE_DELAY", 5000, 3_600_000)?;
        Ok(QueueBounds { waiting, batch, delay: Duration::from_millis(delay as u64) })
    }

    fn count(&self, name: &str, default: usize, most: usize) -> Result<usize, String> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let count = text.parse().ok().filter(|count| (1..=most).contains(count));
        count.ok_or_else(|| format!("{name}={text} is not a number from 1 to {most}"))
    }

    fn resource(&self) -> Result<BTreeMap<String, String>, String> {
        const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let mut resource: BTreeMap<String, String> =
            pairs(self.get(ATTRIBUTES).unwrap_or_default(), ATTRIBUTES)?.into_iter().collect();
        if let Some(name) = self.get("OTEL_SERVICE_NAME") {
            resource.insert("service.name".to_owned(), name.to_owned());
        }
        Ok(resource)
    }
}

/// `name=value,…` with percent-encoded values, as W3C's baggage has it.
fn pairs(text: &str, variable: &str) -> Result<Vec<(String, String)>, String> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let pair = |(index, entry): (usize, &str)| {
        let wrong = || format!("{variable}: entry {} is not NAME=VALUE", index + 1);
        let (name, value) = entry.split_once('=').ok_or_else(wrong)?;
        let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| wrong())?;
        let name = name.trim();
        if name.is_empty() { Err(wrong()) } else { Ok((name.to_owned(), value.into_owned())) }
    };
    entries.enumerate().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Option<OtlpSettings>, String> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        OtlpSettings::new("http://a:4317", &variables)
    }

    fn read(variables: &[(&str, &str)]) -> OtlpSettings {
        settings(variables).unwrap_or_else(|error| panic!("{error}")).unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_sdk() {
        let read = read(&[("OTEL_TRACES_SAMPLER", "")]);
        assert_eq!((read.timeout, read.headers.len(), read.certificate.is_none()), (Duration::from_secs(10), 0, true));
        assert_eq!(read.bounds, QueueBounds { waiting: 2048, batch: 512, delay: Duration::from_secs(5) });
        assert_eq!((read.sampler, read.resource.len()), (Sampler::default(), 0));
    }

    #[test]
    fn variables_of_traces_come_before_those_of_everything() {
        let read = read(&[
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "X-Key=a%20b, other=c=d"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2.5"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/a.pem"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,k=%C3%A9"),
            ("OTEL_SERVICE_NAME", "b"),
        ]);
        let header = |name: &str| read.headers[name].to_str().unwrap().to_owned();
        assert_eq!((read.headers.len(), header("x-key"), header("other")), (2, "a b".to_owned(), "c=d".to_owned()));
        assert!(!format!("{:?}", read.headers).contains("a b"));
        assert_eq!((read.timeout, read.certificate), (Duration::from_millis(2500), Some("/a.pem".into())));
        assert_eq!(read.bounds, QueueBounds { waiting: 10, batch: 10, delay: Duration::from_millis(20) });
        assert_eq!(read.resource, BTreeMap::from([("k".into(), "é".into()), ("service.name".into(), "b".into())]));
    }

    #[test]
    fn it_can_be_switched_off() {
        assert!(settings(&[("OTEL_SDK_DISABLED", "True")]).unwrap().is_none());
        assert!(settings(&[("OTEL_SDK_DISABLED", "false")]).unwrap().is_some());
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_and_secrets_are_not_repeated() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0A"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "=secret"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "NaN"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/secret.pem"),
            ("OTEL_RESOURCE_ATTRIBUTES", "secret"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=%ff"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "1000000000"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096"),
            ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
            ("OTEL_TRACES_SAMPLER", "xray"),
        ] {
            let Err(refused) = settings(&[(name, value)]) else { panic!("{name}={value} is taken") };
            assert!(refused.contains(name) && !refused.contains("secret"), "{refused}");
        }
    }
}
