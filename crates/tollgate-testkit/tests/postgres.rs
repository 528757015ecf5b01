//! The PostgreSQL server of the test kit: it starts, answers, fails and recovers.

use std::net::TcpStream;

use tollgate_testkit::Postgres;

#[test]
fn a_server_answers_dies_and_restarts_with_its_data() {
    let postgres = Postgres::start();
    assert_eq!(postgres.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (7); SELECT n FROM t"), "7");
    assert!(postgres.try_sql("NONSENSE").unwrap_err().contains("syntax error"));
    postgres.kill();
    assert!(TcpStream::connect(postgres.address()).is_err());
    postgres.restart();
    assert_eq!(postgres.sql("SELECT count(*) FROM t"), "1");
}

#[test]
fn a_server_takes_settings_and_knows_its_users() {
    let postgres = Postgres::start_with(&["max_connections=17"]);
    assert_eq!(postgres.sql("SHOW max_connections"), "17");
    assert_eq!(
        postgres.url(),
        format!("postgres://tollgate:superuser-secret@{}/postgres", postgres.address())
    );
}

#[test]
fn a_paused_server_resumes_and_can_be_dropped() {
    let postgres = Postgres::start();
    postgres.pause();
    postgres.resume();
    assert_eq!(postgres.sql("SELECT 1"), "1");
    postgres.pause();
}

#[test]
fn a_server_with_tls_accepts_no_other_connection() {
    let postgres = Postgres::start_with_tls();
    assert_eq!(postgres.sql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"), "t");
    assert!(postgres.ca().exists());
}
