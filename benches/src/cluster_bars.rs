//! The bars of runs on a cluster, side by side with the same runs in one process.
//!
//! Nodes, workers and front ends share this machine, and the scripted model answers at once in the worker. The times of
//! turns are those of the journal: each result has the time at which the process that performed the effect had it.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::cluster::{Cluster, ClusterObserver, FrontEnd, SERVER, wait_until};
use crate::fixture::{Fixture, Load, StateLocation};
use crate::sample::{Plan, Spread};
use crate::spawn::Binary;
use crate::table::{COUNT, MEGABYTES, MILLIS, Row, TIMES, Unit};
use crate::{Failure, say};

const MISSING: &str = "ADJUTANT_RESTATE_SERVER is not set: it names the program of the Restate server, which `npm install \
--ignore-scripts @restatedev/restate-server@1.7.12` puts into node_modules/@restatedev/restate-server-linux-x64/bin";
const TURN: &str = "a turn is a model call and the read that it asks for, so two inputs of the run; from the first reply of a run to its last; one \
agent, one worker";
const PAIRS: &str = "each round runs both, one after the other";
const FLAT: &str = "the same windows of one run on a worker that has followed it from the start";
const FLAT_CPU: &str = "of server and worker together, in the same windows";
const TOGETHER: &str = "while all 50 runs are between their first and their last reply; one worker, and a front end for each run";
const APART: &str =
    "the same, or from the first reply of all to the last if one run ended before another began";
const SPENT: &str =
    "from the start of the first front end to the end of the last, starting included";
const TAKEOVER: &str = "a worker that was started before but never had the run; from the moment the loss is detected until the next reply is in \
the front end's journal, and before that from the moment the worker serves the handlers until it has decided what was open; three rounds";
const DETECTION: &str = "from the kill until the handlers are registered at the other worker, and until the loss is detected";
const LOAD: &str = "of the last minute, read between the measurements: of this group and of everything else on this machine";

/// Seconds.
const SECONDS: Unit = Unit(" s", 2);
/// Things in a second.
const PER_SECOND: Unit = Unit("/s", 0);

/// Runs at once in the measurement of throughput.
const RUNS: usize = 50;

/// A call is reserved and answered, and a read is asked for and answered.
const EVENTS_PER_TURN: usize = 4;

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let Some(server) = std::env::var_os(SERVER).map(PathBuf::from) else {
        return Ok(vec![Row::skipped("runs on a cluster", MISSING)]);
    };
    let binary = Binary::build_with_restate()?;
    let fixture = Fixture::new(&binary, StateLocation::Disk)?;
    let bench = ClusterBench { plan, binary: &binary, fixture: &fixture };
    let mut loads = vec![load_average()?];
    let mut rows = Vec::new();
    {
        let mut cluster = Cluster::start(&binary, &server, 1)?;
        cluster.start_worker("worker-0")?;
        rows.extend(bench.measure_added("one node", &cluster, 20.0)?);
        loads.push(load_average()?);
        rows.extend(bench.measure_long_runs(&cluster)?);
        loads.push(load_average()?);
        rows.extend(bench.measure_throughput(&cluster)?);
        loads.push(load_average()?);
        rows.extend(bench.measure_takeover(&mut cluster)?);
        loads.push(load_average()?);
        let [worker, node] = [cluster.worker_peak_mb()?, cluster.node_peak_mb()?];
        let what = "peak memory of a worker, during all of this";
        rows.push(Row::at_most(what, Spread::exact(worker), 60.0, MEGABYTES));
        rows.push(Row::info("peak memory of the node", Spread::exact(node), MEGABYTES));
    }
    {
        let mut cluster = Cluster::start(&binary, &server, 3)?;
        cluster.start_worker("worker-0")?;
        rows.extend(bench.measure_added("three nodes, two copies", &cluster, 40.0)?);
        loads.push(load_average()?);
        let worker = Spread::exact(cluster.worker_peak_mb()?);
        rows.push(Row::at_most(
            "peak memory of the worker of three nodes",
            worker,
            60.0,
            MEGABYTES,
        ));
    }
    rows.push(Row::info("load average", Spread::of(loads), COUNT).note(LOAD));
    Ok(rows)
}

/// What all measurements of the group need.
#[derive(Clone, Copy)]
struct ClusterBench<'a> {
    plan: &'a Plan,
    binary: &'a Binary,
    fixture: &'a Fixture,
}

impl ClusterBench<'_> {
    fn start(&self, turns: usize, cluster: Option<&Cluster>) -> Result<FrontEnd, Failure> {
        FrontEnd::start(self.fixture, self.binary, Load { children: 1, turns }, cluster)
    }

    /// Returns the milliseconds of a turn of one agent.
    fn turn_ms(&self, turns: usize, cluster: Option<&Cluster>) -> Result<f64, Failure> {
        let mut run = self.start(turns, cluster)?;
        run.finish()?;
        let replies = run.replies();
        let first_and_last = replies.first().zip(replies.last());
        let (first, last) = first_and_last.ok_or("a run without a reply")?;
        Ok((last - first) as f64 / (replies.len() - 1) as f64)
    }

    /// What a turn takes longer on a cluster.
    fn measure_added(&self, on: &str, cluster: &Cluster, bar: f64) -> Result<Vec<Row>, Failure> {
        say(&format!("measuring turns on {on} …"));
        let turns = self.plan.pick(200, 10);
        // The first run of a node is slower.
        self.turn_ms(turns / 4, Some(cluster))?;
        let (mut local, mut remote, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.plan.pick(7, 1) {
            let [here, there] = [self.turn_ms(turns, None)?, self.turn_ms(turns, Some(cluster))?];
            local.push(here);
            remote.push(there);
            added.push(there - here);
        }
        let [local, remote, added] = [local, remote, added].map(Spread::of);
        Ok(vec![
            Row::info(format!("a model turn without a cluster, beside {on}"), local, MILLIS)
                .note(TURN),
            Row::info(format!("a model turn on {on}"), remote, MILLIS).note(TURN),
            Row::at_most(format!("added to a model turn on {on}"), added, bar, MILLIS).note(PAIRS),
        ])
    }

    /// What an early and a late turn of a long run cost.
    fn measure_long_runs(&self, cluster: &Cluster) -> Result<Vec<Row>, Failure> {
        say("measuring long runs …");
        let pick = |full, quick| self.plan.pick(full, quick);
        let bounds = [pick(50, 20), pick(550, 60), pick(4_500, 100), pick(5_000, 140)];
        let (mut times, mut ratios, mut cpus, mut cpu_ratios) =
            ([vec![], vec![]], vec![], [vec![], vec![]], vec![]);
        for _ in 0..pick(3, 1) {
            let mut run = self.start(bounds[3] / EVENTS_PER_TURN + 10, Some(cluster))?;
            let mut spent = Vec::new();
            for bound in bounds {
                run.wait_for_records(bound)?;
                // The records that were there when the processor time was read.
                let cpu: f64 = cluster.cpu_ms()?.into_iter().sum();
                spent.push((run.records.len(), cpu));
            }
            run.finish()?;
            let turns = |from: usize, to: usize| {
                run.records[from..to].iter().filter(|record| record.is_reply()).count() as f64
            };
            for (nth, window) in [[0, 1], [2, 3]].into_iter().enumerate() {
                let [from, to] = window.map(|it| bounds[it] - 1);
                let wall = run.records[to].wall - run.records[from].wall;
                times[nth].push(wall as f64 / turns(from, to));
                let [(from, before), (to, after)] = window.map(|it| spent[it]);
                cpus[nth].push((after - before) / turns(from, to));
            }
            let last_ratio =
                |of: &[Vec<f64>; 2]| of[1].last().zip(of[0].last()).map(|(a, b)| a / b);
            ratios.extend(last_ratio(&times));
            cpu_ratios.extend(last_ratio(&cpus));
        }
        let window = |nth: usize| format!("events {} to {}", bounds[nth], bounds[nth + 1]);
        let [early, late] = times.map(Spread::of);
        let [early_cpu, late_cpu] = cpus.map(Spread::of);
        let [ratio, cpu_ratio] = [ratios, cpu_ratios].map(Spread::of);
        Ok(vec![
            Row::info(format!("a turn, {}", window(0)), early, MILLIS).note(FLAT),
            Row::info(format!("a turn, {}", window(2)), late, MILLIS).note(FLAT),
            Row::at_most("a turn, late against early", ratio, 1.25, TIMES).note(FLAT),
            Row::info(format!("CPU of a turn, {}", window(0)), early_cpu, MILLIS).note(FLAT_CPU),
            Row::info(format!("CPU of a turn, {}", window(2)), late_cpu, MILLIS).note(FLAT_CPU),
            Row::at_most("CPU of a turn, late against early", cpu_ratio, 1.25, TIMES)
                .note(FLAT_CPU),
        ])
    }

    /// Many runs at once, on the cluster and without it.
    fn measure_throughput(&self, cluster: &Cluster) -> Result<Vec<Row>, Failure> {
        say("measuring many runs …");
        let (runs, rounds) = (self.plan.pick(RUNS, 4), self.plan.pick(3, 1));
        let what = |what: &str| format!("{what}, {runs} runs at once");
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        let mut spent = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            local.push(self.run_together(runs, None)?);
            let before = Spending::now(cluster)?;
            remote.push(self.run_together(runs, Some(cluster))?);
            let after = Spending::now(cluster)?;
            let turns = (runs * (self.plan.pick(40, 5) + 1)) as f64;
            let parts = after.parts.into_iter().zip(before.parts);
            for (values, (after, before)) in spent.iter_mut().zip(parts) {
                values.push((after - before) / turns);
            }
            let elapsed = (after.at - before.at).as_secs_f64() * 1e3;
            let cores = thread::available_parallelism()?.get() as f64;
            spent[3].push((after.idle_ms - before.idle_ms) / elapsed / cores * 1e2);
        }
        let [local, remote] = [local, remote].map(Spread::of);
        let [node, worker, front_ends, idle] = spent.map(Spread::of);
        let cpu = |of: &str| what(&format!("CPU of {of} for each turn"));
        Ok(vec![
            Row::info(what("model turns without a cluster"), local, PER_SECOND).note(APART),
            Row::at_least(what("model turns on one node"), remote, 150.0, PER_SECOND)
                .note(TOGETHER),
            Row::info(cpu("the node"), node, MILLIS).note(SPENT),
            Row::info(cpu("the worker"), worker, MILLIS).note(SPENT),
            Row::info(cpu("the front ends"), front_ends, MILLIS).note(SPENT),
            Row::info(what("idle time of all cores"), idle, Unit(" %", 0)).note(SPENT),
        ])
    }

    /// Returns the model turns in a second of runs at once, while all of them are at work.
    fn run_together(&self, runs: usize, cluster: Option<&Cluster>) -> Result<f64, Failure> {
        let turns = self.plan.pick(40, 5);
        let started = (0..runs).map(|_| self.start(turns, cluster));
        let mut started = started.collect::<Result<Vec<_>, _>>()?;
        started.iter_mut().try_for_each(FrontEnd::finish)?;
        let replies: Vec<Vec<u64>> = started.iter().map(FrontEnd::replies).collect();
        let from = replies.iter().filter_map(|it| it.first()).max().ok_or("no run")?;
        let to = replies.iter().filter_map(|it| it.last()).min().ok_or("no run")?;
        let within = replies.iter().flatten().filter(|at| (from..=to).contains(at)).count();
        if to <= from {
            let [first, last] = [replies.iter().flatten().min(), replies.iter().flatten().max()];
            let (first, last) = first.zip(last).ok_or("no reply")?;
            return Ok(replies.iter().flatten().count() as f64 * 1e3 / (last - first) as f64);
        }
        Ok(within as f64 * 1e3 / (to - from) as f64)
    }

    /// Another worker takes over a run of 2,000 events.
    fn measure_takeover(&self, cluster: &mut Cluster) -> Result<Vec<Row>, Failure> {
        say("measuring the loss of a worker …");
        let events = self.plan.pick(2_000, 50);
        let (mut handlers, mut detected, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..self.plan.pick(3, 1) {
            let [lost, other] = [round, round + 1].map(|nth| format!("worker-{nth}"));
            let mut run = self.start(events / EVENTS_PER_TURN + 40, Some(cluster))?;
            // Started when the agent has its worker, so that this one has nothing of the run.
            run.wait_for_records(events / 2)?;
            cluster.start_worker(&other)?;
            run.wait_for_records(events)?;
            let takeover = Takeover::watch(cluster, &mut run, &lost)?;
            handlers.push(takeover.handlers_s);
            detected.push(takeover.detected_s);
            taken.push(takeover.work_s);
            run.finish()?;
        }
        let what = format!("a cold worker takes over a run of {events} events");
        let [handlers, detected, taken] = [handlers, detected, taken].map(Spread::of);
        Ok(vec![
            Row::at_most(what, taken, 2.0, SECONDS).note(TAKEOVER),
            Row::info("until another worker serves the handlers", handlers, SECONDS)
                .note(DETECTION),
            Row::info("until the loss is detected", detected, SECONDS).note(DETECTION),
        ])
    }
}

/// How a run went on at another worker, in seconds.
struct Takeover {
    /// From the kill until the other worker's handlers are registered.
    handlers_s: f64,
    /// From the kill until the cluster counts the worker as lost and moves its agents.
    detected_s: f64,
    /// What the other worker needs for the run, without the time in which it waits for the detection.
    ///
    /// An input that the lost worker had begun to decide is decided when the handlers have moved: that is the first time
    /// that the other worker reads the run. Then nothing happens until the loss is detected. From there on the run is
    /// told, its agent is moved, and the other worker reads the run again to perform its effects. The end is the agent's
    /// next reply in the front end's journal. Both parts count, also the pauses between attempts in them.
    work_s: f64,
}

impl Takeover {
    /// Kills the worker that has the run and watches until the agent goes on.
    fn watch(cluster: &mut Cluster, run: &mut FrontEnd, lost: &str) -> Result<Self, Failure> {
        let observer = cluster.observer();
        let uri = observer.runs_uri()?;
        let killed = Instant::now();
        cluster.kill_worker(lost)?;
        run.read_journal()?;
        let (mut records, mut replies) = (run.records.len(), run.replies().len());
        let (given_up, detection) = (AtomicBool::new(false), OnceLock::new());
        // When records came in which the lost worker had no part, and whether they had a reply.
        let mut news: Vec<(Instant, bool)> = Vec::new();
        let watched = thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let watched = watch_detection(observer, &uri, lost, &given_up)?;
                detection.get_or_init(|| watched);
                Ok::<_, String>(())
            });
            let seen = wait_until("the agent goes on", || {
                run.read_journal()?;
                if run.records.len() > records {
                    let now_replied = run.replies().len();
                    news.push((Instant::now(), now_replied > replies));
                    (records, replies) = (run.records.len(), now_replied);
                }
                let goes_on = |(_, detected): &(_, Instant)| goes_on_at(&news, *detected).is_some();
                Ok(watching.is_finished() && detection.get().is_none_or(goes_on))
            });
            given_up.store(true, Ordering::Relaxed);
            seen.and(
                watching
                    .join()
                    .map_err(|_| "the watching thread has panicked")?
                    .map_err(Failure::from),
            )
        });
        watched?;
        let (moved, detected) = *detection.get().ok_or("nothing was detected")?;
        let replied = goes_on_at(&news, detected).ok_or("the agent did not go on")?;
        let decided = news.iter().map(|(at, _)| *at).rfind(|at| *at < detected);
        let first = decided.map_or(Duration::ZERO, |at| at.saturating_duration_since(moved));
        Ok(Self {
            handlers_s: (moved - killed).as_secs_f64(),
            detected_s: (detected - killed).as_secs_f64(),
            work_s: (first + (replied - detected)).as_secs_f64(),
        })
    }
}

/// Returns when the first reply after the detection came.
fn goes_on_at(news: &[(Instant, bool)], detected: Instant) -> Option<Instant> {
    let after = news.iter().find(|(at, has_reply)| *has_reply && *at >= detected);
    after.map(|(at, _)| *at)
}

/// Returns when the handlers of the runs were at another address than `uri`, and when the worker counted as lost.
///
/// Of each, this is the moment of the last question that was answered otherwise: a little early, so that nothing that the
/// other worker does is before it.
fn watch_detection(
    observer: ClusterObserver,
    uri: &str,
    lost: &str,
    given_up: &AtomicBool,
) -> Result<(Instant, Instant), String> {
    let until = |holds: &dyn Fn() -> Result<bool, Failure>| {
        let (mut asked, mut last_asked) = (Instant::now(), Instant::now());
        let seen = wait_until("the loss is detected", || {
            last_asked = std::mem::replace(&mut asked, Instant::now());
            Ok(given_up.load(Ordering::Relaxed) || holds()?)
        });
        // A boxed error cannot leave the thread.
        seen.map(|()| last_asked).map_err(|error| error.to_string())
    };
    let moved = until(&|| Ok(observer.runs_uri()? != uri))?;
    let detected = until(&|| Ok(!observer.is_live(lost)?))?;
    Ok((moved, detected))
}

/// The processor time that was used up to a moment.
struct Spending {
    at: Instant,
    /// Of the node, the worker, and processes that have ended: the front ends.
    parts: [f64; 3],
    /// The time that cores of this machine had nothing to do, since it was started.
    idle_ms: f64,
}

impl Spending {
    fn now(cluster: &Cluster) -> Result<Self, Failure> {
        let [node, worker] = cluster.cpu_ms()?;
        let ended = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let micros = ended.user_time().num_microseconds() + ended.system_time().num_microseconds();
        let stat = fs::read_to_string("/proc/stat")?;
        let ticks = stat.split_whitespace().nth(4).ok_or("no idle time")?;
        let idle_ms = ticks.parse::<f64>()? * 10.0;
        Ok(Self { at: Instant::now(), parts: [node, worker, micros as f64 / 1e3], idle_ms })
    }
}

fn load_average() -> Result<f64, Failure> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}
