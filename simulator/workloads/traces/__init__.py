"""Recorded workloads, one published form a file, and what all forms share."""
