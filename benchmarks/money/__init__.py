"""What money costs and what breaks it: speed of holds and settlements, races, gateways killed."""
