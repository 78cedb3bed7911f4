"""WAN profiles in files: the ones that are shipped, by name, and a user's own, by path."""

from pathlib import Path
from typing import Final

import kvcompass.wan
from kvcompass.wan.errors import WanError
from kvcompass.wan.parse import parse_profile
from kvcompass.wan.profile import WanProfile

_SHIPPED: Final = Path(kvcompass.wan.__file__).parent / "profiles"


def shipped_profiles() -> tuple[str, ...]:
    """Names of the profiles that come with the product, sorted."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.toml")))


def load_profile(name: str, beside: Path | None = None) -> WanProfile:
    """Reads a shipped profile by its name, or a file that ends in .toml, relative to `beside`.

    Raises:
        WanError: There is no such profile, or it is faulty.
    """
    if name.endswith(".toml"):
        path = (beside or Path()) / name
    elif name in shipped_profiles():
        path = _SHIPPED / f"{name}.toml"
    else:
        known = ", ".join(shipped_profiles())
        raise WanError(f"{name!r} is not shipped ({known}); a file's name ends in .toml", field="profile")
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:  # not UTF-8, or a name that no file can have
        raise WanError(f"cannot read {str(path)!r}: {error}", field="profile") from error
    return parse_profile(text)
