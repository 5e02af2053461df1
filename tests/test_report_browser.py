"""The report in a real browser: it renders, asks for nothing, complains of nothing, and fits a phone."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from test_report import RESULT, made

from jaxrl_long.reporting import report, runs

BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), "chromium")
pytestmark = pytest.mark.browser


def browser(*words: str) -> subprocess.CompletedProcess[str]:
    """A headless browser without a network."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"]
    return subprocess.run([BROWSER, *flags, *words], capture_output=True, text=True, timeout=120, check=True)


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Of a report of a run that was examined."""
    folder = made(tmp_path / "ant & co", rows=300)
    (folder / "endurance.jsonl").write_text(json.dumps(RESULT) + "\n")
    return report.write([runs.read(folder)], tmp_path / "page.html").as_uri()


def test_it_renders_without_a_complaint(address):
    shown = browser("--dump-dom", address)
    assert "CONSOLE" not in shown.stderr
    assert shown.stdout.count("<svg") == 7
    # The browser has understood the curves as such.
    assert len(re.findall(r"<path", shown.stdout)) > 50
    assert "ant &amp; co" in shown.stdout


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (400, False)])
def test_it_is_seen_light_and_dark_and_on_a_phone(address, tmp_path, width, dark):
    picture = tmp_path / "page.png"
    browser(
        *(["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []), f"--screenshot={picture}", f"--window-size={width},2000", address
    )
    pixels = imread(picture)[..., :3]
    assert pixels.shape[1] == width
    assert (np.median(pixels) < 0.3) == dark
    # Curves: some of the page has the first series' colour.
    blue = np.array([0x6D, 0xB3, 0xF2] if dark else [0x1B, 0x6F, 0xB8]) / 255
    assert (np.abs(pixels - blue).max(axis=-1) < 0.06).sum() > 200


def test_nothing_is_wider_than_a_phone(address, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(page.read_text().replace("</body>", "<script>document.title = document.documentElement.scrollWidth</script></body>"))
    shown = browser("--window-size=400,900", "--dump-dom", address)
    width = int(re.findall(r"<title>(\d+)</title>", shown.stdout)[0])
    # Headless windows are at least 500 wide.
    assert width <= 500
