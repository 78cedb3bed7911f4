"""The `kvcompass plan` commands from outside."""

import re
from pathlib import Path

import pytest

from cli.__main__ import main
from cli.plan_visits import Answer, Courier, Target
from kvcompass.plan import dump_plan, parse_plan
from kvcompass.plan.layout import layout_digest, layout_fields
from kvcompass.plan.rollout import Component, Phase
from tests.models.example_plan import EXAMPLE_FILE, EXAMPLE_TEXT, THREE_REGIONS

UNASSIGNED_TEXT = EXAMPLE_TEXT.replace("table = 2\nslot = 1\n", "").replace("[2, 2, 2]", "[2, 2, 1]")
"""The example before its last worker was given a place."""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(text, "utf-8")
    return str(path)


def test_show_prints_what_follows_from_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "show", str(EXAMPLE_FILE)]) == 0
    shown = capsys.readouterr().out
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in shown.splitlines() if "│" in line
    ]
    assert ["plan_version", "1"] in rows
    assert ["layout_digest", layout_digest(layout_fields(THREE_REGIONS)).hex()] in rows
    assert ["us", "0.5", "160", "126"] in rows
    assert ["us", "128 / 256 / 128", "4384 / 4608 / 4096", "3453 / 3584 / 3072"] in rows
    assert ["4,096", "14", "13", "14-16"] in rows
    assert ["1", "1/2 - 2/2", "unit-1", "eu", "unit-1.eu.example.net:8100"] in rows
    assert any(row[:3] == ["worker-asia-1", "asia", "2 / 1"] for row in rows)
    assert "128, 256, 384, 512, 768, 1024, 1280, 1536, 1920, 2304, 2688, 3072, 3584, 4096, 4608" in shown
    assert "clipped" not in shown


def test_show_reports_what_the_context_clips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = EXAMPLE_TEXT.replace("context_length = 32_768", "context_length = 4_000")
    assert main(["plan", "show", written(tmp_path, text)]) == 0
    shown = capsys.readouterr().out
    assert "Lengths clipped by the context of 4000 tokens" in shown
    assert "4384 / - / -" in shown


def test_show_takes_a_plan_without_slots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = UNASSIGNED_TEXT
    assert main(["plan", "show", written(tmp_path, text)]) == 0
    assert "unassigned" in capsys.readouterr().out


def test_check_says_ok(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "check", str(EXAMPLE_FILE)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "OK"
    assert [line.split()[:2] for line in said[1:]] == [
        ["note:", "model.tokenizer"],
        ["note:", "model.chat_template"],
    ], "no real engine is read by them"


def test_check_notes_what_is_rarely_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = EXAMPLE_TEXT.replace("prefill_ms_per_token = 0.073", "prefill_ms_per_token = 73.0", 1)
    text = text.replace("reload_ms_per_token = 0.00524", "reload_ms_per_token = 80.0", 1)
    text = re.sub(r"table = 2\b", "table = 3", text).replace("[2, 2, 2]", "[2, 2, 0, 2]")
    assert main(["plan", "check", written(tmp_path, text)]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "is the lab's" not in line]
    assert notes[0] == "OK"
    assert [note.split(": ")[1] for note in notes[1:]] == [
        "worker[0].prefill_ms_per_token",
        "worker[0].reload_ms_per_token",
        "worker.table",
    ]
    assert "9.7 minutes" in notes[1]
    assert "no worker has table 2;" in notes[3]


def test_check_prints_one_line_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = EXAMPLE_TEXT.replace("eu = 160.0", "eu = 0").replace("shard = 1", "shard = 0")
    assert main(["plan", "check", written(tmp_path, text)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["wan_ms.us.eu", "unit[1].shard (unit-1)"]


def test_check_opens_the_files_that_make_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = EXAMPLE_TEXT.replace("builtin:kvcompass-bpe", "tokenizer.json")
    path = written(tmp_path, text.replace("builtin:kvcompass-chat", "chat.jinja"))
    assert main(["plan", "check", path]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"model.tokenizer: {tmp_path}/tokenizer.json cannot be read: No such file or directory",
        f"model.chat_template: {tmp_path}/chat.jinja cannot be read: No such file or directory",
    ]
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    (tmp_path / "chat.jinja").write_text("{{ messages }}", "utf-8")
    assert main(["plan", "check", path]) == 1
    assert capsys.readouterr().out.startswith("model.tokenizer: is not a tokenizer.json")


@pytest.mark.parametrize("command", ["show", "check", "assign", "apply"])
def test_a_file_that_cannot_be_read_is_named(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "none.toml"
    assert main(["plan", command, str(missing)]) == 2
    assert str(missing) in capsys.readouterr().err
    assert main(["plan", command, str(tmp_path)]) == 2


@pytest.mark.parametrize("command", ["show", "check", "assign", "apply"])
def test_bytes_that_are_no_plan_are_one_fault(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(b"\n\xff\xfe")
    assert main(["plan", command, str(path)]) == 1
    said = capsys.readouterr()
    assert "line 2" in said.out + said.err


def test_assign_edits_the_file_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = UNASSIGNED_TEXT
    path = Path(written(tmp_path, text))
    path.chmod(0o640)
    assert main(["plan", "assign", str(path)]) == 0
    assert capsys.readouterr().out == "worker-asia-1: table 2, slot 1\n"
    assert path.read_text("utf-8") == EXAMPLE_TEXT
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["plan.toml"]
    assert main(["plan", "assign", str(path)]) == 0
    assert "already" in capsys.readouterr().out


def test_assign_follows_a_link(tmp_path: Path) -> None:
    target = tmp_path / "real.toml"
    target.write_text(UNASSIGNED_TEXT, "utf-8")
    link = tmp_path / "plan.toml"
    link.symlink_to(target)
    assert main(["plan", "assign", str(link)]) == 0
    assert link.is_symlink()
    assert target.read_text("utf-8") == EXAMPLE_TEXT


def test_assign_leaves_a_faulty_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = UNASSIGNED_TEXT.replace("shard = 1", "shard = 0")
    path = Path(written(tmp_path, text))
    assert main(["plan", "assign", str(path)]) == 1
    assert "unit[1].shard" in capsys.readouterr().err
    assert path.read_text("utf-8") == text


def test_a_dumped_plan_passes_the_check(tmp_path: Path) -> None:
    assert main(["plan", "check", written(tmp_path, dump_plan(parse_plan(EXAMPLE_TEXT)))]) == 0


@pytest.mark.parametrize("arguments", [[], ["plan"], ["plan", "mend"], ["plan", "show"]])
def test_an_unfinished_command_exits_with_its_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: kvcompass" in capsys.readouterr().err


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("kvcompass ")


def test_apply_needs_a_key_and_an_address_of_every_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KVCOMPASS_PLAN_KEY", raising=False)
    assert main(["plan", "apply", str(EXAMPLE_FILE)]) == 2
    assert "KVCOMPASS_PLAN_KEY" in capsys.readouterr().err
    monkeypatch.setenv("KVCOMPASS_PLAN_KEY", "a key of many letters")
    lost = EXAMPLE_TEXT.replace('ops_address = "unit-1.eu.example.net:9100"\n', "")
    assert main(["plan", "apply", written(tmp_path, lost)]) == 2
    said = capsys.readouterr().err
    assert "unit unit-1" in said
    assert "unit-0" not in said
    key = tmp_path / "key"
    assert main(["plan", "apply", str(EXAMPLE_FILE), "--key-file", str(key)]) == 2
    assert "No such file" in capsys.readouterr().err


def test_apply_says_who_does_not_answer_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVCOMPASS_PLAN_KEY", "a key of many letters")
    nowhere = EXAMPLE_TEXT.replace("example.net:9", "example.invalid:9")
    options = [arg for name in ("edge-us", "unit-0", "worker-us-0") for arg in ("--without", name)]
    path = written(tmp_path, nowhere)
    assert main(["plan", "apply", path, "--timeout", "0.2", *options]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "Nothing was changed. Missing: unit unit-1;" in said
    assert "edge edge-eu" in said
    assert "edge-us" not in said


@pytest.mark.parametrize("some_are_silent", [False, True])
def test_apply_says_who_has_another_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], some_are_silent: bool
) -> None:
    monkeypatch.setenv("KVCOMPASS_PLAN_KEY", "a key of many letters")

    def visit(_courier: Courier, target: Target, _phase: Phase, *, patient: bool) -> Answer:
        if some_are_silent and target.kind is Component.UNIT:
            return Answer("no answer")
        ids = list(target.ids)
        told = {"outcome": "unsigned", "kind": target.kind.value, "ids": ids, "plan_version": 1}
        return Answer(facts=told)

    monkeypatch.setattr(Courier, "visit", visit)
    assert main(["plan", "apply", str(EXAMPLE_FILE)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    others = said.split("Another plan_key is set at: ", 1)[1].split(". Give theirs", 1)[0]
    assert "edge edge-eu" in others
    assert ("unit unit-0" in others) is not some_are_silent
    assert ("Missing: unit unit-0; unit unit-1." in said) is some_are_silent
