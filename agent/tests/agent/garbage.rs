//! Tests of bytes that are not requests. They are answered with an error, the connection is closed, and no other client
//! notices.

use crate::fixture::{Running, nowhere, packed};

#[test]
fn garbage_is_answered_and_closed() {
    let agent = Running::start(&nowhere(), |config| config);
    let mut bystander = agent.raw();
    let nested = b"*1\r\n".repeat(10_000);
    let many = [b"*2000\r\n".to_vec(), b"$0\r\n\r\n".repeat(2_000)].concat();
    let cases: [(&[u8], &str); 12] = [
        (b"PING\r\n", "a request is a list of strings"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "a request is a list of strings"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "a request is a list of strings"),
        (b"*1000000000\r\n", "invalid multibulk length"),
        (b"*-9223372036854775809\r\n", "invalid multibulk length"),
        (b"*1\r\n$536870912\r\n", "a request has up to 262144 bytes"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$+\r\n", "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGxx", "invalid bulk length"),
        (b"*1\r\n%1\r\n", "expected '$', got '%'"),
        (&nested, "expected '$', got '*'"),
        (&many, "invalid multibulk length"),
    ];
    for (n, (bytes, why)) in cases.iter().enumerate() {
        let mut me = agent.raw();
        me.send(bytes);
        let said = me.rest();
        assert!(
            said.starts_with("-ERR Protocol error: ") && said.contains(why) && said.ends_with("\r\n"),
            "{why}: {said}"
        );
        assert_eq!(said.lines().count(), 1);
        assert_eq!(bystander.say("PING"), "+PONG\r\n");
        assert_eq!(agent.info("closed_for_garbage"), n as u64 + 1);
    }
}

/// Valid requests come before invalid bytes. They are answered first.
#[test]
fn garbage_comes_after_answers() {
    let agent = Running::start(&nowhere(), |config| config);
    let mut me = agent.raw();
    me.send(&[packed("PING"), packed("ECHO a"), b"garbage".to_vec(), packed("PING")].concat());
    let said = me.rest();
    assert!(said.starts_with("+PONG\r\n$1\r\na\r\n-ERR Protocol error") && said.lines().count() == 4, "{said}");
}

#[test]
fn commands_come_in_any_pieces() {
    let agent = Running::start(&nowhere(), |config| config);
    let mut me = agent.raw();
    for byte in packed("ECHO hello").chunks(1) {
        me.send(byte);
        std::thread::yield_now();
    }
    assert_eq!(me.hear(), "$5\r\nhello\r\n");
    // Names and keys may have any bytes.
    me.send(b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\0\xFF\r\n");
    me.send(&packed("PING"));
    assert!(me.hear().starts_with("$4\r\n\r\n\0"));
    assert_eq!(me.hear(), "+PONG\r\n");
}

/// A connection sends random bytes. It is answered or closed, and the agent goes on serving others.
#[test]
fn any_bytes_leave_the_agent_running() {
    use rand::RngExt;
    let agent = Running::start(&nowhere(), |config| config);
    let mut random = rand::rng();
    let words: [&[u8]; 14] = [
        b"*1\r\n",
        b"*3\r\n",
        b"$4\r\n",
        b"$0\r\n",
        b"\r\n",
        b"PING",
        b"HELLO",
        b"LOCK.ACQUIRE",
        b"COMMAND",
        b"*-1\r\n",
        b"\xFF",
        b":5\r\n",
        b"INFO",
        b"$1\r\n3\r\n",
    ];
    for _ in 0..200 {
        let bytes: Vec<u8> =
            (0..random.random_range(1..40)).flat_map(|_| words[random.random_range(0..words.len())].to_vec()).collect();
        let mut me = agent.raw();
        me.send(&bytes);
    }
    assert_eq!(agent.raw().say("PING"), "+PONG\r\n");
    assert_eq!(agent.info("panics"), 0);
}
