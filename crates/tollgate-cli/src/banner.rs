//! The start-up banner: the addresses and the limits in force.

use std::fmt::{Display, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollgate::Policy;
use tollgate::policy::{Limit, Mode};
use tollgate_daemon::configuration::{Configuration, Inputs};
use tollgate_daemon::{Addresses, ListenerAddress};

use crate::arguments::DEFAULT_API;
use crate::client::rows;

/// The maximum number of limits that are listed.
const MAX_SHOWN_LIMITS: usize = 20;

/// Returns the start-up text. `in_force` is the policy with saved overrides applied.
pub(crate) fn banner(
    inputs: &Inputs,
    configuration: &Configuration,
    in_force: &Policy,
    addresses: &Addresses,
    outbound: &[(String, SocketAddr)],
) -> String {
    let mut out = format!("tollgate {}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, what: &dyn Display| {
        let _ = writeln!(out, "  {name:8} {what}");
    };
    let or_off = |url: Option<String>| url.unwrap_or_else(|| "off".to_owned());
    let upstreams = match configuration.upstreams() {
        _ if addresses.gateway.is_none() => String::new(),
        [] => " to a built-in demo".to_owned(),
        [only] if only == "demo" => " to a built-in demo".to_owned(),
        several => format!(" to {}", several.join(", ")),
    };
    line("gateway", &format_args!("{}{upstreams}", or_off(addresses.gateway_url())));
    line("api", &or_off(addresses.api_url()));
    if let Some(page) = addresses.page_url() {
        line("page", &format_args!("open {page} in a browser"));
    }
    let secure = |tls: bool| if tls { " (TLS)" } else { "" };
    match addresses.rls {
        Some(address) => {
            let tls = secure(address.tls);
            line("rls", &format_args!("{address}{tls}, gRPC: Envoy's rate_limit_service"));
        }
        None => line("rls", &"off"),
    }
    match addresses.resp {
        Some(address) => {
            let tls = secure(address.tls);
            let command = redis_cli(address, configuration.has_resp_password());
            line("resp", &format_args!("{address}{tls}: {command} CL.THROTTLE user:1 15 30 60"));
        }
        None => line("resp", &"off"),
    }
    for (name, address) in outbound {
        line("outbound", &format_args!("http://{address} to {name}"));
    }
    if let Some(store) = configuration.remote_store() {
        line("store", &store);
    }
    if let Some(state) = configuration.state_folder() {
        line("state", &state.display());
    }
    if let Some(records) = configuration.records() {
        line("records", &records.dir.display());
    }
    match (inputs.config(), configuration.envoy_folder()) {
        (Some(_), _) => line("policy", &inputs.name()),
        (None, Some(_)) => {}
        (None, None) if inputs.outbound().is_some() => {}
        (None, None) => {
            line("policy", &"the sample policy; `tollgate init` writes your own, for --config FILE");
        }
    }
    if let Some((folder, files)) = configuration.envoy_folder() {
        let files = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
        line("envoy", &format_args!("{}, {files}", folder.display()));
    }
    if let Some(settings) = inputs.settings() {
        line("settings", &settings.display());
    }
    if let Some(services) = inputs.outbound() {
        line("services", &services.display());
    }
    out.push_str(&limits(in_force.limits()));
    for warning in configuration.warnings() {
        let _ = write!(out, "\n{warning}");
    }
    if inputs.config().or(inputs.outbound()).is_none() && configuration.envoy_folder().is_none() {
        out.push_str(&to_try(addresses, in_force));
    }
    out
}

/// Returns the shortest command that reaches the server.
fn redis_cli(address: ListenerAddress, password: bool) -> String {
    let ListenerAddress { socket: address, tls } = address;
    let mut command = "redis-cli".to_owned();
    match address.ip() {
        // The default host of `redis-cli`.
        IpAddr::V4(Ipv4Addr::LOCALHOST | Ipv4Addr::UNSPECIFIED) => {}
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => command.push_str(" -h ::1"),
        other => {
            let _ = write!(command, " -h {other}");
        }
    }
    let _ = write!(command, " -p {}", address.port());
    command.push_str(if tls { " --tls" } else { "" });
    command.push_str(if password { " --askpass" } else { "" });
    command
}

fn limits(limits: &[Limit]) -> String {
    let off = limits.iter().filter(|limit| limit.mode() == Mode::Off).count();
    let in_force = match limits.len() - off {
        0 => "no limits".to_owned(),
        1 => "1 limit".to_owned(),
        many => format!("{many} limits"),
    };
    let off = if off > 0 { format!(", {off} off") } else { String::new() };
    let mut out = format!("\n{in_force} in force{off}\n");
    let shown = &limits[..limits.len().min(MAX_SHOWN_LIMITS)];
    out.push_str(&rows(shown, row));
    if limits.len() > shown.len() {
        let _ = writeln!(out, "  and {} more", limits.len() - shown.len());
    }
    out
}

/// The name, coverage, key and quota of a limit.
fn row(limit: &Limit) -> [String; 4] {
    let joined = |words: Vec<String>| words.join(" ");
    let mut covers: Vec<_> = limit.methods().map(str::to_owned).collect();
    covers.extend(limit.endpoints().iter().map(ToString::to_string));
    if !limit.except().is_empty() {
        covers.push("except".to_owned());
        covers.extend(limit.except().iter().map(ToString::to_string));
    }
    covers.extend(limit.descriptor().map(ToString::to_string));
    covers.extend(limit.envoy_match().map(ToString::to_string));
    let by: Vec<_> = limit.by().iter().map(ToString::to_string).collect();
    let mut quota: Vec<_> = limit.rules().iter().map(|rule| rule.quota.to_string()).collect();
    quota.extend(limit.adaptive().map(|it| format!("{} to {} slots, learned", it.min, it.max)));
    match limit.mode() {
        Mode::Enforce => {}
        Mode::Shadow if limit.candidate_of().is_some() => quota.push("(candidate)".to_owned()),
        Mode::Shadow => quota.push("(shadow)".to_owned()),
        Mode::Off => quota.push("(off)".to_owned()),
    }
    [limit.name().to_owned(), joined(covers), format!("by {}", by.join(" and ")), joined(quota)]
}

/// The limit of the sample policy that is easy to exceed by hand.
const DEMO_LIMIT: &str = "demo-search";

/// Whether the demo limit is unchanged. Flags and variables can change any part of it.
fn is_sample(policy: &Policy) -> bool {
    policy.limit(DEMO_LIMIT).is_some_and(|limit| {
        row(limit) == [DEMO_LIMIT, "/api/v1/search", "by ip", "token-bucket 5/minute"].map(str::to_owned)
    })
}

/// Returns three commands to try with the sample policy.
fn to_try(addresses: &Addresses, policy: &Policy) -> String {
    let mut commands = Vec::new();
    if let Some(gateway) = addresses.gateway_url() {
        let what =
            if is_sample(policy) { "five a minute; the sixth is refused" } else { "through the gateway" };
        commands.push((format!("curl -i {gateway}/api/v1/search"), what));
    }
    if let Some(url) = addresses.api_url() {
        let body = r#"{"path":"/api/v1/search","ip":"203.0.113.9"}"#;
        commands.push((format!("curl -s {url}/v1/check -d '{body}'"), "the decision alone"));
        if policy.limit(DEMO_LIMIT).is_some() {
            let at = if url == DEFAULT_API { String::new() } else { format!(" --api {url}") };
            // As called, because the binary may not be in `PATH`.
            let me = std::env::args_os().next().unwrap_or_else(|| "tollgate".into());
            let me = me.to_string_lossy();
            commands.push((format!("{me} peek demo-search 127.0.0.1{at}"), "what is left"));
        }
    }
    let mut out = if commands.is_empty() { String::new() } else { "\ntry\n".to_owned() };
    for (command, what) in commands {
        let _ = writeln!(out, "  {command}   # {what}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_daemon::configuration::{LoadPhase, Overlay};

    fn text(limits: &str, addresses: &Addresses) -> String {
        let overlays = vec![Overlay {
            origin: "on the command line",
            typed: "--set limits=".into(),
            path: "limits".into(),
            value: limits.into(),
        }];
        let inputs = overlays.into_iter().fold(Inputs::default(), Inputs::with_overlay);
        said(&inputs, addresses)
    }

    fn said(inputs: &Inputs, addresses: &Addresses) -> String {
        let configuration = inputs.load(LoadPhase::First).unwrap();
        banner(inputs, &configuration, configuration.policy(), addresses, &[])
    }

    fn addresses() -> Addresses {
        let address = |text: &str| Some(ListenerAddress { socket: text.parse().unwrap(), tls: false });
        let (gateway, api) = (address("127.0.0.1:8080"), address("127.0.0.1:7070"));
        Addresses { gateway, api, ..Addresses::default() }
    }

    #[test]
    fn the_sample_comes_with_three_commands_to_try() {
        let inputs = Inputs::default();
        let said = said(&inputs, &addresses());
        for expected in [
            "gateway  http://127.0.0.1:8080 to a built-in demo",
            "api      http://127.0.0.1:7070",
            "page     open http://127.0.0.1:7070/ in a browser",
            "7 limits in force",
            "  demo-search               /api/v1/search  by ip       token-bucket 5/minute",
            "curl -i http://127.0.0.1:8080/api/v1/search",
            "curl -s http://127.0.0.1:7070/v1/check -d",
            " peek demo-search 127.0.0.1 ",
            "five a minute; the sixth is refused",
        ] {
            assert!(said.contains(expected), "{expected} in:\n{said}");
        }
    }

    #[test]
    fn the_page_url_can_be_opened_in_a_browser() {
        for (api, tls, expected) in [
            ("0.0.0.0:7070", false, "open http://127.0.0.1:7070/ in"),
            ("[::]:7070", false, "open http://[::1]:7070/ in"),
            ("192.0.2.1:7070", true, "open https://192.0.2.1:7070/ in"),
            ("0.0.0.0:7070", true, &format!("open https://{}:7070/ in", tollgate_daemon::machine_name())),
        ] {
            let api = ListenerAddress { socket: api.parse().unwrap(), tls };
            let addresses = Addresses { api: Some(api), ..Addresses::default() };
            let said = said(&Inputs::default(), &addresses);
            assert!(said.contains(expected), "{expected} in:\n{said}");
        }
    }

    #[test]
    fn the_command_for_the_redis_protocol_reaches_it() {
        for (address, tls, password, expected) in [
            ("127.0.0.1:7379", false, false, "redis-cli -p 7379"),
            ("0.0.0.0:7379", true, false, "redis-cli -p 7379 --tls"),
            ("[::]:7379", false, true, "redis-cli -h ::1 -p 7379 --askpass"),
            ("192.0.2.1:6379", true, true, "redis-cli -h 192.0.2.1 -p 6379 --tls --askpass"),
        ] {
            let address = ListenerAddress { socket: address.parse().unwrap(), tls };
            assert_eq!(redis_cli(address, password), expected);
        }
    }

    #[test]
    fn a_changed_sample_limit_is_not_advertised() {
        let limit = |changed: &str| format!("[{{name: demo-search, endpoint: /api/v1/search, {changed}}}]");
        assert!(text(&limit("by: ip, bucket: 5/minute"), &addresses()).contains("five a minute"));
        for changed in
            ["by: ip, bucket: 6/minute", "by: user, bucket: 5/minute", "by: ip, bucket: 5/minute, mode: off"]
        {
            let said = text(&limit(changed), &addresses());
            assert!(!said.contains("five a minute") && said.contains("# through the gateway"), "{said}");
        }
    }

    #[test]
    fn a_limit_is_printed_on_one_line() {
        let said = text(
            "[{name: a, method: POST, endpoint: /x, by: [tenant, user], windows: [1/s, 20/hour], mode: shadow}]",
            &addresses(),
        );
        let expected =
            "  a  POST /x  by tenant and user  token-bucket 1/second token-bucket 20/hour (shadow)\n";
        assert!(said.contains("1 limit in force") && said.contains(expected), "{said}");
    }

    #[test]
    fn limits_that_are_off_are_not_counted_as_in_force() {
        let limits = "[{name: a, by: ip, bucket: 1/s}, {name: b, by: ip, bucket: 1/s, mode: off}]";
        assert!(text(limits, &addresses()).contains("\n1 limit in force, 1 off\n"));
        let inputs = Inputs::default();
        let configuration = inputs.load(LoadPhase::First).unwrap();
        let off = configuration.policy().with_modes(|_| Mode::Off);
        let said = banner(&inputs, &configuration, &off, &addresses(), &[]);
        assert!(
            said.contains("\nno limits in force, 7 off\n") && said.contains("5/minute (off)\n"),
            "{said}"
        );
        assert!(!said.contains("five a minute; the sixth is refused"), "{said}");
    }

    #[test]
    fn limits_beyond_the_maximum_are_only_counted() {
        let many: Vec<_> =
            (0..25).map(|at| format!("{{name: n{at}, endpoint: /n{at}, by: ip, bucket: 1/s}}")).collect();
        let said = text(&format!("[{}]", many.join(", ")), &Addresses::default());
        assert!(said.contains("25 limits in force") && said.contains("  and 5 more\n"), "{said}");
        assert!(said.contains("n19") && !said.contains("n20"), "{said}");
        assert!(said.contains("gateway  off\n") && !said.contains("curl"), "{said}");
    }
}
