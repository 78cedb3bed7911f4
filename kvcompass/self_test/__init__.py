"""The registration self-test: does an engine turn a conversation into the tokens that edges compute keys of?

Pure: the probe, what is heard of it, how it is compared, and what follows. `services/worker_agent` asks.
"""
