"""Chooses the corpus: the folder that `KVCOMPASS_DATA` names when it is set, else the packaged texts."""

from collections.abc import Mapping
from pathlib import Path

from lab.workload.corpus import Corpus
from lab.workload.folder import read_folder
from lab.workload.synthetic import synthetic_corpus

VARIABLE = "KVCOMPASS_DATA"


def load_corpus(environment: Mapping[str, str], seed: int) -> Corpus:
    """Errors: CorpusError when the variable is set and its folder lacks a file; it never falls back then."""
    folder = environment.get(VARIABLE, "")
    return read_folder(Path(folder)) if folder else synthetic_corpus(seed)
