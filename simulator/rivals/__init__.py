"""Whom the product is compared with: one small file each, behind `simulator.router`."""
