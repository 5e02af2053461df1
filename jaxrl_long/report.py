"""Look at a run, or at several side by side: `python -m jaxrl_long.report runs/ant open=true`. `--help` lists the settings."""

import sys
from dataclasses import dataclass
from pathlib import Path

from jaxrl_long import cli
from jaxrl_long.fields import ConfigError, setting


@dataclass
class ReportSettings:
    """What `report` can be asked."""

    to: str | None = setting(None, path=True, main=True)
    """File to write; null: report.html in the run's folder, or in the current one for several runs."""
    open: bool = setting(False, main=True)
    """Show it in the browser."""


def main(call: cli.Call) -> int:
    """Read the runs and write the page."""
    from jaxrl_long.reporting import report
    from jaxrl_long.reporting.runs import read

    settings: ReportSettings = call.settings
    runs = [read(path) for path in dict.fromkeys(call.paths)]
    default = runs[0].folder / report.FILE if len(runs) == 1 else Path(report.FILE)
    target = Path(settings.to) if settings.to else default
    try:
        report.write(runs, target)
    except OSError as error:
        raise ConfigError([f"to={target} can't be written: {error.strerror}. Name a file in a folder that can."]) from None
    print(target)
    if settings.open:
        import webbrowser

        webbrowser.open(target.absolute().as_uri())
    return cli.DONE


COMMAND = cli.Command(
    name="report",
    summary="Write a page that shows what a run did, or several side by side.",
    settings=ReportSettings,
    main=main,
    paths=(1, 1000),
    examples=("runs/ant", "runs/ant open=true", "runs/ant-s0 runs/ant-s1 runs/ant-s2 to=ants.html"),
)

if __name__ == "__main__":
    sys.exit(cli.run(COMMAND))
