"""What differs between versions of the engine, one file a version; the rest of the double asks none."""

from services.mock_sglang.profiles import sglang_0_5_10, sglang_0_5_11, sglang_0_5_23
from services.mock_sglang.profiles.names import ProfileName
from services.mock_sglang.profiles.profile import Profile

PROFILES: dict[ProfileName, Profile] = {
    "0.5.10": sglang_0_5_10.PROFILE,
    "0.5.11": sglang_0_5_11.PROFILE,
    "0.5.23": sglang_0_5_23.PROFILE,
}

__all__ = ["PROFILES", "Profile", "ProfileName"]
