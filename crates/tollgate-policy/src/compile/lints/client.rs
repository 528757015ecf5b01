//! Lints on trusted proxies, and on IPv6 prefixes that give one customer many addresses.

use tollgate_document::Problems;

use crate::file_format::sections::Client;
use crate::lint::Lint;

pub(super) fn find_lints(client: Option<&Client>, problems: &mut Problems) {
    let Some(client) = client else { return };
    if let Some(net) = client.trusted_proxies.iter().find(|net| net.value.prefix() == 0) {
        problems
            .warning(Lint::TrustsEverybody, net.place, "every caller is trusted to state its own address")
            .label("a caller can forge an address per request, and bypass every limit by ip")
            .help("list the addresses of your own proxies");
    }
    if let Some(prefix) = client.ipv6_prefix.filter(|prefix| prefix.value > 64) {
        problems
            .warning(Lint::NarrowIpv6Prefix, prefix.place, "one customer owns at least a /64")
            .label("so it has many keys under a longer prefix")
            .help("64 is the default; 56 and 48 are common");
    }
}
