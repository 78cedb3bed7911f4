"""Periods and bounds that no role decides: the defaults of `services/`, each by its name there.

A test compares them with the services' own.
"""

from typing import Final

LOAD_PERIOD_US: Final = 100_000
"""`services.worker_agent.settings.EngineSettings.load_period_ms`: an agent asks its engine for its load."""
LOAD_JITTER: Final = 0.1
"""`services.worker_agent.served_worker`: each such period is longer or shorter by up to this share."""
LOAD_TIMEOUT_US: Final = 2_000_000
"""`services.worker_agent.settings.EngineSettings.load_timeout_ms`: an engine answers within it or not."""
LOAD_FAILURES: Final = 2
"""`services.worker_agent.settings.EngineSettings.failures_before_unreachable`."""
EVENT_TIMEOUT_US: Final = 3_000_000
"""`services.worker_agent.settings.EngineSettings.event_timeout_ms`: for an engine's event sockets."""
QUIET_US: Final = 2_000_000
"""`services.worker_agent.settings.EngineSettings.quiet_ms`: after which past events are asked for."""
PENDING_KEYS: Final = 65_536
"""`services.worker_agent.settings.StreamSettings.pending_keys`."""
ANSWER_US: Final = 10_000_000
"""`services.worker_agent.settings.StreamSettings.answer_timeout_ms`: for a unit's first word."""
FLUSH_US: Final = 3_000
"""`services.maintenance.settings.Bounds.flush_ms`: changes are collected for so long before a message."""
TICK_US: Final = 50_000
"""`services.maintenance.service`: lease ends are noticed this late."""
BUSY_TICK_US: Final = 1_000
"""The same while tables grow or are cleared."""
STALL_US: Final = 200_000
"""The same: a tick so late means that the process did not run."""
ATTEMPTS: Final = 3
"""`services.edge.settings.Limits.attempts`: workers tried for one request."""
AVOID_US: Final = 2_000_000
"""`services.edge.settings.Timeouts.suspect_s`: so long a peer edge is avoided that was not reached."""
CONNECT_US: Final = 2_000_000
"""`services.edge.settings.Timeouts.connect_s`: after which a peer edge counts as unreachable."""
RETRY_AFTER_US: Final = 1_000_000
"""`services.edge.forwarding.forward`: how long a worker that refuses is left alone when it does not say."""
KEEPALIVE_US: Final = 3_000_000
"""`services.runtime.grpc_transport`: a ping after a second of silence; two more, and a connection on which
nothing passes is broken, at both ends. So is an agent's to a process that stands still (edges notice that by
themselves)."""
