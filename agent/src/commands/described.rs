//! The commands, described: `LOCK.HELP` for people, `COMMAND` for client libraries.

use super::command::{Asked, Command, Run, Work, find};
use crate::refused::Refused;
use crate::reply::Reply;
use crate::spec::{Argument, Shape, Spec};

/// Since when they are there.
const SINCE: &str = "0.2.0";

/// What the commands are, for people.
pub const HELP: Command = Command {
    spec: Spec {
        name: "LOCK.HELP",
        summary: "Answers this text.",
        has_key: false,
        writes: false,
        is_open: false,
        arguments: &[],
    },
    run: Run::OfConnection(help),
};

/// What the commands are, for libraries.
pub const COMMAND: Command = Command {
    spec: Spec {
        name: "COMMAND",
        summary: "Describes the commands: COUNT, DOCS, INFO, LIST.",
        has_key: false,
        writes: false,
        is_open: true,
        arguments: &[],
    },
    run: Run::OfConnection(command),
};

fn help(asked: Asked<'_>) -> Result<Work, Refused> {
    let mut lines =
        vec![Reply::text("Locks with fencing tokens, over a quorum of nodes. Times are milliseconds. Commands are:")];
    for Command { spec, .. } in asked.commands.iter().filter(|command| command.spec.name.starts_with("LOCK.")) {
        lines.push(Reply::text(spec.syntax()));
        lines.push(Reply::text(format!("    {}", spec.summary)));
    }
    Ok(Work::Done(Reply::List(lines)))
}

fn command(asked: Asked<'_>) -> Result<Work, Refused> {
    let Some(word) = asked.words.first() else {
        return Ok(Work::Done(Reply::List(asked.commands.iter().map(|command| entry(&command.spec)).collect())));
    };
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let named = || asked.words[1..].iter().map(|name| find(asked.commands, name).map(|n| &asked.commands[n].spec));
    let all = || asked.commands.iter().map(|command| &command.spec);
    let everything = asked.words.len() == 1;
    Ok(Work::Done(match () {
        () if is("COUNT") => Reply::Integer(asked.commands.len() as u64),
        () if is("LIST") => Reply::List(all().map(|spec| Reply::text(spec.name.to_lowercase())).collect()),
        () if is("INFO") && everything => Reply::List(all().map(entry).collect()),
        () if is("INFO") => Reply::List(named().map(|spec| spec.map_or(Reply::Null, entry)).collect()),
        () if is("DOCS") && everything => Reply::Map(all().map(|spec| (spec.name, docs(spec))).collect()),
        () if is("DOCS") => Reply::Map(named().flatten().map(|spec| (spec.name, docs(spec))).collect()),
        () => return Err(Refused::text("ERR unknown subcommand: COMMAND takes COUNT, DOCS, INFO and LIST here")),
    }))
}

/// What COMMAND INFO tells of a command, in its order.
fn entry(spec: &Spec) -> Reply {
    let key = u64::from(spec.has_key);
    let flags: &[&str] = if !spec.has_key {
        &["fast"]
    } else if spec.writes {
        &["write", "fast"]
    } else {
        &["readonly", "fast"]
    };
    let flags = flags.iter().map(|flag| Reply::Word(flag)).collect();
    Reply::List(vec![
        Reply::text(spec.name.to_lowercase()),
        arity(spec),
        Reply::Set(flags),
        Reply::Integer(key),
        Reply::Integer(key),
        Reply::Integer(key),
        Reply::Set(vec![]),
        Reply::List(vec![]),
        Reply::List(vec![]),
        Reply::List(vec![]),
    ])
}

fn arity(spec: &Spec) -> Reply {
    Reply::Signed(spec.arity())
}

/// What COMMAND DOCS tells of a command: a library completes arguments with it.
fn docs(spec: &Spec) -> Reply {
    let mut arguments: Vec<Reply> = spec.arguments.iter().map(argument).collect();
    if spec.has_key {
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
        Shape::Bytes => "string",
        Shape::Integer => "integer",
        Shape::Word => "pure-token",
    };
    described(argument.name, kind, argument.option)
}

fn described(name: &str, kind: &str, option: Option<&str>) -> Reply {
    let mut fields = vec![("name", Reply::text(name)), ("type", Reply::text(kind))];
    if let Some(option) = option {
        fields.push(("token", Reply::text(option)));
        fields.push(("flags", Reply::Set(vec![Reply::Word("optional")])));
    }
    Reply::Map(fields)
}
