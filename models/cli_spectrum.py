"""``limner models spectrum``."""

from pathlib import Path
from typing import Annotated

import typer

from models.catalog import find_captioner
from models.cli_models import ModelsDir
from models.cli_values import key_texts, numbers
from models.errors import RequestError


def spectrum(
    base: Annotated[str, typer.Argument(help="Id or folder of the model that the others were fine-tuned from.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    direction: Annotated[
        list[str], typer.Option("--direction", "-d", help="NAME=MODEL, a fine-tuned model and what to call it.")
    ],
    anchor: Annotated[
        list[str],
        typer.Option(
            "--anchor", "-a", help='"D NAME=VALUE NAME=VALUE": the mix at descriptiveness D; straight lines between.'
        ),
    ],
    default: Annotated[float, typer.Option(help="Descriptiveness of who asks for none.", min=0, max=1)] = 0.0,
    id: Annotated[str | None, typer.Option(help="What the card calls it. Default: the folder's name.")] = None,
    description: Annotated[str | None, typer.Option(help="What the card says of it.")] = None,
    models_dir: ModelsDir = None,
) -> None:
    """Write a dial, a path of mixes from concise to descriptive. `limner models calibrate` measures it."""
    from models.mixing.mix import Mix  # these load torch, which `limner --help` should not wait for
    from models.mixing.spectrum import path_through, write_spectrum

    directions = {name: find_captioner(model, models_dir) for name, model in key_texts(direction).items()}
    name = id or out.resolve().name
    mix = Mix(
        id=name,
        base=find_captioner(base, models_dir),
        directions=directions,
        coefficients=dict.fromkeys(directions, 0.0),
        description=description or f"a dial from {base} along {', '.join(directions)}",
        models_dir=models_dir,
    )
    card = write_spectrum(out, mix, path_through([_anchor(text) for text in anchor], list(directions)), default)
    typer.echo(f"{out}: a spectrum of {len(card.grid)} mixes, not measured yet: limner models calibrate {out} ...")


def _anchor(text: str) -> tuple[float, dict[str, float]]:
    place, *terms = text.split()
    try:
        return float(place), numbers(terms)
    except ValueError:
        raise RequestError("invalid_request", f"anchor {text!r} does not begin with a number from 0 to 1") from None
