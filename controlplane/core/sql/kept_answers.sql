-- Kept answers are added and dropped, never changed.
GRANT SELECT, INSERT, DELETE ON kept_answers TO sluice_app;
