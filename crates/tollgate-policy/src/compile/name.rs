//! Derives names for limits that have none; equal files yield equal names.

use std::collections::HashMap;

use tollgate_document::{Located, Place, Problems};

use crate::file_format::limit::Limit;
use crate::limit::MAX_NAME_BYTES;
use crate::lint::Lint;
use crate::source::KeySource;

/// The suffix of the name of a limit's candidate.
const CANDIDATE_SUFFIX: &str = ".candidate";

/// Returns the name of a limit's candidate.
pub(super) fn of_candidate(limit: &str) -> String {
    format!("{limit}{CANDIDATE_SUFFIX}")
}

/// Returns a name for each limit, in file order. Written names are assigned first, so
/// that a derived name never takes one of them.
pub(super) fn all(limits: &[Limit], problems: &mut Problems) -> Vec<String> {
    let mut taken: HashMap<String, Place> = HashMap::with_capacity(limits.len());
    for name in limits.iter().filter_map(|limit| limit.name.as_ref()) {
        if let Some(first) = taken.get(&name.value) {
            problems
                .error(name.place, format!("two limits are called `{}`", name.value))
                .label("again here")
                .related(*first, "first here")
                .help("usage and metrics are kept by name, so each limit needs its own");
        } else {
            taken.insert(name.value.clone(), name.place);
        }
    }
    for limit in limits {
        if let Some(name) = &limit.name {
            take_for_candidate(limit, &name.value, &mut taken, problems);
        }
    }
    let mut used: HashMap<String, u32> = HashMap::with_capacity(limits.len());
    let mut free = |limit: &Limit| {
        let base = derived(limit);
        let count = used.entry(base.clone()).or_insert(0);
        if *count > 0
            && let Some(first) = taken.get(&base)
        {
            problems
                .warning(Lint::DerivedNameTwice, limit.place, format!("two limits would be called `{base}`"))
                .label("this one gets a number, by its place in the file")
                .related(*first, "the other one")
                .help("usage is kept by name: give both a `name`, so that moving them does not swap their usage");
        }
        loop {
            *count += 1;
            let name = numbered(&base, *count);
            if !taken.contains_key(&name) {
                taken.insert(name.clone(), limit.place);
                take_for_candidate(limit, &name, &mut taken, problems);
                return name;
            }
        }
    };
    limits
        .iter()
        .map(|limit| limit.name.as_ref().map_or_else(|| free(limit), |name| name.value.clone()))
        .collect()
}

/// Reserves the name of a limit's candidate, if it has one.
fn take_for_candidate(
    limit: &Limit,
    name: &str,
    taken: &mut HashMap<String, Place>,
    problems: &mut Problems,
) {
    let Some(candidate) = &limit.candidate else { return };
    let of_candidate = of_candidate(name);
    if of_candidate.len() > MAX_NAME_BYTES {
        let room = MAX_NAME_BYTES - CANDIDATE_SUFFIX.len();
        problems
            .error(candidate.place, "the name of this limit is too long for one with a candidate")
            .label(format!("`{CANDIDATE_SUFFIX}` is appended to it"))
            .help(format!("give the limit a `name` of at most {room} characters"));
    } else if let Some(first) = taken.insert(of_candidate.clone(), candidate.place) {
        problems
            .error(candidate.place, format!("two limits are called `{of_candidate}`"))
            .label("the name of this candidate")
            .related(first, "the other one")
            .help("usage and metrics are kept by name: give one of the two another name");
    }
}

/// Derives a name such as `post-api-v1-login-by-ip`. It includes the methods, so that limits on
/// other methods of a path get different names.
fn derived(limit: &Limit) -> String {
    let mut name = String::new();
    let mut word = |text: &str| {
        for char in text.chars() {
            match char {
                'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => name.push(char),
                _ if !name.ends_with('-') => name.push('-'),
                _ => {}
            }
        }
        if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    };
    limit.method.iter().for_each(|method| word(&method.value.to_lowercase()));
    limit.host.iter().for_each(|host| word(&host.value.to_string()));
    if let Some(rlqs) = &limit.rlqs {
        word(rlqs.value.domain());
        for (key, value) in rlqs.value.entries() {
            word(key);
            value.into_iter().for_each(&mut word);
        }
        return finished(name);
    }
    if let Some(descriptor) = &limit.descriptor {
        limit.domain.iter().for_each(|domain| word(&domain.value));
        for entry in descriptor.value.entries() {
            word(entry.key());
            if let Some(value) = entry.written().filter(|_| !entry.is_secret()) {
                word(&value);
            }
        }
        if let [Located { value: KeySource::Descriptor, .. }] = &limit.by[..] {
            return finished(name);
        }
    } else if let Some(endpoint) = limit.endpoint.first() {
        endpoint.value.words().for_each(&mut word);
    } else {
        word("everything");
    }
    word("by");
    for (index, part) in limit.by.iter().enumerate() {
        if index > 0 {
            word("and");
        }
        match &part.value {
            KeySource::Header(name)
            | KeySource::Cookie(name)
            | KeySource::Query(name)
            | KeySource::Path(name)
            | KeySource::Claim(name)
            | KeySource::Entry(name) => word(name),
            plain => word(&plain.to_string()),
        }
    }
    finished(name)
}

fn finished(mut name: String) -> String {
    name.truncate(MAX_NAME_BYTES);
    name.trim_matches('-').to_owned()
}

fn numbered(base: &str, count: u32) -> String {
    if count == 1 && !base.is_empty() {
        return base.to_owned();
    }
    let suffix = format!("-{count}");
    let room = MAX_NAME_BYTES - suffix.len();
    let base = if base.is_empty() { "limit" } else { base };
    let base = base.get(..room.min(base.len())).unwrap_or(base);
    format!("{}{suffix}", base.trim_end_matches('-'))
}
