"""An engine double: SGLang 0.5.10 seen from outside, with time and memory from the engine model."""
