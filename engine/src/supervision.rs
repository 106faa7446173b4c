//! The lives of one device: when a silent one counts as stuck, when a failed one is started again and when it is given up.
//! Not here: starting and stopping anything (the supervisor actor of `ropeteam-actors` does what this says).

use crate::executor::{DeviceFault, FaultKind};
use crate::ids::Epoch;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// How patient supervision is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestartPolicy {
    /// The first failure is answered at once, the next one after this pause, which doubles with every further failure, as long as
    /// none of the lives between them lasted.
    pub delay: Duration,
    /// The pause never grows beyond this.
    pub delay_max: Duration,
    /// A device that was up for so long has served well: its next failure is a first one again.
    pub lasts_after: Duration,
    /// So many failures inside `window` are answered by a restart, the next one by giving up.
    pub budget: u32,
    /// Failures older than this are forgiven.
    pub window: Duration,
    /// A device that was given up is tried once more so long after, and so on until a life lasts; `None`: only an operator does that.
    pub trial_after: Option<Duration>,
    /// A busy device that finishes no step for so long is stuck.
    pub stuck_after: Duration,
    /// A device that is not up so long after its start is stuck.
    pub start_within: Duration,
    /// A device that is asked to retire and has not done so after this long is abandoned.
    pub retire_within: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        RestartPolicy {
            delay: Duration::from_millis(200),
            delay_max: Duration::from_secs(30),
            lasts_after: Duration::from_secs(10),
            budget: 5,
            window: Duration::from_secs(600),
            trial_after: Some(Duration::from_secs(60)),
            stuck_after: Duration::from_secs(60),
            start_within: Duration::from_secs(900),
            retire_within: Duration::from_secs(10),
        }
    }
}

/// Where a device stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "name", content = "at")]
pub enum LifeState {
    /// Its executor is being built since then.
    Starting(Time),
    /// It serves since then.
    Up(Time),
    /// It failed and starts again then.
    Down(Time),
    /// It failed too often; an operator starts it again, or a trial does.
    GivenUp(Time),
}

impl LifeState {
    /// The word used in metrics and views.
    pub fn as_str(self) -> &'static str {
        match self {
            LifeState::Starting(_) => "starting",
            LifeState::Up(_) => "up",
            LifeState::Down(_) => "down",
            LifeState::GivenUp(_) => "given_up",
        }
    }
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start the next life at that time.
    RestartAt(Time),
    /// Do not start it again, but for a trial at that time.
    GiveUp {
        /// When; `None`: never.
        trial: Option<Time>,
    },
}

/// What a device shows of its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// It has work.
    pub busy: bool,
    /// When it last finished a step, or became busy.
    pub last: Time,
}

/// The lives of one device.
#[derive(Clone, Debug)]
pub struct Lives {
    policy: RestartPolicy,
    epoch: Epoch,
    state: LifeState,
    /// Failures inside the window, oldest first.
    failures: VecDeque<Time>,
    /// Failures since a life lasted.
    in_a_row: u32,
    restarts: u32,
    endings: VecDeque<Ending>,
    /// A life begins in a new process.
    new_process: bool,
}

/// How a life ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ending {
    /// Which life.
    pub epoch: Epoch,
    /// When.
    pub at: Time,
    /// Why.
    pub fault: DeviceFault,
}

/// Ends of lives that are remembered, the last ones.
const ENDINGS: usize = 16;

impl Lives {
    /// A device that starts its first life, epoch 1, now.
    pub fn new(policy: RestartPolicy, now: Time) -> Self {
        Lives {
            policy,
            epoch: Epoch(1),
            state: LifeState::Starting(now),
            failures: VecDeque::new(),
            in_a_row: 0,
            restarts: 0,
            endings: VecDeque::new(),
            new_process: true,
        }
    }

    /// Its lives begin in this very process, so that what is beyond a reset by it is beyond their help.
    pub fn in_this_process(mut self) -> Self {
        self.new_process = false;
        self
    }

    /// The present life, or the last one.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Where the device stands.
    pub fn state(&self) -> LifeState {
        self.state
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Why the last life ended.
    pub fn last_fault(&self) -> Option<&DeviceFault> {
        self.endings.back().map(|ending| &ending.fault)
    }

    /// How the last lives ended, oldest first.
    pub fn endings(&self) -> impl Iterator<Item = &Ending> {
        self.endings.iter()
    }

    /// Life `epoch` is ready. Returns false, and changes nothing, for any other than the starting life.
    pub fn up(&mut self, epoch: Epoch, now: Time) -> bool {
        let expected = epoch == self.epoch && matches!(self.state, LifeState::Starting(_));
        if expected {
            self.state = LifeState::Up(now);
        }
        expected
    }

    /// Life `epoch` ended. `None` if that life was over already.
    pub fn down(&mut self, epoch: Epoch, fault: DeviceFault, now: Time) -> Option<Verdict> {
        let alive = matches!(self.state, LifeState::Starting(_) | LifeState::Up(_));
        if epoch != self.epoch || !alive {
            return None;
        }
        let verdict = self.judge(fault.kind, now);
        self.state = match verdict {
            Verdict::RestartAt(at) => LifeState::Down(at),
            Verdict::GiveUp { .. } => LifeState::GivenUp(now),
        };
        if self.endings.len() == ENDINGS {
            self.endings.pop_front();
        }
        self.endings.push_back(Ending {
            epoch,
            at: now,
            fault,
        });
        Some(verdict)
    }

    fn judge(&mut self, kind: FaultKind, now: Time) -> Verdict {
        if kind == FaultKind::Requested {
            self.forgive();
            return Verdict::RestartAt(now);
        }
        if kind == FaultKind::Driver && !self.new_process {
            return Verdict::GiveUp { trial: None };
        }
        if matches!(self.state, LifeState::Up(at) if now.since(at) >= self.policy.lasts_after) {
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        while self
            .failures
            .front()
            .is_some_and(|&at| now.since(at) > self.policy.window)
        {
            self.failures.pop_front();
        }
        self.failures.push_back(now);
        let count = self.failures.len() as u32;
        if count > self.policy.budget {
            // A trial that fails within the window comes here again.
            let trial = self.policy.trial_after.map(|pause| now + pause);
            return Verdict::GiveUp { trial };
        }
        let pause = match count.min(self.in_a_row) {
            1 => Duration::ZERO,
            n => self.policy.delay.saturating_mul(1 << (n - 2).min(20)),
        };
        Verdict::RestartAt(now + pause.min(self.policy.delay_max))
    }

    /// Starts the next life and returns its epoch; `None` while a life goes on.
    /// An operator's wish (`forgive`) also revives a device that was given up, with a fresh budget.
    pub fn restart(&mut self, forgive: bool, now: Time) -> Option<Epoch> {
        match self.state {
            LifeState::Starting(_) | LifeState::Up(_) => return None,
            LifeState::GivenUp(at) if !forgive && !self.is_trial_due(at, now) => return None,
            LifeState::Down(_) | LifeState::GivenUp(_) => {}
        }
        if forgive {
            self.forgive();
        }
        self.epoch = Epoch(self.epoch.0 + 1);
        self.state = LifeState::Starting(now);
        self.restarts += 1;
        Some(self.epoch)
    }

    fn forgive(&mut self) {
        self.failures.clear();
        self.in_a_row = 0;
    }

    fn is_trial_due(&self, given_up: Time, now: Time) -> bool {
        let pause = self.policy.trial_after;
        pause.is_some_and(|pause| now.since(given_up) >= pause)
    }

    /// The fault to report if the device shows no progress for too long.
    pub fn overdue(&self, pulse: Pulse, now: Time) -> Option<DeviceFault> {
        let (since, limit, what) = match self.state {
            LifeState::Starting(at) => (at, self.policy.start_within, "not ready"),
            LifeState::Up(at) if pulse.busy => (
                pulse.last.max(at),
                self.policy.stuck_after,
                "no step finished",
            ),
            _ => return None,
        };
        let silent = now.since(since);
        (silent > limit).then(|| DeviceFault {
            kind: FaultKind::Stuck,
            detail: format!("{what} for {:.1} s", silent.as_secs_f64()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    fn fault(kind: FaultKind) -> DeviceFault {
        DeviceFault {
            kind,
            detail: "test".into(),
        }
    }

    fn policy() -> RestartPolicy {
        RestartPolicy {
            delay: Duration::from_millis(100),
            delay_max: Duration::from_millis(300),
            lasts_after: Duration::from_secs(3),
            budget: 3,
            window: Duration::from_secs(10),
            trial_after: Some(Duration::from_secs(2)),
            stuck_after: Duration::from_secs(1),
            start_within: Duration::from_secs(5),
            retire_within: Duration::from_secs(1),
        }
    }

    fn fail_once(lives: &mut Lives, now: Time) -> Option<Verdict> {
        let epoch = lives.epoch();
        lives.up(epoch, now);
        let verdict = lives.down(epoch, fault(FaultKind::Panic), now);
        lives.restart(false, now);
        verdict
    }

    #[test]
    fn the_pause_doubles_up_to_its_bound_and_the_budget_ends() {
        let policy = RestartPolicy {
            budget: 4,
            ..policy()
        };
        let mut lives = Lives::new(policy, at(0));
        assert_eq!(
            fail_once(&mut lives, at(1000)),
            Some(Verdict::RestartAt(at(1000)))
        );
        assert_eq!(
            fail_once(&mut lives, at(2000)),
            Some(Verdict::RestartAt(at(2100)))
        );
        assert_eq!(
            fail_once(&mut lives, at(3000)),
            Some(Verdict::RestartAt(at(3200)))
        );
        assert_eq!(
            fail_once(&mut lives, at(3500)),
            Some(Verdict::RestartAt(at(3800)))
        );
        let trial = Some(at(6000));
        assert_eq!(
            fail_once(&mut lives, at(4000)),
            Some(Verdict::GiveUp { trial })
        );
        assert_eq!(lives.state(), LifeState::GivenUp(at(4000)));
        assert_eq!(lives.restart(true, at(5000)), Some(Epoch(6)));
    }

    #[test]
    fn after_a_life_that_lasted_the_pause_is_short_again_but_the_failure_counts() {
        let mut lives = Lives::new(policy(), at(0));
        let restart_at = |ms| Some(Verdict::RestartAt(at(ms)));
        assert_eq!(fail_once(&mut lives, at(1000)), restart_at(1000));
        assert_eq!(fail_once(&mut lives, at(1200)), restart_at(1300));
        let epoch = lives.epoch();
        lives.up(epoch, at(1500));
        let verdict = lives.down(epoch, fault(FaultKind::Process), at(4500));
        assert_eq!(verdict, restart_at(4500));
        lives.restart(false, at(4500));
        let verdict = fail_once(&mut lives, at(4700));
        assert!(
            matches!(verdict, Some(Verdict::GiveUp { .. })),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_driver_that_this_process_has_lost_needs_another_process() {
        let lost = || DeviceFault {
            kind: FaultKind::Driver,
            detail: "lost".into(),
        };
        let mut lives = Lives::new(policy(), at(0));
        let verdict = lives.down(Epoch(1), lost(), at(10));
        assert_eq!(verdict, Some(Verdict::RestartAt(at(10))));
        let mut lives = Lives::new(policy(), at(0)).in_this_process();
        let verdict = lives.down(Epoch(1), lost(), at(10));
        assert_eq!(verdict, Some(Verdict::GiveUp { trial: None }));
    }

    #[test]
    fn a_device_that_was_given_up_is_tried_again_and_again_until_a_life_lasts() {
        let mut lives = Lives::new(policy(), at(0));
        (1..=4).for_each(|n| _ = fail_once(&mut lives, at(n)));
        assert_eq!(lives.restart(false, at(2003)), None, "too early");
        assert_eq!(lives.restart(false, at(2004)), Some(Epoch(5)));
        // The trial fails.
        let trial = Some(at(5000));
        assert_eq!(
            fail_once(&mut lives, at(3000)),
            Some(Verdict::GiveUp { trial })
        );
        assert_eq!(lives.restart(false, at(5000)), Some(Epoch(6)));
        // The next one lasts, and has a budget again.
        let verdict = fail_once(&mut lives, at(20_000));
        assert!(
            matches!(verdict, Some(Verdict::RestartAt(_))),
            "{verdict:?}"
        );
    }

    #[test]
    fn old_failures_are_forgiven() {
        let mut lives = Lives::new(policy(), at(0));
        for n in 1..20 {
            let now = at(n * 11_000);
            let verdict = fail_once(&mut lives, now);
            assert_eq!(verdict, Some(Verdict::RestartAt(now)));
        }
    }

    #[test]
    fn news_of_an_earlier_life_is_ignored() {
        let mut lives = Lives::new(policy(), at(0));
        fail_once(&mut lives, at(10));
        assert_eq!(lives.epoch(), Epoch(2));
        assert!(!lives.up(Epoch(1), at(20)));
        assert_eq!(lives.down(Epoch(1), fault(FaultKind::Panic), at(20)), None);
        assert!(lives.up(Epoch(2), at(30)));
    }

    #[test]
    fn a_requested_restart_costs_no_budget() {
        let mut lives = Lives::new(policy(), at(0));
        for n in 1..50 {
            let now = at(n);
            lives.up(lives.epoch(), now);
            let verdict = lives.down(lives.epoch(), fault(FaultKind::Requested), now);
            assert_eq!(verdict, Some(Verdict::RestartAt(now)));
            lives.restart(false, now);
        }
    }

    #[test]
    fn only_a_busy_device_without_progress_is_stuck() {
        let mut lives = Lives::new(policy(), at(0));
        assert_eq!(lives.overdue(Pulse::default(), at(4000)), None);
        assert!(lives.overdue(Pulse::default(), at(5001)).is_some());
        lives.up(Epoch(1), at(4000));
        assert_eq!(
            lives.overdue(
                Pulse {
                    busy: false,
                    last: at(4000)
                },
                at(90_000)
            ),
            None
        );
        assert_eq!(
            lives.overdue(
                Pulse {
                    busy: true,
                    last: at(8000)
                },
                at(8900)
            ),
            None
        );
        let stuck = lives.overdue(
            Pulse {
                busy: true,
                last: at(8000),
            },
            at(9100),
        );
        assert_eq!(stuck.map(|f| f.kind), Some(FaultKind::Stuck));
    }
}
