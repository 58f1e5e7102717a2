-- How the journal is written.

-- Books an entry, or returns the one that was booked under this key with the same content; another
-- content under the same key raises SL409. Errors of the caller raise SL422 with the field first.
CREATE OR REPLACE FUNCTION ledger_journal(
    p_id uuid, p_organization uuid, p_kind text, p_debit text, p_credit text, p_amount bigint,
    p_reason text, p_reference text, p_reverses uuid, p_idempotency text, p_actor text,
    p_approved text
) RETURNS SETOF journal_entries
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    v_hash bytea := ledger_payload_hash(p_kind, p_debit, p_credit, p_amount, p_reason,
                                        p_reference, p_reverses);
    v_made journal_entries;
BEGIN
    PERFORM ledger_require_scope(p_organization);
    IF p_reverses IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('reverse:' || p_reverses, 0));
    END IF;
    INSERT INTO journal_entries (id, organization, kind, debit, credit, amount, reason, reference,
                                 reverses, idempotency, actor_label, approved_by, payload_hash)
    VALUES (p_id, p_organization, p_kind, p_debit, p_credit, p_amount, p_reason, p_reference,
            p_reverses, p_idempotency, p_actor, p_approved, v_hash)
    ON CONFLICT (organization, idempotency) DO NOTHING RETURNING * INTO v_made;
    IF v_made.id IS NULL THEN
        SELECT * INTO v_made FROM journal_entries
        WHERE organization = p_organization AND idempotency = p_idempotency;
        IF v_made.payload_hash <> v_hash THEN
            RAISE EXCEPTION 'idempotency: this key was used for a different entry'
                USING ERRCODE = 'SL409';
        END IF;
        RETURN NEXT v_made;
        RETURN;
    END IF;
    IF p_reverses IS NOT NULL THEN
        PERFORM ledger_check_reversal(v_made);
        PERFORM ledger_give_back(v_made);
    END IF;
    PERFORM ledger_wallet_move(
        p_organization,
        CASE 'wallet:' || p_organization::text WHEN p_credit THEN p_amount
                                               WHEN p_debit THEN -p_amount ELSE 0 END);
    RETURN NEXT v_made;
END $$;

CREATE OR REPLACE FUNCTION ledger_payload_hash(
    p_kind text, p_debit text, p_credit text, p_amount bigint, p_reason text, p_reference text,
    p_reverses uuid
) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT sha256(convert_to(json_build_array(p_kind, p_debit, p_credit, p_amount, p_reason,
                                              p_reference, p_reverses)::text, 'UTF8'))
$$;

-- These functions see every tenant's rows, so the caller's own scope is held against what it asks.
CREATE OR REPLACE FUNCTION ledger_require_scope(p_organization uuid) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
BEGIN
    IF p_organization = ANY (NULLIF(current_setting('app.orgs', true), '')::uuid[]) THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'organization % is outside the scope', p_organization
        USING ERRCODE = 'insufficient_privilege';
END $$;

-- A reversal goes between the same two accounts the other way, and never beyond what was booked.
CREATE OR REPLACE FUNCTION ledger_check_reversal(made journal_entries) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    v_debit text;
    v_credit text;
    v_amount bigint;
    v_reversed bigint;
BEGIN
    SELECT j.debit, j.credit, j.amount INTO v_debit, v_credit, v_amount FROM journal_entries j
    WHERE j.id = made.reverses AND j.organization = made.organization AND j.kind <> 'reversal';
    IF v_amount IS NULL THEN
        SELECT min(t.debit), min(t.credit), sum(t.amount) INTO v_debit, v_credit, v_amount
        FROM transfers t WHERE t.request = made.reverses AND t.organization = made.organization
                           AND t.kind IN ('settle', 'overage', 'late');
    END IF;
    IF v_amount IS NULL THEN
        RAISE EXCEPTION 'reverses: there is no entry or charge %', made.reverses
            USING ERRCODE = 'SL422';
    END IF;
    IF made.debit <> v_credit OR made.credit <> v_debit THEN
        RAISE EXCEPTION 'debit: a reversal of % goes from % to %', made.reverses, v_credit, v_debit
            USING ERRCODE = 'SL422';
    END IF;
    SELECT sum(j.amount) INTO v_reversed FROM journal_entries j WHERE j.reverses = made.reverses;
    IF v_reversed > v_amount THEN
        RAISE EXCEPTION 'nano: % of % nano-USD remain to be reversed',
            v_amount - v_reversed + made.amount, v_amount USING ERRCODE = 'SL422';
    END IF;
END $$;

-- A reversed charge makes room again in what it was charged to, where the period in which it was
-- booked still runs; a wallet's is moved by its account.
CREATE OR REPLACE FUNCTION ledger_give_back(made journal_entries) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    mine uuid[];
    v_charged_at timestamptz;
    v_model text;
BEGIN
    SELECT t.budgets INTO mine FROM transfers t WHERE t.request = made.reverses AND t.slot = 0;
    SELECT min(t.booked_at), min(t.model) INTO v_charged_at, v_model FROM transfers t
    WHERE t.request = made.reverses AND t.kind IN ('settle', 'overage', 'late');
    PERFORM 1 FROM budgets WHERE id = ANY (mine) ORDER BY id FOR UPDATE;
    WITH roomier AS (
        UPDATE budgets b SET lim = b.lim + made.amount,
                             over = greatest(0, b.posted + b.held - b.lim - made.amount)
        WHERE b.id = ANY (mine) AND b.scope <> 'wallet' AND b.lim < 4000000000000000000
          AND NOT EXISTS (SELECT 1 FROM budget_terms t WHERE t.budget = b.id
                          AND t.period <> 'none' AND t.began_at > v_charged_at)
          AND NOT EXISTS (SELECT 1 FROM budget_parts p WHERE p.budget = b.id
                          AND (p.model <> v_model OR p.began_at > v_charged_at))
        RETURNING b.id
    )
    UPDATE budget_terms SET given = given + made.amount
    WHERE budget IN (SELECT id FROM roomier);
END $$;

-- Money put into a wallet, or taken out of it; the first makes the organization a prepaid one.
CREATE OR REPLACE FUNCTION ledger_wallet_move(p_organization uuid, p_change bigint) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF p_change = 0 THEN
        RETURN;
    END IF;
    INSERT INTO budgets (id, organization, scope, lim)
    VALUES (ledger_wallet(p_organization), p_organization, 'wallet', 0)
    ON CONFLICT (id) DO NOTHING;
    UPDATE budgets b SET lim = b.lim + p_change,
                         over = greatest(0, b.posted + b.held - b.lim - p_change)
    WHERE b.id = ledger_wallet(p_organization) AND b.lim + p_change >= 0;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'nano: the amount exceeds what was paid into the wallet'
            USING ERRCODE = 'SL422';
    END IF;
END $$;

GRANT EXECUTE ON FUNCTION ledger_journal TO sluice_app;
