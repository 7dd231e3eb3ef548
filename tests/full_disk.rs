//! A disk without a free byte, under each setting of the AOF, as docs/operations.md describes it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::NamedTempFile;

use crate::harness::{Server, Setup, int, not_here, null, wait_until};

/// A small file system in memory, mounted over a server's folder; it is unmounted when this is dropped.
struct Disk(PathBuf);

impl Disk {
    /// Mounts a file system over `folder`; `None` if mounting is not permitted here.
    fn under(folder: &Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(folder).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(folder.to_owned()))
    }

    fn fill(&self) {
        let mut filler = File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

/// Returns a server whose disk has become full after the lock `held` was granted. It logs to this file on another disk.
fn on_a_full_disk(fsync: &str, log: &Path) -> Option<(Server, Disk)> {
    let log = log.to_str().unwrap();
    let mut server = Setup::new().aof().option("appendfsync", fsync).option("logfile", log).start();
    server.kill();
    let Some(disk) = Disk::under(server.dir()) else {
        not_here("mounting is not permitted");
        return None;
    };
    server.start_again();
    server.lift();
    server.client().insist("LOCK.ACQUIRE held me 60000");
    disk.fill();
    Some((server, disk))
}

/// With `always`, the server cannot undo a write that failed, and ends. It has lost nothing that it had answered.
#[test]
fn a_server_that_writes_each_grant_ends() {
    let log = NamedTempFile::new().unwrap();
    let Some((mut server, disk)) = on_a_full_disk("always", log.path()) else { return };
    let mut granted = vec![];
    let mut client = server.client();
    for n in 0.. {
        let Some(token) = client.try_say(&format!("LOCK.ACQUIRE k{n} me 60000")) else { break };
        granted.push((n, token));
    }
    server.wait_ended();
    let said = fs::read_to_string(log.path()).unwrap();
    assert!(said.contains("Can't recover from AOF write error"), "{said}");
    disk.empty();
    server.start_again();
    let mut client = server.client();
    assert_eq!(
        client.say("LOCK.NODE").field("state").as_text(),
        "serving",
        "it remembers all of it, so it needs no guard"
    );
    for (n, token) in granted {
        assert_eq!(client.say(&format!("LOCK.INFO k{n}")).field("token"), token);
    }
    assert_eq!(client.say("LOCK.ACQUIRE held you 60000"), null());
    assert_eq!(client.say("LOCK.RELEASE held me"), int(0));
}

/// With `everysec` the server continues, refuses all writes, and accepts them again once there is room.
#[test]
fn a_server_that_writes_every_second_refuses() {
    let log = NamedTempFile::new().unwrap();
    let Some((server, disk)) = on_a_full_disk("everysec", log.path()) else { return };
    let mut client = server.client();
    let mut n = 0;
    wait_until("nothing is granted any more", || {
        n += 1;
        client.say(&format!("LOCK.ACQUIRE k{n} me 60000")).is_error("MISCONF")
    });
    for line in ["LOCK.RELEASE held me", "LOCK.EXTEND held me 60000"] {
        assert!(client.say(line).is_error("MISCONF"), "{line}");
    }
    disk.empty();
    wait_until("it writes again", || !client.say("LOCK.EXTEND held me 60000").is_error("MISCONF"));
    assert_eq!(client.say("LOCK.RELEASE held me"), int(0));
}
