//! The waiting queue: bounded, by priority, then fair between tenants, then by arrival.
//!
//! Fairness counts the tokens each tenant was served, divided by its weight, and serves the one with the fewest (virtual token counters of Sheng et al.,
//! "Fairness in serving large language models", OSDI 2024). A tenant that comes back starts at the level of those that are
//! there, so that nobody saves up by staying away. A tenant that has as many sequences in service as its class allows is passed
//! over. Sequences that lost their device go before all others.

use crate::drain_speed::DrainSpeed;
use crate::fairness::{Class, Fairness};
use crate::ids::SeqId;
use crate::time::Time;
use crate::work::Work;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Within a tenant: priority, then arrival.
type Place = (i32, Time, SeqId);

/// Sequences that wait for a device.
#[derive(Debug)]
pub struct WaitingQueue {
    limit: usize,
    fairness: Fairness,
    /// Sequences that lost their device, in the order in which they arrived at first.
    again: BTreeMap<Place, Work>,
    /// Tenants with a sequence that waits or is in service.
    tenants: BTreeMap<Arc<str>, Tenant>,
    /// Where each waiting sequence is; `None` for those in `again`.
    tenant_of: HashMap<SeqId, (Option<Arc<str>>, Place)>,
    deadlines: BTreeSet<(Time, SeqId)>,
    speed: DrainSpeed,
}

#[derive(Debug, Default)]
struct Tenant {
    class: Class,
    /// Virtual counter: tokens served by weight, in units of `Class::UNIT`.
    served: u64,
    waiting: BTreeMap<Place, Work>,
    in_service: usize,
}

/// The queue is at its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the waiting queue is full ({limit} sequences)")]
pub struct QueueFull {
    /// The bound.
    pub limit: usize,
    /// When it is worth trying again.
    pub retry_after: Duration,
}

impl WaitingQueue {
    /// An empty queue for at most `limit` sequences.
    pub fn new(limit: usize) -> Self {
        WaitingQueue {
            limit,
            fairness: Fairness::default(),
            again: BTreeMap::new(),
            tenants: BTreeMap::new(),
            tenant_of: HashMap::new(),
            deadlines: BTreeSet::new(),
            speed: DrainSpeed::default(),
        }
    }

    /// Changes the bound; what waits already stays.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Changes how tenants share; those that wait or run as well.
    pub fn set_fairness(&mut self, fairness: Fairness) {
        for (name, tenant) in &mut self.tenants {
            tenant.class = fairness.class_of(name);
        }
        self.fairness = fairness;
    }

    /// Sequences that wait.
    pub fn len(&self) -> usize {
        self.tenant_of.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.tenant_of.is_empty()
    }

    /// Whether the sequence waits.
    pub fn contains(&self, seq: SeqId) -> bool {
        self.tenant_of.contains_key(&seq)
    }

    /// Takes a new sequence in.
    ///
    /// # Errors
    /// When the queue is full.
    pub fn push(&mut self, work: Work, now: Time) -> Result<(), QueueFull> {
        if self.len() >= self.limit {
            return Err(QueueFull {
                limit: self.limit,
                retry_after: self.retry_after(now),
            });
        }
        if self.is_empty() {
            self.speed.restart(now);
        }
        let level = self.lowest_level();
        let class = self.fairness.class_of(&work.tenant);
        let tenant = self.tenants.entry(Arc::clone(&work.tenant)).or_default();
        tenant.class = class;
        if tenant.waiting.is_empty() {
            tenant.served = tenant.served.max(level);
        }
        let place = (work.priority, work.arrived, work.seq);
        let of = Some(Arc::clone(&work.tenant));
        self.tenant_of.insert(work.seq, (of, place));
        self.deadlines
            .extend(work.queue_deadline.map(|deadline| (deadline, work.seq)));
        tenant.waiting.insert(place, work);
        Ok(())
    }

    /// Takes a sequence in that lost its device: before all others, whatever the bound, and with no deadline for its waiting,
    /// which it had kept already.
    pub fn push_again(&mut self, work: Work) {
        let place = (work.priority, work.arrived, work.seq);
        self.tenant_of.insert(work.seq, (None, place));
        self.again.insert(place, work);
    }

    /// When it is worth trying again, by the speed of the queue.
    pub fn retry_after(&self, now: Time) -> Duration {
        self.speed.retry_after(self.len(), now)
    }

    /// How long a new sequence of this tenant and priority would wait, at the speed at which sequences leave now; `None` while too
    /// few left to tell. Those that go before it: of its own tenant all as urgent, of the others as many as their shares bring.
    pub fn forecast(&self, tenant: &str, priority: i32, now: Time) -> Option<Duration> {
        let urgent = |t: &Tenant| t.waiting.range(..=(priority, now, SeqId(u64::MAX))).count();
        let own = self.tenants.get(tenant).map_or(0, urgent) + 1;
        let weight = u64::from(self.fairness.class_of(tenant).weight.max(1));
        let others = self.tenants.iter().filter(|(name, _)| &***name != tenant);
        let ahead: u64 = others
            .map(|(_, other)| {
                let share = own as u64 * u64::from(other.class.weight.max(1)) / weight;
                share.min(urgent(other) as u64)
            })
            .sum();
        let ahead = ahead as usize + own + self.again.len();
        self.speed.time_for(ahead, now)
    }

    /// The sequence that is next.
    pub fn first(&self) -> Option<&Work> {
        match self.again.first_key_value() {
            Some((_, work)) => Some(work),
            None => self.first_of_tenants(),
        }
    }

    fn first_of_tenants(&self) -> Option<&Work> {
        let able = |tenant: &&Tenant| tenant.class.allows(tenant.in_service);
        let firsts = self.tenants.values().filter(able).filter_map(|tenant| {
            let (&(priority, arrived, seq), work) = tenant.waiting.first_key_value()?;
            Some(((priority, tenant.served, arrived, seq), work))
        });
        firsts.min_by_key(|&(place, _)| place).map(|(_, work)| work)
    }

    /// Takes the next sequence out, into service: its tenant is charged for the prompt, and later for what is generated.
    pub fn pop_first(&mut self, now: Time) -> Option<Work> {
        let seq = self.first()?.seq;
        let again = self.tenant_of[&seq].0.is_none();
        let work = self.take(seq)?;
        let tenant = self.tenants.entry(Arc::clone(&work.tenant)).or_default();
        tenant.in_service += 1;
        if !again {
            tenant.served += tenant.class.cost(work.prompt.len() as u64);
            self.speed.left(now);
        }
        Some(work)
    }

    /// Takes a sequence out that will not be served.
    pub fn remove(&mut self, seq: SeqId) -> Option<Work> {
        let work = self.take(seq)?;
        self.drop_if_idle(&work.tenant);
        Some(work)
    }

    /// Takes out the sequences whose deadline has come.
    pub fn remove_expired(&mut self, now: Time) -> Vec<Work> {
        let mut expired = Vec::new();
        while let Some(&(deadline, seq)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            expired.extend(self.remove(seq));
        }
        expired
    }

    /// Takes everything out, in order of the sequences' ids.
    pub fn remove_all(&mut self) -> Vec<Work> {
        let mut seqs: Vec<SeqId> = self.tenant_of.keys().copied().collect();
        seqs.sort_unstable();
        seqs.into_iter()
            .filter_map(|seq| self.remove(seq))
            .collect()
    }

    /// The next deadline.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// A sequence left service, for good or to come again; its tenant is charged for the `generated` tokens.
    pub fn left_service(&mut self, tenant: &Arc<str>, generated: u32) {
        if let Some(entry) = self.tenants.get_mut(tenant) {
            entry.in_service = entry.in_service.saturating_sub(1);
            entry.served += entry.class.cost(u64::from(generated));
            self.drop_if_idle(tenant);
        }
    }

    /// Each tenant with what it has waiting, in service and charged.
    pub fn tenants(&self) -> impl Iterator<Item = (&str, usize, usize, u64)> {
        self.tenants.iter().map(|(name, tenant)| {
            let waiting = tenant.waiting.len();
            let served = tenant.served / Class::UNIT;
            (&**name, waiting, tenant.in_service, served)
        })
    }

    fn take(&mut self, seq: SeqId) -> Option<Work> {
        let (tenant, place) = self.tenant_of.remove(&seq)?;
        let work = match tenant {
            Some(tenant) => self.tenants.get_mut(&tenant)?.waiting.remove(&place)?,
            None => self.again.remove(&place)?,
        };
        if let Some(deadline) = work.queue_deadline {
            self.deadlines.remove(&(deadline, seq));
        }
        Some(work)
    }

    /// The lowest counter among the tenants that wait or are served.
    fn lowest_level(&self) -> u64 {
        self.tenants
            .values()
            .map(|tenant| tenant.served)
            .min()
            .unwrap_or(0)
    }

    fn drop_if_idle(&mut self, tenant: &Arc<str>) {
        let idle = |entry: &Tenant| entry.waiting.is_empty() && entry.in_service == 0;
        if self.tenants.get(tenant).is_some_and(idle) {
            self.tenants.remove(tenant);
        }
    }
}
