"""A region's gateway: speaks OpenAI, sends each request to the worker, anywhere, that answers it soonest."""
