-- Which client a request came from, so that its fix can be told as code for that.

ALTER TABLE hygiene_hours ADD COLUMN client text NOT NULL DEFAULT 'other',
    DROP CONSTRAINT hygiene_hours_kind_check,
    ADD CHECK (kind IN ('looked', 'left_out', 'dead_json', 'oversized_prompt', 'volatile_prefix',
                        'unbounded_output', 'retry', 'not_streamed', 'hasty_retry', 'tools_again')),
    DROP CONSTRAINT hygiene_hours_pkey,
    ADD PRIMARY KEY (hour, organization, project, key, client, model, kind, writer);
