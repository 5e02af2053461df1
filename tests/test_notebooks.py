"""The notebooks as files: short, without outputs, and each says first what one will know. `make notebooks` executes them."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NAMES = ("a_million_steps", "anatomy_of_an_update", "first_run", "planning")


def cells(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]


def text(cell):
    return "".join(cell["source"])


def test_there_are_four_notebooks_and_the_readme_names_each():
    readme = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NAMES)
    assert [name for name in NAMES if f"notebooks/{name}.ipynb" not in readme] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_at_most_twelve_cells(name):
    assert 4 <= len(cells(name)) <= 12


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_opens_with_a_title_and_what_one_will_know(name):
    first = cells(name)[0]
    assert first["cell_type"] == "markdown"
    assert text(first).startswith("# ")
    assert "At the end you will know" in text(first)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_committed_without_outputs(name):
    code = [cell for cell in cells(name) if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_a_small_size_for_smoke_tests(name):
    assert 'os.environ.get("JAXRL_LONG_SMOKE")' in "".join(text(cell) for cell in cells(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_in_whatever_environment_opens_it(name):
    metadata = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["metadata"]
    assert metadata["kernelspec"]["name"] == "python3"
    assert "widgets" not in metadata
