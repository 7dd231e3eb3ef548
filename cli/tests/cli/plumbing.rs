//! The command's input, output and environment.

use std::time::Duration;

use crate::fixture::{Nodes, run, run_with, since_boot};

#[test]
fn input_and_output_pass() {
    let nodes = Nodes::start(1);
    let input = b"some text\0\xff\n".repeat(100_000);
    let mut command = nodes.palisade("exec k -- sh -c");
    command.arg("cat > copy; cmp copy - < copy && echo out && echo err >&2");
    let ended = run_with(command, &input);
    assert_eq!((ended.code(), ended.out().as_str(), ended.err().as_str()), (Some(0), "out\n", "err\n"));
    assert_eq!(std::fs::read(nodes.file("copy")).unwrap(), input);
}

#[test]
fn the_environment_tells_of_the_lock() {
    let nodes = Nodes::start(1);
    let script = "echo $PALISADE_KEY; echo $PALISADE_TOKEN; echo $PALISADE_OWNER; echo $PALISADE_VALID_UNTIL_MS; \
                  echo $PALISADE_NODES; echo $PALISADE_HOLDER; echo > held; while ! [ -e go ]; do sleep 0.01; done";
    let mut command = nodes.exec("orders:42", script);
    command.env("PALISADE_TOKEN", "of an outer lock");
    let before = since_boot();
    let running = crate::fixture::Running::start(command);
    nodes.wait_file("held");
    let info = nodes.servers[0].client().say("LOCK.INFO orders:42");
    std::fs::write(nodes.file("go"), "").unwrap();
    let ended = running.end();
    let out = ended.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "orders:42");
    assert_eq!(lines[1], info.field("token").as_int().to_string());
    assert_eq!(lines[2], info.field("owner").as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let until = Duration::from_millis(lines[3].parse().unwrap());
    assert!(until > before && until < since_boot() + Duration::from_secs(10), "{until:?}");
    assert_eq!(lines[4], nodes.addresses());
    let note = info.field("note").as_text();
    let (text, holder) = note.strip_suffix(']').and_then(|note| note.split_once(" [holder=")).expect(&note);
    assert!(text.ends_with(": sh"), "{note}");
    assert_eq!(lines[5], holder, "what it takes in turn is held by the same");
}

#[test]
fn a_lock_for_a_script() {
    let nodes = Nodes::start(3);
    // The program is a coprocess of a script: the lock is released when the script closes the program's input, also by
    // dying.
    let ended = run_with(nodes.palisade("lock --json k"), b"");
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let held = ended.json();
    assert_eq!(held["key"], "k");
    assert!(held["token"].as_u64().unwrap() > 0 && held["valid_ms"].as_u64().unwrap() <= 10_000);
    nodes.wait_idle();
    let ended = run_with(nodes.palisade("try k"), b"\n");
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(ended.out().trim().parse::<u64>().unwrap() > held["token"].as_u64().unwrap());
    nodes.wait_idle();
}

#[test]
fn keys_and_notes_of_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let nodes = Nodes::start(1);
    let mut command = nodes.palisade("exec --note");
    command.arg("for büro").arg(std::ffi::OsStr::from_bytes(b"k \xff\x1b[31m")).args(["--", "sh", "-c"]);
    command.arg("printf %s \"$PALISADE_KEY\" > key; echo > held; while ! [ -e go ]; do sleep 0.01; done");
    let running = crate::fixture::Running::start(command);
    nodes.wait_file("held");
    assert_eq!(std::fs::read(nodes.file("key")).unwrap(), b"k \xff\x1b[31m");
    let ended = run(nodes.palisade("ls"));
    assert!(ended.out().contains("k \u{fffd}\\u{1b}[31m") && ended.out().contains("for büro"), "{ended:?}");
    std::fs::write(nodes.file("go"), "").unwrap();
    assert_eq!(running.end().code(), Some(0));
}
