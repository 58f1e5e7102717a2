-- Requests whose client went away before the end: neither answered nor errors.

ALTER TABLE usage_minutes ADD COLUMN gone bigint NOT NULL DEFAULT 0;
ALTER TABLE usage_rollups ADD COLUMN gone bigint NOT NULL DEFAULT 0;
