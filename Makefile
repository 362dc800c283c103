# What contributors and CI run. On a bare Debian machine with Rust, `make test` installs or builds everything else it needs.

CARGO ?= cargo

# Installs the Debian packages named in the shell variable `missing`.
define INSTALL
[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates $$missing; \
	else \
	  echo "missing:$$missing (install them, or run this once as root)" >&2; exit 1; \
	fi
endef

.PHONY: build dev release image image-tools supply-chain test checked soak mutations canaries fuzz bench testbed tools compiler

build:
	$(CARGO) build --locked --workspace

# A server to try things on, at https://127.0.0.1:7443 with its data in ./repot-data. It is built as `make test` builds it, so that
# neither compiles again what the other has compiled. What is shipped comes from `make release`.
dev: compiler
	$(CARGO) build --locked --workspace --bin repot
	exec "$${CARGO_TARGET_DIR:-target}/debug/repot" dev $(ARGS)

# The program as it is shipped: target/release/repot.
release: compiler
	$(CARGO) build --release --locked --package repot

# Container images as OCI archives in target/image, for the architectures in ARCHS (docs/install/image.md). The first call compiles
# everything for each of them with all optimisations: half an hour on two cores, or more.
ARCHS = amd64 arm64
image: compiler image-tools
	deploy/image/build $(ARCHS)

# Known vulnerabilities, licences and sources of all dependencies, by cargo-deny, which the first call builds in minutes. `make test`
# checks licences and sources by itself (tests/tests/supply_chain).
supply-chain:
	tools/supply-chain

# The whole gate. The cheap checks come first; the tests' own summary is the last thing on the screen. Programs in Go are built
# beside those in Rust, whose compiler leaves a core idle at times; and as tests mostly wait for servers, there are more of them at
# a time than cores. Servers in Go collect garbage less often (GOGC): a sixth less CPU, for more memory.
test: tools
	$(CARGO) fmt --all --check
	$(MAKE) --jobs=2 testbed checked
	GOGC=$${GOGC:-400} RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((2 * $$(nproc)))} $(CARGO) test --locked --workspace --no-fail-fast

# CI lets clippy's compiler build everything, so that nothing is compiled a second time for the lints alone.
checked:
ifneq ($(notdir $(RUSTC_WORKSPACE_WRAPPER)),clippy-driver)
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
endif
	$(CARGO) build --locked --workspace --all-targets

# The long forms of the tests by outside oracles, of histories, of schedules and of fuzzers, an etcd that moves under much load, and
# control planes that move under faults: hours.
# What is timed has the machine to itself, and what kills the controllers that tests share runs without them. All crates are named
# each time: a part of them would be built once more, with fewer features.
SOAK = REPOT_SOAK=1 $(CARGO) test --locked --workspace
KILLER = controllers_are_killed_in_each_step
soak: testbed
	tests/go/build etcdbrctl gardenlet gardener-resource-manager konnectivity-server konnectivity-agent kubelet tunnel certmanager
	tests/python/build envoy
	$(MAKE) mutations
	tests/azure/build
	tests/browser/build
	tests/previous
	$(MAKE) image
	$(CARGO) build --locked --workspace --all-targets
	$(SOAK) -- history:: fuzz:: every_schedule
	$(SOAK) --test it -- store::cheap
	$(SOAK) --test it -- --include-ignored --test-threads 1 expansion::moves:: shootstate::large:: telemetry::cost
	$(SOAK) --test it -- --include-ignored --test-threads 1 install:: ui::
	$(SOAK) --test it -- --include-ignored --test-threads 1 migration:: landscape:: live:: isolation:: rehearse:: observe::migrations::
	$(SOAK) --test it -- --include-ignored oracles:: etcd::peer:: etcd::flips:: azure:: expansion:: operator:: ownership:: workflows:: shootstate::chunk_store:: gardener:: --skip expansion::moves:: --skip $(KILLER)
	$(SOAK) --test it -- --include-ignored $(KILLER)

# Mutation tests: whether tests of storage find the faults that mutations of its sources make (docs/design/storage-faults.md). This
# builds a mutated copy of the storage crate, in the target directory. `canaries` is the former name.
mutations: testbed
	$(CARGO) test --locked -p repot-storage --test it -- --include-ignored --nocapture mutations::
canaries: mutations

# Fuzzers that know what code they reach, each for FUZZ_SECONDS (docs/design/storage-faults.md). The first time, this builds cargo-fuzz and
# all of the server once more, on stable Rust. `fuzz/run --keep` copies what has reached new code into the corpus.
fuzz:
	fuzz/run $(FUZZ_TARGETS)

# Repot beside a CRD on this machine: make bench BENCH="--quick --output json" (all options: BENCH=--help).
# Snapshots beside the tools of etcd: make bench BENCH="snapshots --size 200MB"; `tests/go/build etcdbrctl` before it lets
# etcd-backup-restore take part.
bench: testbed
	$(CARGO) build --locked --release -p repot
	$(CARGO) run --locked --release -p repot-tests --bin bench -- $(BENCH)

# A garden, two seeds and a Shoot with six nodes, until Ctrl-C; kubeconfig files are in ./landscape. It needs root, for Pods. A test
# program is built, too: without one, cargo builds all dependencies again with other features.
.PHONY: landscape
landscape: testbed
	$(CARGO) build --locked --workspace --bins --test it
	exec "$${CARGO_TARGET_DIR:-target}/debug/landscape" $(ARGS)

# The quick start of docs/install/quick-start.md on a cluster of this machine, until Ctrl-C; the kubeconfig file is in ./quick-start.
# It needs root, for Pods. `make try ARGS=--images=target/image` runs the images that `make image` has written.
.PHONY: try
try: testbed
	$(CARGO) build --locked --workspace --bins --test it
	exec "$${CARGO_TARGET_DIR:-target}/debug/quick_start" $(ARGS)

# A flow on this machine, under load, with a report (docs/operate/rehearse.md): make rehearse ARGS="live --rtt 180ms". It needs root, for
# Pods. Everything that it writes is in ./rehearsal.
.PHONY: rehearse
rehearse: testbed
	$(CARGO) build --locked --workspace --bins --test it
	exec "$${CARGO_TARGET_DIR:-target}/debug/rehearse" $(ARGS)

# The images of docs/operate/dashboards.md, from ten minutes of a real run. It needs root, for Pods.
.PHONY: panels
panels: testbed
	tests/python/build matplotlib
	$(CARGO) build --locked --workspace --all-targets
	RENDER_PANELS=$(CURDIR)/docs/operate/images $(CARGO) test --locked --workspace --test it -- --include-ignored observe:: --nocapture --test-threads 1

# The pictures of docs/operate/web-page.md, from a browser.
.PHONY: page-pictures
page-pictures: testbed
	tests/browser/build
	$(CARGO) build --locked --workspace --all-targets
	PAGE_PICTURES=$(CURDIR)/docs/operate/images $(CARGO) test --locked --workspace --test it -- --include-ignored ui::page_shows --nocapture

# The documentation as a book, in target/book. Not a part of `make test`: the first call builds mdBook, which takes minutes. `make
# test` checks links, headings, flags and metrics of the pages (tests/tests/docs).
.PHONY: docs
MDBOOK = target/mdbook/bin/mdbook
docs:
	[ "$$($(MDBOOK) --version 2>/dev/null)" = "mdbook v0.5.4" ] || \
	  $(CARGO) install --locked --version 0.5.4 --root target/mdbook --target-dir target/mdbook/build --no-default-features mdbook
	$(MDBOOK) build docs
	$(CARGO) test --locked --workspace --test it -- docs::

# Kubernetes, etcd and other programs for the tests, at pinned versions, once: some 20 minutes on two cores.
testbed: tools
	tests/go/build
	tests/tools/schemas
	tests/tools/old-kubectl
	tests/python/build

# Go, Python, DNS servers, a clock that can be set, HTTP clients, what makes namespaces, and a protobuf compiler, from the distribution
# when they are missing. `cargo build` alone builds a protobuf compiler of its own, which takes two minutes.
tools: compiler
	@missing=; \
	command -v go >/dev/null || missing="$$missing golang-go"; \
	python3 -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	command -v ip >/dev/null || missing="$$missing iproute2"; \
	command -v nsenter >/dev/null || missing="$$missing util-linux"; \
	command -v mount >/dev/null || missing="$$missing mount"; \
	PATH=$$PATH:/usr/sbin command -v nft >/dev/null || missing="$$missing nftables"; \
	PATH=$$PATH:/usr/sbin command -v iptables >/dev/null || missing="$$missing iptables"; \
	command -v knotd >/dev/null || missing="$$missing knot"; \
	command -v unbound >/dev/null || missing="$$missing unbound"; \
	ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || missing="$$missing libfaketime"; \
	command -v curl >/dev/null || missing="$$missing curl"; \
	command -v nghttp >/dev/null || missing="$$missing nghttp2-client"; \
	protoc --descriptor_set_out=/dev/null google/protobuf/descriptor.proto 2>/dev/null || missing="$$missing protobuf-compiler libprotobuf-dev"; \
	$(INSTALL)

# What compiles and packs images: also a C compiler for each architecture that is not this machine's.
image-tools:
	@missing=; \
	command -v buildah >/dev/null || missing="$$missing buildah"; \
	command -v git >/dev/null || missing="$$missing git"; \
	command -v go >/dev/null || missing="$$missing golang-go"; \
	command -v python3 >/dev/null || missing="$$missing python3"; \
	protoc --descriptor_set_out=/dev/null google/protobuf/descriptor.proto 2>/dev/null || missing="$$missing protobuf-compiler libprotobuf-dev"; \
	[ -d /usr/share/ca-certificates/mozilla ] || missing="$$missing ca-certificates"; \
	for arch in $(ARCHS); do \
	  case $$arch in amd64) machine=x86_64 package=x86-64 ;; arm64) machine=aarch64 package=aarch64 ;; *) continue ;; esac; \
	  [ "$$(uname -m)" = $$machine ] || command -v $$machine-linux-gnu-gcc >/dev/null || \
	    missing="$$missing gcc-$$package-linux-gnu libc6-dev-$$arch-cross"; \
	done; \
	$(INSTALL)

# Rust is needed to build anything, and a C compiler for the cryptography.
compiler:
	@missing=; \
	command -v $(CARGO) >/dev/null || { echo "Rust is missing: see rust-version in Cargo.toml" >&2; exit 1; }; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	$(INSTALL)
