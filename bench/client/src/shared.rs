//! Four processes that share one budget through Redis, under a limit of the same rate.

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use tollgate::{Limiter, Policy, Sleeper, Spawner};
use tollgate_client::{Client, SharedBudget};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_testkit::{Redis, Tollgate};

use crate::limited::{RATE, policy};
use crate::report::Row;
use crate::subject::{Target, run_client};
use crate::watch::{Counts, Watch};

/// The name in the report.
pub(crate) const CASE: &str = "shared";
/// The argument of a process that calls.
pub(crate) const WORKER: &str = "--worker";

const PROCESSES: usize = 4;
/// Units that the server admits at once, and those of the budget: the difference absorbs the jitter of the network.
const BURST: (f64, f64) = (60.0, 20.0);

/// Runs the processes.
pub(crate) fn measure(binary: &str, calls: usize) -> Result<Row, Box<dyn Error>> {
    let redis = Redis::start();
    let tollgate = Tollgate::start(binary, &policy("", BURST.0));
    let url = format!("http://{}/", tollgate.gateway);
    let watch = Watch::new();
    let mut workers = Vec::new();
    for _ in 0..PROCESSES {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([WORKER, &redis.url(), &url, &(calls / PROCESSES).to_string()]).stdout(Stdio::piped());
        workers.push(command.spawn()?);
    }
    let (mut succeeded, mut counts) = (0, Counts::default());
    for worker in workers {
        let output = worker.wait_with_output()?;
        let numbers: Value = serde_json::from_slice(&output.stdout)?;
        let number = |name: &str| numbers[name].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(0);
        succeeded += number("succeeded");
        counts.attempts += number("attempts");
        counts.refused += number("refused");
        counts.refused_known += number("refused_known");
        counts.early += number("early");
    }
    let row = Row::new((CASE, "tollgate-client, 4 processes"), (calls, succeeded), watch.elapsed(), counts);
    Ok(row.with_limit(RATE, BURST.1))
}

/// Makes the calls of one process: URL of Redis, URL of the server, calls. Prints the counts as JSON.
pub(crate) fn work(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [redis, url, calls] = arguments else { return Err("a worker needs three arguments".into()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let budget = format!("limits: [{{name: partner, by: global, bucket: '{RATE}/second, burst {}'}}]", BURST.1);
        let store = RedisStore::new(RedisSettings::parse(&[redis.as_str()])?);
        let limiter = Limiter::with_store(Policy::parse(&budget)?, store).with_sleeper(Sleeper::new(sleep));
        let spawner = Spawner::new(|task| drop(tokio::spawn(task)));
        let client = Client::builder()
            .settings(|it| it.timeout = Duration::from_secs(600))
            .sleeper(Sleeper::new(sleep))
            .budget(SharedBudget::new(limiter, spawner))
            .build();
        let watch = Watch::new();
        let targets = [Target::get(url.clone())];
        let succeeded = run_client(&client, &reqwest::Client::new(), &targets, calls.parse()?, &watch).await;
        let Counts { attempts, refused, refused_known, early } = watch.counts();
        println!(
            "{}",
            json!({"succeeded": succeeded, "attempts": attempts, "refused": refused, "refused_known": refused_known, "early": early})
        );
        Ok(())
    })
}
