//! Draws the four lists of the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Row, Table, TableState};

use super::Palette;
use crate::top::data::{self, or_empty};
use crate::top::state::{Pane, State};
use crate::top::{number, percent, words};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, pane: Pane, state: &State, palette: Palette) {
    // Only visible rows are built, because a policy may have ten thousand limits.
    let room = usize::from(area.height);
    let selected = state.selected(pane);
    let from = selected.saturating_sub(room.saturating_sub(3) / 2);
    let (title, count, head, rows, widths) = match pane {
        Pane::Limits => {
            let all = state.limits();
            let rows: Vec<_> = all.iter().skip(from).take(room).map(|it| limit(it, palette)).collect();
            let widths =
                [Constraint::Fill(1), Constraint::Length(8), Constraint::Length(9), Constraint::Length(9)];
            let more = [Constraint::Length(12), Constraint::Length(10)];
            let head = vec!["name", "mode", ">refused", ">allowed", ">would refuse", ">least left"];
            (
                format!("limits {}, 5 min", state.sort.word()),
                all.len(),
                head,
                rows,
                [&widths[..], &more].concat(),
            )
        }
        Pane::Keys => {
            let all = state.keys();
            let rows = all.iter().skip(from).take(room);
            let rows = rows.map(|it| {
                Row::new([
                    Cell::new(data::shown(&it.key, &it.tag)),
                    Cell::new(it.limit.0.as_str()),
                    right(number(it.refused), palette.bad()),
                    right(percent(it.share), Style::new()),
                ])
            });
            let widths =
                [Constraint::Fill(3), Constraint::Fill(2), Constraint::Length(8), Constraint::Length(5)];
            let head = vec!["key", "limit", ">refused", ">share"];
            ("keys refused most, 5 min".to_owned(), all.len(), head, rows.collect(), widths.to_vec())
        }
        Pane::Routes => {
            let all = state.routes();
            let rows = all.iter().skip(from).take(room);
            let rows = rows.map(|it| {
                Row::new([
                    Cell::new(format!("{} {}", it.method, it.path)),
                    right(data::requests(it), Style::new()),
                    right(number(it.refused), if it.refused > 0 { palette.bad() } else { palette.quiet() }),
                ])
            });
            let widths = [Constraint::Fill(1), Constraint::Length(8), Constraint::Length(8)];
            let head = vec!["route", ">requests", ">refused"];
            ("hot routes, 5 min".to_owned(), all.len(), head, rows.collect(), widths.to_vec())
        }
        Pane::Decisions => {
            let all = state.stream();
            let rows: Vec<_> = all.iter().skip(from).take(room).map(|it| decision(it, palette)).collect();
            let fixed =
                [Constraint::Length(8), Constraint::Length(12), Constraint::Fill(3), Constraint::Fill(2)];
            let mut head = vec!["at", "fate", "request", "limit"];
            let mut widths = fixed.to_vec();
            // The last column, so that a narrow window omits it.
            if area.width >= 60 {
                head.push("client");
                widths.push(Constraint::Fill(2));
            }
            ("decisions, newest first".to_owned(), all.len(), head, rows, widths)
        }
    };
    let is_focused = state.focus == pane;
    let style = if is_focused { Style::new().add_modifier(Modifier::BOLD) } else { palette.quiet() };
    let mark = if is_focused { "▶" } else { "─" };
    let place =
        if count == 0 { String::new() } else { format!(" {}/{} ", selected + 1, number(count as u64)) };
    let block = Block::new()
        .borders(Borders::TOP)
        .border_style(palette.quiet())
        .title(Line::styled(format!("{mark} {title} "), style))
        .title(Line::styled(place, palette.quiet()).right_aligned());
    let table = Table::new(rows, widths)
        .header(Row::new(head.into_iter().map(heading)).style(palette.quiet()))
        .column_spacing(1)
        .row_highlight_style(if is_focused {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        })
        .block(block);
    let mut at = TableState::default().with_selected((count > 0).then(|| selected - from));
    frame.render_stateful_widget(table, area, &mut at);
}

/// `>` marks a column of numbers.
fn heading(text: &str) -> Cell<'_> {
    match text.strip_prefix('>') {
        Some(text) => Cell::new(Line::raw(text).right_aligned()),
        None => Cell::new(text),
    }
}

fn right<'c>(text: String, style: Style) -> Cell<'c> {
    Cell::new(Line::from(Span::styled(text, style)).right_aligned())
}

fn limit(it: &data::Limit, palette: Palette) -> Row<'_> {
    let mode = match it.mode.0.as_str() {
        "enforce" => Style::new(),
        _ => palette.odd(),
    };
    let of = |count: Option<u64>, style: Style| match count.unwrap_or(0) {
        _ if !data::is_counted(it) => right("-".to_owned(), palette.quiet()),
        0 => right(number(0), palette.quiet()),
        some => right(number(some), style),
    };
    let left = it.remaining_min.map_or_else(|| "-".to_owned(), percent);
    let is_low = it.remaining_min.is_some_and(|left| left < 0.1);
    Row::new([
        Cell::new(it.name.0.as_str()),
        Cell::new(Span::styled(it.mode.0.as_str(), mode)),
        of(Some(data::refused(it)), palette.bad()),
        of(it.allowed, Style::new()),
        of(it.shadow_limited, palette.odd()),
        right(left, if is_low { palette.odd() } else { Style::new() }),
    ])
}

fn decision(it: &data::Decision, palette: Palette) -> Row<'_> {
    let style = if it.allowed { palette.good() } else { palette.bad() };
    Row::new([
        Cell::new(words::clock(&it.at.0)),
        Cell::new(Span::styled(words::fate(&it.fate.0), style)),
        Cell::new(format!("{} {}", it.method, it.path)),
        Cell::new(data::limit_and_tag(it)),
        Cell::new(or_empty(it.client.as_ref())),
    ])
}
