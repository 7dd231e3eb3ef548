//! The recipes of docs/clients on a real server: each tells one story and prints what its page shows. Also, for each, a
//! holder without a heartbeat (docs/keepalive.md), which is killed.
//!
//! They need their clients (`make setup-clients`), so they are ignored by default: `make test-clients` runs all, and
//! `make test` the cheap ones. The code on the pages is always compared. With `PALISADE_WRITE_PAGES` set, code, output
//! and the table of the index are written to the pages instead: `make client-pages`.
//!
//! The tests are in Rust because the harness starts the servers, and because nothing but Rust is needed beforehand.

// Tests measure durations; the rule that only one file reads clocks is for the module.
#![allow(clippy::disallowed_methods)]

mod agent;
#[path = "../harness/mod.rs"]
#[allow(dead_code, unused_imports)]
mod harness;
mod killed;
mod lossy;
mod lost;
mod page;
mod running;
mod story;

use std::fs;

use harness::{Client, Setup, acl_rules, text};
use page::{INDEX, KEEPALIVE, Page};
use running::{folder, output};

/// A recipe. A shell runs its commands in `tests/clients`, with the server's `PORT`.
struct Recipe {
    /// The client's name in the index of docs/clients.
    client: &'static str,
    /// The page in `docs/clients`.
    page: &'static str,
    /// The code in `tests/clients`.
    code: &'static str,
    /// The command that builds the recipe.
    build: Option<&'static str>,
    /// The command that runs the recipe.
    run: &'static str,
    /// The command that prints the client's version.
    version: &'static str,
    /// The program of the page that takes a lock with KEEPALIVE, and needs no heartbeat.
    holder: Holder,
}

/// A program from a page, which takes a lock with KEEPALIVE, prints its token and works.
struct Holder {
    /// The code in `tests/clients`.
    code: &'static str,
    /// The command that builds the program.
    build: Option<&'static str>,
    /// The command that runs the program.
    run: &'static str,
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
                crate::lost::is_sent_again_as_the_index_says(&$recipe);
            })*
        }

        mod lost_grant {
            $(#[test]
            #[ignore = "needs its client: make test-clients"]
            fn $name() {
                crate::lost::gives_back_what_it_does_not_know_of(&$recipe);
            })*
        }

        mod kill_9 {
            $(#[test]
            #[ignore = "needs its client: make test-clients"]
            fn $name() {
                crate::killed::frees_the_lock_within_its_ttl(&$recipe);
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
        holder: crate::Holder {
            code: "shell/redis-cli_keepalive.sh",
            build: None,
            run: "bash shell/redis-cli_keepalive.sh orders:import sleep 600",
        },
    },
    redis_py: crate::Recipe {
        client: "redis-py",
        page: "redis-py.md",
        code: "python/redis_py.py",
        build: None,
        run: "python python/redis_py.py",
        version: crate::PYTHON_VERSION,
        holder: crate::Holder {
            code: "python/redis_py_keepalive.py",
            build: None,
            run: "python python/redis_py_keepalive.py",
        },
    },
    redis_py_asyncio: crate::Recipe {
        client: "redis-py, asyncio",
        page: "redis-py.md",
        code: "python/redis_py_asyncio.py",
        build: None,
        run: "python python/redis_py_asyncio.py",
        version: crate::PYTHON_VERSION,
        holder: crate::Holder {
            code: "python/redis_py_asyncio_keepalive.py",
            build: None,
            run: "python python/redis_py_asyncio_keepalive.py",
        },
    },
    node_redis: crate::Recipe {
        client: "node-redis",
        page: "node-redis.md",
        code: "node/node-redis.mjs",
        build: None,
        run: "node node/node-redis.mjs",
        version: "node -p \"JSON.parse(fs.readFileSync('node/node_modules/redis/package.json')).version\"",
        holder: crate::Holder {
            code: "node/node-redis_keepalive.mjs",
            build: None,
            run: "node node/node-redis_keepalive.mjs",
        },
    },
    ioredis: crate::Recipe {
        client: "ioredis",
        page: "ioredis.md",
        code: "node/ioredis.mjs",
        build: None,
        run: "node node/ioredis.mjs",
        version: "node -p \"JSON.parse(fs.readFileSync('node/node_modules/ioredis/package.json')).version\"",
        holder: crate::Holder {
            code: "node/ioredis_keepalive.mjs",
            build: None,
            run: "node node/ioredis_keepalive.mjs",
        },
    },
    hiredis: crate::Recipe {
        client: "hiredis",
        page: "hiredis.md",
        code: "c/hiredis.c",
        build: Some("cc -Wall -Wextra -Werror -o $BUILT/hiredis c/hiredis.c -lhiredis"),
        run: "$BUILT/hiredis",
        version: "echo '#include <hiredis/hiredis.h>\nHIREDIS_MAJOR.HIREDIS_MINOR.HIREDIS_PATCH' \
                  | cc -E -P - | tail -n 1 | tr -d ' '",
        holder: crate::Holder {
            code: "c/hiredis_keepalive.c",
            build: Some("cc -Wall -Wextra -Werror -o $BUILT/hiredis_keepalive c/hiredis_keepalive.c -lhiredis"),
            run: "$BUILT/hiredis_keepalive",
        },
    },
    phpredis: crate::Recipe {
        client: "phpredis",
        page: "phpredis.md",
        code: "php/phpredis.php",
        build: None,
        run: "php php/phpredis.php",
        version: "php -r 'echo phpversion(\"redis\");'",
        holder: crate::Holder {
            code: "php/phpredis_keepalive.php",
            build: None,
            run: "php php/phpredis_keepalive.php",
        },
    },
    predis: crate::Recipe {
        client: "Predis",
        page: "predis.md",
        code: "php/predis.php",
        build: None,
        run: "php php/predis.php",
        version: "php -r 'require \"Predis/autoload.php\"; echo Predis\\Client::VERSION;'",
        holder: crate::Holder {
            code: "php/predis_keepalive.php",
            build: None,
            run: "php php/predis_keepalive.php",
        },
    },
    redis_rb: crate::Recipe {
        client: "redis-rb",
        page: "redis-rb.md",
        code: "ruby/redis.rb",
        build: None,
        run: "ruby ruby/redis.rb",
        version: "ruby -e 'require \"redis\"; puts Redis::VERSION'",
        holder: crate::Holder {
            code: "ruby/redis_keepalive.rb",
            build: None,
            run: "ruby ruby/redis_keepalive.rb",
        },
    },
    perl: crate::Recipe {
        client: "Redis (Perl)",
        page: "perl.md",
        code: "perl/redis.pl",
        build: None,
        run: "perl perl/redis.pl",
        version: "perl -MRedis -e 'print Redis->VERSION'",
        holder: crate::Holder {
            code: "perl/redis_keepalive.pl",
            build: None,
            run: "perl perl/redis_keepalive.pl",
        },
    },
    lua: crate::Recipe {
        client: "redis-lua",
        page: "lua.md",
        code: "lua/redis.lua",
        build: None,
        run: "lua5.1 lua/redis.lua",
        version: "lua5.1 -e 'print((require(\"redis\")._VERSION:gsub(\".* \", \"\")))'",
        holder: crate::Holder {
            code: "lua/redis_keepalive.lua",
            build: None,
            run: "lua5.1 lua/redis_keepalive.lua",
        },
    },
    redis_rs: crate::Recipe {
        client: "redis-rs",
        page: "redis-rs.md",
        code: "rust/src/bin/redis_rs.rs",
        build: Some("cargo build --quiet --manifest-path rust/Cargo.toml --target-dir $BUILT --bin redis_rs"),
        run: "$BUILT/debug/redis_rs",
        version: "cargo tree --manifest-path rust/Cargo.toml --package redis --depth 0 | sed 's/.* v//'",
        holder: crate::Holder {
            code: "rust/src/bin/redis_rs_keepalive.rs",
            build: Some("cargo build --quiet --manifest-path rust/Cargo.toml --target-dir $BUILT --bin redis_rs_keepalive"),
            run: "$BUILT/debug/redis_rs_keepalive",
        },
    },
    fred: crate::Recipe {
        client: "fred",
        page: "fred.md",
        code: "rust/src/bin/fred.rs",
        build: Some("cargo build --quiet --manifest-path rust/Cargo.toml --target-dir $BUILT --bin fred"),
        run: "$BUILT/debug/fred",
        version: "cargo tree --manifest-path rust/Cargo.toml --package fred --depth 0 | sed 's/.* v//'",
        holder: crate::Holder {
            code: "rust/src/bin/fred_keepalive.rs",
            build: Some("cargo build --quiet --manifest-path rust/Cargo.toml --target-dir $BUILT --bin fred_keepalive"),
            run: "$BUILT/debug/fred_keepalive",
        },
    },
    redigo: crate::Recipe {
        client: "redigo",
        page: "go.md",
        code: "go/redigo/main.go",
        build: Some("GO111MODULE=off GOPATH=/usr/share/gocode go build -o $BUILT/redigo ./go/redigo"),
        run: "$BUILT/redigo",
        version: "dpkg-query --show --showformat '${Version}' golang-github-gomodule-redigo-dev \
                  | sed 's/^.*://; s/-.*//'",
        holder: crate::Holder {
            code: "go/redigo_keepalive/main.go",
            build: Some("GO111MODULE=off GOPATH=/usr/share/gocode go build -o $BUILT/redigo_keepalive ./go/redigo_keepalive"),
            run: "$BUILT/redigo_keepalive",
        },
    },
}

/// Returns true if the pages are to be written instead of compared.
fn writes_pages() -> bool {
    std::env::var_os("PALISADE_WRITE_PAGES").is_some()
}

/// Runs a recipe. Its output must have the steps of the story that [`story`] describes, and must not differ from the
/// output that the recipe's page shows.
fn tells_its_story(recipe: &Recipe) {
    build(recipe.build);
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

/// Restricts users that do not log in, as recipes do not, to the permissions of an application in docs/acl.md. They may
/// also arm the guard, which recipes do to show its error.
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

/// Runs the build command, if there is one.
fn build(command: Option<&str>) {
    if let Some(command) = command {
        output(command, 0);
    }
}

/// Returns the server's name and version, as the index of docs/clients shows them.
fn name_and_version(client: &mut Client) -> String {
    let info = client.say("INFO server").as_text();
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    match (field("valkey_version:"), field("redis_version:")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, version) => format!("Redis {}", version.expect("a version")),
    }
}

/// This recipe of redis-py leaves out the steps that only a node supports.
#[test]
#[ignore = "needs its client: make test-clients"]
fn through_the_agent() {
    let recipe = RECIPES.iter().find(|recipe| recipe.client == "redis-py").expect("a recipe");
    agent::tells_its_story_over_five_nodes(recipe);
}

#[test]
fn pages_show_the_code_that_runs() {
    for (page, file) in
        RECIPES.iter().flat_map(|recipe| [recipe.code, recipe.holder.code].map(|file| (recipe.page, file)))
    {
        let code = fs::read_to_string(folder().join(file)).unwrap();
        if writes_pages() {
            Page::change(page, |page| page.set_code(file, &code));
        } else {
            let shown = Page::read(page).code(file);
            assert!(shown == code, "docs/clients/{page} shows other code: make client-pages");
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
fn the_tables_have_every_client() {
    for (page, client) in RECIPES.iter().flat_map(|recipe| [INDEX, KEEPALIVE].map(|page| (page, recipe.client))) {
        assert!(Page::read(page).row(client).is_some(), "docs/clients/{page} lacks {client}");
    }
}
