"""Telemetry: one row per request, mergeable histograms and usage counters, and their roll-ups."""
