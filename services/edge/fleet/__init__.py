"""What an edge hears from the fleet and tells it: the index by shard, load by worker and by region."""
