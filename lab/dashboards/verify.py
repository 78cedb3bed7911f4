"""`python -m lab.dashboards.verify --prometheus URL`: asks a live Prometheus for what every panel shows."""

import argparse
import asyncio
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from lab.dashboards.catalogue import families

_TIMEOUT_S = 10.0
_VARIABLES: Final = {"$__rate_interval": "1m", "$region": ".*"}
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class Question:
    """One expression of one panel, as Grafana would ask it."""

    panel_id: int
    panel: str
    expression: str


@dataclass(frozen=True, slots=True)
class Empty:
    """A question without an answer."""

    panel_id: int
    panel: str
    expression: str
    why: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of it. A panel has data when every one of its expressions gave a number."""

    panels_total: int
    panels_with_data: int
    empty: tuple[Empty, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def substituted(expression: str) -> str:
    """The expression with Grafana's variables filled in: all regions, rates over a minute."""
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def questions(dashboard: Mapping[str, Any]) -> Iterator[Question]:
    """Every expression of every panel, rows left out."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield Question(panel["id"], panel["title"], substituted(target["expr"]))


async def verify(prometheus: str, dashboard: Mapping[str, Any]) -> Verification:
    """Asks once, now. Errors: httpx.HTTPError when Prometheus itself does not answer."""
    asked = tuple(questions(dashboard))
    async with httpx.AsyncClient(base_url=prometheus, timeout=_TIMEOUT_S, trust_env=False) as client:
        (await client.get("/-/ready")).raise_for_status()
        reasons = [await _emptiness(client, question.expression) for question in asked]
    empty = tuple(
        Empty(question.panel_id, question.panel, question.expression, why)
        for question, why in zip(asked, reasons, strict=True)
        if why is not None
    )
    panels = {question.panel_id for question in asked}
    return Verification(len(panels), len(panels - {each.panel_id for each in empty}), empty)


async def _emptiness(client: httpx.AsyncClient, expression: str) -> str | None:
    """Why it has no value now; None when it has."""
    answer = await _query(client, expression)
    if isinstance(answer, str):
        return answer
    if any(not math.isnan(value) for value in answer):
        return None
    if answer:
        return "only NaN: nothing was observed within the window"
    missing = [
        name
        for name in sorted(set(_NAME.findall(expression)))
        if _declared(name) and not await _query(client, f'count({{__name__="{name}"}})')
    ]
    return (
        f"no series of {', '.join(missing)}"
        if missing
        else "series exist, and none is left by the expression"
    )


def _declared(name: str) -> bool:
    return name.removesuffix("_bucket") in families() or name in families()


async def _query(client: httpx.AsyncClient, expression: str) -> Sequence[float] | str:
    """Values of an instant query, or what Prometheus says is wrong with it."""
    answer = await client.post("/api/v1/query", data={"query": expression})
    body = answer.json()
    if body["status"] != "success":
        return f"{body['errorType']}: {body['error']}"
    return [float(series["value"][1]) for series in body["data"]["result"]]


def main() -> int:
    """Exit code 1 when a panel is empty, 2 when Prometheus does not answer."""
    parser = argparse.ArgumentParser(prog="python -m lab.dashboards.verify", description=__doc__)
    parser.add_argument("--prometheus", required=True, help="base URL")
    parser.add_argument(
        "--dashboard",
        type=Path,
        default=Path("deploy/compose/grafana/dashboards/kvcompass.json"),
        help="default: %(default)s",
    )
    parser.add_argument("--json", type=Path, help="write the findings here")
    options = parser.parse_args()
    try:
        found = asyncio.run(verify(options.prometheus, json.loads(options.dashboard.read_text("utf-8"))))
    except httpx.HTTPError as error:
        sys.stderr.write(f"{options.prometheus} does not answer: {error}\n")
        return 2
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found.as_json(), indent=2) + "\n", "utf-8")
    sys.stdout.write(f"{found.panels_with_data} of {found.panels_total} panels have data\n")
    for each in found.empty:
        sys.stdout.write(f"  {each.panel_id} {each.panel}: {each.why}\n    {each.expression}\n")
    return 1 if found.empty else 0


if __name__ == "__main__":
    sys.exit(main())
