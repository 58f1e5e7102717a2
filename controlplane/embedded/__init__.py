"""Private PostgreSQL and Redis in the data folder, and the supervisor of `manage.py sluice run`."""
