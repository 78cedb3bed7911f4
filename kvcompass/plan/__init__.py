"""The plan of a fleet: model, parsing with one message a fault, slots given append-only, layout digest."""
