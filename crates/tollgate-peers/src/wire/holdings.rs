//! Holdings as bytes: the processes once, then their indices.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::varint::{Reader, put, put_bytes};
use tollgate_store::parts::PARTITIONS;

use super::WireError;
use crate::ownership::{Holding, MAX_SOURCES, Process};
use crate::settings::parse_address;

/// The maximum number of processes in one message: enough for all partitions of the largest list, and
/// the processes before them.
const MAX_PROCESSES: usize = 1024;

/// Holdings by partition.
pub(super) type Holdings = Vec<(u8, Arc<Holding>)>;

/// Appends holdings, and a process that they come from.
pub(super) fn put_holdings(out: &mut Vec<u8>, by: Option<&Arc<Process>>, holdings: &[(u8, Arc<Holding>)]) {
    let mut processes: Vec<Arc<Process>> = Vec::new();
    let mut indices: HashMap<Arc<Process>, u64> = HashMap::new();
    let mut body = Vec::with_capacity(8 * holdings.len());
    let mut number = |process: &Arc<Process>| {
        *indices.entry(Arc::clone(process)).or_insert_with(|| {
            processes.push(Arc::clone(process));
            processes.len() as u64
        })
    };
    put(&mut body, by.map_or(0, &mut number));
    put(&mut body, holdings.len() as u64);
    for (partition, holding) in holdings {
        body.push(*partition);
        put(&mut body, holding.term);
        put(&mut body, holding.holder.as_ref().map_or(0, &mut number));
        put(&mut body, holding.sources.len() as u64);
        holding.sources.iter().for_each(|it| put(&mut body, number(it)));
    }
    put(out, processes.len() as u64);
    for process in processes {
        put_bytes(out, process.address.to_string().as_bytes());
        out.extend_from_slice(&process.incarnation.to_le_bytes());
    }
    out.extend_from_slice(&body);
}

/// Reads holdings, and the process that they come from.
pub(super) fn holdings(from: &mut Reader<'_>) -> Result<(Option<Arc<Process>>, Holdings), WireError> {
    let count = from.count(MAX_PROCESSES)?;
    let process = |from: &mut Reader<'_>| {
        let text = from.text()?;
        let address = parse_address(text).ok_or(WireError)?;
        Ok(Arc::new(Process { address, incarnation: from.fixed()? }))
    };
    let processes = (0..count).map(|_| process(from)).collect::<Result<Vec<_>, WireError>>()?;
    let one = |from: &mut Reader<'_>| match from.count(MAX_PROCESSES)? {
        0 => Ok(None),
        number => processes.get(number - 1).cloned().map(Some).ok_or(WireError),
    };
    let by = one(from)?;
    let count = from.count(PARTITIONS)?;
    let mut all = Vec::with_capacity(count.min(from.0.len()));
    for _ in 0..count {
        let (partition, term, holder) = (from.byte()?, from.number()?, one(from)?);
        let sources = from.count(MAX_SOURCES)?;
        let source = |from: &mut Reader<'_>| one(from)?.ok_or(WireError);
        let sources = (0..sources).map(|_| source(from)).collect::<Result<_, _>>()?;
        // A term below the end, so that the next one exists.
        if term > u64::MAX / 2 || (term == 0) != holder.is_none() {
            return Err(WireError);
        }
        all.push((partition, Arc::new(Holding { term, holder, sources })));
    }
    Ok((by, all))
}
