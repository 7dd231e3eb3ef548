//! Addresses of nodes, as people write them.

/// The URL of a node's address: `host` and `host:port` stand for `redis://host:port`; an IPv6 address with a port, or alone, is in
/// brackets. What is a URL already, and what is none of these, is left as it is.
///
/// ```
/// use palisade_client::url_of;
///
/// assert_eq!(url_of("10.0.0.1"), "redis://10.0.0.1");
/// assert_eq!(url_of("[::1]:6380"), "redis://[::1]:6380");
/// assert_eq!(url_of("rediss://10.0.0.1"), "rediss://10.0.0.1");
/// ```
pub fn url_of(address: &str) -> String {
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !address.ends_with(']') => (host, Some(port)),
        _ => (address, None),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
    };
    let is_ip6 = |host: &str| {
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok())
    };
    if is_port && (is_name(host) || is_ip6(host)) { format!("redis://{address}") } else { address.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port_is_an_address() {
        for address in ["h", "10.0.0.1", "redis:6379", "db_1.example-2.com:7000", "[::1]", "[fe80::1]:6379"] {
            assert_eq!(url_of(address), format!("redis://{address}"));
        }
        // A password, a path, an IPv6 address that ends like a port, no port: all left to be refused, or taken, as they are.
        for address in [
            "",
            ":",
            ":6379",
            "h:",
            "h:0",
            "h:65536",
            "h:port",
            "::1",
            "::1:6379",
            "[h]",
            "[::1]x",
            "u:p@h:6379",
            "h/1",
            "/a/b",
            "a b",
            "unix:/a/b",
            "redis://h",
            "rediss://h:1",
            "unix:///a",
        ] {
            assert_eq!(url_of(address), address);
        }
    }
}
