# Every target sets itself up: nothing is needed but GNU make and Python 3.11 to 3.13 with venv and pip.
.PHONY: setup train test test-fast test-system notebooks check tables clean
.DELETE_ON_ERROR:

PYTHON ?= python3
# Processes that tests run in.
JOBS ?= 2
BIN := .venv/bin
STAMP := .venv/.installed
GPU := $(wildcard /dev/nvidia[0-9]*)
EXTRAS := $(if $(GPU),dev$(strip ,)cuda,dev)
# Without a GPU its tests can't run; they are deselected, and pytest counts them.
MARKS := not system and not browser and not postgres and not graphics$(if $(GPU),, and not gpu)

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

# With a browser, a database server and a library that draws, installed where this is root's Debian and they are missing; then, on Linux, in a mount
# namespace of its own, where small disks can be mounted.
test-system: setup
	bash tests/system_packages.sh
	$(BIN)/python -m pytest -m 'browser or graphics or postgres' $(ARGS)
	unshare --map-root-user --mount $(BIN)/python -m pytest -m system $(ARGS)

# Every notebook from its first cell to its last, at a small size; nothing is written back into them. A second try, as who executes them
# (nbclient) seldom misses a kernel's answer beside the messages of sliders, and then waits in vain; a fault of ours fails both.
notebooks: setup
	JAXRL_LONG_SMOKE=1 $(BIN)/python -m pytest --nbmake --nbmake-timeout=240 --reruns 1 $(ARGS) notebooks

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
