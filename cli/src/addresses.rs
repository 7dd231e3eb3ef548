//! The list of nodes as people write it: addresses separated by commas, some of which contain commas.
//!
//! `redis+cluster://a:7000,b:7000` and `redis+sentinel://a,b,c/locks` name several servers. So a piece without `://`
//! after such an address belongs to the same address; with Sentinels, up to the name of the master (`/locks`). A single
//! server after a cluster is written with its scheme: `redis+cluster://a,b,redis://c`.

use palisade_client::url_of;

/// Returns the addresses in `list`, without surrounding blanks.
pub fn split(list: &str) -> Vec<String> {
    let mut addresses: Vec<String> = vec![];
    for piece in list.split(',').map(str::trim) {
        match addresses.last_mut() {
            Some(open) if may_continue(open) && !piece.contains("://") => {
                open.push(',');
                open.push_str(piece);
            }
            _ if piece.is_empty() => {}
            _ => addresses.push(piece.to_owned()),
        }
    }
    // A trailing comma, as in a list of servers, is ignored.
    addresses.iter().map(|address| address.trim_end_matches(',').to_owned()).collect()
}

/// Returns the list that [`split`] splits into these addresses.
pub fn join(addresses: &[String]) -> String {
    addresses.iter().map(|address| url_of(address)).collect::<Vec<_>>().join(",")
}

/// Returns `address` as a URL. A host, with or without a port, gets the scheme, user, password and database of `first`.
/// An address with a scheme is returned unchanged.
pub fn like(first: &str, address: &str) -> String {
    let url = url_of(address);
    let Some(place) = url.strip_prefix("redis://").filter(|_| url != address) else { return url };
    let first = url_of(first);
    match first.split_once("://") {
        Some((scheme @ ("redis" | "rediss"), rest)) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (host, more) = rest.split_at(end);
            let access = host.rsplit_once('@').map_or(String::new(), |(access, _)| format!("{access}@"));
            format!("{scheme}://{access}{place}{more}")
        }
        _ => url,
    }
}

/// Returns true if the next piece of the list may belong to this address.
fn may_continue(address: &str) -> bool {
    match address.split_once("://") {
        Some(("redis+cluster" | "rediss+cluster", _)) => true,
        Some(("redis+sentinel" | "rediss+sentinel", rest)) => !rest.contains('/'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_an_address_of_several_servers() {
        let cases: [(&str, &[&str]); 10] = [
            ("a, b:1,redis://c", &["a", "b:1", "redis://c"]),
            (" ,a,,b,", &["a", "b"]),
            ("redis+cluster://a:7000, b:7000", &["redis+cluster://a:7000,b:7000"]),
            ("redis+cluster://a,b,", &["redis+cluster://a,b"]),
            ("redis+cluster://a,,b", &["redis+cluster://a,,b"]),
            ("rediss+cluster://u:p@a,b,redis://c,d", &["rediss+cluster://u:p@a,b", "redis://c", "d"]),
            ("c,redis+cluster://a,b", &["c", "redis+cluster://a,b"]),
            ("redis+cluster://a,redis+cluster://b,c", &["redis+cluster://a", "redis+cluster://b,c"]),
            ("redis+sentinel://a,b,c/locks,d,e", &["redis+sentinel://a,b,c/locks", "d", "e"]),
            ("redis+sentinel://a/x,rediss+sentinel://b,c/y/2", &["redis+sentinel://a/x", "rediss+sentinel://b,c/y/2"]),
        ];
        for (list, expected) in cases {
            assert_eq!(split(list), expected, "{list}");
        }
    }

    #[test]
    fn a_host_alone_is_reached_as_another_one() {
        for (first, address, expected) in [
            ("a", "b:1", "redis://b:1"),
            ("rediss://u:p%40@a:6379/2#insecure", "b", "rediss://u:p%40@b/2#insecure"),
            ("redis://:p@[::1]:1", "[::2]:1", "redis://:p@[::2]:1"),
            ("rediss://a", "redis://b", "redis://b"),
            ("rediss://a", "unix:///b", "unix:///b"),
            ("unix:///a?user=u", "b", "redis://b"),
        ] {
            assert_eq!(like(first, address), expected);
        }
    }

    #[test]
    fn a_list_that_was_split_can_be_joined() {
        let addresses = ["redis+cluster://a,b", "c", "unix:///d", "redis+sentinel://e,f/locks", "[::1]:7"];
        let addresses = addresses.map(str::to_owned).to_vec();
        let urls: Vec<_> = addresses.iter().map(|address| url_of(address)).collect();
        assert_eq!(split(&join(&addresses)), urls);
    }
}
