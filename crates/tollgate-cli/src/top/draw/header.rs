//! The header of the screen: condition, uptime and traffic.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Sparkline};

use super::Palette;
use crate::client::in_words;
use crate::top::data::{or_empty, reload_error, shown};
use crate::top::number;
use crate::top::state::State;
use crate::top::words;

pub(super) fn lines(state: &State, palette: Palette, width: u16) -> Vec<Line<'_>> {
    let overview = &state.look.overview;
    let (word, style) = condition(state, palette);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut first = vec![
        Span::styled(format!("tollgate {}  ", overview.version), bold),
        Span::styled(word, style.add_modifier(Modifier::BOLD)),
    ];
    if state.paused {
        first.push(Span::styled("  PAUSED", palette.odd().add_modifier(Modifier::BOLD)));
    }
    first.push(Span::styled(format!("  {}", words::policy(overview)), palette.quiet()));
    first.push(Span::styled(format!("  {}", state.url), palette.quiet()));
    let mut second = words::store(overview);
    for more in [words::latency(overview), words::totals(overview)] {
        // Shown completely or not at all.
        if !more.is_empty() && second.chars().count() + 2 + more.chars().count() <= usize::from(width) {
            second.push_str("  ");
            second.push_str(&more);
        }
    }
    let mut lines = vec![Line::from(first), Line::raw(second)];
    if let Some(fleet) = &state.look.fleet {
        lines.push(Line::raw(words::fleet(fleet).chars().take(usize::from(width)).collect::<String>()));
    }
    if let Some(notice) = notice(state) {
        let notice: String = notice.chars().take(usize::from(width)).collect();
        lines.push(Line::styled(notice, palette.bad()));
    }
    lines
}

fn condition(state: &State, palette: Palette) -> (String, Style) {
    if state.trouble.is_some() {
        return ("RECONNECTING".to_owned(), palette.bad());
    }
    let overview = &state.look.overview;
    let style = match (overview.mode.0.as_str(), overview.store.health.state.0.as_str()) {
        ("enforce", "degraded") => palette.bad(),
        ("enforce", _) => palette.good(),
        _ => palette.odd(),
    };
    (words::condition(overview), style)
}

/// Returns the most severe notice.
fn notice(state: &State) -> Option<String> {
    let overview = &state.look.overview;
    if let Some(trouble) = &state.trouble {
        return Some(trouble.clone());
    }
    let health = &overview.store.health;
    if health.state.0 == "degraded" {
        let [since, error] = [&health.since, &health.error].map(|text| or_empty(text.as_ref()));
        return Some(format!("store degraded since {}: {error}", words::clock(since)));
    }
    if let [first, others @ ..] = reload_error(overview) {
        let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
        return Some(format!("the policy file has a mistake: {first}{more}"));
    }
    if let Some(alert) = overview.alerts.first() {
        let more = match overview.alerts.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let since = in_words(alert.for_s.saturating_mul(1000));
        let key = shown(&alert.key, &alert.tag);
        return Some(format!("nothing left for {since}: {key} of {}{more}", alert.limit));
    }
    if !overview.observing {
        return Some("this server counts nothing (`observe: off`)".to_owned());
    }
    None
}

/// Draws the traffic of the last five minutes.
pub(super) fn traffic(frame: &mut Frame<'_>, area: Rect, state: &State, palette: Palette) {
    let series = &state.look.overview.series;
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(1).areas::<2>(area);
    for (area, name, values, style) in [
        (halves[0], "allowed", &series.allowed, palette.good()),
        (halves[1], "refused", &series.refused, palette.bad()),
    ] {
        // The current second is in progress, so the previous one is shown.
        let now = values.iter().rev().nth(1).copied().unwrap_or_default();
        let most = values.iter().max().copied().unwrap_or_default();
        let title = format!(" {name} {}/s; 5 min: most {}/s ", number(now), number(most));
        let block = Block::new().borders(Borders::TOP).title(title).border_style(palette.quiet());
        let columns = resampled(values, usize::from(area.width));
        frame.render_widget(Sparkline::default().block(block).data(columns).style(style), area);
    }
}

/// Resamples to the available columns. Each is the mean of its seconds, and above zero if any second
/// was.
fn resampled(values: &[u64], room: usize) -> Vec<u64> {
    if room == 0 || values.is_empty() {
        return Vec::new();
    }
    let each = values.len().div_ceil(room);
    // The last column is complete; the first may be partial.
    let first = values.len() % each;
    let (oldest, rest) = values.split_at(first);
    let mean = |part: &[u64]| {
        part.iter().fold(0, |sum: u64, it| sum.saturating_add(*it)).div_ceil(part.len() as u64)
    };
    let oldest = if oldest.is_empty() { None } else { Some(mean(oldest)) };
    oldest.into_iter().chain(rest.chunks(each).map(mean)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_fits_any_width_and_shows_every_spike() {
        assert_eq!(resampled(&[1, 2, 3], 3), [1, 2, 3]);
        assert_eq!(resampled(&[1, 2, 3, 4, 5], 3), [1, 3, 5]);
        assert_eq!(resampled(&[0, 0, 0, 1], 2), [0, 1]);
        assert_eq!(resampled(&[u64::MAX, u64::MAX], 1).len(), 1);
        assert!(resampled(&[], 5).is_empty() && resampled(&[1], 0).is_empty());
        for room in 1..400 {
            assert!(resampled(&[7; 300], room).len() <= room);
        }
    }
}
