"""What every service needs and nothing else: settings, logs, lifecycle, health, listeners, TLS, auth."""
