//! The actors of Ropeteam: session, scheduler, device, supervisor, metrics and the bus between them and their observers.
//! They translate messages into calls of the pure state machines in `ropeteam-engine`. Embed them in any actix application
//! through [`Engine`].
//!
//! A request's way: [`Engine::generate`] starts a session (`session`), which submits its sequences to the scheduler
//! (`scheduler`), which assigns them to a device (`device`), which sends their tokens straight back to the session. The
//! supervisor (`supervisor`) starts devices and starts them again. All messages are in [`messages`].
//!
//! ```no_run
//! use ropeteam_actors::generation::GenerateEvent;
//! use ropeteam_actors::{Engine, EngineConfig, EngineParts, StartError};
//! use ropeteam_engine::request::GenerateRequest;
//!
//! /// To be called inside a running actix `System`.
//! async fn answer(parts: EngineParts, request: GenerateRequest) -> Result<String, StartError> {
//!     let engine = Engine::start(EngineConfig::default(), parts)?;
//!     let mut text = String::new();
//!     let mut events = engine.generate(request); // dropping it would cancel the request
//!     while let Some(event) = events.next_event().await {
//!         match event {
//!             GenerateEvent::Tokens(tokens) => text.push_str(&tokens.text),
//!             GenerateEvent::Done(done) => text.push_str(&done.text),
//!             GenerateEvent::Started(_) | GenerateEvent::Failed(_) => {}
//!         }
//!     }
//!     Ok(text)
//! }
//! ```

pub mod bus;
mod clock;
mod config;
mod device;
mod engine;
pub mod generation;
mod mailing;
pub mod messages;
mod metrics;
mod pulse;
mod rates;
mod requests;
mod scheduler;
mod session;
mod state;
mod supervisor;

pub use config::{
    BuildExecutor, DeviceSpec, EngineConfig, EngineParts, Hosting, Isolation, LiveConfig,
    ProcessSpec, SimulatedStepTime,
};
#[doc(hidden)]
pub use device::read_frames;
pub use device::{ReadConstraint, Rebuilt, ServeError, Wanted, serve_device};
pub use engine::{DeviceStatus, Engine, EngineView, StartError};
pub use generation::SessionView;
pub use messages::DrainOutcome;
pub use metrics::MetricsView;
pub use state::{EngineState, Limits};
pub use supervisor::{LivesView, SupervisorView};
