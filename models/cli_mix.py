"""``limner models mix``."""

from pathlib import Path
from typing import Annotated

import typer

from models.catalog import find_captioner
from models.cli_models import ModelsDir
from models.cli_values import key_texts, numbers
from models.errors import RequestError


def mix(
    base: Annotated[
        str | None, typer.Argument(help="Id or folder of the model that the others were fine-tuned from.")
    ] = None,
    *,
    base_option: Annotated[str | None, typer.Option("--base", help="The same by name.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    add: Annotated[
        list[str] | None, typer.Option(help="MODEL=VALUE, how much of a model of that id; repeatable.")
    ] = None,
    direction: Annotated[
        list[str] | None, typer.Option("--direction", "-d", help="NAME=MODEL, a fine-tuned model and what to call it.")
    ] = None,
    coefficient: Annotated[
        list[str] | None,
        typer.Option("--coefficient", "-c", help="NAME=VALUE, how much of a direction; 1 is its own model."),
    ] = None,
    id: Annotated[str | None, typer.Option(help="What the card calls the mix. Default: the folder's name.")] = None,
    description: Annotated[str | None, typer.Option(help="What the card says of it. Default: the sum.")] = None,
    card_only: Annotated[
        bool, typer.Option("--card-only", help="Write no weights: they are computed from the named models when loaded.")
    ] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="Write weights as int8 differences to the base, in half the bytes.")
    ] = False,
    int4: Annotated[
        bool, typer.Option("--int4", help="As int4 differences, in a quarter of the bytes; a tenth of them is lost.")
    ] = False,
    models_dir: ModelsDir = None,
) -> None:
    """Write a weighted sum of models. BASE + sum of coefficient * (direction - BASE)."""
    from models.mixing.mix import Mix  # these load torch, which `limner --help` should not wait for
    from models.mixing.writing import write_differences, write_mix_card, write_weights

    if card_only + int8 + int4 > 1:
        raise RequestError("invalid_request", "--card-only, --int8 and --int4 are three ways to write a mix: take one")
    if (base is None) == (base_option is None):
        raise RequestError("invalid_request", "name the base once: limner models mix BASE ..., or --base BASE")
    added = numbers(add or ())
    models = {name: name for name in added} | key_texts(direction or ())
    wanted = Mix(
        id=id or out.resolve().name,
        base=find_captioner(base or base_option or "", models_dir),
        directions={name: find_captioner(model, models_dir) for name, model in models.items()},
        coefficients=added | numbers(coefficient or ()),
        description=description,
        models_dir=models_dir,
    )
    written = "a card, no weights"
    if card_only:
        write_mix_card(out, wanted)
    elif int8 or int4:
        _, error = write_differences(out, wanted, bits=4 if int4 else 8)
        written = f"int{4 if int4 else 8} differences to {wanted.base.id}; {error:.2%} of the difference is lost"
    else:
        write_weights(out, wanted)
        written = "weights"
    size_bytes = sum(path.stat().st_size for path in out.iterdir())
    typer.echo(f"{out}: {written} ({size_bytes / 1e6:.1f} MB)")
