//! A write that comes too late is refused by the database, since the statement itself compares fencing tokens.
//!
//! Two holders of one lock: the first looks at its lock, is paused for longer than its lease, and then writes.

mod addresses;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use palisade_client::Options;
// SQLite blocks, so its users can as well.
use palisade_client::blocking::Client;
use rusqlite::{Connection, params};

const KEY: &str = "report:monday";

/// A row keeps the token that it was written with, and takes no smaller one. It is one statement, so nothing comes
/// between the comparison and the write.
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

    // Two clients, as in two processes.
    let (first, second) = (Client::new(nodes)?, Client::new(nodes)?);

    // The first takes the lock. A process that is paused extends nothing, so this one does not either.
    let options = Options::new().ttl(Duration::from_secs(2)).auto_extend(false);
    let early = first.with(&options).lock(KEY)?;
    let early_token = early.token();
    println!("first:  token {early_token}, the lock is valid for {} ms", early.valid_for().as_millis());
    write(&database, 100, early_token)?;

    // It looks once more before its next write, and the lock is valid.
    println!("first:  is_valid() is {}, so it goes on to write; now it is paused", early.is_valid());

    // Its lease ends, and the second, which waited in the queue, has the lock.
    let late = second.with(&options).lock(KEY)?;
    println!("second: token {}", late.token());
    write(&database, 200, late.token())?;

    // The first wakes up behind its check. Nothing on its side can stop this write.
    println!("first:  wakes up, and writes with token {early_token}");
    let written = write(&database, 101, early_token)?;

    let total: i64 = database.query_row("SELECT total FROM report", (), |row| row.get(0))?;
    println!("The total is {total}, as the second wrote it.");
    println!("The lock of the first: {:?}; of the second: {:?}", early.release(), late.release());
    if written || total != 200 { Err("an old token overwrote a newer one".into()) } else { Ok(()) }
}

/// Writes, if no larger token has been there before; whether it did.
fn write(database: &Connection, total: i64, token: u64) -> Result<bool, Box<dyn Error>> {
    // Tokens are below 2^53.
    let written = database.execute(WRITE, params![total, i64::try_from(token)?])? == 1;
    let outcome = if written { "written" } else { "REFUSED, a larger token has been here" };
    println!("  database: total {total} with token {token}: {outcome}");
    Ok(written)
}
