"""A shop: revenue by the current country of the customer, and by the category of the product."""

from pyspark.sql import DataFrame

from kappa import Table, Topic, View, pipeline

ORDERS = Topic(
    "orders",
    partitions=2,
    key="id",
    event="""
        id string not null, customer string not null, product string not null,
        quantity int not null, happened_at timestamp not null
    """,
)
CUSTOMERS = Topic(
    "customers",
    kind="compacted",
    key="id",
    event="id string not null, name string not null, country string not null",
)
PRODUCTS = Topic(
    "products",
    kind="compacted",
    key="sku",
    event="sku string not null, category string not null, price decimal(10,2) not null",
)


@pipeline(
    reads={"orders": ORDERS, "customers": CUSTOMERS, "products": PRODUCTS},
    writes=[
        Table("orders"),
        Table("customers", latest=CUSTOMERS),
        Table("products", latest=PRODUCTS),
        View(
            "order_details",
            """
            select o.id, o.happened_at as ordered_at, o.customer,
                coalesce(c.country, 'unknown') as country,
                coalesce(p.category, 'unknown') as category,
                (o.quantity * coalesce(p.price, 0))::decimal(14, 2) as revenue
            from orders o
            left join customers c on c.id = o.customer
            left join products p on p.sku = o.product
            """,
            keys=("id",),
        ),
        View(
            "revenue_by_country",
            """
            select country, count(*) as orders, sum(revenue) as revenue
            from order_details group by country
            """,
            keys=("country",),
            checks=["orders > 0"],
        ),
        View(
            "revenue_by_category",
            """
            select category, count(*) as orders, sum(revenue) as revenue
            from order_details group by category
            """,
            keys=("category",),
        ),
    ],
)
def shop(orders: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each order. A view joins orders with current customers and products."""
    return {"orders": orders.select("id", "customer", "product", "quantity", "happened_at")}
