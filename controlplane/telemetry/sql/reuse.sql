-- Prompt tokens that were cached at the best node of the fleet, and at the node that was chosen:
-- beside those delivered they tell a poor workload, a poor choice and a stale index apart.

ALTER TABLE usage_minutes ADD COLUMN available bigint NOT NULL DEFAULT 0,
    ADD COLUMN captured bigint NOT NULL DEFAULT 0;
ALTER TABLE usage_rollups ADD COLUMN available bigint NOT NULL DEFAULT 0,
    ADD COLUMN captured bigint NOT NULL DEFAULT 0;
