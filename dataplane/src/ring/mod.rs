//! The reactor of one core: submissions in, completions out. All `unsafe` of the crate is here.

mod ring;

pub use ring::{
    Completion, OperationId, Outcome, ReceiveInto, Ring, RingConfig, RingError, SendPart, Socket,
    Token, TokenRole, Waker,
};
