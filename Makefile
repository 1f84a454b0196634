.DEFAULT_GOAL := help
.PHONY: setup setup-dev run test test-deep check gen gen-check lint format type bench bench-edge bench-matte bench-scheduler soak manifests images e2e clean help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
BENCH_STAMP := $(VENV)/.installed-bench
RIVAL_STAMP := .venv-litellm/.installed
MODEL := models/smollm2-135m-instruct-q4_1.gguf
MATTE := models/u2netp.onnx
MODELS := $(MODEL) $(MATTE)
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The native engine is built from source, once: the library alone, for this processor (see the file named here).
export CMAKE_ARGS ?= -DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/scripts/llama.cmake

setup: $(STAMP)  ## create .venv and install what running takes (a few minutes, once)

setup-dev: $(DEV_STAMP)  ## add what the tests take: torch, the diffusion engine, the tools

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing; the native engine is compiled on the first time, which takes minutes."
	@$(PIP) -e ".[llm,matte]"
	@$(BIN)/python -P -c "from services.matte.solving import warm_up; warm_up()"  # compiles the solver
	@touch $@

$(DEV_STAMP): $(STAMP)
	@echo "Installing what the tests take; the diffusion engine is compiled, which takes minutes."
	@$(PIP) -e ".[diffusion,torch,traces,deploy,dev]"
	@touch $@

$(MODEL): | $(STAMP)
	@$(BIN)/cohabit pull smollm2 \
		--sha256 b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

$(MATTE): | $(STAMP)
	@$(BIN)/cohabit pull u2netp \
		--sha256 309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8

run: $(STAMP) $(MODELS)  ## start everything with the embedded default models
	@$(BIN)/cohabit up

test: $(DEV_STAMP) $(MODELS)  ## run the tests
	@$(BIN)/python -m pytest

test-deep: $(DEV_STAMP) $(MODELS)  ## search for long: new histories, chaos, hostile requests (tens of minutes)
	@COHABIT_DEEP=1 $(BIN)/python -m pytest --timeout 3600 tests/deep \
		tests/unit/test_broker_machine.py tests/sim/test_swaps.py tests/integration/test_chaos.py \
		tests/integration/test_fuzz.py tests/integration/test_fuzz_openapi.py \
		tests/integration/test_jobs_kills.py tests/integration/test_hostile_pictures.py \
		tests/integration/test_edge_memory.py

check: lint type gen-check  ## everything CI looks at besides the tests

lint: $(DEV_STAMP)  ## ruff, the walls between rooms, the contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@scripts/lint_protos.sh
	@scripts/render_manifests.sh --check

format: $(DEV_STAMP)  ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/buf format -w proto

type: $(DEV_STAMP)  ## mypy, strict
	@$(BIN)/mypy

gen: $(DEV_STAMP)  ## turn proto/ into gen/
	@scripts/gen.sh

gen-check: $(DEV_STAMP)  ## fail if gen/ is not what proto/ says
	@scripts/gen.sh --check

$(BENCH_STAMP): $(DEV_STAMP)
	@$(PIP) -e ".[bench]"
	@touch $@

bench: $(BENCH_STAMP) $(MODEL)  ## measure the house: its cost, many streams against llama-server, long prompts
	@status=0; for part in bench bench.streams bench.prompts; do \
		$(BIN)/python -P -m $$part || status=1; done; exit $$status

bench-matte: $(BENCH_STAMP) $(MATTE)  ## foreground estimation beside PyMatting's, with a picture; removal beside rembg's
	@status=0; for part in bench.matte bench.removal; do \
		$(BIN)/python -P -m $$part || status=1; done; exit $$status

$(RIVAL_STAMP):
	@$(PYTHON) -m venv .venv-litellm
	@.venv-litellm/bin/python -m pip install --quiet --disable-pip-version-check "litellm[proxy]==1.108.7"
	@touch $@

bench-edge: $(DEV_STAMP) $(RIVAL_STAMP)  ## what the edge costs per chat request, beside LiteLLM's proxy
	@$(BIN)/python -P -m bench.edge_cost

bench-scheduler: $(DEV_STAMP)  ## measure what an admission costs, and how it grows with the queue
	@$(BIN)/python -P -m bench.scheduler

soak: $(DEV_STAMP) $(MODELS)  ## ask mixed short requests for ten minutes: memory stays flat, nothing is left
	@$(BIN)/python -P -m bench.soak --minutes 10

manifests: $(DEV_STAMP)  ## render deploy/k8s/manifests from the chart
	@scripts/render_manifests.sh

images:  ## build the images of services, engines and Envoy (Docker; deploy/docker/build)
	@deploy/docker/build

e2e: $(DEV_STAMP)  ## run the house in containers: a client's journey, deaths, upgrades under load (minutes)
	@E2E=1 $(BIN)/python -m pytest -s tests/e2e

clean:  ## remove what was built, fetched and left behind by runs
	@rm -rf $(VENV) .venv-litellm .cohabit models .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

help:  ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
