"""What a maintenance unit and an edge both serve: a shard, to whoever follows it."""
