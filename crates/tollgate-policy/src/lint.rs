//! The lints of a policy: the code of each warning, and the page that
//! explains it.
//!
//! Codes are stable: people write them into `expect` and into pipelines. The pages are
//! Markdown files in `lints/`; `tollgate validate --explain CODE` prints one, and
//! `docs/lints.md` contains all of them.
//!
//! The checks are in `compile::lints` and in the crates that read other sections.
//!
//! Invariant: the first policy of a page has the lint, the second does not. Tested by
//! `tests/lints.rs` for lints about a policy.

use std::fmt;

use tollgate_document::nearest;

/// The part of the configuration that a lint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LintScope {
    /// One limit. `expect` of the limit or of the file can contain the lint.
    Limit,
    /// The rest of a policy.
    Policy,
    /// The settings of the server.
    Settings,
    /// A file of envoyproxy/ratelimit.
    Envoy,
}

macro_rules! lints {
    ($($name:ident $code:literal $of:ident,)*) => {
        /// A kind of warning about a valid configuration.
        ///
        /// ```
        /// # use tollgate_policy::{Policy, Lint};
        /// let policy = Policy::parse("limits: [{by: ip, rate: 10/minute, algorithm: fixed-window}]")?;
        /// assert_eq!(policy.warnings()[0].code, Some(Lint::FixedWindowAlone.code()));
        /// assert_eq!(Lint::FixedWindowAlone.code(), "fixed-window-alone");
        /// # Ok::<(), tollgate_policy::Diagnostics>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Lint {
            $(#[doc = concat!("`", $code, "`")] $name,)*
        }

        impl Lint {
            /// All lints, in the order of the pages.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the code used in messages, in `expect` and on the command line.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// Returns the part of the configuration that the lint is about.
            pub const fn of(self) -> LintScope {
                match self { $(Self::$name => LintScope::$of,)* }
            }

            /// Returns the page: the problem, its effect, the fix, and when to keep it.
            pub const fn page(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("../lints/", $code, ".md")),)* }
            }
        }
    };
}

lints! {
    FixedWindowAlone "fixed-window-alone" Limit,
    NeverFires "never-fires" Limit,
    IpNarrowerThanUser "ip-narrower-than-user" Limit,
    UnboundedKey "unbounded-key" Limit,
    BurstAboveUpstream "burst-above-upstream" Limit,
    LoginUnlimited "login-unlimited" Limit,
    ShadowedEndpoint "shadowed-endpoint" Limit,
    MatchesNothing "matches-nothing" Limit,
    SameTwice "same-twice" Limit,
    DefaultPlanUnlimited "default-plan-unlimited" Limit,
    DerivedNameTwice "derived-name-twice" Limit,
    IdleMissing "idle-missing" Limit,
    IdleQueue "idle-queue" Limit,
    OddMethod "odd-method" Limit,
    OddEntry "odd-entry" Limit,
    QuotaAhead "quota-ahead" Limit,
    QuotaTooSmall "quota-too-small" Limit,
    LateCharge "late-charge" Limit,
    SlotsWithoutOwner "slots-without-owner" Limit,
    LeaseInMemory "lease-in-memory" Limit,
    LeaseNever "lease-never" Limit,
    LeaseHidesBurst "lease-hides-burst" Limit,
    NeverBorrows "never-borrows" Limit,
    UnknownPlan "unknown-plan" Policy,
    AllowsEverybody "allows-everybody" Policy,
    ForgeableAllow "forgeable-allow" Policy,
    DeniesEverybody "denies-everybody" Policy,
    TrustsEverybody "trusts-everybody" Policy,
    NarrowIpv6Prefix "narrow-ipv6-prefix" Policy,
    UnreachableClass "unreachable-class" Policy,
    UntrustedClass "untrusted-class" Policy,
    UnusedExpect "unused-expect" Policy,
    OpenRedisProtocol "open-redis-protocol" Settings,
    OpenRefunds "open-refunds" Settings,
    UncountedLimits "uncounted-limits" Settings,
    UnprovidedClaim "unprovided-claim" Settings,
    UnprovidedPlan "unprovided-plan" Settings,
    NoEnvoyFiles "no-envoy-files" Envoy,
    NeverAsked "never-asked" Envoy,
    EnvoyIdleWord "envoy-idle-word" Envoy,
    EnvoyAdmitsNothing "envoy-admits-nothing" Envoy,
    EnvoyStarInKey "envoy-star-in-key" Envoy,
    EnvoyReplacesNothing "envoy-replaces-nothing" Envoy,
}

impl Lint {
    /// Returns the lint with this code.
    pub fn find(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.code() == code)
    }

    /// Returns the known code nearest to a misspelled one.
    pub fn nearest(code: &str) -> Option<&'static str> {
        nearest(code, Self::ALL.iter().map(|it| it.code()))
    }

    /// Returns a one-line summary: the first paragraph of the page.
    pub fn summary(self) -> &'static str {
        self.page().lines().skip(1).map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
    }

    /// Returns all pages as one document.
    pub fn document() -> String {
        let mut out = String::from(include_str!("../lints/README.md"));
        let heading = |of| match of {
            LintScope::Limit => "Limits",
            LintScope::Policy => "Policies",
            LintScope::Settings => "Server settings",
            LintScope::Envoy => "Files of envoyproxy/ratelimit",
        };
        for of in [LintScope::Limit, LintScope::Policy, LintScope::Settings, LintScope::Envoy] {
            out.extend(["\n**", heading(of), "**\n\n"]);
            for lint in Self::ALL.iter().filter(|it| it.of() == of) {
                out.extend(["- [`", lint.code(), "`](#", lint.code(), "): ", lint.summary(), "\n"]);
            }
        }
        for lint in Self::ALL {
            out.push('\n');
            // Headings of a single page begin one level higher.
            for line in lint.page().lines() {
                out.extend([if line.starts_with('#') { "#" } else { "" }, line, "\n"]);
            }
        }
        out
    }
}

/// Converts a lint into its code.
impl From<Lint> for &'static str {
    fn from(lint: Lint) -> Self {
        lint.code()
    }
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
