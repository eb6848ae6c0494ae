//! Decides which IP addresses belong to the public internet.
//!
//! An IPv4 address is public unless its block is listed; an IPv6 address only if it is in the global unicast
//! block and not listed. The lists follow the IANA special-purpose registries, except that small blocks
//! marked as globally reachable (192.0.0.9, 2001:1::1) are refused too, because no web page is served from
//! them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses to which a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressScope<'web> {
    /// Public addresses, and loopback on these ports, which only tests set.
    Public { loopback_ports: &'web [u16] },
    /// Any address, because the user configured the endpoint.
    Configured,
}

impl AddressScope<'_> {
    /// Returns the kind of a refused address; `None` if it is allowed.
    pub(crate) fn refusal_reason(self, address: SocketAddr) -> Option<&'static str> {
        match self {
            Self::Configured => None,
            Self::Public { loopback_ports } => {
                let ip = address.ip();
                let exempt = ip.is_loopback() && loopback_ports.contains(&address.port());
                if exempt { None } else { not_public(ip) }
            }
        }
    }
}

/// Returns the kind of a non-public address; `None` if it is public.
pub(crate) fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

type AddressBlock<A> = (A, u32, &'static str);

const V4: [AddressBlock<Ipv4Addr>; 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this-network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    // Azure's host service. The block around this address is public, the address itself is not.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "cloud host"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol assignment"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(255, 255, 255, 255), 32, "broadcast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// Blocks with names for the message; the first matching block is named.
const V6: [AddressBlock<Ipv6Addr>; 14] = [
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::UNSPECIFIED, 96, "IPv4-compatible"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "local NAT64"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discard"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "Teredo"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "protocol assignment"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "unique local"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "site-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// The only block from which public addresses are assigned.
const GLOBAL_UNICAST: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// The NAT64 prefix for IPv6-only networks: the last 32 bits are the IPv4 address.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    let inside = |(block, bits, _): &&AddressBlock<Ipv4Addr>| {
        (u32::from(address) ^ u32::from(*block)).leading_zeros() >= *bits
    };
    V4.iter().find(inside).map(|(_, _, kind)| *kind)
}

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let inside = |block: Ipv6Addr, bits: u32| {
        (u128::from(address) ^ u128::from(block)).leading_zeros() >= bits
    };
    if let Some(mapped) = address.to_ipv4_mapped() {
        return not_public_v4(mapped);
    }
    if inside(NAT64.0, NAT64.1) {
        let [.., a, b, c, d] = address.octets();
        return not_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    let listed = V6.iter().find(|(block, bits, _)| inside(*block, *bits));
    match listed {
        Some((_, _, kind)) => Some(*kind),
        None if inside(GLOBAL_UNICAST.0, GLOBAL_UNICAST.1) => None,
        None => Some("reserved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each address with the expected kind.
    #[test]
    fn only_addresses_of_the_public_internet_pass() {
        let addresses = "
            0.0.0.0 0.1.2.3 1.1.1.1 8.8.8.8 9.255.255.255 10.0.0.0 10.255.255.255 11.0.0.0
            100.63.255.255 100.64.0.0 100.100.100.200 100.127.255.255 100.128.0.0
            127.0.0.1 127.255.255.254 128.0.0.1 168.63.129.15 168.63.129.16
            169.253.255.255 169.254.0.0 169.254.169.254 169.255.0.0
            172.15.255.255 172.16.0.0 172.31.255.255 172.32.0.0
            192.0.0.8 192.0.0.192 192.0.1.0 192.0.2.7 192.88.99.1 192.167.255.255 192.168.0.1 192.169.0.0
            198.17.255.255 198.18.0.0 198.19.255.255 198.20.0.0 198.51.100.1 203.0.113.9 203.0.114.0
            223.255.255.255 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.254 255.255.255.255
            :: ::1 ::2 ::7f00:1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.1.2.3 ::ffff:8.8.8.8
            64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b::8.8.8.8 64:ff9b:1::8.8.8.8
            100::1 2001::1 2001:0:7f00:1:: 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 2001:200::1
            2001:db8::1 2001:4860:4860::8888 2002:a00:1:: 2002:808:808::1 2606:4700:4700::1111
            3ffe::1 3fff::1 3fff:fff:ffff::1 3fff:1000::1 4000::1 5f00::1
            fc00::1 fd00:ec2::254 fe80::1 febf::1 fec0::1 ff02::1 ff0e::1
        ";
        let said: Vec<_> = addresses
            .split_whitespace()
            .map(|text| {
                let kind = not_public(text.parse().unwrap());
                format!("{text} {}", kind.unwrap_or("PUBLIC"))
            })
            .collect();
        insta::assert_snapshot!(said.join("\n"), @"
        0.0.0.0 this-network
        0.1.2.3 this-network
        1.1.1.1 PUBLIC
        8.8.8.8 PUBLIC
        9.255.255.255 PUBLIC
        10.0.0.0 private
        10.255.255.255 private
        11.0.0.0 PUBLIC
        100.63.255.255 PUBLIC
        100.64.0.0 carrier-grade NAT
        100.100.100.200 carrier-grade NAT
        100.127.255.255 carrier-grade NAT
        100.128.0.0 PUBLIC
        127.0.0.1 loopback
        127.255.255.254 loopback
        128.0.0.1 PUBLIC
        168.63.129.15 PUBLIC
        168.63.129.16 cloud host
        169.253.255.255 PUBLIC
        169.254.0.0 link-local
        169.254.169.254 link-local
        169.255.0.0 PUBLIC
        172.15.255.255 PUBLIC
        172.16.0.0 private
        172.31.255.255 private
        172.32.0.0 PUBLIC
        192.0.0.8 protocol assignment
        192.0.0.192 protocol assignment
        192.0.1.0 PUBLIC
        192.0.2.7 documentation
        192.88.99.1 6to4 relay
        192.167.255.255 PUBLIC
        192.168.0.1 private
        192.169.0.0 PUBLIC
        198.17.255.255 PUBLIC
        198.18.0.0 benchmarking
        198.19.255.255 benchmarking
        198.20.0.0 PUBLIC
        198.51.100.1 documentation
        203.0.113.9 documentation
        203.0.114.0 PUBLIC
        223.255.255.255 PUBLIC
        224.0.0.1 multicast
        239.255.255.255 multicast
        240.0.0.1 reserved
        255.255.255.254 reserved
        255.255.255.255 broadcast
        :: unspecified
        ::1 loopback
        ::2 IPv4-compatible
        ::7f00:1 IPv4-compatible
        ::8.8.8.8 IPv4-compatible
        ::ffff:127.0.0.1 loopback
        ::ffff:10.1.2.3 private
        ::ffff:8.8.8.8 PUBLIC
        64:ff9b::10.0.0.1 private
        64:ff9b::169.254.169.254 link-local
        64:ff9b::8.8.8.8 PUBLIC
        64:ff9b:1::8.8.8.8 local NAT64
        100::1 discard
        2001::1 Teredo
        2001:0:7f00:1:: Teredo
        2001:2::1 protocol assignment
        2001:10::1 protocol assignment
        2001:20::1 protocol assignment
        2001:1ff:ffff::1 protocol assignment
        2001:200::1 PUBLIC
        2001:db8::1 documentation
        2001:4860:4860::8888 PUBLIC
        2002:a00:1:: 6to4
        2002:808:808::1 6to4
        2606:4700:4700::1111 PUBLIC
        3ffe::1 PUBLIC
        3fff::1 documentation
        3fff:fff:ffff::1 documentation
        3fff:1000::1 PUBLIC
        4000::1 reserved
        5f00::1 reserved
        fc00::1 unique local
        fd00:ec2::254 unique local
        fe80::1 link-local
        febf::1 link-local
        fec0::1 site-local
        ff02::1 multicast
        ff0e::1 multicast
        ");
    }

    #[test]
    fn an_exemption_is_for_loopback_on_its_port_only() {
        let reach = AddressScope::Public { loopback_ports: &[4711] };
        let refused = |text: &str| reach.refusal_reason(text.parse().unwrap());
        assert_eq!(refused("127.0.0.1:4711"), None);
        assert_eq!(refused("127.0.0.1:4712"), Some("loopback"));
        assert_eq!(refused("10.0.0.1:4711"), Some("private"));
        assert_eq!(refused("[::ffff:127.0.0.1]:4711"), Some("loopback"));
    }
}
