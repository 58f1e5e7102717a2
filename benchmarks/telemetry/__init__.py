"""What seeing costs: recording series in a gateway, and pages over a long and busy past."""
