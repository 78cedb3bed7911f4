"""Settings: one frozen Struct a service, read from one TOML file; unknown keys are refused."""

import math
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from kvcompass.errors import KVCompassError
from kvcompass.spelling import unknown_key
from services.runtime.logs import LogLevel

T = TypeVar("T", bound=msgspec.Struct)

_ABOVE_0 = math.ulp(0.0)
"""The least number above it."""
_SECRET_LETTERS = 4_096
"""Of a secret in a file: what a header takes."""


class SettingsError(KVCompassError):
    """A setting is missing, unknown or has a bad value; `field` is its TOML path."""


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mutual TLS between components. All three are PEM files, relative to the settings file; each side
    presents `cert` and trusts `ca`."""

    cert: str
    key: str
    ca: str


class CommonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields that every service has."""

    plan: str
    """Path of the fleet's plan, relative to the settings file."""
    ops_address: str = "127.0.0.1:0"
    """host:port of /health, /ready and /metrics. Loopback unless told; port 0 picks a free one."""
    log_level: LogLevel = "info"
    connect_via: dict[str, str] = {}
    """Plan address (host:port) -> address to dial instead: a relay, an egress proxy."""
    tls: TlsSettings | None = None
    """Mutual TLS on the connections between components. Absent: plain text, on loopback addresses only."""
    insecure: bool = False
    """Allow plain text on other addresses too: where a private network or a mesh keeps strangers out."""
    plan_key: str = ""
    """Secret with which `kvcompass plan apply` signs the plans it brings to the operations listener, the same
    for all components; at least 16 characters. Empty: this process takes no plans but its file's."""
    plan_key_file: str = ""
    """A file with the same, instead of it. Relative to the settings file."""


def load_settings(cls: type[T], path: Path, overrides: Mapping[str, Any] | None = None) -> T:
    """Reads `path` into `cls`; `overrides` replace top-level fields.

    A field `X_file` beside a field `X` names a file, relative to `path`, whose content is `X`: a secret that
    stays out of the settings.

    Errors: `SettingsError` naming the field and the fix.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise SettingsError(
            f"cannot read settings file {path}: {error.strerror}", field="settings"
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not text in UTF-8", field="settings") from error
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}", field="settings") from error
    if isinstance(raw.get("tls"), dict):
        raw["tls"] = {
            name: str(resolve_path(path, value)) if isinstance(value, str) else value
            for name, value in raw["tls"].items()
        }
    raw.update(overrides or {})
    with faults_named(path):
        _refuse_unknown(raw, cls, "")
        _take_files(raw, cls, path, "")
        try:
            return msgspec.convert(raw, cls, strict=True)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at `$.")
            field = where.rstrip("`") or "settings"
            raise SettingsError(reason + _choices(cls, field), field=field) from error


@contextmanager
def faults_named(path: Path) -> Iterator[None]:
    """Puts the settings file and the field before the message of a `SettingsError` raised within."""
    try:
        yield
    except SettingsError as error:
        raise SettingsError(f"{path}: {error.field}: {error}", field=error.field) from error


def check_range(
    section: str, values: msgspec.Struct, ranges: Mapping[str, tuple[float, float]] | None = None
) -> None:
    """Refuse the first number of a section that is out of its range; what is no number is passed over.

    `ranges`: the least and the most by field, both allowed; `math.inf` where nothing bounds it above. Without
    one an int is at least 1 and any other number above 0. Infinity and NaN are in no range.

    Errors: SettingsError.
    """
    ranges = ranges or {}
    assert ranges.keys() <= set(values.__struct_fields__), "a range of no field"
    for name in values.__struct_fields__:
        value = getattr(values, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        usual = (1 if isinstance(value, int) else _ABOVE_0, math.inf)
        least, most = ranges.get(name, usual)
        if not (math.isfinite(value) and least <= value <= most):
            raise SettingsError(_range_told(least, most), field=f"{section}.{name}")


def _range_told(least: float, most: float) -> str:
    if most < math.inf:
        return f"must be in {least:_} to {most:_}"
    return (
        "must be a finite number above 0" if least == _ABOVE_0 else f"must be finite and at least {least:_}"
    )


def resolve_path(settings_file: Path, value: str) -> Path:
    """A path in a settings file is relative to that file."""
    path = Path(value)
    with suppress(RuntimeError):  # nobody's home: then there is no such file either
        path = path.expanduser()
    return path if path.is_absolute() else settings_file.parent / path


def _refuse_unknown(raw: Mapping[str, Any], cls: type[msgspec.Struct], prefix: str) -> None:
    """Errors: SettingsError naming the first key that `cls`, or a section of it, does not have."""
    hints = get_type_hints(cls)
    for name, value in raw.items():
        if name not in hints:
            raise SettingsError(unknown_key(name, hints), field=prefix + name)
        section = _section(hints[name])
        if section is not None and isinstance(value, dict):
            _refuse_unknown(value, section, f"{prefix}{name}.")


def _take_files(raw: dict[str, Any], cls: type[msgspec.Struct], settings_file: Path, prefix: str) -> None:
    """Puts the content of each file that `X_file` names under `X`, and `X_file` away.

    Errors: SettingsError, which never shows the content.
    """
    hints = get_type_hints(cls)
    for name, value in list(raw.items()):
        section, target = _section(hints[name]), name.removesuffix("_file")
        if section is not None and isinstance(value, dict):
            _take_files(value, section, settings_file, f"{prefix}{name}.")
        elif target != name and target in hints and isinstance(value, str):
            if target in raw:
                raise SettingsError(f"{prefix}{target} is given too: keep one of them", field=prefix + name)
            raw[target] = _secret(resolve_path(settings_file, value), prefix + name)
            del raw[name]


def _secret(path: Path, field: str) -> str:
    """The file's text without the white space around it. It goes into headers, so it is one line of ASCII."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_SECRET_LETTERS + 1).strip()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not text", field=field) from error
    except ValueError as error:
        raise SettingsError(f"{str(path)!r} is no path: {error}", field=field) from error
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}", field=field) from error
    if not text:
        raise SettingsError(f"{path} is empty", field=field)
    if len(text) > _SECRET_LETTERS:
        raise SettingsError(f"{path} holds more than {_SECRET_LETTERS} letters", field=field)
    if not (text.isascii() and text.isprintable()):
        raise SettingsError(f"{path} is not one line of printable ASCII", field=field)
    return text


def _choices(cls: type[msgspec.Struct], field: str) -> str:
    """The values that a field takes when it takes one of a few, as the end of a message; else nothing."""
    hint: Any = cls
    for name in field.split("."):
        hints = get_type_hints(hint) if _is_section(hint) else {}
        hint = next((each for each in _alternatives(hints.get(name)) if each is not type(None)), None)
    return f"; it is one of {', '.join(map(repr, get_args(hint)))}" if get_origin(hint) is Literal else ""


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """`A | None` as (A, None); any other type alone."""
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def _section(hint: Any) -> type[msgspec.Struct] | None:
    """The Struct that a field takes, if it takes one."""
    return next((each for each in _alternatives(hint) if _is_section(each)), None)


def _is_section(hint: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)
