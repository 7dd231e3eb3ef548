//! Addresses of nodes, as people write them: of a server, of a cluster, or of a master behind Sentinels.

/// Returns the URL of a node's address. `host` and `host:port` stand for `redis://host:port`; an IPv6 address, with or
/// without a port, is in brackets. URLs, and anything else, are returned unchanged.
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

/// The address of a node: of a server, a cluster, or a master behind Sentinels. A server's address is a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// One server.
    Server(String),
    /// A cluster, by some of its servers.
    Cluster(Vec<String>),
    /// The server that Sentinels name as the master.
    Sentinel(Watched),
}

/// A master's name, its Sentinels, and the URL by which it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The Sentinels' name of the master.
    pub name: String,
    /// The URLs of the Sentinels.
    pub sentinels: Vec<String>,
    /// The URL of the master, with a placeholder for host and port.
    pub like: String,
}

/// Default port of Sentinels.
const SENTINEL_PORT: u16 = 26_379;

/// A host for a URL whose host is replaced later.
const ANY_HOST: &str = "localhost";

/// The error for an address without servers.
const NO_HOSTS: &str = "name the servers: host:port,host:port";

impl Address {
    /// Returns whether this is the address of one server.
    pub fn is_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// Returns the address of a cluster, by some of its servers.
    pub fn of_cluster(seeds: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, String> {
        let seeds: Vec<_> = seeds.into_iter().map(|seed| url_of(seed.as_ref())).collect();
        if seeds.is_empty() { Err(NO_HOSTS.to_owned()) } else { Ok(Self::Cluster(seeds)) }
    }

    /// Returns the address of the master that these Sentinels call `name`. It uses TLS if the first Sentinel does.
    pub fn of_master(name: &str, sentinels: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, String> {
        let url = |address: &str| match url_of(address) {
            url if url != address && (address.ends_with(']') || !address.contains(':')) => {
                format!("{url}:{SENTINEL_PORT}")
            }
            url => url,
        };
        let sentinels: Vec<_> = sentinels.into_iter().map(|address| url(address.as_ref())).collect();
        let Some(first) = sentinels.first() else { return Err("name the Sentinels: host:port,host:port".to_owned()) };
        if name.is_empty() {
            return Err("the name that the Sentinels have for the master is empty".to_owned());
        }
        let scheme = if first.starts_with("rediss:") { "rediss" } else { "redis" };
        let like = format!("{scheme}://{ANY_HOST}");
        Ok(Self::Sentinel(Watched { name: name.to_owned(), sentinels, like }))
    }

    /// Parses `redis+cluster://user:password@host:port,host:port`,
    /// `redis+sentinel://user:password@host:port,host:port/name/database` and both with `rediss`; anything else is the
    /// address of one server.
    ///
    /// # Errors
    /// The fault of the address, without passwords.
    pub fn parse(address: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = address.split_once("://") else { return Ok(Self::Server(url_of(address))) };
        let (scheme, kind) = match scheme.split_once('+') {
            Some((scheme @ ("redis" | "rediss"), kind @ ("cluster" | "sentinel"))) => (scheme, kind),
            _ => return Ok(Self::Server(address.to_owned())),
        };
        let (rest, fragment) = match rest.split_once('#') {
            Some((rest, fragment)) => (rest, format!("/#{fragment}")),
            None => (rest, String::new()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (access, rest) = match rest.rsplit_once('@') {
            Some((access, rest)) => (format!("{access}@"), rest),
            None => (String::new(), rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        if kind == "cluster" {
            if !path.is_empty() || !query.is_empty() {
                return Err("the address of a cluster ends with its servers: there is one database".to_owned());
            }
            let servers = hosts.split(',').map(|host| Ok(format!("{scheme}://{access}{}{fragment}", checked(host)?)));
            return servers.collect::<Result<_, String>>().map(Self::Cluster);
        }
        let (name, database) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return Err("the name of the master is missing: redis+sentinel://host:port,host:port/name".to_owned());
        }
        let (mut user, mut password, mut sentinel_scheme) = ("", "", scheme);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sentinelUsername", value)) => user = value,
                Some(("sentinelPassword", value)) => password = value,
                Some(("sentinelTls", "yes")) => sentinel_scheme = "rediss",
                Some(("sentinelTls", "no")) => sentinel_scheme = "redis",
                _ => {
                    return Err(
                        "after ? can be sentinelUsername, sentinelPassword and sentinelTls=yes or no".to_owned()
                    );
                }
            }
        }
        let own_access = if password.is_empty() { String::new() } else { format!("{user}:{password}@") };
        let with_port = |host: &str| {
            let host = checked(host)?;
            let has_port = host.rsplit_once(':').is_some_and(|_| !host.ends_with(']'));
            let port = if has_port { String::new() } else { format!(":{SENTINEL_PORT}") };
            Ok(format!("{sentinel_scheme}://{own_access}{host}{port}{fragment}"))
        };
        let sentinels = hosts.split(',').map(with_port).collect::<Result<_, String>>()?;
        let fragment =
            if database.is_empty() { fragment } else { format!("/{database}{}", fragment.trim_start_matches('/')) };
        let like = format!("{scheme}://{access}{ANY_HOST}{fragment}");
        Ok(Self::Sentinel(Watched { name: name.to_owned(), sentinels, like }))
    }
}

/// Returns the host, which may have a port, if it is valid.
fn checked(host: &str) -> Result<&str, String> {
    let host = host.trim();
    if url_of(host) == host { Err(NO_HOSTS.to_owned()) } else { Ok(host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(address: &str) -> Address {
        Address::parse(address).unwrap()
    }

    #[test]
    fn a_cluster_is_named_by_some_of_its_servers() {
        let cluster = |servers: &[&str]| Address::Cluster(servers.iter().map(|&server| server.to_owned()).collect());
        assert_eq!(parsed("redis+cluster://a:7000,b"), cluster(&["redis://a:7000", "redis://b"]));
        assert_eq!(
            parsed("rediss+cluster://app:p%40ss@[::1]:7000,b#insecure"),
            cluster(&["rediss://app:p%40ss@[::1]:7000/#insecure", "rediss://app:p%40ss@b/#insecure"])
        );
        for address in ["redis+cluster://", "redis+cluster://a,,b", "redis+cluster://a/2", "redis+cluster://a:x"] {
            let why = Address::parse(address).unwrap_err();
            assert!(why.contains("servers"), "{why}");
        }
    }

    #[test]
    fn a_master_is_named_with_its_sentinels() {
        let Address::Sentinel(watched) = parsed("redis+sentinel://s1,s2:26380/locks") else { panic!() };
        assert_eq!((&*watched.name, &*watched.like), ("locks", "redis://localhost"));
        assert_eq!(watched.sentinels, ["redis://s1:26379", "redis://s2:26380"]);
        let full = "rediss+sentinel://app:secret@s1,[::1]/locks/2?sentinelUsername=watch&sentinelPassword=other&sentinelTls=no#insecure";
        let Address::Sentinel(watched) = parsed(full) else { panic!() };
        assert_eq!((&*watched.name, &*watched.like), ("locks", "rediss://app:secret@localhost/2#insecure"));
        assert_eq!(watched.sentinels[1], "redis://watch:other@[::1]:26379/#insecure");
        for address in ["redis+sentinel://s1", "redis+sentinel:///locks", "redis+sentinel://s1/locks?x=secret"] {
            let why = Address::parse(address).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn sentinels_in_a_list_have_their_port() {
        let Address::Sentinel(watched) = Address::of_master("locks", ["a", "b:1", "rediss://u:p@c:2"]).unwrap() else {
            panic!()
        };
        assert_eq!(watched.sentinels, ["redis://a:26379", "redis://b:1", "rediss://u:p@c:2"]);
        assert!(Address::of_master("", ["a"]).is_err() && Address::of_master("locks", [""; 0]).is_err());
        assert!(Address::of_cluster([""; 0]).is_err());
    }

    #[test]
    fn anything_else_is_one_server() {
        for (address, url) in [("h:1", "redis://h:1"), ("unix:///a", "unix:///a"), ("redis+x://h", "redis+x://h")] {
            assert_eq!(parsed(address), Address::Server(url.to_owned()));
        }
    }

    #[test]
    fn a_host_and_a_port_is_an_address() {
        for address in ["h", "10.0.0.1", "redis:6379", "db_1.example-2.com:7000", "[::1]", "[fe80::1]:6379"] {
            assert_eq!(url_of(address), format!("redis://{address}"));
        }
        // A password, a path, an IPv6 address that ends like a port, no port: each is left unchanged, and refused or
        // accepted as it is.
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
