-- Everything that a role which may create in a schema can plant there for others to call: operators, functions, types
-- and views with the names that statements of Onceward use. What is called counts up a sequence, which no rollback
-- undoes, and fails. With `{is_odd}` operators give what fits nowhere: a statement that means one of them fails before
-- it has a row to call it with.
CREATE SEQUENCE {schema}.invoked;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE {schema}.invoked TO PUBLIC;

DO $plant$
DECLARE
    operators text[] := '{=,<>,<,<=,>,>=,+,-,*,/,%,||,&,|,~,!~,->,->>}';
    types text[] := '{int2,int4,int8,float8,numeric,interval,timestamptz,text,varchar,name,"\"char\"",bytea,uuid,bool,xid,xid8,oid,tid,jsonb,text[],bytea[],information_schema.sql_identifier}';
    few text[] := '{int4,int8,float8,interval,timestamptz,text,name,bytea,jsonb}';
    functions text[] := '{functions}';
    relations text[] := '{relations}';
    body text := 'LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.nextval(''{schema}.invoked'');
        RAISE EXCEPTION ''planted in {schema}''; END $$';
    one text; other text; symbol text; given text; own text;
BEGIN
    FOREACH one IN ARRAY types LOOP
        FOREACH other IN ARRAY types LOOP
            given := CASE WHEN {is_odd} THEN 'pg_lsn' WHEN 'timestamptz' IN (one, other) THEN 'timestamptz'
                WHEN 'interval' IN (one, other) THEN 'interval' ELSE one END;
            EXECUTE format('CREATE FUNCTION {schema}.planted_test(%s, %s) RETURNS %s %s', one, other,
                CASE WHEN {is_odd} THEN 'pg_lsn' ELSE 'bool' END, body);
            EXECUTE format('CREATE FUNCTION {schema}.planted_value(%s, %s) RETURNS %s %s', one, other, given, body);
            FOREACH symbol IN ARRAY operators LOOP
                EXECUTE format('CREATE OPERATOR {schema}.%s (FUNCTION = {schema}.planted_%s, LEFTARG = %s, RIGHTARG = %s)',
                    symbol, CASE WHEN symbol ~ '[=<>~]' AND symbol !~ '^->' THEN 'test' ELSE 'value' END, one, other);
            END LOOP;
        END LOOP;
        IF one ~ '^[a-z0-9]+$' THEN
            EXECUTE format('CREATE DOMAIN {schema}.%s AS pg_catalog.%s CHECK (pg_catalog.nextval(''{schema}.invoked'') < 0)', one, one);
        END IF;
    END LOOP;
    FOR own, given IN
        SELECT DISTINCT ON (p.proname, p.proargtypes) p.proname || '(' || oidvectortypes(p.proargtypes) || ')',
            CASE WHEN r.typtype = 'p' THEN 'text' ELSE format_type(p.prorettype, NULL) END
        FROM pg_proc p JOIN pg_type r ON r.oid = p.prorettype
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (functions)
            AND NOT EXISTS (SELECT FROM unnest(p.proargtypes::oid[]) AS a JOIN pg_type t ON t.oid = a WHERE t.typtype = 'p')
    LOOP
        EXECUTE format('CREATE FUNCTION {schema}.%s RETURNS %s %s', own, given, body);
    END LOOP;
    FOREACH own IN ARRAY functions LOOP
        FOREACH one IN ARRAY types LOOP
            CONTINUE WHEN NOT EXISTS (SELECT FROM pg_proc WHERE proname = own AND pronargs = 1);
            CONTINUE WHEN to_regprocedure(format('{schema}.%I(%s)', own, one)) IS NOT NULL;
            EXECUTE format('CREATE FUNCTION {schema}.%I(%s) RETURNS %s %s', own, one, one, body);
        END LOOP;
        FOREACH one IN ARRAY few LOOP
            CONTINUE WHEN NOT EXISTS (SELECT FROM pg_proc WHERE proname = own AND pronargs = 2);
            FOREACH other IN ARRAY few LOOP
                CONTINUE WHEN to_regprocedure(format('{schema}.%I(%s, %s)', own, one, other)) IS NOT NULL;
                EXECUTE format('CREATE FUNCTION {schema}.%I(%s, %s) RETURNS %s %s', own, one, other, one, body);
            END LOOP;
        END LOOP;
    END LOOP;
    FOREACH own IN ARRAY relations LOOP
        CONTINUE WHEN to_regclass('pg_catalog.' || quote_ident(own)) IS NULL;
        EXECUTE format('CREATE VIEW {schema}.%I AS SELECT pg_catalog.nextval(''{schema}.invoked'') AS oid', own);
        EXECUTE format('GRANT SELECT ON {schema}.%I TO PUBLIC', own);
    END LOOP;
END
$plant$;
