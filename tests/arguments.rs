//! Invalid input gets an error that names the fault and the bounds, and changes nothing.

use crate::harness::{Server, error, int, null, text};

#[test]
fn what_is_wrong_is_named_with_its_bounds() {
    let server = Server::start();
    let mut me = server.client();
    let ttl = "ERR ttl must be an integer from 1 to 60000 milliseconds";
    let token = "ERR token must be an integer from 1 to 9007199254740991";
    let fence = "ERR FENCE must be an integer from 1 to 9007199254740991";
    let option = "ERR TOKEN must be an integer from 1 to 9007199254740991";
    let known = "ERR TOKEN must be an integer from 0 (free) to 9007199254740991";
    let patience = "ERR the time to wait must be an integer from 0 (not at all) to 86400000 milliseconds";
    let level = "ERR LEVEL must be an integer from 1 to 1000000";
    let limit = "ERR LIMIT must be an integer from 1 to 65535";
    let permit = "ERR PERMIT must be an integer from 1 to LIMIT";
    let both = "ERR SHARED and LIMIT exclude each other: give one of them";
    let conversion = "ERR a grant can be converted to SHARED or EXCLUSIVE: name one of them";
    let cases = [
        ("LOCK.ACQUIRE k me 0", ttl),
        ("LOCK.ACQUIRE k me -1", ttl),
        ("LOCK.ACQUIRE k me 60001", ttl),
        ("LOCK.ACQUIRE k me 4294967297", ttl),
        ("LOCK.ACQUIRE k me 9223372036854775807", ttl),
        ("LOCK.ACQUIRE k me 99999999999999999999999", ttl),
        ("LOCK.ACQUIRE k me 1.5", ttl),
        ("LOCK.ACQUIRE k me 1e3", ttl),
        ("LOCK.ACQUIRE k me 01", ttl),
        ("LOCK.ACQUIRE k me +1", ttl),
        ("LOCK.ACQUIRE k me soon", ttl),
        ("LOCK.ACQUIRE k me ", ttl),
        ("LOCK.EXTEND k me 0", ttl),
        ("LOCK.EXTEND k me 60001", ttl),
        ("LOCK.REENTER k me TTL 0", ttl),
        ("LOCK.REENTER k me TTL x", ttl),
        ("LOCK.EXTEND k me 1 TOKEN 0", option),
        ("LOCK.EXTEND k me 1 TOKEN 9007199254740992", option),
        ("LOCK.RELEASE k me TOKEN -5", option),
        ("LOCK.CHECK k 0", token),
        ("LOCK.CHECK k x", token),
        ("LOCK.NOTE k me x SEQ 9007199254740992", "ERR SEQ must be an integer from 0 to 9007199254740991"),
        ("LOCK.FLOOR RAISE 0", "ERR RAISE needs a token from 1 to 6755399441055744"),
        ("LOCK.SETMEMBERS 1 FLOOR 0", "ERR FLOOR needs a token from 1 to 6755399441055744"),
        ("LOCK.SETMEMBERS 9007199254740992 DECIDED", "ERR version must be an integer from 0 to 9007199254740991"),
        ("LOCK.SETMEMBERS 18446744073709551615 DECIDED", "ERR version must be an integer from 0 to 9007199254740991"),
        ("LOCK.MEMBERS JOIN 9007199254740992", "ERR JOIN must be an integer from 0 to 9007199254740991"),
        ("LOCK.MEMBERS JOIN x", "ERR JOIN must be an integer from 0 to 9007199254740991"),
        ("LOCK.RELEASE k me LEVEL 0", level),
        ("LOCK.RELEASE k me LEVEL 1000001", level),
        ("LOCK.REENTER k me LEVEL 0", level),
        ("LOCK.REENTER k me LEVEL -1", level),
        ("LOCK.ACQUIRE k  1000", "ERR owner must be 1 to 256 bytes long"),
        ("LOCK.ACQUIRE k me 1000 WAIT -5", patience),
        ("LOCK.ACQUIRE k me 1000 WAIT 86400001", patience),
        ("LOCK.ACQUIRE k me 1000 ", "ERR unknown option"),
        ("LOCK.ACQUIRE k me 1000 NOTE", "ERR option NOTE needs a value"),
        ("LOCK.ACQUIRE k me 1000 NOTE a NOTE b", "ERR option NOTE was given twice"),
        ("LOCK.ACQUIRE k me 1000 RETRY NOTE a retry", "ERR option RETRY was given twice"),
        ("LOCK.RELEASE k me LEVEL", "ERR option LEVEL needs a value"),
        ("LOCK.RELEASE k me LEVEL 1 level 1", "ERR option LEVEL was given twice"),
        ("LOCK.RELEASE k me RETRY", "ERR unknown option: this command takes LEVEL n and TOKEN t"),
        ("LOCK.EXTEND k me 1 TOKEN", "ERR option TOKEN needs a value"),
        ("LOCK.EXTEND k me 1 TOKEN 1 TOKEN 1", "ERR option TOKEN was given twice"),
        ("LOCK.EXTEND k me 1 LEVEL 1", "ERR unknown option: this command takes TOKEN t"),
        ("LOCK.REENTER k me LEVEL 1 TTL", "ERR option TTL needs a value"),
        ("LOCK.REENTER k me TTL 1 TTL 1", "ERR option TTL was given twice"),
        ("LOCK.REENTER k me ADOPT adopt", "ERR option ADOPT was given twice"),
        ("LOCK.REENTER k me NOTE x", "ERR unknown option: this command takes LEVEL n, TTL ms and ADOPT"),
        ("LOCK.ACQUIRE k me", "ERR wrong number of arguments"),
        ("LOCK.RELEASE k", "ERR wrong number of arguments"),
        ("LOCK.EXTEND k me", "ERR wrong number of arguments"),
        ("LOCK.REENTER k", "ERR wrong number of arguments"),
        ("LOCK.CHECK k", "ERR wrong number of arguments"),
        ("LOCK.CHECK k 1 2", "ERR wrong number of arguments"),
        ("LOCK.INFO", "ERR wrong number of arguments"),
        ("LOCK.INFO k k", "ERR unknown option: this command takes HOLDERS n and WAITERS n"),
        ("LOCK.INFO k WAITERS", "ERR option WAITERS needs a value"),
        ("LOCK.INFO k WAITERS 0", "ERR WAITERS must be an integer from 1 to 1000"),
        ("LOCK.INFO k WAITERS 1001", "ERR WAITERS must be"),
        ("LOCK.INFO k HOLDERS", "ERR option HOLDERS needs a value"),
        ("LOCK.INFO k HOLDERS 0", "ERR HOLDERS must be an integer from 1 to 1000"),
        ("LOCK.INFO k HOLDERS 1001", "ERR HOLDERS must be"),
        ("LOCK.INFO k HOLDERS 1 HOLDERS 1", "ERR option HOLDERS was given twice"),
        ("LOCK.ACQUIRE k me 1000 SHARED SHARED", "ERR option SHARED was given twice"),
        ("LOCK.ACQUIRE k me 1000 SHARED LIMIT 2", both),
        ("LOCK.ACQUIRE k me 1000 LIMIT 2 PERMIT 1 SHARED", both),
        ("LOCK.ACQUIRE k me 1000 LIMIT 1 SHARED", both),
        ("LOCK.ACQUIRE k me 1000 LIMIT", "ERR option LIMIT needs a value"),
        ("LOCK.ACQUIRE k me 1000 LIMIT 0", limit),
        ("LOCK.ACQUIRE k me 1000 LIMIT 65536", limit),
        ("LOCK.ACQUIRE k me 1000 LIMIT -1", limit),
        ("LOCK.ACQUIRE k me 1000 LIMIT 4294967297", limit),
        ("LOCK.ACQUIRE k me 1000 LIMIT many", limit),
        ("LOCK.ACQUIRE k me 1000 PERMIT 1", "ERR PERMIT is for LIMIT: give both"),
        ("LOCK.ACQUIRE k me 1000 SHARED PERMIT 1", "ERR PERMIT is for LIMIT: give both"),
        ("LOCK.ACQUIRE k me 1000 LIMIT 5 PERMIT", "ERR option PERMIT needs a value"),
        ("LOCK.ACQUIRE k me 1000 LIMIT 5 PERMIT 0", permit),
        ("LOCK.ACQUIRE k me 1000 LIMIT 5 PERMIT 6", permit),
        ("LOCK.ACQUIRE k me 1000 LIMIT 1 PERMIT 2", permit),
        ("LOCK.ACQUIRE k me 1000 LIMIT 5 PERMIT 65537", permit),
        ("LOCK.ACQUIRE k me 1000 LIMIT 5 PERMIT first", permit),
        ("LOCK.WAIT k me 1 SHARED LIMIT 2", both),
        ("LOCK.WAIT k me 1 LIMIT 65536", limit),
        ("LOCK.WAIT k me 1 LIMIT 2 PERMIT 3", permit),
        ("LOCK.WAIT k me 1 PERMIT 3", "ERR PERMIT is for LIMIT: give both"),
        ("LOCK.NOTE k me", "ERR wrong number of arguments"),
        ("LOCK.NOTE k  text", "ERR owner must be 1 to 256 bytes long"),
        ("LOCK.NOTE k me text SEQ", "ERR option SEQ needs a value"),
        ("LOCK.NOTE k me text SEQ -1", "ERR SEQ must be an integer from 0 to 9007199254740991"),
        ("LOCK.NOTE k me text SEQ 9007199254740992", "ERR SEQ must be"),
        ("LOCK.NOTE k me text SEQ 1 SEQ 1", "ERR option SEQ was given twice"),
        ("LOCK.NOTE k me text TOKEN 0", option),
        ("LOCK.NOTE k me text NOTE text", "ERR unknown option: this command takes SEQ n and TOKEN t"),
        ("LOCK.WATCH k", "ERR wrong number of arguments"),
        ("LOCK.WATCH k -1", patience),
        ("LOCK.WATCH k 86400001", patience),
        ("LOCK.WATCH k 0 TOKEN x", known),
        ("LOCK.WATCH k 0 TOKEN 9007199254740992", known),
        ("LOCK.WATCH k 0 SEQ 1", "ERR SEQ is for TOKEN: give both"),
        ("LOCK.WATCH k 0 TOKEN 1 SEQ x", "ERR SEQ must be an integer"),
        ("LOCK.WATCH k 0 WAITERS 1", "ERR unknown option: this command takes TOKEN t and SEQ n"),
        ("LOCK.CONVERT k me", "ERR wrong number of arguments"),
        ("LOCK.CONVERT k me LIMIT", conversion),
        ("LOCK.CONVERT k me ", conversion),
        ("LOCK.CONVERT k me SHARE", conversion),
        ("LOCK.CONVERT k  SHARED", "ERR owner must be 1 to 256 bytes long"),
        ("LOCK.CONVERT k me SHARED TOKEN", "ERR option TOKEN needs a value"),
        ("LOCK.CONVERT k me EXCLUSIVE TOKEN 0", option),
        ("LOCK.CONVERT k me SHARED WAIT 5", "ERR unknown option: this command takes TOKEN t"),
        ("LOCK.BREAK k TOKEN 0", option),
        ("LOCK.BREAK k TOKEN", "ERR option TOKEN needs a value"),
        ("LOCK.BREAK k me", "ERR unknown option: this command takes TOKEN t"),
        ("LOCK.ACQUIRE k me 1000 WAIT", "ERR option WAIT needs a value"),
        ("LOCK.ACQUIRE k me 1000 WAIT 1 wait 1", "ERR option WAIT was given twice"),
        (
            "LOCK.ACQUIRE k me 1000 FIFO",
            "ERR unknown option: this command takes SHARED, LIMIT k, PERMIT n, KEEPALIVE ms, WAIT ms, BEHIND n, FENCE token, RETRY and NOTE text",
        ),
        ("LOCK.WAIT k me", "ERR wrong number of arguments"),
        ("LOCK.WAIT k me 86400001", patience),
        ("LOCK.WAIT k me x", patience),
        ("LOCK.WAIT k  1", "ERR owner must be 1 to 256 bytes long"),
        ("LOCK.WAIT k me 1 TICKET", "ERR option TICKET needs a value"),
        ("LOCK.WAIT k me 1 TICKET -1", "ERR TICKET must be an integer from 0 to 9007199254740991"),
        ("LOCK.WAIT k me 1 TICKET 9007199254740992", "ERR TICKET must be"),
        (
            "LOCK.WAIT k me 1 RETRY",
            "ERR unknown option: this command takes TICKET n, SHARED, LIMIT k, PERMIT n, NOTE text, BEHIND n and HEARD name",
        ),
        ("LOCK.BREAK", "ERR wrong number of arguments"),
        ("LOCK.HELP me", "ERR wrong number of arguments"),
        ("LOCK.ACQUIRE k me 1000 FENCE -1", fence),
        ("LOCK.ACQUIRE k me 1000 FENCE 9007199254740992", fence),
        ("LOCK.ACQUIRE k me 1000 FENCE 9223372036854775807", fence),
        ("LOCK.ACQUIRE k me 1000 FENCE 1 FENCE 1", "ERR option FENCE was given twice"),
        ("LOCK.FENCE k me 0", token),
        ("LOCK.FENCE k me 9007199254740992", token),
        ("LOCK.FENCE k me", "ERR wrong number of arguments"),
        ("LOCK.GUARD ARM", "ERR option ARM needs a value"),
        ("LOCK.GUARD ARM 0", "ERR ARM needs an integer from 1 to 172800000 milliseconds"),
        ("LOCK.GUARD ARM 172800001", "ERR ARM needs an integer"),
        ("LOCK.GUARD ARM x", "ERR ARM needs an integer"),
        ("LOCK.GUARD LIFT 5", "ERR unknown option: this command takes LIFT or ARM ms"),
        ("LOCK.GUARD ARM 5 LIFT", "ERR unknown option: this command takes LIFT or ARM ms"),
        ("LOCK.GUARD DROP", "ERR unknown option: this command takes LIFT or ARM ms"),
        ("LOCK.CEILING 1 1", "ERR LOCK"),
        ("LOCK.EFFECT k x", "ERR LOCK.EFFECT and LOCK.CEILING are how a master tells"),
    ];
    for (line, expected) in cases {
        let error = error(me.say(line));
        assert!(error.starts_with(expected), "{line}: {error}");
        assert_eq!(me.say("EXISTS k"), int(0), "{line}");
    }
    // The same input for a held lock: the lock does not change.
    let token = me.say("LOCK.ACQUIRE k me 60000 NOTE n").as_int();
    for (line, expected) in cases {
        let error = error(me.say(line));
        assert!(error.starts_with(expected), "{line}: {error}");
    }
    let info = me.say("LOCK.INFO k");
    assert_eq!((info.field("token"), info.field("holds"), info.field("note")), (int(token), int(1), text("n")));
    assert_eq!(info.field("mode"), text("exclusive"));
}

#[test]
fn options_in_any_order_and_case() {
    let server = Server::start();
    let mut me = server.client();
    let token = me.say("LOCK.ACQUIRE k me 1000 note RETRY retry").as_int();
    assert_eq!(me.say("LOCK.INFO k").field("note"), text("RETRY"), "a value may look like an option");
    assert_eq!(me.say(&format!("LOCK.RELEASE k me tOkEn {token} level 3")), int(1));
    assert_eq!(me.say("lock.reenter k me ttl 5000 LEVEL 2"), int(2));
    assert_eq!(me.say(&format!("lock.release k me LEVEL 1 TOKEN {token}")), int(0));
}

#[test]
fn owners_are_any_bytes_up_to_256() {
    let server = Server::start();
    let mut me = server.client();
    let longest = [0xFF; 256];
    let owners: [&[u8]; 6] = [b"\0", b"a\0b", b"\xFF\xFE", b"\r\n+OK", &longest, b" "];
    for owner in owners {
        let token = me.send(&[b"LOCK.ACQUIRE", b"k", owner, b"10000"]).as_int();
        assert_eq!(me.send(&[b"LOCK.INFO", b"k"]).field("owner").as_bytes(), owner);
        assert_eq!(me.send(&[b"LOCK.EXTEND", b"k", owner, b"10000"]), int(token));
        assert_eq!(me.send(&[b"LOCK.RELEASE", b"k", b"a"]), null());
        assert_eq!(me.send(&[b"LOCK.RELEASE", b"k", owner]), int(0));
    }
    for owner in [&b""[..], &[b'x'; 257], &[b'x'; 1 << 20]] {
        for command in [&b"LOCK.ACQUIRE"[..], b"LOCK.EXTEND"] {
            let error = error(me.send(&[command, b"k", owner, b"10000"]));
            assert_eq!(error, "ERR owner must be 1 to 256 bytes long");
        }
        assert!(error(me.send(&[b"LOCK.RELEASE", b"k", owner])).starts_with("ERR owner"));
        assert!(error(me.send(&[b"LOCK.REENTER", b"k", owner])).starts_with("ERR owner"));
    }
}

#[test]
fn notes_are_any_bytes_up_to_1024() {
    let server = Server::start();
    let mut me = server.client();
    let longest = [b'\n'; 1024];
    let notes: [&[u8]; 4] = [b"", b"\0\xFF\r\n", b"deploy on web-3, pid 4711", &longest];
    for note in notes {
        me.send(&[b"LOCK.ACQUIRE", b"k", b"me", b"10000", b"NOTE", note]).as_int();
        assert_eq!(me.send(&[b"LOCK.INFO", b"k"]).field("note").as_bytes(), note);
        me.say("LOCK.RELEASE k me");
    }
    let error = error(me.send(&[b"LOCK.ACQUIRE", b"k", b"me", b"10000", b"NOTE", &[b'x'; 1025]]));
    assert_eq!(error, "ERR NOTE must be at most 1024 bytes long");
    let refused = me.send(&[b"LOCK.NOTE", b"k", b"me", &[b'x'; 1025]]);
    assert_eq!(crate::harness::error(refused), "ERR text must be at most 1024 bytes long");
}

#[test]
fn keys_are_any_bytes_that_the_server_takes() {
    let server = Server::start();
    let mut me = server.client();
    let huge = vec![0xAB; 64 << 20];
    let keys: [&[u8]; 5] = [b"", b"\0", b"a\0b", b"\xFF\xFE\r\n", &huge];
    for key in keys {
        let token = me.send(&[b"LOCK.ACQUIRE", key, b"me", b"60000"]).as_int();
        assert_eq!(me.send(&[b"LOCK.ACQUIRE", key, b"you", b"60000"]), null());
        assert_eq!(me.send(&[b"LOCK.INFO", key]).field("token"), int(token));
    }
    assert_eq!((server.info("held"), server.info("deadlines")), (5, 5));
    for key in keys {
        assert_eq!(me.send(&[b"LOCK.RELEASE", key, b"me"]), int(0));
    }
    assert_eq!((server.info("held"), server.info("deadlines")), (0, 0));
}
