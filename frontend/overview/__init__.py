"""The Overview: headline figures, stages and charts, also live."""
