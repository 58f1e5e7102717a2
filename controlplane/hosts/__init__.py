"""Hosts with an agent, and deployments: which models run on them, how often, and where they fit."""
