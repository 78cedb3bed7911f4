"""A secret may lie in a file of its own: `X_file` beside `X`."""

import importlib
from pathlib import Path

import msgspec
import pytest

from services.edge.settings import EdgeSettings
from services.runtime.settings import CommonSettings, SettingsError, load_settings
from services.worker_agent.settings import WorkerAgentSettings

EDGE = 'plan = "p"\nid = "a"\n'
AGENT = 'plan = "p"\nworkers = ["w"]\n'


def write(folder: Path, settings: str, secret: bytes | None = None) -> Path:
    path = folder / "s.toml"
    path.write_text(settings)
    if secret is not None:
        (folder / "secret").write_bytes(secret)
    return path


def test_a_secret_is_read_from_a_file_beside_the_settings(tmp_path: Path) -> None:
    path = write(
        tmp_path, EDGE + 'peer_key_file = "secret"\nengine_key_file = "secret"', b" k of 16 letters \n"
    )
    settings = load_settings(EdgeSettings, path)
    assert (settings.peer_key, settings.engine_key) == ("k of 16 letters",) * 2


def test_so_is_one_of_a_section(tmp_path: Path) -> None:
    path = write(tmp_path, AGENT + '[engine]\napi_key_file = "secret"', b"sk-1\n")
    assert load_settings(WorkerAgentSettings, path).engine.api_key == "sk-1"


@pytest.mark.parametrize(
    ("cls", "text", "secret", "field", "words"),
    [
        (EdgeSettings, 'peer_key = "k"\npeer_key_file = "secret"', b"clear", "peer_key_file", "is given too"),
        (EdgeSettings, 'peer_key_file = "secret"', None, "peer_key_file", "No such file"),
        (EdgeSettings, 'peer_key_file = "secret"', b" \n", "peer_key_file", "is empty"),
        (EdgeSettings, 'peer_key_file = "secret"', b"clear\xff", "peer_key_file", "is not text"),
        (EdgeSettings, 'peer_key_file = "secret"', b"clear\r\nx-a: b", "peer_key_file", "one line"),
        (EdgeSettings, 'peer_key_file = "secret"', "clear\u00e9".encode(), "peer_key_file", "ASCII"),
        (EdgeSettings, 'peer_key_file = "secret"', b"clear" * 1_000, "peer_key_file", "more than 4096"),
        (EdgeSettings, r'peer_key_file = "\u0000"', None, "peer_key_file", "is no path"),
        (EdgeSettings, 'peer_key_file = "~nobody-is-here/x"', None, "peer_key_file", "No such file"),
        (EdgeSettings, "peer_key_file = 3", b"clear", "peer_key_file", "Expected `str`"),
        (
            WorkerAgentSettings,
            '[engine]\napi_key = "k"\napi_key_file = "secret"',
            b"clear",
            "engine.api_key_file",
            "is given too",
        ),
    ],
)  # fmt: skip
def test_a_faulty_file_is_refused_by_name_and_never_shown(
    tmp_path: Path, cls: type[CommonSettings], text: str, secret: bytes | None, field: str, words: str
) -> None:
    path = write(tmp_path, (EDGE if cls is EdgeSettings else AGENT) + text, secret)
    with pytest.raises(SettingsError) as caught:
        load_settings(cls, path)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert "clear" not in str(caught.value)


def test_settings_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="not text") as caught:
        load_settings(EdgeSettings, path)
    assert caught.value.field == "settings"


def test_only_a_field_with_a_sibling_names_a_file(tmp_path: Path) -> None:
    class Alone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        log_file: str

    assert load_settings(Alone, write(tmp_path, 'log_file = "absent"')).log_file == "absent"


@pytest.mark.parametrize(
    ("service", "option"), [("edge", "--id"), ("maintenance", "--id"), ("worker_agent", "--workers")]
)
def test_the_command_line_says_who_it_is(
    service: str,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    plan = Path(__file__).parents[2] / "deploy" / "plans" / "three-regions.toml"
    peer_key = f'peer_key = "{"k" * 16}"\nlab_mode = true\n' if service == "edge" else ""
    path = write(tmp_path, f'plan = "{plan}"\n{peer_key}')
    monkeypatch.setattr("sys.argv", [service, "--settings", str(path), option, "nobody-of-the-plan"])
    with pytest.raises(SystemExit):
        importlib.import_module(f"services.{service}.__main__").main()
    output = capfd.readouterr()
    assert "nobody-of-the-plan" in output.out + output.err
