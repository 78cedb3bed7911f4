"""Compiles the index's kernels once, before a dozen processes would each do it at the same time."""

from kvcompass.warm import warm


def warm_kernels() -> None:
    """About 40 s on a machine's first call, half a second later; the builds stay on disk."""
    warm()
