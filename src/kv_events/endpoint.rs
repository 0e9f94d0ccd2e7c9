//! Addresses as `ZeroMQ` writes them: `tcp://*:5557`.

use std::{fmt, str::FromStr};

/// Where a socket listens, or whom it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// A name or an address, without brackets; `None` for all addresses.
    host: Option<String>,
    port: u16,
    /// Whether a publisher listens there: vLLM does at `*` and at addresses with `::`, and calls all others.
    pub(super) is_wildcard: bool,
}

impl Endpoint {
    /// What the system looks up.
    pub(super) fn address(&self) -> (&str, u16) {
        (self.host.as_deref().unwrap_or("0.0.0.0"), self.port)
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no endpoint of ZeroMQ over TCP, such as tcp://*:5557");
        if text.starts_with("ipc://") || text.starts_with("inproc://") {
            return Err(format!("{text} is not supported: events are published over TCP, such as at tcp://*:5557"));
        }
        let (host, port) = text.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || host.contains(['/', '@', '[', ']', ';']) {
            return Err(wrong());
        }
        let is_wildcard = host == "*" || host.contains("::");
        Ok(Self { host: (host != "*").then(|| host.to_owned()), port, is_wildcard })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            None => write!(f, "tcp://*:{}", self.port),
            Some(host) if host.contains(':') => write!(f, "tcp://[{host}]:{}", self.port),
            Some(host) => write!(f, "tcp://{host}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_vllm_reads_them() {
        for (text, address, is_wildcard) in [
            ("tcp://*:5557", ("0.0.0.0", 5557), true),
            ("tcp://[::]:1", ("::", 1), true),
            ("tcp://127.0.0.1:5557", ("127.0.0.1", 5557), false),
            ("tcp://picker.svc:80", ("picker.svc", 80), false),
        ] {
            let read: Endpoint = text.parse().unwrap();
            assert_eq!((read.address(), read.is_wildcard, read.to_string()), (address, is_wildcard, text.to_owned()));
        }
        for text in
            ["", "5557", "tcp://*", "tcp://:1", "tcp://*:x", "tcp://*:70000", "udp://*:1", "tcp://a/b:1", "ipc:///a"]
        {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
