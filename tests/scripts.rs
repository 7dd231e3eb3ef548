//! Locks in MULTI, in Lua, and in pipelines.

use crate::harness::{Server, Setup, error, int, null, text};

#[test]
fn in_a_transaction() {
    let server = Server::start();
    let mut client = server.client();
    client.say("MULTI");
    for line in [
        "LOCK.ACQUIRE k me 10000",
        "LOCK.ACQUIRE k you 10000",
        "LOCK.REENTER k me",
        "LOCK.ACQUIRE k me 0",
        "LOCK.RELEASE k me LEVEL 1",
        "LOCK.ACQUIRE k you 10000",
    ] {
        assert_eq!(client.say(line), text("QUEUED"));
    }
    let replies = client.say("EXEC").as_list();
    assert!(replies[0].as_int() > 0);
    assert_eq!(replies[1..3], [null(), int(2)]);
    assert!(error(replies[3].clone()).starts_with("ERR ttl"));
    assert_eq!(replies[4], int(0));
    assert!(replies[5].as_int() > replies[0].as_int());
}

#[test]
fn in_a_script() {
    let server = Server::start();
    let mut client = server.client();
    let mut eval = |script: &str| client.send(&[b"EVAL", script.as_bytes(), b"1", b"k"]);
    let token = eval("return redis.call('LOCK.ACQUIRE', KEYS[1], 'me', 10000)").as_int();
    assert_eq!(eval("return redis.call('LOCK.ACQUIRE', KEYS[1], 'you', 10000)"), null());
    // Numbers in Lua are doubles, which must represent a token exactly.
    let doubled = eval("local t = redis.call('LOCK.EXTEND', KEYS[1], 'me', 10000) return string.format('%.0f', t)");
    assert_eq!(doubled.as_text(), token.to_string());
    // The check of the token is a condition of the protected write.
    let write = "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', 'data', ARGV[1]) end \
                 return redis.error_reply('FENCED by a newer grant')";
    let mut write = |token: i64| client.send(&[b"EVAL", write.as_bytes(), b"1", b"k", token.to_string().as_bytes()]);
    assert_eq!(write(token), text("OK"));
    assert!(error(write(token - 1)).starts_with("FENCED"));
    let failed = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'me', 10000).err";
    assert!(client.send(&[b"EVAL", failed.as_bytes(), b"1", b"k"]).as_text().starts_with("OWNED"));
}

#[test]
fn the_internal_command_is_refused_in_every_disguise() {
    let server = Setup::new().aof().start();
    let mut client = server.client();
    let refused = "ERR LOCK.EFFECT and LOCK.CEILING are how a master tells";
    assert!(error(client.say("LOCK.EFFECT k x")).starts_with(refused));
    assert!(
        error(client.say("EVAL return(redis.call('LOCK.EFFECT','k','x')) 0"))
            .contains("LOCK.EFFECT and LOCK.CEILING are how")
    );
    client.say("MULTI");
    client.say("LOCK.EFFECT k x");
    client.say("EVAL return(redis.call('LOCK.EFFECT','k','x')) 0");
    for reply in client.say("EXEC").as_list() {
        assert!(error(reply).contains("LOCK.EFFECT and LOCK.CEILING are how"));
    }
    let library = "#!lua name=l\nredis.register_function('f', function() return redis.call('LOCK.EFFECT','k','x') end)";
    client.send(&[b"FUNCTION", b"LOAD", library.as_bytes()]);
    assert!(error(client.say("FCALL f 0")).contains("LOCK.EFFECT and LOCK.CEILING are how"));
    assert_eq!(client.say("EXISTS k"), int(0));
}

#[test]
fn in_a_pipeline() {
    let server = Server::start();
    let mut client = server.client();
    let lines: Vec<_> = (0..5_000)
        .flat_map(|n| [format!("LOCK.ACQUIRE k{n} me 60000"), format!("LOCK.RELEASE k{n} me"), "LOCK.INFO".to_owned()])
        .collect();
    for replies in client.pipeline(&lines).chunks(3) {
        assert!(replies[0].as_int() > 0);
        assert_eq!(replies[1], int(0));
        assert!(error(replies[2].clone()).starts_with("ERR wrong number"));
    }
    assert_eq!((server.info("held"), server.info("deadlines")), (0, 0));
}
