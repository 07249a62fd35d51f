"""Learn a model from images of many objects, each under several lights, which need not be known (Algorithm 1).

The folder --out holds the run: config.toml, log.jsonl, a picture for every iteration, checkpoints, and in the end
model.safetensors. Started again with the same data and settings, a run that was stopped goes on where it was.
For many processes, on one machine or several, start the same command on each with its own --process-id.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deep_lambertian.cli.options import add_processes, join_processes, print_json, printer_of, tell
from deep_lambertian.data.registry import describe, kinds, load

EXAMPLE = """examples:
  dln train synthetic --preset quick --out faces-run
  dln train yaleb CroppedYale.zip --out yale-run
  dln train yaleb CroppedYale.zip --preset paper --faces faces48.npz --out paper-run
  dln train folder my-objects/ --size 32 --set iterations=6 --out my-run
  dln train yaleb CroppedYale.zip --out yale-run --coordinator node0:5123 --processes 2 --process-id 0"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = kinds(training=True)
    parser.add_argument("kind", choices=known, metavar="KIND", help=f"what the data are. {describe(known)}")
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="a folder or an archive")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--size", type=int, help="bring images to SIZE×SIZE (default: as the kind has it)")
    parser.add_argument("--objects", metavar="FIRST..LAST", help="only the objects from FIRST to LAST, or a list A,B,C")
    parser.add_argument("--preset", choices=["best", "paper", "quick"], help="settings to start from (default: best)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file")
    change = "change one setting, such as iterations=6 or cd.learning_rate=0.01; may be given several times"
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help=change)
    parser.add_argument("--faces", type=Path, metavar="PATH", help="faces that the albedo prior first learns from")
    parser.add_argument("--compact", metavar="FILE", type=Path, help="write the model in half precision to FILE too")
    parser.add_argument("--restart", action="store_true", help="begin anew in a folder that holds a run")
    parser.add_argument("--tensorboard", action="store_true", help="write the monitors for TensorBoard too")
    add_processes(parser)


def run(options: argparse.Namespace) -> None:
    from deep_lambertian.support import distributed

    config = _config(options)
    join_processes(options)
    first = distributed.is_first()
    with distributed.peers("nothing has been done yet"):
        data, faces = distributed.together(lambda: _data(options))
    from deep_lambertian.learning.train import train

    on_step = lambda monitors: printer_of(options)(line(monitors)) if first else None
    same = {name: getattr(options, name) for name in ("out", "restart", "tensorboard")}
    model = train(data, config, faces=faces, on_step=on_step, **same)
    if not first:
        return
    path = options.out / "model.safetensors"
    if options.compact is not None:
        model.save(options.compact, compact=True)
    if options.json:
        print_json({"model": str(path), **model.info["monitors"]})
    else:
        tell(f"model: {path}")


def line(monitors: dict[str, Any]) -> str:
    """A step's monitors in one line: those that a person follows."""
    if monitors["phase"] == "pretrain":
        shown = ("reconstruction", "held_out_score", "free_energy_gap", "dead")
        head = f"layer {monitors['layer']:.0f}, epoch {monitors['epoch']:.0f}"
    else:
        shown = ("noise", "change_deg", "drift_deg", "one_image_deg", "mean_shape_deg", "sample_mean_deg", "light_deg")
        head = f"EM iteration {monitors['iteration']}"
    return head + ": " + ", ".join(f"{name} {monitors[name]:.4g}" for name in shown if name in monitors)


def _config(options: argparse.Namespace) -> Any:
    from deep_lambertian.learning.config import Config

    if options.config is not None:
        config = Config.from_toml(options.config.read_bytes())
        if options.preset is not None and options.preset != config.preset:
            raise ValueError(f"--preset {options.preset}: {options.config} is of the preset {config.preset!r}")
    else:
        config = Config.of_preset(options.preset or "best")
    return config.override(**{"seed": options.seed, **settings_of(options.settings)})


def settings_of(given: Sequence[str]) -> dict[str, Any]:
    """What `--set KEY=VALUE`, given several times, asks to change."""
    changes = {}
    for setting in given:
        name, found, value = setting.partition("=")
        if not found:
            raise ValueError(f"--set: expected KEY=VALUE, got {setting!r}")
        changes[name.strip()] = _value(value.strip())
    return changes


def _value(text: str) -> Any:
    """A value as TOML has it; a bare word is a string."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _data(options: argparse.Namespace) -> Any:
    """The objects to learn from, and the faces, if there are any."""
    data = _objects(options)
    if options.faces is None:
        return data, None
    from deep_lambertian.data import load_faces

    return data, load_faces(options.faces, size=data.shape[0])


def _objects(options: argparse.Namespace) -> Any:
    data = load(options.kind, options.path, options.size, options.seed, training=True)
    if options.objects is None:
        return data
    first, spanned, last = options.objects.partition("..")
    if not spanned:
        return data.objects(options.objects.split(","))
    for name in (first, last):
        data.object(name)  # an unknown name is an error that lists those there are
    return data.objects(data.names[data.names.index(first) : data.names.index(last) + 1])
