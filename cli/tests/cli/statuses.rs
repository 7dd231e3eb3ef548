//! The exit status says what happened, and one line explains it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::fixture::{Nodes, PALISADE, Running, palisade_at, run};
use crate::harness::{Server, Setup, wait_until};

#[test]
fn that_of_the_command() {
    let nodes = Nodes::start(1);
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
    {
        let ended = run(nodes.exec("k", script));
        assert_eq!((ended.code(), ended.all().as_str()), (Some(code), ""), "{script}");
        nodes.wait_idle();
    }
}

/// The default grace period follows from the ttl, so that a user does not have to set both.
#[test]
fn a_short_ttl_needs_no_grace() {
    let nodes = Nodes::start(1);
    for line in ["exec --ttl 6s k -- true", "exec --ttl 1s k -- true", "elect --ttl 2s k -- true"] {
        let ended = run(nodes.palisade(line));
        assert_eq!(ended.code(), Some(0), "{line}: {ended:?}");
    }
}

#[test]
fn somebody_else_holds_it() {
    let nodes = Nodes::start(3);
    let holder = nodes.holder("--note backup\u{7} k");
    run(nodes.exec("--no-wait k", "echo no > ran")).assert_refused(194, "k is held by backup\\u{7} for ");
    run(nodes.palisade("try k")).assert_refused(194, "k is held by backup\\u{7} for ");
    run(nodes.exec("--wait 100ms k", "echo no > ran"))
        .assert_refused(195, "k was not free within 100ms: it is held by backup");
    run(nodes.palisade("lock --wait 100ms k")).assert_refused(195, "k was not free within 100ms");
    for how in ["--no-wait", "--wait 100ms"] {
        let ended = run(nodes.exec(&format!("{how} --conflict-exit-code 0 k"), "echo no > ran"));
        assert_eq!((ended.code(), ended.all().as_str()), (Some(0), ""), "{ended:?}");
    }
    assert!(!nodes.file("ran").exists());
    holder.terminate();
    nodes.wait_idle();
}

#[test]
fn a_missing_quorum_has_its_status() {
    let mut command = Command::new(PALISADE);
    command.args(["exec", "--no-wait", "k", "--", "true"]).stderr(Stdio::piped());
    command.env("PALISADE_NODES", "redis://u:secret@127.0.0.1:1,redis://u:secret@127.0.0.1:2");
    let ended = run(command);
    ended.assert_refused(196, "k: 0 of 2 nodes can be asked, and 2 are needed: all 2 nodes: it cannot be reached");
    assert!(!ended.err().contains("secret"));

    let mut nodes = Nodes::start(0);
    nodes.servers = vec![Setup::new().guarded().start()];
    run(nodes.exec("--no-wait k", "true")).assert_refused(196, "guarded: try again later");
    // No holder is known, so this is not a conflict.
    let ended = run(nodes.exec("--wait 100ms --conflict-exit-code 0 k", "true"));
    ended.assert_refused(196, "in the end 1 of 1 nodes may have forgotten grants and are guarded");
    nodes.servers = vec![Setup::new().module_later().start()];
    run(nodes.exec("k", "true")).assert_refused(193, "the server has no lock module");
    for line in ["ls", "history", "history k"] {
        let ended = run(nodes.palisade(line));
        ended.assert_refused(193, "the server has no lock module: load the module: loadmodule /path/to/libpalisade.so");
    }
}

/// A server of another kind is described as such, and a server's own error text is repeated.
#[test]
fn what_is_there_is_told() {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = web.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for connection in web.incoming().map_while(Result::ok) {
            let mut connection = connection;
            // This is how HTTP servers answer invalid requests: with a page, or by closing the connection.
            let mut said = [0; 64];
            let count = connection.read(&mut said).unwrap_or(0);
            if said[..count].starts_with(b"GET ") {
                let _ = connection.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n");
            } else {
                let _ = connection.write_all(b"<!DOCTYPE HTML>\n<p>bad request");
            }
        }
    });
    for line in ["ls", "why k", "exec --no-wait k -- true", "exec k -- true", "doctor"] {
        let ended = run(palisade_at(&address, line));
        assert_eq!(ended.code(), Some(if line == "doctor" { 2 } else { 193 }), "{line}: {ended:?}");
        assert!(ended.all().contains("no node is there, but a server that speaks HTTP"), "{line}: {ended:?}");
        assert!(ended.all().contains("correct its address"), "{line}: {ended:?}");
    }

    let nodes = Nodes::start(1);
    let mut owner = nodes.servers[0].client();
    assert_eq!(owner.say("CONFIG SET maxclients 1"), crate::harness::text("OK"));
    for line in ["ls", "exec --no-wait k -- true"] {
        let ended = run(nodes.palisade(line));
        ended.assert_refused(196, "ERR max number of clients reached");
        assert!(ended.err().contains("maxclients"), "{ended:?}");
    }
    owner.say("CONFIG SET maxclients 100");
    let address = nodes.servers[0].address() + "?db=99";
    for line in ["ls", "exec --no-wait k -- true", "exec k -- true", "acquire k --owner o", "elect k -- true"] {
        let ended = run(palisade_at(&address, line));
        ended.assert_refused(193, "ERR DB index is out of range");
        assert!(ended.err().contains("correct the number of the database"), "{ended:?}");
    }
}

/// `nodes --json` shows for each node the reason why it cannot be asked, as the table does, and no two reasons are
/// confused.
#[test]
fn the_reason_of_each_node_in_json() {
    let nodes = Nodes::start(3);
    let bare = Setup::new().module_later().start();
    let socket = |server: &Server, query: &str| server.address() + query;
    nodes.servers[2].client().say("ACL SETUSER weak on >sesame ~* +ping");
    let expected = [
        (socket(&bare, ""), "no lock module", "the server has no lock module"),
        (socket(&nodes.servers[0], "?db=99"), "ERR", "ERR DB index is out of range"),
        (socket(&nodes.servers[1], "?user=nobody&pass=wrong"), "WRONGPASS", "WRONGPASS it does not accept the user"),
        (socket(&nodes.servers[2], "?user=weak&pass=sesame"), "NOPERM", "NOPERM this user has no permissions to run"),
        ("127.0.0.1:1".to_owned(), "unreachable", "it cannot be reached: "),
    ];
    let addresses: Vec<&str> = expected.iter().map(|(address, ..)| address.as_str()).collect();
    let ended = run(palisade_at(&addresses.join(","), "nodes --json"));
    let told = ended.json();
    let table = run(palisade_at(&addresses.join(","), "nodes")).out();
    for (n, (_, state, error)) in expected.iter().enumerate() {
        assert!(told[n]["error"].as_str().unwrap().starts_with(error), "{error}: {ended:?}");
        assert!(table.lines().nth(n + 1).unwrap().contains(state), "{state}: {table}");
    }
    assert_eq!(ended.code(), Some(193), "four do not pass by themselves");
}

/// If the nodes refuse, the request is wrong, and repeating it does not help. All nodes answer the same, which is
/// printed once.
#[test]
fn the_nodes_refuse_it() {
    let nodes = Nodes::start(3);
    let ended = run(nodes.exec("--ttl 61s --node-timeout 5s k", "true"));
    ended.assert_refused(193, "refuse this: ERR ttl must be an integer from 1 to 60000 milliseconds");
    assert_eq!(ended.err().matches("ERR").count(), 1, "{ended:?}");

    nodes.say("SET text x");
    for line in [
        "info text",
        "exec text -- true",
        "try text",
        "lock --wait 1s text",
        "break --yes text",
        "acquire text --owner o",
        "extend text --owner o",
        "release text --owner o",
    ] {
        let ended = run(nodes.palisade(line));
        ended.assert_refused(193, "refuse this: WRONGTYPE the key is in use for something that is not a lock");
        assert!(ended.err().contains("give the lock another name") && ended.err().contains(" text: "), "{ended:?}");
    }

    nodes.say("ACL SETUSER weak on >sesame ~* +ping");
    nodes.say("ACL SETUSER default >sesame");
    let users = [
        ("", "NOAUTH it needs a password", "put its password into the address"),
        ("user=default&pass=wrong", "WRONGPASS it does not accept the user or the password", "correct the user"),
        (
            "user=weak&pass=sesame",
            "NOPERM this user has no permissions to run the 'LOCK.NODE' command",
            "allow its user what it lacks",
        ),
    ];
    for (user, text, remedy) in users {
        let addresses = nodes.addresses_with(&format!("?{user}"));
        for line in
            ["info k", "ls", "break --yes k", "exec --no-wait k -- true", "acquire k --owner o", "nodes", "top --once"]
        {
            let ended = run(palisade_at(&addresses, line));
            ended.assert_refused(193, &format!("all 3 nodes refuse this: {text}"));
            assert_eq!(ended.err().matches(remedy).count(), 1, "{ended:?}");
            assert!(!ended.all().contains("sesame"), "{ended:?}");
        }
        let ended = run(palisade_at(&addresses, "guard 1"));
        ended.assert_refused(193, text);
        assert!(ended.err().contains(remedy), "{ended:?}");
        // If only one node refuses and the others are down, the refusal is not the reason: the others may come back.
        let mut command = nodes.palisade("info k");
        let (one, _) = addresses.split_once(',').unwrap();
        command.env("PALISADE_NODES", format!("{one},127.0.0.1:1,127.0.0.1:2"));
        run(command).assert_refused(196, "2 nodes (127.0.0.1:1, 127.0.0.1:2): it cannot be reached");
    }
}

#[test]
fn it_was_taken_away() {
    let nodes = Nodes::start(3);
    let script = "trap 'echo > asked; exit 0' TERM; echo > held; while :; do sleep 0.01; done";
    let holder = Running::start(nodes.exec("--ttl 5s --grace 2s k", script));
    nodes.wait_file("held");
    wait_until("all have it", || nodes.holding("k") == 3);
    let ended = run(nodes.palisade("break --yes k"));
    // The holder hears of it at two nodes, and may give the lock back at the third before that one is asked.
    let on = |count: u8| ended.out().starts_with(&format!("k: broken on {count} of 3 nodes, token "));
    assert!(on(2) || on(3), "{ended:?}");
    let ended = holder.end();
    assert_eq!(ended.code(), Some(197), "{ended:?}");
    assert!(ended.err().contains("k was lost: somebody took it away, or its nodes forgot it"), "{ended:?}");
    assert!(nodes.file("asked").exists(), "it was asked first");
}

/// The command ended before this program noticed that the lock was broken. The status is that of a lost lock, because
/// its last actions may have been without the lock.
#[test]
fn it_had_been_taken_away_when_the_command_ended() {
    let nodes = Nodes::start(1);
    let holder =
        Running::start(nodes.exec("--ttl 60s --grace 1s k", "echo > held; while ! [ -e go ]; do sleep 0.01; done"));
    nodes.wait_file("held");
    nodes.say("LOCK.BREAK k");
    fs::write(nodes.file("go"), "").unwrap();
    holder.end().assert_refused_after(197, "k was lost: somebody took it away");
}

#[test]
fn it_was_held_for_as_long_as_is_allowed() {
    let nodes = Nodes::start(1);
    let ended = run(nodes.exec("--ttl 500ms --grace 100ms --max-hold 100ms k", "sleep 1000"));
    assert_eq!(ended.code(), Some(197), "{ended:?}");
    assert!(ended.err().contains("it is extended for no longer than --max-hold 100ms"), "{ended:?}");
    nodes.wait_idle();
}

#[test]
fn the_command_cannot_be_started() {
    let nodes = Nodes::start(1);
    fs::write(nodes.file("text"), "no program").unwrap();
    fs::write(nodes.file("odd"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(nodes.file("odd"), fs::Permissions::from_mode(0o755)).unwrap();
    run(nodes.palisade("exec k -- no-such-command")).assert_refused(198, "no-such-command: there is no such command");
    run(nodes.palisade("exec k -- ./none")).assert_refused(198, "./none: there is no such command");
    run(nodes.palisade("exec k -- ./text")).assert_refused(198, "./text: it cannot be run");
    run(nodes.palisade("exec k -- /")).assert_refused(198, "/: it cannot be run");
    assert_eq!(nodes.servers[0].info("grants"), 0, "no lock was taken for it");
    run(nodes.palisade("exec k -- ./odd")).assert_refused(198, "./odd: there is no such command");
    nodes.wait_idle();
}

#[test]
fn arguments_that_are_wrong() {
    let nodes = Nodes::start(1);
    let cases = [
        ("--json", "requires a subcommand"),
        ("frobnicate", "unrecognized subcommand 'frobnicate'"),
        ("exec k", "required arguments were not provided: <COMMAND>"),
        ("exec --no-wait --wait 1s k -- true", "cannot be used with"),
        ("exec --ttl 10 k -- true", "invalid value '10' for '--ttl <TTL>': 10 of what? Say 10ms or 10s"),
        ("exec --ttl 10q k -- true", "times have a unit, like 500ms, 10s"),
        ("exec --ttl 10s --grace 10s k -- true", "--grace 10s does not fit in --ttl 10s"),
        ("exec --ttl 2day --grace 1s k -- true", "ttl must be from 1 to 86400000 ms"),
        ("exec --ttl 61s k -- true", "refuses this: ERR ttl must be an integer from 1 to 60000"),
        ("exec --wait 2day k -- true", "wait must be at most 86400000 ms"),
        ("exec --conflict-exit-code 256 k -- true", "256 is not in 0..=255"),
        ("exec --shared --limit 2 k -- true", "cannot be used with"),
        ("exec --limit 0 k -- true", "0 is not in 1..=65535"),
        ("exec --limit 65536 k -- true", "65536 is not in 1..=65535"),
        ("--nodes , ls", "which nodes?"),
        ("--nodes http://u:secret@h ls", "address number 1 is no use"),
        ("--nodes redis://a,redis://a:6379 ls", "a:6379 is given twice"),
        ("--nodes a,a:6379 ls", "a:6379 is given twice"),
        ("--nodes a:6379,::1:6379 ls", "address number 2 is no use: not an address"),
        ("--nodes user:secret@a:6379 ls", "it must be like host:6379, [::1]:6379, redis://user:password@host:6379"),
        ("--nodes a:0 ls", "it must be like host:6379"),
        ("--nodes /run/redis.sock ls", "or unix:///path"),
        ("guard 7 lift --yes", "7 is none of the nodes: 1 "),
        ("guard 1 lift", "nobody is there to be asked: say --yes"),
        ("guard localhost lift --yes", "localhost is none of the nodes: 1 "),
        ("guard 1 arm soon", "invalid value 'soon' for '<TIME>'"),
        ("guard 1 arm 90000", "90000 of what? Say 90000ms or 90000s; times have a unit, like 500ms, 10s"),
    ];
    for (line, text) in cases {
        let ended = run(nodes.palisade(line));
        ended.assert_refused(193, text);
        assert!(!ended.all().contains("secret"), "{ended:?}");
    }
    assert_eq!(nodes.servers[0].info("grants"), 0);
}

#[test]
fn no_arguments_at_all_show_what_there_is() {
    let mut command = Command::new(PALISADE);
    command.env_remove("PALISADE_NODES").stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = run(command);
    assert_eq!((ended.code(), ended.out().as_str()), (Some(193), ""));
    for text in ["Usage: palisade", "  exec ", "  doctor ", "--nodes"] {
        assert!(ended.err().contains(text), "{ended:?}");
    }
}

#[test]
fn whoever_reads_the_output_may_leave() {
    let nodes = Nodes::start(1);
    for line in ["completions bash", "man", "ls", "nodes --json"] {
        let mut command = nodes.palisade(line);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.stdout(writer);
        let ended = run(command);
        assert_eq!((ended.code(), ended.err().as_str()), (Some(141), ""), "{line}");
    }
}

#[test]
fn help_version_and_what_shells_want() {
    for (line, text) in [
        ("--help", "Run a command under a lock"),
        ("exec --help", "197  the lock was lost"),
        // docs/cli.md and the man page of `break` have the same warning.
        ("break --help", "the holder goes on"),
        ("--version", concat!("palisade ", env!("CARGO_PKG_VERSION"))),
        ("completions zsh", "#compdef palisade"),
        ("man", ".TH palisade 1"),
    ] {
        let mut command = Command::new(PALISADE);
        command.args(line.split(' ')).env("PALISADE_NODES", "redis://:secret@h").stdout(Stdio::piped());
        let ended = run(command);
        assert_eq!(ended.code(), Some(0));
        assert!(ended.out().contains(text), "{ended:?}");
        assert!(!ended.out().contains("secret"), "{ended:?}");
        assert!(!ended.out().contains("watchdog"), "{ended:?}");
    }
}

#[test]
fn a_man_page_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let pages_into = |path: &std::path::Path| {
        let mut command = Command::new(PALISADE);
        command
            .args(["man", "--into"])
            .arg(path)
            .env("PALISADE_NODES", "redis://:secret@h")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        run(command)
    };
    let ended = pages_into(folder.path());
    assert_eq!((ended.code(), ended.all().as_str()), (Some(0), ""));
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let all = page("palisade.1");
    let named: Vec<_> = all.lines().filter_map(|line| line.strip_prefix("palisade\\-")?.strip_suffix("(1)")).collect();
    assert!(named.contains(&"exec") && named.contains(&"doctor"), "{all}");
    for command in named.into_iter().filter(|command| *command != "help") {
        let text = page(&format!("palisade-{command}.1"));
        assert!(text.contains(&format!(".TH palisade-{command} 1")) && !text.contains("secret"), "{text}");
    }
    assert!(page("palisade-exec.1").contains("197"), "its exit statuses");
    let ended = pages_into(&folder.path().join("made/for/them"));
    assert_eq!((ended.code(), ended.all().as_str()), (Some(0), ""));
    assert_eq!(fs::read_to_string(folder.path().join("made/for/them/palisade.1")).unwrap(), all);
    pages_into(&folder.path().join("palisade.1")).assert_refused(199, "no man pages can be written into");
}
