# Every target installs what it needs first; the stamp makes a second run start at once.
PYTHON ?= python3
PORT ?= 8000
MODEL ?= dial
CONSTRAINTS ?= constraints.txt
MINUTES ?= 10
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install serve test kill-test storm soak overload faults nodes check fuzz image-steps bench bench-gpu bench-serving bench-folder tables reproduce clean

help:
	@echo "make install  the virtual environment .venv with limner and its tools (CONSTRAINTS=/dev/null: newest versions)"
	@echo "make serve    a caption server on 127.0.0.1 (PORT=$(PORT) MODEL=$(MODEL))"
	@echo "make test     the test suite"
	@echo "make kill-test  limner caption killed at 20 random moments: nothing lost, nothing doubled"
	@echo "make storm    three times 500 clients that hang up, and what is left of them"
	@echo "make soak     20,000 requests of every kind, and what every process holds afterwards"
	@echo "make overload four times more requests than the server can answer, three times for 2 minutes"
	@echo "make faults   every process of the server killed under load, its disk full, its database killed"
	@echo "make nodes    three Ray nodes: one killed under load, one that joins, rolling updates that no client notices"
	@echo "make check    format, lint, types, package boundaries"
	@echo "make fuzz     damaged pictures and requests, new ones each time, for MINUTES=$(MINUTES)"
	@echo "make image-steps  the steps of deploy/Dockerfile without Docker: install, size, serve, stop (BUILD_ARGS=\"TORCH=cuda\")"
	@echo "make bench    speed against what a user would use instead: decoding, training, serving (under 15 minutes)"
	@echo "make bench-serving  the stages of captioning; what the HTTP path adds to a bare handler; what the monitor costs"
	@echo "make bench-folder  limner caption over a folder (PICTURES=...) against the bare model in a loop"
	@echo "make bench-gpu  decoding, encoding, scheduling on a GPU, with random weights"
	@echo "make tables   the tables of docs/results, which README and docs/PAPERS.md show"
	@echo "make reproduce  train and measure what is missing in docs/results, under runs/ (hours)"
	@echo "make clean    remove what builds, tests and checks left"

install: $(STAMP)

$(STAMP): pyproject.toml $(filter-out /dev/null,$(CONSTRAINTS))
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else "limner needs Python 3.11 or newer, but $(PYTHON) is " + v + "; name another: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c $(CONSTRAINTS) -e ".[dev]"
	@touch $@

serve: $(STAMP)
	@exec $(BIN)/limner serve --port $(PORT) --model $(MODEL)

test: $(STAMP)
	$(BIN)/python -m pytest

kill-test: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/serving/folders/test_kill.py

storm: $(STAMP)
	$(BIN)/python -m pytest -m slow -s tests/serving/test_disconnects.py

soak: $(STAMP)
	$(BIN)/python -m pytest -m slow --show-capture=no tests/serving/test_soak.py

overload: $(STAMP)
	$(BIN)/python -m pytest -m slow --show-capture=no tests/serving/test_overload.py

faults: $(STAMP)
	$(BIN)/python -m pytest -m "slow or not slow" --show-capture=no tests/serving/test_faults.py tests/serving/test_ledger_faults.py

nodes: $(STAMP)
	$(BIN)/python -m pytest -m "slow or not slow" --show-capture=no tests/serving/test_nodes.py

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz.run $(MINUTES)

# Root hands over to an unprivileged user, who must be able to run $(PYTHON).
BUILD_ARGS ?=
image-steps: $(STAMP)
	$(BIN)/python -m tests.deploy.image_steps --python $(PYTHON) $(addprefix --build-arg ,$(BUILD_ARGS))

RATIOS = build/ratios.jsonl
bench: $(STAMP)
	@mkdir -p build && rm -f $(RATIOS)
	$(BIN)/python -m benchmarks.blip --quick --record $(RATIOS)
	$(BIN)/python -m benchmarks.compact --quick --record $(RATIOS)
	$(BIN)/python -m benchmarks.training --record $(RATIOS)
	$(BIN)/python -m benchmarks.throughput --turns 3 --seconds 5 --record $(RATIOS)
	@$(BIN)/python -m benchmarks.summary $(RATIOS)

bench-gpu: $(STAMP)
	$(BIN)/python -m benchmarks.gpu

bench-serving: $(STAMP)
	$(BIN)/python -m benchmarks.captioning
	$(BIN)/python -m benchmarks.serving
	$(BIN)/python -m benchmarks.monitoring

PICTURES ?= ../shared/flickr8k/images
bench-folder: $(STAMP)
	$(BIN)/python -m benchmarks.folder $(PICTURES) --whole

tables: $(STAMP)
	@$(BIN)/python -m training.tables docs/results --into README.md --into docs/PAPERS.md

reproduce: $(STAMP)
	$(BIN)/python -m training.reproduce docs/results

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path "./$(VENV)/*" -prune -exec rm -rf {} +
