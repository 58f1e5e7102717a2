-- Claim it for a request: `mine`, or what became of the first. A claim whose gateway died is taken
-- over only where the ledger shows that nothing was charged and nothing can be any more.
CREATE OR REPLACE FUNCTION inference_claim(
    p_id bytea, p_organization uuid, p_payload bytea, p_request uuid,
    p_unheld_s integer, p_open_s integer, p_settled_s integer, p_kept_s integer,
    OUT verdict text, OUT first uuid, OUT answer bytea
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    c inference_claims;
    age_s double precision;
    resolution text;
    gone boolean;
BEGIN
    INSERT INTO inference_claims (id, organization, payload, request)
    VALUES (p_id, p_organization, p_payload, p_request) ON CONFLICT (id) DO NOTHING;
    IF FOUND THEN
        verdict := 'mine';
        first := p_request;
        RETURN;
    END IF;
    SELECT * INTO c FROM inference_claims i WHERE i.id = p_id FOR UPDATE;
    first := c.request;
    IF NOT FOUND THEN
        -- The first was refused this moment: its next try claims.
        verdict := 'running';
        first := p_request;
        RETURN;
    END IF;
    age_s := extract(epoch FROM clock_timestamp() - c.claimed_at);
    IF c.payload <> p_payload AND age_s <= p_kept_s THEN
        verdict := 'mismatch';
    ELSIF age_s > p_kept_s THEN
        gone := true;
    ELSIF c.state = 'done' THEN
        verdict := CASE WHEN c.answer IS NULL THEN 'charged' ELSE 'kept' END;
        answer := c.answer;
    ELSIF EXISTS (SELECT 1 FROM open_holds o WHERE o.request = c.request) THEN
        verdict := 'running';
    ELSE
        resolution := ledger_resolution(c.request);
        IF resolution = 'release' THEN
            gone := true;
        ELSIF resolution IS NOT NULL THEN
            -- Its gateway is about to keep the answer, or did not live to.
            verdict := CASE WHEN EXISTS (
                SELECT 1 FROM transfers t WHERE t.request = c.request AND t.slot > 0
                AND t.booked_at > clock_timestamp() - make_interval(secs => p_settled_s)
            ) THEN 'running' ELSE 'charged' END;
        ELSE
            -- A free request holds nothing, ever; any other is to hold at once.
            gone := age_s > CASE c.state WHEN 'held' THEN p_open_s ELSE p_unheld_s END;
            verdict := 'running';
        END IF;
    END IF;
    IF gone THEN
        UPDATE inference_claims i
        SET organization = p_organization, payload = p_payload, request = p_request,
            state = 'claimed', claimed_at = clock_timestamp(), answer = NULL
        WHERE i.id = p_id;
        verdict := 'mine';
        first := p_request;
    END IF;
END $$;

-- After the hold: whether the claim is still the request's, from here on until it is resolved.
CREATE OR REPLACE FUNCTION inference_claim_hold(p_id bytea, p_request uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE inference_claims SET state = 'held'
    WHERE id = p_id AND request = p_request AND state = 'claimed';
    RETURN FOUND;
END $$;

-- It was charged: its sealed answer, or none where that is not whole or too large.
CREATE OR REPLACE FUNCTION inference_claim_keep(p_id bytea, p_request uuid, p_answer bytea) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE inference_claims SET state = 'done', answer = p_answer
    WHERE id = p_id AND request = p_request AND state = 'held'
$$;

-- It was not charged: a retry begins anew.
CREATE OR REPLACE FUNCTION inference_claim_free(p_id bytea, p_request uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    DELETE FROM inference_claims WHERE id = p_id AND request = p_request AND state <> 'done'
$$;

-- Removes at most `rows_max` claims older than `kept_s`; returns how many.
CREATE OR REPLACE FUNCTION inference_claims_forget(kept_s integer, rows_max integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH gone AS (
        DELETE FROM inference_claims WHERE id IN (
            SELECT id FROM inference_claims
            WHERE claimed_at < clock_timestamp() - make_interval(secs => kept_s)
            ORDER BY claimed_at LIMIT rows_max FOR UPDATE SKIP LOCKED)
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;

GRANT EXECUTE ON FUNCTION
    inference_claim, inference_claim_hold, inference_claim_keep, inference_claim_free
    TO sluice_gateway;
GRANT EXECUTE ON FUNCTION inference_claims_forget TO sluice_app;
