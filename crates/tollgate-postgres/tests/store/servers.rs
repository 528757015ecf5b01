//! The server and its tables: logging in, TLS, privileges, formats, foreign bytes, expired rows.

use std::error::Error as _;
use std::fs;

use tollgate_core::{Bucket, Rate, Rule};
use tollgate_postgres::{PostgresSettings, PostgresStore, Tls};
use tollgate_store::{Check, Store, StoreError};
use tollgate_testkit::Postgres;

use crate::support::{daily, eventually, left, patient, store};

/// Returns the reason why a store cannot be used.
async fn refusal(settings: PostgresSettings) -> String {
    let error = PostgresStore::new(settings).connect().await.unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error}");
    error.source().unwrap().to_string()
}

fn at(url: &str, server: &Postgres) -> PostgresSettings {
    PostgresSettings { deadline: patient(server).deadline, ..PostgresSettings::parse(url).unwrap() }
}

#[tokio::test]
async fn mistakes_are_explained_without_the_password() {
    let server = Postgres::start();
    server.sql("CREATE USER ann PASSWORD 'secret'");
    for (user, password, database, expected) in [
        ("ann", "wr0ng", "postgres", "password is wrong"),
        ("ann", "secret", "missing", "create it, or name another database"),
        // Since PostgreSQL 15, only the owner creates tables in the schema `public`.
        ("ann", "secret", "postgres", "CREATE SCHEMA AUTHORIZATION"),
    ] {
        let why = refusal(at(&server.url_of(user, password, database), &server)).await;
        assert!(why.contains(expected) && why.contains(&server.address()), "{why}");
        assert!(!why.contains("secret") && !why.contains("wr0ng"), "{why}");
    }
    server.sql("CREATE SCHEMA AUTHORIZATION ann");
    let ann = PostgresStore::new(at(&server.url_of("ann", "secret", "postgres"), &server));
    ann.connect().await.unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM ann.tollgate_states"), "0");
}

#[tokio::test]
async fn tables_of_an_operator_need_no_privilege_to_create() {
    let server = Postgres::start();
    store(&server).connect().await.unwrap();
    server.sql("CREATE USER ann PASSWORD 'secret'");
    let settings = at(&server.url_of("ann", "secret", "postgres"), &server);
    let why = refusal(settings.clone()).await;
    assert!(why.contains("permission denied for table tollgate_format"), "{why}");
    server.sql("GRANT SELECT ON tollgate_format TO ann");
    let why = refusal(settings.clone()).await;
    assert!(why.contains("GRANT SELECT, INSERT, UPDATE, DELETE ON"), "{why}");
    server.sql(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON tollgate_states, tollgate_adjustments, tollgate_nodes,
             tollgate_versions, tollgate_questions TO ann",
    );
    let ann = PostgresStore::new(settings);
    ann.connect().await.unwrap();
    ann.probe().await.unwrap();
}

#[tokio::test]
async fn tables_of_another_format_are_left_alone() {
    let server = Postgres::start();
    store(&server).connect().await.unwrap();
    server.sql("UPDATE tollgate_format SET version = 2");
    let why = refusal(patient(&server)).await;
    assert!(why.contains("the format 2") && why.contains("`prefix`"), "{why}");
}

#[tokio::test]
async fn nodes_that_start_together_create_the_tables_once() {
    let server = Postgres::start();
    let nodes: Vec<_> = (0..8).map(|_| store(&server)).collect();
    let connecting = nodes.into_iter().map(|node| tokio::spawn(async move { node.connect().await }));
    for connected in connecting.collect::<Vec<_>>() {
        connected.await.unwrap().unwrap();
    }
    assert_eq!(server.sql("SELECT version FROM tollgate_format"), "1");
}

#[tokio::test]
async fn prefixes_separate_deployments() {
    let server = Postgres::start();
    let one = store(&server);
    let other = PostgresStore::new(PostgresSettings { prefix: "shop-1.\"A:".to_owned(), ..patient(&server) });
    let rule = daily("apart", 1);
    for store in [&one, &other] {
        assert!(store.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap().admitted);
    }
}

#[tokio::test]
async fn tls_verifies_the_server() {
    let server = Postgres::start_with_tls();
    let url = format!("{}?sslmode=verify-full", server.url());
    let ca = |ca| PostgresSettings { tls: Some(Tls { ca }), ..at(&url, &server) };
    let trusted = PostgresStore::new(ca(Some(fs::read(server.ca()).unwrap())));
    trusted.connect().await.unwrap();
    trusted.probe().await.unwrap();
    let why = refusal(ca(None)).await;
    assert!(why.contains("certificate"), "no public authority has signed it: {why}");
    let why = refusal(at(&server.url(), &server)).await;
    assert!(why.contains("sslmode=verify-full"), "{why}");
    let why = refusal(ca(Some(b"nothing".to_vec()))).await;
    assert!(why.contains("`ca` holds no certificate"), "{why}");
}

#[tokio::test]
async fn of_several_hosts_the_one_that_answers_is_used() {
    let (dead, server) = (Postgres::start(), Postgres::start());
    dead.kill();
    let mut settings = patient(&server);
    settings.hosts.insert(0, patient(&dead).hosts[0].clone());
    PostgresStore::new(settings).connect().await.unwrap();
}

#[tokio::test]
async fn foreign_bytes_are_never_changed_and_affect_no_other_key() {
    let server = Postgres::start();
    let store = store(&server);
    let rule = daily("foreign", 10);
    for key in [b"good", b"evil", b"kind"] {
        store.decide(&[Check::new(&rule, key, 1)]).await.unwrap();
    }
    server.sql("UPDATE tollgate_states SET state = 'rubbish' WHERE key = 'evil'");
    // A state of another algorithm: a fixed window.
    server.sql("UPDATE tollgate_states SET state = '\\x110101' WHERE key = 'kind'");
    for key in [b"evil", b"kind"] {
        // Together in one transaction.
        let (checks, others) = ([Check::new(&rule, key, 1)], [Check::new(&rule, b"good", 0)]);
        let (evil, good) = tokio::join!(store.decide(&checks), store.decide(&others));
        let Err(StoreError::Foreign(name)) = evil else { panic!("{evil:?}") };
        assert!(name.contains("foreign") && !name.contains("evil"), "{name}");
        assert_eq!(good.unwrap().outcomes[0].remaining, 9);
    }
    assert_eq!(
        server.sql("SELECT encode(state, 'escape') FROM tollgate_states WHERE key = 'evil'"),
        "rubbish"
    );
}

#[tokio::test]
async fn expired_rows_are_deleted_and_others_are_kept() {
    let server = Postgres::start();
    let store = store(&server);
    let (brief, lasting) =
        (Rule::new("brief", Bucket::new(Rate::per_second(1)).unwrap()), daily("lasting", 9));
    for number in 0..100_u32 {
        let key = number.to_be_bytes();
        store.decide(&[Check::new(&brief, &key, 1), Check::new(&lasting, &key, 1)]).await.unwrap();
    }
    // As if an hour had passed for half of the brief keys.
    server.sql(
        "UPDATE tollgate_states SET expires = expires - 3600000000::bigint
         WHERE expires < (extract(epoch FROM now()) + 60) * 1000000 AND get_byte(key, 3) % 2 = 0",
    );
    server.sql("INSERT INTO tollgate_adjustments VALUES ('old', 1)");
    let rows = || server.sql("SELECT count(*) FROM tollgate_states").parse::<u32>().unwrap();
    let ids = || server.sql("SELECT count(*) FROM tollgate_adjustments");
    assert_eq!(rows(), 200);
    let announcing = async {
        tokio::select! {
            () = store.announce() => {}
            () = eventually("half of the brief rows are deleted", async || rows() == 150 && ids() == "0") => {}
        }
    };
    announcing.await;
    // A round that is cut off after its last statement is not counted.
    assert!(store.counters().expired <= 51, "{:?}", store.counters());
    assert_eq!(left(&store, &lasting, "\0\0\0\u{4}").await, 8);
}

#[tokio::test]
async fn nodes_count_each_other() {
    let server = Postgres::start();
    let (one, other) = (store(&server), store(&server));
    assert_eq!(one.nodes(), 1);
    tokio::select! {
        () = one.announce() => {}
        () = other.announce() => {}
        () = eventually("both know both", async || (one.nodes(), other.nodes()) == (2, 2)) => {}
    }
    // As if the other had been silent for an hour.
    server.sql("UPDATE tollgate_nodes SET expires = expires - 3600000000::bigint");
    tokio::select! {
        () = one.announce() => {}
        () = eventually("one is alone", async || one.nodes() == 1) => {}
    }
}

#[tokio::test]
async fn the_states_are_read_by_their_index() {
    let server = Postgres::start();
    let store = store(&server);
    let rule = daily("many", 9);
    store.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap();
    // The statistics of the table are those of an empty one.
    server.sql(
        "INSERT INTO tollgate_states SELECT n, 'other', '\\x10', NULL, 0 FROM generate_series(1, 20000) AS n",
    );
    let read = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'tollgate_states'";
    for _ in 0..20 {
        store.decide(&[Check::new(&rule, b"key", 0)]).await.unwrap();
    }
    server.sql("SELECT pg_stat_force_next_flush()");
    // The creation of the index reads the table.
    let scans: u64 = server.sql(read).parse().unwrap();
    assert!(scans <= 1, "{scans} statements read the whole table");
}
