"""SPICE of the COCO caption evaluation."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from models.errors import DataError
from training.metrics.interface import Definition, MetricInputs
from training.metrics.java import check_java, package_folder, run_java
from training.metrics.kinds import ImageMetric

_JAR = "spice-1.0.jar"
# pycocoevalcap does not bring the parser and its models: it downloads them when SPICE is first asked for.
_PARSER = ("lib/stanford-corenlp-3.6.0.jar", "lib/stanford-corenlp-3.6.0-models.jar")


class Spice(ImageMetric):
    """F-measure of scene-graph tuples (Anderson et al. 2016), by the jar inside pycocoevalcap.

    pycocoevalcap's own wrapper is not called: it downloads and writes into its install folder.
    """

    needs = frozenset({"references"})
    uses_java: ClassVar[bool] = True

    def __init__(self, options: Any = None) -> None:
        """Looks for Java, the jar and the parser's models.

        Raises:
            MissingDependencyError: one of them is absent; nothing is downloaded.
        """
        super().__init__(options)
        folder = package_folder("pycocoevalcap.spice.spice")
        self._jar = folder / _JAR
        check_java("SPICE (Stanford CoreNLP 3.6.0)", [self._jar, *(folder / name for name in _PARSER)])

    def definitions(self) -> dict[str, Definition]:
        text = "mean SPICE, F-measure of scene-graph tuples; 0 where neither side has a tuple; 0..1"
        return {"spice": Definition(text, 100.0, "mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        assert inputs.tokenized is not None
        pairs = zip(inputs.tokenized.captions, inputs.tokenized.references, strict=True)
        items = [
            {"image_id": index, "test": caption, "refs": list(references)}
            for index, (caption, references) in enumerate(pairs)
        ]
        with tempfile.TemporaryDirectory() as folder:
            questions, answers = Path(folder) / "in.json", Path(folder) / "out.json"
            questions.write_text(json.dumps(items), encoding="utf-8")
            run_java("SPICE", ["-Xmx8G", "-jar", str(self._jar), str(questions), "-out", str(answers), "-silent"])
            return {"spice": read_scores(answers.read_text(encoding="utf-8"), len(items))}


def read_scores(text: str, images: int) -> list[float]:
    """The F-measure of every image, in order, from what the jar writes; 0 where it writes none or NaN.

    Raises:
        DataError: ``wrong_schema``, an image has no score.
    """
    found = {int(item["image_id"]): item["scores"]["All"]["f"] for item in json.loads(text)}
    if found.keys() != set(range(images)):
        raise DataError("wrong_schema", f"SPICE gave scores of {len(found)} images for {images}")
    values = [float("nan") if found[index] is None else float(found[index]) for index in range(images)]
    return [0.0 if value != value else value for value in values]
