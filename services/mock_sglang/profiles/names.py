"""The versions that can be played."""

from typing import Literal

ProfileName = Literal["0.5.10", "0.5.11", "0.5.23"]
