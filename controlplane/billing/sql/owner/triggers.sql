-- What triggers call.

CREATE OR REPLACE FUNCTION ledger_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused; correct by adding transfers',
                    TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END $$;

-- Nothing is booked into a closed month, whatever clock somebody brings.
CREATE OR REPLACE FUNCTION ledger_refuse_backdated() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM period_closes c
               WHERE c.organization = NEW.organization AND c.ends > NEW.booked_at) THEN
        RAISE EXCEPTION 'the period of % is closed', NEW.booked_at
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

REVOKE ALL ON FUNCTION ledger_refuse_change, ledger_refuse_backdated FROM PUBLIC;
