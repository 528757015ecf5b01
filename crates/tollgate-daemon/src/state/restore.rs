//! Restores saved mode overrides at the start.

use std::sync::Arc;

use tollgate::Mode;
use tollgate_server::{ModeOverrides, SavedOverrides};

use super::State;
use crate::configuration::shown;
use crate::store::AnyStore;

/// The maximum number of overrides that the start lists.
const MAX_LISTED_SWITCHES: usize = 10;

/// Applies the overrides saved in the state directory, and saves further changes there. Returns a
/// warning about active overrides.
pub(crate) fn restore(
    state: &Arc<State>,
    saved: SavedOverrides,
    switches: &ModeOverrides<AnyStore>,
) -> Option<String> {
    let keeper = Arc::clone(state);
    if saved != SavedOverrides::default() {
        switches.restore(saved);
    }
    switches.on_change(move |saved, change| keeper.keep(saved, change));
    let modes = switches.modes();
    let all = (modes.everything() != Mode::Enforce).then(|| {
        let mode = if modes.everything() == Mode::Off { "off" } else { "shadow" };
        format!("everything to {mode}")
    });
    let some = modes.switched().map(|limit| format!("{} to {}", limit.name, limit.switch.word()));
    let back = match (&all, modes.switched().next()) {
        (Some(_), None) => "`tollgate mode enforce --all` removes it",
        (Some(_), Some(_)) => {
            "`tollgate mode enforce --all` removes the mode of everything, `tollgate mode policy NAME` that of a limit"
        }
        (None, _) => "`tollgate mode policy NAME` removes it",
    };
    let switched: Vec<_> = all.into_iter().chain(some).collect();
    let more = switched.len().saturating_sub(MAX_LISTED_SWITCHES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let listed = switched.iter().take(MAX_LISTED_SWITCHES).map(String::as_str).collect::<Vec<_>>().join(", ");
    (!switched.is_empty()).then(|| {
        format!(
            "warning: switched by hand, as kept in {}: {listed}{more}\n  \
             = help: `tollgate changes` says who and why, {back}\n",
            shown(&state.folder)
        )
    })
}
