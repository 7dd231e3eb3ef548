-- Removes what install.sql made, and lets everybody write again who may. The fences forget the tokens that they have seen.
--
--     psql --single-transaction --set ON_ERROR_STOP=1 --file uninstall.sql

-- With it go the triggers on all tables.
DROP FUNCTION palisade.require_fence CASCADE;
DROP FUNCTION palisade.protect, palisade.unprotect, palisade.parts;
DROP FUNCTION palisade.fence, palisade.pass_exclusive, palisade.pass_shared, palisade.pass_permit;
DROP TABLE palisade.fences;
-- Fails if there is something else in it.
DROP SCHEMA palisade;
