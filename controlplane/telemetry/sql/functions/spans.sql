-- Microseconds of one span of a recorded request: NULL where it did not run, and of rows whose table
-- of spans had another length. Starts stand first, then durations, each int32 little-endian.
CREATE OR REPLACE FUNCTION telemetry_span_us(spans bytea, place integer, size integer)
RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN octet_length(spans) = 8 * size AND get_byte(spans, 4 * place + 3) < 128 THEN
        get_byte(spans, 4 * (size + place)) + 256 * get_byte(spans, 4 * (size + place) + 1)
        + 65536 * get_byte(spans, 4 * (size + place) + 2)
        + 16777216 * get_byte(spans, 4 * (size + place) + 3)::bigint END
$$;
GRANT EXECUTE ON FUNCTION telemetry_span_us TO sluice_app;
