//! `missing` beside a key that is always there.

use crate::diagnostic::Problems;
use crate::source::KeySource;
use crate::trap::Trap;
use crate::written::limit::Limit;

pub(super) fn look(limit: &Limit, problems: &mut Problems) {
    if let (Some(missing), [only]) = (&limit.missing, &limit.by[..])
        && matches!(only.value, KeySource::Global | KeySource::Descriptor)
    {
        problems
            .warning(Trap::IdleMissing, missing.place, "`missing` does nothing here")
            .label(format!("`by: {}` is never missing", only.value))
            .help("remove the line");
    }
}
