"""AITER as its source has it: which functions there are and what they take. Nothing is imported."""
