"""What the gateway costs beside a bare server: the whole measurement, and a quick guard of it."""
