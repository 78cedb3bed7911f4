"""`kvcompass hash-key`: what it prints is what an edge's settings accept."""

import hashlib
import io

import pytest

from cli.__main__ import main
from services.runtime.auth import ApiKeys


def test_the_key_on_standard_input_is_hashed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert main(["hash-key"]) == 0
    assert capsys.readouterr().out.strip() == hashlib.sha256(b"secret").hexdigest()


def test_a_new_key_fits_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hash-key", "--new"]) == 0
    key, digest = capsys.readouterr().out.split()
    assert len(key) >= 40
    assert ApiKeys({digest: "default"}, "api_keys").lookup(key) == "default"


def test_two_new_keys_differ(capsys: pytest.CaptureFixture[str]) -> None:
    main(["hash-key", "--new"])
    main(["hash-key", "--new"])
    assert len(set(capsys.readouterr().out.split())) == 4


def test_a_key_as_an_argument_is_refused_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hash-key", "sk-abc"]) == 2
    said = capsys.readouterr()
    assert "standard input" in said.err
    assert "sk-abc" not in said.out + said.err


def test_an_empty_key_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["hash-key"]) == 2
    assert "empty" in capsys.readouterr().err
