# Palisade: `make run` starts a lock server, `make test` runs every test, `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

MODULE := $(abspath $(or $(CARGO_TARGET_DIR),target))/release/libpalisade.so
SERVER ?= redis-server
CLI ?= redis-cli

# Rust lists its tools here before a new login shell finds them.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PORT=6380 make run            on a port of your choice (default: 6379 or the next free one)"
	@echo "  DATA=folder make run          with its data elsewhere (default: data/<port>)"
	@echo "  SERVER=/path/to/valkey-server make run"
	@echo "  PALISADE_SERVER=/path/to/valkey-server make test"

.PHONY: setup
setup: ## Install what is missing: redis-server, libclang, a C compiler (Debian, Ubuntu)
	@command -v cargo >/dev/null || { echo "Rust is missing: install it from https://rustup.rs, then try again." >&2; exit 1; }
	@missing=(); \
	command -v $(SERVER) >/dev/null || missing+=(redis-server); \
	command -v $(CLI) >/dev/null || missing+=(redis-tools); \
	command -v cc >/dev/null || missing+=(build-essential); \
	libclang=; for name in libclang.so 'libclang.so.*' 'libclang-[0-9]*.so*'; do \
	  for folder in '/usr/lib/llvm-*/lib' '/usr/lib/*' /usr/lib64; do \
	    if compgen -G "$$folder/$$name" >/dev/null; then libclang=yes; fi; \
	  done; \
	done; \
	[ -n "$$libclang$${LIBCLANG_PATH:-}" ] || missing+=(libclang-dev); \
	if [ $${#missing[@]} -gt 0 ]; then \
	  if ! command -v apt-get >/dev/null; then \
	    echo "Missing: $${missing[*]} (names of Debian packages). Install them with your package manager, then try again." >&2; \
	    exit 1; \
	  fi; \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  echo "Installing what is missing: $${missing[*]}"; \
	  $$sudo apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends "$${missing[@]}" >/dev/null; \
	fi

.PHONY: build
build: module ## Build the module and the palisade program, optimised, and say where they are
	@cargo build --release --package palisade-cli
	@echo "The module:  $(MODULE)"
	@echo "The program: $(dir $(MODULE))palisade (docs/cli.md; palisade help)"

.PHONY: module
module: setup
	@cargo build --release --package palisade

.PHONY: run
run: module ## Start a server with the module in the foreground
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
	echo "  $(CLI) -p $$port LOCK.ACQUIRE orders:42 me 10000      # a fencing token: the lock is yours for 10 s"; \
	echo "  $(CLI) -p $$port LOCK.INFO orders:42                  # who holds it"; \
	echo "  $(CLI) -p $$port LOCK.RELEASE orders:42 me            # 0 holds left: it is free"; \
	echo; \
	if [ "$$new" ]; then \
	  (for _ in {1..100}; do \
	    $(CLI) -p $$port LOCK.GUARD LIFT >/dev/null 2>&1 && break; sleep 0.1; \
	  done) & \
	fi; \
	exec $(SERVER) redis.conf --port $$port --dir "$$data" --loadmodule "$(MODULE)"

.PHONY: test
test: setup ## Run every test: the rules, the module on a real server, the client on five, the program at a terminal
	@cargo test --workspace

.PHONY: crash
crash: setup ## Crash servers at random under load, ROUNDS (100) of each kind: about three minutes
	@PALISADE_ROUNDS=$${ROUNDS:-100} cargo test --test server -- --nocapture --test-threads 2 crashes::

.PHONY: storm
storm: setup ## Many at once: 10 000 who wait, 10 000 critical sections over five nodes: about two minutes
	@PALISADE_WAITERS=10000 cargo test --test server -- --nocapture storms::
	@PALISADE_SECTIONS=10000 cargo test --package palisade-client --test quorum -- --nocapture contention::

.PHONY: bench
bench: module ## Measure hand-over and quorum beside what else there is, on SERVER: about four minutes
	@cargo build --release --quiet --package palisade-bench
	@for what in hand-over quorum; do \
	  cargo run --release --quiet --package palisade-bench -- --server "$(SERVER)" --module "$(MODULE)" $$what; \
	done

.PHONY: demo
demo: module ## Tell a story with five nodes: wait, kill, restart, pause, refuse (about half a minute)
	@cargo build --release --quiet --package palisade-client --example demo
	@cargo run --release --quiet --package palisade-client --example demo -- --server "$(SERVER)" --module "$(MODULE)"

.PHONY: lint
lint: setup ## Check format, lints and documentation
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --quiet -- -D warnings
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet

.PHONY: clean
clean: ## Remove what was built; data of `make run` stays
	@cargo clean
