-- Installs Palisade's fences in a database of PostgreSQL 13 or later: docs/fencing.md.
--
--     psql --single-transaction --set ON_ERROR_STOP=1 --file install.sql
--
-- A second run replaces the functions and keeps the fences.

CREATE SCHEMA IF NOT EXISTS palisade;

-- What each resource has seen. Every pass writes its row, so that it is locked until the transaction ends.
CREATE TABLE IF NOT EXISTS palisade.fences (
    resource  text NOT NULL CHECK (octet_length(resource) BETWEEN 1 AND 512),
    permit    integer NOT NULL CHECK (permit >= 0),
    x         bigint NOT NULL,
    a         bigint NOT NULL,
    passed_in xid8,
    passed_at timestamptz,
    PRIMARY KEY (resource, permit)
) WITH (fillfactor = 50);
COMMENT ON TABLE palisade.fences IS 'The largest tokens that each resource has seen';
COMMENT ON COLUMN palisade.fences.permit IS '0: readers and writers of the resource; n: permit number n';
COMMENT ON COLUMN palisade.fences.x IS 'The largest exclusive token (X); 0 for permits';
COMMENT ON COLUMN palisade.fences.a IS 'The largest token of readers and writers (A), or of this permit';
-- A transaction is known by both: after a restore from a dump, its number alone could come again.
COMMENT ON COLUMN palisade.fences.passed_in IS 'The last transaction that may write';
COMMENT ON COLUMN palisade.fences.passed_at IS 'The start of that transaction';

-- Lets the holder of a grant pass, until its transaction ends, or raises PF001 with the token that is in its way.
CREATE OR REPLACE FUNCTION palisade.fence(
    resource text, token bigint, mode text DEFAULT 'exclusive', permit integer DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen bigint;
BEGIN
    IF token IS NULL OR token NOT BETWEEN 1 AND 9007199254740991 THEN
        RAISE EXCEPTION 'a token is a number from 1 to 2^53 - 1' USING ERRCODE = '22023';
    ELSIF (mode = 'permit') IS DISTINCT FROM (permit IS NOT NULL) OR permit NOT BETWEEN 1 AND 65535 THEN
        RAISE EXCEPTION 'the mode "permit" has the number of the permit, 1 to 65535, and no other mode has one'
            USING ERRCODE = '22023';
    END IF;
    -- Asked first, since ON CONFLICT waits for a transaction that updates the row.
    IF NOT EXISTS (SELECT FROM palisade.fences f WHERE f.resource = fence.resource AND f.permit = 0) THEN
        INSERT INTO palisade.fences VALUES (resource, 0, 0, 0) ON CONFLICT DO NOTHING;
    END IF;
    CASE mode
        WHEN 'exclusive' THEN seen := palisade.pass_exclusive(resource, token);
        WHEN 'shared' THEN seen := palisade.pass_shared(resource, token);
        WHEN 'permit' THEN seen := palisade.pass_permit(resource, token, permit);
        ELSE RAISE EXCEPTION 'a mode is "exclusive", "shared" or "permit"' USING ERRCODE = '22023';
    END CASE;
    IF (token >= seen) IS NOT TRUE THEN
        RAISE EXCEPTION 'FENCED: the token % of "%" is older than %', token, resource, seen
            USING ERRCODE = 'PF001', DETAIL = seen::text, HINT = 'The lock was lost to a newer holder: stop.';
    END IF;
END $$;

-- Waits for everybody who has passed. The write, also of an equal token, makes a transaction fail with 40001 whose
-- snapshot is older than the last pass: it would not see what that holder wrote.
CREATE OR REPLACE FUNCTION palisade.pass_exclusive(resource text, token bigint)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen bigint;
BEGIN
    -- The row of readers and writers comes first in every mode, so nobody waits in a circle.
    PERFORM FROM palisade.fences f WHERE f.resource = pass_exclusive.resource ORDER BY f.permit FOR UPDATE;
    SELECT max(f.a) INTO seen FROM palisade.fences f WHERE f.resource = pass_exclusive.resource;
    IF token >= seen THEN
        UPDATE palisade.fences f SET x = token, a = token, passed_in = pg_current_xact_id(), passed_at = now()
        WHERE f.resource = pass_exclusive.resource AND f.permit = 0;
    END IF;
    RETURN seen;
END $$;

-- Waits for writers and for permits, and, with a token that is the largest so far, for the reader that had this before.
CREATE OR REPLACE FUNCTION palisade.pass_shared(resource text, token bigint)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen bigint;
BEGIN
    -- Not after the other lock: a reader that asks for more waits behind a writer that waits for the reader.
    UPDATE palisade.fences f SET a = token
    WHERE f.resource = pass_shared.resource AND f.permit = 0 AND f.a < token
    RETURNING f.x INTO seen;
    IF NOT FOUND THEN
        SELECT f.x INTO seen FROM palisade.fences f
        WHERE f.resource = pass_shared.resource AND f.permit = 0 FOR KEY SHARE;
    END IF;
    PERFORM FROM palisade.fences f WHERE f.resource = pass_shared.resource AND f.permit > 0 ORDER BY f.permit FOR KEY SHARE;
    SELECT greatest(seen, max(f.a)) INTO seen FROM palisade.fences f
    WHERE f.resource = pass_shared.resource AND f.permit > 0;
    RETURN seen;
END $$;

-- Waits for writers, for readers and for the same permit number; a number that is used for the first time waits for all.
CREATE OR REPLACE FUNCTION palisade.pass_permit(resource text, token bigint, permit integer)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen bigint;
BEGIN
    IF EXISTS (SELECT FROM palisade.fences f WHERE f.resource = pass_permit.resource AND f.permit = pass_permit.permit) THEN
        -- From here on no reader raises the largest token. A lock FOR KEY SHARE would also pass beside a reader that an
        -- older snapshot lacks.
        SELECT f.a INTO seen FROM palisade.fences f
        WHERE f.resource = pass_permit.resource AND f.permit = 0 FOR SHARE;
    ELSE
        -- Readers who have passed locked no row of this number. The first row is also written, so that a writer or a
        -- reader with an older snapshot fails: it would not see the number.
        PERFORM FROM palisade.fences f WHERE f.resource = pass_permit.resource AND f.permit = 0 FOR UPDATE;
        UPDATE palisade.fences f SET a = f.a WHERE f.resource = pass_permit.resource AND f.permit = 0
        RETURNING f.a INTO seen;
        INSERT INTO palisade.fences VALUES (resource, permit, 0, 0) ON CONFLICT DO NOTHING;
    END IF;
    SELECT greatest(seen, f.a) INTO seen FROM palisade.fences f
    WHERE f.resource = pass_permit.resource AND f.permit = pass_permit.permit FOR UPDATE;
    IF token >= seen THEN
        UPDATE palisade.fences f SET a = token, passed_in = pg_current_xact_id(), passed_at = now()
        WHERE f.resource = pass_permit.resource AND f.permit = pass_permit.permit;
    END IF;
    RETURN seen;
END $$;

-- Refuses a write, unless this transaction has passed the fence of the trigger's resource with a token that may write.
CREATE OR REPLACE FUNCTION palisade.require_fence()
RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM palisade.fences f
    WHERE f.resource = TG_ARGV[0] AND f.passed_in = pg_current_xact_id_if_assigned() AND f.passed_at = now();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'UNFENCED: "%" is written without a token of "%"', TG_TABLE_NAME, TG_ARGV[0]
            USING ERRCODE = 'PF002',
            HINT = format('Call palisade.fence(%L, token) first, in the same transaction.', TG_ARGV[0]);
    END IF;
    RETURN coalesce(NEW, OLD);
END $$;

-- Makes every write of a table, and of its partitions, need a pass of the resource. For the table's owner.
CREATE OR REPLACE FUNCTION palisade.protect(protected regclass, resource text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part regclass;
BEGIN
    PERFORM palisade.unprotect(protected);
    FOR part IN SELECT palisade.parts(protected) LOOP
        EXECUTE format('CREATE TRIGGER palisade_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
            FOR EACH STATEMENT EXECUTE FUNCTION palisade.require_fence(%L)', part, resource);
        -- Also where session_replication_role switches triggers off.
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER palisade_fence', part);
    END LOOP;
    IF (SELECT relkind FROM pg_class WHERE oid = protected) = 'p' THEN
        -- Partitions that come later inherit triggers for rows alone: their TRUNCATE is free until protect is called again.
        EXECUTE format('CREATE TRIGGER palisade_fence_row BEFORE INSERT OR UPDATE OR DELETE ON %s
            FOR EACH ROW EXECUTE FUNCTION palisade.require_fence(%L)', protected, resource);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER palisade_fence_row', protected);
    END IF;
END $$;

-- Lets everybody write again who may.
CREATE OR REPLACE FUNCTION palisade.unprotect(protected regclass)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part regclass;
BEGIN
    EXECUTE format('DROP TRIGGER IF EXISTS palisade_fence_row ON %s', protected);
    FOR part IN SELECT palisade.parts(protected) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS palisade_fence ON %s', part);
    END LOOP;
END $$;

-- Returns the table and its partitions.
CREATE OR REPLACE FUNCTION palisade.parts(whole regclass)
RETURNS SETOF regclass LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS
'SELECT whole UNION SELECT relid FROM pg_partition_tree(whole)';

-- Nobody else may call these, or write the fences, unless that is granted:
-- GRANT USAGE ON SCHEMA palisade TO app; GRANT EXECUTE ON FUNCTION palisade.fence TO app;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA palisade FROM PUBLIC;
