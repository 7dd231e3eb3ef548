//! `palisade members`: what it shows of a set, and its changes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Ended, Running, palisade_at, run};
use crate::harness::{Server, Setup, acl_rules, state_file, text, wait_until};
use crate::transcripts::{alike, on_the_page};

/// Starts servers with short leases, so that steps take less time.
fn start(count: usize) -> Vec<Server> {
    let setup = || Setup::new().replication().module_arguments(&["max-ttl", "1000", "max-clock-skew", "100"]);
    (0..count).map(|_| setup().start()).collect()
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

fn some(servers: &[Server], places: &[usize]) -> Vec<String> {
    places.iter().map(|&place| address(&servers[place])).collect()
}

/// Returns the program, run on some of the servers.
fn on(servers: &[Server], places: &[usize], line: &str) -> Command {
    palisade_at(&some(servers, places).join(","), line)
}

/// Runs `members set` to make these servers the set.
fn set(servers: &[Server], list: &[usize], wanted: &[usize], options: &str) -> Ended {
    run(on(servers, list, &format!("members set {} {options}", some(servers, wanted).join(" "))))
}

fn members(servers: &[Server], list: &[usize]) -> Value {
    run(on(servers, list, "members --json")).json()
}

/// Returns, for each server, its position in the list (0 if it is not there) and its standing in words.
fn standings(servers: &[Server], list: &[usize]) -> Vec<(u64, String)> {
    let rows = members(servers, list)["nodes"].as_array().unwrap().clone();
    let standing = |row: &Value| (row["number"].as_u64().unwrap_or(0), row["standing"].as_str().unwrap().to_owned());
    rows.iter().map(standing).collect()
}

fn all(standing: &str, numbers: &[u64]) -> Vec<(u64, String)> {
    numbers.iter().map(|&number| (number, standing.to_owned())).collect()
}

fn version(server: &Server) -> i64 {
    server.client().say("LOCK.MEMBERS").field("version").as_int()
}

/// Checks that `doctor` has this finding about a server.
#[track_caller]
fn finds(servers: &[Server], list: &[usize], about: usize, found: &str) {
    let out = run(on(servers, list, "doctor")).out();
    let about = format!("CHANGE  {}: ", address(&servers[about]));
    assert!(out.lines().any(|line| line.starts_with(&about) && line.contains(found)), "{about}{found}:\n{out}");
}

#[track_caller]
fn well(ended: Ended) -> Ended {
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    ended
}

/// Returns the lines without column widths and ids.
fn plain(lines: &[String]) -> Vec<String> {
    let word = |word: &str| if word.len() > 25 { "id".to_owned() } else { word.to_owned() };
    lines.iter().map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")).collect()
}

/// Checks that docs/cli.md shows this output under `command`.
#[track_caller]
fn is_shown(command: &str, printed: &str) {
    // The ids are replaced before numbers are, because an id keeps its length.
    let printed: Vec<_> = plain(&printed.lines().map(str::to_owned).collect::<Vec<_>>());
    // The page shows minutes where the test has seconds.
    let alike = |line: &String| alike(line).replace(" 0m", " 0s");
    let printed: Vec<_> = printed.iter().map(alike).collect();
    let shown: Vec<_> = plain(&on_the_page(command)).iter().map(alike).collect();
    assert_eq!(printed, shown, "{command}");
}

/// The set grows from three nodes to five, one of which dies and is replaced, and shrinks to three again. The list
/// stays the original one.
#[test]
fn from_three_nodes_to_five_one_is_replaced_and_back() {
    let mut servers = start(6);
    let first = [0, 1, 2];
    let none = run(on(&servers, &first, "members"));
    assert!(none.out().starts_with("no node knows a set"), "{none:?}");
    assert_eq!(standings(&servers, &first), all("no-set", &[1, 2, 3]));

    let planned = well(set(&servers, &first, &[0, 1, 3], "--dry-run"));
    is_shown("members set 127.0.0.1:17001 127.0.0.1:17002 127.0.0.1:17004 --dry-run", &planned.out());
    let asked = set(&servers, &first, &[0, 1, 2, 3, 4], "");
    asked.assert_refused(193, "say --yes");
    assert_eq!(servers.iter().map(version).sum::<i64>(), 0, "nothing was changed");

    let five = well(set(&servers, &first, &[0, 1, 2, 3, 4], "--yes"));
    assert!(five.out().contains("version 3 of the set, members: 5, majority: 3"), "{five:?}");
    assert!(five.err().contains("have the new list in PALISADE_NODES"), "{five:?}");
    assert_eq!(standings(&servers, &first), all("member", &[1, 2, 3, 0, 0]));
    let again = well(set(&servers, &first, &[0, 1, 2, 3, 4], ""));
    assert!(again.out().contains("the set is as it should be"), "{again:?}");

    servers[2].kill();
    let votes = |server: &Server| server.client().say("LOCK.MEMBERS").field("unsettled_ms").as_int() == 0;
    wait_until("they have votes", || [0, 1, 3, 4].iter().all(|&place| votes(&servers[place])));
    let dead = well(run(on(&servers, &first, "members")));
    is_shown("members", &dead.out());
    assert!(dead.err().contains("cannot be reached"), "{dead:?}");
    assert_eq!(standings(&servers, &first)[2], (3, "unreachable".to_owned()));
    well(set(&servers, &first, &[0, 1, 5, 3, 4], "--yes"));
    let after = standings(&servers, &[0, 1, 5]);
    assert_eq!(after, all("member", &[1, 2, 3, 0, 0]));

    // One node of the program's list is dead, and one is no longer in the set.
    well(set(&servers, &first, &[5, 0, 3], "--yes"));
    assert_eq!([0, 3, 5].map(|place| version(&servers[place])), [7; 3]);
    let of_old = run(on(&servers, &first, "members"));
    assert_eq!(of_old.code(), Some(0), "{of_old:?}");
    assert_eq!(standings(&servers, &first), {
        let named = |number, standing: &str| (number, standing.to_owned());
        [named(1, "member"), named(2, "no-member"), named(3, "unreachable"), named(0, "member"), named(0, "member")]
    });
    // A lock is taken on the nodes of the set, whatever the list.
    well(run(on(&servers, &first, "acquire k --owner me --ttl 1s")));
    // Two of three are down, so the set cannot be changed.
    servers[3].kill();
    servers[5].kill();
    let few = run(on(&servers, &first, "members"));
    few.assert_refused_after(196, "1 of 3 members can be asked, and 2 are needed");
    assert!(few.out().contains("version 7"), "{few:?}");
}

/// A port in the new set is mistyped. The program names the node that does not answer long before it gives up.
#[test]
fn a_new_node_that_does_not_answer_is_named_while_it_is_asked_again() {
    let servers = start(1);
    let nobody = "127.0.0.1:1";
    let mut setting =
        Running::start(on(&servers, &[0], &format!("members set {} {nobody} --yes", address(&servers[0]))));
    let mut said = BufReader::new(setting.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let why = format!("{nobody}: it cannot be reached: Connection refused (os error 111)");
    assert_eq!(said.next().unwrap(), format!("palisade: {why}: it is asked again, for up to 10 s"));
    assert!(setting.0.try_wait().unwrap().is_none(), "it goes on");
    assert!(said.next().unwrap().ends_with(&format!("nothing was changed for it: {why}")));
    assert_eq!(setting.end().code(), Some(196));
}

/// A node that lost its state file is shown with another id until the same addresses are set again. A node that was
/// down while the set changed is shown as behind.
#[test]
fn members_that_are_behind_or_have_another_id() {
    let mut servers = start(4);
    let list = [0, 1, 2, 3];
    well(set(&servers, &list, &list, "--yes"));
    servers[3].kill();
    well(set(&servers, &list, &[0, 1, 3], "--yes"));
    servers[3].start_again();
    servers[3].lift();
    assert_eq!(standings(&servers, &list)[3], (4, "behind".to_owned()));
    finds(&servers, &list, 3, "it knows version 1 of the set, and others know version 2");
    finds(&servers, &list, 2, "not in the set that the others know");
    assert_eq!(version(&servers[3]), 1, "to look tells nobody");
    let planned = well(set(&servers, &list, &[0, 1, 3], "--dry-run --json")).json();
    assert_eq!((&planned["version"], &planned["steps"]), (&serde_json::json!(2), &serde_json::json!([])));
    assert_eq!(version(&servers[3]), 1, "nor does a plan");
    well(set(&servers, &list, &[0, 1, 3], ""));
    assert_eq!(standings(&servers, &list)[3], (4, "member".to_owned()));
    assert_eq!(standings(&servers, &list)[2], (3, "no-member".to_owned()));
    finds(&servers, &[0, 1], 3, "it is a member of the set, and not in --nodes");
    let out = run(on(&servers, &[0, 1, 3], "doctor")).out();
    assert!(out.contains("ok      all nodes: they are version 2 of the set, and all of them know it"), "{out}");

    servers[3].kill();
    fs::remove_file(state_file(&servers[3])).unwrap();
    servers[3].start_again();
    servers[3].lift();
    let rows = members(&servers, &[0, 1, 3])["nodes"].clone();
    assert_eq!(rows[2]["standing"], "another-id");
    assert!(rows[2]["member_id"].is_string() && rows[2]["member_id"] != rows[2]["id"], "{rows}");
    finds(&servers, &[0, 1, 3], 3, "another server is there than the member");
    let done = well(set(&servers, &[0, 1, 3], &[0, 1, 3], "--yes --json")).json();
    assert_eq!((&done["version"], &done["members"]), (&serde_json::json!(4), &serde_json::json!(3)));
    assert_eq!(standings(&servers, &[0, 1, 3]), all("member", &[1, 2, 3]));
}

#[test]
fn what_is_refused() {
    let servers = start(3);
    for server in &servers {
        let rules = acl_rules("+lock.acquire")[0].replace("~orders:*", "~*");
        assert_eq!(server.client().say(&rules), text("OK"));
    }
    let as_app: Vec<_> = some(&servers, &[0, 1]).iter().map(|at| format!("redis://app:secret@{at}")).collect();
    // The third gets the settings of the first in the list, such as this user.
    let all = some(&servers, &[0, 1, 2]).join(" ");
    let refused = run(palisade_at(&as_app.join(","), &format!("members set {all} --yes")));
    refused.assert_refused(193, "+lock.setmembers");
    assert_eq!(servers.iter().map(version).sum::<i64>(), 0);
    wait_until("nobody asked without a user", || {
        let refused = servers[2].client().say("ACL LOG").as_list();
        refused.iter().all(|entry| entry.field("username").as_text() == "app")
    });

    for (wanted, code, why) in [
        ("redis+cluster://a:1", 193, "by the id in its state file"),
        ("http://a", 193, "not an address"),
        (&*format!("{0} {0}", address(&servers[0])), 193, "given twice"),
    ] {
        run(on(&servers, &[0, 1], &format!("members set {wanted} --dry-run"))).assert_refused(code, why);
    }
    run(palisade_at("redis+cluster://127.0.0.1:1", "members")).assert_refused(193, "docs/operations.md");
    run(palisade_at("127.0.0.1:1", "members")).assert_refused_after(196, "0 of 1 members can be asked");
    run(palisade_at("127.0.0.1:1", "members set")).assert_refused(193, "ADDRESS");
}

/// A server can be in a set only once, whatever its names. The plan and the change are refused with the same text, and
/// nothing is changed.
#[test]
fn one_server_under_two_names() {
    let servers = start(3);
    let [first, second, third] = [0, 1, 2].map(|place| address(&servers[place]));
    let renamed = |address: &str| address.replace("127.0.0.1", "localhost");
    let (also_first, also_third) = (renamed(&first), renamed(&third));
    for (list, wanted, why) in [
        (format!("{first},{also_first},{second}"), format!("{first} {second}"), "the same server as another address"),
        (format!("{first},{second}"), format!("{first} {third} {also_third}"), "the same server as another address"),
        (format!("{first},{second}"), format!("{also_first} {second}"), "it is a member already"),
    ] {
        let of = |options: &str| run(palisade_at(&list, &format!("members set {wanted} {options}")));
        let (planned, done) = (of("--dry-run"), of("--yes"));
        planned.assert_refused(193, why);
        assert_eq!((planned.err(), planned.out()), (done.err(), done.out()));
        done.assert_refused(193, why);
        assert_eq!(servers.iter().map(version).sum::<i64>(), 0, "nothing was changed");
    }
    // The command that `doctor` proposes is run word by word.
    let doctor = |list: &str| run(palisade_at(list, "doctor")).out();
    let out = doctor(&format!("{first},{also_first},{second},{third}"));
    let first_of_all = format!("first take {also_first} out of PALISADE_NODES");
    let advice = out.lines().find(|line| line.contains(&first_of_all)).unwrap_or_else(|| panic!("{out}"));
    let proposed = advice.split("then palisade ").nth(1).unwrap().split(", if").next().unwrap();
    assert_eq!(proposed, format!("members set {first} {second} {third}"));
    well(run(palisade_at(&format!("{first},{second},{third}"), &format!("{proposed} --yes"))));
    let list = format!("{first},{second},{third},{also_third}");
    let out = doctor(&list);
    let finding =
        format!("CHANGE  {also_third}: a server counts once, and has its place in the set under another name");
    assert!(out.contains(&finding) && out.contains(&format!("take {also_third} out of PALISADE_NODES")), "{out}");
    let shown = run(palisade_at(&list, "members --json")).json();
    assert_eq!((&shown["nodes"][3]["standing"], &shown["members"]), (&"second-name".into(), &3.into()));
}
