-- Whole connections are kept; of keys what was sealed is forgotten, and amounts may be entered anew.
GRANT SELECT, INSERT, UPDATE ON connections, connection_keys, connection_models TO sluice_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON provider_amounts TO sluice_app;
