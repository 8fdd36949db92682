import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.Properties;

/** Asks a server what JDBC's tools ask; prints a line for each answer. */
public final class JdbcClient {
    public static void main(String[] arguments) throws SQLException {
        Properties given = new Properties();
        given.setProperty("user", "reader");
        given.setProperty("password", arguments[1]);
        given.setProperty("prepareThreshold", "2");
        try (Connection connection = DriverManager.getConnection(arguments[0], given)) {
            metadata(connection);
            prepared(connection);
            fetched(connection);
            refused(connection);
        }
    }

    private static void metadata(Connection connection) throws SQLException {
        var about = connection.getMetaData();
        System.out.println("product " + about.getDatabaseProductName());
        try (ResultSet found = about.getSchemas()) {
            while (found.next()) System.out.println("schema " + found.getString(1));
        }
        try (ResultSet found = about.getTables(null, "public", "%", new String[] {"TABLE", "VIEW"})) {
            while (found.next()) System.out.println("table " + found.getString("TABLE_NAME") + " " + found.getString("TABLE_TYPE"));
        }
        try (ResultSet found = about.getColumns(null, "public", "delays", "%")) {
            while (found.next()) System.out.println("column " + found.getString("COLUMN_NAME") + " " + found.getString("TYPE_NAME"));
        }
        try (ResultSet found = about.getPrimaryKeys(null, "public", "delays")) {
            System.out.println("key " + found.next());
        }
        try (ResultSet found = about.getIndexInfo(null, "public", "delays", false, false)) {
            System.out.println("index " + found.next());
        }
        try (ResultSet found = about.getImportedKeys(null, "public", "delays")) {
            System.out.println("foreign " + found.next());
        }
        try (ResultSet found = about.getTypeInfo()) {
            int count = 0;
            while (found.next()) count++;
            System.out.println("types " + (count > 10));
        }
    }

    private static void prepared(Connection connection) throws SQLException {
        String sql = "select carrier, flights, 1.50::decimal(4, 2), date '2020-02-03', [1, 2],"
            + " timestamptz '2020-01-01 00:00:00+00', true, ?::timestamp from delays where flights = ?";
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            // At the third run the statement is kept, and values are in binary form.
            for (int run = 0; run < 4; run++) {
                statement.setTimestamp(1, Timestamp.valueOf("2020-01-02 03:04:05"));
                statement.setLong(2, 3);
                try (ResultSet found = statement.executeQuery()) {
                    found.next();
                    System.out.println("row " + found.getString(1) + " " + found.getLong(2) + " " + found.getBigDecimal(3)
                        + " " + found.getDate(4) + " " + found.getArray(5) + " " + found.getTimestamp(6).toInstant()
                        + " " + found.getBoolean(7) + " " + found.getTimestamp(8));
                }
            }
            System.out.println("described " + statement.getMetaData().getColumnTypeName(2));
        }
    }

    private static void fetched(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(10);
            try (ResultSet found = statement.executeQuery("select i from range(35) t(i)")) {
                long sum = 0;
                while (found.next()) sum += found.getLong(1);
                System.out.println("sum " + sum);
            }
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    private static void refused(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("delete from delays");
        } catch (SQLException error) {
            System.out.println("refused " + error.getSQLState());
        }
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            statement.executeQuery("select sum(a.i * b.i) from range(3000000) a(i), range(3000000) b(i)");
        } catch (SQLException error) {
            System.out.println("ended " + error.getSQLState());
        }
    }
}
