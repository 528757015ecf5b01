//! The table of commands: name, arity and description.

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    ClThrottle,
    Throttle,
    Gcra,
    Check,
    Peek,
    Acquire,
    Release,
    Renew,
    Refund,
    Call,
    Ping,
    Echo,
    Hello,
    Auth,
    Quit,
    Reset,
    Select,
    Client,
    Commands,
    Info,
    Config,
    Time,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    /// Anything else.
    Unknown,
}

/// The properties of a command.
pub(crate) struct CommandInfo {
    pub(crate) command: Command,
    pub(crate) name: &'static str,
    /// The exact number of arguments including the name; if negative, the minimum.
    pub(crate) arity: i8,
    /// The index of the key argument; zero if there is no key.
    pub(crate) key: u8,
    pub(crate) summary: &'static str,
}

const fn info(
    command: Command,
    name: &'static str,
    arity: i8,
    key: u8,
    summary: &'static str,
) -> CommandInfo {
    CommandInfo { command, name, arity, key, summary }
}

/// All commands, in the order of [`Command`].
pub(crate) const COMMANDS: [CommandInfo; 27] = [
    // Reports a wrong number of arguments itself.
    info(Command::ClThrottle, "cl.throttle", -1, 1, "Spends units of a key, as redis-cell does"),
    info(Command::Throttle, "throttle", -5, 1, "Spends units of a key, as throttlecrab does"),
    info(Command::Gcra, "gcra", -5, 1, "Spends units of a key, as Redis proposed it"),
    info(Command::Check, "tg.check", -2, 2, "Spends units of a key of a limit in the policy"),
    info(Command::Peek, "tg.peek", -2, 2, "Says how a key of a limit in the policy stands"),
    info(Command::Acquire, "tg.acquire", -2, 2, "Takes a slot of a limit in the policy"),
    info(Command::Release, "tg.release", -3, 2, "Gives a slot back"),
    info(Command::Renew, "tg.renew", -3, 2, "Starts the lease of a slot again"),
    info(Command::Refund, "tg.refund", -2, 2, "Gives units or a place in a queue back"),
    info(Command::Call, "tg.call", 3, 0, "A call of another node, for keys that this node owns"),
    info(Command::Ping, "ping", -1, 0, "Returns the server's liveliness response"),
    info(Command::Echo, "echo", 2, 0, "Returns the given string"),
    info(Command::Hello, "hello", -1, 0, "Handshakes with the server"),
    info(Command::Auth, "auth", -2, 0, "Authenticates the connection"),
    info(Command::Quit, "quit", -1, 0, "Closes the connection"),
    info(Command::Reset, "reset", 1, 0, "Resets the connection"),
    info(Command::Select, "select", 2, 0, "Changes the selected database"),
    info(Command::Client, "client", -2, 0, "What is known of this connection"),
    info(Command::Commands, "command", -1, 0, "Returns information about the commands"),
    info(Command::Info, "info", -1, 0, "Returns information about the server"),
    info(Command::Config, "config", -2, 0, "Nothing can be configured here"),
    info(Command::Time, "time", 1, 0, "Returns the server time"),
    info(Command::Multi, "multi", 1, 0, "Starts a transaction"),
    info(Command::Exec, "exec", 1, 0, "Executes all commands in a transaction"),
    info(Command::Discard, "discard", 1, 0, "Discards a transaction"),
    info(Command::Watch, "watch", -2, 0, "Accepted: nothing can be watched"),
    info(Command::Unwatch, "unwatch", 1, 0, "Accepted: nothing can be watched"),
];

/// The number of commands, with all unknown commands as one more.
pub(crate) const KINDS: usize = COMMANDS.len() + 1;

impl Command {
    /// Returns the command with this name, ignoring case.
    #[inline]
    pub(crate) fn named(name: &[u8]) -> Self {
        about_named(name).map_or(Self::Unknown, |about| about.command)
    }

    /// The metric label of the command.
    pub(crate) fn label(self) -> &'static str {
        COMMANDS.get(self as usize).map_or("unknown", |about| about.name)
    }

    /// Whether the command accepts this number of arguments, including its name.
    #[inline]
    pub(crate) fn takes(self, words: usize) -> bool {
        let Some(about) = COMMANDS.get(self as usize) else { return true };
        let wanted = usize::from(about.arity.unsigned_abs());
        if about.arity < 0 { words >= wanted } else { words == wanted }
    }

    /// Whether the command is executed immediately inside a transaction.
    pub(crate) const fn is_never_queued(self) -> bool {
        matches!(self, Self::Multi | Self::Exec | Self::Discard | Self::Watch | Self::Quit | Self::Reset)
    }

    /// Whether the command is permitted before authentication.
    pub(crate) const fn is_allowed_unauthenticated(self) -> bool {
        matches!(self, Self::Hello | Self::Auth | Self::Quit | Self::Reset)
    }
}

/// Returns the properties of the command with this name.
pub(crate) fn about_named(name: &[u8]) -> Option<&'static CommandInfo> {
    COMMANDS.iter().find(|about| about.name.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_order_of_the_enum() {
        for (at, about) in COMMANDS.iter().enumerate() {
            assert_eq!(about.command as usize, at, "{}", about.name);
            assert_eq!(Command::named(about.name.to_uppercase().as_bytes()), about.command);
            assert_eq!(about.command.label(), about.name);
        }
        assert_eq!(Command::Unknown as usize, COMMANDS.len());
        assert_eq!(Command::named(b"get"), Command::Unknown);
    }
}
