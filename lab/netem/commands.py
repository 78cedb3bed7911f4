"""The commands to a running router, as its command line sends them."""

import http.client
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from lab.netem.errors import RouterError
from lab.netem.settings import CONTROL_PORT

_TIMEOUT_S: Final = 15.0
_WORDS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "none": None}


def ask(path: str, given: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Sends a command to the router of this network namespace; returns what it then reports.

    Raises:
        RouterError: There is no router, or it refused.
    """
    connection = http.client.HTTPConnection("127.0.0.1", CONTROL_PORT, timeout=_TIMEOUT_S)
    try:
        if given is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(given), {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = cast(dict[str, Any], json.loads(response.read()))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise RouterError(
            f"no router answers on 127.0.0.1:{CONTROL_PORT}: {error}", field="router"
        ) from error
    finally:
        connection.close()
    if response.status != 200:
        raise RouterError(str(body["error"]), field="command")
    return body


def read_values(words: Iterable[str]) -> dict[str, object]:
    """`one_way_ms=200 partition=true rate=none` as values. Raises: RouterError."""
    return dict(map(_read_value, words))


def _read_value(word: str) -> tuple[str, object]:
    name, sign, text = word.partition("=")
    if not sign or not name:
        raise RouterError(f"{word!r}: write NAME=VALUE", field=name)
    if text in _WORDS:
        return name, _WORDS[text]
    try:
        return name, float(text)
    except ValueError as error:
        raise RouterError(f"{word!r}: {text!r} is no number, true, false or none", field=name) from error


def table(report: Mapping[str, Any]) -> str:
    """A report as a person reads it."""
    lines = [
        f"{report['region']}: {report['profile']}, shaped by {report['shaper']}",
        f"{'direction':<16}{'one way':>9}{'jitter':>8}{'loss':>8}{'rate':>8}{'RTT':>9}{'packets':>10}"
        f"{'dropped':>9}  state",
    ]
    for each in report["directions"]:
        name = f"{each['origin']} > {each['destination']}"
        state = "cut" if each["partitioned"] else "open"
        dropped = each["partition_drops"] + (each["shaped_drops"] or 0)
        link = each["link"]
        if link is None:
            lines.append(f"{name:<16}{'':>9}{'':>8}{'':>8}{'':>8}{'':>9}{'':>10}{dropped:>9}  {state}")
            continue
        rate = "-" if link["rate"] is None else f"{link['rate']:g}"
        rtt = "-" if each["rtt_ms"] is None else f"{each['rtt_ms']:.1f}"
        lines.append(
            f"{name:<16}{link['one_way_ms']:>9g}{link['jitter_ms']:>8g}{link['loss']:>8g}{rate:>8}{rtt:>9}"
            f"{each['packets']:>10}{dropped:>9}  {state}"
        )
    return "\n".join(lines)
