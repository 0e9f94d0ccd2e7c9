//! Where spans go: an address and the protocol that is spoken there.

use reqwest::Url;

/// The variable that names the protocol.
pub(super) const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
/// The method of gRPC that takes spans.
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// How a collector is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::otlp) enum Protocol {
    /// One unary call of gRPC for each batch.
    Grpc,
    /// One POST of protocol buffers.
    HttpProtobuf,
}

impl Protocol {
    /// Its name in the variable.
    pub(in crate::otlp) fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::HttpProtobuf => "http/protobuf",
        }
    }
}

/// Where batches are posted to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::otlp) struct Endpoint {
    pub(in crate::otlp) url: Url,
    pub(in crate::otlp) protocol: Protocol,
}

impl Endpoint {
    /// Reads the flag and the variable of the protocol; the error is one line, without what the address keeps secret.
    ///
    /// As in vLLM, the protocol is gRPC unless the variable says otherwise. gRPC has no paths: an address with one is taken for
    /// one of HTTP where the variable says nothing.
    pub(super) fn new(written: &str, protocol: Option<&str>) -> Result<Self, String> {
        let asked = match protocol {
            None => None,
            Some("grpc") => Some(Protocol::Grpc),
            Some("http/protobuf") => Some(Protocol::HttpProtobuf),
            Some(other) => {
                return Err(format!("{PROTOCOL}={other} is not supported; grpc and http/protobuf are, as in vLLM"));
            }
        };
        let address = match written.split_once("://") {
            // As gRPC's own clients write it, and as in vLLM's example.
            None => format!("http://{written}"),
            Some(("grpc", rest)) => format!("http://{rest}"),
            Some(_) => written.to_owned(),
        };
        let url = Url::parse(&address).map_err(|error| format!("this is not an address: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err("an address begins with http://, https:// or, for gRPC, grpc://".to_owned());
        }
        let has_path = url.path() != "/";
        let protocol = asked.unwrap_or(if has_path { Protocol::HttpProtobuf } else { Protocol::Grpc });
        match protocol {
            Protocol::Grpc if !names_port(&address) => Err(format!(
                "the address of gRPC needs a port, usually 4317; for HTTP, set {PROTOCOL}=http/protobuf, and write the path, \
                 usually /v1/traces"
            )),
            Protocol::Grpc => Self::of_grpc(url, has_path),
            Protocol::HttpProtobuf if !written.starts_with("http") => Err(
                "with http/protobuf, the address begins with http:// or https://, and has a path such as /v1/traces"
                    .to_owned(),
            ),
            Protocol::HttpProtobuf => Ok(Self { url, protocol }),
        }
    }

    fn of_grpc(mut url: Url, has_path: bool) -> Result<Self, String> {
        if has_path {
            return Err(format!(
                "{PROTOCOL} is grpc, which has no paths like {}; set it to http/protobuf, or leave out the path and name the port \
                 of gRPC, usually 4317",
                url.path()
            ));
        }
        url.set_path(EXPORT);
        url.set_query(None);
        Ok(Self { url, protocol: Protocol::Grpc })
    }

    /// The address without what may be secret in it, for people.
    pub(in crate::otlp) fn shown(&self) -> String {
        let path = if self.protocol == Protocol::Grpc { "" } else { self.url.path() };
        let origin = self.url.origin().ascii_serialization();
        format!("{origin}{path} ({})", self.protocol.name())
    }

    /// What may help if nobody takes spans there.
    pub(in crate::otlp) fn hint(&self) -> Option<String> {
        let port = self.url.port();
        match self.protocol {
            Protocol::Grpc if port == Some(4318) => Some(format!(
                "port 4318 is usually OTLP over HTTP: set {PROTOCOL}=http/protobuf, and write the path, usually /v1/traces"
            )),
            Protocol::HttpProtobuf if port == Some(4317) => {
                Some(format!("port 4317 is usually OTLP over gRPC: set {PROTOCOL}=grpc, and leave out the path"))
            }
            Protocol::HttpProtobuf if self.url.path() == "/" => {
                Some("the path is taken as it is written, and is usually /v1/traces".to_owned())
            }
            _ => None,
        }
    }
}

/// Whether an address names a port, also if it is the usual one of its scheme.
fn names_port(address: &str) -> bool {
    let authority = address.split("://").nth(1).unwrap_or_default().split(['/', '?', '#']).next().unwrap_or_default();
    // An IPv6 address has colons of its own.
    authority.rsplit(['@', ']']).next().is_some_and(|end| end.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(written: &str, protocol: Option<&str>) -> (String, &'static str) {
        let endpoint = Endpoint::new(written, protocol).unwrap_or_else(|error| panic!("{written}: {error}"));
        (endpoint.url.to_string(), endpoint.protocol.name())
    }

    #[test]
    fn the_protocol_is_vllms_unless_an_address_can_only_be_the_other() {
        let grpc = |origin: &str| (format!("{origin}{EXPORT}"), "grpc");
        for written in ["localhost:4317", "http://localhost:4317", "grpc://localhost:4317", "http://localhost:4317/"] {
            assert_eq!(read(written, None), grpc("http://localhost:4317"), "{written}");
            assert_eq!(read(written, Some("grpc")), grpc("http://localhost:4317"), "{written}");
        }
        assert_eq!(read("https://a.example:443", None).1, "grpc");
        assert_eq!(read("http://u:p@[::1]:4317", None), grpc("http://u:p@[::1]:4317"));
        assert_eq!(read("https://a.example:4317", None), grpc("https://a.example:4317"));
        // Also at the port that is usually HTTP's: vLLM speaks gRPC there.
        assert_eq!(read("http://a:4318", None), grpc("http://a:4318"));
        let http = |url: &str| (url.to_owned(), "http/protobuf");
        assert_eq!(read("http://a:4318/v1/traces", None), http("http://a:4318/v1/traces"));
        assert_eq!(read("http://a:4318/v1/traces?key=1", Some("http/protobuf")), http("http://a:4318/v1/traces?key=1"));
        assert_eq!(read("https://a.example", Some("http/protobuf")), http("https://a.example/"));
    }

    #[test]
    fn what_nobody_could_send_to_is_refused_with_what_helps() {
        for (written, protocol, word) in [
            ("http://a:4318/v1/traces", Some("grpc"), "http/protobuf"),
            ("http://a", None, "needs a port"),
            ("http://u:p@[::1]", None, "needs a port"),
            ("https://a.example:443", Some("http/json"), "http/json is not supported"),
            ("localhost:4318/v1/traces", None, "begins with http://"),
            ("grpc://localhost:4317", Some("http/protobuf"), "begins with http://"),
            ("unix:///run/otel", None, "begins with"),
            ("ftp://a:4317", None, "begins with"),
            ("http://:4317", None, "not an address"),
            ("http://a:99999", None, "not an address"),
        ] {
            let refused = Endpoint::new(written, protocol).unwrap_err();
            assert!(refused.contains(word), "{written}: {refused}");
        }
    }

    #[test]
    fn what_is_shown_keeps_secrets() {
        let shown = |written| Endpoint::new(written, None).unwrap().shown();
        assert_eq!(shown("http://user:pass@a:4318/v1/traces?key=1"), "http://a:4318/v1/traces (http/protobuf)");
        assert_eq!(shown("http://user:pass@a:4317"), "http://a:4317 (grpc)");
    }

    #[test]
    fn ports_and_paths_that_are_likely_mistakes_are_told_of() {
        let hint = |written, protocol| Endpoint::new(written, protocol).unwrap().hint();
        assert!(hint("http://a:4318", None).unwrap().contains("http/protobuf"));
        assert!(hint("http://a:4317/v1/traces", None).unwrap().contains("PROTOCOL=grpc"));
        assert!(hint("http://a:4318", Some("http/protobuf")).unwrap().contains("/v1/traces"));
        assert_eq!((hint("http://a:4317", None), hint("http://a:4318/v1/traces", None)), (None, None));
    }
}
