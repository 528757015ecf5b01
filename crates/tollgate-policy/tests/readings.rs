//! Limits, lists and exceptions under every reading of a path, compared with models of servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use tollgate_policy::path::{Readings, normal, without_dot_segments};
use tollgate_policy::{Call, Checks, Matched, PathSettings, Policy};

use crate::seeded::seeded;

/// Fixed, so that a failure is reproducible on every machine; printed on failure.
const SEED: u64 = 0x7265_6164_696e_6701;

/// Percent-decodes once; a `%` that begins no escape stays.
fn decoded(text: &[u8]) -> Vec<u8> {
    let hex = |byte: u8| char::from(byte).to_digit(16).map(|digit| u8::try_from(digit).unwrap());
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let escape = match text[at..] {
            [b'%', high, low, ..] => hex(high).zip(hex(low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        out.push(escape.unwrap_or(byte));
        at += if escape.is_some() { 3 } else { 1 };
    }
    out
}

type Segments = Vec<Vec<u8>>;

fn split(path: &[u8]) -> Segments {
    path.split(|byte| *byte == b'/').skip(1).map(<[u8]>::to_vec).collect()
}

fn merged(segments: Segments) -> Segments {
    segments.into_iter().filter(|it| !it.is_empty()).collect()
}

fn resolved(segments: Segments) -> Segments {
    let mut out = Segments::new();
    for segment in segments {
        match &segment[..] {
            b"." => {}
            b".." => drop(out.pop()),
            _ => out.push(segment),
        }
    }
    out
}

fn backslashed(path: &[u8]) -> Vec<u8> {
    path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect()
}

/// nginx: decodes, merges, resolves.
fn nginx(path: &[u8]) -> Segments {
    resolved(merged(split(&decoded(path))))
}

/// Werkzeug, uvicorn, Django: decode and split; a trailing slash is accepted.
fn wsgi(path: &[u8]) -> Segments {
    let mut segments = split(&decoded(path));
    if segments.last().is_some_and(Vec::is_empty) {
        segments.pop();
    }
    segments
}

/// Tomcat: removes parameters, decodes, treats backslashes as slashes, merges, resolves.
fn tomcat(path: &[u8]) -> Segments {
    let bare: Vec<_> =
        path.split(|it| *it == b'/').map(|it| it.split(|it| *it == b';').next().unwrap()).collect();
    resolved(merged(split(&backslashed(&decoded(&bare.join(&b'/'))))))
}

/// Servlet containers that keep `%2F` and backslashes.
fn jetty(path: &[u8]) -> Segments {
    let bare = path.split(|it| *it == b'/').map(|it| it.split(|it| *it == b';').next().unwrap().to_vec());
    resolved(merged(bare.collect())).iter().map(|it| decoded(it)).collect()
}

/// Node's `new URL(target, "http://host")`.
fn whatwg(path: &[u8]) -> Segments {
    let path = backslashed(path);
    let mut rest = &path[..];
    if rest.starts_with(b"//") {
        let name = rest.iter().position(|it| *it != b'/').unwrap_or(rest.len());
        rest = &rest[name..];
        let end = rest.iter().position(|it| *it == b'/');
        rest = end.map_or(&b"/"[..], |at| &rest[at..]);
    }
    let dotted = |it: Vec<u8>| match it.to_ascii_lowercase().as_slice() {
        b"%2e" => b".".to_vec(),
        b".%2e" | b"%2e." | b"%2e%2e" => b"..".to_vec(),
        _ => it,
    };
    let segments = resolved(split(rest).into_iter().map(dotted).collect());
    merged(segments).iter().map(|it| decoded(it)).collect()
}

/// IIS: decodes, takes backslashes for slashes, trims dots and blanks, resolves. Its listener
/// (http.sys) refuses control characters.
fn iis(path: &[u8]) -> Segments {
    if decoded(path).iter().any(u8::is_ascii_control) {
        return Segments::new();
    }
    let segments = split(&backslashed(&decoded(path))).into_iter().map(|mut it| {
        while !matches!(&it[..], b"." | b"..") && it.last().is_some_and(|byte| b". ".contains(byte)) {
            it.pop();
        }
        it
    });
    resolved(merged(segments.collect()))
}

/// Decoded, without tabs and line breaks, and up to a query or fragment.
fn reparsed(path: &[u8]) -> Vec<u8> {
    let path = decoded(path).into_iter().filter(|it| !matches!(it, b'\t' | b'\n' | b'\r'));
    path.take_while(|it| !matches!(it, b'?' | b'#')).collect()
}

/// `new URL(decodeURIComponent(target), "http://host").pathname`.
fn decoded_whatwg(path: &[u8]) -> Segments {
    let path = backslashed(&reparsed(path));
    let authority = path.starts_with(b"//").then(|| {
        let name = path.iter().position(|it| *it != b'/').unwrap_or(path.len());
        path[name..].iter().position(|it| *it == b'/').map_or(&b"/"[..], |at| &path[name + at..])
    });
    merged(resolved(split(authority.unwrap_or(&path))))
}

/// Python's `urlparse(unquote(target)).path`.
fn urlparse(path: &[u8]) -> Segments {
    let path = reparsed(path);
    let rest = path
        .strip_prefix(b"//")
        .map(|it| it.iter().position(|it| *it == b'/').map_or(&b"/"[..], |at| &it[at..]));
    let mut segments = split(rest.unwrap_or(&path));
    if let Some(last) = segments.last_mut() {
        last.truncate(last.iter().position(|it| *it == b';').unwrap_or(last.len()));
    }
    segments
}

/// The segments that a server routes a path by.
type Server = fn(&[u8]) -> Segments;

const SERVERS: [(&str, Server); 8] = [
    ("nginx", nginx),
    ("wsgi", wsgi),
    ("tomcat", tomcat),
    ("jetty", jetty),
    ("whatwg", whatwg),
    ("iis", iis),
    ("decoded_whatwg", decoded_whatwg),
    ("urlparse", urlparse),
];

fn policy() -> Policy {
    Policy::parse(
        "limits:\n\
         - {name: login, endpoint: /login, by: global, bucket: 3/hour}\n\
         - {name: admin, endpoint: /admin/**, by: global, bucket: 3/hour}\n\
         - {name: user, endpoint: '/users/{id}', by: 'path:id', bucket: 3/hour}\n",
    )
    .unwrap()
}

/// Returns the limit and key that must have been charged for a handler.
fn reached(segments: &Segments) -> Option<(&'static str, Option<String>)> {
    match segments.iter().map(Vec::as_slice).collect::<Vec<_>>().as_slice() {
        [b"login"] => Some(("login", None)),
        [b"admin", ..] => Some(("admin", None)),
        [b"users", id] if !id.is_empty() => Some(("user", Some(String::from_utf8_lossy(id).into_owned()))),
        _ => None,
    }
}

fn charged(policy: &Policy, path: &str) -> Vec<(String, String)> {
    let mut checks = Checks::new();
    assert_eq!(policy.match_request(&Call::new("GET", path), &mut checks), Matched::Applies);
    checks.iter().map(|it| (it.limit.name().to_owned(), it.key.display().to_string())).collect()
}

fn path() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/", "/", "/", "login", "login", "admin", "users", "7", "x", "..", ".", "%2e%2e", "%2f", "%2F",
        "%5c", "\\", ";", ";a=1", "%3b", "%20", "%252f", "%2561", "%6cogin", "LOGIN", ".", "%", "%09", "%0a",
        "%00", "%3f",
    ]);
    prop::collection::vec(piece, 0..9).prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    #![proptest_config(seeded(SEED, 20_000))]

    #[test]
    fn no_spelling_reaches_a_handler_past_its_limit(path in path()) {
        let policy = policy();
        let charged = charged(&policy, &path);
        // As received, and as a gateway that resolves dots forwards it.
        for sent in std::iter::once(path.clone()).chain(without_dot_segments(&path)) {
            for (name, server) in SERVERS {
                let Some((limit, id)) = reached(&server(sent.as_bytes())) else { continue };
                let found = charged.iter().any(|(known, key)| {
                    known == limit && id.as_ref().is_none_or(|id| *key == id.escape_debug().to_string() || key == id)
                });
                prop_assert!(found, "{name} takes {path} for {limit} {id:?}, charged {charged:?}, seed {SEED:#x}");
            }
        }
    }

    #[test]
    fn a_limit_is_charged_once_for_each_key_and_in_file_order(path in path()) {
        let charged = charged(&policy(), &path);
        let order = |name: &str| ["login", "admin", "user"].iter().position(|it| *it == name).unwrap();
        prop_assert!(charged.is_sorted_by_key(|(name, _)| order(name)), "{charged:?}");
        let mut once = charged.clone();
        once.dedup();
        prop_assert_eq!(&once, &charged);
    }

    #[test]
    fn every_reading_is_written_in_one_way(path in "[/.%25cCfF2;\\\\ abé]{0,16}") {
        let readings = Readings::of(&path, PathSettings::default());
        for (at, reading) in readings.iter().enumerate() {
            prop_assert!(reading.starts_with('/') && reading.is_ascii());
            prop_assert!(!readings.iter().take(at).any(|it| it == reading), "{path}: {reading} twice");
        }
        prop_assert_eq!(readings.iter().next().unwrap(), &*normal(&path));
    }
}

#[test]
fn spellings_seen_in_the_wild_match_the_limit() {
    let policy = policy();
    for path in [
        "/admin%2fx",
        "/admin%2Fx",
        "/admin%5cx",
        "/admin\\x",
        "/x/..\\admin",
        "/admin;v=1/x",
        "/admin;/x",
        "/admin%3b/x",
        "/%61dmin%2fx",
        "//admin/x",
        "/./admin/x",
        "/x/../admin/x",
        "/x%2f..%2fadmin%2fx",
        "/x/%2e%2e/admin",
        "/x/..;/admin",
        "/x/..;a=1/admin/x",
        "/x/.%2e;/admin",
        "/x/..%3b/admin",
        "/%2fadmin",
        "/%5cadmin",
        "/admin%2f",
        "/admin/",
        "/admin.",
        "/admin%20",
        "/admin%00",
        "/admin%0a",
        "/admin%3fx",
        "/admin%23x",
        "/adm%09in/x",
        "/ad%0Amin",
        "/a%0ddmin",
        "/x/.%09./admin",
        "/x/%2e%09%2e/admin",
        "/x/.%0a.%2fadmin",
        "/%0a/x/admin",
        "/%09%2fx/admin",
        "/x%00%2f..%2fadmin%3fj",
        "/a%00b%2f..%2f..%2fadmin%3fz",
        "/admin%00%3fj",
        "//host/admin/x",
        "/\\host/admin",
        "///host/admin",
        "/%u0061dmin",
        "/x%c0%afadmin/..%u002f../admin",
        "/admin//..",
        "/admin%c0%afx",
        "/x;a%2f..%2fb/../admin",
        "/x/..%5cadmin/y",
        "\\admin",
        "/;/admin",
        "/;x=1/admin",
        "/admin;%2f..",
        "/%20admin",
    ] {
        assert!(charged(&policy, path).iter().any(|(name, _)| name == "admin"), "{path}");
    }
    for path in
        ["/%2561dmin/x", "/admin%252fx", "/adminx", "/administrator", "/Admin/x", "/x/admin/y", "/admi/n"]
    {
        assert_eq!(charged(&policy, path), [], "{path}");
    }
}

#[test]
fn a_path_parameter_is_charged_under_the_key_of_every_reading() {
    let policy = policy();
    for path in [
        "/users/7;a",
        "/users/a%2f..%2f7",
        "/users/a;%2f..%2f7",
        "/users/7%2f",
        "/users/7%20",
        "/users/7.",
        "/users//7",
    ] {
        let charged = charged(&policy, path);
        assert!(charged.contains(&("user".into(), "7".into())), "{path}: {charged:?}");
    }
    assert_eq!(charged(&policy, "/users/a;%2f..%2f7").len(), 3, "the keys of three servers");
}

#[test]
fn an_exception_holds_only_under_every_reading() {
    let policy = Policy::parse(
        "allow: [{endpoint: [/healthz, /metrics/**]}]\ndeny: [{endpoint: /internal/**}]\n\
         limits: [{name: site, except: [/static/**, /], by: global, bucket: 3/hour}]",
    )
    .unwrap();
    let mut checks = Checks::new();
    for path in ["/healthz", "/healthz/", "/metrics", "/metrics/cpu", "/metrics/a%2fb"] {
        assert!(
            matches!(policy.match_request(&Call::new("GET", path), &mut checks), Matched::Allowed(_)),
            "{path}"
        );
    }
    for path in ["/static", "/static/a.css", "/static/a%2fb", "/static/a;v=1", "/"] {
        assert_eq!(policy.match_request(&Call::new("GET", path), &mut checks), Matched::Applies);
        assert!(checks.is_empty(), "{path}");
    }
    for path in [
        "/healthz/../login",
        "/login%2f..%2fhealthz",
        "/login/..;/healthz",
        "/login/..%2fhealthz",
        "//healthz",
        "/healthz.",
        "/metrics/..%2flogin",
        "/metrics/..;/login",
        "/metrics\\..\\login",
        "/static/..%2flogin",
        "/static/..;/login",
        "/healthz;/../login",
        "/healthz%2f..%2flogin",
        "/healthz%00/login",
        "/metrics/.%09./login",
        "//x/static",
        "/%2f",
        "/x%2f..",
    ] {
        assert_eq!(policy.match_request(&Call::new("GET", path), &mut checks), Matched::Applies, "{path}");
        assert_eq!(checks.len(), 1, "{path}");
    }
    for path in [
        "/internal",
        "/internal/x",
        "/x/..;/internal",
        "/internal%2fx",
        "/healthz/..%2finternal",
        "/internal;x",
    ] {
        assert!(
            matches!(policy.match_request(&Call::new("GET", path), &mut checks), Matched::Denied(_)),
            "{path}"
        );
    }
}

#[test]
fn a_limit_or_list_on_paths_says_nothing_about_descriptors() {
    let text = "allow: [{endpoint: /**}]\nlimits: [{descriptor: [user], bucket: 3/hour}]";
    let policy = Policy::parse(text).unwrap();
    let descriptor = tollgate_policy::Descriptor::new("edge", &[("user", "ann")]);
    let mut checks = Checks::new();
    assert_eq!(policy.match_descriptor(&descriptor, &mut checks), Matched::Applies);
    assert_eq!(checks.len(), 1);
}

#[test]
fn ambiguous_paths_are_refused_where_the_policy_says_so() {
    for setting in ["paths: refuse", "paths: {ambiguous: refuse}", "gateway: {paths: refuse}"] {
        let text = format!("{setting}\nlimits: [{{name: site, by: global, bucket: 3/hour}}]");
        let policy = Policy::parse(&text).unwrap();
        let mut checks = Checks::new();
        let mut matched = |path: &str| policy.match_request(&Call::new("GET", path), &mut checks);
        for path in ["/a", "/a/", "/a//b", "/a%20b", "/a.", "/.well-known/x", "/caf%C3%A9", "/100%25", "/"] {
            assert_eq!(matched(path), Matched::Applies, "{setting}: {path}");
        }
        for path in [
            "/a%2fb",
            "/a;b",
            "/a\\b",
            "/a%5cb",
            "/a/../b",
            "/a/%2e/b",
            "//a/b",
            "/a%00",
            "/a%3fb",
            "/a%c0%af",
            "/a%09b",
            "/a%0ab",
            "/a%0Db",
            "/a%252fb",
            "/x/%252e%252e/a",
            "/a%%32%66b",
        ] {
            assert_eq!(matched(path), Matched::AmbiguousPath, "{setting}: {path}");
        }
    }
}

#[test]
fn an_escape_is_decoded_once_unless_the_policy_refuses_what_a_second_decoding_would_change() {
    let limits = "limits: [{name: admin, endpoint: /admin/**, by: global, bucket: 3/hour}]";
    for path in ["/admin%252fx", "/x/%252e%252e/admin/x", "/%2561dmin/x"] {
        let matched = |setting: &str| {
            let policy = Policy::parse(&format!("paths: {setting}\n{limits}")).unwrap();
            let mut checks = Checks::new();
            let matched = policy.match_request(&Call::new("GET", path), &mut checks);
            (matched == Matched::AmbiguousPath, checks.len())
        };
        for (setting, is_refused) in [
            ("any", false),
            ("literal", false),
            ("decoded", false),
            ("refuse", true),
            ("{reading: decoded, ambiguous: refuse}", true),
        ] {
            assert_eq!(matched(setting), (is_refused, 0), "{setting}: {path}");
        }
    }
}

#[test]
fn a_declared_reading_is_the_only_one_that_limits_go_by() {
    let names = |reading: &str, path: &str| {
        let text = format!(
            "paths: {reading}\nlimits:\n- {{name: two, endpoint: '/a/{{b}}', by: global, bucket: 3/hour}}\n\
             - {{name: one, endpoint: '/{{a}}', by: global, bucket: 3/hour}}\n"
        );
        let policy = Policy::parse(&text).unwrap();
        charged(&policy, path).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    for (reading, path, expected) in [
        ("any", "/a%2fb", &["two", "one"][..]),
        ("literal", "/a%2fb", &["one"]),
        ("literal", "/a;/b", &[]),
        ("decoded", "/a%2fb", &["two"]),
        ("decoded", "/a;/b", &[]),
        ("servlet", "/a%2fb", &["two"]),
        ("servlet", "/a;/b", &["two"]),
        ("{reading: servlet, case: ignore}", "/A;x/B", &["two"]),
    ] {
        assert_eq!(names(reading, path), expected, "{reading}: {path}");
    }
}

#[test]
fn case_is_ignored_where_the_policy_says_so() {
    let policy = Policy::parse(
        "paths: {case: ignore}\nallow: [{endpoint: /HealthZ}]\nlimits:\n\
         - {name: login, endpoint: /Login/Caf%C3%A9, by: global, bucket: 3/hour}\n\
         - {name: user, endpoint: '/Users/{id}', by: 'path:id', bucket: 3/hour, overrides: {Ann: blocked}}\n",
    )
    .unwrap();
    for path in ["/login/caf%C3%A9", "/LOGIN/CAF%c3%89", "/login%2fcafé", "/x/..;/Login/CAFÉ"] {
        assert!(charged(&policy, path).iter().any(|(name, _)| name == "login"), "{path}");
    }
    assert_eq!(charged(&policy, "/USERS/Bob"), charged(&policy, "/users/bOB"));
    let mut checks = Checks::new();
    assert!(matches!(policy.match_request(&Call::new("GET", "/healthz"), &mut checks), Matched::Allowed(_)));
    assert!(matches!(
        policy.match_request(&Call::new("GET", "/users/ANN"), &mut checks),
        Matched::Blocked(_)
    ));
    let bob = policy.key(&policy.limits()[1], &["BOB"]);
    policy.match_request(&Call::new("GET", "/users/bob"), &mut checks);
    assert_eq!(bob, Some(checks[0].key.clone()), "operators may type it in any case");
}

#[test]
fn a_path_with_too_many_readings_is_refused() {
    let policy = policy();
    let mut checks = Checks::new();
    let hostile = format!("/{}", "a;%2f%5c%3b%00%u002f\\".repeat(500));
    assert_eq!(policy.match_request(&Call::new("GET", &hostile), &mut checks), Matched::AmbiguousPath);
    let long = format!("/proxy/https%3A%2F%2Fexample.com%2F{}", "x".repeat(15_000));
    assert_eq!(policy.match_request(&Call::new("GET", &long), &mut checks), Matched::Applies);
}
