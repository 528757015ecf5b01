//! Colours, by what they stand for.
//!
//! Lines of contestants are broken differently too, for paper and for lines that lie on each other.
//!
//! Invariant: people who see fewer colours can tell them apart, on light and on dark, and tell them from the page. Held by
//! `tests::colours`.

use std::fmt::Write;

use super::Role;

/// What a shape is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// Words that are read first.
    Text,
    /// Words beside.
    Soft,
    /// Lines to measure by.
    Grid,
    /// Lines that mean something: a limit, a border.
    Mark,
    /// What a role stands for.
    Role(Role),
}

/// A colour as three numbers.
pub(super) type Rgb = (u8, u8, u8);

const CONTESTANTS: [(Rgb, Rgb); 7] = [
    ((0x24, 0x57, 0xb8), (0x6c, 0x86, 0xe6)),
    ((0xdd, 0x7a, 0x00), (0xd9, 0x62, 0x2e)),
    ((0x11, 0x9a, 0x72), (0x3f, 0xdb, 0xa6)),
    ((0xb4, 0x78, 0xbd), (0xb3, 0x73, 0x9a)),
    ((0x6e, 0x3a, 0x0c), (0xff, 0xdb, 0x5c)),
    ((0x1f, 0x26, 0x30), (0xd5, 0xe6, 0xf7)),
    ((0x4b, 0x00, 0x69), (0x96, 0x00, 0xff)),
];

const DASHES: [&[f32]; 7] =
    [&[], &[7.0, 3.0], &[2.0, 2.5], &[9.0, 3.0, 2.0, 3.0], &[4.0, 2.5], &[12.0, 3.0], &[6.0, 2.0, 1.5, 2.0]];

impl Ink {
    /// On light, and on dark.
    pub(super) const fn colours(self) -> (Rgb, Rgb) {
        match self {
            Self::Text => ((0x17, 0x1b, 0x22), (0xe4, 0xe8, 0xee)),
            Self::Soft => ((0x5a, 0x64, 0x73), (0x96, 0xa1, 0xb2)),
            Self::Grid => ((0xe1, 0xe4, 0xea), (0x25, 0x2c, 0x37)),
            Self::Mark => ((0x74, 0x46, 0xc2), (0xb7, 0x95, 0xff)),
            Self::Role(Role::Offered) => ((0xa9, 0xb3, 0xc1), (0x5d, 0x69, 0x7a)),
            Self::Role(Role::Admitted) => ((0x4f, 0x86, 0xd6), (0x5a, 0x8f, 0xdc)),
            Self::Role(Role::Refused) => ((0xd9, 0x43, 0x2e), (0xf0, 0x60, 0x4b)),
            Self::Role(Role::Contestant(which)) => CONTESTANTS[which as usize % CONTESTANTS.len()],
        }
    }

    /// How its lines are broken: drawn, left out, drawn, …
    pub(super) const fn dashes(self) -> &'static [f32] {
        match self {
            Self::Mark => &[5.0, 4.0],
            Self::Role(Role::Contestant(which)) => DASHES[which as usize % DASHES.len()],
            _ => &[],
        }
    }

    /// The class that gives a shape its colour.
    pub(super) fn class(self) -> &'static str {
        const NUMBERED: [&str; 7] = ["tg-c0", "tg-c1", "tg-c2", "tg-c3", "tg-c4", "tg-c5", "tg-c6"];
        match self {
            Self::Text => "tg-text",
            Self::Soft => "tg-soft",
            Self::Grid => "tg-grid",
            Self::Mark => "tg-mark",
            Self::Role(Role::Offered) => "tg-offered",
            Self::Role(Role::Admitted) => "tg-admitted",
            Self::Role(Role::Refused) => "tg-refused",
            Self::Role(Role::Contestant(which)) => NUMBERED[which as usize % NUMBERED.len()],
        }
    }

    /// Of the 256 colours of a terminal: shades that are legible on black and on white.
    pub(super) const fn terminal(self) -> u8 {
        const CONTESTANTS: [u8; 7] = [69, 208, 42, 176, 130, 250, 99];
        match self {
            Self::Text => 7,
            Self::Soft | Self::Grid => 244,
            Self::Mark => 141,
            Self::Role(Role::Offered) => 246,
            Self::Role(Role::Admitted) => 68,
            Self::Role(Role::Refused) => 203,
            Self::Role(Role::Contestant(which)) => CONTESTANTS[which as usize % CONTESTANTS.len()],
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        let roles = [Role::Offered, Role::Admitted, Role::Refused];
        let contestants = (0..7).map(Role::Contestant);
        [Self::Text, Self::Soft, Self::Grid, Self::Mark]
            .into_iter()
            .chain(roles.into_iter().chain(contestants).map(Self::Role))
    }
}

/// `#rrggbb`.
fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Rules for a picture that stands alone: dark where the reader's screen is.
pub(super) fn rules_alone() -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    for ink in Ink::all() {
        let _ = write!(light, ".{}{{color:{}}}", ink.class(), hex(ink.colours().0));
        let _ = write!(dark, ".{}{{color:{}}}", ink.class(), hex(ink.colours().1));
    }
    format!("{light}@media screen and (prefers-color-scheme:dark){{{dark}}}")
}

/// Rules for pictures in a page, which says with `color-scheme` whether it is light or dark.
pub(crate) fn rules_within() -> String {
    let mut rules = String::new();
    for ink in Ink::all() {
        let (light, dark) = ink.colours();
        let _ = write!(rules, ".{}{{color:light-dark({},{})}}", ink.class(), hex(light), hex(dark));
    }
    rules
}
