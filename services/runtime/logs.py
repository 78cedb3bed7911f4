"""Structured logs: one JSON object a line on stderr. Never prompts, keys or secrets."""

import logging
import sys
from typing import Final, Literal

import structlog

LogLevel = Literal["debug", "info", "warning", "error"]

_NUMBERS: Final[dict[LogLevel, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logging(role: str, instance: str, level: LogLevel = "info") -> None:
    """Sets up the process's logs; `role` and `instance` are on every line."""
    number = _NUMBERS[level]
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format="%(name)s: %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role, instance=instance)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry `component=name`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(component=name)
    return logger
