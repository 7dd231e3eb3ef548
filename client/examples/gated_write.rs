//! A late write, refused by the server that has the data.
//!
//! Of two holders of one lock, the first is paused for longer than its lease, and then writes.

mod addresses;

use std::error::Error;
use std::time::Duration;

use palisade_client::blocking::Client;
use palisade_client::{GateError, Guard, Options};

const KEY: &str = "invoices";

fn main() -> Result<(), Box<dyn Error>> {
    let nodes = addresses::of_nodes();
    // The server that has the data needs the module, and can be any server. Here it is the first node.
    let mut data = redis::Client::open(&*nodes[0])?.get_connection()?;
    // Two clients stand for two processes. A paused process extends no lease, so extension is off here.
    let (first, second) = (Client::new(&nodes)?, Client::new(&nodes)?);
    let paused = Options::new().ttl(Duration::from_secs(2)).auto_extend(false);

    let early = first.with(&paused).lock(KEY)?;
    write(&mut data, &early, "open")?;
    // Its lease ends, and the second client, which waited in the queue, gets the lock.
    let late = second.lock(KEY)?;
    write(&mut data, &late, "paid")?;
    match write(&mut data, &early, "open") {
        Err(GateError::Fenced { largest }) => println!("refused: the holder of token {largest} was here"),
        other => return Err(format!("a late write came through: {other:?}").into()),
    }
    Ok(())
}

/// Writes through a gate in the server that has the data: the check of the token and the write are one step.
fn write(data: &mut redis::Connection, guard: &Guard, value: &str) -> Result<(), GateError> {
    guard.gate("invoices:gate").cmd("SET").arg("invoice:42").arg(value).exec(data)?;
    println!("token {}: invoice:42 is {value}", guard.token());
    Ok(())
}
