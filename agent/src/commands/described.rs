//! Descriptions of the commands: `LOCK.HELP` for people, `COMMAND` for client libraries.

use palisade_quorum::grammar::{Argument, Shape};
use palisade_quorum::request;

use super::command::{Command, Invocation, Run, Work, find};
use crate::refused::Refused;
use crate::reply::Reply;

/// The version of the agent in which the commands first appeared.
const SINCE: &str = "1.0.0";

/// LOCK.HELP: describes the commands for people.
pub const HELP: Command =
    Command { spec: request::Help::SPEC, of_nodes: &[], is_open: false, run: Run::OfConnection(help) };

/// COMMAND: describes the commands for client libraries.
pub const COMMAND: Command =
    Command::of_connection("COMMAND", "Describes the commands: COUNT, DOCS, INFO, LIST.", command);

fn help(asked: Invocation<'_>) -> Result<Work, Refused> {
    let mut lines =
        vec![Reply::text("Locks with fencing tokens, over a quorum of nodes. Times are milliseconds. Commands are:")];
    for command in asked.commands.iter().filter(|command| command.spec.name.starts_with("LOCK.")) {
        lines.push(Reply::text(command.spec.syntax(command.arguments())));
        lines.push(Reply::text(format!("    {}", command.spec.summary)));
    }
    Ok(Work::Done(Reply::List(lines)))
}

fn command(asked: Invocation<'_>) -> Result<Work, Refused> {
    let Some(word) = asked.words.first() else {
        return Ok(Work::Done(Reply::List(asked.commands.iter().map(entry).collect())));
    };
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let named = || asked.words[1..].iter().map(|name| find(asked.commands, name).map(|n| &asked.commands[n]));
    let all = || asked.commands.iter();
    let everything = asked.words.len() == 1;
    Ok(Work::Done(match () {
        () if is("COUNT") => Reply::Integer(asked.commands.len() as u64),
        () if is("LIST") => Reply::List(all().map(|command| Reply::text(command.spec.name.to_lowercase())).collect()),
        () if is("INFO") && everything => Reply::List(all().map(entry).collect()),
        () if is("INFO") => Reply::List(named().map(|command| command.map_or(Reply::Null, entry)).collect()),
        () if is("DOCS") && everything => Reply::Map(all().map(|command| (command.spec.name, docs(command))).collect()),
        () if is("DOCS") => Reply::Map(named().flatten().map(|command| (command.spec.name, docs(command))).collect()),
        () => return Err(Refused::text("ERR unknown subcommand: COMMAND takes COUNT, DOCS, INFO and LIST here")),
    }))
}

/// Returns a command's entry in COMMAND INFO; the fields have the order that servers use.
fn entry(command: &Command) -> Reply {
    let spec = &command.spec;
    let key = u64::from(spec.key.is_some());
    // The agent has no use for the other flags, which are about a server's memory and state.
    let flags = spec.flags.split(' ').filter(|flag| ["write", "readonly", "fast"].contains(flag)).map(Reply::Word);
    Reply::List(vec![
        Reply::text(spec.name.to_lowercase()),
        Reply::Signed(command.arity()),
        Reply::Set(flags.collect()),
        Reply::Integer(key),
        Reply::Integer(key),
        Reply::Integer(key),
        Reply::Set(vec![]),
        Reply::List(vec![]),
        Reply::List(vec![]),
        Reply::List(vec![]),
    ])
}

/// Returns a command's entry in COMMAND DOCS, from which libraries complete arguments.
fn docs(command: &Command) -> Reply {
    let spec = &command.spec;
    let mut arguments: Vec<Reply> = command.arguments().map(argument).collect();
    if spec.key.is_some() {
        arguments.insert(0, described("key", "key", None));
    }
    let mut fields = vec![
        ("summary", Reply::text(spec.summary)),
        ("since", Reply::text(SINCE)),
        ("group", Reply::text("module")),
        ("complexity", Reply::text("O(1)")),
    ];
    if !arguments.is_empty() {
        fields.push(("arguments", Reply::List(arguments)));
    }
    Reply::Map(fields)
}

fn argument(argument: &Argument) -> Reply {
    let kind = match argument.shape {
        Shape::Bytes | Shape::Command => "string",
        Shape::Integer => "integer",
        Shape::Word => "pure-token",
    };
    described(&argument.documented(), kind, argument.option)
}

fn described(name: &str, kind: &str, option: Option<&str>) -> Reply {
    let mut fields = vec![("name", Reply::text(name)), ("type", Reply::text(kind))];
    if let Some(option) = option {
        fields.push(("token", Reply::text(option)));
        fields.push(("flags", Reply::Set(vec![Reply::Word("optional")])));
    }
    Reply::Map(fields)
}
