-- Protects a table with the fence of a resource. Put their names in the place of TABLE_NAME and RESOURCE:
--
--     sed 's/TABLE_NAME/prices/g; s/RESOURCE/prices/g' protect.sql | sqlite3 shop.db
--
-- Each connection that writes has the function palisade_token(resource), which returns the token that it holds, or NULL.
-- Where it is missing, every write of the table fails. DROP TRIGGER of the three takes the protection away.
--
-- Where holders of permits write, let the triggers INSERT INTO palisade_fence
-- VALUES ('RESOURCE', palisade_token('RESOURCE'), 'permit', palisade_permit('RESOURCE')), with another such function.

CREATE TRIGGER TABLE_NAME_insert_fenced BEFORE INSERT ON TABLE_NAME
BEGIN INSERT INTO palisade_fence (resource, token) VALUES ('RESOURCE', palisade_token('RESOURCE')); END;

CREATE TRIGGER TABLE_NAME_update_fenced BEFORE UPDATE ON TABLE_NAME
BEGIN INSERT INTO palisade_fence (resource, token) VALUES ('RESOURCE', palisade_token('RESOURCE')); END;

CREATE TRIGGER TABLE_NAME_delete_fenced BEFORE DELETE ON TABLE_NAME
BEGIN INSERT INTO palisade_fence (resource, token) VALUES ('RESOURCE', palisade_token('RESOURCE')); END;
