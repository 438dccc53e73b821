"""A real vLLM engine on the CPU that compiles as one on a GPU does."""
