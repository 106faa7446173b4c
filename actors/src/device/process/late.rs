//! Constraints that a device's process makes anew from their source. To compile one takes milliseconds or more, so it is done on a
//! thread beside the steps: until then the constraint's mask is late, which the core is used to.

use ropeteam_engine::constraint::{Constraint, ConstraintFailed, ConstraintState, TokenMask};
use ropeteam_engine::ids::TokenId;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};

/// Makes a constraint from its source; `None` when it cannot.
pub type ReadConstraint = Box<dyn FnMut(&str) -> Option<Arc<dyn Constraint>> + Send>;

/// The thread that makes them, one after the other.
pub(super) struct LateConstraints {
    wanted: Sender<Wanted>,
}

struct Wanted {
    source: Arc<str>,
    output: Vec<TokenId>,
    reply: SyncSender<Box<dyn ConstraintState>>,
}

impl LateConstraints {
    /// # Errors
    /// When the system has no thread left.
    pub fn start(mut read: ReadConstraint) -> io::Result<Self> {
        let (wanted, queue) = channel::<Wanted>();
        std::thread::Builder::new()
            .name("constraints".to_owned())
            .spawn(move || {
                for Wanted {
                    source,
                    output,
                    reply,
                } in queue
                {
                    // A sequence that has gone does not listen; one whose constraint failed sees that none comes.
                    if let Some(constraint) = read(&source) {
                        let _ = reply.send(constraint.begin(&output));
                    }
                }
            })?;
        Ok(LateConstraints { wanted })
    }

    /// The constraint that has that source.
    pub fn get(&self, source: Arc<str>) -> Arc<dyn Constraint> {
        Arc::new(Late {
            source,
            wanted: self.wanted.clone(),
        })
    }
}

#[derive(Debug)]
struct Late {
    source: Arc<str>,
    wanted: Sender<Wanted>,
}

impl Constraint for Late {
    fn begin(&self, output: &[TokenId]) -> Box<dyn ConstraintState> {
        let (reply, coming) = sync_channel(1);
        // If the thread has ended, the reply's other end is gone with this.
        let _ = self.wanted.send(Wanted {
            source: self.source.clone(),
            output: output.to_vec(),
            reply,
        });
        Box::new(LateState::Coming(coming))
    }

    fn source(&self) -> Option<Arc<str>> {
        Some(self.source.clone())
    }
}

#[derive(Debug)]
enum LateState {
    Coming(Receiver<Box<dyn ConstraintState>>),
    Here(Box<dyn ConstraintState>),
    Failed,
}

impl LateState {
    /// Waits until it is here.
    fn settle(&mut self) -> Option<&mut dyn ConstraintState> {
        if let LateState::Coming(coming) = self {
            *self = match coming.recv() {
                Ok(state) => LateState::Here(state),
                Err(_) => LateState::Failed,
            };
        }
        match self {
            LateState::Here(state) => Some(&mut **state),
            LateState::Coming(_) | LateState::Failed => None,
        }
    }
}

impl ConstraintState for LateState {
    fn push(&mut self, id: TokenId) {
        if let Some(state) = self.settle() {
            state.push(id);
        }
    }

    fn is_ready(&mut self) -> bool {
        if let LateState::Coming(coming) = self {
            *self = match coming.try_recv() {
                Ok(state) => LateState::Here(state),
                Err(TryRecvError::Disconnected) => LateState::Failed,
                Err(TryRecvError::Empty) => return false,
            };
        }
        self.settle().is_none_or(ConstraintState::is_ready)
    }

    fn mask(&mut self) -> Result<TokenMask, ConstraintFailed> {
        self.settle().ok_or(ConstraintFailed)?.mask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Only(TokenId);

    #[derive(Debug)]
    struct OnlyState(TokenId, usize);

    impl Constraint for Only {
        fn begin(&self, output: &[TokenId]) -> Box<dyn ConstraintState> {
            Box::new(OnlyState(self.0, output.len()))
        }

        fn source(&self) -> Option<Arc<str>> {
            None
        }
    }

    impl ConstraintState for OnlyState {
        fn push(&mut self, _: TokenId) {
            self.1 += 1;
        }

        fn is_ready(&mut self) -> bool {
            true
        }

        /// One more id with each token.
        fn mask(&mut self) -> Result<TokenMask, ConstraintFailed> {
            let ids: Vec<_> = (0..self.1 as u32).map(|n| TokenId(self.0.0 + n)).collect();
            Ok(TokenMask::of(&ids))
        }
    }

    #[test]
    fn a_late_constraint_is_not_ready_before_it_is_made_and_then_the_same() {
        let (go, wait) = channel();
        let late = LateConstraints::start(Box::new(move |source| {
            let () = wait.recv().ok()?;
            source
                .parse()
                .ok()
                .map(|id| Arc::new(Only(TokenId(id))) as _)
        }))
        .expect("a thread");
        let mut state = late.get("40".into()).begin(&[TokenId(1)]);
        assert!(!state.is_ready());
        go.send(()).expect("it waits");
        assert_eq!(state.mask(), Ok(TokenMask::of(&[TokenId(40)])));
        assert!(state.is_ready());
        state.push(TokenId(40));
        assert!(state.mask().expect("a mask").allows(TokenId(41)));
        let mut broken = late.get("no number".into()).begin(&[]);
        go.send(()).expect("it waits");
        assert_eq!(broken.mask(), Err(ConstraintFailed));
    }
}
