//! A module that the server dropped after loading it, and then loads again, starts from nothing.

use crate::harness::{Setup, error, int, module, not_here, null, text};

/// Some servers notice a parameter that the module does not know only after the module has loaded. They drop the
/// module, and a later load starts from nothing.
#[test]
fn a_load_that_the_server_undid_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.state");
    let arguments = ["state-file", path.to_str().unwrap()];
    let mut server = Setup::new().module_later().start();
    let mut client = server.client();
    let load = |config: &str| format!("MODULE LOADEX {} {config} ARGS {}", module().display(), arguments.join(" "));
    match client.try_say(&load("CONFIG lock.nothing 1")) {
        Some(reply) => assert!(error(reply).starts_with("ERR")),
        None => {
            server.wait_ended();
            return not_here("this server ends when a module is given a parameter that it does not know");
        }
    }
    if client.say("MODULE LIST").as_list().iter().any(|loaded| loaded.field("name") == text("lock")) {
        return not_here("this server keeps the module");
    }
    for again in 0..2 {
        assert!(error(client.say(&load("CONFIG lock.nothing 1"))).starts_with("ERR"), "{again}");
    }
    assert_eq!(client.say(&load("CONFIG lock.max-ttl 5000")), text("OK"));
    client.lift();
    let token = client.insist("LOCK.ACQUIRE k me 5000").as_int();
    assert_eq!(client.say("LOCK.ACQUIRE k you 5000"), null());
    assert_eq!(client.say("LOCK.EXTEND k me 5000"), int(token));
    assert_eq!(client.say("LOCK.NODE").field("incarnation"), int(1), "none of the others was an incarnation");
    assert_eq!(server.info("held"), 1);
    // The server reads locks with the data type of the second load.
    assert_eq!(client.say("DEBUG RELOAD"), text("OK"));
    assert_eq!(client.say("LOCK.INFO k").field("token"), int(token));
    // Both file locks are held, also the one on the lock file, which by itself keeps a second server away.
    std::fs::remove_file(&path).unwrap();
    let log = Setup::new().module_arguments(&arguments).refused();
    assert!(log.contains("another server uses the state file"), "{log}");
    assert_eq!(client.say("LOCK.RELEASE k me"), int(0));
}

/// A server whose configuration names the module twice does not start. CONFIG REWRITE writes it into the file beside the
/// command line.
#[test]
fn a_module_that_is_named_twice_says_so() {
    let log = Setup::new().option("loadmodule", module().to_str().unwrap()).refused();
    assert!(log.contains("it is loaded already. Name it once"), "{log}");
}
