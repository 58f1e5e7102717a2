-- A version of the rules had rows of its own in route_rules and never changed; now it has a state,
-- and its rules in one column. What was in force stays in force.
DROP TRIGGER rule_set_immutable ON rule_sets;
DROP TRIGGER rule_set_config ON rule_sets;
