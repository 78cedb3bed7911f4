"""The dashboard and the alerts, written down as code that shares the services' metric names."""
