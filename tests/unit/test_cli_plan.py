"""The `kvcompass plan` commands from outside."""

import json
import re
from pathlib import Path

import pytest

from cli.__main__ import main
from cli.plan_visits import Answer, Courier, Target
from kvcompass.plan import dump_plan, parse_plan
from kvcompass.plan.layout import layout_digest, layout_fields
from kvcompass.plan.notes import plan_notes
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


DECODE = "reload_ms_per_token = 0.00524\ndecode_ms_per_context_token = {}"


@pytest.mark.parametrize(
    ("old", "new", "count", "notes"),
    [
        ("us = 0.5, eu = 160.0", "us = 0.5, eu = 160.5", -1, []),
        (
            "prefill_ms_per_token = 0.073",
            "prefill_ms_per_token = 0.000073",
            -1,
            [
                "worker[0].prefill_ms_per_token: 8,000 tokens would take 0.58 ms; is it in milliseconds? "
                "(and so of 5 more workers)",
                "worker[0].reload_ms_per_token: what is in DRAM is never worth",
                "wan_ms.us.eu: nothing is left to query toward it: a prompt is worth sending there from "
                "4,383,562 tokens on, and model.context_length is 32,768;",
            ],
        ),
        (
            "prefill_ms_per_token = 0.073",
            "prefill_ms_per_token = 3.1",
            -1,
            ["worker[0].prefill_ms_per_token: 8,000 tokens would take 0.4 minutes"],
        ),
        ("prefill_ms_per_token = 0.073", "prefill_ms_per_token = 1.4", 1, []),
        (
            "prefill_ms_per_token = 0.073",
            "prefill_ms_per_token = 1.5",
            1,
            ["worker[0].prefill_ms_per_token: 21 times that of worker[1]"],
        ),
        ("context_length = 32_768", "context_length = 4_400", 1, 2 * ["nothing is left to query"]),
        (
            "context_length = 32_768",
            "context_length = 4_000",
            1,
            ["milliseconds? (and so of 3 more directions)"],
        ),
        ("eu = 160.0", "eu = 0.9", 1, ["wan_ms.us.eu: 0.9 ms one way to another region"]),
        (
            "us = 0.5, eu",
            "us = 140.0, eu",
            1,
            ["wan_ms.us.asia: 126 ms: nearer than the own region, 140 ms; are two columns exchanged?"],
        ),
        ("reload_ms_per_token = 0.00524", DECODE.format("0.007"), 1, []),
        (
            "reload_ms_per_token = 0.00524",
            DECODE.format("0.0074"),
            1,
            ["worker[0].decode_ms_per_context_token: 0.0074 is more than a tenth of computing a token"],
        ),
        ("lease_ms = 3_000", "lease_ms = 960", 1, []),
        (
            "lease_ms = 3_000",
            "lease_ms = 959",
            1,
            ["routing.lease_ms: 959 is less than 3 of the longest round trip, 320 ms"],
        ),
        ("lease_ms = 3_000", "lease_ms = 60_000", 1, []),
        ("lease_ms = 3_000", "lease_ms = 60_001", 1, ["routing.lease_ms: 60001: for 60.001 s a worker"]),
        ("slot = ", "drain = true\nslot = ", 5, []),
        ("slot = ", "drain = true\nslot = ", -1, ["worker.drain: every worker is drained"]),
        (
            'salt = ""\n',
            'salt = ""\n[[sharing_group]]\nid = "other"\nsalt = "x"\n',
            1,
            ["sharing_group[1].id: no worker serves 'other'"],
        ),
        ("slots_given = [2, 2, 2]", "slots_given = [2, 2, 2, 2]", 1, []),
    ],
)
def test_a_note_says_what_is_rarely_meant(old: str, new: str, count: int, notes: list[str]) -> None:
    assert old in EXAMPLE_TEXT
    told = list(plan_notes(parse_plan(EXAMPLE_TEXT.replace(old, new, count))))
    assert len(told) == len(notes), told
    for each, note in zip(told, notes, strict=True):
        assert note in each


def test_many_vacant_tables_are_not_all_listed() -> None:
    text = re.sub(r"table = 2\b", "table = 14", EXAMPLE_TEXT).replace("[2, 2, 2]", "[]")
    (note,) = plan_notes(parse_plan(text))
    assert "no worker has table 2, 3, 4, 5, 6, 7, 8, 9 and 4 more;" in note


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


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("", "renders a conversation to nothing"),
        ("{# a comment #}\n", "renders a conversation to nothing"),
        ("You are a helpful assistant.", "renders every conversation the same"),
        (
            "{% for message in messages %}{{ message.role }}{% endfor %}",
            "renders every conversation the same",
        ),
        ("{{ messages[0].content | length }}{{ messages[0].content[0] }}", "leaves out words of a message"),
        (
            "{{ messages[0].content.name() }}",
            "loads and cannot be used (PromptError: the chat template refuses",
        ),
        ("{{ 1 / 0 }}", "loads and cannot be used (ZeroDivisionError: division by zero)"),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", ""),
    ],
)
def test_check_tries_the_chat_template(
    template: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chat.jinja").write_text(template, "utf-8")
    path = written(tmp_path, EXAMPLE_TEXT.replace("builtin:kvcompass-chat", "chat.jinja"))
    assert main(["plan", "check", path]) == (1 if says else 0)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"model.chat_template: {says}" if says else "OK")
    assert ("name the model's own file" in first) is bool(says)


@pytest.mark.parametrize(
    ("kind", "vocabulary", "says"),
    [
        ("BPE", {"a": 0}, "gives no tokens for 'forest'"),
        ("BPE", {"b": 0}, "gives no tokens for a letter"),
        ("WordLevel", {"forest": 0, "window": 1}, "cannot encode a letter"),
        ("WordLevel", {"<unk>": 0}, "gives 'forest' and 'window' the same tokens"),
        ("WordLevel", {"<unk>": 0, "forest": 1}, ""),
    ],
)
def test_check_tries_the_tokenizer(
    kind: str, vocabulary: dict[str, int], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = {
        "version": "1.0",
        "model": {
            "type": kind,
            "vocab": vocabulary,
            **({"merges": []} if kind == "BPE" else {"unk_token": "<unk>"}),
        },
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    path = written(tmp_path, EXAMPLE_TEXT.replace("builtin:kvcompass-bpe", "tokenizer.json"))
    assert main(["plan", "check", path]) == (1 if says else 0), capsys.readouterr().out
    assert capsys.readouterr().out.startswith(f"model.tokenizer: {says}" if says else "OK")


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


def _failing(courier: Courier, target: Target, phase: Phase, *, patient: bool) -> Answer:
    facts = {"kind": target.kind.value, "ids": list(target.ids), "plan_version": 1, "settled": True}
    if target.kind is Component.AGENT and phase is not Phase.CHECK:
        return Answer(facts=facts | {"outcome": "failed", "error": "the component failed; its log says how"})
    outcome = "checked" if phase is Phase.CHECK else "applied"
    return Answer(facts=facts | {"outcome": outcome, "kept": True})


def test_apply_says_who_failed_and_to_read_its_log_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVCOMPASS_PLAN_KEY", "a key of many letters")
    monkeypatch.setattr(Courier, "visit", _failing)
    assert main(["plan", "apply", str(EXAMPLE_FILE)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("the component failed; its log says how") == 6
    assert "Failed: agent worker-us-0; agent worker-us-1;" in said
    assert "See the log there before you run the same command again" in said
    assert "Not every agent acknowledged (prepare)" in said
    assert "Missing" not in said, "nobody is to be brought back"


def test_a_dry_run_has_the_notes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVCOMPASS_PLAN_KEY", "a key of many letters")
    monkeypatch.setattr(Courier, "visit", _failing)
    path = written(tmp_path, EXAMPLE_TEXT.replace("lease_ms = 3_000", "lease_ms = 90_000"))
    assert main(["plan", "apply", path, "--dry-run"]) == 0
    assert "note: routing.lease_ms: 90000" in capsys.readouterr().out
