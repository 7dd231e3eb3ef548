-- Installs Palisade's fences in a database of SQLite 3.32 or later: docs/fencing.md. protect.sql then protects a table.
--
--     sqlite3 shop.db <install.sql
--
-- A second run replaces the rule and keeps the fences.

-- What each resource has seen. Permit 0 is the row of its readers and writers, n that of permit number n. X is the largest
-- exclusive token, A the largest of readers and writers, or of this permit.
CREATE TABLE IF NOT EXISTS palisade_fences (
    resource TEXT NOT NULL CHECK (length(CAST(resource AS BLOB)) BETWEEN 1 AND 512),
    permit INTEGER NOT NULL,
    x INTEGER NOT NULL,
    a INTEGER NOT NULL,
    PRIMARY KEY (resource, permit)
) WITHOUT ROWID;

-- An INSERT passes the fence, or fails: INSERT INTO palisade_fence (resource, token) VALUES ('prices', 33).
-- A reader has the mode 'shared'; the holder of a permit the mode 'permit' and its number.
DROP VIEW IF EXISTS palisade_fence;
CREATE VIEW palisade_fence AS SELECT resource, a AS token, NULL AS mode, permit FROM palisade_fences;

CREATE TRIGGER palisade_pass INSTEAD OF INSERT ON palisade_fence
BEGIN
    SELECT RAISE(ABORT, 'UNFENCED: this connection holds no token') WHERE NEW.token IS NULL;
    SELECT RAISE(ABORT, 'a token is a number from 1 to 2^53 - 1')
    WHERE typeof(NEW.token) <> 'integer' OR NEW.token NOT BETWEEN 1 AND 9007199254740991;
    SELECT RAISE(ABORT, 'a mode is exclusive, shared or permit')
    WHERE coalesce(NEW.mode, 'exclusive') NOT IN ('exclusive', 'shared', 'permit');
    SELECT RAISE(ABORT, 'the mode permit has the number of the permit, 1 to 65535, and no other mode has one')
    WHERE (coalesce(NEW.mode, 'exclusive') = 'permit') <> (NEW.permit IS NOT NULL)
        OR typeof(coalesce(NEW.permit, 1)) <> 'integer' OR NEW.permit NOT BETWEEN 1 AND 65535;

    -- A reader is compared with X and all permits; a permit with A and its number; a writer with all.
    SELECT RAISE(ABORT, 'FENCED: the token is older than that of a newer holder')
    FROM palisade_fences WHERE resource = NEW.resource AND NEW.token < CASE coalesce(NEW.mode, 'exclusive')
        WHEN 'shared' THEN iif(permit = 0, x, a)
        WHEN 'permit' THEN iif(permit IN (0, NEW.permit), a, 0)
        ELSE a
    END;

    -- Not INSERT OR IGNORE: an OR of the statement that writes the table would take its place.
    INSERT INTO palisade_fences SELECT NEW.resource, coalesce(NEW.permit, 0), 0, 0 WHERE NOT EXISTS (
        SELECT 1 FROM palisade_fences WHERE resource = NEW.resource AND permit = coalesce(NEW.permit, 0)
    );
    UPDATE palisade_fences
    SET a = max(a, NEW.token), x = iif(coalesce(NEW.mode, 'exclusive') = 'exclusive', NEW.token, x)
    WHERE resource = NEW.resource AND permit = coalesce(NEW.permit, 0);
END;
