//! Runs the SQL statements of docs/modes.md by which a table refuses late writers, readers and permits.

use rusqlite::{Connection, OptionalExtension, named_params};

/// Returns the statements after the page's marker: a write, a read, a permit's write.
fn statements() -> Vec<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/modes.md")).unwrap();
    let behind = page.split("<!-- the fence in SQL -->\n```sql\n").nth(1).expect("the marker and its statements");
    behind.split("```").next().unwrap().split("\n\n").map(|statement| statement.trim().to_owned()).collect()
}

struct Table {
    database: Connection,
    statements: Vec<String>,
}

impl Table {
    fn new() -> Self {
        let database = Connection::open_in_memory().unwrap();
        let tables = "
            CREATE TABLE prices (item INTEGER PRIMARY KEY, price INTEGER, x INTEGER NOT NULL, a INTEGER NOT NULL);
            CREATE TABLE shards (number INTEGER PRIMARY KEY, state INTEGER, token INTEGER NOT NULL);
            INSERT INTO prices VALUES (42, 0, 0, 0), (43, 0, 0, 0);
            INSERT INTO shards VALUES (1, 0, 0), (2, 0, 0);";
        database.execute_batch(tables).unwrap();
        Self { database, statements: statements() }
    }

    /// Returns whether the write was accepted.
    fn write(&self, token: i64, price: i64) -> bool {
        let changed =
            self.database.execute(&self.statements[0], named_params! { ":item": 42, ":price": price, ":token": token });
        changed.unwrap() == 1
    }

    /// Returns the price; `None` if the read was refused.
    fn read(&self, token: i64) -> Option<i64> {
        let row = self
            .database
            .query_row(&self.statements[1], named_params! { ":item": 42, ":token": token }, |row| row.get(0));
        row.optional().unwrap()
    }

    fn write_as(&self, number: i64, token: i64) -> bool {
        let changed = self
            .database
            .execute(&self.statements[2], named_params! { ":number": number, ":state": 1, ":token": token });
        changed.unwrap() == 1
    }
}

#[test]
fn a_late_writer_is_refused() {
    let table = Table::new();
    assert!(table.write(5, 1) && table.write(5, 2));
    assert_eq!(table.read(7), Some(2));
    assert!(!table.write(5, 3), "after a reader");
    // A late reader does not undo what the newer one has recorded.
    assert_eq!((table.read(6), table.write(6, 3)), (Some(2), false));
    assert!(table.write(8, 4) && !table.write(7, 5), "after a writer");
    assert_eq!(table.read(8), Some(4));
}

#[test]
fn readers_come_in_any_order_until_a_newer_writer() {
    let table = Table::new();
    table.write(5, 1);
    assert_eq!([7, 6, 5, 7].map(|token| table.read(token)), [Some(1); 4]);
    assert!(table.write(8, 2));
    assert_eq!([7, 8].map(|token| table.read(token)), [None, Some(2)]);
}

#[test]
fn each_number_of_a_permit_has_its_own() {
    let table = Table::new();
    assert!(table.write_as(2, 9) && table.write_as(1, 4) && table.write_as(1, 4));
    assert!(table.write_as(1, 6) && !table.write_as(1, 4) && table.write_as(2, 9));
}
