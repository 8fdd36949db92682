"""The rows files of the templates, written by Kappa, are compared with rows that DuckDB computes.

The queries here read the files of events, and share no code with the templates: none of their
folds, windows and views.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from house import HOUSE

from kappa.base.duck import open_connection
from kappa.declare.board import Board, boards_in

TEMPLATES = HOUSE / "kappa" / "templates"

# By template: the columns of each topic's file of events, then a query for each file of rows.
EVENTS: Mapping[str, Mapping[str, str]] = {
    "ab-test": {
        "exposures": "person varchar, variant varchar, happened_at timestamptz",
        "conversions": "id varchar, person varchar, happened_at timestamptz",
    },
    "ads": {
        "impressions": "id varchar, campaign varchar, happened_at timestamptz",
        "ad_clicks": "id varchar, impression varchar, happened_at timestamptz",
    },
    "cdc": {
        "shop.app.orders.envelopes": "key json, value json",
        "shop.app.customers.envelopes": "key json, value json",
    },
    "connect": {
        "sign_ups": "person varchar, name varchar, source varchar, signed_up_at timestamptz",
        "connections": "pair varchar, person varchar, other varchar, action varchar,"
        " happened_at timestamptz",
        "messages": "id varchar, action varchar, sender varchar, recipient varchar, text varchar,"
        " happened_at timestamptz",
        "uses": "person varchar, part varchar, used_at timestamptz",
        "metrics": "host varchar, name varchar, value decimal(12,2), measured_at timestamptz",
    },
    "fraud": {
        "logins.envelopes": "key varchar, timestamp timestamptz, value json",
        "transfers": "id varchar, account varchar, amount decimal(12,2), happened_at timestamptz",
    },
    "facts": {
        "facts.envelopes": "key varchar, timestamp timestamptz, value json",
        "work": "id varchar, customer varchar, hours decimal(8,2), happened_at timestamptz",
    },
    "iot": {"measurements.envelopes": "key varchar, timestamp timestamptz, value json"},
    "learner": {
        "offers_shown": "id varchar, shop varchar, price double, is_member boolean,"
        " bought boolean, happened_at timestamptz",
    },
    "operations": {
        "stats.envelopes": "key varchar, timestamp timestamptz, value varchar",
        "hits.envelopes": "timestamp timestamptz, value varchar",
    },
    "page-hits": {"visits": "visitor varchar, page varchar, happened_at timestamptz"},
    "recommend": {"item_views": "visitor varchar, item varchar, happened_at timestamptz"},
    "searches": {
        "offers": "id varchar, title varchar, category varchar, price decimal(10,2),"
        " happened_at timestamptz",
        "searches": "id varchar, person varchar, word varchar, category varchar,"
        " most decimal(10,2)",
    },
    "sessions": {"page_hits": "visitor varchar, page varchar, happened_at timestamptz"},
    "shop": {
        "orders": "id varchar, customer varchar, product varchar, quantity int,"
        " happened_at timestamptz",
        "customers": "id varchar, name varchar, country varchar",
        "products": "sku varchar, category varchar, price decimal(10,2)",
    },
    "trending": {"posts": "id varchar, author varchar, text varchar, happened_at timestamptz"},
}
# Views of a template that several of its queries read.
SHARED: Mapping[str, Mapping[str, str]] = {
    "cdc": {
        # A change that was sent twice counts once.
        **{
            each: f"""
                select min(place) as place, id, op, lsn, any_value(after) as after,
                    any_value(change_at) as change_at
                from (
                    select row_number() over () as place, ((key->>'$')::json->>'id')::bigint as id,
                        value->>'op' as op, (value->'source'->>'lsn')::bigint as lsn,
                        case when op = 'd' then value->'before' else value->'after' end as after,
                        to_timestamp((value->'source'->>'ts_ms')::bigint / 1000) as change_at
                    from "shop.app.{each}.envelopes" where value is not null
                ) group by id, op, lsn
            """
            for each in ("orders", "customers")
        },
        **{
            f"newest_{each}": f"""
                from {each} qualify row_number() over (partition by id order by place desc) = 1
            """
            for each in ("orders", "customers")
        },
        "detailed_orders": """
            select o.id, o.after->>'status' as status,
                (o.after->>'amount')::decimal(10,2) as amount,
                c.after->>'name' as name, coalesce(c.after->>'country', 'unknown') as country
            from newest_orders o left join newest_customers c
                on c.id = (o.after->>'customer')::bigint and c.op <> 'd'
            where o.op <> 'd'
        """,
    },
    "fraud": {
        "logins": """
            select value->>'id' as id, key as account, (value->>'ok')::boolean as ok,
                timestamp as happened_at
            from "logins.envelopes"
        """,
        # Each break-in has three failed logins of its own.
        "entered": """
            with recursive found as (
                select distinct account, null::varchar as id,
                    '-infinity'::timestamptz as happened_at
                from logins
                union all
                select account, arg_min(id, happened_at), min(happened_at)
                from (
                    select l.account, l.id, l.happened_at
                    from found b
                    join logins l on l.account = b.account and l.ok
                    join logins f on f.account = b.account and not f.ok
                        and f.happened_at > b.happened_at
                        and epoch(l.happened_at) - epoch(f.happened_at) between 0 and 600
                    group by all having count(*) >= 3
                ) group by account
            )
            from found where id is not null
        """,
        "suspicious": """
            select t.*, e.happened_at as entered_at from transfers t join entered e
                on e.account = t.account
                    and epoch(t.happened_at) - epoch(e.happened_at) between 0 and 600
            where amount >= 500
        """,
    },
    "facts": {
        "said": """
            select key as entity, value->>'property' as property, value->>'value' as value,
                (value->>'valid_from')::timestamptz as valid_from, timestamp as known_at
            from "facts.envelopes"
        """,
        "known": """
            select entity, property, valid_from, max(known_at) as known_at, (
                select s.value from said s where s.entity = f.entity and s.property = f.property
                    and s.valid_from = f.valid_from order by s.known_at desc limit 1
            ) as value
            from said f group by entity, property, valid_from
        """,
        "billed": """
            select *, (
                select value::decimal(8,2) from known where entity = customer
                    and property = 'rate' and value is not null and valid_from <= happened_at
                order by valid_from desc limit 1
            ) as rate
            from work
        """,
    },
    "operations": {
        "sent": """
            select key as service, timestamp as arrived, date_trunc('minute', timestamp) as since,
                split_part(split_part(value, ':', 1), '.', 2) as name,
                regexp_extract(value, ':([0-9.]+)', 1)::decimal(15,3) as value,
                split_part(value, '|', 2) as kind,
                coalesce(nullif(split_part(value, '|@', 2), ''), '1')::decimal(6,5) as rate
            from "stats.envelopes"
        """,
        "arrivals": """
            select service, arrived,
                lead(arrived) over (partition by service order by arrived) as next,
                max(arrived) over () as newest
            from (select distinct service, arrived from sent)
        """,
        "gaps": """
            from arrivals where epoch(coalesce(next, newest)) - epoch(arrived) >= 120
        """,
        "asked": """
            select date_trunc('minute',
                    strptime(regexp_extract(value, '[0-9]+/[A-Z][^ ]+ [+]0000'),
                        '%d/%b/%Y:%H:%M:%S %z')) as since,
                split_part(value, '"', 2) as request,
                split_part(split_part(value, '"', 3), ' ', 2)::int as status,
                split_part(split_part(value, '"', 3), ' ', 3)::bigint as bytes
            from "hits.envelopes"
        """,
    },
    "learner": {
        "learned": """
            with recursive numbered as (
                select *, row_number() over (partition by shop order by happened_at) as number,
                    (price - 50) / 50 as x, is_member::int as m
                from offers_shown
            ), steps as (
                select distinct shop, 0::bigint as number, null::varchar as id,
                    null::timestamptz as hour, 0.0::double as chance, true as is_right,
                    true as is_baseline_right, 0.0::double as bias, 0.0::double as price_weight,
                    0.0::double as member_weight, 0::bigint as shown, 0::bigint as bought
                from offers_shown
                union all
                select s.shop, s.number + 1, o.id, time_bucket(interval '1 hour', o.happened_at),
                    1 / (1 + exp(-(bias + price_weight * x + member_weight * m))) as p,
                    (p >= 0.5) = o.bought, (2 * s.bought >= shown) = o.bought,
                    bias + 0.3 * (o.bought::int - p), price_weight + 0.3 * (o.bought::int - p) * x,
                    member_weight + 0.3 * (o.bought::int - p) * m, shown + 1,
                    s.bought + o.bought::int
                from steps s join numbered o on o.shop = s.shop and o.number = s.number + 1
            )
            from steps
        """,
    },
    "recommend": {
        "numbered_views": """
            select *, count(*) filter (pause > 1800) over (
                partition by visitor order by happened_at
            ) as number
            from (
                select *, epoch(happened_at) - epoch(lag(happened_at) over (
                    partition by visitor order by happened_at
                )) as pause
                from item_views
            )
        """,
        "session_items": """
            select visitor, number, item, min(happened_at) as viewed_at
            from numbered_views group by all
        """,
        "pairs": """
            select one.item, two.item as other
            from session_items one join session_items two using (visitor, number)
            where one.item <> two.item
        """,
    },
    "iot": {
        "arrivals": """
            select key as sensor, timestamp as at_, lead(timestamp) over by_sensor as next_,
                (select max(timestamp) from "measurements.envelopes") as end_
            from "measurements.envelopes"
            window by_sensor as (partition by key order by timestamp)
        """,
    },
    "sessions": {
        "numbered_sessions": """
            select visitor, number, min(happened_at) as since, max(happened_at) as until,
                arg_min(page, happened_at) as landing, count(*) as hits,
                number = max(number) over (partition by visitor) as is_open
            from (
                select *, count(*) filter (pause > 1800) over (
                    partition by visitor order by happened_at
                ) as number
                from (
                    select *, epoch(happened_at) - epoch(lag(happened_at) over (
                        partition by visitor order by happened_at
                    )) as pause
                    from page_hits
                )
            ) group by visitor, number
        """,
        "ended_sessions": """
            select * exclude (number, is_open) from numbered_sessions where not is_open
        """,
        "windows": """
            select page, since, count(*) as hits, count(distinct visitor) as visitors
            from page_hits, (
                select to_timestamp(300 * range) as since from range(5899000, 5900000)
            )
            where epoch(happened_at) - epoch(since) >= 0
                and epoch(happened_at) - epoch(since) < 600
            group by all
        """,
    },
    "trending": {
        "counted_words": """
            select word, time_bucket(interval '1 hour', happened_at) as hour,
                count(distinct id) as posts
            from (
                select id, happened_at,
                    unnest(regexp_extract_all(lower(text), '[a-z]+')) as word from posts
            )
            where word not in ('a', 'and', 'is', 'of', 'on', 'the', 'to', 'with') group by all
        """,
        "rising": """
            select word, hour, posts, posts - coalesce((
                select b.posts from counted_words b
                where b.word = c.word and epoch(c.hour) - epoch(b.hour) = 3600
            ), 0) as rise
            from counted_words c
        """,
    },
}
# Both ends of each connection.
ENDS = "(select person as one, other as two, * from connections union all"
ENDS += " select other, person, * from connections)"
ROWS: Mapping[str, Mapping[str, str]] = {
    "ab-test": {
        "exposed_people": """
            select person, arg_min(variant, happened_at) as variant,
                min(happened_at) as exposed_at, count(*) as exposures
            from exposures group by person
        """,
        "conversions": "from conversions",
        "people": """
            select person, variant, exposed_at, (
                select min(happened_at) from conversions c where c.person = e.person
                    and epoch(happened_at) - epoch(exposed_at) between 0 and 3600
            ) as converted_at
            from served.exposed_people e
        """,
        "variants": """
            select variant, count(*) as people, count(converted_at) as converted
            from served.people group by variant
        """,
        "variant_rates": """
            select variant, people, converted, round(converted / people, 3) as rate,
                round((converted + 1.9208 - 1.96 * root) / (people + 3.8416), 3) as low,
                round((converted + 1.9208 + 1.96 * root) / (people + 3.8416), 3) as high
            from (
                select *, sqrt(converted * (people - converted) / people + 0.9604) as root
                from served.variants
            )
        """,
    },
    "ads": {
        "impressions": "from impressions",
        "ad_clicks": "from ad_clicks",
        "clicked_impressions": """
            select i.id as impression, campaign, i.happened_at as shown_at,
                (select min(c.happened_at) from ad_clicks c where c.impression = i.id
                    and epoch(c.happened_at) - epoch(i.happened_at) between 0 and 600)
                    as clicked_at,
                (select count(*) from ad_clicks c where c.impression = i.id
                    and epoch(c.happened_at) - epoch(i.happened_at) between 0 and 600) as clicks
            from impressions i
        """,
        "unmatched_clicks": """
            select impression, c.id as click, c.happened_at as clicked_at,
                (select happened_at from impressions i where i.id = c.impression) as shown_at
            from ad_clicks c
            where coalesce(epoch(c.happened_at) - epoch(shown_at), -1) not between 0 and 600
        """,
        "campaigns": """
            select campaign, count(distinct i.id) as impressions,
                count(distinct i.id) filter (is_in) as clicked, count(*) filter (is_in) as clicks
            from (
                select i.*, coalesce(epoch(c.happened_at) - epoch(i.happened_at), -1)
                    between 0 and 600 as is_in
                from impressions i left join ad_clicks c on c.impression = i.id
            ) i group by campaign
        """,
        "click_rates": """
            select campaign, round(100.0 * count(distinct i.id) filter (
                epoch(c.happened_at) - epoch(i.happened_at) between 0 and 600
            ) / count(distinct i.id), 1) as percent
            from impressions i left join ad_clicks c on c.impression = i.id group by campaign
        """,
    },
    "cdc": {
        "orders": """
            select id, (after->>'customer')::bigint as customer, after->>'status' as status,
                (after->>'amount')::decimal(10,2) as amount, op as change_op, change_at,
                lsn as change_lsn
            from newest_orders where op <> 'd'
        """,
        "customers": """
            select id, after->>'name' as name, after->>'country' as country, op as change_op,
                lsn as change_lsn
            from newest_customers where op <> 'd'
        """,
        "order_changes": """
            select id, after->>'status' as status, (after->>'amount')::decimal(10,2) as amount,
                op as change_op, change_at
            from orders
        """,
        "order_details": "select id, status, amount, name, country from detailed_orders",
        "revenue_by_country": """
            select country, count(*) as orders, sum(amount) as revenue
            from detailed_orders where status <> 'cancelled' group by all
        """,
    },
    "connect": {
        "contacts": f"""
            select one as person, two as other, arg_max(action, happened_at) as state,
                max(happened_at) as since
            from {ENDS} group by all
        """,
        "connections": f"""
            select one as person, two as other,
                coalesce((select name from sign_ups s where s.person = two), two) as name,
                max(happened_at) as since
            from {ENDS} group by all having arg_max(action, happened_at) = 'connected'
        """,
        "messages": """
            select id, max(sender) as sender, max(recipient) as recipient, max(text) as text,
                min(happened_at) filter (action = 'sent') as sent_at,
                count(*) filter (action = 'read') > 0 as is_read
            from messages group by id
        """,
        "unread_counts": """
            select recipient as person, count(*) as unread from messages sent
            where action = 'sent'
                and id not in (select id from messages where action = 'read') group by all
        """,
        "part_uses": """
            select person, part, count(*) as uses, max(used_at) as last_used_at
            from uses group by all
        """,
        "home_pages": """
            with counted as (select person, part, count(*) as uses from uses group by all)
            select person, 1 + (
                select count(*) from counted m where m.person = c.person
                    and (m.uses > c.uses or m.uses = c.uses and m.part < c.part)
            ) as place, part, uses
            from counted c where place <= 4
        """,
        "people": f"""
            select person, name, source, signed_up_at, connected_at, messaged_at
            from (select person, any_value(name) as name, any_value(source) as source,
                min(signed_up_at) as signed_up_at from sign_ups group by all)
            full join (select one as person, min(happened_at) as connected_at
                from {ENDS} where action = 'connected' group by all) using (person)
            full join (select sender as person, min(happened_at) as messaged_at
                from messages where action = 'sent' group by all) using (person)
        """,
        "funnel": f"""
            select source, count(*) as signed_up,
                count(*) filter (person in (select one from {ENDS} where action = 'connected'))
                    as connected,
                count(*) filter (person in (select sender from messages where action = 'sent'))
                    as messaged
            from sign_ups group by source
        """,
        "metrics_by_5_minutes": """
            select host, name, time_bucket(interval '5 minutes', measured_at) as since,
                count(*) as samples, avg(value) as mean, max(value) as highest
            from metrics group by all
        """,
        "host_metrics": """
            select host, name, value, measured_at
            from (select row_number() over () as place, * from metrics)
            qualify row_number() over (partition by host, name order by place desc) = 1
        """,
        "overloaded_hosts": """
            from (
                select host, value as cpu_percent, measured_at
                from (select row_number() over () as place, * from metrics)
                where name = 'cpu_percent'
                qualify row_number() over (partition by host order by place desc) = 1
            ) where cpu_percent >= 85
        """,
    },
    "fraud": {
        "transfers": "from transfers",
        "watched_accounts": """
            select account, count(*) as rows_seen, null::timestamptz as wake_at
            from logins group by account
        """,
        "break_ins": "select account, id as login, happened_at as entered_at from entered",
        "suspicious_transfers": """
            select account, id as transfer, amount, happened_at as sent_at,
                max(entered_at) as broken_into_at
            from suspicious group by all
        """,
        "suspicious_accounts": """
            select account, count(*) as transfers, sum(amount) as amount
            from (select distinct account, id, amount from suspicious) group by account
        """,
    },
    "facts": {
        "said_facts": "from said",
        "known_facts": """
            select entity, property, valid_from, {
                value: value,
                known_at: strftime(known_at at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ')
            } as said
            from known
        """,
        "work": "from work",
        "invoice_items": """
            select id, customer, happened_at, hours, rate,
                (hours * rate)::decimal(18,2) as amount
            from billed
        """,
        "invoices": """
            select customer, count(*) as items, sum(hours) as hours,
                sum((hours * rate)::decimal(18,2)) as amount
            from billed group by customer
        """,
    },
    "learner": {
        "models": """
            select shop, bias, price_weight, member_weight, shown, bought from learned
            qualify row_number() over (partition by shop order by number desc) = 1
        """,
        "predictions": """
            select id, shop, hour, chance, is_right, is_baseline_right from learned
            where number > 0
        """,
        "accuracies": """
            select hour, count(*) as predictions, count(*) filter (is_right) as model_right,
                count(*) filter (is_baseline_right) as baseline_right
            from learned where number > 0 group by hour
        """,
    },
    "operations": {
        "latencies": """
            select service, name, since, count(*) as requests,
                list_sort(list(value::double))[ceil(0.5 * count(*))::int] as median_ms,
                list_sort(list(value::double))[ceil(0.99 * count(*))::int] as p99_ms,
                max(value) as slowest_ms
            from sent where kind = 'ms' group by all
        """,
        "counts": """
            select service, name, since, sum((value / rate)::decimal(18,3))::decimal(28,3) as total,
                false as total_overflow
            from sent where kind = 'c' group by all
        """,
        "route_hits": """
            select case when status = 404 then '(not found)'
                    when request not like '% %' then '(no request)'
                    else '/' || split_part(split_part(split_part(request, ' ', 2), '?', 1), '/', 2)
                end as route,
                since, count(*) as hits, count(*) filter (status >= 500) as errors,
                false as errors_overflow, sum(bytes) as bytes, false as bytes_overflow
            from asked group by all
        """,
        "services": """
            select service, max(arrived) as last, bool_or(next is null and epoch(newest)
                    - epoch(arrived) >= 120) as is_silent,
                case when not bool_or(next is null and epoch(newest) - epoch(arrived) >= 120)
                    then max(arrived) + interval '2 minutes' end as wake_at
            from arrivals group by service
        """,
        "silences": """
            select service, 'silent' as event, arrived + interval '2 minutes' as happened_at
            from gaps
            union all select service, 'back', next from gaps where next is not null
        """,
        "slow_minutes": """
            select service, name, since,
                list_sort(list(value::double))[ceil(0.99 * count(*))::int] as p99_ms
            from sent where kind = 'ms' group by all having p99_ms > 500
        """,
        "silent_services": "select service, arrived as last from gaps where next is null",
    },
    "recommend": {
        "viewed_pairs": "from pairs",
        "pair_counts": "select item, other, count(*) as sessions from pairs group by all",
        "recommendations": """
            from (
                select item, 1 + (
                    select count(*) from served.pair_counts p where p.item = c.item
                        and (p.sessions > c.sessions
                            or p.sessions = c.sessions and p.other < c.other)
                ) as place, other, sessions
                from served.pair_counts c
            ) where place <= 3
        """,
        "visitors": """
            select visitor, min(viewed_at) as since, (
                select max(happened_at) from item_views v where v.visitor = i.visitor
            ) as last, list(item order by viewed_at) as items
            from session_items i
            where number = (
                select max(number) from numbered_views n where n.visitor = i.visitor
            )
            group by visitor
        """,
    },
    "iot": {
        "celsius_by_5_minutes": """
            select key as sensor,
                time_bucket(interval '5 minutes', (value->>'happened_at')::timestamptz) as since,
                count(*) as readings,
                count(*) filter (
                    epoch(timestamp) - epoch((value->>'happened_at')::timestamptz) > 300
                ) as late,
                false as late_overflow, avg((value->>'celsius')::decimal(5,1)) as mean,
                max((value->>'celsius')::decimal(5,1)) as highest
            from "measurements.envelopes" group by all
        """,
        "alarms": """
            select sensor, 'silent' as alarm, at_ + interval '10 minutes' as raised_at
            from arrivals where epoch(coalesce(next_, end_)) - epoch(at_) >= 600
            union all
            select sensor, 'back', next_ from arrivals where epoch(next_) - epoch(at_) >= 600
        """,
        "alarms_by_sensor": """
            select sensor, count(*) as silences,
                greatest(max(next_), max(at_ + interval '10 minutes')) as newest
            from arrivals where epoch(coalesce(next_, end_)) - epoch(at_) >= 600 group by sensor
        """,
        "sensors": """
            select key as sensor, max(timestamp) as last,
                epoch((select max(timestamp) from "measurements.envelopes"))
                    - epoch(max(timestamp)) >= 600 as is_silent,
                case when epoch((select max(timestamp) from "measurements.envelopes"))
                    - epoch(max(timestamp)) < 600
                    then max(timestamp) + interval '10 minutes' end as wake_at
            from "measurements.envelopes" group by key
        """,
        "silent_sensors": """
            select key as sensor, max(timestamp) as last from "measurements.envelopes" group by key
            having epoch((select max(timestamp) from "measurements.envelopes"))
                - epoch(max(timestamp)) >= 600
        """,
    },
    "page-hits": {
        "page_hits": """
            select page, count(*) as hits, max(happened_at) as last from visits group by page
        """,
    },
    "searches": {
        "offers": "from offers",
        "searches": "from searches",
        "found": """
            select s.id as search, o.id as offer, person, title, price, happened_at
            from searches s, offers o
            where title ilike '%' || word || '%' and coalesce(s.category, o.category) = o.category
                and price <= coalesce(most, price)
        """,
    },
    "sessions": {
        "page_windows": "from windows",
        "busiest_pages": """
            select distinct on (since) since, page, hits, visitors from windows
            order by since, hits desc, page
        """,
        "page_sessions": "from ended_sessions",
        "visitors": """
            select visitor, since, until as last, landing, hits from numbered_sessions where is_open
        """,
        "landings": """
            select landing, count(*) as sessions, count(*) filter (hits = 1) as bounced,
                sum(hits) as hits, max(hits) as longest
            from ended_sessions group by landing
        """,
    },
    "shop": {
        "orders": "from orders",
        "customers": "from customers",
        "products": "from products",
        "order_details": """
            select id, happened_at as ordered_at, customer,
                (select country from customers c where c.id = o.customer) as country,
                (select category from products where sku = product) as category,
                (select price * quantity from products where sku = product)::decimal(14,2)
                    as revenue
            from orders o
        """,
        "revenue_by_country": """
            select country, count(*) as orders, sum(quantity * price) as revenue
            from customers c join orders o on c.id = customer join products on sku = product
            group by country
        """,
        "revenue_by_category": """
            select category, count(*) as orders, sum(quantity * price) as revenue
            from products join orders on sku = product group by category
        """,
    },
    "trending": {
        "word_hours": "from counted_words",
        "rising_words": "from rising",
        "trending": """
            select hour, 1 + (
                select count(*) from rising o where o.hour = r.hour
                    and (o.rise > r.rise or o.rise = r.rise and (o.posts > r.posts
                        or o.posts = r.posts and o.word < r.word))
            ) as place, word, posts, rise
            from rising r where place <= 5
        """,
    },
}

# What the rows of a template have to show: other rows would prove little.
TELLING = {
    "ab-test": "(select max(exposures) > 1 from exposed_people)"
    " and (select count(*) from conversions) > (select sum(converted) from variants)",
    "facts": "(select count(*) from said_facts) > (select count(*) from known_facts)"
    " and exists (from known_facts where said.value is null)"
    " and exists (from invoice_items where rate is null)",
    "learner": "(select sum(model_right) > 1.2 * sum(baseline_right) from accuracies)",
    "operations": "(select sum(errors) between 2 and sum(hits) // 2 from route_hits)"
    " and (select count(distinct event) = 2 from silences) and exists (from silent_services)"
    " and exists (from latencies where p99_ms > 2 * median_ms)",
    "recommend": "(select max(sessions) > min(sessions) from pair_counts)",
    "ads": "(select count(distinct shown_at is null) = 2 from unmatched_clicks)",
    "fraud": "(select count(*) from suspicious_transfers)"
    " between 1 and (select count(*) // 2 from transfers)",
    "iot": "(select sum(late) > 5 from celsius_by_5_minutes)"
    " and (select count(distinct alarm) = 2 from alarms) and exists (from silent_sensors)",
    "trending": "(select min(rise) < 0 and max(rise) > 0 from trending)",
}
# Of a change of a database: the name by which repeats are known, which only Kappa makes.
NOT_COMPUTED = {"change_id"}


@pytest.mark.parametrize("template", [*ROWS])
def test_the_rows_of_a_template_follow_from_its_events(template: str) -> None:
    """Each chart of the template's boards also has rows."""
    folder = TEMPLATES / template
    assert {each.stem for each in (folder / "tests" / "rows").glob("*.ndjson")} == {*ROWS[template]}
    assert {each.stem for each in (folder / "events").glob("*.*")} == {*EVENTS[template]}
    with open_connection() as duck:
        for topic, columns in EVENTS[template].items():
            kinds = ", ".join(
                f"{name}: '{kind}'"
                for name, kind in (each.strip().split(" ") for each in columns_of(columns))
            )
            file = folder / "events" / f"{topic}.ndjson"
            duck.execute(
                f"create table \"{topic}\" as from read_ndjson('{file}', columns = {{{kinds}}})"
            )
        for name, sql in SHARED.get(template, {}).items():
            duck.execute(f"create view {name} as {sql}")
        duck.execute("create schema served")
        for table, sql in ROWS[template].items():
            duck.execute(f'create table served."{table}" as from ({sql})')
            found = duck.execute(f'from served."{table}"')
            names = [each[0] for each in found.description or ()]
            computed = [dict(zip(names, map(plain, row), strict=True)) for row in found.fetchall()]
            file = folder / "tests" / "rows" / f"{table}.ndjson"
            expected = [rounded(json.loads(line)) for line in file.read_text().splitlines()]
            assert sorted(map(in_order, computed)) == sorted(map(in_order, expected)), table
        duck.execute("set schema = 'served'")
        assert duck.sql(f"select {TELLING.get(template, 'true')}").fetchone() == (True,)
        for name, board in boards_in(folder).items():
            assert isinstance(board, Board), name
            assert all(duck.sql(chart.sql).fetchall() for chart in board.charts), name


def test_all_templates_with_rows_are_computed() -> None:
    assert {*ROWS} == {
        each.parents[1].name for each in TEMPLATES.glob("*/tests/rows") if each.is_dir()
    }


def columns_of(declared: str) -> list[str]:
    """Splits declared columns at their commas, but not within the brackets of a type."""
    found = [""]
    depth = 0
    for character in declared:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return found


def plain(value: Any) -> Any:
    """Returns a value in the form of the rows files; doubles are rounded to nine digits."""
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal():
            return str(value)
        case float():
            return round(value, 9)
    return value


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in row.items() if name not in NOT_COMPUTED}


def in_order(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)
