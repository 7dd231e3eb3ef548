//! `palisade gate`: runs a command through a gate, on the server that has the data.

use std::os::unix::ffi::OsStrExt;

use palisade_client::Why;
use palisade_client::direct::Server;
use redis::{Cmd, Value, cmd};
use serde_json::{Value as Json, json};

use crate::arguments::Gate;
use crate::exit::{End, Failure, LOST, NO_QUORUM, USAGE};
use crate::node_failure::{advice, is_silent, words};
use crate::nodes::{Nodes, ServerAnswer};
use crate::show::print;

/// Runs the command if the token passes, and prints its reply.
///
/// # Errors
/// A newer holder has passed the gate; the server refuses, or cannot be reached; --nodes is not a single server.
pub async fn run(nodes: &Nodes, gate: &Gate, as_json: bool) -> Result<End, Failure> {
    let server = the_server(nodes).await?;
    let mut link = server.reach().await.map_err(|why| failure(&server, &why))?;
    let reply = link.ask(&command(gate)).await.map_err(|why| failure(&server, &why).about(gate.name.as_bytes()))?;
    print(as_json, &in_json(&reply), || in_lines(&reply))?;
    Ok(End::OK)
}

/// Connects to the server that has the data.
async fn the_server(nodes: &Nodes) -> Result<Server, Failure> {
    let servers = nodes.servers().await;
    match <[ServerAnswer<Server>; 1]>::try_from(servers) {
        Ok([ServerAnswer { said: Ok(server), .. }]) => Ok(server),
        Ok([ServerAnswer { server, said: Err(why), .. }]) => {
            Err(Failure::new(NO_QUORUM, format!("{server}: {}", words(&why))))
        }
        Err(_) => Err(Failure::usage("a gate is on the server that has the data: name that one alone, with --nodes")),
    }
}

fn command(gate: &Gate) -> Cmd {
    let mut command = cmd("LOCK.GATE");
    command.arg(gate.name.as_bytes()).arg(gate.token);
    if gate.shared {
        command.arg("SHARED");
    }
    if let Some(number) = gate.permit {
        command.arg("PERMIT").arg(number);
    }
    if gate.held {
        command.arg("HELD");
    }
    if !gate.command.is_empty() {
        command.arg("COMMAND");
        gate.command.iter().for_each(|word| {
            command.arg(word.as_bytes());
        });
    }
    command
}

/// Returns the failure for a server's error. It may be an error of LOCK.GATE, or of the command that runs behind the
/// gate.
fn failure(server: &Server, why: &Why) -> Failure {
    let code = match why.code() {
        Some("FENCED" | "NOTHELD") => LOST,
        _ if is_silent(why) => NO_QUORUM,
        _ => USAGE,
    };
    let text = match why.code() {
        // The error can be about the gate or about the data.
        Some("WRONGTYPE") => why.to_string(),
        _ => words(why),
    };
    let advice = if is_silent(why) { format!("; {}", advice(why)) } else { String::new() };
    Failure::new(code, format!("{}: {text}{advice}", server.name()))
}

/// Returns a reply as lines: nothing for Null, each element of a list on its own line.
fn in_lines(reply: &Value) -> String {
    match reply {
        Value::Nil => String::new(),
        Value::Array(all) | Value::Set(all) => all.iter().map(in_lines).collect(),
        Value::Map(pairs) => pairs.iter().map(|(key, value)| in_lines(key) + &in_lines(value)).collect(),
        other => match in_json(other) {
            Json::String(text) => text + "\n",
            plain => format!("{plain}\n"),
        },
    }
}

/// Returns a reply as JSON: a map as a list of pairs, bytes that are not UTF-8 with the replacement character.
fn in_json(reply: &Value) -> Json {
    match reply {
        Value::Int(number) => json!(number),
        Value::Double(number) => json!(number),
        Value::Boolean(truth) => json!(truth),
        Value::BulkString(bytes) => json!(String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => json!(text),
        Value::Okay => json!("OK"),
        Value::Array(all) | Value::Set(all) => all.iter().map(in_json).collect(),
        Value::Map(pairs) => pairs.iter().map(|(key, value)| json!([in_json(key), in_json(value)])).collect(),
        // Commands with keys have no other replies.
        _ => Json::Null,
    }
}
