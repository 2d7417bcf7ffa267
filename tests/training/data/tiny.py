"""The same tiny data set in every format: two pictures to train on, one to validate with."""

import csv
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from tests.support import encoded

PICTURES = {
    "red": ("train", ("a red picture", "all of it is red"), (220, 30, 30)),
    "blue": ("train", ("a blue picture",), (30, 60, 220)),
    "grey": ("val", ("a grey picture", "nothing but grey"), (120, 120, 120)),
}
Options = dict[str, Any]


def picture(colour: tuple[int, int, int] = (220, 30, 30)) -> bytes:
    """A small PNG."""
    return encoded(Image.new("RGB", (12, 10), colour), "PNG")


def write_pictures(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, _, colour) in PICTURES.items():
        (folder / f"{name}.png").write_bytes(picture(colour))


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    """An uncompressed tar with these members, in this order."""
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def of_split(split: str) -> dict[str, tuple[str, ...]]:
    """Name -> captions of the pictures of one split."""
    return {name: captions for name, (held, captions, _) in PICTURES.items() if held == split}


def _karpathy(folder: Path) -> Options:
    write_pictures(folder)
    images = [
        {"imgid": name, "filename": f"{name}.png", "split": split, "sentences": [{"raw": text} for text in captions]}
        for name, (split, captions, _) in PICTURES.items()
    ]
    (folder / "dataset.json").write_text(json.dumps({"images": images}), encoding="utf-8")
    return {"path": folder / "dataset.json", "images_root": folder}


def _coco(folder: Path) -> Options:
    write_pictures(folder)
    paths = {}
    for split in ("train", "val"):
        held = of_split(split)
        images = [{"id": name, "file_name": f"{name}.png"} for name in held]
        annotations = [{"image_id": name, "caption": text} for name, captions in held.items() for text in captions]
        paths[split] = folder / f"captions_{split}.json"
        paths[split].write_text(json.dumps({"images": images, "annotations": annotations}), encoding="utf-8")
    return {"path": paths, "images_root": folder}


def _imagefolder(folder: Path) -> Options:
    for split, name in (("train", "train"), ("val", "validation")):
        (folder / name).mkdir(parents=True)
        with (folder / name / "metadata.jsonl").open("w", encoding="utf-8") as file:
            for picture_name, captions in of_split(split).items():
                (folder / name / f"{picture_name}.png").write_bytes(picture(PICTURES[picture_name][2]))
                file.write(json.dumps({"file_name": f"{picture_name}.png", "text": captions}) + "\n")
    return {"path": folder}


def _webdataset(folder: Path) -> Options:
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        members = {}
        for name, captions in of_split(split).items():
            members[f"{name}.png"] = picture(PICTURES[name][2])
            members[f"{name}.json"] = json.dumps({"caption": captions}).encode()
        write_tar(folder / f"{split}-000.tar", members)
    return {"path": {"train": "train-{000..000}.tar", "val": "val-*.tar"}, "images_root": folder}


def _tsv(folder: Path) -> Options:
    write_pictures(folder)
    paths = {}
    for split in ("train", "val"):
        paths[split] = folder / f"{split}.tsv"
        with paths[split].open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t", lineterminator="\n")
            writer.writerow(["image", "caption"])
            writer.writerows([f"{name}.png", text] for name, captions in of_split(split).items() for text in captions)
    return {"path": paths, "images_root": folder}


WRITERS: dict[str, Callable[[Path], Options]] = {
    "karpathy": _karpathy,
    "coco": _coco,
    "imagefolder": _imagefolder,
    "webdataset": _webdataset,
    "tsv": _tsv,
}
"""Format -> function that writes the data set into a folder and gives the options that read it."""
