"""The paper's roles as pure state machines: inputs and `now_us` go in, messages and decisions come out."""
