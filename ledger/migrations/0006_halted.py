"""How long a tenant and a tool stood still: one function, for every statement that checks a deadline."""

from django.db import migrations

HALTED = """
CREATE FUNCTION halted_time(of_tenant uuid, of_tool bigint, since timestamptz, until timestamptz)
RETURNS interval LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(upper(span) - lower(span)), interval '0')
    FROM unnest((
        SELECT range_agg(tstzrange(greatest(began_at, since), least(coalesce(ends_at, until), until)))
        FROM ledger_halt
        WHERE tenant_id = of_tenant AND (tool_id IS NULL OR tool_id = of_tool)
          AND began_at < until AND coalesce(ends_at, until) > since
    )) AS span
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0005_whole_execution")]

    operations = [
        migrations.RunSQL(HALTED, "DROP FUNCTION halted_time(uuid, bigint, timestamptz, timestamptz)")
    ]
