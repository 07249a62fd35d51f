# Everything runs in .venv, which the first command creates: only Python >= 3.11 and make are needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: venv demo test slow attack browser docs lint bench clean
venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python >= 3.11 is needed, $$($(PYTHON) --version) was found; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,bench,lint,studio]'
	@$(BIN)/python -m compileall -q src  # as pip does for all else: where Python may not write beside the code it would start anew
	@touch $@

demo: venv
	$(BIN)/dln demo --out demo

# The tests compile quickly rather than well (tests/conftest.py); the core is then tried as users run it.
AS_USERS := tests/test_conditionals.py tests/test_hmc.py tests/test_compiled.py tests/test_infer.py
test: venv
	$(BIN)/python -m pytest -m 'not slow and not data and not browser' -n 2
	XLA_FLAGS= $(BIN)/python -m pytest -m 'not slow' -n 2 -k 'not bad' $(AS_USERS)

slow: venv
	$(BIN)/python -m pytest -m slow -n 2

# Bad bytes, kills, quarrels between processes and load (tools/attack): with a seed, for so many seconds.
SEED ?= 0
SECONDS ?= 3600
attack: venv
	$(BIN)/python -m tools.attack --seed $(SEED) --seconds $(SECONDS)

# The report and the studio in a real browser: chromium from the system's packages, and axe-core (see tests/test_browser.py).
browser: venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser]'
	$(BIN)/python -m pytest -m browser tests/test_browser.py tests/test_studio_browser.py

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

bench: venv
	$(BIN)/dln bench inference

clean:
	rm -rf .venv demo site
