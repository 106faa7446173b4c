//! Vector clocks: who knows of which work. Actors are the host (all threads of it: how they order each other is their own affair)
//! and every stream. An access is known to an actor when the actor's clock has reached its tick.

/// Number of an actor; 0 is the host.
pub type Actor = u32;
/// The host.
pub const HOST: Actor = 0;

/// Per actor, how far its work is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(Vec<u64>);

/// One piece of work of one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Whose work.
    pub actor: Actor,
    /// Its number.
    pub tick: u64,
    /// The call that asked for it.
    pub call: &'static str,
}

impl Clock {
    /// How far an actor's work is known.
    pub fn get(&self, actor: Actor) -> u64 {
        self.0.get(actor as usize).copied().unwrap_or(0)
    }

    /// Whether that work happened before what this clock belongs to.
    pub fn knows(&self, epoch: &Epoch) -> bool {
        self.get(epoch.actor) >= epoch.tick
    }

    /// Begins the next piece of work of an actor.
    pub fn advance(&mut self, actor: Actor) -> u64 {
        let at = actor as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] += 1;
        self.0[at]
    }

    /// Learns all that another clock knows.
    pub fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_known_after_a_join_only() {
        let (mut producer, mut consumer) = (Clock::default(), Clock::default());
        let tick = producer.advance(3);
        let epoch = Epoch {
            actor: 3,
            tick,
            call: "write",
        };
        assert!(!consumer.knows(&epoch));
        consumer.join(&producer);
        assert!(consumer.knows(&epoch));
        producer.advance(3);
        let later = Epoch {
            tick: tick + 1,
            ..epoch
        };
        assert!(!consumer.knows(&later), "what came after the join");
    }
}
