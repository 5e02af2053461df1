# Every target sets itself up: nothing is needed but GNU make and Python 3.11 to 3.13 with venv and pip.
.PHONY: setup train test test-fast test-system check tables clean
.DELETE_ON_ERROR:

PYTHON ?= python3
# Processes that tests run in.
JOBS ?= 2
BIN := .venv/bin
STAMP := .venv/.installed
GPU := $(wildcard /dev/nvidia[0-9]*)
EXTRAS := $(if $(GPU),dev$(strip ,)cuda,dev)
BROWSER := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
GRAPHICS := $(shell $(PYTHON) -c "from ctypes.util import find_library as f; print(f('EGL') or f('OSMesa') or '')")
# Without a GPU, a browser or a library that draws their tests can't run; they are deselected, and pytest counts them.
MARKS := not system$(if $(GPU),, and not gpu)$(if $(BROWSER),, and not browser)$(if $(GRAPHICS),, and not graphics)

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); sys.exit(None if ok else "Python 3.11 to 3.13 is needed, this is %d.%d. Use make PYTHON=python3.12" % sys.version_info[:2])'
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

train: setup
	$(BIN)/python -m jaxrl_long.train env=ant horizon=1000000 $(ARGS)

test: setup
	$(BIN)/python -m pytest -n $(JOBS) -m '$(MARKS)' $(ARGS)

test-fast: setup
	$(BIN)/python -m pytest -n $(JOBS) -m '$(MARKS) and not slow' $(ARGS)

# In a mount namespace of its own, where small disks can be mounted; needs Linux and util-linux.
test-system: setup
	unshare --map-root-user --mount $(BIN)/python -m pytest -m system $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.tables --check

tables: setup
	$(BIN)/python -m benchmarks.tables

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
