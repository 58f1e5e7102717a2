"""Service level objectives, their alerts and burn-down."""
