//! `missing` on a limit whose key is always present.

use tollgate_document::Problems;

use crate::file_format::limit::Limit;
use crate::lint::Lint;
use crate::source::KeySource;

pub(super) fn find_lints(limit: &Limit, problems: &mut Problems) {
    if let (Some(missing), [only]) = (&limit.missing, &limit.by[..])
        && matches!(only.value, KeySource::Global | KeySource::Descriptor)
    {
        problems
            .warning(Lint::IdleMissing, missing.place, "`missing` has no effect here")
            .label(format!("`by: {}` is never missing", only.value))
            .help("remove the line");
    }
}
