"""The commands of ``limner`` that training owns; ``models.cli`` finds them here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from models.cli_values import decode_words, key_values

if TYPE_CHECKING:
    from training.data.selection import Progress


def evaluate(
    model: Annotated[str, typer.Argument(help="Captioner: id, folder or hub id; of a scorer, retrieval is measured.")],
    data: Annotated[Path, typer.Option(help="Annotation file.")],
    images_root: Annotated[Path, typer.Option(help="Folder that the file's image paths start from.")],
    data_format: Annotated[str, typer.Option("--format", help="Format of the annotation file.")] = "karpathy",
    data_option: Annotated[list[str] | None, typer.Option(help="More options of the format, key=value.")] = None,
    split: Annotated[str, typer.Option(help="Split to measure on.")] = "test",
    limit: Annotated[int | None, typer.Option(help="Only the first N images.")] = None,
    decode: Annotated[str | None, typer.Option(help="Decoding strategy. Default: the model's own.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of the strategy, key=value.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Metric, repeatable. Default: all that can be had.")] = None,
    scorer: Annotated[
        list[str] | None, typer.Option(help="Scorer for CLIPScore and self-retrieval, repeatable.")
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="For BLEU and CIDEr: auto, java or python.")] = "auto",
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 32,
    models_dir: Annotated[Path | None, typer.Option(help="Folder of more models.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or auto.")] = "fp32",
    threads: Annotated[int | None, typer.Option(help="torch threads. Default: the usable cores.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for evaluation.json, evaluation.md, captions.jsonl.")] = None,
    update_card: Annotated[bool, typer.Option("--update-card", help="Keep the numbers in the model's card.")] = False,
) -> None:
    """Measure a captioner, or the retrieval of a scorer, on a split of a data set; prints a Markdown table."""
    from models.device import set_threads  # these load torch, which `limner --help` should not wait for
    from training.data.selection import Selection
    from training.evaluate import evaluate as evaluate_captioner
    from training.evaluate_scorer import evaluate_scorer, is_scorer

    set_threads(threads, respect_omp=True)
    options = {"path": data, "images_root": images_root, **key_values(data_option or ())}
    selection = Selection(options, format=data_format, split=split, limit=limit)
    with _progress_bar() as progress:
        if is_scorer(model, models_dir):
            evaluation = evaluate_scorer(
                model, selection, batch_size=batch_size, models_dir=models_dir, device=device, progress=progress
            )
        else:
            evaluation = evaluate_captioner(
                model,
                selection,
                decode=decode_words(decode, option or ()),
                scorers=scorer or (),
                metrics=metric,
                tokenizer=tokenizer,
                batch_size=batch_size,
                models_dir=models_dir,
                device=device,
                dtype=dtype,
                progress=progress,
            )
    if out is not None:
        evaluation.write(out)
    if update_card:
        from models.catalog import find_model
        from training.report import update_card as update

        update(find_model(model, models_dir), evaluation)
    typer.echo(evaluation.to_markdown(), nl=False)


def train(
    recipe: Annotated[Path, typer.Argument(help="YAML file, or the name of one that limner ships, e.g. concise.yaml.")],
    settings: Annotated[list[str] | None, typer.Argument(help="Overrides, dotted key=value.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/ and the recipe's name.")] = None,
) -> None:
    """Train what a recipe describes, after the recipes that it needs. An interrupted run goes on where it was."""
    import logging

    from training.recipe import build_task, read_recipe, recipes_before

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    plan = read_recipe(recipe, settings or ())
    earlier = recipes_before(plan)
    task = build_task(plan)  # checked before hours are spent on what it needs
    for needed in earlier:
        train(needed)
    finished = task.run(out or Path("runs") / recipe.stem)
    typer.echo(f"wrote {finished}")


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """A bar on stderr, so that stdout holds the table alone."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("images", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
