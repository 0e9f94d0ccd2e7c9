//! Where a store is, and how it is opened. What a person reads of it has neither the name nor the password.

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// The address of a store. Shown without name and password.
#[derive(Clone)]
pub struct StoreAddress(ConnectionInfo);

impl StoreAddress {
    /// Reads `redis://[NAME][:PASSWORD@]HOST[:PORT][/DATABASE]`, or `unix://PATH`; `valkey` is another name of `redis`.
    ///
    /// # Errors
    ///
    /// If it is none, or asks for TLS. The text is not repeated, since it may have a password.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("redis" | "valkey" | "unix") => {}
            Some("rediss" | "valkeys") => {
                return Err(
                    "has a scheme with TLS, which is not served: use redis:// inside of a private network, or over a \
                            tunnel such as stunnel",
                );
            }
            _ => return Err("must be redis://HOST:PORT, valkey://HOST:PORT or unix://PATH"),
        }
        let info = url.into_connection_info().map_err(|_| "is no address of a Redis or Valkey server")?;
        match info.addr() {
            ConnectionAddr::Tcp(..) | ConnectionAddr::Unix(_) => Ok(Self(info)),
            _ => Err("must be redis://HOST:PORT, valkey://HOST:PORT or unix://PATH"),
        }
    }

    pub(super) fn info(&self) -> ConnectionInfo {
        self.0.clone()
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.addr() {
            ConnectionAddr::Tcp(host, port) => write!(formatter, "redis://{host}:{port}"),
            ConnectionAddr::Unix(path) => write!(formatter, "unix://{}", path.display()),
            _ => formatter.write_str("redis://"),
        }
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "StoreAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_shows_neither_name_nor_password() {
        for (url, shown) in [
            ("redis://user:secret@store:7000/3", "redis://store:7000"),
            ("valkey://:secret@127.0.0.1", "redis://127.0.0.1:6379"),
            ("unix:///run/redis.sock?pass=secret", "unix:///run/redis.sock"),
        ] {
            let address = StoreAddress::parse(url).unwrap();
            assert_eq!(address.to_string(), shown);
            assert!(!format!("{address:?}").contains("secret"));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for url in
            ["rediss://:secret@store", "valkeys://:secret@store", "http://secret", "secret", "redis://:secret@:x"]
        {
            let reason = StoreAddress::parse(url).unwrap_err();
            assert!(!reason.contains("secret"), "{reason}");
        }
        assert!(StoreAddress::parse("rediss://store").unwrap_err().contains("TLS"));
    }
}
