"""Objectives as OpenSLO documents."""
