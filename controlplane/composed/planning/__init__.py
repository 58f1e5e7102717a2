"""Nodes per pool from objectives, measured rates and a forecast, and such plans replayed."""
