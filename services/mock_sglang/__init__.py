"""An engine double: SGLang seen from outside, with time and memory from the engine model."""
