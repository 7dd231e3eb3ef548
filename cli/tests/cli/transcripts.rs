//! What docs/cli.md shows of `info`, `why` and `top` is what the program prints, but for numbers and times.

use crate::fixture::{Nodes, Running, run};
use crate::harness::wait_until;

/// The lines that the page shows under this command.
pub fn on_the_page(command: &str) -> Vec<String> {
    let page = include_str!("../../../docs/cli.md");
    let after = page.split_once(&format!("$ palisade {command}\n")).unwrap_or_else(|| panic!("{command}")).1;
    after.lines().take_while(|line| !line.starts_with("```") && !line.starts_with("$ ")).map(str::to_owned).collect()
}

fn shown(command: &str) -> Vec<String> {
    on_the_page(command).iter().map(|line| alike(line)).collect()
}

/// Each number is one digit, and each length of time is alike.
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
    // One waited, and it was refused before it did, as `try` was. (A wait that is renewed counts again.)
    let counts: Vec<u64> = row[1..].iter().map(|count| count.parse().unwrap()).collect();
    assert!(counts.len() == 2 && counts[0] >= 1 && counts[1] >= 2, "{top}");
    let page = include_str!("../../../docs/cli.md");
    let heading = top.lines().find(|line| line.starts_with("CONTENDED")).unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert!(page.lines().any(|line| words(line) == words(heading)), "{heading}");
}
