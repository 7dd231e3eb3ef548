//! A late write, refused by the database because the statement itself compares fencing tokens.
//!
//! Of two holders of one lock, the first checks its lock, is paused for longer than its lease, and then writes.

mod addresses;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use palisade_client::Options;
// SQLite blocks, so its users can block too.
use palisade_client::blocking::Client;
use rusqlite::{Connection, params};

const KEY: &str = "report:monday";

/// The statement that writes a row. The row keeps its token, and accepts no smaller one. A single statement does both,
/// so nothing comes between the comparison and the write.
const WRITE: &str = "
    INSERT INTO report (day, total, token) VALUES ('monday', ?1, ?2)
    ON CONFLICT (day) DO UPDATE SET total = excluded.total, token = excluded.token
    WHERE report.token <= excluded.token";

fn main() -> ExitCode {
    let nodes = addresses::of_nodes();
    match run(&nodes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(nodes: &[String]) -> Result<(), Box<dyn Error>> {
    let file = tempfile::NamedTempFile::new()?;
    let database = Connection::open(file.path())?;
    database.execute("CREATE TABLE report (day TEXT PRIMARY KEY, total INTEGER, token INTEGER NOT NULL)", ())?;

    // Two clients stand for two processes.
    let (first, second) = (Client::new(nodes)?, Client::new(nodes)?);

    // The first client acquires the lock. A paused process extends no lease, so extension is off here.
    let options = Options::new().ttl(Duration::from_secs(2)).auto_extend(false);
    let early = first.with(&options).lock(KEY)?;
    let early_token = early.token();
    println!("first:  token {early_token}, the lock is valid for {} ms", early.valid_for().as_millis());
    write(&database, 100, early_token)?;

    // The first client checks once more before its next write, and the lock is valid.
    println!("first:  is_valid() is {}, so it goes on to write; now it is paused", early.is_valid());

    // Its lease ends, and the second client, which waited in the queue, gets the lock.
    let late = second.with(&options).lock(KEY)?;
    println!("second: token {}", late.token());
    write(&database, 200, late.token())?;

    // The first client resumes after its check. Nothing on its side can stop this write.
    println!("first:  wakes up, and writes with token {early_token}");
    let written = write(&database, 101, early_token)?;

    let total: i64 = database.query_row("SELECT total FROM report", (), |row| row.get(0))?;
    println!("The total is {total}, as the second wrote it.");
    println!("The lock of the first: {:?}; of the second: {:?}", early.release(), late.release());
    if written || total != 200 { Err("an old token overwrote a newer one".into()) } else { Ok(()) }
}

/// Writes unless a larger token was used before. Returns whether it wrote.
fn write(database: &Connection, total: i64, token: u64) -> Result<bool, Box<dyn Error>> {
    // Tokens are below 2^53.
    let written = database.execute(WRITE, params![total, i64::try_from(token)?])? == 1;
    let outcome = if written { "written" } else { "REFUSED, a larger token has been here" };
    println!("  database: total {total} with token {token}: {outcome}");
    Ok(written)
}
