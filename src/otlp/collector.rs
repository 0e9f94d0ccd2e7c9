//! A collector, and what it answers to a batch.
//!
//! gRPC is spoken here: one unary call is a POST over HTTP/2 whose body is a length and a message, and whose status is in the
//! trailers (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use std::{error::Error, fs, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use percent_encoding::percent_decode_str;
use prost::Message;
use reqwest::{
    Body, Certificate, Client, Response,
    header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER},
    redirect,
};

use super::{
    protobuf::{ExportTraceServiceResponse, PartialSuccess},
    settings::{Endpoint, OtlpSettings, Protocol},
};

/// The most bytes of an answer that are read.
const MOST_ANSWER: usize = 64 << 10;
/// The most characters of what a collector says that are logged.
const MOST_SAID: usize = 200;
/// The longest wait that a collector may ask for.
const MOST_WAIT: Duration = Duration::from_mins(1);

/// Where spans are sent.
pub(super) struct Collector {
    client: Client,
    endpoint: Endpoint,
    headers: HeaderMap,
}

/// Why a batch was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotTaken {
    /// What happened, for people.
    pub(super) why: String,
    /// Whether the same batch may be taken later.
    pub(super) again: Again,
}

/// Whether the same batch may be taken later.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// It never will.
    Never,
    /// It may, after this time where the collector says one.
    After(Option<Duration>),
}

impl NotTaken {
    fn never(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: Again::Never }
    }

    fn later(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: Again::After(None) }
    }
}

impl Collector {
    /// Makes a client; nothing is sent yet.
    ///
    /// # Errors
    ///
    /// If the certificates cannot be read; the error is one line.
    pub(super) fn new(settings: &OtlpSettings) -> Result<Self, String> {
        let mut client = Client::builder()
            .user_agent(concat!("tito/", env!("CARGO_PKG_VERSION")))
            .referer(false)
            // Elsewhere, headers that are secret would be told to somebody else.
            .redirect(redirect::Policy::none());
        if settings.endpoint.protocol == Protocol::Grpc {
            client = client.http2_prior_knowledge().no_proxy();
        }
        if let Some(path) = &settings.certificate {
            let wrong = |error: &dyn Error| format!("the certificates of {} cannot be read: {error}", path.display());
            let pem = fs::read(path).map_err(|error| wrong(&error))?;
            for certificate in Certificate::from_pem_bundle(&pem).map_err(|error| wrong(&error))? {
                client = client.add_root_certificate(certificate);
            }
        }
        let client =
            client.build().map_err(|error| format!("no client for traces can be made: {}", innermost(&error)))?;
        Ok(Self { client, endpoint: settings.endpoint.clone(), headers: settings.headers.clone() })
    }

    /// Where it is, for people.
    pub(super) fn shown(&self) -> String {
        self.endpoint.shown()
    }

    /// What may help if nobody takes spans there.
    pub(super) fn hint(&self) -> Option<String> {
        self.endpoint.hint()
    }

    /// Sends a message within `time`. Returns what the collector did not take of it.
    pub(super) async fn send(&self, message: &Bytes, time: Duration) -> Result<Option<PartialSuccess>, NotTaken> {
        let sent = tokio::time::timeout(time, async {
            match self.endpoint.protocol {
                Protocol::HttpProtobuf => self.post(message).await,
                Protocol::Grpc => self.call(message, time).await,
            }
        });
        sent.await.unwrap_or_else(|_| Err(NotTaken::later("no answer in time")))
    }

    async fn post(&self, message: &Bytes) -> Result<Option<PartialSuccess>, NotTaken> {
        let response = self.request("application/x-protobuf", message.clone()).await?;
        let status = response.status().as_u16();
        match status {
            200..=299 => {
                let (answer, _) = read(response).await?;
                // Some collectors answer with nothing, or with JSON.
                Ok(ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success))
            }
            429 | 502 | 503 | 504 => {
                let why = format!("the collector answers {status}");
                Err(NotTaken { why, again: Again::After(retry_after(response.headers())) })
            }
            _ => Err(NotTaken::never(format!("the collector answers {status}"))),
        }
    }

    async fn call(&self, message: &Bytes, time: Duration) -> Result<Option<PartialSuccess>, NotTaken> {
        let mut body = BytesMut::with_capacity(message.len() + 5);
        // Not compressed.
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).map_err(|_| NotTaken::never("the batch is too large for gRPC"))?);
        body.put_slice(message);
        let milliseconds = time.as_millis().clamp(1, 99_999_999);
        let request = self.client.post(self.endpoint.url.clone()).headers(self.headers.clone());
        let request = request.header("te", "trailers").header("grpc-timeout", format!("{milliseconds}m"));
        let request = request.header(CONTENT_TYPE, "application/grpc").body(body.freeze());
        let response = request.send().await.map_err(|error| NotTaken::later(innermost(&error)))?;
        let status = response.status().as_u16();
        if status != 200 {
            let why = format!("the collector answers {status} to gRPC");
            return Err(if matches!(status, 429 | 502..=504) { NotTaken::later(why) } else { NotTaken::never(why) });
        }
        let headers = response.headers().clone();
        let (answer, trailers) = read(response).await?;
        of_grpc(&answer, &headers, trailers.as_ref())
    }

    async fn request(&self, media_type: &str, body: Bytes) -> Result<Response, NotTaken> {
        let request = self.client.post(self.endpoint.url.clone()).headers(self.headers.clone());
        let sent = request.header(CONTENT_TYPE, media_type).body(body).send().await;
        sent.map_err(|error| NotTaken::later(innermost(&error)))
    }
}

/// Reads an answer to its end, with its trailers.
async fn read(response: Response) -> Result<(Bytes, Option<HeaderMap>), NotTaken> {
    let body = Limited::new(Body::from(response), MOST_ANSWER).collect().await;
    let body = body.map_err(|error| NotTaken::later(format!("the answer cannot be read: {}", innermost(&*error))))?;
    let trailers = body.trailers().cloned();
    Ok((body.to_bytes(), trailers))
}

/// What a call answers: its status is in the trailers, or in the headers where there is no message.
fn of_grpc(
    answer: &[u8],
    headers: &HeaderMap,
    trailers: Option<&HeaderMap>,
) -> Result<Option<PartialSuccess>, NotTaken> {
    let told = |name: &str| trailers.and_then(|trailers| trailers.get(name)).or_else(|| headers.get(name));
    let Some(status) = told("grpc-status") else {
        return Err(NotTaken::never("the answer is not gRPC's"));
    };
    match status.to_str().ok().and_then(|status| status.parse::<u32>().ok()) {
        Some(0) => {
            let message = answer.get(5..).unwrap_or_default();
            Ok(ExportTraceServiceResponse::decode(message).ok().and_then(|answer| answer.partial_success))
        }
        code => {
            let said = told("grpc-message")
                .map(|said| percent_decode_str(said.to_str().unwrap_or_default()).decode_utf8_lossy());
            let code = code.map_or_else(|| "that is no number".to_owned(), |code| code.to_string());
            let why = format!("the collector answers with gRPC's status {code}: {}", quoted(&said.unwrap_or_default()));
            // Cancelled, too late, aborted, out of range, unavailable, lost, as OTLP's specification has it. What is exhausted
            // (8) is only worth a try if it says when.
            let again = matches!(code.as_str(), "1" | "4" | "10" | "11" | "14" | "15");
            Err(if again { NotTaken::later(why) } else { NotTaken::never(why) })
        }
    }
}

/// What a collector says, for a line of the log.
pub(super) fn quoted(said: &str) -> String {
    let short: String = said.chars().take(MOST_SAID).collect();
    format!("{short:?}")
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MOST_WAIT))
}

/// The innermost cause, which repeats no address.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn the_status_of_a_call_is_in_its_trailers_or_its_headers() {
        let none = map(&[]);
        assert_eq!(of_grpc(&[0; 5], &none, Some(&map(&[("grpc-status", "0")]))), Ok(None));
        assert_eq!(of_grpc(&[], &map(&[("grpc-status", "0")]), None), Ok(None));
        let partial = PartialSuccess { rejected_spans: 2, error_message: "no".into() };
        let answer = ExportTraceServiceResponse { partial_success: Some(partial.clone()) }.encode_to_vec();
        let framed = [&[0, 0, 0, 0, 6], &answer[..]].concat();
        assert_eq!(of_grpc(&framed, &none, Some(&map(&[("grpc-status", "0")]))), Ok(Some(partial)));
        for (status, again) in [("14", true), ("4", true), ("8", false), ("12", false), ("16", false), ("x", false)] {
            let trailers = [("grpc-status", status), ("grpc-message", "not%20now")];
            let trailers =
                trailers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            let not = of_grpc(&[], &none, Some(&trailers)).unwrap_err();
            assert_eq!(not.again == Again::After(None), again, "{status}");
            assert!(not.why.contains("\"not now\""), "{}", not.why);
        }
        assert_eq!(of_grpc(b"<html>", &none, None).unwrap_err().again, Again::Never);
    }

    #[test]
    fn what_a_collector_says_is_one_short_line() {
        assert_eq!(quoted("a\nb\u{1b}[31m"), "\"a\\nb\\u{1b}[31m\"");
        assert_eq!(quoted(&"x".repeat(100_000)).len(), MOST_SAID + 2);
        assert_eq!(retry_after(&map(&[("retry-after", "7")])), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(&map(&[("retry-after", "99999")])), Some(MOST_WAIT));
        assert_eq!(retry_after(&map(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")])), None);
    }
}
