"""TensorBoard: event files in the run's folder, written without TensorFlow. What a reader sees of them is metrics.jsonl."""

import importlib
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxrl_long.runtime.tracking.protocol import Row

SEGMENT = "events.out.tfevents."
VERSION = "brain.Event:2"
COLOURS = 3
"""Channels of an image: red, green and blue."""


class TensorboardTracker:
    """One segment of event files for each process. Each row is one record: it is there as a whole or not at all."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Nothing is imported before `start`."""
        self._say = say
        self._file: Any = None

    def start(self, run_name: str, config: dict[str, Any], folder: Path, resume_id: str | None, past: Sequence[Row]) -> str:
        """Begin the next segment, and hide in the earlier ones what `past` does not have."""
        from tensorboardX.record_writer import RecordWriter

        place = folder / "tensorboard"
        place.mkdir(exist_ok=True)
        segments = sorted(place.glob(f"{SEGMENT}*"))
        has = steps_in(segments)
        steps = [row["env_steps"] for row in past]
        missing = next((number for number, step in enumerate(steps) if step not in has), len(steps))
        # Numbered, not dated: readers go by name, and clocks may differ between machines.
        self._file = RecordWriter(str(place / f"{SEGMENT}{len(segments) + 1:010d}.{socket.gethostname()}"))
        self._write(file_version=VERSION)
        if segments:
            hidden = steps[missing] if missing < len(steps) else steps[-1] + 1 if steps else 0
            self._write(step=hidden, session_log={"status": "START"})
        if not segments or not steps:
            self._describe(config)
        for row in past[missing:]:
            self.log(row, row["env_steps"])
        self._say(f"tensorboard --logdir {folder.parent}")
        return resume_id or run_name

    def log(self, row: Row, step: int) -> None:
        """Write the numbers of a row."""
        numbers = [{"tag": name, "simple_value": value} for name, value in row.items() if isinstance(value, int | float)]
        self._write(step=step, summary={"value": numbers})

    def show(self, video: Path, step: int) -> None:
        """Write a gif among the images, where it moves; TensorBoard shows no other videos."""
        data = video.read_bytes()
        if video.suffix == ".gif":
            width, height = struct.unpack_from("<HH", data, 6)
            image = {"width": width, "height": height, "colorspace": COLOURS, "encoded_image_string": data}
            self._write(step=step, summary={"value": [{"tag": "video", "image": image}]})

    def finish(self, summary: dict[str, Any], files: Sequence[Path]) -> None:
        """Close; summary and files lie in the run's folder anyway."""
        del summary, files
        self._file.close()

    def abandon(self) -> None:
        """Nothing holds up the end of the process."""

    def _describe(self, config: dict[str, Any]) -> None:
        """Show the settings as text."""
        from tensorboardX.summary import text

        self._write(step=0, summary=text("settings", f"```\n{json.dumps(config, indent=1)}\n```"))

    def _write(self, **event: Any) -> None:
        self._file.write(_messages().Event(wall_time=time.time(), **event).SerializeToString())
        self._file.flush()


def steps_in(segments: Sequence[Path]) -> set[int]:
    """The steps that a reader sees in these segments: a segment that begins at a step hides those from there on in the ones before it."""
    messages = _messages()
    seen: set[int] = set()
    for segment in segments:
        for record in _records(segment.read_bytes()):
            event = messages.Event.FromString(record)
            if event.session_log.status == messages.SessionLog.START:
                seen = {step for step in seen if step < event.step}
            elif any(value.tag == "env_steps" for value in event.summary.value):
                seen.add(event.step)
    return seen


def _messages() -> Any:
    """The module of TensorBoard's messages, which are made when it is imported."""
    return importlib.import_module("tensorboardX.proto.event_pb2")


def _records(data: bytes) -> Iterator[bytes]:
    """Records of TensorFlow's format (length, its check-sum, data, its check-sum), up to the first that is not whole."""
    place = 0
    while place + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, place)
        if place + size + 16 > len(data):
            return
        yield data[place + 12 : place + 12 + size]
        place += size + 16
