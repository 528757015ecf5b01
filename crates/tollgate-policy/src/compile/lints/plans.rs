//! Lints on the plan of callers that name no plan.

use tollgate_document::Problems;

use crate::file_format::File;
use crate::file_format::limit::AllowanceText;
use crate::lint::Lint;

pub(super) fn find_lints(file: &File, problems: &mut Problems) {
    let Some(default) = file.plans.as_ref().and_then(|plans| plans.default.as_ref()) else { return };
    if !file.limits.iter().flat_map(|limit| &limit.plans).any(|(name, _)| name.value == default.value) {
        problems
            .warning(Lint::UnknownPlan, default.place, format!("no limit has a plan `{}`", default.value))
            .label("callers without a plan get the limit's own amount")
            .help("define it under `plans` of a limit, or omit `default`");
    }
    for (name, allowance) in file.limits.iter().flat_map(|limit| &limit.plans) {
        if name.value == default.value && matches!(allowance.value, AllowanceText::Unlimited) {
            problems
                .warning(Lint::DefaultPlanUnlimited, name.place, "callers that name no plan pass this limit")
                .label("the default plan is unlimited here")
                .related(default.place, "the plan of callers that name no plan")
                .help("give the default plan a rate, or make another plan the default");
        }
    }
}
