-- Queries of which an order decides; then those whose order may leave ties, each with the refusal.
-- bids and ticks have no keys, auctions and persons have `id`, prices have `item, since`.

-- As of: the right side has one row of each.
select b.price, p.cents from bids b asof join prices p on b.auction = p.item and b.bidder >= p.since;
select b.price, p.cents from bids b asof left join prices p
  on p.since <= b.bidder and p.item = b.auction;
select a.id, most from auctions a asof join (
  select auction as id, bidder as seller, max(price) as most from bids group by all
) p on a.id = p.id and a.seller >= p.seller;
select * from bids b asof join (select distinct item, since from ticks) t
  on b.auction = t.item and b.bidder >= t.since;
select * from bids b asof join (
  select distinct on (item, since) * from ticks order by item, since, cents
) t on b.auction = t.item and b.bidder >= t.since;
select * from bids b asof join (select item, since from ticks union select item, since from prices) t
  on b.auction = t.item and b.bidder >= t.since;
with last as (select item, since, min(cents) as cents from ticks group by 1, 2)
select * from bids b asof join last t on b.auction = t.item and b.bidder >= t.since;
select * from auctions a asof join persons p on a.seller = p.id and a.category >= p.born;
select * from bids b asof join (
  select p.item, p.since, a.category from prices p join auctions a on a.id = p.item
) p on b.auction = p.item and b.bidder >= p.since;

-- As of: no other column is used.
select b.price, t.since from bids b asof join ticks t on b.auction = t.item and b.bidder >= t.since;
select b.price from bids b asof join ticks t on b.auction = t.item and b.bidder >= t.since;
select * from bids b asof anti join ticks t on b.auction = t.item and b.bidder >= t.since;

-- A key of each item.
select category, row_number() over (order by seller, id) as n from auctions;
select *, lag(category) over (partition by seller order by id) as c from auctions;
select a.category, p.name from auctions a join persons p on p.id = a.seller
qualify row_number() over (partition by p.city order by a.id) = 1;
select a.category, p.name from auctions a left join persons p on p.id = a.seller
qualify row_number() over (partition by a.category order by a.id) = 1;
select a.category, p.name, q.name as q from auctions a
left join persons p on p.id = a.seller left join persons q on q.id = p.city
qualify row_number() over (order by a.id) = 1;
select a.seller, p.cents, row_number() over (order by a.id) as n
from auctions a asof left join prices p on p.item = a.seller and p.since <= a.id;
select category, row_number() over (order by id) as n
from (select * from auctions where seller > 1);
select category, row_number() over (order by i) as n from auctions a(i, category, s);
select category from auctions a semi join bids b on b.auction = a.id
order by category, a.id limit 3;
select category from auctions order by id limit 3;
select cents, row_number() over (order by since) as n from prices where item = 3;
select id, (select p.cents from prices p where p.item = a.id order by p.since desc limit 1) as cents
from auctions a;
select distinct on (seller) * from auctions order by seller, id;
select seller, list(category order by id) as c from auctions group by seller;
select seller, first(category order by category, id desc) as c from auctions group by all;
select b.price, x.most, row_number() over (order by b.auction, b.price) as n
from bids b join (select auction, max(bidder) as most from bids group by all) x using (auction);
select a.category, x.most, row_number() over (order by id) as n
from auctions a, lateral (select max(price) as most from bids b where b.auction = a.id) x;

-- All that is used.
select price, row_number() over (partition by auction order by price) as n from bids
where auction = 1 qualify n < 3;
select *, row_number() over (order by bid, auction, bidder, price, tags) as n from bids;
select a.id, b.price, b.auction from auctions a join bids b on b.auction = a.id
qualify row_number() over (partition by a.id order by b.price) = 1;
select auction, price, max(price) over (
  order by auction, price rows between 3 preceding and current row
) as m from bids;
select auction, price from bids order by all limit 3;
select auction, price from bids order by 2, 1 limit 3;
select auction as x, price + 1 as y from bids order by y, x limit 3;
select price + 1 as y from bids order by price limit 3;
select distinct auction, price from bids order by price, auction limit 3;
select auction from bids union all select id from auctions order by auction limit 3;
select distinct on (auction) auction, price from bids order by auction, price desc;
select auction, list(price order by price) as p, string_agg(bid, ',' order by bid) as b
from bids group by 1;
select auction, arg_max(price, bidder order by price) as p from bids group by auction;
select auction, list(price order by bidder, price) over (partition by auction) as p from bids;
select array(select price from bids order by price) as p from auctions;
select auction, count(*) as n, row_number() over (order by count(*) desc, auction) as r
from bids group by auction;
select auction, max(price) as m from bids group by all order by auction limit 3;
select auction, max(price) as m from bids group by all order by max(price), auction limit 3;
select max(price) as m from bids order by m limit 1;
select price, y from (select price, price + 1 as y from bids) order by price limit 3;

-- All ties have one value.
select auction, rank() over (order by price) as n from bids;
select auction, sum(price) over (partition by auction order by bidder) as n,
  first_value(bidder) over (partition by auction order by bidder) as b from bids;
select auction, max(price) over (
  partition by auction order by price rows between unbounded preceding and unbounded following
) as p from bids;
select bidder, dense_rank() over (order by price) as r,
  row_number() over (order by price, bidder) as n from bids;

-- It is not looked since.
with recursive t(n) as (select 1 union all select n + 1 from t where n < 3)
select n, row_number() over (order by price) as r from t, bids;

-- OPEN

-- an asof right join, on which DuckDB may hang
select p.cents from bids b asof right join prices p
  on b.auction = p.item and b.bidder >= p.since;
-- an asof full join
select p.cents from bids b asof full join prices p
  on b.auction = p.item and b.bidder >= p.since;
-- an asof join by using (item, since)
select cents, n from prices asof join (select item, since, 1 as n from prices) p
  using (item, since);
-- an asof join on what is (not) distinct
select p.cents from bids b asof join prices p
  on b.auction is not distinct from p.item and b.bidder >= p.since;
-- an asof join to ticks, of which several rows may have the same item, since
select b.price, t.cents from bids b asof join ticks t on b.auction = t.item and b.bidder >= t.since;
-- an asof join to auctions, of which several rows may have the same category
select p.city, a.id from persons p asof left join auctions a on p.born >= a.category;
-- an asof join to persons, of which several rows may have the same born, city
select a.id, name from auctions a asof join persons p on a.id = p.city and a.seller >= p.born;
-- an asof join to ticks
select b.price from bids b asof join ticks t on b.auction = t.item and b.bidder >= t.since
where t.cents > 3;
-- an asof join to ticks
select b.price, exists (from auctions where id = t.cents) as e
from bids b asof join ticks t on b.auction = t.item and b.bidder >= t.since;
-- an asof join to t
select b.price, t.cents from bids b
asof join (select * from ticks union all select * from ticks) t
on b.auction = t.item and b.bidder >= t.since;
-- an asof join to tallies, of which several rows may have the same item
select t.n from bids b asof join tallies t on b.auction = t.item and b.bidder >= t.item;
-- an asof join to t
select b.price, t.tag from bids b asof join (
  select item, since, unnest([1, cents]) as tag from prices
) t on b.auction = t.item and b.bidder >= t.since;
-- row_number whose order may leave ties: rows alike in it may differ in bidder
select auction, row_number() over (partition by auction order by price) as n, bidder from bids;
-- lag whose order may leave ties: rows alike in it may differ in bidder, price, bid
select *, lag(price) over (order by auction) as n from bids;
-- ntile whose order may leave ties: rows alike in it may differ in price
select ntile(3) over (order by price // 2) as n, price from bids;
-- first_value whose order may leave ties: rows alike in it may differ in price
select auction, first_value(price) over (partition by auction order by bidder) as p from bids;
-- max whose order may leave ties: rows alike in it may differ in price
select auction, max(price) over (order by auction rows between 1 preceding and current row) as m
from bids;
-- row_number whose order may leave ties
select price, row_number() over (order by price) as n, row_number() over (order by price desc) as m
from bids;
-- row_number whose order may leave ties: rows alike in it may differ in price
select a.id, b.price, row_number() over (order by a.id) as n
from auctions a join bids b on b.auction = a.id;
-- row_number whose order may leave ties: rows alike in it may differ in category
select category, row_number() over (order by seller) as n from auctions;
-- row_number whose order may leave ties: rows alike in it may differ in name
select a.seller, p.name, row_number() over (order by a.seller) as n
from auctions a left join persons p on p.id = a.seller and a.category > 3;
-- row_number whose order may leave ties: rows alike in it may differ in name
select a.seller, p.name, row_number() over (order by a.seller, p.id) as n
from auctions a full join persons p on p.city = a.seller;
-- row_number whose order may leave ties: rows alike in it may differ in born
select born, row_number() over (order by name) as n from persons where name = 1;
-- row_number whose order may leave ties: rows alike in it may differ in most
select seller, most, row_number() over (order by seller) as n
from auctions a, lateral (select max(price) as most from bids b where b.auction = a.id) x;
-- row_number whose order may leave ties: rows alike in it may differ in auction
select auction, row_number() over (order by count(*)) as r from bids group by auction;
-- row_number whose order may leave ties: rows alike in it may differ in price
select auction, row_number() over (order by auction) as r, sum(price) as p
from bids group by auction, bidder;
-- row_number whose order may leave ties: rows alike in it may differ in auction
select auction, row_number() over (order by price) as r from bids group by rollup(auction, price);
-- row_number whose order may leave ties
select auction, row_number() over (order by auction) as r, (select count(*) from auctions
  where seller = bids.price) as c from bids;
-- a limit whose order may leave ties: rows alike in it may differ in price
select auction, price from bids order by auction limit 3;
-- a limit whose order may leave ties: rows alike in it may differ in price
select auction, max(price) as m from bids group by auction, bidder order by auction limit 3;
-- a limit whose order may leave ties: rows alike in it may differ in price
select auction, price from bids union all select id, seller from auctions
order by auction limit 3;
-- a limit whose order may leave ties
select id, unnest([1, seller]) as s from auctions order by id limit 3;
-- a limit whose order may leave ties: rows alike in it may differ in cents
select id, (select t.cents from ticks t where t.item = a.id order by t.since limit 1) as cents
from auctions a;
-- distinct on whose order may leave ties: rows alike in it may differ in price
select distinct on (auction) auction, price from bids order by auction, bidder;
-- list whose order may leave ties: rows alike in it may differ in price
select auction, list(price order by bidder) as p from bids group by auction;
-- first whose order may leave ties: rows alike in it may differ in price
select auction, first(upper(price::text) order by bidder) as p from bids group by auction;
-- arg_max whose order may leave ties: rows alike in it may differ in price
select auction, arg_max(price, bidder order by auction) as p from bids group by auction;
-- list whose order may leave ties: rows alike in it may differ in price
select auction, list(price order by bidder) over (partition by auction) as p from bids;
-- array_agg whose order may leave ties
select array(select price from bids order by bidder) as p from auctions;
-- row_number whose order may leave ties: rows alike in it may differ in id
select id, row_number() over (order by seller) as n from auctions, unnest([1, 2]) as u(x);
-- row_number whose order may leave ties: rows alike in it may differ in x
select id, x, row_number() over (order by id) as n from auctions, unnest([1, 2]) as u(x);
-- array_agg whose order may leave ties
select array(select x from unnest([1, price]) as u(x)  order by bidder) as p from bids;
