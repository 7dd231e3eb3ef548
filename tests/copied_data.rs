//! A state file is valid only for its own data. It is not valid for a copy of the data or the file, for data that
//! another incarnation has used since, or for an older AOF.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::harness::{
    Server, Setup, assert_guarded, assert_remembers, free_port, held, int, read, state_file, text, wait_until,
};

/// Copies the files of `from` to `to`, except for those that only a running server has.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_file() && entry.file_name() != "log" {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Replaces the server's files with the copy in `from`.
fn restore(from: &Path, server: &Server) {
    for entry in fs::read_dir(server.dir()).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        } else if entry.file_name() != "log" {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    copy(from, server.dir());
}

fn snapshots() -> Setup {
    Setup::new().option("save", "3600 1")
}

/// A node is shut down cleanly, so its state file proves what it granted. The next server in its folder uses another
/// state file, or none. It grants a lock and is killed. When the first node then starts in the folder, its proof does
/// not count, and it is guarded.
#[test]
fn data_that_another_life_used_proves_nothing() {
    let others: [&[&str]; 2] = [&["state-file", "other.state"], &["state-file", ""]];
    for setup in [snapshots, || Setup::new().aof()] {
        for other in others {
            let mut server = setup().start();
            server.client().insist("LOCK.ACQUIRE k me 60000");
            server.client().say("LOCK.RELEASE k me");
            server.shutdown("SAVE");
            server.start_again_with(|setup| setup.module_arguments(other).option("appendfsync", "everysec"));
            server.lift();
            let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
            server.kill();
            server.start_again_with(|setup| setup.module_arguments(&[]).option("appendfsync", "always"));
            assert_guarded(&server, token);
        }
    }
}

/// A state file without a configured name is named after the port, so with another port the server has another file.
/// After a run under another port the first node is guarded.
#[test]
fn data_that_was_used_under_another_port_proves_nothing() {
    let mut server = snapshots().start();
    server.client().insist("LOCK.ACQUIRE k me 60000");
    server.client().say("LOCK.RELEASE k me");
    server.shutdown("SAVE");
    let port = free_port().to_string();
    server.start_again_with(|setup| setup.option("port", &port));
    assert!(server.dir().join(format!("lock-node-{port}.state")).exists());
    server.lift();
    let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
    server.kill();
    server.start_again_with(|setup| setup.option("port", "0"));
    assert_guarded(&server, token);
}

/// A copy made while the node served does not contain its later grants, so a node that starts on it is guarded.
#[test]
fn a_copy_of_a_node_that_served_is_guarded() {
    for setup in [snapshots(), Setup::new().aof()] {
        let backup = tempfile::tempdir().unwrap();
        let mut server = setup.start();
        let id = server.client().say("LOCK.NODE").field("id");
        server.client().insist("LOCK.ACQUIRE before me 60000");
        copy(server.dir(), backup.path());
        let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
        server.kill();
        restore(backup.path(), &server);
        server.start_again();
        assert_guarded(&server, token);
        assert_ne!(server.client().say("LOCK.NODE").field("id"), id, "it is no second node of that name");
    }
}

#[test]
fn a_copy_of_a_node_that_had_ended_in_order_is_guarded_once_that_went_on() {
    for setup in [snapshots(), Setup::new().aof()] {
        let backup = tempfile::tempdir().unwrap();
        let mut server = setup.start();
        server.client().insist("LOCK.ACQUIRE before me 60000");
        server.shutdown("SAVE");
        copy(server.dir(), backup.path());
        server.start_again();
        let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
        server.shutdown("SAVE");
        restore(backup.path(), &server);
        server.start_again();
        assert_guarded(&server, token);
    }
}

/// The state file is the latest, but the AOF is from a backup: as new files, or written over the current ones. The node
/// is guarded.
#[test]
fn an_older_aof_that_was_put_back_is_not_believed() {
    for in_place in [false, true] {
        let backup = tempfile::tempdir().unwrap();
        let mut server = Setup::new().aof().start();
        let aof = server.dir().join("appendonlydir");
        server.client().insist("LOCK.ACQUIRE before me 60000");
        copy(&aof, backup.path());
        let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
        wait_until("the state file knows how long the AOF is", || known_bytes(&server) > length(backup.path()));
        server.kill();
        if !in_place {
            fs::remove_dir_all(&aof).unwrap();
        }
        copy(backup.path(), &aof);
        server.start_again();
        assert_guarded(&server, token);
    }
}

/// Returns the three numbers in the state file's line about the AOF: inode, time of birth, and length in bytes.
fn aof_line(server: &Server) -> Vec<u64> {
    let state = read(state_file(server));
    let line = state.lines().find_map(|line| line.strip_prefix("aof ")).unwrap().to_owned();
    line.split(' ').filter_map(|word| word.parse().ok()).collect()
}

fn known_bytes(server: &Server) -> u64 {
    aof_line(server).get(2).copied().unwrap_or(0)
}

/// Returns the metadata of the AOF's incremental files. The server may remove a file while this reads the folder.
fn increments(folder: &Path) -> Vec<fs::Metadata> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let increments = entries.filter(|entry| entry.file_name().to_string_lossy().contains(".incr."));
    increments.filter_map(|entry| entry.metadata().ok()).collect()
}

fn length(folder: &Path) -> u64 {
    increments(folder).iter().map(fs::Metadata::len).max().unwrap()
}

#[test]
fn an_aof_that_was_rewritten_is_the_nodes_own() {
    let (mut server, token) = held(Setup::new().aof());
    let aof = server.dir().join("appendonlydir");
    for _ in 0..3 {
        server.client().say("BGREWRITEAOF");
        wait_until("the AOF is rewritten, and the state file knows", || {
            let increments = increments(&aof);
            increments.len() == 1 && aof_line(&server).first() == Some(&increments[0].ino())
        });
        server.kill();
        server.start_again();
        assert_remembers(&server, token);
    }
}

#[test]
fn without_its_stamp_data_proves_nothing() {
    let (mut server, token) = held(Setup::new().aof());
    server.kill();
    fs::remove_file(server.dir().join("lock-data.life")).unwrap();
    server.start_again();
    assert_guarded(&server, token);
}

/// A lock was saved while held and ended long ago, and the data file still contains it at every start. Every start
/// proves its memory all the same.
#[test]
fn a_lock_that_had_ended_before_does_not_stand_in_the_way_of_a_proof() {
    let mut server = snapshots().start();
    server.client().insist("LOCK.ACQUIRE ended me 100");
    server.client().say("SAVE");
    wait_until("the lease has ended", || server.client().say("EXISTS ended") == int(0));
    for _ in 0..3 {
        let token = server.client().insist("LOCK.ACQUIRE k me 60000").as_int();
        server.client().say("LOCK.RELEASE k me");
        server.shutdown("NOSAVE");
        server.start_again();
        assert_eq!(server.client().say("LOCK.NODE").field("state"), text("serving"));
        assert!(server.client().insist("LOCK.ACQUIRE k me 60000").as_int() > token);
        server.client().say("LOCK.RELEASE k me");
    }
}
