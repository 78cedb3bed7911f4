"""The maintenance unit's process: one shard's writer behind gRPC."""
