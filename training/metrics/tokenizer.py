"""Tokenisers for BLEU and CIDEr: the Penn Treebank one in Java, and a twin in Python where there is no Java."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Protocol

from models.errors import DataError, MissingDependencyError, RequestError
from training.data.text import one_line
from training.dependencies import require

# The tokens that the COCO caption evaluation removes. The bracket names never match, because the text is lower-cased
# by then; they are listed all the same, so that both tokenisers remove what the reference implementation removes.
PUNCTUATION = frozenset("'' ' `` ` -LRB- -RRB- -LCB- -RCB- . ? ! , : - -- ... ;".split())

_JAR = "stanford-corenlp-3.4.1.jar"
_TIMEOUT_S = 600


class Tokenizer(Protocol):
    """Cuts captions into tokens; ``name`` goes into every table that its scores appear in."""

    name: str

    def tokenize(self, texts: list[str]) -> list[str]:
        """The tokens of each text, joined by single spaces: lower-cased, punctuation removed, in the same order."""


class JavaPtbTokenizer:
    """Stanford's PTBTokenizer from the jar in pycocoevalcap, with the flags of the COCO caption evaluation.

    pycocoevalcap's own wrapper is not called: it writes into its install folder and loses count at line breaks that
    it does not know.
    """

    name = "ptb-java"

    def __init__(self, java: str = "java") -> None:
        """Tries the tokeniser on one word, so that a machine without Java fails before captions are generated.

        Raises:
            MissingDependencyError: there is no working Java, or no pycocoevalcap.
        """
        self._command = [java, "-cp", str(_find_jar()), "edu.stanford.nlp.process.PTBTokenizer"]
        self._command += ["-preserveLines", "-lowerCase", "-encoding", "UTF-8"]
        try:
            works = self.tokenize(["It works."]) == ["it works"]
        except (OSError, subprocess.SubprocessError, DataError) as error:
            raise _no_java(str(error)) from error
        if not works:
            raise _no_java("it gave wrong tokens for a test sentence")

    def tokenize(self, texts: list[str]) -> list[str]:
        """As ``Tokenizer.tokenize``, by one Java process."""
        if not texts:
            return []
        lines = [" ".join(one_line(text).split()) for text in texts]
        process = subprocess.run(
            self._command,
            input="\n".join(lines) + "\n",
            capture_output=True,
            check=True,
            timeout=_TIMEOUT_S,
            encoding="utf-8",
        )
        tokenized = process.stdout.split("\n")[:-1]
        if len(tokenized) != len(texts):
            raise DataError("wrong_schema", f"the Java tokeniser gave {len(tokenized)} lines for {len(texts)} captions")
        return [_without_punctuation(line.split()) for line in tokenized]


class PythonPtbTokenizer:
    """The rules of the Penn Treebank tokeniser that matter for captions; differs from the Java one in rare words."""

    name = "ptb-python"

    def tokenize(self, texts: list[str]) -> list[str]:
        """As ``Tokenizer.tokenize``."""
        return [_without_punctuation(_python_tokens(one_line(text).lower())) for text in texts]


def choose_tokenizer(name: str = "auto") -> Tokenizer:
    """``java``, ``python``, or for ``auto`` the Java one where it works and else the Python one.

    Raises:
        RequestError: ``invalid_request``, another name.
        MissingDependencyError: ``java`` was asked for and does not work.
    """
    if name not in ("auto", "java", "python"):
        raise RequestError("invalid_request", f"tokenizer must be auto, java or python, not {name!r}")
    if name == "python":
        return PythonPtbTokenizer()
    try:
        return JavaPtbTokenizer()
    except MissingDependencyError:
        if name == "java":
            raise
        return PythonPtbTokenizer()


# Order matters: at each place the first rule that fits takes the text.
_TOKEN = re.compile(
    r"""
      https?://\S+
    | (?:mr|mrs|ms|dr|st|jr|sr|vs|etc|no|inc|co|mt|ft)\.(?=\s)      # abbreviations keep their full stop
    | (?<!\w)(?:[^\W\d_]\.)+(?!\w)                                 # initials: u.s.
    | \d+(?:[.,:/]\d+)+ | \.\d+                                     # 1,000  3.5  10:30  3/4
    | \w+(?=n['’]t\b) | n['’]t\b                                    # is n't
    | ['’](?:s|m|d|re|ve|ll)\b                                      # man 's
    | \w+\.(?:com|org|net|edu|gov)\b                                # avrovulcan.com
    | ['’]n['’]                                                     # rock 'n' roll
    | ['’]\d0s\b                                                    # '80s
    | [^\W\d_]['’](?!(?:s|m|d|re|ve|ll)\b)\w+                       # o'clock
    | \w+(?:[-_/]\w+)*                                             # words, with hyphens and slashes inside
    | \.{2,} | -{2,} | [?!]{2,} | [^\w\s]
    """,
    re.VERBOSE,
)
_SPLIT_WORDS = {
    "cannot": "can not",
    "gonna": "gon na",
    "gotta": "got ta",
    "wanna": "wan na",
    "lemme": "lem me",
    "gimme": "gim me",
}
_RENAMED = {
    "(": "-lrb-",
    ")": "-rrb-",
    "[": "-lsb-",
    "]": "-rsb-",
    "{": "-lcb-",
    "}": "-rcb-",
    '"': "''",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "–": "--",
    "—": "--",
    "…": "...",
}


def _python_tokens(text: str) -> list[str]:
    """Tokens of one lower-cased line, punctuation included."""
    tokens: list[str] = []
    for token in _TOKEN.findall(text):
        token = _RENAMED.get(token, token)
        if len(token) > 1 and set(token) == {"."}:
            token = "..."
        elif len(token) > 1 and set(token) == {"-"}:
            token = "--"
        tokens.extend(_SPLIT_WORDS.get(token, token.replace("’", "'")).split())
    return tokens


def _without_punctuation(tokens: list[str]) -> str:
    return " ".join(token for token in tokens if token not in PUNCTUATION)


def _find_jar() -> Path:
    """The jar inside the installed pycocoevalcap."""
    return Path(str(require("pycocoevalcap.tokenizer.ptbtokenizer", "train").__file__)).with_name(_JAR)


def _no_java(reason: str) -> MissingDependencyError:
    return MissingDependencyError(
        "missing_dependency", f"the Java tokeniser does not work ({reason}); install Java, or use the python tokeniser"
    )
