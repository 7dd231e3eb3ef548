//! The recipes of docs/clients on a real server: each tells one story, and prints what its page says.
//!
//! They need their clients (`make setup-clients`), so they are ignored unless asked for: `make test-clients`, and those that
//! cost little `make test`. That pages show the very code is checked always. With `PALISADE_WRITE_PAGES` set, code, output
//! and the table of the index are written to the pages instead: `make client-pages`.
//!
//! In Rust, because the harness starts the servers, and because Rust is all that is needed beforehand.

// Tests measure how long things take; the rule that only one file reads clocks is for the module.
#![allow(clippy::disallowed_methods)]

#[path = "../harness/mod.rs"]
#[allow(dead_code, unused_imports)]
mod harness;
mod lossy;
mod page;
mod story;

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use harness::{Client, Setup, acl_rules, null, text, wait_until};
use lossy::LossyNetwork;
use page::{INDEX, Page, SENDS_AGAIN};

/// A recipe. What is a command is run by a shell in `tests/clients`, with the server's `PORT`.
struct Recipe {
    /// Its client, as the index names it.
    client: &'static str,
    /// Its page in `docs/clients`.
    page: &'static str,
    /// Its code in `tests/clients`.
    code: &'static str,
    /// Builds it.
    build: Option<&'static str>,
    /// Runs it.
    run: &'static str,
    /// Prints its client's version.
    version: &'static str,
}

macro_rules! recipes {
    ($($name:ident: $recipe:expr,)*) => {
        const RECIPES: &[Recipe] = &[$($recipe),*];

        mod recipe {
            $(#[test]
            #[ignore = "needs its client: make test-clients"]
            fn $name() {
                super::tells_its_story(&$recipe);
            })*
        }

        mod lost_answer {
            $(#[test]
            #[ignore = "needs its client: make test-clients"]
            fn $name() {
                super::is_sent_again_as_the_index_says(&$recipe);
            })*
        }

        mod lost_grant {
            $(#[test]
            #[ignore = "needs its client: make test-clients"]
            fn $name() {
                super::gives_back_what_it_does_not_know_of(&$recipe);
            })*
        }
    };
}

const PYTHON_VERSION: &str = "python -c 'import redis; print(redis.__version__)'";

recipes! {
    redis_cli: crate::Recipe {
        client: "redis-cli",
        page: "redis-cli.md",
        code: "shell/redis-cli.sh",
        build: None,
        run: "bash shell/redis-cli.sh",
        version: "redis-cli --version | cut -d ' ' -f 2",
    },
    redis_py: crate::Recipe {
        client: "redis-py",
        page: "redis-py.md",
        code: "python/redis_py.py",
        build: None,
        run: "python python/redis_py.py",
        version: crate::PYTHON_VERSION,
    },
    redis_py_asyncio: crate::Recipe {
        client: "redis-py, asyncio",
        page: "redis-py.md",
        code: "python/redis_py_asyncio.py",
        build: None,
        run: "python python/redis_py_asyncio.py",
        version: crate::PYTHON_VERSION,
    },
    node_redis: crate::Recipe {
        client: "node-redis",
        page: "node-redis.md",
        code: "node/node-redis.mjs",
        build: None,
        run: "node node/node-redis.mjs",
        version: "node -p \"JSON.parse(fs.readFileSync('node/node_modules/redis/package.json')).version\"",
    },
    ioredis: crate::Recipe {
        client: "ioredis",
        page: "ioredis.md",
        code: "node/ioredis.mjs",
        build: None,
        run: "node node/ioredis.mjs",
        version: "node -p \"JSON.parse(fs.readFileSync('node/node_modules/ioredis/package.json')).version\"",
    },
    hiredis: crate::Recipe {
        client: "hiredis",
        page: "hiredis.md",
        code: "c/hiredis.c",
        build: Some("cc -Wall -Wextra -Werror -o $BUILT/hiredis c/hiredis.c -lhiredis"),
        run: "$BUILT/hiredis",
        version: "echo '#include <hiredis/hiredis.h>\nHIREDIS_MAJOR.HIREDIS_MINOR.HIREDIS_PATCH' \
                  | cc -E -P - | tail -n 1 | tr -d ' '",
    },
    phpredis: crate::Recipe {
        client: "phpredis",
        page: "phpredis.md",
        code: "php/phpredis.php",
        build: None,
        run: "php php/phpredis.php",
        version: "php -r 'echo phpversion(\"redis\");'",
    },
    predis: crate::Recipe {
        client: "Predis",
        page: "predis.md",
        code: "php/predis.php",
        build: None,
        run: "php php/predis.php",
        version: "php -r 'require \"Predis/autoload.php\"; echo Predis\\Client::VERSION;'",
    },
    redis_rb: crate::Recipe {
        client: "redis-rb",
        page: "redis-rb.md",
        code: "ruby/redis.rb",
        build: None,
        run: "ruby ruby/redis.rb",
        version: "ruby -e 'require \"redis\"; puts Redis::VERSION'",
    },
    perl: crate::Recipe {
        client: "Redis (Perl)",
        page: "perl.md",
        code: "perl/redis.pl",
        build: None,
        run: "perl perl/redis.pl",
        version: "perl -MRedis -e 'print Redis->VERSION'",
    },
    lua: crate::Recipe {
        client: "redis-lua",
        page: "lua.md",
        code: "lua/redis.lua",
        build: None,
        run: "lua5.1 lua/redis.lua",
        version: "lua5.1 -e 'print((require(\"redis\")._VERSION:gsub(\".* \", \"\")))'",
    },
    redis_rs: crate::Recipe {
        client: "redis-rs",
        page: "redis-rs.md",
        code: "rust/src/bin/redis_rs.rs",
        build: Some("cargo build --quiet --manifest-path rust/Cargo.toml --target-dir $BUILT --bin redis_rs"),
        run: "$BUILT/debug/redis_rs",
        version: "cargo tree --manifest-path rust/Cargo.toml --package redis --depth 0 | sed 's/.* v//'",
    },
    fred: crate::Recipe {
        client: "fred",
        page: "fred.md",
        code: "rust/src/bin/fred.rs",
        build: Some("cargo build --quiet --manifest-path rust/Cargo.toml --target-dir $BUILT --bin fred"),
        run: "$BUILT/debug/fred",
        version: "cargo tree --manifest-path rust/Cargo.toml --package fred --depth 0 | sed 's/.* v//'",
    },
    redigo: crate::Recipe {
        client: "redigo",
        page: "go.md",
        code: "go/redigo/main.go",
        build: Some("GO111MODULE=off GOPATH=/usr/share/gocode go build -o $BUILT/redigo ./go/redigo"),
        run: "$BUILT/redigo",
        version: "dpkg-query --show --showformat '${Version}' golang-github-gomodule-redigo-dev \
                  | sed 's/^.*://; s/-.*//'",
    },
}

/// Where the recipes are.
fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients"))
}

/// Whether pages are written in place of compared.
fn writes_pages() -> bool {
    std::env::var_os("PALISADE_WRITE_PAGES").is_some()
}

/// Runs a recipe, and compares what it prints with the story and with its page.
fn tells_its_story(recipe: &Recipe) {
    build(recipe);
    let server = Setup::new().replication().start();
    let mut operator = server.client();
    limit_to_the_rules_of_an_application(&mut operator);
    let printed = output(recipe.run, server.port());
    let told = story::told(&printed).unwrap_or_else(|why| panic!("{}: {why}\n{printed}", recipe.code));
    if writes_pages() {
        let version = output(recipe.version, 0);
        let today = output("date -u +%F", 0);
        let server = name_and_version(&mut operator);
        Page::change(recipe.page, |page| page.set_output(recipe.code, &printed));
        Page::change(INDEX, |index| index.ran_on(recipe.client, version.trim(), &server, today.trim()));
    } else {
        let page = Page::read(recipe.page).output(recipe.code);
        let on_the_page = story::told(&page).expect("the page's output tells the story");
        assert_eq!(told, on_the_page, "docs/clients/{} shows another output: make client-pages", recipe.page);
    }
}

/// Whoever does not log in, as recipes do not, may do what docs/acl.md allows an application; and arm the guard, which recipes do to
/// show what it says.
fn limit_to_the_rules_of_an_application(operator: &mut Client) {
    assert_eq!(operator.say("ACL SETUSER operator on nopass ~* &* +@all"), text("OK"));
    assert_eq!(operator.say("AUTH operator x"), text("OK"));
    let mut rules = vec!["reset on nopass".to_owned(), "+lock.guard".to_owned()];
    for rule in acl_rules("+lock.acquire").iter().chain(&acl_rules("+eval")) {
        rules.push(rule.trim_start_matches("ACL SETUSER app ").replace("on >secret", ""));
    }
    for rule in rules {
        assert_eq!(operator.say(&format!("ACL SETUSER default {}", rule.trim())), text("OK"), "{rule}");
    }
}

/// Runs a recipe that never gets the answer to its first ACQUIRE. Its client reports that, or sends it again by itself:
/// then it is told that it has the lock already. Either ends the recipe.
fn is_sent_again_as_the_index_says(recipe: &Recipe) {
    build(recipe);
    let server = Setup::new().replication().start();
    let network = LossyNetwork::to(server.port(), &["LOCK.ACQUIRE"]);
    let ended = run(recipe.run, network.port());
    assert!(!ended.status.success(), "nothing was lost:\n{}", ended.printed);
    let sends_again = match network.requests() {
        1 => "no",
        2 => "yes",
        other => panic!("{other} requests:\n{}{}", ended.printed, ended.complaint),
    };
    if writes_pages() {
        Page::change(INDEX, |index| index.sends_again(recipe.client, sends_again));
    } else {
        let said = Page::read(INDEX).row(recipe.client).expect("a row")[SENDS_AGAIN].clone();
        assert_eq!(sends_again, said, "docs/clients/README.md says something else: make client-pages");
    }
}

/// Runs a recipe whose function for locks never gets the answer to its ACQUIRE. A client that sends it again gets the token,
/// thanks to RETRY, and goes on. Any other fails, but gives the lock back.
fn gives_back_what_it_does_not_know_of(recipe: &Recipe) {
    build(recipe);
    let server = Setup::new().replication().start();
    // Only that function says both.
    let network = LossyNetwork::to(server.port(), &["LOCK.ACQUIRE", "WAIT", "RETRY"]);
    let ended = run(recipe.run, network.port());
    let context = || format!("{}\n{}{}", ended.status, ended.printed, ended.complaint);
    assert!(network.requests() > 0, "nothing was lost: {}", context());
    assert_eq!(ended.status.success(), network.requests() > 1, "{}", context());
    if ended.status.success() {
        assert!(story::told(&ended.printed).is_ok(), "{}", context());
    }
    assert_eq!(server.client().say("LOCK.INFO orders:42"), null(), "the lock is still held: {}", context());
}

/// Builds a recipe that needs it.
fn build(recipe: &Recipe) {
    if let Some(build) = recipe.build {
        output(build, 0);
    }
}

/// How a command ended.
struct Ended {
    status: ExitStatus,
    printed: String,
    complaint: String,
}

/// What a command prints. It fails if the command does, or complains.
fn output(command: &str, port: u16) -> String {
    let ended = run(command, port);
    assert!(
        ended.status.success() && ended.complaint.is_empty(),
        "{}: {command}\n{}{}If the client is missing: make setup-clients",
        ended.status,
        ended.printed,
        ended.complaint
    );
    ended.printed
}

/// Runs a command for a server at `port`; 0: for none, and for as long as it takes.
fn run(command: &str, port: u16) -> Ended {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients");
    fs::create_dir_all(&built).unwrap();
    let path = format!("{}:{}", built.join("python/bin").display(), std::env::var("PATH").unwrap_or_default());
    let [mut stdout, mut stderr] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder())
        .env("PATH", path)
        .env("BUILT", &built)
        .env("PORT", port.to_string())
        .stdin(Stdio::null())
        .stdout(stdout.try_clone().unwrap())
        .stderr(stderr.try_clone().unwrap())
        .spawn()
        .unwrap();
    let status = if port == 0 { child.wait().unwrap() } else { end_of(&mut child) };
    let [printed, complaint] = [&mut stdout, &mut stderr].map(|file| {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).unwrap();
        text
    });
    Ended { status, printed, complaint }
}

/// How a recipe ended: it is killed when the patience of tests is half over.
fn end_of(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    let mut status = None;
    wait_until("the recipe ends", || {
        status = child.try_wait().unwrap();
        if status.is_none() && start.elapsed() > harness::patience() / 2 {
            let _ = child.kill();
        }
        status.is_some()
    });
    status.expect("it has ended")
}

/// As the index names it.
fn name_and_version(client: &mut Client) -> String {
    let info = client.say("INFO server").as_text();
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    match (field("valkey_version:"), field("redis_version:")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, version) => format!("Redis {}", version.expect("a version")),
    }
}

#[test]
fn pages_show_the_code_that_runs() {
    for recipe in RECIPES {
        let code = fs::read_to_string(folder().join(recipe.code)).unwrap();
        if writes_pages() {
            Page::change(recipe.page, |page| page.set_code(recipe.code, &code));
        } else {
            let shown = Page::read(recipe.page).code(recipe.code);
            assert!(shown == code, "docs/clients/{} shows other code: make client-pages", recipe.page);
        }
    }
}

#[test]
fn pages_show_what_recipes_print() {
    if writes_pages() {
        return;
    }
    for recipe in RECIPES {
        let told = story::told(&Page::read(recipe.page).output(recipe.code));
        assert!(told.is_ok(), "docs/clients/{}: {told:?}", recipe.page);
    }
}

#[test]
fn the_index_has_every_client() {
    let index = Page::read(INDEX);
    for recipe in RECIPES {
        assert!(
            index.row(recipe.client).is_some(),
            "docs/clients/README.md lacks {}: make client-pages",
            recipe.client
        );
    }
}
