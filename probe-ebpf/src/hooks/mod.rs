//! One file per kernel subsystem; each hook reads, fills a record and emits it.

pub(crate) mod accept;
pub(crate) mod backend;
pub(crate) mod block;
pub(crate) mod drop;
pub(crate) mod kvm;
pub(crate) mod lock;
pub(crate) mod neighbour;
pub(crate) mod packet;
pub(crate) mod qdisc;
pub(crate) mod sched;
pub(crate) mod self_test;
pub(crate) mod sender;
pub(crate) mod sock;
pub(crate) mod softirq;
pub(crate) mod stack;
pub(crate) mod storage;
