"""The words of ``limner caption``: what each of them is called, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from models.drafting import DRAFT_HELP
from serving.folders.outputs import FORMATS, Existing

Paths = Annotated[
    list[str],
    typer.Argument(
        help="Pictures, folders, WebDataset .tar, lists (.txt, .jsonl), or - for a list. A line of a list is a path "
        "relative to it, also one that begins with #."
    ),
]
Model = Annotated[str, typer.Option(help="Id, folder or hub id.")]
Decode = Annotated[str | None, typer.Option(help="Decoding strategy. Default: the model's own.")]
DecodeOption = Annotated[list[str] | None, typer.Option(help="Option of the strategy, key=value.")]
Guidance = Annotated[float | None, typer.Option(help="0 to 10; above 1 the picture counts for more; 1 is off.")]
Descriptiveness = Annotated[float | None, typer.Option(help="0 concise to 1 descriptive; of models with a spectrum.")]
Mix = Annotated[list[str] | None, typer.Option(help="NAME=VALUE, how far along a direction; repeatable.")]
TargetWords = Annotated[
    int | None,
    typer.Option(help="The descriptiveness whose mean length, as calibrated, is nearest.", min=1, max=10_000),
]
NumCaptions = Annotated[int, typer.Option(help="Captions of each picture.", min=1)]
Rerank = Annotated[
    bool, typer.Option("--rerank", help="Of all that the decoding finds, those with the best CLIPScore.")
]
Score = Annotated[bool, typer.Option("--score", help="CLIPScore, 0 to 2.5, in the column after each caption.")]
MinClipScore = Annotated[
    float | None,
    typer.Option(
        help="Pictures whose captions score below get the most concise instead; then a column 'fallback' follows. "
        "Scores are written as by --score."
    ),
]
Compare = Annotated[
    str | None, typer.Option(help="[LABEL=]MODEL[@D],...: each of these captions every picture; JSON lines only.")
]
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="Folders within folders too.")]
Null = Annotated[bool, typer.Option("--null", "-0", help="Paths of - end with NUL, not with a line break.")]
JsonLines = Annotated[bool, typer.Option("--json", help="A JSON object per line.")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="The file to write; the folder, for formats of many files; - is standard output. A killed run goes on."
    ),
]
Format = Annotated[str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}. Default: by the suffix of --out.")]
IfExisting = Annotated[
    Existing, typer.Option(help="What becomes of captions that are there; append and prepend: of sidecars.")
]
Dedupe = Annotated[bool, typer.Option("--dedupe", help="Caption pictures of the same bytes once.")]
Ray = Annotated[bool, typer.Option("--ray", help="On the Ray cluster of RAY_ADDRESS, or on this machine.")]
Actors = Annotated[int | None, typer.Option(help="With --ray: processes that hold the model. Default: 1.", min=1)]
GpusPerActor = Annotated[
    float | None, typer.Option(help="With --ray: GPUs, or parts of one, of each. Default: 0.", min=0)
]
ModelsDir = Annotated[Path | None, typer.Option(help="Folder of more models.")]
Scorer = Annotated[str, typer.Option(help="What gives the CLIPScores.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Dtype = Annotated[str, typer.Option(help="default, fp32, bf16, int8 or auto.")]
Threads = Annotated[int | None, typer.Option(help="torch threads. Default: the usable cores.", min=1)]
Draft = Annotated[bool, typer.Option(help=DRAFT_HELP)]
BatchSize = Annotated[int, typer.Option(help="Pictures per forward pass.", min=1)]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Processes that open pictures, without --ray. Default: one per two cores; few pictures: 0.", min=0
    ),
]
