# Everything a person needs. `make run` and `make test` do all of their own set-up.

# More for `tollgate serve`, such as ARGS="--config policy.yaml --upstream http://127.0.0.1:3000".
ARGS ?=

# Where Debian puts servers; not every user looks there. The folders of PostgreSQL are named after its versions.
EMPTY :=
export PATH := $(PATH):/usr/sbin:/sbin$(subst $(EMPTY) /,:/,$(addprefix $(EMPTY) ,$(wildcard /usr/lib/postgresql/*/bin)))

.DEFAULT_GOAL := help
.PHONY: help run check test test-loom lint msrv deny semver miri package coverage fuzz fuzz-gateway bench bench-engine bench-fleet bench-gateway bench-growth bench-overload bench-policy bench-pool bench-queue bench-records bench-redis bench-replay bench-rlqs bench-service faults simulate-faults screenshots pictures generate install dist reproducible footprint deb rpm deb-test systemd-test image image-test engine-test chart docs release-check setup setup-test clean bench-client profile-gateway

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

setup:
	@setup/debian cc=gcc ld=binutils
	@command -v cargo >/dev/null || { echo "Please install a Rust toolchain first (rustup, or Debian's cargo 1.90 or newer)." >&2; exit 1; }

# A profile of its own: without link-time optimization the first start is minutes faster.
run: setup ## starts gateway, API, dashboard and a demo service, and prints what to open and to curl
	@echo "Building; the first time takes some minutes, the next start a second."
	@setup/with-progress cargo build --profile quick -p tollgate-cli
	@exec $${CARGO_TARGET_DIR:-target}/quick/tollgate serve $(ARGS)

# Real proxies, clients, load generators, Redis and PostgreSQL servers: what the tests talk to.
setup-test: setup
	@setup/debian curl=curl jq=jq nginx=nginx haproxy=haproxy caddy=caddy wrk=wrk h2load=nghttp2-client slowhttptest=slowhttptest openssl=openssl prlimit=util-linux
	@setup/debian redis-server=redis-server redis-cli=redis-tools redis-sentinel=redis-sentinel nft=nftables ip=iproute2
	@setup/debian initdb=postgresql psql=postgresql-client
	@setup/debian chromium=chromium
	@setup/debian prometheus=prometheus
	@setup/python crates/tollgate-cli/tests/clients/requirements.txt
	@setup/python crates/tollgate-cli/tests/tools/requirements.txt target/tools
	@setup/node crates/tollgate-cli/tests/clients
	@setup/node crates/tollgate-cli/tests/page target/page
	@setup/node clients/typescript target/typescript
	@setup/envoy

test: setup-test test-loom ## all tests, from nothing
	@# Without the examples, which `make lint` compiles. Documentation is tested even if a test fails.
	cargo test --workspace --no-fail-fast --lib --bins --tests; tests=$$?; cargo test --workspace --doc && exit $$tests

# Loom replaces the atomics of the in-memory table and tries every interleaving,
# so it needs a build of its own.
test-loom: setup
	CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg loom" cargo test --profile quick -p tollgate-store -p tollgate-lease --lib interleavings

lint: setup ## formatting and clippy, with warnings as errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	for crate in crates/*; do cargo check --quiet -p $$(basename $$crate) || exit 1; done # each on its own
	@.ci/features
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

# A commit or branch to compare with; main unless given.
BASE ?=
check: setup ## formatting, clippy and unit tests of the crates that differ from main (BASE=COMMIT)
	@.ci/check $(BASE)

msrv: setup ## compiles with the oldest supported compiler, `rust-version` of Cargo.toml
	@.ci/msrv

deny: setup ## licenses, duplicates, sources and advisories of dependencies (cargo-deny, deny.toml)
	@setup/cargo-tool cargo-deny 0.20.2
	@.ci/deny

semver: setup ## public API against a published version or BASE=COMMIT (cargo-semver-checks)
	@setup/cargo-tool cargo-semver-checks 0.51.0
	@.ci/semver $(BASE)

miri: setup ## the in-memory store, under Miri or else under valgrind
	@setup/debian valgrind=valgrind
	@.ci/miri

package: setup ## packages every crate that can be published, without uploading
	cargo package --quiet --workspace --no-verify --allow-dirty $(PRIVATE:%=--exclude %)
	@ls $${CARGO_TARGET_DIR:-target}/package/*.crate

# Crates with `publish = false`.
PRIVATE = tollgate-bench tollgate-bench-client tollgate-testkit xtask

coverage: setup ## line coverage of the unit and integration tests, as HTML (cargo-llvm-cov)
	@command -v cargo-llvm-cov >/dev/null || { echo "coverage: needs cargo-llvm-cov: cargo install --locked cargo-llvm-cov, and rustup component add llvm-tools" >&2; exit 1; }
	@$(MAKE) --no-print-directory setup-test
	cargo llvm-cov --workspace --no-fail-fast --html

# Seconds for each target; 0 only builds them.
FUZZ_SECONDS ?= 60
# Targets of fuzz/, such as TARGETS="policy log_line"; all unless given.
TARGETS ?=
fuzz: setup ## feeds random input to every parser that reads from outside (FUZZ_SECONDS=60 for each)
	@setup/debian c++=g++
	@.ci/fuzz $(FUZZ_SECONDS) $(TARGETS)

# Mutated requests, connections that nginx and hyper read as well, and the seed of their generator.
REQUESTS ?= 1000000
CONNECTIONS ?= 100000
SEED ?= 20261117
fuzz-gateway: setup ## sends mutated requests through the gateway to an upstream that checks every byte, and compares its reading with nginx and hyper (REQUESTS=1000000 CONNECTIONS=100000 SEED=20261117)
	@setup/debian nginx=nginx
	TOLLGATE_MUTATIONS=$(REQUESTS) TOLLGATE_DIFFERENTIAL=$(CONNECTIONS) TOLLGATE_MUTATION_SEED=$(SEED) cargo test --profile quick -p tollgate-gateway --test gateway --test gateway_hyper -- --nocapture --test-threads=1 mutations:: differential::

# Seeds of the fault simulator, and the first of them.
SEEDS ?= 10000
FIRST ?= 0
simulate-faults: setup ## real limiters on simulated links, stores and clocks, with faults (SEEDS=10000; one: SEEDS=1 FIRST=seed)
	cargo run --quiet --release -p tollgate-sim --example simulate_faults -- $(SEEDS) $(FIRST)

bench: bench-client bench-engine bench-policy bench-fleet bench-gateway bench-growth bench-overload bench-pool bench-queue bench-records bench-redis bench-rlqs bench-service bench-replay ## every benchmark

bench-client: setup ## tollgate-client under limits of the gateway and of servers like GitHub, Discord and OpenAI, beside other clients; one budget for four processes; a retry storm
	@setup/debian redis-server=redis-server python3=python3
	@setup/python crates/tollgate-cli/tests/clients/requirements.txt
	@setup/node crates/tollgate-cli/tests/clients
	cargo build --release -p tollgate-cli
	cargo run --release -p tollgate-bench-client
	cargo run --release -p tollgate-client --example overhead

bench-engine: setup ## in-process checks against governor, throttlecrab and others, one table
	@setup/debian valgrind=valgrind
	cargo run --release -p tollgate-bench --bin engine

bench-fleet: setup ## unit leases, regions and peers: hot keys against the in-memory store, nodes and processes on one Redis, a cluster
	@setup/debian redis-server=redis-server redis-cli=redis-tools redis-benchmark=redis-tools nginx=nginx wrk=wrk taskset=util-linux
	cargo build --release -p tollgate-cli
	cargo run --release -p tollgate-bench --bin fleet

bench-gateway: setup ## the gateway against nginx and Envoy: one upstream, one load, one core each
	@setup/debian nginx=nginx wrk=wrk taskset=util-linux prlimit=util-linux
	@setup/envoy
	cargo build --release -p tollgate-cli
	cargo run --release -p tollgate-bench --bin gateway -- $(if $(PAUSE),--pause $(PAUSE))

bench-growth: setup ## cost per decision from 10,000 to 100 million keys, 10 to 100,000 limits, 1 to 10,000 connections
	@setup/debian valgrind=valgrind taskset=util-linux prlimit=util-linux
	cargo build --release -p tollgate-cli
	cargo run --release -p tollgate-bench --bin growth

CASE ?= refused
profile-gateway: setup ## the CPU time of one request of the gateway by groups of symbols (CASE=refused, admitted or off)
	@setup/debian nginx=nginx wrk=wrk taskset=util-linux perf=linux-perf
	cargo build --release -p tollgate-cli
	bench/profile.sh $${CARGO_TARGET_DIR:-target}/release/tollgate $(CASE)

bench-overload: setup ## a service at four times its capacity, behind nothing, Envoy's filters and Tollgate
	@setup/debian prlimit=util-linux
	@setup/envoy
	cargo build --release -p tollgate-cli
	cargo run --release -p tollgate-bench --bin overload

bench-policy: setup ## compiling and matching 10,000 limits
	cargo run --release -p tollgate-policy --example matching_speed

bench-pool: setup ## a PostgreSQL pool under overload, with and without a ceiling before it
	@setup/debian initdb=postgresql psql=postgresql-client
	cargo build --release -p tollgate-http --example postgres_pool
	cargo run --release -p tollgate-bench --bin pool

bench-queue: setup ## the delays of nginx's `limit_req` against those of the imported policy
	@setup/debian nginx=nginx taskset=util-linux
	cargo build --release -p tollgate-cli
	cargo run --release -p tollgate-bench --bin queue

# Records of the benchmark of the decision log: 160 bytes each.
RECORDS ?= 20000000
bench-records: setup ## the decision log: cost at full load, bytes per record, lookups by id (RECORDS=20000000)
	@setup/debian wrk=wrk curl=curl
	cargo build --release -p tollgate-cli
	bench/records.sh $${CARGO_TARGET_DIR:-target}/release/tollgate
	cargo build --release -p tollgate-records --example records_speed
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && speed=$${CARGO_TARGET_DIR:-target}/release/examples/records_speed && $$speed write $$dir $(RECORDS) && $$speed find $$dir $(RECORDS)

bench-redis: setup ## decisions in Redis against one EVALSHA for each, one core each
	@setup/debian redis-server=redis-server taskset=util-linux
	cargo run --release -p tollgate-bench --bin redis

bench-replay: setup ## a log replayed against a policy, compared with goaccess: lines per second, memory
	@setup/debian goaccess=goaccess time=time
	cargo build --release -p tollgate-cli
	cargo run --release -p tollgate-bench --bin replay

bench-rlqs: setup ## one limit over three Envoys: fairness, a killed Envoy, a killed Tollgate
	@setup/envoy
	cargo build --release -p tollgate-cli
	cargo run --release -p tollgate-testkit --example rlqs

bench-service: setup ## RESP, HTTP and gRPC against throttlecrab-server and Redis, one core each
	@setup/debian redis-server=redis-server redis-benchmark=redis-tools wrk=wrk h2load=nghttp2-client curl=curl taskset=util-linux
	@setup/throttlecrab
	cargo build --release -p tollgate-cli
	cargo run --release -p tollgate-bench --bin service

# One test at a time: what is measured is not what other tests leave of the machine.
faults: setup-test ## breaks Redis in every way under load, and rewrites docs/faults.md (ONLY=leased: some tests, and their rows)
	rm -rf "$${CARGO_TARGET_DIR:-target}/faults"
	cargo test -p tollgate-cli --test faults -- --test-threads=1 $(ONLY)
	cargo run --quiet -p xtask -- $(if $(ONLY),merge-faults,faults) "$${CARGO_TARGET_DIR:-target}/faults"

screenshots: setup-test ## photographs the dashboard under traffic, and rewrites docs/images
	mkdir -p docs/images
	TOLLGATE_SCREENSHOTS="$(CURDIR)/docs/images" cargo test -p tollgate-cli --test integration page:: -- --ignored --nocapture

# Chance has a seed, so the same pictures come out each time.
PICTURE = $${CARGO_TARGET_DIR:-target}/release/tollgate simulate
pictures: setup ## draws the pictures of docs/simulate.md with the tool itself
	cargo build --quiet --release -p tollgate-cli
	mkdir -p docs/images
	$(PICTURE) --traffic edge --algorithm fixed-window,sliding-window,sliding-log --svg docs/images/simulate-edge.svg >/dev/null
	$(PICTURE) --traffic on-off --rate 60/minute --algorithm sliding-log,token-bucket,gcra --burst 20 --svg docs/images/simulate-bursts.svg >/dev/null
	$(PICTURE) --traffic flash-crowd --rate 60/minute --algorithm fixed-window,sliding-parts,token-bucket --chart arrivals --svg docs/images/simulate-flash-crowd.svg >/dev/null
	$(PICTURE) --traffic retry-storm --rate 100/minute --algorithm fixed-window --no-jitter --svg docs/images/simulate-herd.svg >/dev/null
	$(PICTURE) --traffic retry-storm --rate 100/minute --algorithm fixed-window --svg docs/images/simulate-jitter.svg >/dev/null
	$(PICTURE) --traffic steady --load 8 --rate 60/minute --nodes 4 --algorithm fixed-window,sliding-log --svg docs/images/simulate-nodes.svg >/dev/null
	$(PICTURE) --overload step --svg docs/images/overload-step.svg >/dev/null
	$(PICTURE) --overload step --chart latency --svg docs/images/overload-step-latency.svg >/dev/null
	$(PICTURE) --overload step --chart critical --svg docs/images/overload-step-critical.svg >/dev/null
	$(PICTURE) --overload retry-storm --svg docs/images/overload-retry-storm.svg >/dev/null
	$(PICTURE) --overload retry-storm-budget --svg docs/images/overload-retry-storm-budget.svg >/dev/null
	$(PICTURE) --overload slow-upstream --svg docs/images/overload-slow-upstream.svg >/dev/null
	$(PICTURE) --overload slow-dependency --svg docs/images/overload-slow-dependency.svg >/dev/null

generate: setup ## rewrites the documents that the code generates
	cargo run --quiet -p xtask -- generate

# Where `make install` puts files; DESTDIR is put before it.
PREFIX ?= $(HOME)/.local
install: setup ## installs tollgate, completions and manual pages to ~/.local (PREFIX=/usr/local)
	cargo build --locked --release -p tollgate-cli
	@packaging/install $${CARGO_TARGET_DIR:-target}/release/tollgate $(PREFIX)
	@echo "installed $(DESTDIR)$(PREFIX)/bin/tollgate"

dist: setup ## an archive with a static binary, completions, manual pages, licenses, SBOM and checksums, in target/dist
	@setup/debian python3=python3
	@packaging/dist

reproducible: setup ## builds the static binary twice, in two folders, and compares the checksums
	@packaging/reproducible

deb: setup ## a Debian package with a hardened systemd unit, in target/deb
	@setup/debian dpkg-deb=dpkg python3=python3 lintian=lintian
	@packaging/deb

rpm: setup ## an RPM with the files of the Debian package, in target/rpm
	@setup/debian rpmbuild=rpm
	@packaging/rpm

deb-test: setup ## installs, serves, upgrades and purges the package in a chroot
	@setup/debian debootstrap=debootstrap curl=curl
	@packaging/deb-test

systemd-test: setup ## boots a Debian with the package in a container: the unit under a running systemd
	@setup/debian debootstrap=debootstrap systemd-nspawn=systemd-container curl=curl
	@packaging/systemd-test

image: setup ## a container image from nothing, in target/image
	@setup/debian buildah=buildah python3=python3
	@packaging/image

image-test: setup ## runs the image as uid 65534 with a read-only root: starts, answers, refuses, is healthy
	@setup/debian curl=curl
	@packaging/image-test

engine-test: setup ## runs the image in podman, and reads compose.yaml with podman-compose
	@setup/debian curl=curl podman=podman podman-compose=podman-compose
	@packaging/engine-test
	@TOLLGATE=$(CURDIR)/target/image/root/bin/tollgate packaging/compose-test

chart: setup ## renders the Helm chart, checks it and writes deploy/kubernetes
	@packaging/chart/check --write

footprint: setup ## size, time to the first answer and idle memory of the static binary
	@setup/debian python3=python3
	@packaging/static "$(CURDIR)/target/static" >/dev/null
	@packaging/footprint

docs: setup ## the book as HTML, in target/book (mdBook)
	@setup/cargo-tool mdbook 0.5.4
	@packaging/book

release-check: setup ## everything a release needs, from a clean clone of HEAD
	@packaging/release-check

clean: ## removes what was built
	cargo clean
