//! The classic group protocol (KIP-62 and later, static members of KIP-345 included) as a state
//! machine of one group.
//!
//! Owns members, generation and what is waited for. Any thread, one at a time. Takes requests and
//! the time, gives answers and the moment it wants to be called again; must never do I/O, read a
//! clock or make a random id.
//!
//! ```text
//!            first join                   all joined, or time is up
//!   Empty ---------------> Preparing ---------------------------------> Completing
//!     ^                      ^    ^                                       |    |
//!     |  nobody joined       |    |  join, leave, expiry, sync overdue    |    | leader's
//!     +----------------------+    +---------------------------------------+    | assignment
//!                            |                                                 v
//!                            +-------------------------------------------- Stable
//! ```
//!
//! Each join and each sync is answered exactly once: by a token the caller gave. What makes that
//! so: while Preparing there is a deadline for joins, while Completing and Stable one for syncs of
//! this generation; a member that is removed or replaced has its waiting request answered first.

mod group;
mod join;
mod member;
mod rebalance;
mod requests;

pub(crate) use group::{Group, GroupState};
pub(crate) use member::{Member, MemberIdentity};
pub(crate) use requests::{
    Answer, JoinAnswer, JoinRequest, Limits, Millis, SyncAnswer, SyncRequest, Token,
};

#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod tests;
