"""Numeric verification: sample inputs and comparison metrics."""
