"""The Recorder and Hygiene ports: rows, series, counts of objectives, totals and traces."""
