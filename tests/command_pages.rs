//! docs/commands: the page of each command has the server's description, the exact errors, and examples that run as
//! shown. docs/errors.md has all errors. `documented.rs` checks which pages exist.

use std::fs;
use std::path::PathBuf;

use palisade_core::{Cause, GateRefusal, Refusal};

use crate::descriptions::{has_categories, typed};
use crate::harness::{Client, Reply, Server, error, text};

/// The placeholder for a part that varies between uses of one text.
const ANY: &str = "…";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/commands")
}

/// Returns every page under its command's name; the index under README.
pub fn pages() -> Vec<(String, String)> {
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let mut pages: Vec<_> = files
        .map(|path| {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let name = if stem == "README" { stem } else { format!("LOCK.{}", stem.to_uppercase()) };
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    pages.sort();
    pages
}

/// Returns the rest of each line that begins with `start`.
fn after<'a>(page: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    page.lines().filter_map(move |line| line.strip_prefix(start))
}

/// Returns the words of a list on a page.
pub fn words(list: &str) -> Vec<String> {
    let mut words: Vec<_> = list.split(", ").filter(|word| *word != "none").map(str::to_owned).collect();
    words.sort();
    words
}

/// Returns the words of a list in an answer.
pub fn told(list: &Reply) -> Vec<String> {
    let mut words: Vec<_> = list.as_list().iter().map(Reply::as_text).collect();
    words.sort();
    words
}

/// Returns the value of `- NAME: value`.
#[track_caller]
pub fn fact<'a>(page: &'a str, name: &str) -> &'a str {
    let start = format!("- {name}: ");
    let found = page.lines().find_map(|line| line.strip_prefix(&start));
    found.unwrap_or_else(|| panic!("no {name} in the page:\n{page}"))
}

#[test]
fn pages_say_what_the_server_tells() {
    let server = Server::start();
    let mut client = server.client();
    let has_categories = has_categories(&mut client);
    for (name, page) in pages().into_iter().filter(|(name, _)| name != "README") {
        let docs = client.say(&format!("COMMAND DOCS {name}")).as_list()[1].clone();
        let info = client.say(&format!("COMMAND INFO {name}")).as_list()[0].as_list();
        assert_eq!(page.lines().next(), Some(format!("# {name}").as_str()));
        assert_eq!(page.lines().nth(2), Some(docs.field("summary").as_text().as_str()), "{name}");
        let arguments =
            docs.as_list().chunks(2).find(|pair| pair[0] == text("arguments")).map(|pair| pair[1].as_list());
        let arguments: Vec<_> = arguments.unwrap_or_default().iter().map(typed).collect();
        let synopsis = format!("    {name} {}", arguments.join(" "));
        assert_eq!(page.lines().nth(4), Some(synopsis.trim_end()));
        let rows = page.split("\n## Arguments\n").nth(1).unwrap_or_default().split("\n## ").next().unwrap();
        let explained: Vec<_> = after(rows, "| `").filter_map(|row| row.split('`').next()).collect();
        let named: Vec<_> = arguments.iter().map(|argument| argument.trim_matches(['[', ']'])).collect();
        assert_eq!(explained, named, "{name} explains its arguments, in their order");
        if arguments.iter().any(|argument| argument.starts_with('[')) {
            let refused = error(ask(&mut client, &with_an_unknown_option(&name, &arguments)));
            assert!(refused.starts_with("ERR unknown option"), "{name}: {refused}");
            assert!(page.contains(&format!("- `{refused}`")), "{name} lacks: {refused}");
        }
        assert_eq!(fact(&page, "Since"), docs.field("since").as_text(), "{name}");
        assert_eq!(fact(&page, "Complexity"), docs.field("complexity").as_text(), "{name}");
        assert_eq!(fact(&page, "Arity"), info[1].as_int().to_string(), "{name}");
        let mut flags = told(&info[2]);
        flags.retain(|flag| flag != "module");
        assert_eq!(words(fact(&page, "Flags")), flags, "{name}");
        let key = info[8].as_list().first().map(|spec| told(&spec.field("flags"))).unwrap_or_default();
        assert_eq!(words(fact(&page, "Key")), key, "{name}");
        if has_categories {
            assert_eq!(words(fact(&page, "ACL categories")), told(&info[6]), "{name}");
        }
        assert!(!fact(&page, "Replicated as").is_empty());
    }
}

/// Returns the command with valid required arguments and an unknown option.
fn with_an_unknown_option(name: &str, arguments: &[String]) -> String {
    let required = arguments.iter().filter(|argument| !argument.starts_with('['));
    let values = required.map(|argument| match argument.as_str() {
        "ttl" | "ms" | "version" => "1000",
        "mode" => "SHARED",
        "token" => "5",
        _ => "x",
    });
    format!("{name} {} NOSUCH", values.collect::<Vec<_>>().join(" "))
}

/// Returns every refusal, with [`ANY`] where its text contains variable words.
fn refusals() -> Vec<Refusal> {
    use GateRefusal::{
        CommandForbidden, CommandWords, Fenced, GateIsKey, InTransaction, IsGate, IsLock, Keep, KeyForbidden,
        LockCommand, NoKey, NotHeld, OtherSlot, Permit, SlotMoves, UnknownCommand,
    };
    use Refusal::*;
    // A new refusal does not compile until it is listed here. It has to be added to the list below, too.
    let _ = |refusal: Refusal| match refusal {
        Owned | Suspect { .. } | Guarded { .. } | SlotGuarded { .. } | Evicted { .. } | NotYet | QueueFull { .. } => {}
        BytesFull { .. } | ShareTaken { .. } | OutOfMemory => {}
        Patience
        | Ticket
        | ListedWaiters
        | FenceTooFar { .. }
        | Floor { .. }
        | GuardLength
        | WrongType
        | MasterOnly => {}
        Forbidden | Panicked | Poisoned | OwnerLength | NoteLength { .. } | NoteSequence | NotesExhausted => {}
        OwnerQueueFull
        | Ttl { .. }
        | Token { .. }
        | KnownToken
        | Level
        | KeepAlive
        | KeepAliveFull
        | NoConnection
        | BreaksTooMany
        | BreakCutShort
        | BreakGoesOn => {}
        NoListener | ListenerTaken | ListenerName | ListensNowhere => {}
        HoldsExhausted | TokensExhausted | UnknownOption { .. } | Excludes { .. } | Needs { .. } | Conversion => {}
        Limit | PermitNumber | HoldersExhausted | ListedHolders | ListedEntries | Behind => {}
        OldMembers { .. } | NotMember | Outbid | Unsettled { .. } | MembersApart | Members => {}
        MembersVersion { .. } => {}
        Ballot | NothingJoins | MembersForm => {}
        RepeatedOption { .. } | MissingValue { .. } | Internal | BadRecord(_) => {}
        Gate(of_a_gate) => match of_a_gate {
            Fenced { .. } | NotHeld | IsLock | IsGate | Permit | Keep | GateRefusal::OutOfMemory | InTransaction => {}
            UnknownCommand | CommandWords | NoKey | GateIsKey | LockCommand | CommandForbidden => {}
            KeyForbidden | OtherSlot | SlotMoves => {}
        },
    };
    let (left_ms, max_ms) = (1000, 60_000);
    let (queue_full, known, name) = (QueueFull { max: 65_536 }, ANY, ANY);
    vec![
        Owned,
        Suspect { left_ms },
        Guarded { left_ms, cause: Cause::Restart },
        SlotGuarded { left_ms },
        Evicted { left_ms },
        NotYet,
        queue_full,
        BytesFull { max: 268_435_456 },
        ShareTaken { parameter: "lock.max-waiters" },
        OutOfMemory,
        OwnerQueueFull,
        Patience,
        KeepAlive,
        KeepAliveFull,
        NoConnection,
        BreaksTooMany,
        BreakCutShort,
        BreakGoesOn,
        NoListener,
        ListenerTaken,
        ListenerName,
        ListensNowhere,
        Ticket,
        ListedWaiters,
        FenceTooFar { max: 1_826_770_601_882_918 },
        Floor { option: "RAISE" },
        Floor { option: "FLOOR" },
        GuardLength,
        WrongType,
        MasterOnly,
        Forbidden,
        Panicked,
        Poisoned,
        OwnerLength,
        NoteLength { argument: "NOTE" },
        NoteLength { argument: "text" },
        NoteSequence,
        NotesExhausted,
        Ttl { max_ms },
        KnownToken,
        Token { argument: "token" },
        Token { argument: "TOKEN" },
        Token { argument: "FENCE" },
        Level,
        HoldsExhausted,
        TokensExhausted,
        Gate(Fenced { largest: 1_795_234_601_882_918 }),
        Gate(NotHeld),
        Gate(IsLock),
        Gate(IsGate),
        Gate(Permit),
        Gate(Keep),
        Gate(GateRefusal::OutOfMemory),
        Gate(InTransaction),
        Gate(UnknownCommand),
        Gate(CommandWords),
        Gate(NoKey),
        Gate(GateIsKey),
        Gate(LockCommand),
        Gate(CommandForbidden),
        Gate(KeyForbidden),
        Gate(OtherSlot),
        Gate(SlotMoves),
        Excludes { options: "SHARED and PERMIT" },
        Excludes { options: "HELD and KEEP" },
        Excludes { options: "SHARED and LIMIT" },
        Excludes { options: "RESET and KEY" },
        Excludes { options: "RESET and COUNT" },
        Needs { option: "PERMIT", needs: "LIMIT" },
        Needs { option: "BEHIND", needs: "WAIT" },
        Needs { option: "SEQ", needs: "TOKEN" },
        Conversion,
        Limit,
        PermitNumber,
        HoldersExhausted,
        ListedHolders,
        ListedEntries,
        Behind,
        OldMembers { version: 17 },
        NotMember,
        Outbid,
        Unsettled { left_ms },
        MembersApart,
        Members,
        MembersVersion { argument: "version" },
        MembersVersion { argument: "JOIN" },
        Ballot,
        NothingJoins,
        MembersForm,
        UnknownOption { known },
        RepeatedOption { name },
        MissingValue { name },
        Internal,
    ]
}

/// Returns the texts of all refusals.
pub fn error_texts() -> Vec<String> {
    let mut texts: Vec<_> = refusals().iter().map(Refusal::to_string).collect();
    texts.push(format!("ERR not a lock record: {ANY}"));
    texts
}

#[test]
fn the_errors_of_the_pages_are_those_that_there_are() {
    let texts = error_texts();
    let pages = pages();
    let errors: Vec<_> = pages
        .iter()
        .flat_map(|(name, page)| after(page, "- `").map(move |line| (name, line)))
        .filter(|(_, line)| line.chars().take_while(|c| c.is_ascii_uppercase()).count() > 2)
        .map(|(name, line)| (name, line.split('`').next().unwrap()))
        .collect();
    for (name, error) in &errors {
        assert!(texts.iter().any(|text| fits(error, text)), "{name}: there is no error {error}");
    }
}

/// Each error text is in docs/errors.md, where a reader finds what to do.
#[test]
fn the_page_of_errors_has_each_and_no_others() {
    let page = fs::read_to_string(folder().with_file_name("errors.md")).unwrap();
    // The errors of an agent come last on the page; agent/src/refused.rs checks them.
    let (page, _) = page.split_once("\n## Errors of an agent\n").expect("a section of them");
    let rows = after(page, "| `").filter(|row| row.starts_with("ERR "));
    let errors: Vec<_> = after(page, "- `").chain(rows).filter_map(|line| line.split('`').next()).collect();
    let texts = error_texts();
    for error in &errors {
        assert!(texts.iter().any(|text| fits(error, text)), "there is no error {error}");
    }
    for text in &texts {
        assert!(errors.iter().any(|error| fits(error, text)), "docs/errors.md lacks: {text}");
        let word = text.split(' ').next().unwrap();
        assert!(page.contains(&format!("\n## {word}\n")), "docs/errors.md has no section {word}");
    }
}

/// Returns true if `line` of an example matches `shown`: a number of several digits matches any number, and [`ANY`] any
/// text.
pub fn fits(line: &str, shown: &str) -> bool {
    if let Some((start, end)) = line.split_once(ANY).or_else(|| shown.split_once(ANY)) {
        let whole = if line.contains(ANY) { shown } else { line };
        let rest = whole.strip_prefix(start);
        return rest.is_some_and(|rest| rest.ends_with(end));
    }
    let (line, shown) = (parts(line), parts(shown));
    line.len() == shown.len()
        && line.iter().zip(&shown).all(|(line, shown)| {
            let is_number = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
            line == shown || (is_number(line) && line.len() > 1 && is_number(shown))
        })
}

/// Splits a line into numbers and the text between them.
fn parts(line: &str) -> Vec<&str> {
    let mut parts = vec![];
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let digits = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = &rest[end..];
    }
    parts
}

#[test]
fn examples_run_as_they_are_shown() {
    let mut examples = 0;
    for (name, page) in pages() {
        let server = Server::start();
        let mut client = server.client_resp3();
        // On a busy machine the time between two commands may be longer than the default reservation.
        client.say("CONFIG SET lock.handoff-window 10000");
        let mut lines = page.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix("redis> ") else { continue };
            examples += 1;
            let shown = shown(&ask(&mut client, command));
            for shown in shown.lines() {
                let line = lines.next().unwrap_or_default();
                assert!(fits(line, shown), "{name}: {command}\nis shown to answer {line}\nand answered     {shown}");
            }
            let next = lines.peek().copied().unwrap_or_default();
            assert!(next == "```" || next.starts_with("redis> "), "{name}: {command}\ndid not answer {next}");
        }
    }
    assert!(examples > 50, "{examples} examples");
}

/// Sends a command line, split into words as redis-cli does it: text between double quotes is one word.
pub fn ask(client: &mut Client, line: &str) -> Reply {
    let words = line.split('"').enumerate().flat_map(|(n, part)| match n % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    client.send(&words.map(str::as_bytes).collect::<Vec<_>>())
}

/// Formats a reply as redis-cli does, as far as the examples need it.
pub fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Null => "(nil)".to_owned(),
        Reply::Int(value) => format!("(integer) {value}"),
        Reply::Text(bytes) if bytes == b"OK" || bytes == b"WAITING" => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Text(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Reply::Error(text) => format!("(error) {text}"),
        Reply::List(list) if list.is_empty() => "(empty array)".to_owned(),
        Reply::List(list) => {
            let lines = list.iter().enumerate().map(|(n, item)| format!("{}) {}", n + 1, shown(item)));
            lines.collect::<Vec<_>>().join("\n")
        }
        Reply::Map(pairs) => {
            let line = |(n, (name, value)): (usize, &(Reply, Reply))| {
                format!("{}# {} => {}", n + 1, shown(name), shown(value))
            };
            pairs.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
        }
    }
}

#[test]
fn lines_fit_what_is_shown() {
    for (line, shown, expected) in [
        ("(integer) 0", "(integer) 0", true),
        ("(integer) 0", "(integer) 1", false),
        ("(integer) 29987", "(integer) 7", true),
        ("(integer) 29987", "(nil)", false),
        ("\"id\" => \"…\"", "\"id\" => \"0a1b\"", true),
        ("\"id\" => \"…\"", "\"ib\" => \"0a1b\"", false),
        ("ERR at most 64 bytes", "ERR at most 65 bytes long", false),
    ] {
        assert_eq!(fits(line, shown), expected, "{line} / {shown}");
    }
}
