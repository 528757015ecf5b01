//! Takes over the terminal, draws on it, and always restores it.
//!
//! Besides the drawing thread, there are threads for keys, signals and requests to the server, so that
//! a slow server does not block keys.

use std::panic;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event as Input};
use tokio::signal::unix::{SignalKind, signal};
use tollgate_daemon::Failure;
use tollgate_daemon::io_error::{Attempt, reason};

use super::draw::{Palette, draw};
use super::poll::{Poll, Snapshot};
use super::state::{Action, State};
use super::words;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// An event for the drawing thread.
enum Event {
    Input(Input),
    /// A snapshot, or the reason why there is none.
    Looked(Result<Box<Snapshot>, Failure>),
    /// The content that Enter requested.
    Explained {
        title: String,
        lines: Result<Vec<String>, Failure>,
    },
    /// A signal, or the end of input, with the exit status for the shell.
    End(u8),
}

/// Shows the screen until the user quits.
pub(super) fn show(poll: Poll, first: Snapshot, palette: Palette) -> Result<ExitCode, Failure> {
    let mut state = State::new(poll.url(), first);
    let (events, happened) = mpsc::channel();
    let (wishes, wished) = mpsc::channel();
    let mut screen = Screen::take()?;
    watch_signals(events.clone())?;
    watch_keys(events.clone());
    thread::spawn(move || ask(&poll, &wished, &events));
    loop {
        let drawn = screen.0.draw(|frame| draw(frame, &state, palette));
        drawn.map_err(|error| Failure::io("cannot draw on this terminal", &error, Attempt::Other))?;
        // All senders are gone, so no further event can occur.
        let Ok(event) = happened.recv() else { return Ok(ExitCode::SUCCESS) };
        match event {
            Event::Input(Input::Key(key)) => match state.key(key) {
                Action::Quit => return Ok(ExitCode::SUCCESS),
                Action::Redraw => drop(screen.0.clear()),
                Action::Nothing => {}
                wish => drop(wishes.send(wish)),
            },
            Event::Input(_) => {}
            Event::Looked(Ok(look)) => state.see(*look),
            Event::Looked(Err(failure)) => state.trouble = Some(one_line(&failure)),
            Event::Explained { title, lines: Ok(lines) } => state.answer(title, lines),
            Event::Explained { title, lines: Err(failure) } => {
                state.answer(title, failure.to_string().lines().map(str::to_owned).collect());
            }
            Event::End(code) => return Ok(ExitCode::from(code)),
        }
    }
}

/// Returns the first sentence of an error, for the header.
fn one_line(failure: &Failure) -> String {
    let text = failure.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

/// The terminal in raw mode, restored on drop.
struct Screen(ratatui::DefaultTerminal);

impl Screen {
    fn take() -> Result<Self, Failure> {
        // Installs a panic hook that restores the terminal before the message is printed.
        let terminal = ratatui::try_init().map_err(|error| {
            Failure::with_help(
                format_args!("cannot use this terminal: {}", reason(&error, Attempt::Other)),
                "`--once` needs none",
            )
        })?;
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            hook(info);
            // On any thread, because no thread may draw on a restored terminal.
            std::process::exit(101);
        }));
        Ok(Self(terminal))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn watch_keys(events: Sender<Event>) {
    thread::spawn(move || {
        while let Ok(input) = event::read() {
            if events.send(Event::Input(input)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::End(1));
    });
}

/// Restores the terminal before a signal ends the program.
fn watch_signals(events: Sender<Event>) -> Result<(), Failure> {
    let failed = |error| Failure::io("cannot watch for signals", &error, Attempt::Other);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    let watched = {
        let _inside = runtime.enter();
        let watched = |kind| signal(kind).map_err(failed);
        (watched(SignalKind::interrupt())?, watched(SignalKind::terminate())?, watched(SignalKind::hangup())?)
    };
    thread::spawn(move || {
        let (mut interrupt, mut terminate, mut hangup) = watched;
        // 128 plus the number of the signal, as shells report it.
        let code = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
                _ = hangup.recv() => 129,
            }
        });
        let _ = events.send(Event::End(code));
    });
    Ok(())
}

/// Polls once a second, and handles requests of the user in between.
fn ask(poll: &Poll, wished: &Receiver<Action>, events: &Sender<Event>) {
    loop {
        let event = match wished.recv_timeout(POLL_INTERVAL) {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => Event::Looked(poll.look().map(Box::new)),
            Ok(Action::Explain(id)) => {
                Event::Explained { lines: poll.explain(&id), title: format!("decision {id}") }
            }
            Ok(Action::Show(name)) => {
                let lines = poll.limit(&name).map(|it| match it {
                    Some(limit) => words::limit(&limit),
                    None => vec!["the policy has no such limit any more".to_owned()],
                });
                Event::Explained { lines, title: format!("limit {name}") }
            }
            Ok(Action::Nothing | Action::Quit | Action::Redraw) => continue,
        };
        if events.send(event).is_err() {
            return;
        }
    }
}
