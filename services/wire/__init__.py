"""Protobuf (`pb`, generated) <-> core types: the only place that knows both."""
