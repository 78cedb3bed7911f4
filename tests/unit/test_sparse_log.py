"""One line a second of each event, and how many it stands for."""

from typing import Any, cast

from services.runtime.sparse_log import SparseLog


class Written:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    info = warning


def test_one_line_a_second_of_each_event_says_how_many_were_left_out() -> None:
    clock, written = [0], Written()
    log = SparseLog(cast(Any, written), lambda: clock[0])
    for at_us in range(0, 2_000_000, 1_000):
        clock[0] = at_us
        log.warning("broken", batch=at_us)
        log.info("welcomed")
    clock[0] = 2_000_000
    log.warning("broken", batch=2_000_000)
    broken = [fields for event, fields in written.lines if event == "broken"]
    assert broken == [
        {"batch": 0, "left_out": 0},
        {"batch": 1_000_000, "left_out": 999},
        {"batch": 2_000_000, "left_out": 999},
    ]
    assert len(written.lines) - len(broken) == 2
