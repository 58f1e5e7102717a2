"""The page that a gateway process shows to Prometheus."""
