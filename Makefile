# Everything runs inside .venv, which the first target that needs it makes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint format docs architectures bench clean

demo: $(INSTALLED)
	$(BIN)/regtta demo --out regtta-demo --force

test: lint
	$(BIN)/pytest --numprocesses=2 --dist=loadfile --cov --cov-report=term --cov-fail-under=95

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)
	$(BIN)/python docs/make_methods.py
	$(BIN)/python docs/make_faults.py
	$(BIN)/python docs/make_speed.py

architectures: $(INSTALLED) # docs/models.md; takes some minutes
	$(BIN)/python docs/make_architectures.py

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.speed --out regtta-bench --limit 540

clean:
	rm -rf $(VENV) regtta-demo regtta-bench build dist

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@
