"""Changes of a database from Debezium: current rows, the history of orders, and views."""

from pyspark.sql import DataFrame

from kappa import Debezium, Table, Topic, View, pipeline

# What Debezium writes with time.precision.mode=adaptive_time_microseconds and
# decimal.handling.mode=string.
CHANGES = Debezium(times="micros", decimals="text")
# After a crash Debezium sends changes again: the identity of a change drops the repeats.
ORDERS = Topic(
    "shop.app.orders",
    event="""
        id bigint not null, customer bigint, status string, amount decimal(10,2),
        change_op string not null, change_id string not null, change_at timestamp, change_lsn bigint
    """,
    format=CHANGES,
    key="id",
    identity="change_id",
    identity_horizon="1 day",
)
CUSTOMERS = Topic(
    "shop.app.customers",
    event="""
        id bigint not null, name string, country string,
        change_op string not null, change_id string not null, change_lsn bigint
    """,
    format=CHANGES,
    key="id",
    identity="change_id",
    identity_horizon="1 day",
)


@pipeline(
    reads={"orders": ORDERS, "customers": CUSTOMERS},
    writes=[
        Table("orders", latest=ORDERS),
        Table("customers", latest=CUSTOMERS),
        Table("order_changes"),
        View(
            "order_details",
            """
            select o.id, o.status, o.amount, c.name, coalesce(c.country, 'unknown') as country
            from orders o left join customers c on c.id = o.customer
            """,
            keys=("id",),
        ),
        View(
            "revenue_by_country",
            """
            select country, count(*) as orders, sum(amount) as revenue
            from order_details where status <> 'cancelled' group by country
            """,
            keys=("country",),
        ),
    ],
)
def orders(orders: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each change of an order.

    Kappa itself keeps the current row of each order and each customer.
    """
    return {"order_changes": orders.select("id", "status", "amount", "change_op", "change_at")}
