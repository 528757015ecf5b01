//! The definition of "the last five minutes", which all counts share.
//!
//! The window ends now, including the current second, and begins at a multiple of [`PANE_SECONDS`], at
//! most five minutes ago. All recent counts are kept in pieces that begin at such multiples: seconds of
//! all decisions, steps of a limit, sketches of keys and routes. Numbers on one screen therefore cover
//! the same time, and add up.

use tollgate::Span;

/// The length of a sketch in seconds; the window begins at a multiple of it.
pub(crate) const PANE_SECONDS: u64 = 15;
/// The number of sketches in a window, including the current one.
pub(crate) const PANES: usize = 20;
/// The maximum length of the window.
pub(crate) const WINDOW: Span = Span::from_secs(PANE_SECONDS * PANES as u64);

/// Returns the first second of the window that ends in second `now`, since 1970.
pub(crate) const fn window_start(now: u64) -> u64 {
    ((now / PANE_SECONDS + 1).saturating_sub(PANES as u64)) * PANE_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_never_longer_than_five_minutes_nor_shorter_by_a_pane() {
        for now in 1_000_000..1_000_100 {
            let seconds = now - window_start(now) + 1;
            assert!((300 - PANE_SECONDS + 1..=300).contains(&seconds), "{seconds}");
            assert_eq!(window_start(now) % PANE_SECONDS, 0);
        }
        assert_eq!(window_start(7), 0);
    }
}
