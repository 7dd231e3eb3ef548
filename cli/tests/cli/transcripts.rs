//! Compares the output of `info`, `why` and `top` in docs/cli.md with what the program prints, except for numbers and
//! times; and checks that the page has every subcommand and option.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::fixture::{Nodes, PALISADE, Running, run};
use crate::harness::wait_until;

/// Returns the lines that the page shows under this command.
pub fn on_the_page(command: &str) -> Vec<String> {
    let page = include_str!("../../../docs/cli.md");
    let after = page.split_once(&format!("$ palisade {command}\n")).unwrap_or_else(|| panic!("{command}")).1;
    after.lines().take_while(|line| !line.starts_with("```") && !line.starts_with("$ ")).map(str::to_owned).collect()
}

fn shown(command: &str) -> Vec<String> {
    on_the_page(command).iter().map(|line| alike(line)).collect()
}

/// Replaces each number by one digit, and makes all lengths of time alike.
pub fn alike(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        match c {
            '0'..='9' if text.ends_with('0') => {}
            '0'..='9' => text.push('0'),
            _ => text.push(c),
        }
    }
    text.replace("0ms", "0s").replace("0s 0s", "0s").replace("0m 0s", "0s")
}

#[test]
fn info_why_and_top() {
    let nodes = Nodes::start(3);
    let exec = |web: u32| {
        let mut command = nodes.palisade("exec --note");
        command.args([&format!("nightly backup on web-{web}"), "backup", "--", "sleep", "1000"]);
        Running::start(command)
    };
    let _holder = exec(1);
    wait_until("all nodes have it", || run(nodes.palisade("info backup")).out().contains("3 of 3"));
    run(nodes.palisade("try backup")).assert_refused(194, "web-1");
    let _waiter = exec(2);
    wait_until("one waits", || run(nodes.palisade("info backup")).out().contains("web-2"));
    for command in ["info backup", "why backup"] {
        let printed: Vec<_> = run(nodes.palisade(command)).out().lines().map(alike).collect();
        assert_eq!(printed, shown(command), "{command}");
    }
    let top = run(nodes.palisade("top --once")).out();
    let contended = |line: &&str| line.starts_with("backup");
    let row: Vec<&str> = top.lines().find(contended).unwrap_or_else(|| panic!("{top}")).split_whitespace().collect();
    // One request waited, and two were refused at first: that one, and the one of `try`. (A wait that is renewed counts
    // again.)
    let counts: Vec<u64> = row[1..].iter().map(|count| count.parse().unwrap()).collect();
    assert!(counts.len() == 2 && counts[0] >= 1 && counts[1] >= 2, "{top}");
    let page = include_str!("../../../docs/cli.md");
    let heading = top.lines().find(|line| line.starts_with("CONTENDED")).unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert!(page.lines().any(|line| words(line) == words(heading)), "{heading}");
}

/// Every subcommand and option in the man pages is on the page (those of the agent on its own page).
#[test]
fn the_page_has_every_subcommand_and_option() {
    let pages = [include_str!("../../../docs/cli.md"), include_str!("../../../docs/agent.md")].concat();
    let words = |text: &str| -> BTreeSet<String> {
        let apart = text.split(|c: char| !c.is_ascii_lowercase() && c != '-');
        apart.filter(|word| word.len() > 1).map(str::to_owned).collect()
    };
    let mut known = words(&pages);
    known.extend(["--help", "--version"].map(str::to_owned));
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(PALISADE);
    command.args(["man", "--into"]).arg(folder.path());
    assert_eq!(run(command).code(), Some(0));
    let mut manuals = 0;
    for file in fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().replace("palisade-", "");
        // The synopsis is in the first lines of a man page: `palisade guard arm [--nodes] …`.
        let text = fs::read_to_string(&path).unwrap().replace("\\-", "-").replace("\\fB", "").replace("\\fI", "");
        let mut options = words(&text).into_iter().filter(|word| word.starts_with("--"));
        assert_eq!(options.find(|option| !known.contains(option)), None, "{name}: docs/cli.md");
        let subcommand = name.split('-').next().unwrap();
        let has_heading = pages.lines().any(|line| line.starts_with('#') && words(line).contains(subcommand));
        assert!(has_heading || pages.contains(&format!("palisade {subcommand}")), "{name}: docs/cli.md");
        manuals += 1;
    }
    assert!(manuals > 20, "{manuals}");
}
