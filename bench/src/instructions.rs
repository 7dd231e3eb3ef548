//! The number of instructions that the server's process executes per operation, counted by valgrind's callgrind: the
//! same on a busy machine as on an idle one. The kernel's work is left out.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::raw::Raw;
use crate::results::{Cell, Outcome, Run, Table};
use crate::server::{Server, with_floor};
use crate::server_cost::AOF_EVERYSEC;
use crate::workloads::{
    EXTEND, FLOOR, OURS, OURS_WITH_FENCE, PINGS, PIPELINED, REENTER, SCRIPTED, SET_AND_DEL, Workload,
};

/// The operations whose instructions are counted a second time, on a server with the AOF on.
const WITH_AOF: [&str; 7] = [FLOOR, SET_AND_DEL, SCRIPTED, OURS, OURS_WITH_FENCE, EXTEND, REENTER];

#[derive(clap::Args)]
pub struct Options {
    /// The number of servers, started one after the other: each start lays out its hash tables at random.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    servers: u32,

    /// The number of counts of each operation on each server.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    counts: u32,

    /// The number of pipelines, of 32 commands, in one count.
    #[arg(long, default_value_t = 40)]
    pipelines: usize,

    /// Counts only the operations whose names contain this.
    #[arg(long)]
    only: Option<String>,

    /// Set this parameter before counting, for example "lock.events yes", to find its cost. Several are set one after
    /// the other.
    #[arg(long)]
    set: Vec<String>,

    /// Compare with the run of the same server in this folder.
    #[arg(long)]
    pub against: Option<PathBuf>,

    /// Keep callgrind's files in this folder, for callgrind_annotate.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Returns valgrind with its version, or the reason why it is unknown.
pub fn version_of_valgrind() -> Result<String, String> {
    let output = Command::new("valgrind").arg("--version").output();
    let output = output.map_err(|why| format!("valgrind cannot be started: {why}. `make instructions` installs it"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().replace('-', " "))
}

pub fn run(server: &Path, module: &Path, options: &Options) -> Outcome {
    let plain = Counts::of(server, module, &[], |_| true, options);
    let with_aof = Counts::of(server, module, AOF_EVERYSEC, |name| WITH_AOF.contains(&name), options);
    let mut table = Table::new("instructions", "Instructions of the server's process")
        .words("operation")
        .numbers("instructions", "an operation", 0)
        .numbers("beside two PINGs", "times", 2)
        .numbers("beside a module value", "times", 2);
    plain.rows(&mut table, [PINGS, FLOOR]);
    table
        .note(format!("Commands come {PIPELINED} at a time, so they share the reading and writing of the connection."));
    table.note(format!(
        "The lowest of {} counts of {} commands on each of {} servers: without housekeeping, and with a favourable \
         layout of the server's hash tables.",
        options.counts,
        options.pipelines * PIPELINED,
        options.servers
    ));
    table.note("The kernel's part is not counted; an instruction that misses the cache counts as any other.");
    let mut aof = Table::new("instructions-aof", "The same with the AOF, written every second")
        .words("operation")
        .numbers("instructions", "an operation", 0)
        .numbers("beside SET + DEL", "times", 2)
        .numbers("beside a module value", "times", 2);
    with_aof.rows(&mut aof, [SET_AND_DEL, FLOOR]);
    Outcome { title: "Instruction counts".to_owned(), tables: vec![table, aof], ..Outcome::default() }
}

/// The lowest count of each operation.
struct Counts(Vec<(&'static str, f64)>);

impl Counts {
    /// Counts the operations for which `is_wanted` is true, on servers with `settings`.
    fn of(
        server: &Path,
        module: &Path,
        settings: &[&str],
        is_wanted: impl Fn(&str) -> bool,
        options: &Options,
    ) -> Self {
        let mut least: Vec<(&'static str, f64)> = Vec::new();
        // The module of the floor is only on servers of its own: beside another module, which may listen to key events,
        // Palisade's module tells the server of every event.
        for (n, has_floor) in (1..=options.servers).flat_map(|n| [(n, true), (n, false)]) {
            let callgrind = Callgrind::start(server, module, has_floor, settings);
            let mut connection = Raw::connect(callgrind.server.port());
            for set in &options.set {
                let answer = connection.ask(&format!("CONFIG SET {set}"));
                assert_eq!(answer, redis::Value::Okay, "CONFIG SET {set}");
            }
            for workload in Workload::all_on(&mut connection) {
                let is_left_out = options.only.as_ref().is_some_and(|part| !workload.name.contains(part.as_str()));
                if is_left_out || !is_wanted(workload.name) || (workload.name == FLOOR) != has_floor {
                    continue;
                }
                eprintln!("instructions: server {n} of {} {settings:?}, {}", options.servers, workload.name);
                let count = callgrind.count(&mut connection, workload, settings, options);
                match least.iter_mut().find(|(name, _)| *name == workload.name) {
                    Some((_, least)) => *least = least.min(count),
                    None => least.push((workload.name, count)),
                }
            }
        }
        Self(least)
    }

    /// Adds a row for each operation, with its count as a multiple of the counts of both `peers`.
    fn rows(&self, table: &mut Table, peers: [&str; 2]) {
        for (name, count) in &self.0 {
            let beside =
                |peer: &str| self.0.iter().find(|(name, _)| *name == peer).map(|(_, peer)| count / peer).into();
            let [one, other] = peers.map(beside);
            table.row([(*name).into(), count.round().into(), one, other]);
        }
    }
}

/// Returns a table that compares the counts of `run` with those of `before`.
pub fn compare(run: &Run, before: &Run) -> Table {
    let title = format!("Against {}, {}", before.palisade, before.date);
    let mut differences = Table::new("differences", title)
        .words("operation")
        .numbers("recorded", "instructions", 0)
        .numbers("now", "instructions", 0)
        .numbers("difference", "%", 1);
    for (n, table) in run.outcome.tables.iter().enumerate() {
        let recorded = before.outcome.tables.iter().find(|recorded| recorded.name == table.name);
        let recorded = recorded.map(|recorded| &recorded.rows[..]).unwrap_or_default();
        for row in &table.rows {
            let [Cell::Text(name), Cell::Number(now), ..] = &row[..] else { continue };
            let before = recorded.iter().find_map(|row| match &row[..] {
                [Cell::Text(same), Cell::Number(count), ..] if same == name => Some(*count),
                _ => None,
            });
            let difference = before.map(|before| (now / before - 1.0) * 100.0);
            let name = if n == 0 { name.clone() } else { format!("{name}, AOF") };
            differences.row([name.as_str().into(), before.into(), (*now).into(), difference.into()]);
        }
    }
    differences
}

/// A server under callgrind, which is controlled over its own channel.
struct Callgrind {
    server: Server,
    folder: TempDir,
}

impl Callgrind {
    fn start(server: &Path, module: &Path, has_floor: bool, settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let wrapper = [
            "valgrind".to_owned(),
            "--tool=callgrind".to_owned(),
            format!("--callgrind-out-file={}", folder.path().join("out").display()),
            format!("--vgdb-prefix={}", folder.path().join("vgdb").display()),
        ];
        // Housekeeping is as rare as possible, once a second, because it is not part of an operation.
        let floor = with_floor(module);
        let floor: Vec<&str> = floor.iter().filter(|_| has_floor).map(String::as_str).collect();
        let settings = [&["--hz", "1"], &floor[..], settings].concat();
        let server = Server::start_as(&wrapper, server, module, &settings);
        Self { server, folder }
    }

    /// Returns the instructions of one operation.
    fn count(&self, connection: &mut Raw, workload: &Workload, settings: &[&str], options: &Options) -> f64 {
        let mut pipeline = workload.prepare(connection, 0);
        let mut repeat = |times| {
            for _ in 0..times {
                pipeline.send(connection);
                pipeline.finish(connection);
            }
        };
        // One-time allocations and lookups happen before the count.
        repeat(20);
        let mut count = || {
            self.tell("zero");
            repeat(options.pipelines);
            let file = self.dump();
            (total_of(&file), file)
        };
        let (least, file) = (0..options.counts).map(|_| count()).min().expect("counted at least once");
        if let Some(folder) = &options.keep {
            let name: String = workload.name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
            std::fs::create_dir_all(folder).unwrap();
            let aof = if settings.is_empty() { "" } else { "-aof" };
            std::fs::copy(file, folder.join(format!("callgrind.out.{name}{aof}"))).unwrap();
        }
        let operations = options.pipelines * pipeline.operations;
        pipeline.clean(connection);
        least as f64 / operations as f64
    }

    fn tell(&self, what: &str) {
        let status = Command::new("vgdb")
            .arg(format!("--vgdb-prefix={}", self.folder.path().join("vgdb").display()))
            .arg(format!("--pid={}", self.server.pid()))
            .arg(what)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("vgdb comes with valgrind").success(), "callgrind did not take {what:?}");
    }

    /// Makes callgrind write the counts. Returns the file.
    fn dump(&self) -> PathBuf {
        self.tell("dump");
        let files = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let number = |path: &PathBuf| path.extension().and_then(|number| number.to_str()?.parse::<u32>().ok());
        files.filter(|path| number(path).is_some()).max_by_key(number).expect("callgrind wrote its counts")
    }
}

/// Returns all instructions in a file of callgrind.
pub fn total_of(file: &Path) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    total.unwrap_or_else(|| panic!("{} has no total", file.display())).trim().parse().unwrap()
}
