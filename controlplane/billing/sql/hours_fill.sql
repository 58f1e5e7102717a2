-- Hours of what was sealed before there were any.
SET LOCAL ROLE sluice_ledger;
SELECT ledger_hours_add(request_floor('epoch'), '-infinity', max(to_at)) FROM ledger_seals
HAVING max(to_at) IS NOT NULL;
RESET ROLE;
