"""`kvcompass-worker-agent doctor`: examines one engine end to end and says what to change."""
