"""A router's state as Prometheus text."""

from collections.abc import Iterable, Mapping
from typing import Final

from lab.netem import names
from lab.netem.report import Report

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def exposition(report: Report) -> str:
    """Every series of `names`."""
    pairs = report.directions
    return "".join(
        (
            _family(
                names.ONE_WAY_MS,
                "gauge",
                "Delay that is asked for, ms.",
                ((_ends(pair), each.one_way_ms) for pair, each in pairs.items()),
            ),
            _family(
                names.RTT_MS,
                "gauge",
                "Round trip between the routers, median of the last echoes, ms.",
                ((_ends(pair), each.rtt_ms) for pair, each in pairs.items()),
            ),
            _family(
                names.PARTITIONED,
                "gauge",
                "1 while this router lets nothing pass.",
                ((_ends(pair), float(each.partitioned)) for pair, each in pairs.items()),
            ),
            _family(
                names.PACKETS,
                "counter",
                "Packets that passed, or were lost by the link.",
                ((_ends(pair), each.packets) for pair, each in pairs.items()),
            ),
            _family(
                names.DROPPED_PACKETS,
                "counter",
                "Packets lost by the link (shaped) or to a cut (partition).",
                (
                    (_ends(pair) | {"reason": reason}, count)
                    for pair, each in pairs.items()
                    for reason, count in (("shaped", each.shaped_drops), ("partition", each.partition_drops))
                ),
            ),
            _family(
                names.SHAPER_INFO,
                "gauge",
                "How this router shapes, and after which profile.",
                [({"shaper": report.shaper, "profile": report.profile}, 1.0)],
            ),
        )
    )


def _ends(pair: tuple[str, str]) -> dict[str, str]:
    return {"origin": pair[0], "destination": pair[1]}


def _family(
    name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float | None]]
) -> str:
    lines = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n"]
    for labels, value in samples:
        if value is not None:
            written = ",".join(f'{label}="{each}"' for label, each in labels.items())
            lines.append(f"{name}{{{written}}} {value:.10g}\n")
    return "".join(lines)
