# The commands of the project. Needs a Rust toolchain, python3 (3.10 or newer) and make; everything else is fetched into
# .venv and target. A stamp file in .venv marks each finished step, so that a second run repeats only what changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

# The files from which the compiled extension is built. The Python side is not among them: it is installed in place, so
# that an edit of python/tilewright takes effect at once.
EXTENSION_SOURCES := $(shell find crates -type f \( -name '*.rs' -o -name '*.py' -o -name Cargo.toml \)) \
    Cargo.toml Cargo.lock pyproject.toml

PYTHON_CODE := $(wildcard python tests examples benches docs)

# Maturin takes the environment from VIRTUAL_ENV, and refuses to choose when conda names one as well.
MATURIN := env -u CONDA_PREFIX VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Commands of cargo wait for each other in any case. `make test` selects the parts that run at the same time.
ifeq ($(PARALLEL),)
.NOTPARALLEL:
endif

.PHONY: help
help: ## Show this list
	@echo "make <target>:"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: $(VENV)/.extension ## Set up everything and run a vector addition on the CPU
	$(BIN)/python examples/01_vector_add.py

.PHONY: examples
examples: $(VENV)/.test-tools $(VENV)/.extension ## Run every example, each of which compares itself with torch or numpy
	for example in examples/*.py; do echo "$$example" && $(BIN)/python "$$example" || exit 1; done

# Two parts run at a time: a single part leaves cores idle while it downloads, links, or waits for its last test. No part
# depends on the success of another, so `--keep-going` reports all failures.
.PHONY: test
test: ## Set up everything and run every check: what CI runs
	$(MAKE) PARALLEL=1 --jobs 2 --output-sync=target lint-crates test-package test-crates

.PHONY: lint-crates
lint-crates:
	$(MAKE) PARALLEL= lint-rust

.PHONY: test-package
test-package: $(VENV)/.test-tools $(VENV)/.extension
	$(MAKE) PARALLEL= test-python test-sim

.PHONY: test-crates
test-crates: $(VENV)/.test-tools
	$(MAKE) PARALLEL= lint-python site test-rust miri

.PHONY: check
check: lint test-quick ## The checks of minutes: lint, and the unit and text tests of the crates

.PHONY: lint
lint: lint-rust lint-python ## The checks that run no test: formatting, clippy, docs, invariants, types

.PHONY: lint-rust
lint-rust: fmt-check tidy clippy doc

.PHONY: fmt-check
fmt-check:
	cargo fmt --all --check

.PHONY: tidy
tidy: ## The project's own invariants (xtask)
	cargo xtask tidy

.PHONY: clippy
clippy:
	cargo clippy --config .cargo/lint.toml --workspace --all-targets -- -D warnings

.PHONY: doc
doc: ## The documentation of the crates, in target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --config .cargo/lint.toml --workspace --no-deps

# Ruff checks all Python code. Mypy imports nothing: it reads the stubs of the extension.
.PHONY: lint-python
lint-python: $(VENV)/.test-tools
	$(BIN)/ruff check $(PYTHON_CODE)
	$(BIN)/ruff format --check $(PYTHON_CODE)
	$(BIN)/mypy

# The environment has NVIDIA's assembler and the official triton, with which tests compare the PTX. Random inputs are the
# same in each run. The command names all crates, as clippy does: for a part of them, cargo would compile the crates of
# macros once more. Pytest tests the extension.
.PHONY: test-rust
test-rust: $(VENV)/.test-tools ## The tests of the crates
	PROPTEST_RNG_SEED=1 cargo test --workspace --no-fail-fast

# Most of the time of a test is a compilation, which takes one core. More than four processes gain little, and each needs
# the memory of a torch. A debugger needs a single process: ARGS='-n 0 --pdb'.
MARKED := not nightly
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal -m "$(MARKED)"

# Tests in the sources, and text cases: tests/ir (`ir`), tests/gpu (`language`), tests/ptx (`passes`).
.PHONY: test-quick
test-quick:
	PROPTEST_RNG_SEED=1 cargo test --workspace --no-fail-fast --lib --bins --test ir --test language --test passes

.PHONY: test-python
test-python: $(VENV)/.test-tools $(VENV)/.extension ## The tests across the Python boundary; ARGS are passed on
	$(PYTEST) $(ARGS)

# Each test that launches a kernel runs on the simulated GPU of Hopper. On the others, only the tests run whose kernels
# become other instructions there: dots, bf16, fp8, atomics, reductions by one instruction; dots of tensor memory.
SM_80_TESTS := $(addprefix tests/python/language/,$(addprefix test_,casts.py dot.py memory.py operators.py reductions.py) \
    random_programs/test_random_dots.py)
SM_100_TESTS := $(addprefix tests/python/language/,test_dot.py random_programs/test_random_dots.py)

.PHONY: test-sim
test-sim: $(VENV)/.test-tools $(VENV)/.extension ## The tests of kernels across the Python boundary, on simulated GPUs
	TILEWRIGHT_DEVICE=sim:sm_90 $(PYTEST) tests/python
	TILEWRIGHT_DEVICE=sim:sm_80 $(PYTEST) $(SM_80_TESTS)
	TILEWRIGHT_DEVICE=sim:sm_100 $(PYTEST) $(SM_100_TESTS)

.PHONY: bench
bench: $(VENV)/.bench-tools $(VENV)/.extension ## Time tilewright beside torch and triton; ARGS are passed on
	$(BIN)/python benches/run.py $(ARGS)

.PHONY: bench-cpu
bench-cpu: $(VENV)/.bench-tools $(VENV)/.extension ## Time many kernels on the CPU beside torch; ARGS are passed on
	$(BIN)/python benches/cpu_rows.py $(ARGS)

.PHONY: lock-digest
lock-digest: $(VENV)/.test-tools $(VENV)/.extension ## Print the digest of a lock of the examples, which is the same on each machine
	@$(BIN)/python benches/locked_examples.py --digest

# Each warning is an error: a broken link or anchor, or a page without a link from an index page. The cache is outside of
# the site.
.PHONY: site
site: $(VENV)/.site-tools ## Build the documentation site in build/site
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --jobs 2 -d build/site-cache docs build/site

.PHONY: fmt
fmt: $(VENV)/.test-tools ## Format everything
	cargo fmt --all
	$(BIN)/ruff check --fix-only --quiet $(PYTHON_CODE)
	$(BIN)/ruff format $(PYTHON_CODE)

# The commit that `tilewright --version` prints; `-dirty` marks a checkout with changes.
COMMIT = $(shell git describe --always --dirty --exclude '*' --abbrev=12 2>/dev/null)

# Crates of the registry are compiled by absolute paths, which panics print and the library would contain. The folders are
# known only after `cargo fetch`.
CARGO_HOME ?= $(HOME)/.cargo
REMAP = $$(for folder in $(CARGO_HOME)/registry/src/*/; do printf ' --remap-path-prefix=%s=crates/' "$$folder"; done)

# On Linux, zig links against the symbols of glibc 2.17, whatever glibc the builder has. Maturin looks for it on the path.
WHEEL_FLAGS := $(if $(filter Linux,$(shell uname -s)),--zig --compatibility manylinux2014)

.PHONY: wheel
wheel: $(VENV)/.wheel-tools ## Build the wheels that users install, in dist/: tilewright, and the name triton
	cargo fetch --locked
	export RUSTFLAGS="$(RUSTFLAGS) --remap-path-prefix=$(CURDIR)/=$(REMAP)"; \
	CARGO_INCREMENTAL=0 TILEWRIGHT_COMMIT=$(COMMIT) PATH="$(CURDIR)/$(BIN):$$PATH" \
	  $(MATURIN) build --release --locked --compression-level 9 $(WHEEL_FLAGS) --out dist
	PYTHONPATH=python $(BIN)/python -m _tilewright_startup.distribution dist/tilewright-*.whl
	@ls -l dist/*.whl

.PHONY: test-wheel
test-wheel: $(VENV)/.test-tools $(VENV)/.extension ## Install the newest wheel of dist/ in a virtual environment, and test it there
	TILEWRIGHT_TEST_WHEEL=$$(ls -t dist/tilewright-*.whl | head -n 1) \
	  $(BIN)/python -m pytest -n 0 tests/python/compat/triton/test_activate.py

# The pack contains everything, because the machine with the GPU may have neither a network nor pytest. The tools are pure
# Python, in versions for the oldest supported Python.
.PHONY: gpu
gpu: wheel ## Pack wheel, tests and benchmarks for a machine with an NVIDIA GPU, in build/gpu
	rm -rf build/gpu-tools
	$(PIP) download --quiet --no-deps --only-binary=:all: --python-version 3.10 --implementation py --abi none \
	  --platform any --requirement benches/gpu/requirements.txt --dest build/gpu-tools
	$(BIN)/python benches/gpu/pack.py --tools build/gpu-tools

.PHONY: deny
deny: ## Licences, sources and bans of the dependencies, where cargo-deny is installed
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; \
	else echo "cargo-deny is not installed: skipped (make tidy checks the licences)"; fi

# These tests take more than a quarter of an hour in an emulator on two cores, so `make test` does not run them.
AARCH64 := aarch64-unknown-linux-gnu
AARCH64_LIBRARIES := /usr/aarch64-linux-gnu

# What is needed to compile for AArch64 and to run the result, with a linker and an emulator that cargo is told of.
AARCH64_MISSING = missing=; \
  for tool in qemu-aarch64 aarch64-linux-gnu-gcc; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
  test -d "$$(rustc --print target-libdir --target $(AARCH64))" || missing="$$missing $(AARCH64)"
AARCH64_CARGO := CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L $(AARCH64_LIBRARIES)" cargo

.PHONY: test-aarch64
test-aarch64: ## The tests of machine code for AArch64 in an emulator, where one is installed; ARGS choose others
	@$(AARCH64_MISSING); \
	if [ -n "$$missing" ]; then echo "not installed:$$missing: the tests for AArch64 are skipped"; else \
	  $(AARCH64_CARGO) test --target $(AARCH64) --no-fail-fast $(or $(ARGS),-p tilewright-native -p tilewright-cpu); fi

# A processor with AVX2 and without AVX-512. Emulators before QEMU 8 end at gathers whose mask is partly false.
.PHONY: test-avx2
test-avx2: $(VENV)/.test-tools $(VENV)/.extension ## The conformance tests on an emulated processor without AVX-512; ARGS choose others
	@if ! command -v qemu-x86_64 >/dev/null; then echo "qemu-x86_64 is not installed: skipped"; else \
	  qemu-x86_64 -cpu Haswell-v4 $(BIN)/python -m pytest -p no:cacheprovider --override-ini timeout=0 \
	    $(or $(ARGS),tests/python/language/test_conformance.py); fi

# The root folder of an AArch64 system, whose python3 has numpy, torch, pytest, pytest-timeout and pytest-xdist.
AARCH64_ROOT ?= build/aarch64/root
AARCH64_PYTHON := $(AARCH64_ROOT)/usr/bin/python3
AARCH64_PACKAGE := build/aarch64/package

# The emulated Python imports a copy of the package: the folder python/ has the extension of this machine.
.PHONY: test-aarch64-python
test-aarch64-python: ## The conformance tests by a Python for AArch64 in an emulator, where one is installed; ARGS choose others
	@$(AARCH64_MISSING); test -x $(AARCH64_PYTHON) || missing="$$missing $(AARCH64_PYTHON)"; \
	if [ -n "$$missing" ]; then echo "not installed:$$missing: the Python tests for AArch64 are skipped"; exit; fi; \
	PYO3_BUILD_EXTENSION_MODULE=1 $(AARCH64_CARGO) build --target $(AARCH64) -p tilewright-python || exit; \
	rm -rf $(AARCH64_PACKAGE) && mkdir -p $(AARCH64_PACKAGE) && cp -r python/* $(AARCH64_PACKAGE) || exit; \
	rm -f $(AARCH64_PACKAGE)/tilewright/*.so; \
	cp target/$(AARCH64)/debug/lib_native.so $(AARCH64_PACKAGE)/tilewright/_native.abi3.so || exit; \
	qemu-aarch64 -L $(AARCH64_ROOT) -E PYTHONPATH=$(AARCH64_PACKAGE) $(AARCH64_PYTHON) \
	  -m pytest -p no:cacheprovider $(or $(ARGS),tests/python/language/test_conformance.py)

.PHONY: miri
miri: ## The unsafe code of the CPU executor under Miri, where a nightly toolchain has it
	@if cargo +nightly miri --version >/dev/null 2>&1; then cargo +nightly miri test --package tilewright-cpu --lib run::memory; \
	else echo "there is no nightly toolchain with Miri: skipped"; fi

.PHONY: clean
clean: ## Remove everything that the other targets made
	cargo clean
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache python/tilewright/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Seconds for each fuzz target: FUZZ_SECONDS=3600 make fuzz.
FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: ## Each fuzz target for a minute, or for FUZZ_SECONDS
	BOLERO_RANDOM_TEST_TIME_MS=$(FUZZ_SECONDS)000 cargo test --package tilewright-fuzz -- --test-threads=1

.PHONY: test-features
test-features: ## The crate tilewright with one device at a time, and without the parser of Python
	for features in cpu,python-syntax cuda,python-syntax sim,python-syntax,sanitize cpu,include-kernels; do \
	  cargo test --package tilewright --no-default-features --features $$features --test features || exit; done

.PHONY: nightly
nightly: $(VENV)/.test-tools $(VENV)/.extension ## What runs each night: long tests; each fuzz target for ten minutes; malformed inputs that no night has had
	$(MAKE) test-python MARKED=nightly
	TILEWRIGHT_DEVICE=sim:sm_90 $(MAKE) test-python MARKED=nightly
	cargo test --package tilewright-ptx --test official_blackwell --test official_triton -- --ignored
	$(MAKE) fuzz FUZZ_SECONDS=600
	TILEWRIGHT_SEEDS=$(NIGHT)00000..$(NIGHT)20000 cargo test --package tilewright-fuzz --test malformed -- --test-threads=1
	$(MAKE) test-features

# The number of the day, so that each night tries other seeds.
NIGHT = $(shell expr $$(date +%s) / 86400)

# --- The Python environment ---

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "tilewright needs Python 3.10 or newer: make PYTHON=python3.12 ..."; exit 1; }
	rm -rf $(VENV)
	@# Some distributions split ensurepip off; a pip of the system can stand in for it.
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
	  && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	@touch $@

$(VENV)/.build-tools: $(VENV)/.created requirements.txt
	$(PIP) install --quiet --requirement requirements.txt
	@touch $@

$(VENV)/.test-tools: $(VENV)/.build-tools tests/requirements.txt
	$(PIP) install --quiet --requirement tests/requirements.txt
	@touch $@

$(VENV)/.wheel-tools: $(VENV)/.build-tools tests/wheel/requirements.txt
	$(PIP) install --quiet --requirement tests/wheel/requirements.txt
	@touch $@

$(VENV)/.site-tools: $(VENV)/.created docs/requirements.txt
	$(PIP) install --quiet --requirement docs/requirements.txt
	@touch $@

$(VENV)/.bench-tools: $(VENV)/.build-tools benches/requirements.txt
	$(PIP) install --quiet --requirement benches/requirements.txt
	@touch $@

# Installed in place: the library lands in python/tilewright, which the environment points to.
$(VENV)/.extension: $(VENV)/.build-tools $(EXTENSION_SOURCES)
	$(MATURIN) develop --release
	@touch $@
