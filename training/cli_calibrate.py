"""``limner models calibrate``. Loads no torch before it has something to measure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from models.catalog import DEFAULT_SCORER, find_captioner
from models.cli_values import key_values
from training.cli_evaluate import progress_bar, tell
from training.evaluation.settings import EvaluationSettings


def calibrate(
    spectrum: Annotated[str, typer.Argument(help="Id or folder of a spectrum; its card is rewritten.")],
    *,
    data: Annotated[Path, typer.Option(help="Annotation file.")],
    images_root: Annotated[Path, typer.Option(help="Folder that the file's image paths start from.")],
    data_format: Annotated[str, typer.Option("--format", help="Format of the annotation file.")] = "karpathy",
    data_option: Annotated[list[str] | None, typer.Option(help="More options of the format, key=value.")] = None,
    split: Annotated[str, typer.Option(help="Split to measure on.")] = "val",
    limit: Annotated[int | None, typer.Option(help="Only the first N images.")] = None,
    scorer: Annotated[str, typer.Option(help="Scorer of CLIPScore and self-retrieval.")] = DEFAULT_SCORER,
    tokenizer: Annotated[str, typer.Option(help="For CIDEr: auto, java or python.")] = "auto",
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 32,
    models_dir: Annotated[Path | None, typer.Option(help="Folder of more models.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    threads: Annotated[int | None, typer.Option(help="torch threads. Default: the usable cores.")] = None,
) -> None:
    """Measure every point of a dial. Its card keeps words, CLIPScore and self-retrieval of each."""
    from models.device import set_threads  # these load torch, which `limner --help` should not wait for
    from training.calibrate import calibrate as measure
    from training.data.selection import Selection

    set_threads(threads, respect_omp=True)
    entry = find_captioner(spectrum, models_dir)
    selection = Selection(
        {"path": data, "images_root": images_root, **key_values(data_option or ())},
        format=data_format,
        split=split,
        limit=limit,
    )
    settings = EvaluationSettings(
        scorers=[scorer], tokenizer=tokenizer, batch_size=batch_size, models_dir=models_dir, device=device
    )
    with progress_bar() as progress:
        card = measure(entry, selection, settings, progress=progress, notify=tell)
    typer.echo("descriptiveness\twords\tclip_score\tr_at_1")
    for point in card.grid:
        values = (f"{point.measures[name]:.3f}" for name in ("clip_score", "r_at_1"))
        typer.echo("\t".join([f"{point.descriptiveness:.2f}", f"{point.expected_words:.2f}", *values]))
