//! The closed set of record kinds.

/// What a record holds. Numbers are stable and append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum EventKind {
    /// A matching packet came in through a hooked interface: [`PacketBody`](crate::PacketBody).
    PacketIngress = 1,
    /// A matching packet left through a hooked interface: [`PacketBody`](crate::PacketBody).
    PacketEgress = 2,
    /// Data entered the receive queue of a watched socket: [`SockEnqueueBody`](crate::SockEnqueueBody).
    SockEnqueue = 3,
    /// A receive call on a watched socket returned: [`SockCallBody`](crate::SockCallBody).
    SockRead = 4,
    /// A send call on a watched socket returned: [`SockCallBody`](crate::SockCallBody).
    SockSend = 5,
    /// A watched thread left a CPU: [`SwitchOutBody`](crate::SwitchOutBody).
    SwitchOut = 6,
    /// A watched thread got a CPU: [`SwitchInBody`](crate::SwitchInBody).
    SwitchIn = 7,
    /// A watched thread is being woken: [`WakingBody`](crate::WakingBody).
    Waking = 8,
    /// A watched packet entered a queueing discipline: [`QdiscBody`](crate::QdiscBody).
    QdiscEnqueue = 9,
    /// A watched packet left a queueing discipline: [`QdiscBody`](crate::QdiscBody).
    QdiscDequeue = 10,
    /// A watched packet was handed to a driver: [`XmitBody`](crate::XmitBody).
    Xmit = 11,
    /// A matching packet, or one of a watched port, was dropped: [`DropBody`](crate::DropBody).
    Drop = 12,
    /// Softirqs ran for longer than the set minimum, or on top of a watched thread of which nothing
    /// was heard for a while: [`SoftirqBody`](crate::SoftirqBody).
    Softirq = 13,
    /// A watched thread ended: [`TaskExitBody`](crate::TaskExitBody).
    TaskExit = 14,
    /// A watched process got a new thread or child: [`TaskForkBody`](crate::TaskForkBody).
    TaskFork = 15,
    /// A receive call of a watched process on a socket that carries no checks returned:
    /// [`OtherCallBody`](crate::OtherCallBody).
    OtherRead = 16,
    /// A send call of a watched process on a socket that carries no checks returned:
    /// [`OtherCallBody`](crate::OtherCallBody).
    OtherSend = 17,
    /// A watched packet was taken out of a tap's ring: [`BackendRxBody`](crate::BackendRxBody).
    BackendRx = 20,
    /// A neighbour's link address became known for which packets waited:
    /// [`NeighbourBody`](crate::NeighbourBody).
    Neighbour = 24,
    /// A connection request came whose listener has a full accept queue:
    /// [`AcceptFullBody`](crate::AcceptFullBody).
    AcceptFull = 26,
    /// Whom a socket of a watched process that carries no checks is connected to:
    /// [`OtherPeerBody`](crate::OtherPeerBody).
    OtherPeer = 27,
    /// A send call on a watched TCP socket left data that had not been sent:
    /// [`SendHeldBody`](crate::SendHeldBody).
    SendHeld = 28,
    /// A watched thread went to sleep while it used a file: [`FileWaitBody`](crate::FileWaitBody).
    FileWait = 31,
    /// A sample of the pages of files that got dirty: [`DirtiedBody`](crate::DirtiedBody).
    Dirtied = 32,
    /// A watched thread has reclaimed memory: [`ReclaimBody`](crate::ReclaimBody).
    Reclaim = 33,
    /// The end of a block request woke a watched thread:
    /// [`BlockRequestBody`](crate::BlockRequestBody).
    BlockRequest = 40,
    /// A watched thread has waited for a kernel lock on the CPU: [`LockSpinBody`](crate::LockSpinBody).
    LockSpin = 45,
    /// A thread that nobody watches left a CPU for which a watched one waits:
    /// [`RanBody`](crate::RanBody).
    Ran = 46,
    /// Received packets waited for a CPU to run the softirq for them:
    /// [`SoftirqWaitBody`](crate::SoftirqWaitBody).
    SoftirqWait = 60,
    /// A watched thread went to sleep in a futex call: [`FutexWaitBody`](crate::FutexWaitBody).
    FutexWait = 64,
    /// The host has handled exits of a guest on a watched vCPU's thread:
    /// [`GuestExitsBody`](crate::GuestExitsBody).
    GuestExits = 70,
}

impl EventKind {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; 31] = [
        Self::PacketIngress,
        Self::PacketEgress,
        Self::SockEnqueue,
        Self::SockRead,
        Self::SockSend,
        Self::SwitchOut,
        Self::SwitchIn,
        Self::Waking,
        Self::QdiscEnqueue,
        Self::QdiscDequeue,
        Self::Xmit,
        Self::Drop,
        Self::Softirq,
        Self::TaskExit,
        Self::TaskFork,
        Self::OtherRead,
        Self::OtherSend,
        Self::BackendRx,
        Self::Neighbour,
        Self::AcceptFull,
        Self::OtherPeer,
        Self::SendHeld,
        Self::FileWait,
        Self::Dirtied,
        Self::Reclaim,
        Self::BlockRequest,
        Self::LockSpin,
        Self::Ran,
        Self::SoftirqWait,
        Self::FutexWait,
        Self::GuestExits,
    ];

    /// One more than the highest number: the length of an array indexed by kind.
    pub const SLOTS: usize = Self::ALL[Self::ALL.len() - 1] as usize + 1;

    /// Number → kind; numbers have gaps.
    const BY_NUMBER: [Option<Self>; Self::SLOTS] = {
        let mut kinds = [None; Self::SLOTS];
        let mut index = 0;
        while index < Self::ALL.len() {
            kinds[Self::ALL[index] as usize] = Some(Self::ALL[index]);
            index += 1;
        }
        kinds
    };

    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PacketIngress => "packet_ingress",
            Self::PacketEgress => "packet_egress",
            Self::SockEnqueue => "sock_enqueue",
            Self::SockRead => "sock_read",
            Self::SockSend => "sock_send",
            Self::SwitchOut => "switch_out",
            Self::SwitchIn => "switch_in",
            Self::Waking => "waking",
            Self::QdiscEnqueue => "qdisc_enqueue",
            Self::QdiscDequeue => "qdisc_dequeue",
            Self::Xmit => "xmit",
            Self::Drop => "drop",
            Self::Softirq => "softirq",
            Self::TaskExit => "task_exit",
            Self::TaskFork => "task_fork",
            Self::OtherRead => "other_read",
            Self::OtherSend => "other_send",
            Self::BackendRx => "backend_rx",
            Self::Neighbour => "neighbour",
            Self::AcceptFull => "accept_full",
            Self::OtherPeer => "other_peer",
            Self::SendHeld => "send_held",
            Self::FileWait => "file_wait",
            Self::Dirtied => "dirtied",
            Self::Reclaim => "reclaim",
            Self::BlockRequest => "block_request",
            Self::LockSpin => "lock_spin",
            Self::Ran => "ran",
            Self::SoftirqWait => "softirq_wait",
            Self::FutexWait => "futex_wait",
            Self::GuestExits => "guest_exits",
        }
    }
}

/// A kind number that this version does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownKind(pub u16);

impl TryFrom<u16> for EventKind {
    type Error = UnknownKind;

    fn try_from(number: u16) -> Result<Self, UnknownKind> {
        Self::BY_NUMBER.get(usize::from(number)).copied().flatten().ok_or(UnknownKind(number))
    }
}
