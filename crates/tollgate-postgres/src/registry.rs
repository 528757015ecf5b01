//! The registry of rules in PostgreSQL, as in [`tollgate_store::version_registry`].
//!
//! One transaction reads and writes it, under an advisory lock. No request reads it.

use std::sync::Arc;

use tokio_postgres::{Error, Row};
use tollgate_core::Span;
use tollgate_store::Clock as _;
use tollgate_store::version_registry::{
    MAX_MEMORY, MAX_RULES_BYTES, MAX_VERSIONS, REGISTRATION_LIFETIME, RegisteredNode, RegisteredVersion,
    Registration, Registry,
};

use crate::background::{Background, refused};
use crate::connection::CLOCK;
use crate::failure::Failure;
use crate::pool::Pool;
use crate::tables::REGISTRY_LOCK;

/// The maximum number of nodes of a reading.
const MAX_NODES: i64 = 10_000;
/// Revisions are below this number. Other writers of the table may have written any.
const REVISION_END: i64 = 1 << 53;

/// Registers a node with its version. `None`: the rules of the version have to be sent.
pub(crate) async fn register(
    pool: &Arc<Pool>,
    registration: &Registration<'_>,
) -> Result<Option<Registry>, Failure> {
    let sent = pool.local_clock.now();
    let work = Background::begin(pool).await?;
    let registry = exchange(pool, &work, registration).await?;
    work.commit(pool).await?;
    if registry.is_some() {
        pool.gate.register(sent);
    }
    Ok(registry)
}

async fn exchange(
    pool: &Pool,
    work: &Background,
    registration: &Registration<'_>,
) -> Result<Option<Registry>, Failure> {
    let Registration { version, sends_rules, in_force, known_revision } = *registration;
    let (versions, nodes, node) = (pool.tables.versions(), pool.tables.nodes(), pool.node.to_string());
    let [digest, in_force] = [version.digest, in_force].map(u64::cast_signed);
    let length = i32::try_from(version.rules.len()).unwrap_or(i32::MAX);
    work.query("SELECT pg_advisory_xact_lock($1, $2)", &[&pool.tables.lock_class, &REGISTRY_LOCK]).await?;
    let now = work.number(&format!("SELECT {CLOCK}"), &[]).await?;

    // Rules of another length are not those of this version.
    let known = format!("SELECT count(*) FROM {versions} WHERE digest = $1 AND octet_length(rules) = $2");
    if !sends_rules && work.number(&known, &[&digest, &length]).await? == 0 {
        return Ok(None);
    }
    // A later expiry was written by a clock that was ahead.
    let registered_until = now.saturating_add(micros(REGISTRATION_LIFETIME.into()));
    let others = format!(
        "SELECT in_force, known_revision FROM {nodes}
         WHERE name <> $1 AND registered_until > $2 AND registered_until <= $3 LIMIT {MAX_NODES}"
    );
    let others = work.query(&others, &[&node, &now, &registered_until]).await?;
    let mut used: Vec<i64> = others.iter().filter_map(|row| row.try_get(0).ok()).collect();
    used.push(in_force);
    let forget = format!(
        "DELETE FROM {versions} WHERE NOT (revision >= 0 AND revision < $3)
         OR ((expires <= $1 OR expires > $5) AND digest <> ALL($2) AND digest <> $4)"
    );
    let latest = now.saturating_add(micros(MAX_MEMORY));
    work.execute(&forget, &[&now, &used, &REVISION_END, &digest, &latest]).await?;
    let newest = format!("SELECT coalesce(max(revision), 0) FROM {versions}");
    let revision = work.number(&newest, &[]).await?;
    // The registry was lost since: the node does not know the later registrations of other nodes.
    let known_revision =
        known_revision.map(|it| i64::try_from(it).ok().filter(|it| *it <= revision).unwrap_or(0));

    // Revisions follow the clock, so that they increase although versions are forgotten.
    let (next, memory) = ((revision + 1).max(now), micros(version.memory.min(MAX_MEMORY)));
    let rules: &[u8] = if sends_rules { &version.rules } else { &[] };
    let write = format!(
        "INSERT INTO {versions} AS v (digest, revision, expires, rules) VALUES ($1, $2, $3, $4)
         ON CONFLICT (digest) DO UPDATE SET expires = least(greatest(v.expires, $3), $5),
            rules = CASE WHEN octet_length($4::bytea) > 0 THEN $4 ELSE v.rules END"
    );
    work.execute(&write, &[&digest, &next, &now.saturating_add(memory), &rules, &latest]).await?;
    // The versions that are in use are kept, then those that count for longest.
    let bound = format!(
        "DELETE FROM {versions} WHERE digest IN (SELECT digest FROM {versions} WHERE digest <> $1
            ORDER BY digest = ANY($2) DESC, expires DESC OFFSET {MAX_VERSIONS})"
    );
    work.execute(&bound, &[&digest, &used]).await?;
    let revision = work.number(&newest, &[]).await?;
    let join = format!(
        "INSERT INTO {nodes} (name, expires, registered_until, in_force, known_revision)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO UPDATE SET
         registered_until = EXCLUDED.registered_until, in_force = EXCLUDED.in_force,
         known_revision = EXCLUDED.known_revision"
    );
    let known = known_revision.unwrap_or(revision);
    work.execute(&join, &[&node, &now, &registered_until, &in_force, &known]).await?;

    // Other users may have written any number: no difference overflows, and no version is kept forever.
    let listed = format!(
        "SELECT digest, revision, least(greatest(expires, $1::bigint), $2::bigint) - $1::bigint FROM {versions} ORDER BY revision, digest"
    );
    let listed = work.query(&listed, &[&now, &latest]).await?;
    let versions = listed.iter().map(read_version).collect::<Result<_, _>>().map_err(|it| refused(&it))?;
    // A node that knows more than there is has not been written by a node.
    let node = |row: &Row| Some((row.try_get(0).ok()?, row.try_get::<_, i64>(1).ok()?));
    let nodes = others.iter().filter_map(node).filter(|(_, known)| (0..=revision).contains(known));
    let nodes = nodes.map(|(in_force, known): (i64, i64)| RegisteredNode {
        in_force: in_force.cast_unsigned(),
        known_revision: known.cast_unsigned(),
    });
    Ok(Some(Registry { revision: revision.cast_unsigned(), versions, nodes: nodes.collect() }))
}

fn read_version(row: &Row) -> Result<RegisteredVersion, Error> {
    let (digest, revision, left): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    Ok(RegisteredVersion {
        digest: digest.cast_unsigned(),
        revision: revision.cast_unsigned(),
        expires_in: Span::from_micros(u64::try_from(left).unwrap_or(0)),
    })
}

fn micros(span: Span) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// Returns the rules of a version.
pub(crate) async fn rules(pool: &Arc<Pool>, digest: u64) -> Result<Option<Vec<u8>>, Failure> {
    let work = Background::begin(pool).await?;
    let read = format!(
        "SELECT rules FROM {} WHERE digest = $1 AND octet_length(rules) BETWEEN 1 AND {MAX_RULES_BYTES}",
        pool.tables.versions()
    );
    let rows = work.query(&read, &[&digest.cast_signed()]).await?;
    work.commit(pool).await?;
    rows.first().map(|row| row.try_get(0)).transpose().map_err(|it| refused(&it))
}
