"""The product on the virtual clock: its own roles, driven as `services/` drives them."""

from simulator.product.policies import PRODUCT_RIVALS, product_rival

__all__ = ["PRODUCT_RIVALS", "product_rival"]
