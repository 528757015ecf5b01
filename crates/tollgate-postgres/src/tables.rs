//! The tables: their names, their creation, and the statements on them.
//!
//! No statement updates an indexed column: PostgreSQL then reuses the space of old versions of a
//! row within its page (HOT) and does not touch the indexes. Expired rows are therefore found by
//! reading pages in order, not by an index.

use tokio_postgres::Client;

use crate::failure::explain;
use crate::settings::PostgresSettings;

/// The format of the tables, which increases when their meaning changes.
const FORMAT: i32 = 1;

/// The number of different locks of keys. It bounds the memory that locks take in the server: by
/// default PostgreSQL has room for 6,400 of them.
pub(crate) const KEY_LOCKS: u32 = 4096;
/// The lock of the creation of tables, after those of keys.
const CREATION_LOCK: i32 = 4096;
/// The lock of the registry of rules.
pub(crate) const REGISTRY_LOCK: i32 = 4097;

/// The names of the tables, quoted, and the class of their advisory locks.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    prefix: String,
    /// Distinguishes the locks of deployments with different prefixes in one database.
    pub(crate) lock_class: i32,
}

impl Tables {
    pub(crate) fn new(settings: &PostgresSettings) -> Self {
        let lock_class = i32::from_ne_bytes(fnv(b"tollgate:", settings.prefix.as_bytes()).to_ne_bytes());
        Self { prefix: settings.prefix.clone(), lock_class }
    }

    /// The state of each key under each rule.
    pub(crate) fn states(&self) -> String {
        self.name("states")
    }

    /// The ids of adjustments that were made.
    pub(crate) fn adjustments(&self) -> String {
        self.name("adjustments")
    }

    /// The nodes that share the tables.
    pub(crate) fn nodes(&self) -> String {
        self.name("nodes")
    }

    /// The rules that nodes use, and have used.
    pub(crate) fn versions(&self) -> String {
        self.name("versions")
    }

    /// The questions between nodes, with their answers.
    pub(crate) fn questions(&self) -> String {
        self.name("questions")
    }

    /// Returns the tables that a node reads and writes.
    fn used(&self) -> [String; 5] {
        [self.states(), self.adjustments(), self.nodes(), self.versions(), self.questions()]
    }

    fn format(&self) -> String {
        self.name("format")
    }

    fn name(&self, table: &str) -> String {
        // An identifier has at most 63 bytes; a prefix has at most 32.
        format!("\"{}tollgate_{table}\"", self.prefix.replace('"', "\"\""))
    }

    /// Returns the statements that create the tables.
    fn creation(&self) -> String {
        let ([states, adjustments, nodes, versions, questions], format) = (self.used(), self.format());
        format!(
            "CREATE TABLE IF NOT EXISTS {states} (
                rule bigint NOT NULL,
                key bytea NOT NULL,
                state bytea NOT NULL,
                carried_to bigint,
                expires bigint NOT NULL,
                PRIMARY KEY (rule, key)
            ) WITH (fillfactor = 70);
            CREATE TABLE IF NOT EXISTS {adjustments} (id bytea PRIMARY KEY, expires bigint NOT NULL);
            CREATE TABLE IF NOT EXISTS {nodes} (
                name text PRIMARY KEY,
                expires bigint NOT NULL,
                registered_until bigint,
                in_force bigint,
                known_revision bigint,
                record bytea,
                record_at bigint
            );
            CREATE TABLE IF NOT EXISTS {versions} (
                digest bigint PRIMARY KEY,
                revision bigint NOT NULL,
                expires bigint NOT NULL,
                rules bytea NOT NULL
            );
            CREATE TABLE IF NOT EXISTS {questions} (id bigint PRIMARY KEY, expires bigint NOT NULL, answer bytea);
            CREATE TABLE IF NOT EXISTS {format} (version integer NOT NULL);
            INSERT INTO {format} SELECT {FORMAT} WHERE NOT EXISTS (SELECT FROM {format});"
        )
    }

    /// Creates missing tables, and checks the format and the privileges.
    pub(crate) async fn prepare(&self, client: &Client) -> Result<(), String> {
        let format = self.format();
        if self.exist(client, std::slice::from_ref(&format)).await? {
            self.check_format(client).await?;
        }
        if !self.exist(client, &self.used()).await? || !self.exist(client, &[format]).await? {
            self.create(client).await?;
            self.check_format(client).await?;
        }
        self.check_privileges(client).await
    }

    /// Returns whether all of these tables exist.
    async fn exist(&self, client: &Client, tables: &[String]) -> Result<bool, String> {
        let found = "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1::text[]) AS name";
        let row = client.query_one(found, &[&tables]).await;
        row.and_then(|row| row.try_get(0)).map_err(|it| explain(&it))
    }

    async fn check_format(&self, client: &Client) -> Result<(), String> {
        // As text: a table of another program may have any column of that name.
        let read = format!("SELECT max(version::text) FROM {}", self.format());
        let row = client.query_one(&read, &[]).await;
        let version: Option<String> = row.and_then(|row| row.try_get(0)).map_err(|it| explain(&it))?;
        if version.as_ref().is_some_and(|it| *it == FORMAT.to_string()) {
            return Ok(());
        }
        let version = version.map_or_else(|| "unknown".to_owned(), |it| it.chars().take(20).collect());
        Err(format!(
            "the tables have the format {version}, and this version of Tollgate uses {FORMAT}: \
             set another `prefix`, or drop the tables `{}tollgate_*` to start anew",
            self.prefix
        ))
    }

    async fn create(&self, client: &Client) -> Result<(), String> {
        // Two nodes that create a table at the same time would fail.
        let statements = format!(
            "BEGIN READ WRITE; SELECT pg_advisory_xact_lock({}, {CREATION_LOCK}); {} COMMIT",
            self.lock_class,
            self.creation()
        );
        let Err(error) = client.batch_execute(&statements).await else { return Ok(()) };
        let why = explain(&error);
        let _ = client.batch_execute("ROLLBACK").await;
        Err(format!(
            "cannot create the tables: {why}. Let the user create them once \
             (`CREATE SCHEMA AUTHORIZATION` its name), or create them as the documentation of the store shows"
        ))
    }

    async fn check_privileges(&self, client: &Client) -> Result<(), String> {
        let tables = self.used();
        let missing = "SELECT table_name, privilege FROM unnest($1::text[]) AS table_name,
                unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS privilege
            WHERE NOT has_table_privilege(table_name, privilege) LIMIT 1";
        let missing = client.query_opt(missing, &[&&tables[..]]).await.map_err(|it| explain(&it))?;
        let Some(row) = missing else { return Ok(()) };
        let read = |at: usize| row.try_get::<_, String>(at).map_err(|it| explain(&it));
        let (table, privilege) = (read(0)?, read(1)?);
        Err(format!(
            "this user may not {privilege} in {table}: \
             GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO the user",
            tables.join(", ")
        ))
    }
}

/// Returns the lock of a key, the same on every node.
pub(crate) fn lock_of(key: &[u8]) -> i32 {
    i32::try_from(fnv(b"", key) % KEY_LOCKS).unwrap_or(0)
}

/// FNV-1a. It must never change, because all nodes have to use the same locks.
fn fnv(words: &[u8], more: &[u8]) -> u32 {
    words
        .iter()
        .chain(more)
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
