-- A document's number is the next of its kind; called by the trigger on documents.
CREATE OR REPLACE FUNCTION ledger_number_document() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE document_numbers SET last = last + 1 WHERE kind = NEW.kind RETURNING last INTO NEW.number;
    RETURN NEW;
END $$;
