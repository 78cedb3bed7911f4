"""Compiled functions on plain arrays. Every function here goes through the one decorator in `jit`."""
