//! The server's descriptions of the commands: COMMAND DOCS, INFO, GETKEYS, HELP. redis-cli derives its hints from them.

use crate::harness::{Client, Reply, Server, text};

/// The name, arity, flags of the key, whether the command writes, and its arguments as a person types them.
const COMMANDS: [(&str, i64, &str, bool, &str); 22] = [
    (
        "LOCK.ACQUIRE",
        -4,
        "insert",
        true,
        "key owner ttl [SHARED] [LIMIT limit] [PERMIT number] [KEEPALIVE ms] [WAIT ms] [BEHIND behind] [FENCE token] [RETRY] [NOTE text]",
    ),
    ("LOCK.RELEASE", -3, "delete", true, "key owner [LEVEL level] [TOKEN token]"),
    ("LOCK.EXTEND", -4, "update", true, "key owner ttl [TOKEN token]"),
    ("LOCK.REENTER", -3, "update", true, "key owner [LEVEL level] [TTL ttl] [ADOPT]"),
    ("LOCK.CONVERT", -4, "update", true, "key owner mode [TOKEN token]"),
    ("LOCK.NOTE", -4, "update", true, "key owner text [SEQ n] [TOKEN token]"),
    ("LOCK.FENCE", 4, "update", true, "key owner token"),
    ("LOCK.CHECK", 3, "access", false, "key token"),
    ("LOCK.GATE", -3, "insert", true, "key token [SHARED] [PERMIT number] [HELD] [KEEP ms] [COMMAND command ...]"),
    (
        "LOCK.WAIT",
        -4,
        "update",
        false,
        "key owner ms [TICKET n] [SHARED] [LIMIT limit] [PERMIT number] [NOTE text] [BEHIND behind] [HEARD name]",
    ),
    ("LOCK.HEAR", 3, "", false, "name ms"),
    ("LOCK.INFO", -2, "access", false, "key [HOLDERS n] [WAITERS n]"),
    ("LOCK.WATCH", -3, "access", false, "key ms [TOKEN token] [SEQ n]"),
    ("LOCK.BREAK", -2, "delete", true, "key [TOKEN token]"),
    ("LOCK.NODE", -1, "", false, "[KEY key]"),
    ("LOCK.MEMBERS", -1, "", false, "[JOIN version]"),
    (
        "LOCK.SETMEMBERS",
        -2,
        "",
        false,
        "version [PROMISE ballot] [ACCEPT ballot] [DECIDED] [MEMBERS members] [FLOOR token]",
    ),
    ("LOCK.GUARD", -1, "", false, "[LIFT] [ARM ms]"),
    ("LOCK.FLOOR", -1, "", false, "[RAISE token]"),
    ("LOCK.LOG", -1, "", false, "[KEY key] [COUNT n] [RESET]"),
    ("LOCK.TOP", -1, "", false, "[COUNT n] [RESET]"),
    ("LOCK.HELP", 1, "", false, ""),
];

fn texts(list: &Reply) -> Vec<String> {
    list.as_list().iter().map(Reply::as_text).collect()
}

#[test]
fn command_docs_show_every_argument() {
    let server = Server::start();
    let mut client = server.client();
    for (name, _, _, _, arguments) in COMMANDS {
        let docs = client.say(&format!("COMMAND DOCS {name}")).as_list();
        // The case of a module command's name differs between servers.
        assert_eq!(docs[0].as_text().to_uppercase(), name);
        assert!(docs[1].field("summary").as_text().len() > 10);
        let newer = [
            "LOCK.CONVERT",
            "LOCK.NOTE",
            "LOCK.GATE",
            "LOCK.HEAR",
            "LOCK.WATCH",
            "LOCK.LOG",
            "LOCK.TOP",
            "LOCK.MEMBERS",
            "LOCK.SETMEMBERS",
        ];
        let since = if newer.contains(&name) { "1.0.0" } else { "0.1.0" };
        assert_eq!(docs[1].field("since"), text(since), "{name}");
        assert!(docs[1].field("complexity").as_text().starts_with("O("));
        assert_eq!(docs[1].field("module"), text("lock"));
        if !arguments.is_empty() {
            let shown: Vec<_> = docs[1].field("arguments").as_list().iter().map(typed).collect();
            assert_eq!(shown.join(" "), arguments, "{name}");
        }
    }
}

/// Returns an argument of COMMAND DOCS as a person types it.
pub fn typed(argument: &Reply) -> String {
    let fields = argument.as_list();
    let has = |name: &str| fields.chunks(2).any(|pair| pair[0] == text(name));
    let name = argument.field("name").as_text();
    if !has("token") {
        return name;
    }
    let flags = texts(&argument.field("flags"));
    let more = if flags.contains(&"multiple".to_owned()) { " ..." } else { "" };
    assert_eq!((&flags[0], flags.len()), (&"optional".to_owned(), 1 + usize::from(!more.is_empty())));
    let token = argument.field("token").as_text();
    if argument.field("type") != text("pure-token") {
        return format!("[{token} {name}{more}]");
    }
    assert_eq!(name, token.to_lowercase());
    format!("[{token}]")
}

#[test]
fn command_info_has_arity_flags_and_keys() {
    let server = Server::start();
    let mut client = server.client();
    for (name, arity, access, writes, _) in COMMANDS {
        let list = client.say(&format!("COMMAND INFO {name}")).as_list();
        let info = list[0].as_list();
        assert_eq!(info[1].as_int(), arity, "{name}");
        let flags = texts(&info[2]);
        // Lists take time in proportion to their length, and a gate may run any command.
        let is_slow = ["LOCK.LOG", "LOCK.TOP", "LOCK.GATE"].contains(&name);
        assert_eq!(flags.contains(&"fast".to_owned()), !is_slow, "{name}: {flags:?}");
        assert_eq!(flags.contains(&"write".to_owned()), writes, "{name}: {flags:?}");
        assert_eq!(flags.contains(&"readonly".to_owned()), !writes && !access.is_empty(), "{name}: {flags:?}");
        let takes_memory = ["LOCK.ACQUIRE", "LOCK.NOTE"].contains(&name);
        assert_eq!(flags.contains(&"denyoom".to_owned()), takes_memory, "{name}: {flags:?}");
        let waits = ["LOCK.ACQUIRE", "LOCK.WAIT", "LOCK.HEAR", "LOCK.WATCH"].contains(&name);
        assert_eq!(flags.contains(&"blocking".to_owned()), waits, "{name}: {flags:?}");
        let keys: Vec<_> = info[3..6].iter().map(Reply::as_int).collect();
        assert_eq!(keys, if access.is_empty() { [0, 0, 0] } else { [1, 1, 1] }, "{name}");
        if !access.is_empty() {
            let spec = &info[8].as_list()[0];
            let flags = texts(&spec.field("flags"));
            assert!(flags.contains(&access.to_owned()), "{name}: {flags:?}");
            assert!(
                flags.contains(&if writes || name == "LOCK.WAIT" { "RW" } else { "RO" }.to_owned()),
                "{name}: {flags:?}"
            );
        }
    }
}

#[test]
fn the_key_is_the_first_argument() {
    let server = Server::start();
    let mut client = server.client();
    for line in ["LOCK.ACQUIRE a b 1000 NOTE c", "LOCK.RELEASE a b", "LOCK.CHECK a 1", "LOCK.BREAK a"] {
        assert_eq!(texts(&client.say(&format!("COMMAND GETKEYS {line}"))), ["a"], "{line}");
    }
}

#[test]
fn help_lists_every_command() {
    let server = Server::start();
    let lines = texts(&server.client().say("LOCK.HELP"));
    for (name, _, _, _, arguments) in COMMANDS {
        let syntax = format!("{name} {arguments}").trim_end().to_owned();
        assert!(lines.contains(&syntax), "{syntax} is not in {lines:?}");
    }
    assert!(
        !lines.iter().any(|line| line.contains("EFFECT") || line.contains("CEILING")),
        "the internal command is not for people"
    );
}

/// Returns true if the server has ACL categories for modules' commands: Redis from 7.4, Valkey from 8.0.
pub fn has_categories(client: &mut Client) -> bool {
    texts(&client.say("ACL CAT")).contains(&"lock".to_owned())
}

#[test]
fn acl_categories_tell_users_from_operators() {
    let server = Server::start();
    let mut client = server.client();
    if !has_categories(&mut client) {
        let version = client.say("INFO server").as_text();
        let version = version.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap().to_owned();
        assert!(version.as_str() < "7.4", "{version} has categories for modules");
        return;
    }
    let in_category = |client: &mut Client, category: &str| {
        // Redis 7.4 leaves modules' commands out of ACL CAT, though rules with the category work, so the list of
        // commands is filtered instead.
        let mut names: Vec<_> = texts(&client.say(&format!("COMMAND LIST FILTERBY ACLCAT {category}")));
        names.retain(|name| name.to_uppercase().starts_with("LOCK."));
        names.iter_mut().for_each(|name| *name = name.to_uppercase());
        names.retain(|name| name != "LOCK.PANIC");
        names.sort();
        names
    };
    assert_eq!(
        in_category(&mut client, "lock").len(),
        COMMANDS.len() - 1 + 2,
        "all but LOCK.GATE, and the internal ones"
    );
    assert_eq!(
        in_category(&mut client, "dangerous"),
        [
            "LOCK.BREAK",
            "LOCK.CEILING",
            "LOCK.EFFECT",
            "LOCK.FLOOR",
            "LOCK.GUARD",
            "LOCK.LOG",
            "LOCK.SETMEMBERS",
            "LOCK.TOP"
        ]
    );
    assert_eq!(
        in_category(&mut client, "read"),
        ["LOCK.CHECK", "LOCK.INFO", "LOCK.MEMBERS", "LOCK.NODE", "LOCK.WATCH"]
    );
    assert_eq!(in_category(&mut client, "blocking"), ["LOCK.ACQUIRE", "LOCK.HEAR", "LOCK.WAIT", "LOCK.WATCH"]);
    let writing = in_category(&mut client, "write");
    for (name, _, _, writes, _) in COMMANDS {
        assert_eq!(
            writing.contains(&name.to_owned()),
            writes || ["LOCK.FLOOR", "LOCK.GUARD", "LOCK.HEAR", "LOCK.SETMEMBERS", "LOCK.WAIT"].contains(&name),
            "{name}"
        );
    }
}
