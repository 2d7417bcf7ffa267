"""``limner models import``. Loads no torch before it is called."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from models.card import read_card


def import_(
    source: Annotated[
        Path, typer.Argument(help="A captioner's .pth in the layout of BLIP's authors.", exists=True, dir_okay=False)
    ],
    out: Annotated[Path, typer.Option(help="Checkpoint folder to write.")],
    size: Annotated[Literal["base", "large"] | None, typer.Option(help="Refuse any other size.")] = None,
    model_id: Annotated[str | None, typer.Option("--id", help="Id of the model; the folder's name if absent.")] = None,
    vocab: Annotated[
        Path | None,
        typer.Option(help="vocab.txt of BERT-uncased, or its folder; the bundle extra brings one.", exists=True),
    ] = None,
    licence: Annotated[str | None, typer.Option(help="Terms of the weights, for the card.")] = None,
) -> None:
    """Make a checkpoint folder of the weights of BLIP or SMILE."""
    from models.import_blip import import_blip  # deferred: it loads torch

    terms = {} if licence is None else {"licence": licence}
    import_blip(source, out, vocabulary=vocab, size=size, model_id=model_id, **terms)
    card = read_card(out)
    typer.echo(f"{card.id}: {card.description}, written to {out}")
