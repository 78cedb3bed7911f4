"""Patch messages that a unit loses on purpose, so that a drill can show that nothing is lost by it."""

import random

from kvcompass.roles.messages import PatchGroups, UnitToEdge
from services.runtime.settings import SettingsError


class PatchLoss:
    """Draws which messages to subscribers are not sent. `share` of them, patches alone; 0 at first."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._share = 0.0
        self.lost = 0
        """Messages lost. Monotonic."""

    def takes(self, message: UnitToEdge) -> bool:
        """Whether this message is to be lost: as far as the unit knows it was sent."""
        if not isinstance(message, PatchGroups) or self._rng.random() >= self._share:
            return False
        self.lost += 1
        return True

    def set_share(self, text: str) -> None:
        """From now on. Errors: SettingsError when it is no number from 0 to 1."""
        try:
            share = float(text)
        except ValueError:
            share = -1.0
        if not 0.0 <= share <= 1.0:
            raise SettingsError(f"{text!r} is no share: give a number from 0 to 1", field="patch_loss")
        self._share = share
