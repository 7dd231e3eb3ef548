//! Checks that lists in docs, README and man pages have the same entries as the server's own lists: commands, options,
//! first words of errors, parameters, causes of a guard, features. `command_pages.rs` and `configuration.rs` check the
//! text of each entry.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use palisade_core::Cause;

use crate::command_pages::{error_texts, fact, pages, told, words};
use crate::harness::{Client, Server};

/// Folders of build results and of foreign sources.
const NOT_OURS: [&str; 5] = ["target", "data", ".git", "corpus", "node_modules"];

/// Commands for servers or test builds, and not for clients.
const INTERNAL: [&str; 3] = ["LOCK.EFFECT", "LOCK.CEILING", "LOCK.PANIC"];

/// Errors that only an agent answers. A test in agent/src/refused.rs compares them with their section of
/// docs/errors.md.
const OF_AN_AGENT: [&str; 2] = ["NOQUORUM", "CLOSING"];

type Words = BTreeSet<String>;

/// The source with which a list is compared.
#[derive(Clone, Copy, Debug)]
enum Told {
    Commands,
    Parameters,
    Codes,
    CodesOfAgentsToo,
    Causes,
    Features,
}

/// A document, or the program that prints it; the function that finds the entries; the source to compare with.
type List = (&'static str, fn(&str) -> Words, Told);

const LISTS: [List; 12] = [
    ("README.md", |text| in_first_cells(section(text, "Commands"), is_command), Told::Commands),
    ("docs/commands/README.md", |text| in_first_cells(text, is_command), Told::Commands),
    ("packaging/commands-page", |text| in_lines(text, "# LOCK.", is_command), Told::Commands),
    (
        "docs/configuration.md",
        |text| in_first_cells(section(text, "Parameters of the module"), is_parameter),
        Told::Parameters,
    ),
    ("docs/configuration.md", |text| in_lines(text, "### lock.", is_parameter), Told::Parameters),
    ("docs/errors.md", |text| in_first_cells(text.split("\n## ").next().unwrap(), is_code), Told::CodesOfAgentsToo),
    ("docs/errors.md", |text| in_lines(text, "## ", is_code), Told::Codes),
    ("docs/errors.md", |text| quoted_after(text, "in parentheses is the reason: "), Told::Causes),
    ("docs/guard.md", |text| quoted_after(text, "`guard_reason`: "), Told::Causes),
    ("docs/monitoring.md", |text| quoted_after(text, "Why it is guarded: "), Told::Causes),
    ("docs/commands/node.md", |text| quoted_after(text, "Why it is guarded: "), Told::Causes),
    ("docs/commands/node.md", |text| quoted_after(text, "words with a space between: "), Told::Features),
];

#[test]
fn lists_have_what_the_server_tells_and_nothing_else() {
    let server = Server::start();
    let mut client = server.client();
    let mut wrong = vec![];
    for (document, entries, told) in LISTS {
        let (listed, told_of) = (entries(&text_of(document)), told.by(&mut client));
        assert!(!told_of.is_empty(), "{told:?}");
        let (lacks, invents): (Vec<_>, Vec<_>) =
            (told_of.difference(&listed).collect(), listed.difference(&told_of).collect());
        if listed != told_of {
            wrong.push(format!("{document}, {told:?}: lacks {lacks:?}, has {invents:?}, which there is not"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The pages of commands match LOCK.HELP, which lists all commands of the server.
#[test]
fn each_command_has_a_page_and_each_page_a_command() {
    let server = Server::start();
    let mut client = server.client();
    let commands = Told::Commands.by(&mut client);
    let paged: Words = pages().into_iter().map(|(name, _)| name).filter(|name| name != "README").collect();
    assert_eq!(paged, commands);
    let registered = told(&client.say("COMMAND LIST FILTERBY MODULE lock")).into_iter().map(|name| name.to_uppercase());
    let for_clients: Words = registered.filter(|name| !INTERNAL.contains(&name.as_str())).collect();
    assert_eq!(for_clients, commands);
    let index = text_of("docs/commands/README.md");
    for name in INTERNAL.iter().filter(|name| **name != "LOCK.PANIC") {
        assert!(section(&index, "Internal commands").contains(&format!("`{name} ")), "{name}");
    }
}

/// A row of the README has the command as LOCK.HELP shows it, except for options that it abbreviates (`…`).
#[test]
fn the_readme_has_arguments_as_they_are() {
    let server = Server::start();
    let lines = told(&server.client().say("LOCK.HELP"));
    let readme = text_of("README.md");
    let mut rows = 0;
    for shown in section(&readme, "Commands").lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()) {
        let name = shown.split(' ').next().unwrap();
        if name == shown {
            continue;
        }
        rows += 1;
        let syntax = lines.iter().find(|line| line.split(' ').next() == Some(name)).expect(name);
        match shown.strip_suffix(" …") {
            None => assert_eq!(shown, syntax),
            Some(shown) => {
                let (known, shown) = (arguments(syntax), arguments(shown));
                assert!(shown.iter().all(|argument| known.contains(argument)), "{shown:?} are not all in {known:?}");
                let must =
                    |arguments: &[String]| arguments.iter().filter(|argument| !argument.starts_with('[')).count();
                assert_eq!(must(&shown), must(&known), "{syntax}");
                assert!(shown.len() < known.len(), "nothing is left out of {syntax}");
            }
        }
    }
    assert!(rows > 10, "{rows}");
}

/// The categories in docs/acl.md match those on the pages of commands, which are compared with servers that have
/// categories.
#[test]
fn the_categories_of_users_have_the_commands_of_the_pages() {
    let page = text_of("docs/acl.md");
    let pages: Vec<_> = pages().into_iter().filter(|(name, _)| name != "README").collect();
    let mut categories = 0;
    for row in
        section(&page, "Categories").lines().filter(|line| line.starts_with("| `@") && !line.contains("all of them"))
    {
        let cells: Vec<_> = row.split(" | ").collect();
        let is_internal = |name: &String| INTERNAL.contains(&name.as_str());
        let listed = cells[1].split([' ', ',']).map(|word| format!("LOCK.{}", word.trim_matches([' ', '|'])));
        let listed: Words = listed.filter(|name| is_command(name) && !is_internal(name)).collect();
        for category in cells[0].split('`').filter(|word| word.starts_with('@')) {
            categories += 1;
            let has = |page: &str| words(fact(page, "ACL categories")).iter().any(|word| word == category);
            let paged: Words = pages.iter().filter(|(_, page)| has(page)).map(|(name, _)| name.clone()).collect();
            assert_eq!(listed, paged, "{category}");
        }
    }
    assert_eq!(categories, 5);
}

/// No document uses a name that was removed or changed.
#[test]
fn no_document_names_a_command_or_parameter_that_there_is_not() {
    let server = Server::start();
    let mut client = server.client();
    let mut known = Told::Commands.by(&mut client);
    known.extend(Told::Parameters.by(&mut client));
    known.extend(INTERNAL.map(str::to_owned));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![root.join("redis.conf")];
    documents(root, &mut paths);
    let mut wrong = vec![];
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let named = tokens(&text).filter(|word| is_command(word) || (is_parameter(word) && word.contains('-')));
        wrong.extend(named.filter(|word| !known.contains(*word)).map(|word| format!("{}: {word}", path.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The figure for the memory of a lock is in one place only, and equals that of the benchmark.
#[test]
fn the_memory_of_a_lock_is_as_measured() {
    let measured = text_of("docs/benchmarks/memory-redis-7.md");
    let table = section(&measured, "Memory of a held lock: key of 12 bytes, owner of 20").lines();
    let rows: Vec<Vec<_>> =
        table.filter(|line| line.starts_with('|')).map(|row| row.split('|').map(str::trim).collect()).collect();
    let column = rows[0].iter().position(|heading| *heading == "ACQUIRE, bytes").unwrap();
    let most = rows[2..].iter().map(|row| row[column].parse::<f64>().unwrap()).fold(0.0, f64::max).ceil();
    let page = text_of("docs/operations.md");
    assert!(section(&page, "Sizing").contains(&format!("| a lock that is held | up to {most} bytes ")), "{most}");
}

impl Told {
    /// Returns the tested server's own list.
    fn by(self, client: &mut Client) -> Words {
        let codes = || error_texts().iter().map(|text| text.split(' ').next().unwrap().to_owned()).collect::<Words>();
        match self {
            Self::Commands => {
                let lines = told(&client.say("LOCK.HELP"));
                lines
                    .iter()
                    .filter_map(|line| line.split(' ').next())
                    .filter(|word| is_command(word))
                    .map(str::to_owned)
                    .collect()
            }
            Self::Parameters => {
                let all = client.say("CONFIG GET lock.*").as_list();
                all.chunks(2).map(|pair| pair[0].as_text()).collect()
            }
            Self::Codes => codes(),
            Self::CodesOfAgentsToo => codes().into_iter().chain(OF_AN_AGENT.map(str::to_owned)).collect(),
            Self::Causes => Cause::ALL.iter().map(|cause| cause.word().to_owned()).collect(),
            Self::Features => {
                let features = client.say("LOCK.NODE").field("features").as_text();
                features.split(' ').map(str::to_owned).collect()
            }
        }
    }
}

/// Returns the text of a document, or the output of a program.
fn text_of(document: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    if path.extension().is_some() {
        return fs::read_to_string(path).unwrap();
    }
    let output = Command::new(path).output().unwrap();
    assert!(output.status.success(), "{document}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Appends every document in `folder`.
fn documents(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            documents(&path, into);
        } else if name.ends_with(".md") {
            into.push(path);
        }
    }
}

/// Returns the text under a heading, up to the next one.
#[track_caller]
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let found = text.split("\n#").find(|part| part.trim_start_matches(['#', ' ']).lines().next() == Some(heading));
    found.unwrap_or_else(|| panic!("no section {heading}"))
}

/// Returns the words of the first cells of all tables.
fn in_first_cells(text: &str, is: fn(&str) -> bool) -> Words {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(tokens).filter(|word| is(word)).map(str::to_owned).collect()
}

/// Returns the words of the lines that begin with `start`.
fn in_lines(text: &str, start: &str, is: fn(&str) -> bool) -> Words {
    let lines = text.lines().filter(|line| line.starts_with(start));
    lines.flat_map(tokens).filter(|word| is(word)).map(str::to_owned).collect()
}

/// Returns the code spans between `before` and the end of its line.
fn quoted_after(text: &str, before: &str) -> Words {
    let rest = text.split(before).nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
    rest.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the arguments in a syntax, each option with its value as one argument.
fn arguments(syntax: &str) -> Vec<String> {
    let mut arguments: Vec<String> = vec![];
    for word in syntax.split(' ').skip(1) {
        match arguments.last_mut() {
            Some(option) if option.starts_with('[') && !option.ends_with(']') => *option += &format!(" {word}"),
            _ => arguments.push(word.to_owned()),
        }
    }
    arguments
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let apart = text.split(|c: char| !c.is_ascii_alphanumeric() && !".-_".contains(c));
    apart.map(|word| word.trim_end_matches(['.', '-']))
}

fn is_command(word: &str) -> bool {
    word.strip_prefix("LOCK.").is_some_and(|name| name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase()))
}

fn is_parameter(word: &str) -> bool {
    word.strip_prefix("lock.").is_some_and(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
}

fn is_code(word: &str) -> bool {
    word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase())
}
