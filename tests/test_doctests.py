"""The examples in docstrings are true."""

import doctest
import importlib
import re
from types import ModuleType
from typing import Any

import pytest
from documents import ROOT

PACKAGE = ROOT / "jaxrl_long"
WITH_EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if re.search(r"^ *>>> ", path.read_text(), re.MULTILINE))


class Finder(doctest.DocTestFinder):
    """Finds wrapped functions too, such as those whose shapes are checked: it looks at whose a function says it is."""

    def _from_module(self, module: ModuleType | None, object: Any) -> bool:
        return module is not None and getattr(object, "__module__", None) == module.__name__


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_examples_give_what_they_say(path, tmp_path, monkeypatch):
    # Those that write files do so where they stand.
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    module = importlib.import_module(name.removesuffix(".__init__"))
    runner, said = doctest.DocTestRunner(verbose=False), []
    for test in Finder().find(module):
        runner.run(test, out=said.append)
    result = runner.summarize(verbose=False)
    assert result.failed == 0, "".join(said)
    # None is overlooked.
    assert result.attempted == len(re.findall(r"^ *>>> ", path.read_text(), re.MULTILINE))


def test_there_are_examples_where_one_says_more_than_a_sentence():
    assert len(WITH_EXAMPLES) >= 15
