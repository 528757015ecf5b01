//! The amount that a limit grants: algorithm, numbers, and the options of the algorithm.

use tollgate_core::{
    Bucket, Calendar, CalendarUnit, Concurrency, FixedWindow, Quota, QuotaError, SlidingLog, SlidingParts,
    Span, Window,
};
use tollgate_document::{Located, Place, Problems, RateText};

use crate::file_format::limit::queue::QueueText;
use crate::file_format::limit::{Algorithm, Align, AllowanceText, Limit};
use crate::slot_queue;

/// The default of `ttl`: long enough for a slow response, short enough after a crash.
const DEFAULT_TTL: Span = Span::from_secs(60);

/// The default number of parts of a strict sliding window. For clients at their limit, 16 parts
/// refuse up to 7 % of the requests that a log would admit; 7 parts would refuse up to 13 %.
const STRICT_PARTS: u32 = 16;

/// The quotas of one amount: the limit's own, a plan's or an override's.
pub(super) enum Grant {
    Quotas(Vec<Quota>),
    Unlimited,
    Blocked,
}

/// The amount of a limit. Reading it yields `None` after reporting a problem.
pub(super) struct Amount<'l> {
    limit: &'l Limit,
    algorithm: Algorithm,
    /// The labels of the limit's windows.
    pub(super) labels: Vec<String>,
    pub(super) base: Vec<Quota>,
}

impl<'l> Amount<'l> {
    pub(super) fn of(limit: &'l Limit, problems: &mut Problems) -> Option<Self> {
        if limit.unreadable || !has_one_amount(limit, problems) {
            return None;
        }
        let inferred = match (limit.slots.is_some() || limit.adaptive.is_some(), &limit.queue) {
            (true, _) => Algorithm::Concurrency,
            (false, Some(_)) => Algorithm::LeakyQueue,
            (false, None) => Algorithm::TokenBucket,
        };
        let algorithm = limit.algorithm.map_or(inferred, |it| it.value);
        if algorithm == Algorithm::Concurrency && runs_unseen(limit, problems) {
            return None;
        }
        if let Some(adaptive) = &limit.adaptive
            && !super::adaptive::options_belong(limit, adaptive.place, problems)
        {
            return None;
        }
        if !options_belong(limit, algorithm, problems) || !has_queue(limit, algorithm, problems) {
            return None;
        }
        let mut amount = Self { limit, algorithm, labels: Vec::new(), base: Vec::new() };
        if let Some(slots) = &limit.slots {
            amount.labels.push(String::new());
            amount.base.push(amount.slots(slots.value, slots.place, problems)?);
            return Some(amount);
        }
        if limit.adaptive.is_some() {
            return Some(amount);
        }
        let single = limit.bucket.as_ref().or(limit.rate.as_ref());
        let rates = single.map(std::slice::from_ref).or(limit.windows.as_ref().map(|it| &it.value[..]))?;
        for rate in rates {
            let label = rate.value.rate().period.to_string();
            if let Some(first) = amount.labels.iter().position(|known| *known == label) {
                problems
                    .error(rate.place, format!("two windows of one limit are {label} long"))
                    .label("again here")
                    .related(rates[first].place, "first here")
                    .help("the smaller of the two is enough");
                return None;
            }
            amount.labels.push(label);
            amount.base.push(amount.quota(rate, problems)?);
        }
        Some(amount)
    }

    /// Returns the quotas of a plan or an override: as many windows as the limit has.
    pub(super) fn granted(&self, text: &Located<AllowanceText>, problems: &mut Problems) -> Option<Grant> {
        let windows = self.base.len();
        let quotas = match (&text.value, self.algorithm) {
            (AllowanceText::Unlimited, _) => return Some(Grant::Unlimited),
            (AllowanceText::Blocked, _) => return Some(Grant::Blocked),
            (AllowanceText::Slots(slots), Algorithm::Concurrency) => {
                vec![self.slots(*slots, text.place, problems)?]
            }
            (AllowanceText::Slots(number), _) => {
                problems
                    .error(text.place, "a rate needs a time")
                    .label(format!("did you mean `{number}/minute`?"));
                return None;
            }
            (AllowanceText::Rates(_), Algorithm::Concurrency) => {
                problems
                    .error(text.place, "a concurrency limit grants slots, not a rate")
                    .label("write the number of slots");
                return None;
            }
            (AllowanceText::Rates(rates), _) if rates.len() == windows => {
                let quotas: Vec<_> = rates.iter().filter_map(|rate| self.quota(rate, problems)).collect();
                (quotas.len() == windows).then_some(quotas)?
            }
            (AllowanceText::Rates(rates), _) => {
                problems
                    .error(
                        text.place,
                        format!("the limit has {windows} windows and this has {}", rates.len()),
                    )
                    .label(format!("give {windows} rates, in the order of the limit's own"));
                return None;
            }
        };
        Some(Grant::Quotas(quotas))
    }

    fn quota(&self, rate: &Located<RateText>, problems: &mut Problems) -> Option<Quota> {
        let written = &rate.value;
        let bucket_like = matches!(self.algorithm, Algorithm::TokenBucket | Algorithm::Gcra);
        if written.burst.is_some() && !bucket_like {
            let help = match self.algorithm {
                Algorithm::LeakyQueue => {
                    "`length` of the queue bounds the requests above the rate; `free` of them start immediately"
                }
                _ => "token-bucket and gcra have one",
            };
            problems
                .error(written.burst_place, format!("`{}` has no burst", self.algorithm.word()))
                .label("remove this")
                .help(help);
            return None;
        }
        let quota: Result<Quota, QuotaError> = match self.algorithm {
            Algorithm::TokenBucket => {
                let bucket = Bucket::new(written.rate());
                bucket
                    .and_then(|it| written.burst.map_or(Ok(it), |burst| it.with_burst(burst)))
                    .map(Quota::from)
            }
            Algorithm::Gcra => Bucket::new(written.rate())
                .and_then(|it| it.with_burst(written.burst.unwrap_or(1)))
                .map(Quota::from),
            Algorithm::LeakyQueue => {
                let queue = self.limit.queue.as_ref()?.value.queue();
                Bucket::new(written.rate()).and_then(|it| it.with_queue(queue)).map(Quota::from)
            }
            Algorithm::FixedWindow => {
                FixedWindow::new(written.count, self.window(rate, problems)?).map(Quota::from)
            }
            Algorithm::SlidingWindow => {
                let parts = self.limit.parts.map(|it| u32::try_from(it.value).unwrap_or(u32::MAX));
                match self.limit.strict {
                    Some(strict) if strict.value => {
                        let parts = self.strict_parts(parts, strict.place, problems)?;
                        SlidingParts::new(written.rate(), parts).map(|it| it.strict().into())
                    }
                    _ => Quota::sliding_window(written.rate(), parts.unwrap_or(1)),
                }
            }
            Algorithm::SlidingLog => SlidingLog::new(written.rate()).map(Quota::from),
            Algorithm::Concurrency => return None,
        };
        quota.map_err(|error| unservable(error, rate.place, self.algorithm, problems)).ok()
    }

    /// Returns the number of parts of a strict window. A window of one part would keep its count
    /// until a whole window passed without a request.
    fn strict_parts(&self, parts: Option<u32>, strict: Place, problems: &mut Problems) -> Option<u32> {
        let Some(written) = self.limit.parts.filter(|it| it.value < 2) else {
            return Some(parts.unwrap_or(STRICT_PARTS));
        };
        problems
            .error(written.place, "a strict window has 2 parts or more")
            .label(format!("omit this for {STRICT_PARTS} parts, or write up to 64"))
            .related(strict, "`strict` here")
            .help("more parts refuse fewer requests early, and take 8 bytes each");
        None
    }

    fn window(&self, rate: &Located<RateText>, problems: &mut Problems) -> Option<Window> {
        let period = rate.value.rate().period;
        match self.limit.align.map(|it| it.value) {
            None | Some(Align::Epoch) => Some(Window::Epoch(period)),
            Some(Align::FirstRequest) => Some(Window::Anchored(period)),
            Some(Align::Calendar) => {
                let Some(unit) = rate.value.calendar_unit() else {
                    problems
                        .error(rate.place, "a calendar has hours, days, weeks and months")
                        .label("one of them, such as `10000/month`")
                        .help("`align: epoch` takes any length");
                    return None;
                };
                self.calendar(unit, rate.place, problems).map(Window::Calendar)
            }
        }
    }

    #[cfg(feature = "calendar")]
    fn calendar(&self, unit: CalendarUnit, _: Place, problems: &mut Problems) -> Option<Calendar> {
        let zone = self.limit.timezone.as_ref();
        let calendar = Calendar::new(unit, zone.map_or("UTC", |it| &it.value));
        if let (None, Some(zone)) = (&calendar, zone) {
            problems
                .error(zone.place, format!("no time zone is called `{}`", zone.value))
                .help("names look like Europe/Paris, America/New_York or UTC");
        }
        calendar
    }

    #[cfg(not(feature = "calendar"))]
    fn calendar(&self, _: CalendarUnit, rate: Place, problems: &mut Problems) -> Option<Calendar> {
        let place = self.limit.align.as_ref().map_or(rate, |align| align.place);
        problems
            .error(place, "this program was built without calendars")
            .label("needs a time zone database")
            .help("build it with the feature `calendar` of the crate `tollgate`, or write `align: epoch`");
        None
    }

    fn slots(&self, slots: u64, place: Place, problems: &mut Problems) -> Option<Quota> {
        let ttl = self.limit.ttl.map_or(DEFAULT_TTL, |it| it.value);
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        match Concurrency::new(slots, ttl) {
            Ok(quota) => Some(quota.into()),
            Err(error) => {
                unservable(error, place, Algorithm::Concurrency, problems);
                None
            }
        }
    }
}

fn has_one_amount(limit: &Limit, problems: &mut Problems) -> bool {
    match &limit.amounts[..] {
        [_] => true,
        [] => {
            problems
                .error(limit.place, "this limit has no amount")
                .label("a line such as `bucket: 10/minute` is missing")
                .help("`bucket` or `rate` is one rate, `windows` is a list of rates, `slots` is a number of concurrent requests");
            false
        }
        [first, others @ ..] => {
            let problem = problems.error(others[0].place, "a limit has exactly one amount");
            problem
                .label(format!("`{}` here", others[0].value))
                .related(first.place, format!("`{}` here", first.value));
            problem.help("keep one; several rates on one limit are `windows: [10/second, 1000/hour]`");
            false
        }
    }
}

/// Reports a learned number of slots, and a queue, of a limit on descriptors: the proxy holds the request,
/// so this node neither measures it nor makes it wait.
fn runs_unseen(limit: &Limit, problems: &mut Problems) -> bool {
    let Some(descriptor) = &limit.descriptor else { return false };
    let (place, word, help) = match (limit.adaptive, &limit.queue) {
        (Some(adaptive), _) => (adaptive.place, "slots: adaptive", "write a number of slots"),
        (None, Some(queue)) => (queue.place, "queue", "remove it: a request without a slot is refused"),
        (None, None) => return false,
    };
    problems
        .error(place, format!("`{word}` cannot be combined with `descriptor`"))
        .label("the request is at the proxy, and not here")
        .related(descriptor.place, "a proxy sends these")
        .help(help);
    true
}

/// Reports a leaky queue without a queue, and numbers that the queue of slots does not have.
fn has_queue(limit: &Limit, algorithm: Algorithm, problems: &mut Problems) -> bool {
    match (algorithm, &limit.queue, &limit.algorithm) {
        (Algorithm::LeakyQueue, None, Some(chosen)) => {
            problems.error(chosen.place, "a leaky queue needs a length").label("`queue` is missing").help(
                "a line such as `queue: {length: 50}`: the number of requests above the rate that may wait",
            );
            false
        }
        (Algorithm::Concurrency, Some(queue), _) => slot_queue_fits(&queue.value, problems),
        (_, None, _) => fair_by_has_queue(limit, problems),
        _ => true,
    }
}

/// Reports a `fair_by` without requests that wait.
fn fair_by_has_queue(limit: &Limit, problems: &mut Problems) -> bool {
    let Some(fair_by) = &limit.fair_by else { return true };
    problems
        .error(fair_by.place, "`fair_by` has no effect without a `queue`")
        .label("no request waits")
        .help("a line such as `queue: {length: 200, wait: 1s}` beside `slots` lets requests wait for a slot");
    false
}

/// Reports numbers that the queue of slots does not have.
fn slot_queue_fits(queue: &QueueText, problems: &mut Problems) -> bool {
    let mut is_valid = true;
    if let Some(free) = queue.free {
        problems
            .error(free.place, "`free` does not belong to the queue of `slots`")
            .label("remove this")
            .help("a request waits only if all slots are taken");
        is_valid = false;
    }
    if queue.length.value > slot_queue::MAX_LENGTH {
        problems
            .error(queue.length.place, "at most 1000000 requests wait for the slots of one key")
            .label("this is more")
            .help("each of them is an open connection");
        is_valid = false;
    }
    if let Some(wait) = queue.wait.filter(|wait| wait.value > slot_queue::MAX_WAIT) {
        problems
            .error(wait.place, "a request waits for a slot for at most an hour")
            .label("this is longer")
            .help("callers give up after seconds; the place of one that has left serves another");
        is_valid = false;
    }
    is_valid
}

/// Reports options that belong to other algorithms.
fn options_belong(limit: &Limit, algorithm: Algorithm, problems: &mut Problems) -> bool {
    use Algorithm::{Concurrency, FixedWindow, LeakyQueue, SlidingWindow};
    let concurrency = algorithm == Concurrency;
    let amount = limit.amounts.first().map(|it| (it.place, it.value));
    let rate = amount.filter(|(_, word)| *word != "slots");
    let slots = amount.filter(|(_, word)| *word == "slots");
    let option = |place: Option<Place>, word| place.map(|place| (place, word));
    let foreign = [
        (rate.filter(|_| concurrency), "a concurrency limit counts concurrent requests: write `slots: 20`"),
        (slots.filter(|_| !concurrency), "only `algorithm: concurrency` has slots"),
        (
            option(limit.ttl.map(|it| it.place), "ttl").filter(|_| !concurrency),
            "only `algorithm: concurrency` has slots that expire",
        ),
        (
            option(limit.on_hangup.map(|it| it.place), "on_hangup").filter(|_| !concurrency),
            "only `algorithm: concurrency` has slots that outlive their caller",
        ),
        (
            option(limit.queue.as_ref().map(|it| it.place), "queue")
                .filter(|_| algorithm != LeakyQueue && !concurrency),
            "only `algorithm: leaky-queue` delays requests above its rate, and only requests that need `slots` wait for them",
        ),
        (
            option(limit.fair_by.as_ref().map(|it| it.place), "fair_by").filter(|_| !concurrency),
            "only requests that wait for `slots` are served in turn",
        ),
        (
            option(limit.count_denied.map(|it| it.place), "count_denied").filter(|_| concurrency),
            "a refused request holds no slot, so there is nothing to count",
        ),
        (
            option(limit.cost.as_ref().map(|it| it.place), "cost").filter(|_| concurrency),
            "every request takes one slot",
        ),
        (
            option(limit.charge.map(|it| it.place), "charge")
                .filter(|_| concurrency || algorithm == LeakyQueue),
            "a slot or a place in a queue is taken when the request arrives",
        ),
        (
            option(limit.owner.as_ref().map(|it| it.place), "owner").filter(|_| !concurrency),
            "only `slots` are held by an owner",
        ),
        (
            option(limit.align.map(|it| it.place), "align").filter(|_| algorithm != FixedWindow),
            "only `algorithm: fixed-window` has borders to align",
        ),
        (
            option(limit.parts.map(|it| it.place), "parts").filter(|_| algorithm != SlidingWindow),
            "only `algorithm: sliding-window` is counted in parts",
        ),
        (
            option(limit.strict.map(|it| it.place), "strict").filter(|_| algorithm != SlidingWindow),
            "only `algorithm: sliding-window` is an estimate that can be made strict",
        ),
    ];
    let mut all_belong = timezone_belongs(limit, algorithm, problems);
    for ((place, word), why) in foreign.into_iter().filter_map(|(found, why)| Some((found?, why))) {
        all_belong = false;
        let problem = problems.error(place, format!("`{word}` does not belong to `{}`", algorithm.word()));
        problem.label("remove this, or change the algorithm").help(why);
        if let Some(chosen) = &limit.algorithm {
            problem.related(chosen.place, "chosen here");
        }
    }
    all_belong
}

/// Reports a time zone without calendar windows, which are the only reader of it.
fn timezone_belongs(limit: &Limit, algorithm: Algorithm, problems: &mut Problems) -> bool {
    let calendar = limit.align.is_some_and(|it| it.value == Align::Calendar);
    let Some(zone) = limit.timezone.as_ref().filter(|_| algorithm != Algorithm::FixedWindow || !calendar)
    else {
        return true;
    };
    let message = match algorithm {
        Algorithm::FixedWindow => "`timezone` has no effect without `align: calendar`".to_owned(),
        _ => format!("`timezone` does not belong to `{}`", algorithm.word()),
    };
    let problem = problems.error(zone.place, message);
    match (algorithm, limit.align) {
        (Algorithm::FixedWindow, None) => problem.label("add `align: calendar`, or remove this"),
        (Algorithm::FixedWindow, Some(align)) => {
            problem.label("only a calendar has time zones").related(align.place, "write `align: calendar`")
        }
        _ => problem.label("only a fixed window can follow a calendar"),
    };
    if algorithm != Algorithm::FixedWindow {
        problem.help("windows of a calendar are `algorithm: fixed-window` with `align: calendar`");
    }
    if let Some(chosen) = &limit.algorithm {
        problem.related(chosen.place, "chosen here");
    }
    false
}

fn unservable(error: QuotaError, place: Place, algorithm: Algorithm, problems: &mut Problems) {
    let label = match error {
        QuotaError::TooLong if algorithm == Algorithm::LeakyQueue => "a shorter queue or a shorter time",
        QuotaError::TooLong => "a smaller burst or a shorter time",
        QuotaError::TooMany | QuotaError::LogTooLong => "a smaller number",
        QuotaError::TooFine => "a rounder number",
        _ => "at least 1",
    };
    let problem = problems.error(place, error.to_string()).label(label);
    if error == QuotaError::TooMany && algorithm == Algorithm::SlidingWindow {
        problem.help("a sliding window counts up to 2^30 units");
    }
}
