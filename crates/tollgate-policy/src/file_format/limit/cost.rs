//! The cost of a request: `cost: 5`, `cost: header:X-Cost`, `cost: body:1KB`, or
//! `cost: {reserve: 500, settle: response:X-Tokens-Used}`.

use std::num::NonZeroU64;

use tollgate_core::Span;
use tollgate_document::{
    Kind, Located, Mistake, Node, Problems, Words, byte_count, nearest, parse_span, short, whole_number,
};

use super::values::parsed;
use crate::cost::{Cost, Settle};
use crate::source::header_name;

pub(crate) const WORDS: Words = Words {
    section: "`cost`",
    known: &["reserve", "settle"],
    synonyms: &[
        ("reserve", &["estimate", "before", "request", "hold"]),
        ("settle", &["after", "actual", "final", "charge"]),
        ("settle: response:NAME", &["response"]),
        ("settle: json:NAME", &["json"]),
        ("settle: time:10ms", &["time"]),
    ],
};

/// The cost of a limit, as written.
#[derive(Clone, Debug)]
pub(crate) struct CostText {
    /// The cost that is charged on arrival; `None` means one.
    pub(crate) reserve: Option<Located<Cost>>,
    pub(crate) settle: Option<Located<Settle>>,
}

const COSTS: &str = "a whole number, `header:NAME` or `body:1KB`";
const SETTLES: &str = "it can be response:NAME (a header of the response), json:NAME.NAME (a number in its JSON) or time:10ms (its duration)";
/// The maximum depth of a JSON path to a cost.
const MAX_MEMBERS: usize = 16;
const MAX_MEMBER_BYTES: usize = 64;
/// The maximum unit of time in which a cost is measured.
const MAX_SETTLE_TIME: Span = Span::from_hours(1);

pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Located<CostText>> {
    let text = if matches!(node.kind, Kind::Map(_)) {
        let fields = node.fields(&WORDS, problems)?;
        if !fields.mentions("settle") {
            problems
                .error(node.place, "`cost` does not say how it is settled")
                .label("`settle` is missing")
                .help("a cost that is known on arrival is not a map: `cost: 5`")
                .help(SETTLES);
        }
        let reserve = fields.get("reserve").map(|it| parsed(it, "`reserve`", cost, problems));
        let settle = fields.get("settle").map(|it| parsed(it, "`settle`", settle, problems));
        CostText { reserve: reserve.flatten(), settle: settle.flatten() }
    } else {
        CostText { reserve: Some(parsed(node, "`cost`", cost, problems)?), settle: None }
    };
    Some(Located::new(text, node.place))
}

/// Parses a cost that is known on arrival.
fn cost(text: &str) -> Result<Cost, Mistake> {
    let unknown = || Mistake::new(format!("`{}` is not a cost", short(text)));
    match text.split_once(':') {
        Some(("header", name)) => {
            return header_name(name).map(Cost::Header).map_err(|it| it.at(7..text.len()));
        }
        Some(("body", size)) => return body(size).map(Cost::Body).map_err(|it| it.at(5..text.len())),
        Some(("response" | "json" | "time", _)) => {
            return Err(Mistake::new(format!("`{}` is known only after the request", short(text)))
                .meant(format!("{{settle: {}}}", short(text)))
                .help("`reserve` beside `settle` is charged on arrival; its default is 1"));
        }
        Some((kind, rest)) => {
            let mistake = unknown().at(0..kind.len()).help(format!("it is {COSTS}"));
            return Err(match nearest(kind, ["header", "body"]) {
                Some(meant) => mistake.meant(format!("{meant}:{}", short(rest))),
                None => mistake,
            });
        }
        None => {}
    }
    match whole_number(text) {
        Some(0) => Err(Mistake::new("a cost of zero would admit every request")
            .label("at least 1")
            .help("`mode: off` switches a limit off")),
        Some(cost) => Ok(Cost::Fixed(cost)),
        None if text == "body" => Err(unknown().meant("body:1KB").help("one for each started 1,024 bytes")),
        None => Err(unknown().label(COSTS)),
    }
}

/// Parses the block size of a cost by body length.
fn body(size: &str) -> Result<NonZeroU64, Mistake> {
    let mistake = || {
        let examples = "a number of bytes that cost one, such as body:1KB, body:64KiB or body:1";
        Mistake::new(format!("`{}` is not a number of bytes", short(size))).help(examples)
    };
    let bytes = byte_count(size).ok_or_else(mistake)?;
    NonZeroU64::new(bytes).ok_or_else(|| mistake().label("at least 1"))
}

/// Parses the source of a final cost.
fn settle(text: &str) -> Result<Settle, Mistake> {
    let unknown = || Mistake::new(format!("a cost is not settled by `{}`", short(text))).help(SETTLES);
    let Some((kind, name)) = text.split_once(':') else {
        return Err(match text {
            "response" | "header" | "trailer" => {
                unknown().label("the name is missing: write `response:NAME`")
            }
            "json" | "body" => unknown().label("the name is missing: write `json:usage.total_tokens`"),
            "time" | "duration" => unknown().meant("time:10ms"),
            _ if whole_number(text).is_some() => {
                unknown().label(format!("known beforehand: did you mean `reserve: {}`?", short(text)))
            }
            _ => unknown(),
        });
    };
    let after = kind.len() + 1;
    match kind {
        "response" => header_name(name)
            .map(|name| Settle::Response((*name).into()))
            .map_err(|it| it.at(after..text.len())),
        "json" => members(name).map(|path| Settle::Json(path.into())).map_err(|it| it.at(after..text.len())),
        "time" => time(name).map(Settle::Time).map_err(|it| it.after(after)),
        "header" | "trailer" => {
            let mistake = unknown().at(0..kind.len()).meant(format!("response:{}", short(name)));
            Err(if kind == "header" {
                mistake.help("`header:` reads the request, which the client controls")
            } else {
                mistake
            })
        }
        _ => {
            let mistake = unknown().at(0..kind.len());
            Err(match nearest(kind, ["response", "json", "time"]) {
                Some(meant) => mistake.meant(format!("{meant}:{}", short(name))),
                None => mistake,
            })
        }
    }
}

/// Parses a path to a number, from the outermost member on.
fn members(path: &str) -> Result<Vec<Box<str>>, Mistake> {
    let is_member = |name: &str| {
        let fits = |it: u8| it.is_ascii_alphanumeric() || b"_-$@".contains(&it);
        (1..=MAX_MEMBER_BYTES).contains(&name.len()) && name.bytes().all(fits)
    };
    let names: Vec<&str> = path.split('.').collect();
    if names.len() <= MAX_MEMBERS && names.iter().all(|name| is_member(name)) && names[0] != "$" {
        return Ok(names.into_iter().map(Into::into).collect());
    }
    let message = if path.is_empty() {
        "the path to the number is missing".to_owned()
    } else {
        format!("`{}` does not lead to a number in JSON", short(path))
    };
    let mistake = Mistake::new(message).help(
        "names of members with dots between them, such as usage.total_tokens: letters, digits, `_`, `-`, `$` and `@`; lists are not searched",
    );
    // Accepts the prefixes of JSONPath and JSON Pointer for the suggestion.
    let meant = path.trim_start_matches(['$', '.', '/']).replace('/', ".");
    Err(if meant != path && meant.split('.').all(is_member) {
        mistake.meant(format!("json:{meant}"))
    } else {
        mistake
    })
}

/// Parses the interval of a cost by time.
fn time(text: &str) -> Result<Span, Mistake> {
    let help = "a length of time that costs one, 1ms to 1h: time:10ms";
    let unit = text.trim_start_matches(['0', '_']);
    let is_zero = unit != text && !unit.starts_with(|it: char| it.is_ascii_digit());
    let wrong =
        |message: String, label: &str| Err(Mistake::new(message).at(0..text.len()).label(label).help(help));
    match parse_span(text) {
        Ok(each) if each <= MAX_SETTLE_TIME => Ok(each),
        Ok(_) => wrong(format!("`{}` is too long to count a cost by", short(text)), "at most 1h"),
        Err(_) if is_zero => wrong(format!("`{}` is zero", short(text)), "at least 1ms"),
        Err(_) if whole_number(text).is_some() => wrong(
            format!("`{}` is not a length of time", short(text)),
            &format!("did you mean `time:{}ms`?", short(text)),
        ),
        Err(mistake) => Err(mistake),
    }
}
