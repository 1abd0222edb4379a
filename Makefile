# What a developer types. Each target brings what it needs; only PostgreSQL and valgrind are installed outside this directory, as root.
# Needed beforehand: Rust 1.95 or later and a C compiler; for the tests a C++ compiler, Python 3.11 or later, Node 20 or later with npm.

DATA ?= rowhouse-data
FUZZ_SECONDS ?= 60
ROUNDS ?= 20
CUTS ?= 20
STORE ?= embedded
HOURS ?= 2
SECONDS ?= 60
ENTITIES ?= 10000000
COPIED ?= 20000
QUEUED ?= 1000000
PASSED ?= 5000000

.PHONY: help run check test verify lint audit conformance sdk crash fuzz bench bench-quick bench-pair instructions soak latency scale drill index queue archive overload attack copy-azurite dist dist-test loadgen

help:
	@echo 'make run           build the server and start it (DATA=directory, ARGS="more flags")'
	@echo 'make check         for every change while working: format, clippy and the tests of the crates and of the debug server'
	@echo 'make test          everything that must hold for a change to land; ends with a line per suite and one for all'
	@echo 'make verify        the long proofs, noted in docs/lab/verify.md (PARTS="crash locale"; scripts/verify --list)'
	@echo 'make lint          formatting and clippy, warnings denied'
	@echo 'make audit         licences, sources, duplicates and advisories of the dependencies (deny.toml)'
	@echo 'make conformance   recorded answers of Azure, and the Python SDK'"'"'s own tests'
	@echo 'make sdk           the official Python and JavaScript SDKs against the built server'
	@echo 'make crash         kill the server and cut its power under load (ROUNDS=20 kills, CUTS=20 each way, STORE=postgres)'
	@echo 'make fuzz          fuzz every parser (FUZZ_SECONDS=60 for each)'
	@echo 'make bench         compare with Azurite and with a bare HTTP server; writes docs/performance.md'
	@echo '                   STORE=postgres: with the same statements sent directly; docs/performance-postgres.md'
	@echo 'make bench-quick   the same in under two minutes, for a first look'
	@echo 'make bench-pair    compare two builds of the server, with quartiles (OLD=binary, NEW=binary, WORKLOADS="point insert")'
	@echo 'make instructions  instructions per request under valgrind, independent of the load of the machine (OLD=binary)'
	@echo 'make latency       latencies at 60 % of the full rate, with verdicts (SECONDS=60 for each kind)'
	@echo 'make soak          mixed load for hours: do memory, files and latencies stay flat (HOURS=2)'
	@echo 'make scale         cost, memory and disk as data grows (ENTITIES=10000000)'
	@echo 'make drill         backup and restore at size, compared with a plain copy, and while clients read (ENTITIES=10000000)'
	@echo 'make index         what an index saves a query, and costs others while it is built and kept (ENTITIES=1000000, STORE=postgres)'
	@echo 'make queue         what a message costs in a full queue, and after many have passed (QUEUED=1000000, PASSED=5000000)'
	@echo 'make archive       the worker of examples/archive, killed again and again, and its server (ROUNDS=20, STORE=postgres)'
	@echo 'make copy-azurite  copy a table from Azurite and to it, interrupted, compared by the Python SDK (COPIED=20000)'
	@echo 'make overload      the effect of thousands of other clients on healthy ones'
	@echo 'make attack        what one account notices while another one, and strangers, attack the server; about 4 minutes'
	@echo 'make dist          packages of a release, in dist/: tar, deb, wheel, npm and a container image (ARGS="--only tar,deb")'

run:
	cargo build --locked --release -p rowhouse-cli
	target/release/rowhouse serve --data $(DATA) $(ARGS)

check:
	scripts/test --lane check

test:
	scripts/test

verify:
	scripts/verify $(PARTS)

lint:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo fmt --manifest-path fuzz/Cargo.toml --check

audit:
	scripts/audit

conformance:
	scripts/test conformance conformance-postgres

sdk:
	scripts/test sdk-python sdk-js readme sdk-python-postgres sdk-js-postgres

crash:
	STORE=$(STORE) scripts/crash $(ROUNDS) $(CUTS)

fuzz:
	scripts/fuzz $(FUZZ_SECONDS)

bench:
	STORE=$(STORE) scripts/bench

bench-quick:
	STORE=$(STORE) scripts/bench --quick

# ARGS="--at-most 1.02" makes it fail when NEW takes more CPU time, or when that cannot be shown.
bench-pair:
	@test -x "$(OLD)" || { echo 'make bench-pair: OLD must name a binary of the server to compare with, not "$(OLD)"' >&2; exit 2; }
	@$(MAKE) --no-print-directory loadgen
	target/dist/loadgen pair --old $(OLD) $(if $(NEW),--new $(NEW)) $(WORKLOADS) $(ARGS)

instructions:
	@test -z "$(OLD)" || test -x "$(OLD)" || { echo 'make instructions: OLD="$(OLD)" is not a binary of the server' >&2; exit 2; }
	@$(MAKE) --no-print-directory loadgen
	scripts/setup valgrind
	target/dist/loadgen instructions $(if $(OLD),--old $(OLD)) $(if $(NEW),--new $(NEW)) $(ARGS)

loadgen:
	cargo build --locked --profile dist -p rowhouse-cli -p rowhouse-loadgen

latency: loadgen
	target/dist/loadgen latency --seconds $(SECONDS) $(ARGS)

soak: loadgen
	target/dist/loadgen soak --hours $(HOURS) $(ARGS)

scale: loadgen
	target/dist/loadgen scale --entities $(ENTITIES) $(ARGS)

drill: loadgen
	target/dist/loadgen drill --entities $(ENTITIES) $(ARGS)

# Fewer entities than elsewhere unless told otherwise: each is read several times before there is an index.
index: ENTITIES := $(if $(filter file,$(origin ENTITIES)),1000000,$(ENTITIES))
index: loadgen
	target/dist/loadgen index --entities $(ENTITIES) --store $(STORE) $(ARGS)

queue: loadgen
	target/dist/loadgen queue --queued $(QUEUED) --passed $(PASSED) $(ARGS)

archive:
	scripts/setup python
	cargo build --locked --release -p rowhouse-cli
	$(if $(filter postgres,$(STORE)),tests/sdk/postgres.py run) .work/venv/bin/python tests/archive/run.py $(ROUNDS)

copy-azurite:
	scripts/setup python
	scripts/setup azurite
	cargo build --locked --release -p rowhouse-cli
	.work/venv/bin/python tests/copy/run.py $(COPIED)

overload: loadgen
	target/dist/loadgen overload $(ARGS)

attack: loadgen
	target/dist/loadgen attack $(ARGS)

dist:
	scripts/dist $(ARGS)

# The packages of the dist build; `make test` does the same with the release build.
dist-test:
	scripts/setup python
	scripts/setup debootstrap
	cargo build --locked --profile dist -p rowhouse-cli
	.work/venv/bin/python tests/dist/run.py --binary target/dist/rowhouse
