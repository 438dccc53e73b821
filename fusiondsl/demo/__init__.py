"""A decoder, compiled and fused end to end on a CPU; run it as `python -m fusiondsl.demo`."""
