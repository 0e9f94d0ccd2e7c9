//! The addresses of names: only public ones are connected to, so that no name leads into the server's own network.
//!
//! What is checked is what is connected to. A name that has another address at the next question gains nothing by it.

use std::{
    error::Error,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;

/// A name has addresses, and none of them is public.
#[derive(Debug, thiserror::Error)]
#[error("the name has no public address")]
pub(super) struct NotPublic;

/// Resolves names as the system does, and leaves out what is not public.
pub(super) struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<_> = found.iter().copied().filter(|address| is_public(address.ip())).collect();
            if public.is_empty() && !found.is_empty() {
                return Err(Box::new(NotPublic) as Box<dyn Error + Send + Sync>);
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// All but what IANA's registry of special addresses calls not globally reachable.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        // Shared by the customers of a provider; some clouds have their services there.
        [100, second, ..] => second & 0xc0 == 64,
        [172, second, ..] => second & 0xf0 == 16,
        // This network, loopback, private, multicast and what is reserved beyond; link-local; benchmarks and documentation.
        octets => matches!(
            octets,
            [0 | 10 | 127 | 224.., ..]
                | [169, 254, ..]
                | [192, 168, ..]
                | [192, 0, 0 | 2, _]
                | [198, 18 | 19, ..]
                | [198, 51, 100, _]
                | [203, 0, 113, _]
        ),
    };
    !special
}

/// Unicast addresses of the global range, of those that hold an IPv4 address only where that one is public.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let v4 = |high: u16, low: u16| is_public_v4(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    match address.segments() {
        // As IPv6 writes IPv4, as it is translated, and 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            v4(high, low)
        }
        // Teredo and other protocols, documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_within_a_network_are_not_public() {
        let within = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.9.9.9 169.254.169.254 \
             172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 \
             203.0.113.9 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 \
             :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:8.8.8.8 64:ff9b::10.0.0.1 \
             64:ff9b:1::8.8.8.8 100::1 2001::1 2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe::1 3fff::1 fc00::1 fd00:ec2::254 \
             fe80::1 febf::1 fec0::1 ff02::1 ff0e::1";
        for address in within.split_whitespace() {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        let public = "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 126.0.0.1 128.0.0.1 169.253.1.1 \
             172.15.255.255 172.32.0.1 192.0.1.1 192.167.1.1 193.0.0.1 198.17.1.1 198.20.1.1 203.0.114.1 223.255.255.255 \
             ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1 2001:4860:4860::8888 2606:4700::1111 2a00::1 3ffe::1";
        for address in public.split_whitespace() {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
