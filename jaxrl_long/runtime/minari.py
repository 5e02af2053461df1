"""An archive as a Minari dataset, for other libraries. Needs the packages minari and h5py."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_long.fields import RunError
from jaxrl_long.runtime.disk import TERMINATED, TRUNCATED, Episode, Reader, Rows


def export(reader: Reader, folder: Path, whole: bool = True) -> tuple[int, int]:
    """Write every episode (or only `whole` ones) to a new folder; returns how many, and their steps.

    Minari wants an observation after the last step. Of a truncated episode it is there. Where the world ended it was not kept, and
    where an episode goes on it is not known: the last one is repeated, and nothing may be learnt from its value.

    Raises:
        RunError: Minari is not installed, or there is nothing to export.
    """
    try:
        from gymnasium import spaces
        from minari import __version__
        from minari.data_collector import EpisodeBuffer
        from minari.dataset.minari_storage import MinariStorage
    except ImportError as error:
        raise RunError(f"exporting needs Minari ({error.name} is missing): pip install 'jaxrl_long[minari]'.") from None
    chosen = reader.episodes(lambda one: one.whole or not whole)
    if not chosen:
        kind = "whole episode. whole=false exports stretches of episodes too." if whole else "episode."
        raise RunError(f"{reader.folder} holds no {kind}")
    first = _shown(reader.read(chosen[0], stop=chosen[0].age + 1))
    observation, action = _space(spaces, {name: array[0] for name, array in first.items() if name.startswith("obs")}), _action(spaces, reader, first)
    folder.mkdir(parents=True)
    storage: Any = MinariStorage.new(folder / "data", observation_space=observation, action_space=action)
    steps = 0
    for episode in chosen:
        storage.update_episodes([_buffer(EpisodeBuffer, reader, episode)])
        steps += episode.end - episode.first
    about = {name: str(value) for name, value in reader.manifest.about.items()}
    storage.update_metadata({"dataset_id": f"{folder.name}-v0", "minari_version": __version__, "description": f"steps of training: {about}"})
    return len(chosen), steps


def _buffer(kind: Any, reader: Reader, episode: Episode) -> Any:
    rows, final = _shown(reader.read(episode)), reader.final(episode)
    length = episode.end - episode.first
    observations = {}
    for name in (name for name in rows if name.startswith("obs")):
        last = rows[name][-1] if final is None else final[name]
        observations[name.removeprefix("obs.")] = np.concatenate([rows[name], np.asarray(last, rows[name].dtype)[None]])
    end = np.zeros(length, np.uint8)
    end[-1] = episode.ended
    return kind(
        observations=observations.get("obs", observations),
        actions=rows["action"],
        rewards=rows["reward"],
        terminations=end == TERMINATED,
        # A stretch that goes on elsewhere is cut here.
        truncations=(end == TRUNCATED) | ((np.arange(length) == length - 1) & (end == 0)),
    )


def _shown(rows: Rows) -> Rows:
    """Without the types that only we know."""
    return {name: array if array.dtype.kind in "fiub" and array.dtype.itemsize != 2 else array.astype(np.float32) for name, array in rows.items()}


def _space(spaces: Any, obs: Rows) -> Any:
    boxes = {name.removeprefix("obs."): spaces.Box(-np.inf, np.inf, array.shape, array.dtype) for name, array in obs.items()}
    return boxes["obs"] if "obs" in boxes else spaces.Dict(boxes)


def _action(spaces: Any, reader: Reader, first: Rows) -> Any:
    action = first["action"]
    if action.dtype.kind == "f":
        return spaces.Box(-1.0, 1.0, action.shape[1:], action.dtype)
    highest = max(int(reader.rows("action", *block).max()) for block in reader.blocks())
    return spaces.Discrete(highest + 1)
