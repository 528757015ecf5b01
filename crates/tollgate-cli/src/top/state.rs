//! The state of the screen and its key bindings, without a terminal or a server.

use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::data::{Decision, Key, Limit, Route, or_empty, refused};
use super::poll::Snapshot;

/// The maximum number of decisions in the scrollback.
const MAX_DECISIONS: usize = 1_000;
const MAX_FILTER_BYTES: usize = 60;

/// A pane that can have the focus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Limits,
    Keys,
    Routes,
    Decisions,
}

impl Pane {
    pub(super) const ALL: [Self; 4] = [Self::Limits, Self::Keys, Self::Routes, Self::Decisions];
}

/// The order of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Refusals,
    Allowed,
    Left,
    Name,
}

impl Sort {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Refusals => "by refusals",
            Self::Allowed => "by traffic",
            Self::Left => "by what is left",
            Self::Name => "by name",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Refusals => Self::Allowed,
            Self::Allowed => Self::Left,
            Self::Left => Self::Name,
            Self::Name => Self::Refusals,
        }
    }
}

/// A popup in front of the panes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Popup {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    pub(super) scroll: u16,
}

impl Popup {
    pub(super) fn new(title: impl Into<String>, lines: Vec<String>) -> Self {
        Self { title: title.into(), lines, scroll: 0 }
    }
}

/// The effect of a key on other threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    Redraw,
    /// Requests the explanation of a decision.
    Explain(String),
    /// Requests a limit with its last minutes.
    Show(String),
}

const HELP: &str = "\
q  Ctrl-C       quit
Tab  Shift-Tab  next pane, pane before
Up Down  j k    move
PgUp PgDn       move by ten
Home End  g G   first, last
Enter           explain a decision, show a limit
/               filter all panes; Enter keeps it, Esc ends it
s               sort the limits by something else
p               pause, go on
?               this";

/// The state of the screen.
pub(super) struct State {
    pub(super) url: String,
    pub(super) look: Snapshot,
    /// The newest first.
    pub(super) decisions: VecDeque<Decision>,
    /// The reason why the server does not respond.
    pub(super) trouble: Option<String>,
    pub(super) focus: Pane,
    selected: [usize; 4],
    pub(super) filter: String,
    pub(super) typing: bool,
    pub(super) sort: Sort,
    pub(super) paused: bool,
    pub(super) popup: Option<Popup>,
}

impl State {
    pub(super) fn new(url: String, first: Snapshot) -> Self {
        let mut state = Self {
            url,
            look: Snapshot::default(),
            decisions: VecDeque::new(),
            trouble: None,
            focus: Pane::Limits,
            selected: [0; 4],
            filter: String::new(),
            typing: false,
            sort: Sort::Refusals,
            paused: false,
            popup: None,
        };
        state.see(first);
        state
    }

    /// Applies a snapshot. A restarted server numbers its decisions from one again.
    pub(super) fn see(&mut self, mut look: Snapshot) {
        self.trouble = None;
        if self.paused {
            return;
        }
        if look.overview.started_at != self.look.overview.started_at {
            self.decisions.clear();
        }
        let seen = self.decisions.front().map(|it| it.seq);
        let mut fresh = std::mem::take(&mut look.decisions.decisions);
        fresh.retain(|it| seen.is_none_or(|seen| it.seq > seen));
        let matching = fresh.iter().filter(|it| self.takes_decision(it)).count();
        // A selection within the list stays on its row.
        let selected = &mut self.selected[Pane::Decisions as usize];
        if *selected > 0 {
            *selected += matching;
        }
        for decision in fresh {
            self.decisions.push_front(decision);
        }
        self.decisions.truncate(MAX_DECISIONS);
        self.look = look;
    }

    pub(super) fn limits(&self) -> Vec<&Limit> {
        let mut limits: Vec<_> =
            self.look.stats.limits.iter().filter(|it| self.takes(&[&it.name.0])).collect();
        let left = |it: &Limit| it.remaining_min.unwrap_or(2.0);
        match self.sort {
            // Shadow refusals rank after refusals.
            Sort::Refusals => limits.sort_by_key(|it| std::cmp::Reverse((refused(it), it.shadow_limited))),
            Sort::Allowed => limits.sort_by_key(|it| std::cmp::Reverse(it.allowed)),
            Sort::Left => limits.sort_by(|one, other| left(one).total_cmp(&left(other))),
            Sort::Name => limits.sort_by(|one, other| one.name.cmp(&other.name)),
        }
        limits
    }

    pub(super) fn keys(&self) -> Vec<&Key> {
        self.look.top.keys.iter().filter(|it| self.takes(&[&it.limit.0, &it.key.0, &it.tag.0])).collect()
    }

    pub(super) fn routes(&self) -> Vec<&Route> {
        self.look.top.routes.iter().filter(|it| self.takes(&[&it.method.0, &it.path.0])).collect()
    }

    pub(super) fn stream(&self) -> Vec<&Decision> {
        self.decisions.iter().filter(|it| self.takes_decision(it)).collect()
    }

    fn takes_decision(&self, it: &Decision) -> bool {
        let [client, limit, key, tag] =
            [&it.client, &it.limit, &it.key, &it.tag].map(|text| or_empty(text.as_ref()));
        self.takes(&[&it.id.0, &it.method.0, &it.path.0, &it.fate.0, client, limit, key, tag])
    }

    fn takes(&self, texts: &[&str]) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        let wanted = self.filter.to_lowercase();
        texts.iter().any(|it| it.to_lowercase().contains(&wanted))
    }

    fn count(&self, pane: Pane) -> usize {
        match pane {
            Pane::Limits => self.limits().len(),
            Pane::Keys => self.keys().len(),
            Pane::Routes => self.routes().len(),
            Pane::Decisions => self.stream().len(),
        }
    }

    /// Returns the selected row, clamped to the list.
    pub(super) fn selected(&self, pane: Pane) -> usize {
        self.selected[pane as usize].min(self.count(pane).saturating_sub(1))
    }

    fn go(&mut self, by: isize) {
        if let Some(popup) = &mut self.popup {
            let by = i16::try_from(by).unwrap_or(if by < 0 { i16::MIN } else { i16::MAX });
            let last = u16::try_from(popup.lines.len().saturating_sub(1)).unwrap_or(u16::MAX);
            popup.scroll = popup.scroll.saturating_add_signed(by).min(last);
            return;
        }
        let last = self.count(self.focus).saturating_sub(1);
        let next = self.selected(self.focus).saturating_add_signed(by).min(last);
        self.selected[self.focus as usize] = next;
    }

    fn turn(&mut self, by: usize) {
        let at = (self.focus as usize + by) % Pane::ALL.len();
        self.focus = Pane::ALL[at];
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (key.code, with_control) {
            (KeyCode::Char('c'), true) => return Action::Quit,
            (KeyCode::Char('l'), true) => return Action::Redraw,
            (_, true) => return Action::Nothing,
            _ => {}
        }
        if self.typing {
            self.letter(key.code);
            return Action::Nothing;
        }
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-10),
            KeyCode::PageDown => self.go(10),
            KeyCode::Home | KeyCode::Char('g') => self.go(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.go(isize::MAX),
            // A popup takes only the keys that close or scroll it.
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | '?') if self.popup.is_some() => {
                self.popup = None;
            }
            _ if self.popup.is_some() => {}
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(3),
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('?') => {
                self.popup = Some(Popup::new("help", HELP.lines().map(str::to_owned).collect()));
            }
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Enter => return self.open(),
            _ => {}
        }
        Action::Nothing
    }

    fn letter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(char) if !char.is_control() && self.filter.len() < MAX_FILTER_BYTES => {
                self.filter.push(char);
            }
            _ => {}
        }
    }

    /// Opens the selected row.
    fn open(&mut self) -> Action {
        let at = self.selected(self.focus);
        let wish = match self.focus {
            Pane::Decisions => self.stream().get(at).map(|it| Action::Explain(it.id.0.clone())),
            Pane::Limits => self.limits().get(at).map(|it| Action::Show(it.name.0.clone())),
            Pane::Keys | Pane::Routes => None,
        };
        let Some(wish) = wish else { return Action::Nothing };
        self.popup = Some(Popup::new("asking", vec!["one moment".to_owned()]));
        wish
    }

    /// Shows the requested content, unless the popup was closed.
    pub(super) fn answer(&mut self, title: String, lines: Vec<String>) {
        if self.popup.is_some() {
            self.popup = Some(Popup::new(title, lines));
        }
    }
}
